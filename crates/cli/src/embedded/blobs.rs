//! Files of runs, where executor and database are in one process: into the database, without HTTP.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mayfly_core::digest::Digest;
use mayfly_dispatch::blob::BlobUrl;
use mayfly_executor::{BlobError, Blobs, Piece};
use mayfly_store::{
    blobs::{BlobOwner, PieceAt},
    seam::Store,
};

/// What it answers where a server of HTTP would.
const NOT_FOUND: u16 = 404;

/// The database of this process.
pub(super) struct StoreBlobs(pub(super) Arc<dyn Store>);

#[async_trait]
impl Blobs for StoreBlobs {
    async fn fetch(&self, _: &BlobUrl, _: u64) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::NoWay)
    }

    async fn leave(&self, _: &BlobUrl, _: Bytes, _: Digest) -> Result<(), BlobError> {
        Err(BlobError::NoWay)
    }

    async fn leave_piece(&self, piece: Piece<'_>, content: Bytes) -> Result<(), BlobError> {
        let order = piece.order;
        let owner = BlobOwner {
            tenant: order.tenant,
            job: order.job,
            attempt: order.attempt,
        };
        let at = PieceAt {
            file: piece.file,
            piece: piece.piece,
        };
        let most = order
            .resolved
            .artifact_limits
            .map_or(0, |limits| limits.total.as_bytes());
        let kept = self.0.keep_piece(owner, at, piece.digest, &content, most).await;
        match kept {
            Ok(true) => Ok(()),
            Ok(false) => Err(BlobError::Refused(NOT_FOUND)),
            Err(error) => Err(BlobError::Trouble(error.into())),
        }
    }
}
