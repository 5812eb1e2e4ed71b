//! The store of a fleet: PostgreSQL behind the seam of `mayfly-store`.
//!
//! Start with [`PostgresStore`]; [`migrate()`] makes what it opens. Any number of processes may use one database at once. The
//! module `database` says what is demanded of a connection, `ledger` which locks are taken in which order, `changes` how
//! what was decided becomes few statements, and the migrations (`migrations/postgres`) who may do what. Every statement is
//! checked at compile time against that schema, by the descriptions in `.sqlx`; CONTRIBUTING says how they are made anew.
//!
//! Two roles serve: `mayfly_api` sees the rows of one tenant, named in each transaction, and `mayfly_engine` works across
//! tenants on jobs, attempts, sessions and audit events. The owner's own role is used by [`migrate()`] alone.
//!
//! The server's clock decides: what callers say of the time is replaced by it. Absent on purpose: a failover of our own; a
//! connection to a server that takes no writes any more is dropped, and the address leads to the one that does.

mod accounts;
mod audit;
mod batches;
pub mod bench;
mod blobs;
mod changes;
mod columns;
mod commits;
mod counts;
mod database;
mod dispatch;
mod executors;
mod fetches;
mod images;
mod jobs;
mod keys;
mod ledger;
mod letters;
mod lists;
mod migrate;
mod news;
mod orphans;
mod quotas;
mod reasons;
mod results;
mod schedule;
mod secrets;
mod shares;
mod submit;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod together;
mod uploads;
mod waiting;
mod writes;

pub use migrate::{Passwords, migrate};

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
use mayfly_store::{
    blobs::PieceAt,
    error::StoreError,
    records::{
        AuditFilter, AuditRow, BatchEnds, BatchJob, BatchRecord, CancelAnswer, EndMark, ImageEntry,
        JobDetails, JobFilter, JobPage, JobStanding, NewBatch, NewJob, OpenPool, Submitted,
    },
    seam::{DispatchStore, JobStore},
};
use tokio::sync::watch;

use crate::{
    database::{Clock, Database, query},
    together::Together,
};

/// Months for which partitions are made ahead of time.
const MONTHS_AHEAD: i32 = 2;

/// Where the database is, and as whom it is used.
#[derive(Clone)]
pub struct Settings {
    /// As `mayfly_api`, or a member of it: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. `?sslmode=verify-full` and
    /// `sslrootcert=` are understood.
    pub api_url: String,
    /// As `mayfly_engine`, or a member of it.
    pub engine_url: String,
    /// Most connections of each of the two, at least 1. Two more relay commits.
    pub connections: u32,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    database: Database,
    together: Together,
}

impl PostgresStore {
    /// Opens a database that [`migrate()`] has set up. Connections are made when they are needed, and anew when they are
    /// lost.
    ///
    /// # Errors
    /// A server that can't be reached, takes no writes, or forgets commits (`synchronous_commit` off); a database that is
    /// not set up, or needs a newer program; a role that is a superuser, owns tables, passes row-level security by, or
    /// is not the one that it should be.
    pub async fn open(settings: &Settings) -> Result<Self, StoreError> {
        Self::open_by(settings, Clock::Database).await
    }

    pub(crate) async fn open_by(settings: &Settings, clock: Clock) -> Result<Self, StoreError> {
        let store = Self {
            database: Database::open(settings, clock).await?,
            together: Together::default(),
        };
        store.make_partitions().await?;
        Ok(store)
    }

