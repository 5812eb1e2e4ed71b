//! Why a job waits.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::{
    time::ServerTime,
    waiting::{self, MOST_AHEAD, Quota, Waiting, WaitingRecord},
};
use mayfly_store::error::StoreError;
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    columns::{Column, job_state},
    database::{Database, query},
    shares::{self, Lane},
};

pub(crate) async fn of(
    database: &Database,
    tenant: TenantId,
    job: JobId,
    now: DateTime<Utc>,
) -> Result<Option<Waiting>, StoreError> {
    let mut tx = database.moment().await?;
    let (id, tenant_id) = (job.as_uuid(), tenant.as_uuid());
    let row = sqlx::query!(
        "/* of */
         SELECT pool, state, end_state, attempts, ready_at, image_digest, priority
           FROM jobs WHERE job_id = ? AND tenant_id = ?",
        id,
        tenant_id
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the job"))?
    .ok_or(StoreError::NoSuchJob(job))?;
    let column = |name| Column("jobs", name);
    let lanes = shares::lanes(&mut tx, &row.pool, &[]).await?;
    let (own, others): (Vec<_>, Vec<_>) = lanes.into_iter().partition(|lane| lane.tenant == tenant);
    let mut ahead = 0;
    for lane in &own {
        ahead += ahead_in(&mut tx, &row.pool, lane, (row.priority, id)).await?;
    }
    let mut others: Vec<TenantId> = others.into_iter().map(|lane| lane.tenant).collect();
    others.dedup();
    let record = WaitingRecord {
        state: job_state(&row.state, row.end_state.as_deref())?,
        attempts: column("attempts").count(row.attempts)?,
        ready_at: ServerTime::from_micros(row.ready_at),
        image: column("image_digest").parse(&row.image_digest)?,
        sessions: shares::sessions(&mut tx, &row.pool).await?,
        quota: quota(&mut tx, &row.pool, tenant, now.into()).await?,
        ahead: ahead.min(MOST_AHEAD),
        other_tenants: others.len() as u64,
    };
    Ok(waiting::waiting(&record, now.into()))
}

/// What a tenant has in flight of a pool, where there is a bound of it.
async fn quota(
    connection: &mut SqliteConnection,
    pool: &str,
    tenant: TenantId,
    now: ServerTime,
) -> Result<Option<Quota>, StoreError> {
    let id = tenant.as_uuid();
    let most = sqlx::query_scalar!(
        r#"/* quota */
         SELECT most_in_flight AS "most!: i64" FROM tenants WHERE tenant_id = ? AND most_in_flight IS NOT NULL"#,
        id
    )
    .fetch_optional(&mut *connection)
    .await
    .map_err(query("find the tenant's quota"))?;
    let Some(most) = most else { return Ok(None) };
    let mut loads = BTreeMap::new();
    shares::add_in_flight(connection, pool, now, &mut loads).await?;
    Ok(Some(Quota {
        in_flight: loads.get(&tenant).map_or(0, |load| load.in_flight),
        most: Column("tenants", "most_in_flight").number(most)?,
    }))
}

/// How many jobs of a lane go before one of its tenant's, counted up to a bound.
async fn ahead_in(
    connection: &mut SqliteConnection,
    pool: &str,
    lane: &Lane,
    (priority, job): (i64, Uuid),
) -> Result<u64, StoreError> {
    let (tenant, image) = (lane.tenant.as_uuid(), &lane.image);
    let most = i64::try_from(MOST_AHEAD).unwrap_or(i64::MAX);
    let ahead = sqlx::query_scalar!(
        r#"/* ahead_in */
         SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs
                  WHERE pool = ?1 AND tenant_id = ?2 AND image_digest = ?3 AND state = 'queued' AND ready = 1
                    AND priority > ?4 LIMIT ?6))
              + (SELECT count(*) FROM (SELECT 1 FROM jobs
                  WHERE pool = ?1 AND tenant_id = ?2 AND image_digest = ?3 AND state = 'queued' AND ready = 1
                    AND priority = ?4 AND job_id < ?5 LIMIT ?6)) AS "ahead!: i64""#,
        pool,
        tenant,
        image,
        priority,
        job,
        most
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the jobs that go first"))?;
    Column("jobs", "priority").number(ahead)
}
