//! Files that a tenant uploads once, for as many jobs as it likes: by their digests, piece by piece into the store, so that no
//! more of one than a piece is ever in memory.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header::LOCATION},
    response::{IntoResponse as _, Response},
};
use bytes::BytesMut;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use mayfly_core::{
    artifact::PIECE,
    digest::Digest,
    id::{TenantId, UploadId},
};
use mayfly_store::{
    seam::Store,
    uploads::{Begun, NewUpload, Removal, UploadBounds, UploadRecord},
};
use mayfly_wire::{
    problem::Code,
    upload::{Upload, UploadList},
};
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use crate::{
    access::Caller,
    app::{App, Shared},
    auth::Tenant,
    error::{ApiError, ApiResult},
    extract::{InPath, Params, content_length, room},
    page::{Page, next},
};

/// Before the digest.
const PREFIX: &str = "/v1/uploads/";

/// Longest that an upload may take.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// Longest wait for the next bytes of one.
const IDLE: Duration = Duration::from_secs(60);

/// Whether a request sends a file, which may take longer than others.
pub(crate) fn is_upload(request: &Request) -> bool {
    request.method() == Method::PUT && request.uri().path().starts_with(PREFIX)
}

fn shown(app: &App, record: &UploadRecord) -> Upload {
    let keep = app.parts.uploads.keep.as_duration();
    let keep = chrono::TimeDelta::from_std(keep).unwrap_or(chrono::TimeDelta::MAX);
    Upload {
        digest: record.digest,
        bytes: record.bytes,
        kept_at: record.kept_at,
        used_at: record.used_at,
        kept_until: record
            .used_at
            .checked_add_signed(keep)
            .unwrap_or(chrono::DateTime::<chrono::Utc>::MAX_UTC),
    }
}

fn not_there(digest: Digest) -> ApiError {
    ApiError::not_found("upload", digest)
}

/// Uploads of the key's tenant, in the order in which they were begun.
#[utoipa::path(
    get,
    path = "/v1/uploads",
    tag = "uploads",
    params(Page),
    responses((status = 200, description = "A page of the list.", body = UploadList)),
)]
pub(crate) async fn list_uploads(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    Params(page): Params<Page>,
) -> ApiResult<Json<UploadList>> {
    let (limit, after) = (page.limit()?, page.after::<UploadId>()?);
    let all = app.parts.store.list_uploads(tenant, after, limit).await?;
    let next = next(&all, limit, |upload| upload.id.to_string());
    let uploads = all.iter().map(|record| shown(&app, record)).collect();
    Ok(Json(UploadList { uploads, next }))
}

/// An upload: whether it is there, and until when.
#[utoipa::path(
    get,
    path = "/v1/uploads/{digest}",
    tag = "uploads",
    params(("digest" = Digest, Path, description = "The digest of its content.")),
    responses((status = 200, description = "It is kept.", body = Upload)),
)]
pub(crate) async fn show_upload(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    InPath(digest): InPath<Digest>,
) -> ApiResult<Json<Upload>> {
    let found = app.parts.store.find_uploads(tenant, &[digest]).await?;
    let record = found.first().ok_or_else(|| not_there(digest))?;
    Ok(Json(shown(&app, record)))
}