    /// Where it is, without credentials.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.database.place
    }

    /// Makes the partitions of the audit log for this month and the next ones, and returns how many. To be called once a
    /// day; an event that no partition was made for is kept too.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn make_partitions(&self) -> Result<u32, StoreError> {
        let made = sqlx::query_scalar!(
            r#"/* make_partitions */ SELECT mayfly_make_partitions($1) AS "made!""#,
            MONTHS_AHEAD
        )
        .fetch_one(&self.database.engine)
        .await
        .map_err(query("make partitions"))?;
        Ok(u32::try_from(made).unwrap_or(0))
    }

    /// Tells other processes of what is committed here, and has [`DispatchStore::commits`] change with what they commit.
    /// Runs until it is dropped; trouble is logged and ends nothing. Without it a store notices its own commits alone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it; the next call goes on.
    pub async fn relay_commits(&self) {
        commits::relay(&self.database).await;
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn submit(&self, job: NewJob, now: DateTime<Utc>) -> Result<Submitted, StoreError> {
        self.database
            .call("accept the job", self.together.submit(&self.database, job, now))
            .await
    }

    async fn submit_many(&self, jobs: Vec<NewJob>, now: DateTime<Utc>) -> Result<Vec<Submitted>, StoreError> {
        self.database
            .call("accept the jobs", submit::submit_many(&self.database, jobs, now))
            .await
    }

    async fn begin_batch(&self, batch: NewBatch, now: DateTime<Utc>) -> Result<(), StoreError> {
        self.database
            .call("begin the batch", batches::begin(&self.database, batch, now))
            .await
    }

    async fn complete_batch(&self, tenant: TenantId, id: BatchId, items: u64) -> Result<(), StoreError> {
        self.database
            .call(
                "complete the batch",
                batches::complete(&self.database, tenant, id, items),
            )
            .await
    }

    async fn find_batch(&self, tenant: TenantId, id: BatchId) -> Result<Option<BatchRecord>, StoreError> {
        self.database
            .call("find the batch", batches::find(&self.database, tenant, id))
            .await
    }

    async fn list_batches(
        &self,
        tenant: TenantId,
        before: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRecord>, StoreError> {
        self.database
            .call(
                "list the batches",
                batches::list(&self.database, tenant, before, limit),
            )
            .await
    }

    async fn list_batch_jobs(
        &self,
        tenant: TenantId,
        id: BatchId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<BatchJob>, StoreError> {
        self.database
            .call(
                "list the batch's jobs",
                batches::list_jobs(&self.database, tenant, id, after, limit),
            )
            .await
    }

    async fn list_batch_ends(
        &self,
        tenant: TenantId,
        id: BatchId,
        since: Option<EndMark>,
        limit: u32,
    ) -> Result<BatchEnds, StoreError> {
        self.database
            .call(
                "list the batch's ended jobs",
                batches::list_ends(&self.database, tenant, id, since, limit),
            )
            .await
    }

    async fn find_job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        self.database
            .call("find the job", jobs::find(&self.database, tenant, id))
            .await
    }

    async fn find_piece(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
        at: PieceAt,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let call = blobs::find_piece(&self.database, tenant, attempt, at);
        self.database.call("find a piece of a file", call).await
    }

    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, StoreError> {
        let call = lists::list(&self.database, tenant, filter, before, limit);
        self.database.call("list the jobs", call).await
    }

    async fn job_standings(&self, tenant: TenantId, ids: &[JobId]) -> Result<Vec<JobStanding>, StoreError> {
        self.database
            .call(
                "look how the jobs stand",
                jobs::standings(&self.database, tenant, ids),
            )
            .await
    }

    async fn waiting_for(
        &self,
        tenant: TenantId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> Result<Option<Waiting>, StoreError> {
        let call = reasons::of(&self.database, tenant, job, now);
        self.database.call("look why the job waits", call).await
    }

    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.database
            .call(
                "list audit events",
                audit::list(&self.database, tenant, filter, limit),
            )
            .await
    }

    async fn list_fleet_audit(
        &self,
        before: Option<AuditEventId>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let call = audit::list_of_fleet(&self.database, before, limit);
        self.database.call("list the fleet's audit events", call).await
    }

    async fn pin_image(
        &self,
        name: &str,
        pin: &ImagePin,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        self.database
            .call("pin the image", images::pin(&self.database, name, pin, by, now))
            .await
    }

    async fn find_image(&self, name: &str) -> Result<Option<ImageEntry>, StoreError> {
        self.database
            .call("find the image", images::find(&self.database, name))
            .await
    }

    async fn list_images(&self) -> Result<Vec<ImageEntry>, StoreError> {
        self.database
            .call("list the images", images::list(&self.database))
            .await
    }
}

#[async_trait]
impl DispatchStore for PostgresStore {
    async fn process(
        &self,
        queue: &str,
        inbound: &[Inbound],
        context: &Context,
    ) -> Result<Vec<Option<Reply>>, StoreError> {
        self.database
            .call(
                "process events",
                dispatch::process(&self.database, queue, inbound, context),
            )
            .await
    }

    async fn quarantine(&self, queue: &str, batch: &EventBatch, context: &Context) -> Result<(), StoreError> {
        self.database
            .call(
                "quarantine a batch",
                dispatch::quarantine(&self.database, queue, batch, context),
            )
            .await
    }

    async fn next_tick(&self, queue: &str, context: &Context) -> Result<Tick, StoreError> {
        self.database
            .call("make a tick", dispatch::next_tick(&self.database, queue, context))
            .await
    }

    async fn queue_is_gone(&self, queue: &str, context: &Context) -> Result<u64, StoreError> {
        self.database
            .call(
                "note that the queue is gone",
                dispatch::queue_is_gone(&self.database, queue, context),
            )
            .await
    }

    async fn dispatch(&self, pool: &str, context: &Context) -> Result<Vec<DispatchMessage>, StoreError> {
        self.database
            .call("dispatch jobs", schedule::dispatch(&self.database, pool, context))
            .await
    }

    async fn publish_again(
        &self,
        pool: &str,
        ready: u64,
        low: &mut LowSince,
        context: &Context,
    ) -> Result<Vec<DispatchMessage>, StoreError> {
        self.database
            .call(
                "publish attempts again",
                schedule::publish_again(&self.database, pool, ready, low, context),
            )
            .await
    }

    async fn publications_confirmed(
        &self,
        confirmed: &[(AttemptId, u32)],
        context: &Context,
    ) -> Result<(), StoreError> {
        self.database
            .call(
                "note confirms",
                dispatch::publications_confirmed(&self.database, confirmed, context),
            )
            .await
    }

    async fn dead_lettered(
        &self,
        attempt: AttemptId,
        publication: u32,
        context: &Context,
    ) -> Result<Option<DispatchMessage>, StoreError> {
        self.database
            .call(
                "note a dead letter",
                dispatch::dead_lettered(&self.database, (attempt, publication), context),
            )
            .await
    }

    async fn expire(&self, pool: &str, context: &Context) -> Result<(), StoreError> {
        self.database
            .call(
                "end what has waited too long",
                dispatch::expire(&self.database, pool, context),
            )
            .await
    }

    async fn next_due(&self, pool: &str, after: ServerTime) -> Result<Option<ServerTime>, StoreError> {
        self.database
            .call(
                "find what is due next",
                schedule::next_due(&self.database, pool, after),
            )
            .await
    }

    async fn cancel(
        &self,
        tenant: TenantId,
        job: JobId,
        context: &Context,
    ) -> Result<CancelAnswer, StoreError> {
        self.database
            .call(
                "cancel the job",
                dispatch::cancel(&self.database, tenant, job, context),
            )
            .await
    }

    async fn open_pools(&self) -> Result<Vec<OpenPool>, StoreError> {
        self.database
            .call("find open pools", orphans::open_pools(&self.database))
            .await
    }

    async fn end_orphans(&self, pool: &str, context: &Context) -> Result<u64, StoreError> {
        self.database
            .call(
                "end what is left behind",
                orphans::end(&self.database, pool, context),
            )
            .await
    }

    async fn batch_pools(&self, tenant: TenantId, batch: BatchId) -> Result<Vec<String>, StoreError> {
        self.database
            .call(
                "find the batch's pools",
                orphans::batch_pools(&self.database, tenant, batch),
            )
            .await
    }

    async fn adopt(
        &self,
        tenant: TenantId,
        batch: BatchId,
        from: &str,
        to: &str,
        context: &Context,
    ) -> Result<u64, StoreError> {
        self.database
            .call(
                "take over a batch",
                orphans::adopt(&self.database, (tenant, batch), (from, to), context),
            )
            .await
    }

    fn commits(&self) -> watch::Receiver<u64> {
        self.database.commits.subscribe()
    }
}
