//! The fleet: images, executors, dead letters.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use mayfly_core::{
    chain::Chain,
    digest::Digest,
    id::ExecutorId,
    image::{ImageName, ImagePin},
};
use mayfly_wire::{
    dead_letter::DeadLetterList,
    executor::ExecutorList,
    image::{Image, ImageList, PinImage},
    problem::Code,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    access::Caller,
    app::Shared,
    error::{ApiError, ApiResult},
    extract::{Body, InPath, Params},
    page::{Page, limit, next, no_such_page},
    seams::{Order, SourceError},
    show,
};

/// Longest text of a pin.
const MAX_REFERENCE_BYTES: usize = 1024;
const MAX_PLATFORM_BYTES: usize = 64;

/// What an error of a source is, about a thing that may not be there.
fn source(error: SourceError, what: &'static str, id: &str) -> ApiError {
    match error {
        SourceError::NoSuchThing => ApiError::not_found(what, id),
        SourceError::Over => ApiError::new(Code::Conflict).detail(
            "the attempt of this dead letter has started or is over, and a job has one result: submit the job again, or \
             discard the letter",
        ),
        SourceError::NotSupported => ApiError::new(Code::NotSupported),
        SourceError::Unavailable(source) => ApiError::new(Code::Unavailable)
            .detail("the broker or the database is in trouble")
            .retry_after(Duration::from_secs(1))
            .because(source),
    }
}

/// The image catalog, by name.
#[utoipa::path(
    get,
    path = "/v1/images",
    tag = "fleet",
    responses((status = 200, description = "The catalog.", body = ImageList)),
)]
pub(crate) async fn list_images(State(app): State<Shared>) -> ApiResult<Json<ImageList>> {
    let images = app.parts.store.list_images().await?;
    let images = images.into_iter().map(show::image).collect();
    Ok(Json(ImageList { images }))
}

/// Make a name of the catalog mean an image.
///
/// The digests are those that an engine has for it: `mayfly image pin` finds them. Executors must hold it before jobs run.
#[utoipa::path(
    put,
    path = "/v1/images/{name}",
    tag = "fleet",
    params(("name" = String, Path, description = "The name.", pattern = "^[a-z0-9]+([._-]+[a-z0-9]+)*$", max_length = 128)),
    request_body = PinImage,
    responses((status = 200, description = "What the name means now.", body = Image)),
)]
pub(crate) async fn pin_image(
    State(app): State<Shared>,
    caller: Caller,
    InPath(name): InPath<String>,
    body: Body<PinImage>,
) -> ApiResult<Json<Image>> {
    if !matches!(name.parse(), Ok(ImageName::Catalog(_))) || name.len() > 128 {
        return Err(ApiError::new(Code::InvalidParameter).detail(
            "a name of the catalog is made of lower-case letters, digits, `.`, `_` and `-`, and begins and ends with a \
             letter or digit",
        ));
    }
    let pin = body.value;
    for (path, text, most) in [
        ("reference", &pin.reference, MAX_REFERENCE_BYTES),
        ("platform", &pin.platform, MAX_PLATFORM_BYTES),
    ] {
        // Content of the log, and of tables that people read.
        if text.is_empty() || text.len() > most || text.chars().any(char::is_control) {
            let message = format!("1 to {most} bytes, none of them a control character");
            return Err(ApiError::fault(Code::InvalidBody, path, "out_of_range", message));
        }
    }
    let pin = ImagePin::from(pin);
    app.parts
        .store
        .pin_image(&name, &pin, Some(caller.key), app.now())
        .await?;
    app.images.forget(&name);
    let found = app.parts.store.find_image(&name).await?;
    let entry = found.ok_or_else(|| ApiError::not_found("image", &name))?;
    Ok(Json(show::image(entry)))
}

/// Executors, by their names.
#[utoipa::path(
    get,
    path = "/v1/executors",
    tag = "fleet",
    params(Page),
    responses((status = 200, description = "A page of the list.", body = ExecutorList)),
)]
pub(crate) async fn list_executors(
    State(app): State<Shared>,
    Params(page): Params<Page>,
) -> ApiResult<Json<ExecutorList>> {
    let (limit, after) = (page.limit()?, page.after::<String>()?);
    // As names are: what else comes (U+0000, which no database takes as text) is no cursor of this list.
    if after
        .as_ref()
        .is_some_and(|name| name.chars().any(char::is_control))
    {
        return Err(no_such_page());
    }
    let executors = app.parts.store.list_executors(after.as_deref(), limit).await?;
    let next = next(&executors, limit, |executor| executor.name.clone());
    let executors = executors.into_iter().map(show::executor).collect();
    Ok(Json(ExecutorList { executors, next }))
}

