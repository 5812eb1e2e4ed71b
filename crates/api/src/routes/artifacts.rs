//! Files that were kept of a job: listed, and downloaded by their place in the list, whole or by range. No name that a job
//! chose is ever part of an address.

use std::{ops::Range, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, ETAG, RANGE,
        },
    },
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::stream;
use mayfly_core::{
    artifact::{Artifact, PIECE, PIECE_BYTES},
    id::{AttemptId, JobId, TenantId},
};
use mayfly_store::blobs::PieceAt;
use mayfly_wire::{artifact::ArtifactList, problem::Code};

use super::{
    jobs::details,
    output::{Asked, not_there, parse_range},
};
use crate::{
    app::Shared,
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{InPath, room},
};

/// RFC 9530, section 3: of the whole file, whatever part of it is sent.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Files that were kept of a job, and what was left out.
///
/// There are none before the job's end.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/artifacts",
    tag = "output",
    params(("job" = uuid::Uuid, Path, description = "The job's id.")),
    responses((status = 200, description = "The files.", body = ArtifactList)),
)]
pub(crate) async fn list_artifacts(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(job): InPath<JobId>,
) -> ApiResult<Json<ArtifactList>> {
    let found = details(&app, tenant, job).await?;
    let report = found.report();
    Ok(Json(ArtifactList::new(
        report.and_then(|report| report.artifacts.as_ref()),
    )))
}

