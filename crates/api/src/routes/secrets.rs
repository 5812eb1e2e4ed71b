//! Named secrets of a tenant: set, listed without their values, removed.

use axum::{Json, extract::State, http::StatusCode};
use mayfly_core::{
    id::{SecretId, TenantId},
    job::{SecretName, SecretText},
};
use mayfly_redact::{LEAST_SECRET_BYTES, Secrets};
use mayfly_store::secrets::{MAX_SECRETS, NewSecret, SecretRecord};
use mayfly_vault::{MAX_VALUE_BYTES, Vault, Whose};
use mayfly_wire::{
    problem::Code,
    secret::{Secret, SecretList, SetSecret},
};

use crate::{
    access::Caller,
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{Body, InPath},
};

/// What this server seals with.
///
/// # Errors
/// It keeps no secrets.
fn vault(app: &App) -> ApiResult<&Vault> {
    app.parts.vault.as_deref().ok_or_else(|| {
        ApiError::new(Code::NotSupported)
            .detail("this server keeps no secrets: whoever runs it sets `server.secrets_key`")
    })
}

fn shown(record: SecretRecord) -> Secret {
    Secret {
        name: record.name,
        value_id: record.value,
        set_at: record.set_at,
    }
}

/// What is wrong with a value, without a word of it.
fn fault(value: &SecretText) -> Option<(&'static str, String)> {
    let text = value.reveal();
    if text.contains('\0') {
        return Some(("contains_nul", "a secret can't contain NUL".to_owned()));
    }
    if text.trim_ascii().len() < LEAST_SECRET_BYTES {
        let message = format!(
            "a secret has at least {LEAST_SECRET_BYTES} bytes beside white space around it: a shorter one stands in many a \
             text, and can't be taken out of it"
        );
        return Some(("too_short", message));
    }
    if text.len() > MAX_VALUE_BYTES {
        return Some((
            "too_large",
            format!("a secret has at most {MAX_VALUE_BYTES} bytes"),
        ));
    }
    // A job with it could not be run: its output could not be looked through.
    Secrets::new([text])
        .err()
        .map(|error| ("too_large", error.to_string()))
}

/// Named secrets of the key's tenant, by name.
///
/// What is told of them is everything but their values, which nothing ever shows.
#[utoipa::path(
    get,
    path = "/v1/secrets",
    tag = "secrets",
    responses((status = 200, description = "The secrets.", body = SecretList)),
)]
pub(crate) async fn list_secrets(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
) -> ApiResult<Json<SecretList>> {
    let all = app.parts.store.list_secrets(tenant).await?;
    Ok(Json(SecretList {
        secrets: all.into_iter().map(shown).collect(),
    }))
}

/// Keep a value under a name.
///
/// Jobs of the tenant name it: `"secrets": {"VARIABLE": {"named": "NAME"}}`, or the same in `secret_files`. A value that was
/// kept under that name before is gone; a run that has started keeps what it was given.
#[utoipa::path(
    put,
    path = "/v1/secrets/{secret}",
    tag = "secrets",
    params(("secret" = SecretName, Path, description = "What it is called.")),
    request_body = SetSecret,
    responses((status = 200, description = "It is kept.", body = Secret)),
)]
pub(crate) async fn set_secret(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(name): InPath<SecretName>,
    body: Body<SetSecret>,
) -> ApiResult<Json<Secret>> {
    let vault = vault(&app)?;
    let value = body.value.value;
    if let Some((code, message)) = fault(&value) {
        return Err(ApiError::fault(Code::InvalidBody, "value", code, message));
    }
    has_room(&app, tenant, &name).await?;
    let id = SecretId::new();
    let whose = Whose {
        tenant,
        name: &name,
        value: id,
    };
    let sealed = vault.seal(whose, &value);
    let secret = NewSecret {
        tenant,
        name,
        value: id,
        sealed,
    };
    let kept = app
        .parts
        .store
        .set_secret(secret, Some(caller.key), app.now())
        .await?;
    Ok(Json(shown(kept)))
}

/// Whether the tenant may have one more of this name.
async fn has_room(app: &App, tenant: TenantId, name: &SecretName) -> ApiResult<()> {
    let all = app.parts.store.list_secrets(tenant).await?;
    if all.len() < MAX_SECRETS as usize || all.iter().any(|secret| secret.name == *name) {
        return Ok(());
    }
    Err(ApiError::new(Code::Conflict).detail(format!(
        "a tenant has at most {MAX_SECRETS} secrets: remove one first"
    )))
}

/// Remove a secret.
///
/// No run is given it from here on: a job that names it and has not started ends in trouble, unless it is set again before.
#[utoipa::path(
    delete,
    path = "/v1/secrets/{secret}",
    tag = "secrets",
    params(("secret" = SecretName, Path, description = "What it is called.")),
    responses((status = 204, description = "It is kept no more.")),
)]
pub(crate) async fn remove_secret(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(name): InPath<SecretName>,
) -> ApiResult<StatusCode> {
    let removed = app
        .parts
        .store
        .remove_secret(tenant, &name, Some(caller.key), app.now())
        .await?;
    if removed {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::not_found("secret", name))
    }
}
