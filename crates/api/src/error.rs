//! Errors of the API, and the one place where errors of the store become statuses, codes and public words. Causes go to
//! the log line and never into an answer.

use std::{borrow::Cow, error::Error, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use mayfly_core::fault::Faults;
use mayfly_store::error::StoreError;
use mayfly_wire::problem::{Code, FaultShown};

/// Faults that one answer lists; a body can have no more places than it has bytes, and each fault is longer.
const MAX_FAULTS: usize = 100;
/// Longest text of one fault that an answer shows, in characters.
const MAX_TEXT: usize = 500;

/// What a request came to, where that is no success. The outermost layer makes a problem of it.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) code: Code,
    pub(crate) detail: Option<Cow<'static, str>>,
    pub(crate) faults: Vec<FaultShown>,
    pub(crate) retry_after: Option<Duration>,
    /// The length of what a range was asked of.
    pub(crate) length: Option<u64>,
    /// For the log alone.
    pub(crate) source: Option<Box<dyn Error + Send + Sync>>,
}

/// How an error travels to the outermost layer.
#[derive(Clone)]
pub(crate) struct Failed(pub(crate) Arc<ApiError>);

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(code: Code) -> Self {
        Self {
            code,
            detail: None,
            faults: Vec::new(),
            retry_after: None,
            length: None,
            source: None,
        }
    }

    /// With what is wrong this time, in words that are fit for whoever asked.
    pub(crate) fn detail(self, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// Trouble of the database's that passes. What came of the request is not known for certain.
    fn in_trouble() -> Self {
        Self::new(Code::Unavailable)
            .detail("the database is in trouble; whether anything of this request was done is not known for certain")
            .retry_after(Duration::from_secs(1))
    }

    /// A thing that is not there, or another tenant's: both read the same.
    pub(crate) fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound).detail(format!("there is no {what} {id}"))
    }

    /// Several things that are wrong with a body.
    pub(crate) fn faults(code: Code, faults: impl IntoIterator<Item = FaultShown>) -> Self {
        let mut faults = faults.into_iter().map(|fault| FaultShown {
            message: shortened(&fault.message),
            path: shortened(&fault.path),
            ..fault
        });
        let listed = faults.by_ref().take(MAX_FAULTS).collect();
        let more = faults.count();
        let detail = (more > 0).then(|| format!("{more} more faults are not listed").into());
        Self {
            faults: listed,
            detail,
            ..Self::new(code)
        }
    }

    /// One thing that is wrong with a body.
    pub(crate) fn fault(code: Code, path: &str, word: &str, message: impl Into<String>) -> Self {
        Self::faults(
            code,
            [FaultShown {
                path: path.to_owned(),
                code: word.to_owned(),
                message: message.into(),
            }],
        )
    }
}

pub(crate) fn shown(faults: &Faults) -> Vec<FaultShown> {
    faults.iter().map(FaultShown::from).collect()
}

/// What a client sent, short enough to be sent back.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Open { .. } | StoreError::Query { .. } => Self::in_trouble().because(error),
            StoreError::NoSuchJob(id) => Self::not_found("job", id),
            StoreError::NoSuchBatch(id) => Self::not_found("batch", id),
            StoreError::NoSuchUpload(digest) => Self::new(Code::Conflict)
                .detail(format!("the upload {digest} was removed meanwhile: upload it again")),
            StoreError::NoSuchTenant(id) => Self::not_found("tenant", id),
            StoreError::NoSuchKey(id) => Self::not_found("key", id),
            StoreError::TenantExists(name) => {
                Self::new(Code::Conflict).detail(format!("there is a tenant `{name}` already"))
            }
            StoreError::NoSuchExecutor(id) => Self::not_found("executor", id),
            StoreError::ExecutorExists(name) => {
                Self::new(Code::Conflict).detail(format!("there is an executor `{name}` already"))
            }
            StoreError::OverQuota { most, would_be, .. } => Self::new(Code::OverQuota)
                .detail(format!(
                    "the tenant may have {most} jobs queued, and would have {would_be}: submit again once some have started"
                ))
                .retry_after(Duration::from_secs(5)),
            StoreError::KeyConflict(job) => Self::new(Code::IdempotencyConflict).detail(format!(
                "the key stands for job {job}, which was submitted with another body"
            )),
            StoreError::NewerSchema { .. }
            | StoreError::Refused { .. }
            | StoreError::Corrupt { .. }
            | StoreError::PoolIsLive(_) => Self::new(Code::Internal).because(error),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        response.extensions_mut().insert(Failed(Arc::new(self)));
        response
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::{
        digest::Digest,
        id::{BatchId, JobId, KeyId, TenantId},
    };

    use super::*;

    #[test]
    fn no_cause_of_the_stores_stands_in_what_is_shown() {
        const INSIDE: &str = "inside-1b5c";
        let source = || -> mayfly_store::error::Source { INSIDE.into() };
        let errors = [
            StoreError::Open {
                place: INSIDE.to_owned(),
                source: source(),
            },
            StoreError::Query {
                doing: INSIDE,
                source: source(),
            },
            StoreError::Refused {
                doing: INSIDE,
                source: source(),
            },
            StoreError::Corrupt {
                table: INSIDE,
                column: INSIDE,
                source: source(),
            },
            StoreError::KeyConflict(JobId::new()),
            StoreError::NewerSchema {
                place: INSIDE.to_owned(),
                needed: 2,
                ours: 1,
            },
            StoreError::PoolIsLive(INSIDE.to_owned()),
            StoreError::NoSuchJob(JobId::new()),
            StoreError::NoSuchBatch(BatchId::new()),
            StoreError::NoSuchUpload(Digest::of(b"")),
            StoreError::NoSuchTenant(TenantId::new()),
            StoreError::NoSuchKey(KeyId::new()),
        ];
        for error in errors {
            let temporary = error.is_temporary();
            let text = format!("{error:?}");
            let api = ApiError::from(error);
            assert!(!api.detail.unwrap_or_default().contains(INSIDE), "{text}");
            assert!(api.faults.is_empty());
            assert_eq!(api.code == Code::Unavailable, temporary, "{text}");
            assert_eq!(api.retry_after.is_some(), temporary, "{text}");
        }
    }
}
