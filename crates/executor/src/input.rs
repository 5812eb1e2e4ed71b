//! What a job brings, where its order only names it: fetched and checked before any sandbox has a byte of it.

use std::time::Duration;

use mayfly_core::{
    digest::Digest,
    job::{Blob, FileMode, InputFile, ResolvedJob, SecretValues},
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
    /// Its secrets could not be had.
    #[error("could not fetch the job's secrets")]
    FetchSecrets(#[source] BlobError),
    /// A secret that the job names has been removed since.
    #[error("a secret that the job names is kept no more; set it again and submit the job again")]
    NoSecret,
    /// What came for its secrets are none. It is not said what it was.
    #[error("what the server gave for the job's secrets is of no use")]
    Secrets,
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

/// The whole job of an order, its secrets in their places.
///
/// # Cancel safety
/// Nothing is begun that outlives it.
pub(crate) async fn complete(
    blobs: &dyn Blobs,
    order: &DispatchMessage,
    unwanted: &CancellationToken,
) -> Result<ResolvedJob, InputError> {
    tokio::select! {
        job = whole(blobs, order) => job,
        () = unwanted.cancelled() => Err(InputError::GivenUp),
    }
}

async fn whole(blobs: &dyn Blobs, order: &DispatchMessage) -> Result<ResolvedJob, InputError> {
    let mut job = order.resolved.clone();
    if let Some(input) = &order.input {
        let bytes = fetch(blobs, input).await.map_err(InputError::Fetch)?;
        JobContent::decode(&bytes)
            .and_then(|content| content.give_back(&mut job))
            .map_err(InputError::Content)?;
    }
    if order.secrets.is_some() || !job.named_secrets.is_empty() {
        let fetched = fetch_secrets(blobs, order).await?;
        give_secrets(&mut job, &fetched)?;
    }
    job.files
        .extend(job.secret_files.iter().map(|(path, value)| InputFile {
            path: path.clone(),
            content: Blob::from(value.reveal()),
            executable: false,
            mode: Some(FileMode::PRIVATE),
        }));
    Ok(job)
}

/// Puts what was fetched into its places.
fn give_secrets(job: &mut ResolvedJob, fetched: &[u8]) -> Result<(), InputError> {
    let values = SecretValues::decode(fetched).map_err(|_| InputError::Secrets)?;
    // An order that never left its process has those that the job brings, too; the answer has all of them.
    let (own, named) = (job.take_secrets(), std::mem::take(&mut job.named_secrets));
    let mut variables = own.env.keys().chain(named.env.keys());
    let mut paths = own.files.keys().chain(named.files.keys());
    if !variables.all(|name| values.env.contains_key(name))
        || !paths.all(|path| values.files.contains_key(path))
    {
        return Err(InputError::Secrets);
    }
    (job.secrets, job.secret_files) = (values.env, values.files);
    Ok(())
}

async fn fetch_secrets(blobs: &dyn Blobs, order: &DispatchMessage) -> Result<Vec<u8>, InputError> {
    let place: &(dyn std::fmt::Display + Sync) = match &order.secrets {
        Some(url) => url,
        None => &"this process",
    };
    let mut patience = Patience::of(LIMIT);
    loop {
        let error = match blobs.fetch_secrets(order).await {
            Ok(bytes) => return Ok(bytes),
            Err(BlobError::Gone) => return Err(InputError::NoSecret),
            Err(error) => error,
        };
        patience
            .after(error, "fetch the secrets of a job", place)
            .await
            .map_err(InputError::FetchSecrets)?;
    }
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
