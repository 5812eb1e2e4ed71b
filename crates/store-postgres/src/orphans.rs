//! What processes leave behind that die: found, ended, taken over.

use std::collections::BTreeMap;

use mayfly_core::id::{BatchId, ExecutorId, JobId, SessionId, TenantId};
use mayfly_dispatch::{ledger::Context, orphans};
use mayfly_store::{
    error::StoreError,
    records::{OpenPool, OpenSession},
    seam::MAX_PAGE,
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    database::{Database, ONE_MOMENT, Turn, Write, begin, query},
    dispatch::{ids, load_jobs, save},
    schedule::MOST_AT_ONCE,
};

pub(crate) async fn open_pools(database: &Database) -> Result<Vec<OpenPool>, StoreError> {
    let mut tx = begin(&database.engine, Some(ONE_MOMENT), "begin to read").await?;
    let live = sqlx::query!(
        "/* open_pools: sessions */
         SELECT pool, session_id, executor_id, lease_end FROM sessions WHERE ended IS NULL ORDER BY pool LIMIT $1",
        i64::from(MAX_PAGE)
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("find the live sessions"))?;
    let with_jobs = sqlx::query_scalar!(
        r#"/* open_pools: jobs */
         SELECT DISTINCT w.pool AS "pool!"
           FROM (SELECT pool, tenant_id, job_id FROM ready_jobs
                 UNION ALL SELECT pool, tenant_id, job_id FROM delayed_jobs
                 UNION ALL SELECT pool, tenant_id, job_id FROM unstarted_attempts
                 UNION ALL SELECT a.pool, a.tenant_id, a.job_id
                             FROM sessions s, unnest(s.held) h (attempt_id), attempts a
                            WHERE s.ended IS NULL AND a.attempt_id = h.attempt_id) w
                JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id
          WHERE j.batch_id IS NULL
          ORDER BY 1 LIMIT $1"#,
        i64::from(MAX_PAGE)
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("find the pools with jobs"))?;
    let mut pools: BTreeMap<String, (Vec<OpenSession>, bool)> = BTreeMap::new();
    for row in live {
        pools.entry(row.pool).or_default().0.push(OpenSession {
            session: SessionId::from_uuid(row.session_id),
            executor: ExecutorId::from_uuid(row.executor_id),
            lease_end: row.lease_end,
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
        // What its sessions say is processed before or after this.
        write.turn(Turn::Recorder(pool), context).await?;
        refuse_live(&mut write.tx, pool).await?;
        let left = sqlx::query_scalar!(
            r#"/* end */
             SELECT w.job_id AS "job_id!"
               FROM (SELECT tenant_id, job_id FROM ready_jobs WHERE pool = $1
                     UNION ALL SELECT tenant_id, job_id FROM delayed_jobs WHERE pool = $1
                     UNION ALL SELECT tenant_id, job_id FROM unstarted_attempts WHERE pool = $1) w
                    JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id
              WHERE j.batch_id IS NULL
              LIMIT $2"#,
            pool,
            MOST_AT_ONCE
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("find the jobs that are left"))?;
        let (loaded, context) = load_jobs(&mut write, ids(&left), context).await?;
        let mut ledger = loaded.ledger.clone();
        let mut changes = Vec::new();
        for job in sorted(left.clone()) {
            changes.extend(orphans::end(job, &mut ledger, &context));
        }
        save(write, pool, (&loaded, &ledger), &changes, &context).await?;
        // Each job that has not started ends by one change. Without a session nothing is started.
        ended += changes.len() as u64;
        if changes.is_empty() || left.len() < at_once() {
            return Ok(ended);
        }
    }
}

fn sorted(mut jobs: Vec<Uuid>) -> impl Iterator<Item = JobId> {
    jobs.sort_unstable();
    jobs.into_iter().map(JobId::from_uuid)
}

pub(crate) async fn batch_pools(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar!(
        "/* batch_pools */
         SELECT DISTINCT pool FROM jobs
          WHERE tenant_id = $1 AND batch_id = $2 AND state <> 'ended'
          ORDER BY pool LIMIT $3",
        tenant.as_uuid(),
        batch.as_uuid(),
        i64::from(MAX_PAGE)
    )
    .fetch_all(&database.engine)
    .await
    .map_err(query("find the batch's pools"))
}

pub(crate) async fn adopt(
    database: &Database,
    (tenant, batch): (TenantId, BatchId),
    (from, to): (&str, &str),
    context: &Context,
) -> Result<u64, StoreError> {
    let (mut adopted, mut after) = (0, 0_i64);
    loop {
        let mut write = database.begin().await?;
        write.turn(Turn::Recorder(from), context).await?;
        refuse_live(&mut write.tx, from).await?;
        let left = left_in(&mut write, (tenant, batch), from, after).await?;
        let jobs = left.iter().map(|(job, _)| *job);
        let (loaded, context) = load_jobs(&mut write, jobs, context).await?;
        let mut ledger = loaded.ledger.clone();
        let mut changes = Vec::new();
        for (job, _) in &left {
            // One that another process has moved or ended meanwhile is none of this pool's any more.
            if loaded.jobs.get(job).is_some_and(|row| row.pool == from) {
                changes.extend(orphans::adopt(*job, to, &mut ledger, &context));
            }
        }
        save(write, to, (&loaded, &ledger), &changes, &context).await?;
        adopted += changes.len() as u64;
        if left.len() < at_once() {
            return Ok(adopted);
        }
        after = left.last().map_or(after, |(_, position)| *position);
    }
}

/// Jobs of a batch that are not over, of a pool, behind a place.
async fn left_in(
    write: &mut Write<'_>,
    (tenant, batch): (TenantId, BatchId),
    pool: &str,
    after: i64,
) -> Result<Vec<(JobId, i64)>, StoreError> {
    let rows = sqlx::query!(
        r#"/* left_in */
         SELECT job_id, batch_position AS "position!" FROM jobs
          WHERE tenant_id = $1 AND batch_id = $2 AND batch_position > $3 AND pool = $4 AND state <> 'ended'
          ORDER BY batch_position LIMIT $5"#,
        tenant.as_uuid(),
        batch.as_uuid(),
        after,
        pool,
        MOST_AT_ONCE
    )
    .fetch_all(&mut *write.tx)
    .await
    .map_err(query("find the jobs that are left"))?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| (JobId::from_uuid(row.job_id), row.position))
        .collect())
}

fn at_once() -> usize {
    usize::try_from(MOST_AT_ONCE).unwrap_or(usize::MAX)
}

/// A live session may run what it has started, and start what is dispatched.
async fn refuse_live(connection: &mut PgConnection, pool: &str) -> Result<(), StoreError> {
    let live = sqlx::query_scalar!(
        r#"/* refuse_live */ SELECT EXISTS (SELECT 1 FROM sessions WHERE pool = $1 AND ended IS NULL) AS "live!""#,
        pool
    )
    .fetch_one(connection)
    .await
    .map_err(query("find the pool's sessions"))?;
    if live {
        return Err(StoreError::PoolIsLive(pool.to_owned()));
    }
    Ok(())
}
