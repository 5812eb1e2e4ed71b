//! What has happened since the last look, once.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use mayfly_core::id::TenantId;
use mayfly_dispatch::{fairness::PoolShares, time::ServerTime};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use super::MOST_NEWS;
use crate::{database::query, news::Counts};

/// How long a lane is kept that has no jobs.
const EMPTY_KEPT: TimeDelta = TimeDelta::minutes(10);

/// What the scheduler knows of a pool, up to date.
pub(super) struct Folded {
    pub(super) level: f64,
    pub(super) mean_run: f64,
    pub(super) look_from: Uuid,
    pub(super) read_to: i64,
    pub(super) counts: BTreeMap<TenantId, Counts>,
}

/// Reads the news of a pool, brings its lanes up to date, and says how the counts of its tenants have changed.
pub(super) async fn fold(
    connection: &mut PgConnection,
    pool: &str,
    now: ServerTime,
) -> Result<Folded, StoreError> {
    let rows = sqlx::query!(
        r#"/* fold */
         WITH seen AS MATERIALIZED
              (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, mayfly_news_from($1) AS begins),
              -- The last transaction of those that are read now, where there are more.
              bound AS MATERIALIZED
              (SELECT (SELECT n.made_by FROM pool_news n WHERE n.pool = $1 AND n.made_by >= (SELECT begins FROM seen)
                        ORDER BY n.made_by OFFSET $2 LIMIT 1) AS last),
              gone AS
              (DELETE FROM pool_news n USING seen, bound
                WHERE n.pool = $1 AND n.made_by >= seen.begins
                  AND n.made_by <= coalesce(bound.last, 9223372036854775807)
                RETURNING n.tenant_id, n.rank, n.image_digest, n.first_job, n.queued, n.in_flight, n.started, n.started_ms,
                          n.ended, n.ended_us)
         SELECT least(seen.oldest, bound.last) AS "read_to!", s.level AS "level?", s.mean_run AS "mean_run?",
                s.look_from AS "look_from?", g.tenant_id AS "tenant_id?", g.rank, g.image_digest, g.first_job,
                g.queued AS "queued?", g.in_flight AS "in_flight?", g.started AS "started?", g.started_ms AS "started_ms?",
                g.ended AS "ended?", g.ended_us AS "ended_us?"
           FROM seen CROSS JOIN bound
                LEFT JOIN pool_shares s ON s.pool = $1
                LEFT JOIN gone g ON true"#,
        pool,
        MOST_NEWS
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(query("read what has happened in the pool"))?;
    let new = PoolShares::new(now);
    let mut folded = Folded {
        level: new.level,
        mean_run: new.mean_run,
        look_from: Uuid::nil(),
        read_to: 0,
        counts: BTreeMap::new(),
    };
    let mut lanes: BTreeMap<(Uuid, i32, String), Uuid> = BTreeMap::new();
    for row in rows {
        folded.read_to = row.read_to;
        folded.level = row.level.unwrap_or(folded.level);
        folded.mean_run = row.mean_run.unwrap_or(folded.mean_run);
        folded.look_from = row.look_from.unwrap_or(folded.look_from);
        let Some(tenant) = row.tenant_id else { continue };
        folded
            .counts
            .entry(TenantId::from_uuid(tenant))
            .or_default()
            .add(&Counts {
                queued: row.queued.unwrap_or(0),
                in_flight: row.in_flight.unwrap_or(0),
                started: row.started.unwrap_or(0),
                started_ms: row.started_ms.unwrap_or(0),
                ended: row.ended.unwrap_or(0),
                ended_us: row.ended_us.unwrap_or(0),
            });
        if let (Some(rank), Some(image), Some(job)) = (row.rank, row.image_digest, row.first_job) {
            let first = lanes.entry((tenant, rank, image)).or_insert(job);
            *first = job.min(*first);
        }
    }
    activate(connection, pool, &lanes, now.into()).await?;
    Ok(folded)
}

/// Lanes that jobs have come to.
async fn activate(
    connection: &mut PgConnection,
    pool: &str,
    lanes: &BTreeMap<(Uuid, i32, String), Uuid>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if lanes.is_empty() {
        return Ok(());
    }
    let tenants: Vec<_> = lanes.keys().map(|(tenant, ..)| *tenant).collect();
    let ranks: Vec<_> = lanes.keys().map(|(_, rank, _)| *rank).collect();
    let images: Vec<_> = lanes.keys().map(|(_, _, image)| image.clone()).collect();
    let first_jobs: Vec<_> = lanes.values().copied().collect();
    let made = sqlx::query_scalar!(
        r#"/* activate */
         INSERT INTO lanes AS l (pool, tenant_id, rank, image_digest, first_job, active)
         SELECT $1, u.tenant_id, u.rank, u.image_digest, u.first_job, true
           FROM unnest($2::uuid[], $3::integer[], $4::text[], $5::uuid[]) AS u (tenant_id, rank, image_digest, first_job)
         ON CONFLICT (pool, tenant_id, rank, image_digest) DO UPDATE
            -- One that was empty has nothing before what comes now.
            SET first_job = CASE WHEN l.active THEN least(l.first_job, excluded.first_job) ELSE excluded.first_job END,
                active = true, emptied_at = NULL
          WHERE NOT l.active OR excluded.first_job < l.first_job
         RETURNING l.xmax = 0 AS "made!""#,
        pool,
        &tenants,
        &ranks,
        &images,
        &first_jobs
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(query("note where jobs are ready"))?;
    let made = made.into_iter().filter(|made| *made).count();
    if made == 0 {
        return Ok(());
    }
    // Each that is made removes up to two that have had no jobs for long, so that there are never many of those.
    sqlx::query!(
        "/* activate */
         DELETE FROM lanes
          WHERE ctid = ANY (ARRAY(SELECT ctid FROM lanes WHERE pool = $1 AND NOT active AND emptied_at <= $2 LIMIT $3))",
        pool,
        now - EMPTY_KEPT,
        i64::try_from(made).unwrap_or(i64::MAX).saturating_mul(2)
    )
    .execute(connection)
    .await
    .map_err(query("forget where no jobs are"))?;
    Ok(())
}
