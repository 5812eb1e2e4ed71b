//! Audit events.

use axum::{Json, extract::State};
use mayfly_core::id::{AttemptId, AuditEventId, JobId, TenantId};
use mayfly_store::records::AuditFilter;
use mayfly_wire::audit::AuditList;
use serde::Deserialize;
use utoipa::IntoParams;

use super::jobs::exists;
use crate::{
    app::{App, Shared},
    auth::Tenant,
    error::ApiResult,
    extract::{InPath, Params},
    page::limit,
    show,
};

async fn list(app: &App, tenant: TenantId, filter: AuditFilter, limit: u32) -> ApiResult<Json<AuditList>> {
    let events = app.parts.store.list_audit(tenant, filter, limit).await?;
    let events = events.into_iter().map(show::audit_event).collect();
    Ok(Json(AuditList { events }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobAuditParams {
    /// Most events of the answer: the newest.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// A job's audit events, oldest first.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/audit",
    tag = "audit",
    params(("job" = uuid::Uuid, Path, description = "The job's id."), JobAuditParams),
    responses((status = 200, description = "The events.", body = AuditList)),
)]
pub(crate) async fn of_job(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(job): InPath<JobId>,
    Params(params): Params<JobAuditParams>,
) -> ApiResult<Json<AuditList>> {
    let limit = limit(params.limit)?;
    exists(&app, tenant, job).await?;
    let filter = AuditFilter {
        job: Some(job),
        attempt: None,
    };
    list(&app, tenant, filter, limit).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// Those of one job.
    #[param(value_type = Option<uuid::Uuid>)]
    job: Option<JobId>,
    /// Those of one attempt.
    #[param(value_type = Option<uuid::Uuid>)]
    attempt: Option<AttemptId>,
    /// Most events of the answer: the newest.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// The tenant's newest audit events, oldest of them first.
#[utoipa::path(
    get,
    path = "/v1/audit",
    tag = "audit",
    params(AuditParams),
    responses((status = 200, description = "The events.", body = AuditList)),
)]
pub(crate) async fn of_tenant(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    Params(params): Params<AuditParams>,
) -> ApiResult<Json<AuditList>> {
    let filter = AuditFilter {
        job: params.job,
        attempt: params.attempt,
    };
    list(&app, tenant, filter, limit(params.limit)?).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FleetAuditParams {
    /// Those that are older than this event.
    #[param(value_type = Option<uuid::Uuid>)]
    before: Option<AuditEventId>,
    /// Most events of the answer: the newest.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// The fleet's newest audit events, oldest of them first.
///
/// What became of executors, their sessions and self-tests, of images and of dead letters. What a tenant's jobs, keys and
/// shares went through is in the tenant's own log.
#[utoipa::path(
    get,
    path = "/v1/fleet/audit",
    tag = "audit",
    params(FleetAuditParams),
    responses((status = 200, description = "The events.", body = AuditList)),
)]
pub(crate) async fn of_fleet(
    State(app): State<Shared>,
    Params(params): Params<FleetAuditParams>,
) -> ApiResult<Json<AuditList>> {
    let limit = limit(params.limit)?;
    let events = app.parts.store.list_fleet_audit(params.before, limit).await?;
    let events = events.into_iter().map(show::audit_event).collect();
    Ok(Json(AuditList { events }))
}
