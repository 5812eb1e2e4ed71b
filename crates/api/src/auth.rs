//! Who a request is by, and whether they may: the guard that every route but the open ones has.

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, header::AUTHORIZATION, request::Parts},
    middleware::Next,
    response::Response,
};
use mayfly_core::{
    chain::Chain,
    digest::Digest,
    id::{KeyId, TenantId},
};
use mayfly_store::accounts::{KeyRecord, LAST_USED_WITHIN, Standing};
use mayfly_wire::problem::Code;

use crate::{
    access::{Action, Caller, Denied},
    app::{App, Shared},
    error::{ApiError, ApiResult},
    key::ApiKey,
};

/// What a route's guard knows.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) app: Shared,
    pub(crate) action: Action,
}

/// Lets a request pass whose key may do what the route does.
pub(crate) async fn guard(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let app = &guard.app;
    let caller = authenticate(app, request.headers()).await?;
    tracing::Span::current().record("key.id", tracing::field::display(caller.key));
    if let Err(wait) = app.rate.take(caller.key, app.moment()) {
        return Err(ApiError::new(Code::RateLimited).retry_after(wait));
    }
    caller.may(guard.action).map_err(|denied| {
        ApiError::new(Code::Forbidden).detail(match denied {
            Denied::Role => format!("a key with the role `{}` may not do this", caller.role),
            Denied::NoTenant => "this is done in a tenant, and the key is of none".to_owned(),
        })
    })?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

fn unauthenticated(why: &'static str) -> ApiError {
    ApiError::new(Code::Unauthenticated).detail(why)
}

/// Who the key in the headers stands for.
pub(crate) async fn authenticate(app: &App, headers: &HeaderMap) -> ApiResult<Caller> {
    let caller = proven(app, headers).await;
    if let Err(error) = &caller
        && error.code == Code::Unauthenticated
        && let Err(wait) = app.failures.take((), app.moment())
    {
        return Err(ApiError::new(Code::RateLimited)
            .detail("too many requests with keys that open nothing")
            .retry_after(wait));
    }
    caller
}

async fn proven(app: &App, headers: &HeaderMap) -> ApiResult<Caller> {
    let key = shown(headers)?;
    let record = find(app, key.id()).await?;
    // The same work for a key that there is and one that there isn't.
    let stored = record
        .as_ref()
        .map_or_else(|| Digest::of(b""), |record| record.secret);
    let opens = key.opens(&stored);
    let record = record
        .filter(|_| opens)
        .ok_or_else(|| unauthenticated("the key is none of ours"))?;
    match record.standing {
        Standing::Valid => {}
        Standing::Expired => return Err(unauthenticated("the key has expired")),
        Standing::Revoked => return Err(unauthenticated("the key was revoked")),
    }
    Ok(Caller {
        key: record.id,
        name: record.name,
        role: record.role,
        tenant: record.tenant,
    })
}

/// The one key that a request shows.
fn shown(headers: &HeaderMap) -> ApiResult<ApiKey> {
    const HOW: &str = "send one `Authorization: Bearer mayfly_…` header";
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else {
        return Err(unauthenticated(HOW));
    };
    let text = only.to_str().map_err(|_| unauthenticated(HOW))?;
    let (scheme, key) = text.split_once(' ').ok_or_else(|| unauthenticated(HOW))?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthenticated(HOW));
    }
    key.trim_matches(' ').parse().map_err(|_| unauthenticated(HOW))
}

/// The record of a key, as it was within the last second.
pub(crate) async fn find(app: &App, id: KeyId) -> ApiResult<Option<KeyRecord>> {
    if let Some(own) = app.own_key.as_ref().filter(|own| own.id == id) {
        return Ok(Some(own.clone()));
    }
    let moment = app.moment();
    if let Some(record) = app.keys.get(&id, moment) {
        return Ok(Some(record));
    }
    let now = app.now();
    let Some(record) = app.parts.store.find_key(id, now).await? else {
        return Ok(None);
    };
    if record.standing == Standing::Valid
        && record
            .last_used_at
            .is_none_or(|last| last + LAST_USED_WITHIN <= now)
        && let Err(error) = app.parts.store.key_used(id, now).await
    {
        // The request is what counts.
        tracing::warn!(key.id = %id, error = %Chain(&error), "the use of a key could not be noted");
    }
    // From the beginning of the read: what was revoked after it is not known for longer than the bound.
    app.keys.put(id, record.clone(), moment);
    Ok(Some(record))
}

/// Whether a key that was valid is so still, for what lasts long. Trouble with the database ends nothing.
pub(crate) async fn still_valid(app: &App, id: KeyId) -> bool {
    match find(app, id).await {
        Ok(record) => record.is_some_and(|record| record.standing == Standing::Valid),
        Err(_) => true,
    }
}

/// The tenant that a request is about: that of its key. The guard has seen that there is one.
pub(crate) struct Tenant(pub(crate) TenantId);

impl FromRequestParts<Shared> for Tenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> ApiResult<Self> {
        let caller = parts.extensions.get::<Caller>();
        caller
            .and_then(|caller| caller.tenant)
            .map(Self)
            .ok_or_else(|| ApiError::new(Code::Internal).because("a route about a tenant has no guard"))
    }
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> ApiResult<Self> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::new(Code::Internal).because("a route has no guard"))
    }
}
