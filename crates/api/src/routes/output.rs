//! What is kept of a job's output: as raw bytes by range, or as JSON in parts.

use std::ops::Range;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RANGE,
        },
    },
    response::Response,
};
use mayfly_core::{
    id::{JobId, TenantId},
    outcome::CapturedStream,
};
use mayfly_wire::{
    bytes::Bytes,
    job::{OutputPart, StreamName},
    problem::Code,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::jobs::details;
use crate::{
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{InPath, Params},
};

/// Bytes of a part where no number is asked for, and at most.
const USUAL_PART: u64 = 64 << 10;
const LARGEST_PART: u64 = 1 << 20;

/// Headers of the raw bytes: how many the program wrote, and where in what is kept the middle was cut.
const WRITTEN: HeaderName = HeaderName::from_static("mayfly-written-bytes");
const CUT_AT: HeaderName = HeaderName::from_static("mayfly-cut-at");

/// What is kept of a stream.
struct Kept {
    bytes: Vec<u8>,
    written: u64,
    cut_at: Option<u64>,
}

impl From<&CapturedStream> for Kept {
    fn from(stream: &CapturedStream) -> Self {
        Self {
            bytes: [stream.head.as_slice(), stream.tail.as_slice()].concat(),
            written: stream.count.bytes,
            cut_at: stream.count.truncated.then_some(stream.head.len() as u64),
        }
    }
}

async fn kept(app: &App, tenant: TenantId, job: JobId, stream: StreamName) -> ApiResult<Kept> {
    let found = details(app, tenant, job).await?;
    let report = found.report().ok_or_else(|| {
        ApiError::new(Code::NotFound).detail(format!("job {job} has no output on record, or not yet"))
    })?;
    Ok(match stream {
        StreamName::Stdout => (&report.stdout).into(),
        StreamName::Stderr => (&report.stderr).into(),
    })
}

pub(super) fn not_there(length: usize) -> ApiError {
    ApiError {
        length: Some(length as u64),
        ..ApiError::new(Code::RangeNotSatisfiable)
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PartParams {
    /// Which stream.
    #[param(inline)]
    stream: StreamName,
    /// Where the part begins, in what is kept.
    #[param(default = 0)]
    offset: Option<u64>,
    /// Most bytes of the part.
    #[param(minimum = 1, maximum = 1_048_576, default = 65_536)]
    limit: Option<u64>,
}

/// A part of what is kept of a job's output.
///
/// Text stays text: a part ends before a character that it has no room for.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/output",
    tag = "output",
    params(("job" = uuid::Uuid, Path, description = "The job's id."), PartParams),
    responses((status = 200, description = "The part.", body = OutputPart)),
)]
pub(crate) async fn part(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(job): InPath<JobId>,
    Params(params): Params<PartParams>,
) -> ApiResult<Json<OutputPart>> {
    let limit = params.limit.unwrap_or(USUAL_PART);
    if !(1..=LARGEST_PART).contains(&limit) {
        let detail = format!("`limit` is between 1 and {LARGEST_PART}");
        return Err(ApiError::new(Code::InvalidParameter).detail(detail));
    }
    let kept = kept(&app, tenant, job, params.stream).await?;
    let length = kept.bytes.len();
    let begin = params.offset.unwrap_or(0);
    let offset = usize::try_from(begin).unwrap_or(usize::MAX);
    if offset > length {
        return Err(not_there(length));
    }
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let end = offset.saturating_add(most).min(length);
    let range = whole_characters(&kept.bytes, offset..end);
    let end = range.end;
    Ok(Json(OutputPart {
        stream: params.stream,
        offset: begin,
        bytes: (end - offset) as u64,
        kept_bytes: length as u64,
        written_bytes: kept.written,
        cut_at: kept.cut_at,
        content: Bytes::new(&kept.bytes[range]),
        next: (end < length).then_some(end as u64),
    }))
}

/// The range, shortened to before a character that it has no room for, where it is text up to there.
pub(super) fn whole_characters(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    match std::str::from_utf8(&bytes[range.clone()]) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 && range.end < bytes.len() => {
            range.start..range.start + error.valid_up_to()
        }
        _ => range,
    }
}

