//! Files and secrets of runs, where executor and database are in one process: without HTTP.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mayfly_core::digest::Digest;
use mayfly_dispatch::{blob::BlobUrl, message::DispatchMessage};
use mayfly_executor::{AskedPiece, BlobError, Blobs, Piece};
use mayfly_store::{
    blobs::{BlobOwner, PieceAt},
    seam::Store,
};
#[cfg(feature = "fleet")]
use mayfly_vault::{
    Vault,
    give::{self, GiveError},
};

/// What it answers where a server of HTTP would.
const NOT_FOUND: u16 = 404;

/// The database of this process.
pub(super) struct StoreBlobs {
    pub(super) store: Arc<dyn Store>,
    #[cfg(feature = "fleet")]
    pub(super) clock: Arc<dyn mayfly_core::clock::Clock>,
    /// What named secrets are sealed with.
    #[cfg(feature = "fleet")]
    pub(super) vault: Option<Arc<Vault>>,
}

fn owner(order: &DispatchMessage) -> BlobOwner {
    BlobOwner {
        tenant: order.tenant,
        job: order.job,
        attempt: order.attempt,
    }
}

#[async_trait]
impl Blobs for StoreBlobs {
    async fn fetch(&self, _: &BlobUrl, _: u64) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::NoWay)
    }

    #[cfg(feature = "fleet")]
    async fn fetch_secrets(&self, order: &DispatchMessage) -> Result<Vec<u8>, BlobError> {
        let (store, vault) = (&*self.store, self.vault.as_deref());
        match give::values_for(store, vault, owner(order), self.clock.now()).await {
            Ok(values) => Ok(values.encode()),
            Err(GiveError::NoSuchAttempt) => Err(BlobError::Refused(NOT_FOUND)),
            Err(GiveError::NoSecret) => Err(BlobError::Gone),
            Err(error @ (GiveError::NoKey | GiveError::Open(_) | GiveError::Store(_))) => {
                Err(BlobError::Trouble(error.into()))
            }
        }
    }

    #[cfg(not(feature = "fleet"))]
    async fn fetch_secrets(&self, _: &DispatchMessage) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::NoWay)
    }

    async fn fetch_piece(&self, asked: AskedPiece<'_>) -> Result<Vec<u8>, BlobError> {
        let at = PieceAt {
            file: asked.file,
            piece: asked.piece,
        };
        match self.store.find_fetched(owner(asked.order), at).await {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(BlobError::Refused(NOT_FOUND)),
            Err(error) => Err(BlobError::Trouble(error.into())),
        }
    }

    async fn leave(&self, _: &BlobUrl, _: Bytes, _: Digest) -> Result<(), BlobError> {
        Err(BlobError::NoWay)
    }

    async fn leave_piece(&self, piece: Piece<'_>, content: Bytes) -> Result<(), BlobError> {
        let order = piece.order;
        let owner = owner(order);
        let at = PieceAt {
            file: piece.file,
            piece: piece.piece,
        };
        let most = order
            .resolved
            .artifact_limits
            .map_or(0, |limits| limits.total.as_bytes());
        let kept = self
            .store
            .keep_piece(owner, at, piece.digest, &content, most)
            .await;
        match kept {
            Ok(true) => Ok(()),
            Ok(false) => Err(BlobError::Refused(NOT_FOUND)),
            Err(error) => Err(BlobError::Trouble(error.into())),
        }
    }
}