/// One file that was kept of a job, byte for byte.
///
/// One range may be asked for (RFC 9110, section 14).
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/artifacts/{index}",
    tag = "output",
    params(
        ("job" = uuid::Uuid, Path, description = "The job's id."),
        ("index" = u32, Path, description = "Where the file stands in the list, from 0."),
        ("Range" = Option<String>, Header, description = "One range of bytes: `bytes=0-1023`, `bytes=1024-`, `bytes=-100`."),
    ),
    responses(
        (status = 200, description = "The whole file.", content_type = "application/octet-stream", body = [u8],
            headers(("repr-digest" = String, description = "SHA-256 of the whole file (RFC 9530)."))),
        (status = 206, description = "The range.", content_type = "application/octet-stream", body = [u8],
            headers(("content-range" = String, description = "Which bytes they are."))),
    ),
)]
pub(crate) async fn download(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath((job, index)): InPath<(JobId, u32)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let found = details(&app, tenant, job).await?;
    let attempt = found.attempts.last().map(|attempt| attempt.id);
    let artifacts = found.report().and_then(|report| report.artifacts.as_ref());
    let file = artifacts.and_then(|artifacts| artifacts.files.get(usize::try_from(index).ok()?));
    let (Some(attempt), Some(file)) = (attempt, file) else {
        let detail = format!(
            "job {job} has no file {index} on record, or not yet: `GET /v1/jobs/{job}/artifacts` lists what there is"
        );
        return Err(ApiError::new(Code::NotFound).detail(detail));
    };
    let length = usize::try_from(file.bytes).unwrap_or(usize::MAX);
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let part = match asked.map_or(Asked::All, |text| parse_range(text, length)) {
        Asked::All => None,
        Asked::Part(range) => Some(range.start as u64..range.end as u64),
        Asked::Nothing => return Err(not_there(length)),
    };
    let range = part.clone().unwrap_or(0..file.bytes);
    let sending = range.end - range.start;
    let mut response = Response::new(body(app, tenant, attempt, file, range));
    if part.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let headers = response.headers_mut();
    // Bytes of a stranger's program: whatever they look like, no browser runs them or shows them as a page of ours.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(sending));
    let of = part.map(|part| format!("bytes {}-{}/{length}", part.start, part.end - 1));
    let digest = format!("sha-256=:{}:", STANDARD.encode(file.digest.as_bytes()));
    let texts = [
        (
            CONTENT_DISPOSITION,
            Some(disposition(job, index, file.name.as_bytes())),
        ),
        (REPR_DIGEST, Some(digest)),
        (ETAG, Some(format!("\"{}\"", file.digest.to_hex()))),
        (CONTENT_RANGE, of),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// Always saved and never shown; under the last part of its name, where a program that knows no more takes one of ours
/// (RFC 6266, section 5; RFC 8187). Whatever is no letter, digit, `-`, `_` or `.` is escaped.
fn disposition(job: JobId, index: u32, name: &[u8]) -> String {
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut text = format!("attachment; filename=\"{job}.{index}\"");
    if std::str::from_utf8(last).is_ok() && !last.is_empty() {
        text.push_str("; filename*=UTF-8''");
        for byte in last {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
                text.push(char::from(*byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}

/// What is left to be sent of a file.
struct Sending {
    app: Shared,
    tenant: TenantId,
    attempt: AttemptId,
    number: u32,
    range: Range<u64>,
}

/// A range of a file, of which one piece is in memory at a time. What is not there as it was recorded ends the answer
/// before its end, which whoever receives it notices by the length.
fn body(app: Shared, tenant: TenantId, attempt: AttemptId, file: &Artifact, range: Range<u64>) -> Body {
    let sending = Sending {
        app,
        tenant,
        attempt,
        number: file.number,
        range,
    };
    Body::from_stream(stream::try_unfold(sending, next))
}

/// A file that can't be sent to its end.
#[derive(Debug, thiserror::Error)]
#[error("a file that is on record can't be read to its end")]
struct Broken;

async fn next(mut sending: Sending) -> Result<Option<(Bytes, Sending)>, Broken> {
    if sending.range.is_empty() {
        return Ok(None);
    }
    let begin = sending.range.start;
    let piece = u32::try_from(begin / PIECE_BYTES).map_err(|_| Broken)?;
    let at = PieceAt {
        file: sending.number,
        piece,
    };
    let app = Arc::clone(&sending.app);
    // A bound for all that are loaded at once. It is given back before the client has taken the bytes: how slowly that
    // reads is no reason for others to wait, and it holds one piece at most.
    let _room = room(&app, PIECE).await.map_err(|_| Broken)?;
    let found = app
        .parts
        .store
        .find_piece(sending.tenant, sending.attempt, at)
        .await;
    let content = match found {
        Ok(content) => content.map(Bytes::from),
        Err(error) => {
            tracing::warn!(attempt.id = %sending.attempt, error = %mayfly_core::chain::Chain(&error), "a file can't be read");
            None
        }
    };
    let mut content = content.ok_or(Broken)?;
    let start = usize::try_from(begin % PIECE_BYTES).map_err(|_| Broken)?;
    if start >= content.len() {
        return Err(Broken);
    }
    content = content.slice(start..);
    let wanted = sending.range.end - begin;
    content.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    let is_last = content.len() as u64 == wanted;
    if !is_last && !(begin + content.len() as u64).is_multiple_of(PIECE_BYTES) {
        return Err(Broken);
    }
    sending.range.start += content.len() as u64;
    Ok(Some((content, sending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_acts_on_no_header() {
        let job = JobId::new();
        for (name, expected) in [
            (&b"out/plot.png"[..], "plot.png"),
            (
                b"a\"; x=\"b\r\nSet-Cookie: a=b",
                "a%22%3B%20x%3D%22b%0D%0ASet-Cookie%3A%20a%3Db",
            ),
            ("\u{202e}gnp.exe".as_bytes(), "%E2%80%AEgnp.exe"),
            (b"..", ".."),
        ] {
            let text = disposition(job, 3, name);
            assert_eq!(
                text,
                format!("attachment; filename=\"{job}.3\"; filename*=UTF-8''{expected}")
            );
            assert!(HeaderValue::from_str(&text).is_ok());
        }
        assert_eq!(
            disposition(job, 3, b"\xff"),
            format!("attachment; filename=\"{job}.3\"")
        );
    }
}