/// What is kept of one stream of a job, byte for byte.
///
/// Where the middle was cut, `Mayfly-Cut-At` says between which bytes. One range may be asked for (RFC 9110, section 14).
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/output/{stream}",
    tag = "output",
    params(
        ("job" = uuid::Uuid, Path, description = "The job's id."),
        ("stream" = inline(StreamName), Path, description = "Which stream."),
        ("Range" = Option<String>, Header, description = "One range of bytes: `bytes=0-1023`, `bytes=1024-`, `bytes=-100`."),
    ),
    responses(
        (status = 200, description = "All that is kept.", content_type = "application/octet-stream", body = [u8]),
        (status = 206, description = "The range.", content_type = "application/octet-stream", body = [u8],
            headers(("content-range" = String, description = "Which bytes they are."))),
    ),
)]
pub(crate) async fn raw(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath((job, stream)): InPath<(JobId, StreamName)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let kept = kept(&app, tenant, job, stream).await?;
    let length = kept.bytes.len();
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let range = match asked.map_or(Asked::All, |text| parse_range(text, length)) {
        Asked::All => None,
        Asked::Part(range) => Some(range),
        Asked::Nothing => return Err(not_there(length)),
    };
    let mut response = Response::new(Body::from(match &range {
        Some(range) => kept.bytes[range.clone()].to_vec(),
        None => kept.bytes,
    }));
    if range.is_some() {
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
    let file = format!("attachment; filename=\"{job}.{}\"", stream.as_str());
    let part = range.map(|range| format!("bytes {}-{}/{length}", range.start, range.end - 1));
    let texts = [
        (CONTENT_DISPOSITION, Some(file)),
        (WRITTEN, Some(kept.written.to_string())),
        (CUT_AT, kept.cut_at.map(|at| at.to_string())),
        (CONTENT_RANGE, part),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// What a `Range` header asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Everything: a header that is not understood, or asks for several ranges, is ignored (RFC 9110, section 14.2).
    All,
    /// A part that there is.
    Part(Range<usize>),
    /// A part that there is not.
    Nothing,
}

pub(super) fn parse_range(header: &str, length: usize) -> Asked {
    let Some((first, last)) = header
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return Asked::All;
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that no offset can be is beyond the end.
        digits.then(|| text.parse::<usize>().unwrap_or(usize::MAX))
    };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Some(first), None) if last.is_empty() => first..length,
        (None, Some(count)) if first.is_empty() => length - count.min(length)..length,
        _ => return Asked::All,
    };
    if range.is_empty() {
        Asked::Nothing
    } else {
        Asked::Part(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_rfc_9110_says() {
        for (header, expected) in [
            ("bytes=0-0", Asked::Part(0..1)),
            ("bytes=0-9", Asked::Part(0..10)),
            ("bytes=5-", Asked::Part(5..10)),
            ("bytes=5-99999999999999999999999", Asked::Part(5..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-99", Asked::Part(0..10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=10-12", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=3-2", Asked::All),
            ("bytes=-", Asked::All),
            ("bytes=a-b", Asked::All),
            ("bytes=0-1,3-4", Asked::All),
            ("bytes=+1-2", Asked::All),
            ("items=0-1", Asked::All),
            ("", Asked::All),
        ] {
            assert_eq!(parse_range(header, 10), expected, "{header}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Asked::Nothing);
        assert_eq!(parse_range("bytes=-1", 0), Asked::Nothing);
    }

    #[test]
    fn a_part_of_text_ends_before_a_character_that_it_has_no_room_for() {
        let text = "aéb".as_bytes();
        assert_eq!(whole_characters(text, 0..2), 0..1);
        assert_eq!(whole_characters(text, 0..3), 0..3);
        // Nothing but the half of one: bytes then, so that the list goes on.
        assert_eq!(whole_characters(text, 1..2), 1..2);
        assert_eq!(whole_characters(text, 2..4), 2..4);
        let binary = b"\xff\xfe\xfd";
        assert_eq!(whole_characters(binary, 0..2), 0..2);
    }
}
