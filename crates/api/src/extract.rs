//! What handlers take out of a request, each with a bound, and with problems that say where it is wrong.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use mayfly_wire::problem::Code;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    app::{App, Shared},
    error::{ApiError, ApiResult, shortened},
};

/// Longest that a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest wait for room for a body, or for what its archives expand to.
const ROOM_TIME: Duration = Duration::from_secs(5);

/// A JSON body. Its room in memory is given back when this is dropped.
pub(crate) struct Body<T> {
    pub(crate) value: T,
    /// The body as it came.
    pub(crate) bytes: Bytes,
    /// Its room in memory, for whoever is done with the body and goes on for long.
    pub(crate) room: OwnedSemaphorePermit,
}

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> ApiResult<Self> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(ApiError::new(Code::UnsupportedMediaType)
                .detail("send the body as `Content-Type: application/json`"));
        }
        let limit = usize::try_from(app.parts.limits.body.as_bytes()).unwrap_or(usize::MAX);
        let too_large =
            || ApiError::new(Code::BodyTooLarge).detail(format!("a body has at most {limit} bytes"));
        let declared = content_length(&parts.headers);
        if declared.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let room = room(app, declared.unwrap_or(limit)).await?;
        let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect());
        let bytes = match collected.await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(error)) => {
                return Err(ApiError::new(Code::MalformedJson)
                    .detail("the body ended before its end")
                    .because(error));
            }
            Err(_) => return Err(ApiError::new(Code::RequestTimeout)),
        };
        Ok(Self {
            value: parse(&bytes)?,
            bytes,
            room,
        })
    }
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Room for a body of so many bytes among all that are in memory.
pub(crate) async fn room(app: &App, bytes: usize) -> ApiResult<OwnedSemaphorePermit> {
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    permits(&app.bodies, kib).await
}

/// A part of what there is for all, within some seconds.
///
/// # Errors
/// Others have it.
pub(crate) async fn permits(of: &Arc<Semaphore>, count: u32) -> ApiResult<OwnedSemaphorePermit> {
    let overloaded = || ApiError::new(Code::Overloaded).retry_after(Duration::from_secs(1));
    let permit = Arc::clone(of).acquire_many_owned(count);
    match tokio::time::timeout(ROOM_TIME, permit).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(overloaded()),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads JSON, and says at which field it is not what it should be.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // Readers of structs take a list of their fields' values as well, which is nobody's idea of this API.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|byte| !matches!(byte, b'{' | 0x80..)) {
        return Err(ApiError::fault(
            Code::InvalidBody,
            "",
            "invalid",
            "the body is no JSON object",
        ));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.is_data() {
            // serde's path of the whole body.
            let path = if path == "." { "" } else { path.as_str() };
            ApiError::fault(Code::InvalidBody, path, "invalid", error.to_string())
        } else {
            malformed(&error)
        }
    })?;
    reader.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::new(Code::MalformedJson).detail(shortened(&error.to_string()))
}

/// Parameters of the query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let query = Query::<T>::from_request_parts(parts, app).await;
        query.map(|Query(value)| Self(value)).map_err(|rejection| {
            ApiError::new(Code::InvalidParameter).detail(shortened(&rejection.body_text()))
        })
    }
}

/// What stands in the path.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let path = Path::<T>::from_request_parts(parts, app).await;
        path.map(|Path(value)| Self(value)).map_err(|rejection| {
            ApiError::new(Code::InvalidParameter).detail(shortened(&rejection.body_text()))
        })
    }
}
