//! Counts that are kept rather than taken: ended jobs of batches, and what waits and has ended in each pool.

use std::collections::BTreeMap;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use mayfly_core::id::{BatchId, JobId, TenantId};
use mayfly_store::error::StoreError;
use sqlx::PgConnection;

use crate::{
    database::{expect_rows, query},
    waiting,
};

/// For how long it is known how many attempts ended in a second.
const ENDS_KEPT: TimeDelta = TimeDelta::seconds(60);

/// Numbers the ends of batches' jobs. The row of the count is held from here to the commit, so that the numbers are in the
/// order of commits and have no gaps.
pub(crate) async fn batch_ends(
    connection: &mut PgConnection,
    ends: &BTreeMap<(TenantId, BatchId), Vec<JobId>>,
) -> Result<(), StoreError> {
    if ends.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut batches, mut positions, mut ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((tenant, batch), jobs) in ends {
        let count = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        let ended = sqlx::query_scalar!(
            "/* batch_ends */
             INSERT INTO batch_counts (tenant_id, batch_id, ended) VALUES ($1, $2, $3)
             ON CONFLICT (tenant_id, batch_id) DO UPDATE SET ended = batch_counts.ended + excluded.ended
             RETURNING ended",
            tenant.as_uuid(),
            batch.as_uuid(),
            count
        );
        let ended = ended.fetch_one(&mut *connection).await;
        let before = ended.map_err(query("count the batch's ended jobs"))? - count;
        for (position, job) in (before + 1..).zip(jobs) {
            tenants.push(tenant.as_uuid());
            batches.push(batch.as_uuid());
            positions.push(position);
            ids.push(job.as_uuid());
        }
    }
    let done = sqlx::query!(
        "/* batch_ends */
         INSERT INTO batch_ends (tenant_id, batch_id, position, job_id)
         SELECT u.tenant_id, u.batch_id, u.position, u.job_id
           FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[]) AS u (tenant_id, batch_id, position, job_id)",
        &tenants,
        &batches,
        &positions,
        &ids
    );
    let done = done.execute(connection).await;
    expect_rows(done, ids.len(), "note the ends of the batch's jobs")
}

/// What a transaction has changed of the pools' counts.
pub(crate) async fn of_pools(
    connection: &mut PgConnection,
    now: DateTime<Utc>,
    counted: &waiting::Counted,
    ends: &BTreeMap<&str, i64>,
) -> Result<(), StoreError> {
    for (pool, count) in &counted.dispatched {
        let done = sqlx::query!(
            "/* counts */
             INSERT INTO pool_dispatches (pool, count) VALUES ($1, $2)
             ON CONFLICT (pool) DO UPDATE SET count = pool_dispatches.count + excluded.count",
            pool,
            count
        );
        expect_rows(
            done.execute(&mut *connection).await,
            1,
            "count what is dispatched",
        )?;
    }
    for (pool, count) in &counted.departed {
        let done = sqlx::query!(
            "/* counts */
             INSERT INTO pool_departures (pool, count) VALUES ($1, $2)
             ON CONFLICT (pool) DO UPDATE SET count = pool_departures.count + excluded.count",
            pool,
            count
        );
        expect_rows(
            done.execute(&mut *connection).await,
            1,
            "count what waits no longer",
        )?;
    }
    let second = now.trunc_subsecs(0);
    for (pool, count) in ends {
        let made = sqlx::query_scalar!(
            r#"/* counts */
             INSERT INTO pool_ends (pool, second, count) VALUES ($1, $2, $3)
             ON CONFLICT (pool, second) DO UPDATE SET count = pool_ends.count + excluded.count
             RETURNING count = $3 AS "made!""#,
            pool,
            second,
            count
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(query("count what has ended"))?;
        if made {
            sqlx::query!(
                "/* counts */ DELETE FROM pool_ends WHERE pool = $1 AND second < $2",
                pool,
                second - ENDS_KEPT
            )
            .execute(&mut *connection)
            .await
            .map_err(query("forget what ended long ago"))?;
        }
    }
    Ok(())
}
