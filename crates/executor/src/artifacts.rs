//! Files that a run has made: left on the server piece by piece, while they come out of the sandbox. One piece of one file
//! is in memory at a time, and nothing of them is ever on this host's disk.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use mayfly_core::{
    artifact::{Artifact, PIECE},
    chain::Chain,
    digest::Digest,
    job::ResolvedJob,
    units::ByteSize,
};
use mayfly_dispatch::message::DispatchMessage;
use mayfly_sandbox::collect::{ArtifactSink, Collect, CollectBounds, SinkError};

use crate::blobs::{BlobError, Blobs, Patience, Piece};

/// How long the same piece is tried: the time for all of them bounds it as well.
const LIMIT: Duration = Duration::from_secs(60);

/// Entries of folders that are looked at for files that a job asks for.
const MOST_ENTRIES: u32 = 100_000;

/// Files that are named as left out.
const MOST_NAMED: u32 = 100;

/// What is to be collected of a job, where it asks for files.
pub(crate) fn wanted(
    job: &ResolvedJob,
    order: &Arc<DispatchMessage>,
    blobs: &Arc<dyn Blobs>,
) -> Option<Collect> {
    let limits = job.artifact_limits.filter(|_| !job.artifacts.is_empty())?;
    Some(Collect {
        globs: job.artifacts.clone(),
        after: job.artifacts_after,
        bounds: CollectBounds {
            files: limits.files,
            file_bytes: limits.file.as_bytes(),
            bytes: limits.total.as_bytes(),
            entries: MOST_ENTRIES,
            named: MOST_NAMED,
            time: limits.time.as_duration(),
        },
        sink: Box::new(Pieces {
            order: Arc::clone(order),
            blobs: Arc::clone(blobs),
            total: limits.total,
            left: limits.total.as_bytes(),
            files: 0,
            pieces: 0,
            piece: BytesMut::new(),
        }),
    })
}

/// Takes files apart and leaves their pieces.
struct Pieces {
    order: Arc<DispatchMessage>,
    blobs: Arc<dyn Blobs>,
    total: ByteSize,
    /// How many bytes may still be left.
    left: u64,
    /// How many files have begun.
    files: u32,
    /// How many pieces of the newest are left on the server.
    pieces: u32,
    /// Its next one.
    piece: BytesMut,
}

impl Pieces {
    async fn leave(&mut self, content: Bytes) -> Result<(), SinkError> {
        let bytes = content.len() as u64;
        // Marks may be longer than what they stand for, so that the guest's own count is no bound of this one.
        let Some(left) = self.left.checked_sub(bytes) else {
            let text = format!(
                "with what stands for secrets in them they are more than {}",
                self.total
            );
            return Err(SinkError(text));
        };
        let piece = Piece {
            order: &self.order,
            file: self.files - 1,
            piece: self.pieces,
            digest: Digest::of(&content),
        };
        persistently(&*self.blobs, piece, &content)
            .await
            .map_err(|error| SinkError(Chain(&error).to_string()))?;
        self.left = left;
        self.pieces += 1;
        Ok(())
    }
}

async fn persistently(blobs: &dyn Blobs, piece: Piece<'_>, content: &Bytes) -> Result<(), BlobError> {
    let mut patience = Patience::of(LIMIT);
    loop {
        match blobs.leave_piece(piece, content.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                let place = piece.order.artifacts.as_ref();
                let place = place.map_or_else(|| "its database".to_owned(), ToString::to_string);
                patience
                    .after(error, "leave a file that a run has made", &place)
                    .await?;
            }
        }
    }
}

#[async_trait]
impl ArtifactSink for Pieces {
    async fn begin(&mut self) -> Result<u32, SinkError> {
        let number = self.files;
        self.files += 1;
        self.pieces = 0;
        self.piece.clear();
        Ok(number)
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), SinkError> {
        while !bytes.is_empty() {
            let (taken, rest) = bytes.split_at(bytes.len().min(PIECE - self.piece.len()));
            self.piece.extend_from_slice(taken);
            bytes = rest;
            if self.piece.len() == PIECE {
                let whole = self.piece.split().freeze();
                self.leave(whole).await?;
            }
        }
        Ok(())
    }

    async fn keep(&mut self, _: &Artifact) -> Result<(), SinkError> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let last = self.piece.split().freeze();
        self.leave(last).await
    }

    async fn drop_it(&mut self) {
        // What of it is on the server goes with the attempt's end: no report names it.
        self.piece.clear();
    }
}

#[cfg(test)]
mod tests;
