//! Files that a job only names: fetched piece by piece while the sandbox takes them in, and checked before it has the last
//! piece of one, without which no program starts.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use mayfly_core::{artifact::PIECE_BYTES, chain::Chain, digest::Digest, job::FetchedFile};
use mayfly_dispatch::message::DispatchMessage;
use mayfly_sandbox::fetched::{FetchError, Incoming, Sender};
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use crate::blobs::{BlobError, Blobs, Patience};

/// How long the same piece is tried.
const PIECE_LIMIT: Duration = Duration::from_secs(300);

/// How long all of it may take: this, and for each started MiB a second more.
const LIMIT: Duration = Duration::from_secs(600);

/// The files that an order's job fetches, where it fetches any. They come for as long as somebody takes them.
pub(crate) fn incoming(
    order: &Arc<DispatchMessage>,
    blobs: &Arc<dyn Blobs>,
    tasks: &TaskTracker,
) -> Option<Incoming> {
    if order.resolved.fetched.is_empty() {
        return None;
    }
    let (sender, incoming) = Incoming::new();
    let (order, blobs) = (Arc::clone(order), Arc::clone(blobs));
    tasks.spawn(async move {
        let limit = longest(&order.resolved.fetched);
        let fetching = fetch(&*blobs, &order, &sender);
        let fetched = tokio::time::timeout(limit, fetching).await;
        let fetched = fetched.unwrap_or(Err(BlobError::TooSlow(limit)));
        if let Err(error) = fetched {
            let text = format!("could not fetch a file of the job: {}", Chain(&error));
            // Nobody takes it any more where the run is over.
            drop(sender.send(Err(FetchError(text))).await);
        }
    });
    Some(incoming)
}

/// How long it may take to fetch files, at most.
pub(crate) fn longest(files: &[FetchedFile]) -> Duration {
    let bytes = files.iter().map(|file| file.bytes);
    let total = bytes.fold(0, u64::saturating_add);
    if total == 0 {
        return Duration::ZERO;
    }
    LIMIT.saturating_add(Duration::from_secs(total.div_ceil(PIECE_BYTES)))
}

async fn fetch(blobs: &dyn Blobs, order: &DispatchMessage, sender: &Sender) -> Result<(), BlobError> {
    for (number, file) in (0..).zip(&order.resolved.fetched) {
        let (mut hasher, mut left) = (Sha256::new(), file.bytes);
        for piece in 0.. {
            if left == 0 {
                break;
            }
            let bytes = left.min(PIECE_BYTES);
            let asked = AskedPiece {
                order,
                file: number,
                piece,
                bytes,
            };
            let content = persistently(blobs, asked).await?;
            hasher.update(&content);
            left -= bytes;
            if left == 0 && Digest::from_bytes(hasher.finalize_reset().into()) != file.digest {
                return Err(BlobError::Digest);
            }
            if sender.send(Ok(content)).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A piece of a file that a job fetches.
#[derive(Debug, Clone, Copy)]
pub struct AskedPiece<'a> {
    /// Whose job.
    pub order: &'a DispatchMessage,
    /// The file's number among those that the job fetches, from 0.
    pub file: u32,
    /// The piece's number in the file, from 0.
    pub piece: u32,
    /// Its length.
    pub bytes: u64,
}

async fn persistently(blobs: &dyn Blobs, asked: AskedPiece<'_>) -> Result<Bytes, BlobError> {
    let mut patience = Patience::of(PIECE_LIMIT);
    loop {
        let error = match blobs.fetch_piece(asked).await {
            Ok(content) if content.len() as u64 == asked.bytes => return Ok(content.into()),
            Ok(_) => BlobError::Length(asked.bytes),
            Err(error) => error,
        };
        let place = asked.order.fetched.as_ref();
        let place = place.map_or_else(|| "its database".to_owned(), ToString::to_string);
        patience.after(error, "fetch a file of a job", &place).await?;
    }
}

#[cfg(test)]
mod tests;
