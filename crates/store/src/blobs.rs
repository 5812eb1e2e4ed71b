//! What travels beside the messages: what jobs bring, for executors that fetch it, and what runs have written, from executors
//! that leave it here until their report is recorded.

use async_trait::async_trait;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    job::ResolvedJob,
};

use crate::{error::StoreError, records::Pool};

/// Whose blob it is. All of it is compared with the rows: an id of another's leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobOwner {
    /// Whose job.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: AttemptId,
}

/// Which piece of which file of an attempt, both numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceAt {
    /// The file.
    pub file: u32,
    /// The piece in it.
    pub piece: u32,
}

/// Blobs of attempts that are not over.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// The newest message version that every live session of a pool reads; none where no session lives.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn oldest_reader(&self, pool: &Pool) -> Result<Option<u32>, StoreError>;

    /// The job of an attempt, with what it brings; none where there is no such attempt of that job and tenant, where it is
    /// over, or where the content is not kept any more.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_input(&self, owner: BlobOwner) -> Result<Option<ResolvedJob>, StoreError>;

    /// Keeps what the run of an attempt has written until the attempt is over: by a report that names it, which takes it
    /// over, or otherwise. The first that is kept counts, and the same again changes nothing. False, and nothing is kept,
    /// where there is no such attempt of that job and tenant, where it has not started or is over, and where something else
    /// is kept of it.
    ///
    /// # Errors
    /// Trouble with the database; nothing is kept, and the same call may be made again.
    async fn keep_output(&self, owner: BlobOwner, digest: Digest, content: &[u8])
    -> Result<bool, StoreError>;

    /// Keeps a piece of a file that the run of an attempt has made, of 1 to
    /// [`PIECE_BYTES`](mayfly_core::artifact::PIECE_BYTES) bytes: until the attempt is over, and for as long as its result is
    /// where its report names the file. The first that is kept counts, and the same again changes nothing. False, and
    /// nothing is kept, where there is no such attempt of that job and tenant, where it has not started or is over, where
    /// something else is kept there, and where with it more than `most` bytes of files would be kept of the attempt.
    ///
    /// # Errors
    /// Trouble with the database; nothing is kept, and the same call may be made again.
    async fn keep_piece(
        &self,
        owner: BlobOwner,
        at: PieceAt,
        digest: Digest,
        content: &[u8],
        most: u64,
    ) -> Result<bool, StoreError>;
}
