//! Tenants and keys.

use axum::{Json, extract::State, http::StatusCode};
use chrono::TimeDelta;
use mayfly_core::{
    account::Belonging,
    id::{KeyId, TenantId},
    units::Span,
};
use mayfly_store::accounts::{
    KeysOf, MAX_QUOTA, MAX_WEIGHT, NewKey as NewRecord, NewTenant as NewTenantRecord, Quotas, TenantChange,
    USUAL_WEIGHT, is_name,
};
use mayfly_wire::{
    account::{ChangeTenant, CreatedKey, Key, KeyList, NewKey, NewTenant, Tenant, TenantList},
    problem::{Code, FaultShown},
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    access::Caller,
    app::Shared,
    error::{ApiError, ApiResult},
    extract::{Body, InPath, Params},
    key::ApiKey,
    page::{self, Page, next},
    show,
};

/// Longest life of a key: ten years. What is to last for ever says so by leaving it out.
const LONGEST_LIFE: Span = Span::seconds(10 * 366 * 24 * 3600);

fn fault(path: &str, message: impl Into<String>) -> FaultShown {
    FaultShown {
        path: path.to_owned(),
        code: "invalid".to_owned(),
        message: message.into(),
    }
}

fn name_fault() -> FaultShown {
    fault(
        "name",
        "a name has 1 to 63 lower-case letters, digits and `-`, and begins and ends with a letter or digit",
    )
}

fn weight_fault(weight: u32) -> Option<FaultShown> {
    let wrong = !(1..=MAX_WEIGHT).contains(&weight);
    wrong.then(|| fault("weight", format!("a weight is between 1 and {MAX_WEIGHT}")))
}

fn quota_faults(quotas: Quotas) -> impl Iterator<Item = FaultShown> {
    let fields = [
        ("most_in_flight", quotas.most_in_flight),
        ("most_queued", quotas.most_queued),
    ];
    let wrong = |most: Option<u32>| most.is_some_and(|most| most > MAX_QUOTA);
    fields
        .into_iter()
        .filter(move |(_, most)| wrong(*most))
        .map(|(field, _)| fault(field, format!("a bound is at most {MAX_QUOTA}")))
}

/// Make a tenant.
#[utoipa::path(
    post,
    path = "/v1/tenants",
    tag = "accounts",
    request_body = NewTenant,
    responses((status = 201, description = "The tenant.", body = Tenant)),
)]
pub(crate) async fn create_tenant(
    State(app): State<Shared>,
    caller: Caller,
    body: Body<NewTenant>,
) -> ApiResult<(StatusCode, Json<Tenant>)> {
    let NewTenant {
        name,
        weight,
        most_in_flight,
        most_queued,
    } = body.value;
    let weight = weight.unwrap_or(USUAL_WEIGHT);
    let mut faults = Vec::new();
    if !is_name(&name) {
        faults.push(name_fault());
    }
    faults.extend(weight_fault(weight));
    let quotas = Quotas {
        most_in_flight,
        most_queued,
    };
    faults.extend(quota_faults(quotas));
    if !faults.is_empty() {
        return Err(ApiError::faults(Code::InvalidBody, faults));
    }
    let id = TenantId::new();
    let new = NewTenantRecord {
        id,
        name,
        weight,
        quotas,
    };
    let made = app
        .parts
        .store
        .create_tenant(new, Some(caller.key), app.now())
        .await?;
    Ok((StatusCode::CREATED, Json(show::tenant(made))))
}

/// Tenants, oldest first.
#[utoipa::path(
    get,
    path = "/v1/tenants",
    tag = "accounts",
    params(Page),
    responses((status = 200, description = "A page of the list.", body = TenantList)),
)]
pub(crate) async fn list_tenants(
    State(app): State<Shared>,
    Params(page): Params<Page>,
) -> ApiResult<Json<TenantList>> {
    let (limit, after) = (page.limit()?, page.after::<TenantId>()?);
    let tenants = app.parts.store.list_tenants(after, limit).await?;
    let next = next(&tenants, limit, |tenant| tenant.id.to_string());
    let tenants = tenants.into_iter().map(show::tenant).collect();
    Ok(Json(TenantList { tenants, next }))
}

/// A tenant.
#[utoipa::path(
    get,
    path = "/v1/tenants/{tenant}",
    tag = "accounts",
    params(("tenant" = uuid::Uuid, Path, description = "The tenant's id.")),
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(crate) async fn show_tenant(
    State(app): State<Shared>,
    InPath(id): InPath<TenantId>,
) -> ApiResult<Json<Tenant>> {
    let found = app.parts.store.find_tenant(id).await?;
    let found = found.ok_or_else(|| ApiError::not_found("tenant", id))?;
    Ok(Json(show::tenant(found)))
}

