//! The Store seam on SQLite: the embedded database of `mayfly run`.
//!
//! Several processes may share the file. What a replicated database can do and this one can't (row-level security,
//! replicas) is refused where it is asked for. Start with [`SqliteStore`]; the module `database` says how reading and writing share
//! the file. Every statement is checked at compile time against the schema of `migrations/sqlite`, by the descriptions
//! in `.sqlx`; CONTRIBUTING says how they are made anew.

mod accounts;
mod audit;
mod batches;
mod blobs;
mod changes;
mod columns;
mod database;
mod dispatch;
mod examine;
mod executors;
mod images;
mod jobs;
mod keys;
mod ledger;
mod letters;
mod lists;
mod orphans;
mod quotas;
mod secrets;
mod shares;
#[cfg(test)]
mod tests;
mod uploads;
mod waiting;

pub use examine::{Examined, examine};

use std::path::Path;

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

use crate::database::Database;

/// A store in a file.
pub struct SqliteStore {
    database: Database,
}

impl SqliteStore {
    /// Opens the file, which is made where it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// A file that can't be opened or is no database, or one that needs a newer program.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            database: Database::open(path).await?,
        })
    }
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn submit(&self, job: NewJob, now: DateTime<Utc>) -> Result<Submitted, StoreError> {
        jobs::submit(&self.database, job, now).await
    }

    async fn submit_many(&self, jobs: Vec<NewJob>, now: DateTime<Utc>) -> Result<Vec<Submitted>, StoreError> {
        batches::submit_many(&self.database, jobs, now).await
    }

    async fn begin_batch(&self, batch: NewBatch, now: DateTime<Utc>) -> Result<(), StoreError> {
        batches::begin(&self.database, batch, now).await
    }

    async fn complete_batch(&self, tenant: TenantId, id: BatchId, items: u64) -> Result<(), StoreError> {
        batches::complete(&self.database, tenant, id, items).await
    }

    async fn find_batch(&self, tenant: TenantId, id: BatchId) -> Result<Option<BatchRecord>, StoreError> {
        batches::find(&self.database, tenant, id).await
    }

    async fn list_batches(
        &self,
        tenant: TenantId,
        before: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRecord>, StoreError> {
        batches::list(&self.database, tenant, before, limit).await
    }

    async fn list_batch_jobs(
        &self,
        tenant: TenantId,
        id: BatchId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<BatchJob>, StoreError> {
        batches::list_jobs(&self.database, tenant, id, after, limit).await
    }

    async fn list_batch_ends(
        &self,
        tenant: TenantId,
        id: BatchId,
        since: Option<EndMark>,
        limit: u32,
    ) -> Result<BatchEnds, StoreError> {
        batches::list_ends(&self.database, tenant, id, since, limit).await
    }

    async fn find_job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        jobs::find(&self.database, tenant, id).await
    }

    async fn find_piece(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
        at: PieceAt,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        blobs::find_piece(&self.database, tenant, attempt, at).await
    }

    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> Result<JobPage, StoreError> {
        lists::list(&self.database, tenant, filter, before, limit).await
    }

    async fn job_standings(&self, tenant: TenantId, ids: &[JobId]) -> Result<Vec<JobStanding>, StoreError> {
        jobs::standings(&self.database, tenant, ids).await
    }

    async fn waiting_for(
        &self,
        tenant: TenantId,
        job: JobId,
        now: DateTime<Utc>,
    ) -> Result<Option<Waiting>, StoreError> {
        waiting::of(&self.database, tenant, job, now).await
    }

    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        audit::list(&self.database.read, tenant, filter, limit).await
    }

    async fn list_fleet_audit(
        &self,
        before: Option<AuditEventId>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        audit::list_of_fleet(&self.database.read, before, limit).await
    }

    async fn pin_image(
        &self,
        name: &str,
        pin: &ImagePin,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        images::pin(&self.database, name, pin, by, now).await
    }

    async fn find_image(&self, name: &str) -> Result<Option<ImageEntry>, StoreError> {
        images::find(&self.database, name).await
    }

    async fn list_images(&self) -> Result<Vec<ImageEntry>, StoreError> {
        images::list(&self.database).await
    }
}

#[async_trait]
impl DispatchStore for SqliteStore {
    async fn process(
        &self,
        queue: &str,
        inbound: &[Inbound],
        context: &Context,
    ) -> Result<Vec<Option<Reply>>, StoreError> {
        dispatch::process(&self.database, queue, inbound, context).await
    }

    async fn quarantine(&self, queue: &str, batch: &EventBatch, context: &Context) -> Result<(), StoreError> {
        dispatch::quarantine(&self.database, queue, batch, context).await
    }

    async fn next_tick(&self, queue: &str, context: &Context) -> Result<Tick, StoreError> {
        dispatch::next_tick(&self.database, queue, context).await
    }

    async fn queue_is_gone(&self, queue: &str, context: &Context) -> Result<u64, StoreError> {
        dispatch::queue_is_gone(&self.database, queue, context).await
    }

    async fn dispatch(&self, pool: &str, context: &Context) -> Result<Vec<DispatchMessage>, StoreError> {
        dispatch::dispatch(&self.database, pool, context).await
    }

    async fn publish_again(
        &self,
        pool: &str,
        ready: u64,
        low: &mut LowSince,
        context: &Context,
    ) -> Result<Vec<DispatchMessage>, StoreError> {
        dispatch::publish_again(&self.database, pool, ready, low, context).await
    }

    async fn publications_confirmed(
        &self,
        confirmed: &[(AttemptId, u32)],
        context: &Context,
    ) -> Result<(), StoreError> {
        dispatch::publications_confirmed(&self.database, confirmed, context).await
    }

    async fn dead_lettered(
        &self,
        attempt: AttemptId,
        publication: u32,
        context: &Context,
    ) -> Result<Option<DispatchMessage>, StoreError> {
        dispatch::dead_lettered(&self.database, (attempt, publication), context).await
    }

    async fn expire(&self, pool: &str, context: &Context) -> Result<(), StoreError> {
        dispatch::expire(&self.database, pool, context).await
    }

    async fn next_due(&self, pool: &str, after: ServerTime) -> Result<Option<ServerTime>, StoreError> {
        dispatch::next_due(&self.database, pool, after).await
    }

    async fn cancel(
        &self,
        tenant: TenantId,
        job: JobId,
        context: &Context,
    ) -> Result<CancelAnswer, StoreError> {
        dispatch::cancel(&self.database, tenant, job, context).await
    }

    async fn open_pools(&self) -> Result<Vec<OpenPool>, StoreError> {
        orphans::open_pools(&self.database).await
    }

    async fn end_orphans(&self, pool: &str, context: &Context) -> Result<u64, StoreError> {
        orphans::end(&self.database, pool, context).await
    }

    async fn batch_pools(&self, tenant: TenantId, batch: BatchId) -> Result<Vec<String>, StoreError> {
        orphans::batch_pools(&self.database, tenant, batch).await
    }

    async fn adopt(
        &self,
        tenant: TenantId,
        batch: BatchId,
        from: &str,
        to: &str,
        context: &Context,
    ) -> Result<u64, StoreError> {
        orphans::adopt(&self.database, (tenant, batch), (from, to), context).await
    }

    fn commits(&self) -> watch::Receiver<u64> {
        self.database.commits.subscribe()
    }
}
