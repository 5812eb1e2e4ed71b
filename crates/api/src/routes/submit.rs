//! Jobs submitted: one, or many at once.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header::LOCATION},
    response::{IntoResponse as _, Response},
};
use mayfly_core::{digest::Digest, id::JobId, job::JobSpec, units::Span};
use mayfly_store::records::{Idempotency, Submitted as Answer};
use mayfly_wire::{
    IDEMPOTENCY_KEY, MAX_PAGE,
    job::{Job, SubmitMany, Submitted, SubmittedMany},
    problem::Code,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::jobs::{Wait, details, wait_of};
use crate::{
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    expansion::Expansion,
    extract::{Body, Params},
    resolve::{Submission, refusal, resolve},
    show::{self, Content},
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubmitParams {
    /// How long to wait for the job's end, at most `60s`. Where it ends in time the answer is the job itself.
    #[param(value_type = Option<String>, example = "30s")]
    wait: Option<Span>,
}

/// Submit a job.
///
/// When this answers with 200 or 202, the job is on record and will come to exactly one end. A submission that got no
/// answer is repeated under the same `Idempotency-Key`: the same body then stands for the same job, another one is a
/// conflict.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        SubmitParams,
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters of your own choice; known for 24 hours.",
            min_length = 1, max_length = 255, pattern = "^[!-~]+$"),
    ),
    request_body = JobSpec,
    responses(
        (status = 200, description = "The job has ended within the wait.", body = Job),
        (status = 202, description = "The job is accepted.", body = Submitted,
            headers(("location" = String, description = "Where the job is."))),
    ),
)]
pub(crate) async fn submit(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    body: Body<JobSpec>,
) -> ApiResult<Response> {
    let wait = wait_of(params.wait)?;
    let submission = Submission {
        tenant,
        batch: None,
        idempotency: idempotency(&headers, &body.bytes)?,
        spec: body.value,
    };
    let now = app.now();
    let mut expansion = Expansion::default();
    let job = resolve(&app, submission, now, &mut expansion)
        .await?
        .map_err(refusal)?;
    let id = job.id;
    let submitted = submitted(id, app.parts.store.submit(job, now).await?);
    // The job is on record, and a wait may be long.
    drop((body.bytes, body.room, expansion));
    if let Wait::For(limit) = wait {
        app.over(tenant, submitted.job, limit).await;
        let found = details(&app, tenant, submitted.job).await?;
        if found.job.state.end().is_some() {
            return Ok(Json(show::job(&found, None, Content::Shown)).into_response());
        }
    }
    let mut response = (StatusCode::ACCEPTED, Json(submitted)).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{}", submitted.job)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// Submit many jobs.
///
/// All of them are accepted, in their order and in one transaction, or none.
#[utoipa::path(
    post,
    path = "/v1/jobs/bulk",
    tag = "jobs",
    request_body = SubmitMany,
    responses((status = 202, description = "All jobs are accepted.", body = SubmittedMany)),
)]
pub(crate) async fn submit_many(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    body: Body<SubmitMany>,
) -> ApiResult<(StatusCode, Json<SubmittedMany>)> {
    let submissions = body.value.jobs.into_iter().map(|spec| Submission {
        tenant,
        spec,
        batch: None,
        idempotency: None,
    });
    let jobs = accept(&app, "jobs", "", submissions.collect()).await?;
    Ok((StatusCode::ACCEPTED, Json(SubmittedMany { jobs })))
}

/// Submits all jobs of a list or none. `list` and `field` are the names that the body has for it and for the spec in each
/// of its entries, for the paths of faults.
pub(super) async fn accept(
    app: &App,
    list: &str,
    field: &str,
    submissions: Vec<Submission>,
) -> ApiResult<Vec<Submitted>> {
    let most = usize::try_from(MAX_PAGE).unwrap_or(usize::MAX);
    if submissions.is_empty() || submissions.len() > most {
        let message = format!("between 1 and {MAX_PAGE} at once, not {}", submissions.len());
        return Err(ApiError::fault(Code::InvalidBody, list, "out_of_range", message));
    }
    let now = app.now();
    let mut expansion = Expansion::default();
    let (mut jobs, mut faults) = (Vec::with_capacity(submissions.len()), Vec::new());
    for (index, submission) in submissions.into_iter().enumerate() {
        match resolve(app, submission, now, &mut expansion).await? {
            Ok(job) => jobs.push(job),
            Err(found) => faults.extend(found.into_iter().map(|mut fault| {
                fault.path = format!("{list}[{index}].{field}{}", fault.path);
                fault
            })),
        }
    }
    if !faults.is_empty() {
        return Err(refusal(faults));
    }
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let answers = app.parts.store.submit_many(jobs, now).await?;
    Ok(ids
        .into_iter()
        .zip(answers)
        .map(|(id, answer)| submitted(id, answer))
        .collect())
}

fn submitted(id: JobId, answer: Answer) -> Submitted {
    match answer {
        Answer::Accepted => Submitted {
            job: id,
            existing: false,
        },
        Answer::Existing(job) => Submitted { job, existing: true },
    }
}

/// What a submission is known by, where its client gave it a key.
fn idempotency(headers: &HeaderMap, body: &[u8]) -> ApiResult<Option<Idempotency>> {
    let wrong = || {
        ApiError::new(Code::InvalidParameter)
            .detail("`Idempotency-Key` is one header of 1 to 255 visible ASCII characters")
    };
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next() else {
        return Ok(None);
    };
    let only = all.next().is_none() && key.as_bytes().iter().all(u8::is_ascii_graphic);
    let key = key.to_str().ok().filter(|_| only).ok_or_else(wrong)?;
    Idempotency::new(key, Digest::of(body))
        .map(Some)
        .map_err(|_| wrong())
}