/// Change a tenant's weight and quotas.
///
/// What is left out stays as it is, and `null` removes a bound. It counts from the next look of the scheduler and the next
/// submission on; what is queued or in flight beyond a new bound stays.
#[utoipa::path(
    patch,
    path = "/v1/tenants/{tenant}",
    tag = "accounts",
    params(("tenant" = uuid::Uuid, Path, description = "The tenant's id.")),
    request_body = ChangeTenant,
    responses((status = 200, description = "The tenant as it is now.", body = Tenant)),
)]
pub(crate) async fn change_tenant(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<TenantId>,
    body: Body<ChangeTenant>,
) -> ApiResult<Json<Tenant>> {
    let change = body.value;
    let asked = Quotas {
        most_in_flight: change.most_in_flight.flatten(),
        most_queued: change.most_queued.flatten(),
    };
    let weight = change.weight.and_then(weight_fault);
    let faults: Vec<_> = weight.into_iter().chain(quota_faults(asked)).collect();
    if !faults.is_empty() {
        return Err(ApiError::faults(Code::InvalidBody, faults));
    }
    let change = TenantChange {
        weight: change.weight,
        most_in_flight: change.most_in_flight,
        most_queued: change.most_queued,
    };
    let changed = app
        .parts
        .store
        .change_tenant(id, change, Some(caller.key), app.now())
        .await?;
    Ok(Json(show::tenant(changed)))
}

/// Make a key. Its secret is in this answer and nowhere else.
#[utoipa::path(
    post,
    path = "/v1/keys",
    tag = "accounts",
    request_body = NewKey,
    responses((status = 201, description = "The key and its secret.", body = CreatedKey)),
)]
pub(crate) async fn create_key(
    State(app): State<Shared>,
    caller: Caller,
    body: Body<NewKey>,
) -> ApiResult<(StatusCode, Json<CreatedKey>)> {
    let new = body.value;
    let mut faults = Vec::new();
    if !is_name(&new.name) {
        faults.push(name_fault());
    }
    let belonging = new.role.belonging();
    if !belonging.allows(new.tenant.is_some()) {
        let message = match belonging {
            Belonging::Tenant => "a key of this role is a tenant's: say which",
            Belonging::Fleet | Belonging::Either => "a key of this role is of no tenant: leave it out",
        };
        faults.push(fault("tenant", message));
    }
    if let Some(tenant) = new.tenant
        && app.parts.store.find_tenant(tenant).await?.is_none()
    {
        faults.push(fault("tenant", format!("there is no tenant {tenant}")));
    }
    let now = app.now();
    let expires_at = new.expires_after.map(|life| expiry(now, life)).transpose();
    if expires_at.is_err() {
        let message = format!("a key lives for at least a second and at most {LONGEST_LIFE}");
        faults.push(fault("expires_after", message));
    }
    let expires_at = match expires_at {
        Ok(expires_at) if faults.is_empty() => expires_at,
        Ok(_) | Err(OutOfRange) => return Err(ApiError::faults(Code::InvalidBody, faults)),
    };
    let key = ApiKey::generate();
    let record = NewRecord {
        id: key.id(),
        tenant: new.tenant,
        role: new.role,
        name: new.name,
        secret: key.digest(),
        expires_at,
    };
    let made = app.parts.store.create_key(record, Some(caller.key), now).await?;
    let created = CreatedKey {
        secret: key.reveal(),
        key: show::key(made),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// A life that no key may have.
struct OutOfRange;

fn expiry(
    now: chrono::DateTime<chrono::Utc>,
    life: Span,
) -> Result<chrono::DateTime<chrono::Utc>, OutOfRange> {
    if life < Span::seconds(1) || life > LONGEST_LIFE {
        return Err(OutOfRange);
    }
    let life = TimeDelta::from_std(life.as_duration()).map_err(|_| OutOfRange)?;
    now.checked_add_signed(life).ok_or(OutOfRange)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeyParams {
    /// Those of one tenant.
    #[param(value_type = Option<uuid::Uuid>)]
    tenant: Option<TenantId>,
    /// Most entries of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// `next` of the page before.
    #[param(max_length = 64)]
    cursor: Option<String>,
}

/// Keys, oldest first; expired and revoked ones too.
#[utoipa::path(
    get,
    path = "/v1/keys",
    tag = "accounts",
    params(KeyParams),
    responses((status = 200, description = "A page of the list.", body = KeyList)),
)]
pub(crate) async fn list_keys(
    State(app): State<Shared>,
    Params(params): Params<KeyParams>,
) -> ApiResult<Json<KeyList>> {
    let of = params.tenant.map_or(KeysOf::All, KeysOf::Tenant);
    let limit = page::limit(params.limit)?;
    let page = Page {
        limit: params.limit,
        cursor: params.cursor,
    };
    let keys = app
        .parts
        .store
        .list_keys(of, page.after::<KeyId>()?, limit, app.now());
    let keys = keys.await?;
    let next = next(&keys, limit, |key| key.id.to_string());
    let keys = keys.into_iter().map(show::key).collect();
    Ok(Json(KeyList { keys, next }))
}

/// Revoke a key.
///
/// It opens nothing from here on: at once at this server, and within a second at others. Streams that it has opened end
/// within 20 seconds. Jobs that it has submitted go on.
#[utoipa::path(
    delete,
    path = "/v1/keys/{key}",
    tag = "accounts",
    params(("key" = uuid::Uuid, Path, description = "The key's id.")),
    responses((status = 200, description = "The key, revoked.", body = Key)),
)]
pub(crate) async fn revoke_key(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<KeyId>,
) -> ApiResult<Json<Key>> {
    let revoked = app
        .parts
        .store
        .revoke_key(id, Some(caller.key), app.now())
        .await?;
    app.keys.forget(&id);
    Ok(Json(show::key(revoked)))
}