/// Upload a file, byte for byte.
///
/// Jobs name it by its digest: `"uploads": [{"path": "in/data.bin", "digest": "sha256:…"}]`. It is kept until nobody has used it
/// for some time (`kept_until`), and in any case while a job that is not over has it. `Content-Length` says how long it is; the
/// same file may be sent again, and is not read where it is there.
#[utoipa::path(
    put,
    path = "/v1/uploads/{digest}",
    tag = "uploads",
    params(("digest" = Digest, Path, description = "The digest of its content.")),
    request_body(content = Option<[u8]>, content_type = "application/octet-stream", description = "The file; an empty one may be left out."),
    responses(
        (status = 200, description = "It was there.", body = Upload),
        (status = 201, description = "It is kept.", body = Upload,
            headers(("location" = String, description = "Where it is."))),
    ),
)]
pub(crate) async fn upload(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(digest): InPath<Digest>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let rules = &app.parts.uploads;
    // Clients leave the length of nothing out.
    let nothing = || body.is_end_stream().then_some(0);
    let Some(length) = content_length(&headers).or_else(nothing) else {
        return Err(ApiError::new(Code::InvalidParameter)
            .detail("send `Content-Length`: what is uploaded is of a length that is known before"));
    };
    let bytes = length as u64;
    if bytes > rules.file.as_bytes() {
        let detail = format!("a file has at most {}", rules.file);
        return Err(ApiError::new(Code::BodyTooLarge).detail(detail));
    }
    let bounds = UploadBounds {
        total: rules.total.as_bytes(),
        count: rules.count,
    };
    let new = NewUpload {
        tenant,
        id: UploadId::new(),
        digest,
        bytes,
    };
    match app.parts.store.begin_upload(new, bounds, app.now()).await? {
        Begun::Existing(record) => return Ok(Json(shown(&app, &record)).into_response()),
        Begun::NoRoom(why) => return Err(ApiError::new(Code::Conflict).detail(why)),
        Begun::Begun => {}
    }
    let under_way = UnderWay {
        store: Arc::clone(&app.parts.store),
        tenant,
        id: new.id,
        is_whole: false,
        cleaning: app.cleaning.clone(),
    };
    // A piece, and what of the next one comes with its last bytes.
    let _room = room(&app, 2 * PIECE).await?;
    let came = under_way.take(body, bytes).await?;
    if came != digest {
        let message = format!("what came is {came}");
        return Err(ApiError::fault(Code::InvalidBody, "", "other_digest", message));
    }
    let record = under_way.finish(&app, &caller).await?;
    let mut response = (StatusCode::CREATED, Json(shown(&app, &record))).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("{PREFIX}{digest}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// Remove an upload.
///
/// One that a job has which is not over stays.
#[utoipa::path(
    delete,
    path = "/v1/uploads/{digest}",
    tag = "uploads",
    params(("digest" = Digest, Path, description = "The digest of its content.")),
    responses((status = 204, description = "It is kept no more.")),
)]
pub(crate) async fn remove_upload(
    State(app): State<Shared>,
    Tenant(tenant): Tenant,
    caller: Caller,
    InPath(digest): InPath<Digest>,
) -> ApiResult<StatusCode> {
    let store = &app.parts.store;
    match store
        .remove_upload(tenant, &digest, Some(caller.key), app.now())
        .await?
    {
        Removal::Removed => Ok(StatusCode::NO_CONTENT),
        Removal::Unknown => Err(not_there(digest)),
        Removal::InUse => Err(ApiError::new(Code::Conflict)
            .detail("a job that is not over has the upload: wait for it, or cancel it")),
    }
}

/// An upload that has begun. It is given up when this goes, unless it is whole.
struct UnderWay {
    store: Arc<dyn Store>,
    tenant: TenantId,
    id: UploadId,
    is_whole: bool,
    cleaning: TaskTracker,
}

impl UnderWay {
    /// Takes the body in, and says what it is.
    async fn take(&self, mut body: Body, bytes: u64) -> ApiResult<Digest> {
        let (mut hasher, mut rest) = (Sha256::new(), BytesMut::with_capacity(PIECE));
        let (mut piece, mut came) = (0, 0_u64);
        while let Some(frame) = tokio::time::timeout(IDLE, body.frame())
            .await
            .map_err(|_| ApiError::new(Code::RequestTimeout))?
        {
            let frame = frame.map_err(|error| broken_off().because(error))?;
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            came = came.saturating_add(data.len() as u64);
            if came > bytes {
                return Err(broken_off());
            }
            hasher.update(&data);
            while !data.is_empty() {
                let part = data.split_to(data.len().min(PIECE - rest.len()));
                rest.extend_from_slice(&part);
                if rest.len() == PIECE {
                    self.keep(piece, &rest).await?;
                    piece += 1;
                    rest.clear();
                }
            }
        }
        if came != bytes {
            return Err(broken_off());
        }
        if !rest.is_empty() {
            self.keep(piece, &rest).await?;
        }
        Ok(Digest::from_bytes(hasher.finalize().into()))
    }

    async fn keep(&self, piece: u32, content: &[u8]) -> ApiResult<()> {
        let kept = self.store.keep_upload_piece(self.tenant, self.id, piece, content);
        if kept.await? { Ok(()) } else { Err(swept()) }
    }

    async fn finish(mut self, app: &App, caller: &Caller) -> ApiResult<UploadRecord> {
        let whole = self
            .store
            .finish_upload(self.tenant, self.id, Some(caller.key), app.now());
        let record = whole.await?.ok_or_else(swept)?;
        self.is_whole = true;
        Ok(record)
    }
}

fn broken_off() -> ApiError {
    ApiError::fault(
        Code::InvalidBody,
        "",
        "broken_off",
        "the body is not as long as its `Content-Length`",
    )
}

fn swept() -> ApiError {
    ApiError::new(Code::Conflict).detail("the upload took too long and was given up: send it again")
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.is_whole {
            return;
        }
        let (store, tenant, id) = (Arc::clone(&self.store), self.tenant, self.id);
        // Where this can't be done either, it is swept.
        self.cleaning.spawn(async move {
            if let Err(error) = store.give_up_upload(tenant, id).await {
                tracing::warn!(upload.id = %id, error = %mayfly_core::chain::Chain(&error), "an upload that broke off is left to be swept");
            }
        });
    }
}
