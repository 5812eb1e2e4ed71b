//! What processes leave behind that die: found, ended, taken over.

use std::collections::BTreeMap;

use mayfly_core::id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId};
use mayfly_dispatch::{ledger::Context, orphans, time::ServerTime};
use mayfly_store::{
    error::StoreError,
    records::{OpenPool, OpenSession},
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    changes::one,
    columns::Column,
    database::{Database, query},
    dispatch::{MOST_AT_ONCE, save},
    ledger::Loader,
};

pub(crate) async fn open_pools(database: &Database) -> Result<Vec<OpenPool>, StoreError> {
    // One transaction, so that sessions and jobs are of one moment.
    let mut tx = database.moment().await?;
    let live = sqlx::query!(
        r#"/* open_pools: sessions */
         SELECT pool, session_id AS "session_id!: Uuid", executor_id AS "executor_id!: Uuid", lease_end
           FROM sessions WHERE ended IS NULL
          ORDER BY pool LIMIT ?"#,
        MAX_PAGE
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("find the live sessions"))?;
    let with_jobs = sqlx::query_scalar!(
        "/* open_pools: jobs */
         SELECT DISTINCT pool FROM jobs WHERE batch_id IS NULL AND state <> 'ended' ORDER BY pool LIMIT ?",
        MAX_PAGE
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("find the pools with jobs"))?;
    let mut pools: BTreeMap<String, (Vec<OpenSession>, bool)> = BTreeMap::new();
    for row in live {
        pools.entry(row.pool).or_default().0.push(OpenSession {
            session: SessionId::from_uuid(row.session_id),
            executor: ExecutorId::from_uuid(row.executor_id),
            lease_end: Column("sessions", "lease_end").time(row.lease_end)?,
        });
    }
    for pool in with_jobs {
        pools.entry(pool).or_default().1 = true;
    }
    let most = usize::try_from(MAX_PAGE).unwrap_or(usize::MAX);
    let open = |(pool, (sessions, has_jobs))| OpenPool {
        pool,
        sessions,
        has_jobs,
    };
    Ok(pools.into_iter().take(most).map(open).collect())
}

pub(crate) async fn end(database: &Database, pool: &str, context: &Context) -> Result<u64, StoreError> {
    let mut ended = 0;
    loop {
        let mut write = database.begin().await?;
        refuse_live(&mut write.tx, pool).await?;
        let left = sqlx::query_scalar!(
            r#"/* end */
             SELECT job_id AS "job_id!: Uuid" FROM jobs
              WHERE pool = ?1 AND batch_id IS NULL AND state <> 'ended'
              ORDER BY job_id LIMIT ?2"#,
            pool,
            MOST_AT_ONCE
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("find the jobs that are left"))?;
        let mut loader = Loader::new(&mut write.tx, pool, context.now).await?;
        for job in &left {
            loader.job(JobId::from_uuid(*job)).await?;
        }
        let mut ledger = loader.into_ledger();
        let mut changes = Vec::new();
        for job in &left {
            changes.extend(orphans::end(JobId::from_uuid(*job), &mut ledger, context));
        }
        save(write, pool, &changes, context).await?;
        // Each job that has not started ends by one change. Without a session nothing is started.
        ended += changes.len() as u64;
        if changes.is_empty() || left.len() < at_once() {
            return Ok(ended);
        }
    }
}

pub(crate) async fn batch_pools(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
) -> Result<Vec<String>, StoreError> {
    let (tenant, batch) = (tenant.as_uuid(), batch.as_uuid());
    sqlx::query_scalar!(
        "/* batch_pools */
         SELECT DISTINCT pool FROM jobs
          WHERE tenant_id = ? AND batch_id = ? AND state <> 'ended'
          ORDER BY pool LIMIT ?",
        tenant,
        batch,
        MAX_PAGE
    )
    .fetch_all(&database.read)
    .await
    .map_err(query("find the batch's pools"))
}

pub(crate) async fn adopt(
    database: &Database,
    (tenant, batch): (TenantId, BatchId),
    (from, to): (&str, &str),
    context: &Context,
) -> Result<u64, StoreError> {
    let (tenant, batch) = (tenant.as_uuid(), batch.as_uuid());
    let mut adopted = 0;
    loop {
        let mut write = database.begin().await?;
        refuse_live(&mut write.tx, from).await?;
        let left = sqlx::query_scalar!(
            r#"/* adopt */
             SELECT job_id AS "job_id!: Uuid" FROM jobs
              WHERE tenant_id = ?1 AND batch_id = ?2 AND pool = ?3 AND state <> 'ended'
              ORDER BY job_id LIMIT ?4"#,
            tenant,
            batch,
            from,
            MOST_AT_ONCE
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("find the jobs that are left"))?;
        let mut loader = Loader::new(&mut write.tx, to, context.now).await?;
        for job in &left {
            loader.job(JobId::from_uuid(*job)).await?;
        }
        let mut ledger = loader.into_ledger();
        let mut changes = Vec::new();
        for job in &left {
            changes.extend(orphans::adopt(JobId::from_uuid(*job), to, &mut ledger, context));
        }
        save(write, to, &changes, context).await?;
        adopted += changes.len() as u64;
        if changes.is_empty() || left.len() < at_once() {
            return Ok(adopted);
        }
    }
}

fn at_once() -> usize {
    usize::try_from(MOST_AT_ONCE).unwrap_or(usize::MAX)
}

/// A live session may run what it has started, and start what is dispatched.
async fn refuse_live(connection: &mut SqliteConnection, pool: &str) -> Result<(), StoreError> {
    let live = sqlx::query_scalar!(
        r#"/* refuse_live */ SELECT 1 AS "live!: i64" FROM sessions WHERE pool = ? AND ended IS NULL LIMIT 1"#,
        pool
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the pool's sessions"))?;
    match live {
        Some(_) => Err(StoreError::PoolIsLive(pool.to_owned())),
        None => Ok(()),
    }
}

/// Writes that a job has moved to another pool, and its attempt with it.
pub(crate) async fn adopted(
    connection: &mut SqliteConnection,
    (job, attempt): (JobId, Option<AttemptId>),
    pool: &str,
    published_at: ServerTime,
) -> Result<(), StoreError> {
    let id = job.as_uuid();
    let done = sqlx::query!(
        "/* adopted */
         UPDATE jobs SET pool = ?2 WHERE job_id = ?1 AND state IN ('queued', 'dispatched')",
        id,
        pool
    );
    one(
        done.execute(&mut *connection).await,
        "move the job to another pool",
    )?;
    let Some(attempt) = attempt else { return Ok(()) };
    let (id, at) = (attempt.as_uuid(), published_at.as_micros());
    let done = sqlx::query!(
        "/* adopted */
         UPDATE attempts SET pool = ?2, published_at = ?3, confirmed = 0
          WHERE attempt_id = ?1 AND state = 'dispatched'",
        id,
        pool,
        at
    );
    one(done.execute(connection).await, "move the attempt to another pool")
}
