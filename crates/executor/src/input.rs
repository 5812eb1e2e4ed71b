//! What a job brings, where its order only names it: fetched and checked before any sandbox has a byte of it.

use std::time::Duration;

use mayfly_core::{
    digest::Digest,
    job::ResolvedJob,
    outcome::{Evidence, Trouble, TroubleKind},
};
use mayfly_dispatch::{
    content::{ContentError, JobContent},
    message::{DispatchMessage, InputBlob},
};
use tokio_util::sync::CancellationToken;

use crate::blobs::{BlobError, Blobs, Patience};

/// How long it is tried to fetch what a job brings before its attempt ends as trouble of ours, which its retry policy then
/// judges: a server may be away for a while, and the sandbox waits for less than twice as long.
const LIMIT: Duration = Duration::from_secs(300);

/// Why there is no whole job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// It could not be had.
    #[error("could not fetch what the job brings")]
    Fetch(#[source] BlobError),
    /// It is what the order names, and no content.
    #[error("what the job brings is of no use")]
    Content(#[source] ContentError),
    /// Nobody wants it any more.
    #[error("what the job brings is not wanted any more")]
    GivenUp,
}

impl InputError {
    /// What the record will say of it.
    pub(crate) fn evidence(&self) -> Evidence {
        Evidence {
            trouble: Some(Trouble {
                kind: TroubleKind::Content,
                message: mayfly_core::chain::Chain(self).to_string(),
            }),
            ..Evidence::default()
        }
    }
}

/// The whole job of an order.
///
/// # Cancel safety
/// Nothing is begun that outlives it.
pub(crate) async fn complete(
    blobs: &dyn Blobs,
    order: &DispatchMessage,
    unwanted: &CancellationToken,
) -> Result<ResolvedJob, InputError> {
    let mut job = order.resolved.clone();
    let Some(input) = &order.input else {
        return Ok(job);
    };
    let bytes = tokio::select! {
        bytes = fetch(blobs, input) => bytes.map_err(InputError::Fetch)?,
        () = unwanted.cancelled() => return Err(InputError::GivenUp),
    };
    JobContent::decode(&bytes)
        .and_then(|content| content.give_back(&mut job))
        .map_err(InputError::Content)?;
    Ok(job)
}

async fn fetch(blobs: &dyn Blobs, input: &InputBlob) -> Result<Vec<u8>, BlobError> {
    let mut patience = Patience::of(LIMIT);
    loop {
        match fetch_once(blobs, input).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => {
                patience
                    .after(error, "fetch what a job brings", &input.url)
                    .await?;
            }
        }
    }
}

async fn fetch_once(blobs: &dyn Blobs, input: &InputBlob) -> Result<Vec<u8>, BlobError> {
    let bytes = blobs.fetch(&input.url, input.bytes).await?;
    if bytes.len() as u64 != input.bytes {
        return Err(BlobError::Length(input.bytes));
    }
    if Digest::of(&bytes) != input.digest {
        return Err(BlobError::Digest);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
