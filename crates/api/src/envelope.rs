//! The outermost layer: every request gets an id, every answer has it, and whatever is no success is a problem.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use mayfly_core::chain::Chain;
use mayfly_wire::{
    REQUEST_ID,
    problem::{Code, MEDIA_TYPE, Problem},
};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    app::Shared,
    error::{ApiError, Failed},
    routes::uploads,
};

/// Longest that a request may take until its answer begins: the longest wait for a job, and some time for the work.
const LONGEST: Duration = Duration::from_secs(90);

/// Marks an answer of another protocol: what it says is for clients that speak that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsItIs;

pub(crate) async fn envelope(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().as_simple().to_string();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = %request.method(),
        http.path = request.uri().path(),
        key.id = tracing::field::Empty,
    );
    let response = answer(app, request, next).instrument(span.clone()).await;
    let _entered = span.enter();
    finish(response, &id)
}

async fn answer(app: Shared, request: Request, next: Next) -> Response {
    let Ok(_permit) = Arc::clone(&app.requests).try_acquire_owned() else {
        return ApiError::new(Code::Overloaded)
            .retry_after(Duration::from_secs(1))
            .into_response();
    };
    let begun = Instant::now();
    let longest = if uploads::is_upload(&request) {
        uploads::LONGEST
    } else {
        LONGEST
    };
    let run = AssertUnwindSafe(next.run(request)).catch_unwind();
    let response = match tokio::time::timeout(longest, run).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => ApiError::new(Code::Internal)
            .because("a handler has panicked")
            .into_response(),
        Err(_) => ApiError::new(Code::Unavailable)
            .detail("the request took longer than it may")
            .retry_after(Duration::from_secs(5))
            .because("a handler took too long")
            .into_response(),
    };
    tracing::debug!(
        http.status = response.status().as_u16(),
        elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    response
}

/// Makes a problem of what is no success, and adds the headers that every answer has.
fn finish(mut response: Response, id: &str) -> Response {
    let failed = response
        .extensions_mut()
        .remove::<Failed>()
        .map(|Failed(error)| error);
    let status = response.status();
    let mut response = match failed {
        Some(error) => problem(response, &error, id),
        None if response.extensions().get::<AsItIs>().is_some() => response,
        None if status.is_client_error() || status.is_server_error() => {
            // The framework's own refusals; a readiness that is not ready has its own body.
            if response.headers().get(CONTENT_TYPE).is_some_and(is_ours) {
                response
            } else {
                problem(response, &ApiError::new(code_of(status)), id)
            }
        }
        None => response,
    };
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(HeaderName::from_static(REQUEST_ID), id);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_ours(content_type: &HeaderValue) -> bool {
    content_type == "application/json"
}

/// What a refusal of the framework is in our words.
fn code_of(status: StatusCode) -> Code {
    match status {
        StatusCode::NOT_FOUND => Code::NoSuchRoute,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::REQUEST_TIMEOUT => Code::RequestTimeout,
        StatusCode::PAYLOAD_TOO_LARGE => Code::BodyTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        status if status.is_client_error() => Code::InvalidParameter,
        _ => Code::Internal,
    }
}

fn problem(refusal: Response, error: &ApiError, id: &str) -> Response {
    log(error);
    let mut problem = Problem::new(error.code, id);
    problem.detail = error.detail.clone().map(|detail| detail.into_owned());
    problem.faults.clone_from(&error.faults);
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let (mut parts, _) = refusal.into_parts();
    parts.status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = &mut parts.headers;
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Some(wait) = error.retry_after {
        // At least a second: the header has no smaller unit (RFC 9110, section 10.2.3).
        let seconds = wait.as_millis().div_ceil(1000).max(1);
        if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
            headers.insert(RETRY_AFTER, value);
        }
    }
    if error.code == Code::Unauthenticated {
        headers.insert(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"mayfly\""),
        );
    }
    if let Some(length) = error.length
        && let Ok(value) = HeaderValue::from_str(&format!("bytes */{length}"))
    {
        headers.insert(CONTENT_RANGE, value);
    }
    Response::from_parts(parts, Body::from(body))
}

fn log(error: &ApiError) {
    let code = error.code.as_str();
    let cause = error
        .source
        .as_deref()
        .map_or_else(String::new, |source| Chain(source).to_string());
    match error.code {
        Code::Internal | Code::Unknown => tracing::error!(code, error = cause, "a request has failed"),
        Code::Unavailable | Code::Overloaded => {
            tracing::warn!(code, error = cause, "a request was not served")
        }
        _ => tracing::debug!(code, error = cause, "a request was refused"),
    }
}
