//! What the server says of itself. All but the last is open to everybody.

use axum::{Json, extract::State, http::StatusCode};
use mayfly_wire::health::{Live, Ready, Version, Whoami};

use crate::{access::Caller, app::Shared};

/// Whether the process answers.
#[utoipa::path(
    get,
    path = "/v1/health/live",
    tag = "health",
    responses((status = 200, description = "It does.", body = Live)),
)]
pub(crate) async fn live() -> Json<Live> {
    Json(Live { live: true })
}

/// Whether the server can do its work, and if not, why.
#[utoipa::path(
    get,
    path = "/v1/health/ready",
    tag = "health",
    responses(
        (status = 200, description = "It can.", body = Ready),
        (status = 503, description = "It can't.", body = Ready),
    ),
)]
pub(crate) async fn ready(State(app): State<Shared>) -> (StatusCode, Json<Ready>) {
    let checks = app.parts.health.checks().await;
    let stopping = app.stop.is_cancelled();
    let ready = !stopping && checks.iter().all(|check| check.ok || !check.required);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(Ready { ready, checks }))
}

/// Which program this is.
#[utoipa::path(
    get,
    path = "/v1/version",
    tag = "health",
    responses((status = 200, description = "Name and version.", body = Version)),
)]
pub(crate) async fn version() -> Json<Version> {
    Json(Version {
        name: "mayfly".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: "v1".to_owned(),
    })
}

/// Who the request is by.
#[utoipa::path(
    get,
    path = "/v1/whoami",
    tag = "accounts",
    responses((status = 200, description = "The key.", body = Whoami)),
)]
pub(crate) async fn whoami(caller: Caller) -> Json<Whoami> {
    Json(Whoami {
        key: caller.key,
        name: caller.name,
        role: caller.role,
        tenant: caller.tenant,
    })
}
