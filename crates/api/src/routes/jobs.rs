//! Jobs shown, listed, canceled.

use std::time::Duration;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{BatchId, JobId, TenantId},
    image::ImageName,
    state::JobState,
    units::Span,
};
use mayfly_store::{
    error::StoreError,
    records::{CancelAnswer, JobDetails, JobFilter, JobPage},
};
use mayfly_wire::{
    MAX_WAIT_SECONDS,
    job::{Cancel, CancelWord, Job, JobList, State as Word},
    problem::Code,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    access::{Action, Caller},
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{InPath, Params},
    page::{Page, no_such_page},
    show::{self, Content},
};

/// Whether to wait for a job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    For(Duration),
}

pub(super) fn wait_of(asked: Option<Span>) -> ApiResult<Wait> {
    match asked.map(Span::as_duration) {
        None | Some(Duration::ZERO) => Ok(Wait::No),
        Some(wait) if wait <= Duration::from_secs(MAX_WAIT_SECONDS) => Ok(Wait::For(wait)),
        Some(_) => Err(ApiError::new(Code::InvalidParameter).detail(format!(
            "`wait` is at most {MAX_WAIT_SECONDS}s: ask again where that is not enough"
        ))),
    }
}

/// A job of a tenant, with all that is known of it.
pub(super) async fn details(app: &App, tenant: TenantId, id: JobId) -> ApiResult<JobDetails> {
    let found = app.parts.store.find_job(tenant, id).await?;
    found.ok_or_else(|| ApiError::not_found("job", id))
}

/// Whether a tenant has the job.
pub(super) async fn exists(app: &App, tenant: TenantId, id: JobId) -> ApiResult<()> {
    let standings = app.parts.store.job_standings(tenant, &[id]).await?;
    if standings.is_empty() {
        return Err(ApiError::not_found("job", id));
    }
    Ok(())
}

/// What a caller sees of a job.
fn content(caller: &Caller) -> Content {
    match caller.may(Action::ReadOutput) {
        Ok(()) => Content::Shown,
        Err(_) => Content::Hidden,
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobParams {
    /// How long to wait for the job's end, at most `60s`. The answer comes when it has ended or the time has passed;
    /// `state` says which.
    #[param(value_type = Option<String>, example = "30s")]
    wait: Option<Span>,
    /// Whether the answer has what is kept of the output. It has, where this is left out.
    output: Option<bool>,
}

/// A job with all that is known of it.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}",
    tag = "jobs",
    params(("job" = uuid::Uuid, Path, description = "The job's id."), JobParams),
    responses((status = 200, description = "The job as it stands.", body = Job)),
)]
pub(crate) async fn show_job(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(id): InPath<JobId>,
    Params(params): Params<JobParams>,
) -> ApiResult<Json<Job>> {
    if let Wait::For(limit) = wait_of(params.wait)? {
        // First whether there is one: nobody waits for nothing.
        exists(&app, tenant, id).await?;
        app.over(tenant, id, limit).await;
    }
    let found = details(&app, tenant, id).await?;
    let content = match (content(&caller), params.output) {
        (Content::Shown, Some(false)) => Content::WithoutOutput,
        (content, _) => content,
    };
    let waiting = match found.job.state {
        JobState::Queued | JobState::Dispatched => app.parts.store.waiting_for(tenant, id, app.now()).await?,
        JobState::Started | JobState::CancelRequested | JobState::Ended(_) => None,
    };
    Ok(Json(show::job(&found, waiting.as_ref(), content)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Those that stand there.
    #[param(inline)]
    state: Option<Word>,
    /// Those with this label: its name, `=`, and its value.
    #[param(example = "team=a", max_length = 512)]
    label: Option<String>,
    /// Those of this batch.
    #[param(value_type = Option<uuid::Uuid>)]
    batch: Option<BatchId>,
    /// Those that named this image so.
    #[param(value_type = Option<String>, example = "python")]
    image: Option<ImageName>,
    /// Those that were accepted then or later (RFC 3339).
    submitted_from: Option<DateTime<Utc>>,
    /// Those that were accepted before then (RFC 3339).
    submitted_before: Option<DateTime<Utc>>,
    /// Most entries of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// `next` of the page before.
    #[param(max_length = 64)]
    cursor: Option<String>,
}

impl ListParams {
    fn filter(self) -> ApiResult<JobFilter> {
        let label = self.label.map(|label| {
            let parts = label.split_once('=').filter(|(name, _)| !name.is_empty());
            let parts = parts.map(|(name, value)| (name.to_owned(), value.to_owned()));
            parts.ok_or_else(|| ApiError::new(Code::InvalidParameter).detail("`label` is `NAME=VALUE`"))
        });
        Ok(JobFilter {
            state: self.state.map(JobState::from),
            label: label.transpose()?,
            batch: self.batch,
            image: self.image,
            submitted_from: self.submitted_from,
            submitted_before: self.submitted_before,
        })
    }
}

/// Jobs, newest first.
///
/// A page may have fewer jobs than were asked for, even none, and go on nevertheless: `next` says so.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    params(ListParams),
    responses((status = 200, description = "A page of the list.", body = JobList)),
)]
pub(crate) async fn list_jobs(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> ApiResult<Json<JobList>> {
    let page = Page {
        limit: params.limit,
        cursor: params.cursor.clone(),
    };
    let content = content(&caller);
    if content == Content::Hidden && params.label.is_some() {
        return Err(ApiError::new(Code::Forbidden).detail("labels are content of the tenant's jobs"));
    }
    let (limit, before, filter) = (page.limit()?, page.after::<JobId>()?, params.filter()?);
    let listed = app.parts.store.list_jobs(tenant, &filter, before, limit).await;
    let JobPage { jobs, next } = match listed {
        Err(StoreError::NoSuchJob(_)) => return Err(no_such_page()),
        listed => listed?,
    };
    let jobs = jobs.into_iter().map(|job| show::line(job, content)).collect();
    let next = next.map(|next| next.to_string());
    Ok(Json(JobList { jobs, next }))
}

/// Ask for a job's end.
///
/// One that has not started is over at once. Of one that has, `canceled` is the only outcome from here on.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/cancel",
    tag = "jobs",
    params(("job" = uuid::Uuid, Path, description = "The job's id.")),
    responses((status = 200, description = "What became of it.", body = Cancel)),
)]
pub(crate) async fn cancel(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(id): InPath<JobId>,
) -> ApiResult<Json<Cancel>> {
    let context = (app.parts.context)();
    let answer = match app.parts.store.cancel(tenant, id, &context).await? {
        CancelAnswer::Canceled => CancelWord::Canceled,
        CancelAnswer::Requested => CancelWord::Requested,
        CancelAnswer::Over => CancelWord::Over,
    };
    Ok(Json(Cancel { job: id, answer }))
}
