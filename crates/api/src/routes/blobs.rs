//! What executors fetch beside their orders, and leave beside their reports. No key opens these routes: all that is allowed
//! stands in the address, under the server's signature (`mayfly_dispatch::blob`), and ends with the attempt. Whatever is wrong
//! with a request reads the same.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequestParts, Path, Query, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
        request::Parts,
    },
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::stream;
use http_body_util::{BodyExt as _, Limited};
use mayfly_core::{
    artifact::{PIECE, PIECE_BYTES},
    chain::Chain,
    digest::Digest,
};
use mayfly_dispatch::{
    blob::{BlobClaim, BlobKind, BlobSignature},
    content::JobContent,
};
use mayfly_store::blobs::{BlobOwner, PieceAt};
use mayfly_vault::give::{self, GiveError};
use mayfly_wire::problem::Code;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    app::{App, Shared},
    error::{ApiError, ApiResult},
    extract::{content_length, room},
};

/// Whose blob, and which.
pub(super) const PATH: &str = "/v1/blobs/{tenant}/{job}/{attempt}/{kind}";

const CONTENT_DIGEST: &str = "content-digest";

/// Longest that a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Bytes of a blob that go out at once.
const PART: usize = 64 << 10;

/// What an address says beside whose blob it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    bytes: u64,
    expires: i64,
    signature: BlobSignature,
    /// Of files alone: which one, and which piece of it.
    file: Option<u32>,
    piece: Option<u32>,
}

/// What the address of a request allows, once its signature and its time are seen to be good.
pub(crate) struct Allowed {
    claim: BlobClaim,
    /// Of files.
    at: Option<PieceAt>,
}

impl Allowed {
    fn owner(&self) -> BlobOwner {
        BlobOwner {
            tenant: self.claim.tenant,
            job: self.claim.job,
            attempt: self.claim.attempt,
        }
    }
}

/// The one answer to whoever may not: it does not say why.
fn refused() -> ApiError {
    ApiError::new(Code::NotFound).detail("there is no such blob")
}

impl FromRequestParts<Shared> for Allowed {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let path = Path::<[String; 4]>::from_request_parts(parts, app).await;
        let query = Query::<Asked>::from_request_parts(parts, app).await;
        let (Ok(Path([tenant, job, attempt, kind])), Ok(Query(asked))) = (path, query) else {
            return Err(refused());
        };
        let kind = match kind.as_str() {
            "input" => BlobKind::Input,
            "output" => BlobKind::Output,
            "artifact" => BlobKind::Artifact,
            "secrets" => BlobKind::Secrets,
            "file" => BlobKind::Fetched,
            _ => return Err(refused()),
        };
        let (Ok(tenant), Ok(job), Ok(attempt)) = (tenant.parse(), job.parse(), attempt.parse()) else {
            return Err(refused());
        };
        let claim = BlobClaim {
            tenant,
            job,
            attempt,
            kind,
            bytes: asked.bytes,
            expires: asked.expires,
        };
        let context = (app.parts.context)();
        let key = context.key.blob_key();
        if !key.verify(parts.method.as_str(), &claim, &asked.signature) || claim.has_expired(context.now) {
            return Err(refused());
        }
        let at = match (kind, asked.file, asked.piece) {
            (BlobKind::Artifact | BlobKind::Fetched, Some(file), Some(piece)) => {
                Some(PieceAt { file, piece })
            }
            (BlobKind::Input | BlobKind::Output | BlobKind::Secrets, None, None) => None,
            _ => return Err(refused()),
        };
        Ok(Self { claim, at })
    }
}

/// What the job of an attempt brings, as its order names it, a piece of a file that it only names, or the values of its secrets.
pub(super) async fn fetch(State(app): State<Shared>, allowed: Allowed) -> ApiResult<Response> {
    match allowed.claim.kind {
        BlobKind::Secrets => secrets(&app, allowed).await,
        BlobKind::Fetched => file(&app, &allowed).await,
        BlobKind::Input | BlobKind::Output | BlobKind::Artifact => input(&app, allowed).await,
    }
}

