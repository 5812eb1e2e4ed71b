//! What the roles know of a store.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{AttemptId, AuditEventId, BatchId, JobId, KeyId, TenantId},
    image::ImagePin,
};

use mayfly_dispatch::{
    ledger::Context,
    message::{DispatchMessage, EventBatch, Inbound, Reply, Tick},
    scheduler::LowSince,
    time::ServerTime,
    waiting::Waiting,
};
use tokio::sync::watch;

use crate::{
    accounts::AccountStore,
    blobs::{BlobStore, PieceAt},
    error::StoreError,
    executors::ExecutorStore,
    letters::LetterStore,
    records::{
        AuditFilter, AuditRow, BatchEnds, BatchJob, BatchRecord, CancelAnswer, EndMark, ImageEntry,
        JobDetails, JobFilter, JobPage, JobStanding, NewBatch, NewJob, OpenPool, Pool, Submitted,
    },
    secrets::SecretStore,
    uploads::UploadStore,
};

/// Most rows that one call lists, whatever limit it is given.
pub const MAX_PAGE: u32 = 1000;

/// Most jobs that one call looks at for those that a filter lets through.
pub const MOST_LOOKED_AT: u32 = 5000;

/// The side that clients of the API see.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Accepts a job: its row and its `job_submitted` event, in one transaction. When this returns it is accepted. As
    /// [`JobStore::submit_many`] with one job.
    ///
    /// # Errors
    /// As there; the job is not accepted.
    async fn submit(&self, job: NewJob, now: DateTime<Utc>) -> Result<Submitted, StoreError>;

    /// Accepts many jobs, in their order and in one transaction: all of them, or none where this fails. At most
    /// [`MAX_PAGE`]. An item that its batch has already, and a job whose idempotency key its tenant has used before for
    /// the same body, is left as it is and named, so that whoever does not know what came of a submission may repeat it.
    /// A key is known for [`IDEMPOTENCY_KEPT`](crate::records::IDEMPOTENCY_KEPT) from the submission on, whatever becomes
    /// of its job.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`] where a job has one that is not there;
    /// [`StoreError::KeyConflict`] where a key was used with another body; [`StoreError::OverQuota`] where the tenant would
    /// have more jobs queued than it may, those that are accepted already not counted twice; [`StoreError::NoSuchBatch`];
    /// [`StoreError::Refused`] for too many jobs, a batch that is complete, or a name that no item may have; trouble with
    /// the database. No job is accepted.
    async fn submit_many(&self, jobs: Vec<NewJob>, now: DateTime<Utc>) -> Result<Vec<Submitted>, StoreError>;

    /// Begins a batch, which then takes jobs until it is complete.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where there is such a batch; trouble with the database.
    async fn begin_batch(&self, batch: NewBatch, now: DateTime<Utc>) -> Result<(), StoreError>;

    /// Takes note that all jobs of a batch are accepted; nothing changes where that is known. It takes none from then on.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBatch`]; [`StoreError::Refused`] where it has another number of jobs; trouble with the
    /// database.
    async fn complete_batch(&self, tenant: TenantId, id: BatchId, items: u64) -> Result<(), StoreError>;

    /// A batch of a tenant. Another tenant's is not found.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_batch(&self, tenant: TenantId, id: BatchId) -> Result<Option<BatchRecord>, StoreError>;

    /// A tenant's newest batches, newest first; those before one of them where it is named. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_batches(
        &self,
        tenant: TenantId,
        before: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRecord>, StoreError>;

    /// A batch's jobs in the order of their places; those after a place where it is named. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_batch_jobs(
        &self,
        tenant: TenantId,
        id: BatchId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<BatchJob>, StoreError>;

    /// A batch's jobs that have ended since a mark. At most [`MAX_PAGE`]; the next call goes on from the mark that this one
    /// returns. Without a mark there are none, and the mark is that of now. What it costs depends on what has happened
    /// since, and not on how large the batch is.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_batch_ends(
        &self,
        tenant: TenantId,
        id: BatchId,
        since: Option<EndMark>,
        limit: u32,
    ) -> Result<BatchEnds, StoreError>;

    /// A job of a tenant with all that is known of it. Another tenant's is not found.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobDetails>, StoreError>;

    /// A piece of a file that the run of a tenant's attempt has made; none where there is no such piece. Another tenant's is
    /// not found.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn find_piece(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
        at: PieceAt,
    ) -> Result<Option<Vec<u8>>, StoreError>;

    /// A tenant's jobs, the newest by their submission first; those before one of them where it is named. At most
    /// [`MAX_PAGE`].
    ///
    /// A call looks at [`MOST_LOOKED_AT`] jobs at most, so that no filter makes it cost more: a page may have fewer jobs
    /// than were asked for, even none, and say where it goes on. Each field of a filter has an index; the most narrow one
    /// is what jobs are found by, and times are found by index beside any of them.
    ///
    /// # Errors
    /// [`StoreError::NoSuchJob`] for a cursor that is no job of the tenant's. Trouble with the database, or a stored value
    /// that can't be read.
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, StoreError>;

    /// How jobs of a tenant stand, those of them that there are, in no order: for whoever waits for many. Another
    /// tenant's are not found. At most [`MAX_PAGE`] ids.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for too many ids; trouble with the database, or a stored value that can't be read.
    async fn job_standings(&self, tenant: TenantId, ids: &[JobId]) -> Result<Vec<JobStanding>, StoreError>;

    /// Why a job of a tenant has not started, and its place among those that wait for their turn; none where it has, or is
    /// over. What it costs does not grow with the number of jobs that wait.
    ///
    /// # Errors
    /// [`StoreError::NoSuchJob`]; trouble with the database, or a stored value that can't be read.
    async fn waiting_for(
        &self,
        tenant: TenantId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> Result<Option<Waiting>, StoreError>;

    /// A tenant's newest audit events, oldest of them first. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError>;

    /// The newest audit events of the fleet, oldest of them first: what is in the log of [`TenantId::LOCAL`] and about no
    /// job. Those older than `before`, where it is given. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// As [`JobStore::list_audit`].
    async fn list_fleet_audit(
        &self,
        before: Option<AuditEventId>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError>;

    /// Makes a name of the catalog mean a pin, with its `image_pinned` event, which says whose key asked for it; nothing
    /// changes where it does already.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn pin_image(
        &self,
        name: &str,
        pin: &ImagePin,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError>;

    /// What a name of the catalog means.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_image(&self, name: &str) -> Result<Option<ImageEntry>, StoreError>;

    /// The catalog, by name.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_images(&self) -> Result<Vec<ImageEntry>, StoreError>;
}

/// The side of the roles that dispatch: scheduler, recorder, reconciler. What each call decides it asks
/// `mayfly-dispatch`, on records that it loads in the transaction in which it writes the changes.
///
/// A [`Context`] says what time it is; a store whose database has a clock of its own replaces that by the database's.
#[async_trait]
pub trait DispatchStore: Send + Sync {
    /// Processes what the recorder found in its queue, in this order and in one transaction. The replies may be sent
    /// and the deliveries acked once this has returned.
    ///
    /// # Errors
    /// Trouble with the database; nothing of it is committed, and the same call may be made again.
    async fn process(
        &self,
        queue: &Pool,
        inbound: &[Inbound],
        context: &Context,
    ) -> Result<Vec<Option<Reply>>, StoreError>;

    /// Takes note of a batch that can't be processed, whatever is tried: its events have no effect.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn quarantine(&self, queue: &Pool, batch: &EventBatch, context: &Context)
    -> Result<(), StoreError>;

    /// Makes the next tick, to be published once.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn next_tick(&self, queue: &Pool, context: &Context) -> Result<Tick, StoreError>;

    /// Takes note that the recorder's queue is gone, before it is declared anew for the epoch that this returns.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn queue_is_gone(&self, queue: &Pool, context: &Context) -> Result<u64, StoreError>;

    /// Makes attempts for the jobs of a pool whose turn it is, as many as there is room for and as one call may hold in
    /// memory: between tenants as [`mayfly_dispatch::fairness`] says, among a tenant's own by priority and then by age, and
    /// a job only once every session that takes jobs of its pool has its image
    /// ([`PoolSessions::have`](mayfly_dispatch::waiting::PoolSessions::have)). Each is to be published, and then confirmed
    /// by [`DispatchStore::publications_confirmed`].
    ///
    /// # Errors
    /// Trouble with the database; no attempt is made.
    async fn dispatch(&self, pool: &Pool, context: &Context) -> Result<Vec<DispatchMessage>, StoreError>;

    /// Takes the next publication of the attempts of a pool that the broker seems to have lost. `ready` is the count
    /// of ready messages of the pool's queue.
    ///
    /// # Errors
    /// Trouble with the database; no publication is taken.
    async fn publish_again(
        &self,
        pool: &Pool,
        ready: u64,
        low: &mut LowSince,
        context: &Context,
    ) -> Result<Vec<DispatchMessage>, StoreError>;

    /// Takes note that the broker has confirmed publications, each of an attempt, in one transaction. What is about an
    /// attempt that is not known, has a newer publication, or waits for its start no longer counts for nothing.
    ///
    /// # Errors
    /// Trouble with the database; nothing of it is committed, and the same call may be made again.
    async fn publications_confirmed(
        &self,
        confirmed: &[(AttemptId, u32)],
        context: &Context,
    ) -> Result<(), StoreError>;

    /// Takes note that a publication of an attempt came back as a dead letter. What is to be published now is the next
    /// one; none where the attempt has started, is over, had come back too often, or has a newer publication.
    ///
    /// # Errors
    /// Trouble with the database; nothing is decided, and the same call may be made again.
    async fn dead_lettered(
        &self,
        attempt: AttemptId,
        publication: u32,
        context: &Context,
    ) -> Result<Option<DispatchMessage>, StoreError>;

    /// Ends the jobs of a pool that have waited too long.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn expire(&self, pool: &Pool, context: &Context) -> Result<(), StoreError>;

    /// When the next job of a pool becomes ready, or has waited too long; none where that is now, or never.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn next_due(&self, pool: &Pool, after: ServerTime) -> Result<Option<ServerTime>, StoreError>;

    /// Asks for a job's end. One that has not started is over at once; of one that has, `canceled` is the only outcome
    /// from here on.
    ///
    /// # Errors
    /// [`StoreError::NoSuchJob`], trouble with the database.
    async fn cancel(
        &self,
        tenant: TenantId,
        job: JobId,
        context: &Context,
    ) -> Result<CancelAnswer, StoreError>;

    /// Pools in which something is left that somebody has to end, by name. Jobs of a batch alone don't count: they wait
    /// for whoever resumes it. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn open_pools(&self) -> Result<Vec<OpenPool>, StoreError>;

    /// Ends the jobs of a pool that are of no batch and have not started, since the process that waited for them is
    /// dead, and returns how many. Calling it again ends what is left.
    ///
    /// # Errors
    /// [`StoreError::PoolIsLive`]: what its session has started is not known to be over. Trouble with the database. Some
    /// of the jobs may have ended.
    async fn end_orphans(&self, pool: &Pool, context: &Context) -> Result<u64, StoreError>;

    /// The pools that a batch's jobs which are not over belong to, by name. At most [`MAX_PAGE`].
    ///
    /// # Errors
    /// Trouble with the database.
    async fn batch_pools(&self, tenant: TenantId, batch: BatchId) -> Result<Vec<String>, StoreError>;

    /// Moves a batch's jobs that have not started from one pool, whose process is dead, to another, and returns how many.
    /// Attempts move along, and are published again there as the same. Calling it again moves what is left.
    ///
    /// # Errors
    /// [`StoreError::PoolIsLive`] of the old pool. Trouble with the database. Some of the jobs may have moved.
    async fn adopt(
        &self,
        tenant: TenantId,
        batch: BatchId,
        from: &Pool,
        to: &Pool,
        context: &Context,
    ) -> Result<u64, StoreError>;

    /// Changes with every transaction that this process commits, so that whoever waits for a state need not poll.
    fn commits(&self) -> watch::Receiver<u64>;
}

/// All of a store.
pub trait Store:
    JobStore + DispatchStore + AccountStore + ExecutorStore + LetterStore + BlobStore + SecretStore + UploadStore
{
}

impl<T> Store for T where
    T: JobStore
        + DispatchStore
        + AccountStore
        + ExecutorStore
        + LetterStore
        + BlobStore
        + SecretStore
        + UploadStore
{
}
