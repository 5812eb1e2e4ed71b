//! What can go wrong with a store.

use mayfly_core::{
    digest::Digest,
    id::{BatchId, ExecutorId, JobId, KeyId, TenantId},
};

/// A cause that the seam does not show the type of.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// A call of the store that failed. Nothing of it is committed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be opened.
    #[error("could not open the database {place}")]
    Open {
        /// Its file or address, without credentials.
        place: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// The database is of a version that this program can't read.
    #[error(
        "the database {place} needs a mayfly of schema {needed} or newer, and this one has schema {ours}"
    )]
    NewerSchema {
        /// Its file or address, without credentials.
        place: String,
        /// The oldest reader that it serves.
        needed: i64,
        /// The schema that this program knows.
        ours: i64,
    },
    /// A statement failed for a reason that lies in the database: its lock, its file, its disk.
    #[error("the database could not {doing}")]
    Query {
        /// What we were doing.
        doing: &'static str,
        /// What it said.
        #[source]
        source: Source,
    },
    /// The database refuses what a statement would write, or finds its rows otherwise than the statement takes for
    /// granted: it is this input that can't be processed.
    #[error("the database refuses to {doing}")]
    Refused {
        /// What we were doing.
        doing: &'static str,
        /// What it said.
        #[source]
        source: Source,
    },
    /// A stored value can't be understood.
    #[error("column {table}.{column} holds a value that this program can't read")]
    Corrupt {
        /// Which table.
        table: &'static str,
        /// Which column.
        column: &'static str,
        /// Why not.
        #[source]
        source: Source,
    },
    /// There is no such job of this tenant.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// There is no such batch of this tenant.
    #[error("there is no batch {0}")]
    NoSuchBatch(BatchId),
    /// There is no such upload of this tenant, any more.
    #[error("there is no upload {0}")]
    NoSuchUpload(Digest),
    /// There is no such tenant.
    #[error("there is no tenant {0}")]
    NoSuchTenant(TenantId),
    /// There is a tenant of that name or id.
    #[error("there is a tenant {0} already")]
    TenantExists(String),
    /// A tenant would have more jobs queued in a pool than it may.
    #[error("the tenant may have {most} jobs queued in the pool {pool}, and would have {would_be}")]
    OverQuota {
        /// Which pool.
        pool: String,
        /// How many it may have.
        most: u64,
        /// How many it would have with those that it submits.
        would_be: u64,
    },
    /// There is no such key.
    #[error("there is no key {0}")]
    NoSuchKey(KeyId),
    /// The idempotency key of a submission stands for another one, which has made this job.
    #[error("the idempotency key was used before, for job {0} and with another body")]
    KeyConflict(JobId),
    /// There is no such executor.
    #[error("there is no executor {0}")]
    NoSuchExecutor(ExecutorId),
    /// There is an executor of that name or id.
    #[error("there is an executor {0} already")]
    ExecutorExists(String),
    /// A session of that pool is live, so that its jobs are not left behind.
    #[error("a session of the pool {0} is live")]
    PoolIsLive(String),
}

impl StoreError {
    /// Whether the same call may succeed later: the database is in trouble, and not this input at fault.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Open { .. } | Self::Query { .. } => true,
            Self::NewerSchema { .. }
            | Self::Refused { .. }
            | Self::Corrupt { .. }
            | Self::NoSuchJob(_)
            | Self::NoSuchBatch(_)
            | Self::NoSuchUpload(_)
            | Self::NoSuchTenant(_)
            | Self::TenantExists(_)
            | Self::OverQuota { .. }
            | Self::NoSuchKey(_)
            | Self::KeyConflict(_)
            | Self::NoSuchExecutor(_)
            | Self::ExecutorExists(_)
            | Self::PoolIsLive(_) => false,
        }
    }
}