async fn secrets(app: &App, allowed: Allowed) -> ApiResult<Response> {
    let parts = &app.parts;
    let values = give::values_for(&*parts.store, parts.vault.as_deref(), allowed.owner(), app.now());
    let values = values.await.map_err(|error| match error {
        GiveError::NoSuchAttempt => refused(),
        GiveError::NoSecret => {
            ApiError::new(Code::Gone).detail("a secret that the job names is kept no more")
        }
        GiveError::Store(error) => error.into(),
        GiveError::NoKey | GiveError::Open(_) => {
            ApiError::new(Code::Internal).because(Chain(&error).to_string())
        }
    })?;
    let bytes = values.encode();
    if bytes.len() as u64 > allowed.claim.bytes {
        // Asked again it would be the same.
        return Err(
            ApiError::new(Code::Conflict).detail("the secrets of the job are longer than an executor takes")
        );
    }
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn file(app: &App, allowed: &Allowed) -> ApiResult<Response> {
    let room = room(app, PIECE).await?;
    let at = allowed.at.ok_or_else(refused)?;
    let found = app.parts.store.find_fetched(allowed.owner(), at).await?;
    Ok(sent(found.ok_or_else(refused)?, room))
}

async fn input(app: &App, allowed: Allowed) -> ApiResult<Response> {
    let length = usize::try_from(allowed.claim.bytes).map_err(|_| refused())?;
    let room = room(app, length).await?;
    let found = app.parts.store.find_input(allowed.owner()).await?;
    let bytes = JobContent::take(&mut found.ok_or_else(refused)?).encode();
    if bytes.len() != length {
        return Err(ApiError::new(Code::Internal).because("a job's content is not what was signed"));
    }
    Ok(sent(bytes, room))
}

/// Bytes for an executor, which take up their room until they are sent.
fn sent(bytes: Vec<u8>, room: OwnedSemaphorePermit) -> Response {
    let length = bytes.len();
    let mut response = Response::new(held(bytes.into(), room));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// Takes what the run of an attempt has written, or a piece of a file that it has made, to the digest that the request names
/// (RFC 9530). It counts for nothing until the report of the session that holds the attempt names it too.
pub(super) async fn leave(
    State(app): State<Shared>,
    allowed: Allowed,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<StatusCode> {
    let most = match allowed.at {
        Some(_) => allowed.claim.bytes.min(PIECE_BYTES),
        None => allowed.claim.bytes,
    };
    let most = usize::try_from(most).map_err(|_| refused())?;
    let digest = named_digest(&headers).ok_or_else(refused)?;
    let declared = content_length(&headers).ok_or_else(refused)?;
    if declared > most {
        return Err(refused());
    }
    let _room = room(&app, declared).await?;
    let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, declared).collect()).await;
    let bytes = match collected {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return Err(refused()),
        Err(_) => return Err(ApiError::new(Code::RequestTimeout)),
    };
    if bytes.len() != declared || Digest::of(&bytes) != digest {
        return Err(refused());
    }
    let (store, owner) = (&app.parts.store, allowed.owner());
    let kept = match allowed.at {
        // An empty file has no pieces, and no file an empty one.
        Some(_) if bytes.is_empty() => false,
        Some(at) => {
            store
                .keep_piece(owner, at, digest, &bytes, allowed.claim.bytes)
                .await?
        }
        None => store.keep_output(owner, digest, &bytes).await?,
    };
    if kept {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(refused())
    }
}

/// `Content-Digest: sha-256=:BASE64:`
fn named_digest(headers: &HeaderMap) -> Option<Digest> {
    let text = headers.get(CONTENT_DIGEST)?.to_str().ok()?;
    let encoded = text.strip_prefix("sha-256=:")?.strip_suffix(':')?;
    let bytes: [u8; 32] = STANDARD.decode(encoded).ok()?.try_into().ok()?;
    Some(Digest::from_bytes(bytes))
}

/// A body that takes up its room in memory until it is sent, or given up.
fn held(bytes: Bytes, room: OwnedSemaphorePermit) -> Body {
    let pieces = stream::unfold((bytes, room), |(mut rest, room)| async move {
        if rest.is_empty() {
            return None;
        }
        let piece = rest.split_to(PART.min(rest.len()));
        Some((Ok::<_, Infallible>(piece), (rest, room)))
    });
    Body::from_stream(pieces)
}
