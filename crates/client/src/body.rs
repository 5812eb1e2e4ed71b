//! Bodies of answers, read up to a bound.

use bytes::Bytes;
use reqwest::Response;

/// Why a body was not read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It is larger than the bound.
    TooLarge,
    /// The connection was lost before its end.
    Cut(reqwest::Error),
}

/// All of a body, where that is at most so many bytes.
pub(crate) async fn read(response: &mut Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    let limit_u64 = u64::try_from(limit).unwrap_or(u64::MAX);
    if response.content_length().is_some_and(|length| length > limit_u64) {
        return Err(BodyError::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(chunk) = next(response).await? {
        if body.len() + chunk.len() > limit {
            return Err(BodyError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The next bytes of a body.
///
/// # Cancel safety
/// None are lost.
pub(crate) async fn next(response: &mut Response) -> Result<Option<Bytes>, BodyError> {
    response.chunk().await.map_err(BodyError::Cut)
}
