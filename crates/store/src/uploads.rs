//! Files that tenants have uploaded: found by their digests, kept in pieces, and gone some time after their last use.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{KeyId, TenantId, UploadId},
};

use crate::{
    blobs::{BlobOwner, PieceAt},
    error::StoreError,
};

/// Most uploads of a tenant that may be under way at once.
pub const MAX_UNDER_WAY: u32 = 8;

/// How much of a tenant's is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadBounds {
    /// Most bytes of all uploads of a tenant together, those under way among them.
    pub total: u64,
    /// Most of them.
    pub count: u32,
}

impl UploadBounds {
    /// Why a tenant that has so many uploads, so many of them under way, with so many bytes in all, may not begin one of so
    /// many more.
    #[must_use]
    pub fn refusal(&self, count: u64, under_way: u64, bytes: u64, more: u64) -> Option<String> {
        if under_way >= u64::from(MAX_UNDER_WAY) {
            Some(format!(
                "{under_way} uploads of the tenant are under way, and at most {MAX_UNDER_WAY} may be at once: wait for one"
            ))
        } else if count >= u64::from(self.count) {
            Some(format!(
                "the tenant has {count} uploads, and at most {} are kept: remove one first",
                self.count
            ))
        } else if bytes.saturating_add(more) > self.total {
            Some(format!(
                "the uploads of the tenant are {bytes} bytes, and with {more} more they would be over the {} that are kept: \
                 remove one first",
                self.total
            ))
        } else {
            None
        }
    }
}

/// An upload that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewUpload {
    /// Whose.
    pub tenant: TenantId,
    /// Its id.
    pub id: UploadId,
    /// The digest that it is to have.
    pub digest: Digest,
    /// The length that it is to have.
    pub bytes: u64,
}

/// What became of a beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It takes its pieces from here on.
    Begun,
    /// The same is there already, and was used now.
    Existing(UploadRecord),
    /// With it the tenant would have more than it may: in words of ours.
    NoRoom(String),
}

/// An upload that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRecord {
    /// Its id.
    pub id: UploadId,
    /// The digest of its content.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// When it was whole.
    pub kept_at: DateTime<Utc>,
    /// When it was last uploaded, or a job was submitted with it.
    pub used_at: DateTime<Utc>,
}

/// What became of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is kept no more.
    Removed,
    /// A job that is not over has it.
    InUse,
    /// There is none.
    Unknown,
}

/// Uploads of tenants. Another tenant's is never found.
#[async_trait]
pub trait UploadStore: Send + Sync {
    /// Begins an upload. Nobody finds it before it is whole.
    ///
    /// # Errors
    /// Trouble with the database; nothing has begun.
    async fn begin_upload(
        &self,
        upload: NewUpload,
        bounds: UploadBounds,
        now: DateTime<Utc>,
    ) -> Result<Begun, StoreError>;

    /// Keeps the next piece of an upload that is under way, of 1 to [`PIECE_BYTES`](mayfly_core::artifact::PIECE_BYTES) bytes;
    /// pieces are numbered from 0. False, and nothing is kept, where there is no such upload, or it has that piece.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn keep_upload_piece(
        &self,
        tenant: TenantId,
        id: UploadId,
        piece: u32,
        content: &[u8],
    ) -> Result<bool, StoreError>;

    /// Makes an upload whole, with its `upload_kept` event. Whoever calls has compared digest and length; where the same came
    /// another way meanwhile, that one stays, and this one is gone. None where there is no such upload under way, or its
    /// pieces are not as long as it is to be.
    ///
    /// # Errors
    /// Trouble with the database; nothing has changed.
    async fn finish_upload(
        &self,
        tenant: TenantId,
        id: UploadId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Option<UploadRecord>, StoreError>;

    /// Gives up an upload that is under way, with its pieces; nothing changes where there is none.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn give_up_upload(&self, tenant: TenantId, id: UploadId) -> Result<(), StoreError>;

    /// Those of these digests that a tenant has uploads of, whole, each once and in the order of the digests.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_uploads(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<UploadRecord>, StoreError>;

    /// A tenant's uploads by their ids; those after one where it is named. At most [`MAX_PAGE`](crate::seam::MAX_PAGE).
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_uploads(
        &self,
        tenant: TenantId,
        after: Option<UploadId>,
        limit: u32,
    ) -> Result<Vec<UploadRecord>, StoreError>;

    /// Removes an upload, with its `upload_removed` event, unless a job has it that is not over.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn remove_upload(
        &self,
        tenant: TenantId,
        digest: &Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Removal, StoreError>;

    /// A piece of a file that the job of an attempt fetches, by the file's number among those; none where there is no such
    /// attempt of that job and tenant, where it is over, and where there is no such piece.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn find_fetched(&self, owner: BlobOwner, at: PieceAt) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes, of all tenants, uploads that were last used before one time and that no job has which is not over, each with
    /// its `upload_removed` event; and uploads under way that began before another. At most [`SWEPT_AT_ONCE`]; how many.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn sweep_uploads(
        &self,
        unused_since: DateTime<Utc>,
        begun_before: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError>;
}

/// Most uploads that one call of [`UploadStore::sweep_uploads`] removes: one may be long, and is removed in one transaction.
pub const SWEPT_AT_ONCE: u32 = 1;