/// The pool of an executor that there is.
async fn pool_of(app: &Shared, id: ExecutorId) -> ApiResult<String> {
    let found = app.parts.store.find_executor(id).await?;
    let found = found.ok_or_else(|| ApiError::not_found("executor", id))?;
    Ok(found.pool)
}

/// Puts a cordon on record, or takes it off, and has the executor told, which else hears of it by its next heartbeats.
async fn set_cordon(app: &Shared, caller: &Caller, id: ExecutorId, order: Order) -> ApiResult<StatusCode> {
    let pool = pool_of(app, id).await?;
    let cordoned = order == Order::Cordon;
    let (store, now) = (&app.parts.store, app.now());
    store.cordon(id, cordoned, Some(caller.key), now).await?;
    if let Err(error @ SourceError::Unavailable(_)) = app.parts.fleet.order(&pool, id, order).await {
        tracing::warn!(executor.id = %id, error = %Chain(&error), "an executor hears of its cordon by its heartbeats");
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Have an executor take nothing new.
#[utoipa::path(
    post,
    path = "/v1/executors/{executor}/cordon",
    tag = "fleet",
    params(("executor" = uuid::Uuid, Path, description = "The executor's id.")),
    responses((status = 204, description = "It is on record.")),
)]
pub(crate) async fn cordon(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<ExecutorId>,
) -> ApiResult<StatusCode> {
    set_cordon(&app, &caller, id, Order::Cordon).await
}

/// Have a cordoned executor take jobs again.
#[utoipa::path(
    post,
    path = "/v1/executors/{executor}/uncordon",
    tag = "fleet",
    params(("executor" = uuid::Uuid, Path, description = "The executor's id.")),
    responses((status = 204, description = "It is on record.")),
)]
pub(crate) async fn uncordon(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<ExecutorId>,
) -> ApiResult<StatusCode> {
    set_cordon(&app, &caller, id, Order::Uncordon).await
}

/// Have an executor take nothing new, finish what it runs, and end.
#[utoipa::path(
    post,
    path = "/v1/executors/{executor}/drain",
    tag = "fleet",
    params(("executor" = uuid::Uuid, Path, description = "The executor's id.")),
    responses((status = 204, description = "It is on its way.")),
)]
pub(crate) async fn drain(
    State(app): State<Shared>,
    InPath(id): InPath<ExecutorId>,
) -> ApiResult<StatusCode> {
    let pool = pool_of(&app, id).await?;
    let told = app.parts.fleet.order(&pool, id, Order::Drain).await;
    told.map_err(|error| source(error, "executor", &id.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LetterParams {
    /// Most letters of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Dead letters, oldest first. What they hold is not shown.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "fleet",
    params(LetterParams),
    responses((status = 200, description = "The letters.", body = DeadLetterList)),
)]
pub(crate) async fn list_letters(
    State(app): State<Shared>,
    Params(params): Params<LetterParams>,
) -> ApiResult<Json<DeadLetterList>> {
    let listed = app.parts.dead_letters.list(limit(params.limit)?).await;
    let (dead_letters, more) = listed.map_err(|error| source(error, "dead letter", ""))?;
    Ok(Json(DeadLetterList { dead_letters, more }))
}

/// The id of a letter: the digest of its message.
fn letter(id: &str) -> ApiResult<Digest> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digest = (id.len() == 64 && id.bytes().all(is_digit)).then(|| format!("sha256:{id}").parse());
    digest.and_then(Result::ok).ok_or_else(|| {
        ApiError::new(Code::InvalidParameter)
            .detail("the id of a dead letter has 64 lower-case hexadecimal digits")
    })
}

/// Publish a dead letter again to where it came from.
///
/// A job's letter is published as the next publication of its attempt, where that waits for its start; else the answer is
/// 409. It is on the audit record who did it.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{letter}/replay",
    tag = "fleet",
    params(("letter" = String, Path, description = "The letter's id.", pattern = "^[0-9a-f]{64}$")),
    responses((status = 204, description = "It is published.")),
)]
pub(crate) async fn replay(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> ApiResult<StatusCode> {
    let replayed = app.parts.dead_letters.replay(letter(&id)?, caller.key).await;
    replayed.map_err(|error| source(error, "dead letter", &id))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Forget a dead letter, for good.
///
/// It is on the audit record who did it.
#[utoipa::path(
    delete,
    path = "/v1/dead-letters/{letter}",
    tag = "fleet",
    params(("letter" = String, Path, description = "The letter's id.", pattern = "^[0-9a-f]{64}$")),
    responses((status = 204, description = "It is forgotten.")),
)]
pub(crate) async fn discard(
    State(app): State<Shared>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> ApiResult<StatusCode> {
    let discarded = app.parts.dead_letters.discard(letter(&id)?, caller.key).await;
    discarded.map_err(|error| source(error, "dead letter", &id))?;
    Ok(StatusCode::NO_CONTENT)
}
