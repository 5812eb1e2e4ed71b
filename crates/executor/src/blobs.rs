//! The way to what lies on the server beside the messages, and how long it is gone again where it does not lead there.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use mayfly_core::{chain::Chain, digest::Digest};
use mayfly_dispatch::{blob::BlobUrl, message::DispatchMessage};
use tokio::time::Instant;

use crate::{fetched::AskedPiece, pauses::Pauses};

#[cfg(feature = "http")]
mod http;
#[cfg(test)]
pub(crate) mod scripted;

#[cfg(feature = "http")]
pub use http::HttpBlobs;

/// The wait between two tries, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How blobs are reached. Each call is one try.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Fetches what an address leads to, which has so many bytes.
    ///
    /// # Errors
    /// [`BlobError`]. No more than so many bytes are ever in memory.
    async fn fetch(&self, url: &BlobUrl, bytes: u64) -> Result<Vec<u8>, BlobError>;

    /// Leaves content at an address, by its digest. Once it has worked, the same again works too.
    ///
    /// # Errors
    /// [`BlobError`]. It may have been left all the same.
    async fn leave(&self, url: &BlobUrl, content: Bytes, digest: Digest) -> Result<(), BlobError>;

    /// Fetches the secrets of an order's job, as [`SecretValues`](mayfly_core::job::SecretValues) in JSON.
    ///
    /// # Errors
    /// [`BlobError`]. No more than [`MAX_SECRETS_BYTES`](mayfly_dispatch::message::MAX_SECRETS_BYTES) are ever in memory.
    async fn fetch_secrets(&self, order: &DispatchMessage) -> Result<Vec<u8>, BlobError>;

    /// Fetches a piece of a file that an order's job only names.
    ///
    /// # Errors
    /// [`BlobError`]. No more than a piece is ever in memory.
    async fn fetch_piece(&self, asked: AskedPiece<'_>) -> Result<Vec<u8>, BlobError> {
        let place = asked.order.fetched.as_ref().ok_or(BlobError::NoWay)?;
        self.fetch(&place.of_piece(asked.file, asked.piece), asked.bytes)
            .await
    }

    /// Leaves a piece of a file where its order says. Once it has worked, the same again works too.
    ///
    /// # Errors
    /// [`BlobError`]. It may have been left all the same.
    async fn leave_piece(&self, piece: Piece<'_>, content: Bytes) -> Result<(), BlobError> {
        let place = piece.order.artifacts.as_ref().ok_or(BlobError::NoWay)?;
        self.leave(&place.of_piece(piece.file, piece.piece), content, piece.digest)
            .await
    }
}

/// A piece of a file that a run has made.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Whose run.
    pub order: &'a DispatchMessage,
    /// The file's number among those of the run, from 0.
    pub file: u32,
    /// The piece's number in the file, from 0.
    pub piece: u32,
    /// Its digest.
    pub digest: Digest,
}

/// A blob that could not be had. No text of it holds more of an address than host and path.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// This process has no way to any.
    #[error("this executor has no way to the server's blobs")]
    NoWay,
    /// The server has nothing there for whoever asks.
    #[error("the server refuses it (status {0})")]
    Refused(u16),
    /// It was there, and is not any more.
    #[error("the server has it no more: it was removed")]
    Gone,
    /// The server has no time for it, or is in trouble.
    #[error("the server can't serve it for the moment (status {0})")]
    Busy(u16),
    /// It did not answer, or its answer broke off.
    #[error("the server did not answer to the end")]
    Trouble(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took longer than it may.
    #[error("the server took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
    /// What came has another length.
    #[error("it has not the {0} bytes that its order names")]
    Length(u64),
    /// What came is longer than it may be.
    #[error("it has more than the {0} bytes that it may have")]
    TooLong(u64),
    /// What came is something else.
    #[error("it has not the digest that its order names")]
    Digest,
}

impl BlobError {
    /// Whether the same may well succeed later.
    const fn may_pass(&self) -> bool {
        match self {
            Self::Busy(_) | Self::Trouble(_) | Self::TooSlow(_) | Self::Length(_) | Self::Digest => true,
            Self::NoWay | Self::Refused(_) | Self::Gone | Self::TooLong(_) => false,
        }
    }
}

/// Where there is no server to reach: all travels in messages.
#[derive(Debug, Clone, Copy)]
pub struct NoBlobs;

#[async_trait]
impl Blobs for NoBlobs {
    async fn fetch(&self, _: &BlobUrl, _: u64) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::NoWay)
    }

    async fn fetch_secrets(&self, _: &DispatchMessage) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::NoWay)
    }

    async fn leave(&self, _: &BlobUrl, _: Bytes, _: Digest) -> Result<(), BlobError> {
        Err(BlobError::NoWay)
    }
}

/// How often, and for how long, the same is tried again.
pub(crate) struct Patience {
    pauses: Pauses,
    give_up_at: Instant,
    said: bool,
}

impl Patience {
    /// For so long from now.
    pub(crate) fn of(limit: Duration) -> Self {
        Self {
            pauses: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
            give_up_at: Instant::now() + limit,
            said: false,
        }
    }

    /// Waits after a failure, until it is time to try again.
    ///
    /// # Errors
    /// The failure, where no further try would help, or comes in time.
    pub(crate) async fn after(
        &mut self,
        error: BlobError,
        doing: &'static str,
        place: &(dyn fmt::Display + Sync),
    ) -> Result<(), BlobError> {
        let pause = self.pauses.next();
        if !error.may_pass() || Instant::now() + pause >= self.give_up_at {
            return Err(error);
        }
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(blob = %place, error = %Chain(&error), "could not {doing}; it is tried again");
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
