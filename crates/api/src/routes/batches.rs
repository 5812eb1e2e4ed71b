//! Batches.

use axum::{Json, extract::State, http::StatusCode};
use mayfly_core::id::BatchId;
use mayfly_store::{
    error::StoreError,
    records::{BatchPlace, MAX_ITEM_BYTES, NewBatch as Record},
};
use mayfly_wire::{
    batch::{Batch, BatchJobList, BatchList, CompleteBatch, NewBatch, SubmitItems},
    job::SubmittedMany,
    problem::Code,
};

use super::submit::accept;
use crate::{
    access::{Action, Caller},
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{Body, InPath, Params},
    page::{Page, next},
    resolve::Submission,
    show,
};

/// Most bytes of what a batch is made from.
const MAX_INPUT_BYTES: usize = 1024;

async fn find(app: &App, tenant: mayfly_core::id::TenantId, id: BatchId) -> ApiResult<Batch> {
    let found = app.parts.store.find_batch(tenant, id).await?;
    found
        .map(show::batch)
        .ok_or_else(|| ApiError::not_found("batch", id))
}

/// Begin a batch, which then takes jobs until it is complete.
#[utoipa::path(
    post,
    path = "/v1/batches",
    tag = "batches",
    request_body = NewBatch,
    responses((status = 201, description = "The batch.", body = Batch)),
)]
pub(crate) async fn begin(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    body: Body<NewBatch>,
) -> ApiResult<(StatusCode, Json<Batch>)> {
    let input = body.value.input;
    if input.len() > MAX_INPUT_BYTES {
        let message = format!("at most {MAX_INPUT_BYTES} bytes, not {}", input.len());
        return Err(ApiError::fault(
            Code::InvalidBody,
            "input",
            "out_of_range",
            message,
        ));
    }
    let id = BatchId::new();
    let record = Record { id, tenant, input };
    app.parts.store.begin_batch(record, app.now()).await?;
    Ok((StatusCode::CREATED, Json(find(&app, tenant, id).await?)))
}

/// Batches, newest first.
#[utoipa::path(
    get,
    path = "/v1/batches",
    tag = "batches",
    params(Page),
    responses((status = 200, description = "A page of the list.", body = BatchList)),
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    Params(page): Params<Page>,
) -> ApiResult<Json<BatchList>> {
    let (limit, before) = (page.limit()?, page.after::<BatchId>()?);
    let batches = app.parts.store.list_batches(tenant, before, limit).await?;
    let next = next(&batches, limit, |batch| batch.id.to_string());
    let batches = batches
        .into_iter()
        .map(show::batch)
        .map(|batch| seen_by(&caller, batch))
        .collect();
    Ok(Json(BatchList { batches, next }))
}

/// What a batch is made from is content of the tenant.
fn seen_by(caller: &Caller, batch: Batch) -> Batch {
    match caller.may(Action::ReadOutput) {
        Ok(()) => batch,
        Err(_) => Batch {
            input: String::new(),
            ..batch
        },
    }
}

/// A batch as it stands.
#[utoipa::path(
    get,
    path = "/v1/batches/{batch}",
    tag = "batches",
    params(("batch" = uuid::Uuid, Path, description = "The batch's id.")),
    responses((status = 200, description = "The batch.", body = Batch)),
)]
pub(crate) async fn show_batch(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(id): InPath<BatchId>,
) -> ApiResult<Json<Batch>> {
    let batch = find(&app, tenant, id).await?;
    Ok(Json(seen_by(&caller, batch)))
}

/// Submit jobs of a batch.
///
/// All of them are accepted, in their order and in one transaction, or none. An item that the batch has already stays as
/// it is and is named as existing, so that a submission may be repeated.
#[utoipa::path(
    post,
    path = "/v1/batches/{batch}/jobs",
    tag = "batches",
    params(("batch" = uuid::Uuid, Path, description = "The batch's id.")),
    request_body = SubmitItems,
    responses((status = 202, description = "All jobs are accepted.", body = SubmittedMany)),
)]
pub(crate) async fn submit(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(id): InPath<BatchId>,
    body: Body<SubmitItems>,
) -> ApiResult<(StatusCode, Json<SubmittedMany>)> {
    let batch = find(&app, tenant, id).await?;
    let items = body.value.items;
    for (index, item) in items.iter().enumerate() {
        if item.item.is_empty() || item.item.len() > MAX_ITEM_BYTES {
            let path = format!("items[{index}].item");
            let message = format!("an item's name has 1 to {MAX_ITEM_BYTES} bytes");
            return Err(ApiError::fault(Code::InvalidBody, &path, "out_of_range", message));
        }
    }
    if batch.items.is_some() {
        return Err(ApiError::new(Code::Conflict).detail("the batch is complete, and takes no further job"));
    }
    let submissions = items.into_iter().map(|item| Submission {
        tenant,
        spec: item.job,
        batch: Some(BatchPlace {
            batch: id,
            item: item.item,
        }),
        idempotency: None,
    });
    let jobs = accept(&app, "items", "job.", submissions.collect()).await?;
    Ok((StatusCode::ACCEPTED, Json(SubmittedMany { jobs })))
}

/// Say that a batch has all of its jobs.
#[utoipa::path(
    post,
    path = "/v1/batches/{batch}/complete",
    tag = "batches",
    params(("batch" = uuid::Uuid, Path, description = "The batch's id.")),
    request_body = CompleteBatch,
    responses((status = 200, description = "The batch.", body = Batch)),
)]
pub(crate) async fn complete(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(id): InPath<BatchId>,
    body: Body<CompleteBatch>,
) -> ApiResult<Json<Batch>> {
    match app.parts.store.complete_batch(tenant, id, body.value.items).await {
        Err(StoreError::Refused { .. }) => {
            Err(ApiError::new(Code::Conflict).detail("the batch has another number of jobs"))
        }
        done => {
            done?;
            Ok(Json(find(&app, tenant, id).await?))
        }
    }
}

/// Jobs of a batch, by their places.
#[utoipa::path(
    get,
    path = "/v1/batches/{batch}/jobs",
    tag = "batches",
    params(("batch" = uuid::Uuid, Path, description = "The batch's id."), Page),
    responses((status = 200, description = "A page of the list.", body = BatchJobList)),
)]
pub(crate) async fn list_jobs(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(id): InPath<BatchId>,
    Params(page): Params<Page>,
) -> ApiResult<Json<BatchJobList>> {
    let (limit, after) = (page.limit()?, page.after::<u64>()?);
    find(&app, tenant, id).await?;
    let jobs = app.parts.store.list_batch_jobs(tenant, id, after, limit).await?;
    let next = next(&jobs, limit, |job| job.position.to_string());
    let jobs = jobs.into_iter().map(show::batch_job).collect();
    Ok(Json(BatchJobList { jobs, next }))
}
