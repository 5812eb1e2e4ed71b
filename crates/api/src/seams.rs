//! What the API asks of others beside the store. Roles that have a broker give these; where there is none, [`Nothing`].

use async_trait::async_trait;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, KeyId, TenantId},
};
use mayfly_wire::{dead_letter::DeadLetter, health::Check, job::StreamName};

/// What a running job writes, as it comes.
#[async_trait]
pub trait LiveOutputSource: Send + Sync {
    /// Begins to listen to a tenant's job. What was written before is not heard.
    ///
    /// # Errors
    /// [`SourceError`]: the stream goes on without live output, and has the rest at the job's end.
    async fn listen(&self, tenant: TenantId, job: JobId) -> Result<Box<dyn LiveOutput>, SourceError>;
}

/// A listener of one job. It ends by being dropped.
#[async_trait]
pub trait LiveOutput: Send {
    /// The next piece that is known to be from the session that holds the attempt; none where nothing more will come.
    /// Pieces may be missing, which shows in their offsets.
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    async fn next(&mut self) -> Option<OutputPiece>;
}

/// Some bytes of a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Which attempt wrote them.
    pub attempt: AttemptId,
    /// On which stream.
    pub stream: StreamName,
    /// Where they begin, in bytes from the stream's beginning.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What an operator asks of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Take nothing new.
    Cordon,
    /// Take what comes again.
    Uncordon,
    /// Take nothing new, finish what runs, and end.
    Drain,
}

/// The way to the executors of a fleet. What they are, and which are cordoned, is in the store.
#[async_trait]
pub trait Fleet: Send + Sync {
    /// Hands an order to an executor of a pool, once; one that is not there does not hear it. A cordon is on record
    /// before, and its session hears of that by its heartbeats as well.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn order(&self, pool: &str, executor: ExecutorId, order: Order) -> Result<(), SourceError>;
}

/// The dead letters, by their ids.
#[async_trait]
pub trait DeadLetterDesk: Send + Sync {
    /// The oldest ones, at most `limit`, and whether there are more.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn list(&self, limit: u32) -> Result<(Vec<DeadLetter>, bool), SourceError>;

    /// Publishes one again to where it came from: an attempt, as its next publication.
    ///
    /// # Errors
    /// [`SourceError::NoSuchThing`]; [`SourceError::Over`] where the attempt waits for its start no more; and the others.
    /// It stays a dead letter, except where an attempt's next publication has been taken: that is published in its time.
    async fn replay(&self, id: Digest, by: KeyId) -> Result<(), SourceError>;

    /// Forgets one, for good.
    ///
    /// # Errors
    /// As [`DeadLetterDesk::replay`].
    async fn discard(&self, id: Digest, by: KeyId) -> Result<(), SourceError>;
}

/// What the server needs, and whether it is there.
#[async_trait]
pub trait HealthSource: Send + Sync {
    /// Looks at each thing, within two seconds. Reasons are fit for the public: no address, no credential.
    async fn checks(&self) -> Vec<Check>;
}

/// Why something could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such letter.
    #[error("there is no such thing")]
    NoSuchThing,
    /// It is over, and can't be done again.
    #[error("that is over")]
    Over,
    /// This server has no part that does that.
    #[error("this server does not do that")]
    NotSupported,
    /// Trouble that passes.
    #[error("that is in trouble for the moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Where there is no broker: no live output, no orders, no dead letters.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

#[async_trait]
impl LiveOutputSource for Nothing {
    async fn listen(&self, _: TenantId, _: JobId) -> Result<Box<dyn LiveOutput>, SourceError> {
        Err(SourceError::NotSupported)
    }
}

#[async_trait]
impl Fleet for Nothing {
    async fn order(&self, _: &str, _: ExecutorId, _: Order) -> Result<(), SourceError> {
        Err(SourceError::NotSupported)
    }
}

#[async_trait]
impl DeadLetterDesk for Nothing {
    async fn list(&self, _: u32) -> Result<(Vec<DeadLetter>, bool), SourceError> {
        Ok((Vec::new(), false))
    }

    async fn replay(&self, _: Digest, _: KeyId) -> Result<(), SourceError> {
        Err(SourceError::NotSupported)
    }

    async fn discard(&self, _: Digest, _: KeyId) -> Result<(), SourceError> {
        Err(SourceError::NotSupported)
    }
}

#[async_trait]
impl HealthSource for Nothing {
    async fn checks(&self) -> Vec<Check> {
        Vec::new()
    }
}
