//! Why a job waits. How a pool stands is known across tenants alone, so that the engine's role looks; the job is looked for
//! as its tenant's, and of others no more than their number comes out.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::{
    time::ServerTime,
    waiting::{self, MOST_AHEAD, Quota, Waiting, WaitingRecord},
};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{
    columns::{Column, job_state},
    database::{Database, ONE_MOMENT, begin, query},
    shares::{self, MOST_NEWS},
    waiting::rank,
};

/// Most lanes of other tenants that are looked at.
const MOST_OTHERS: i64 = 5000;

pub(crate) async fn of(
    database: &Database,
    tenant: TenantId,
    job: JobId,
    now: DateTime<Utc>,
) -> Result<Option<Waiting>, StoreError> {
    let mut tx = begin(&database.engine, Some(ONE_MOMENT), "begin to read").await?;
    let row = sqlx::query!(
        r#"/* waiting_for */
         SELECT pool, state, end_state, attempts, ready_at, image_digest, priority, clock_timestamp() AS "now!"
           FROM jobs WHERE tenant_id = $1 AND job_id = $2"#,
        tenant.as_uuid(),
        job.as_uuid()
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the job"))?
    // Another tenant's job is not there.
    .ok_or(StoreError::NoSuchJob(job))?;
    let column = |name| Column("jobs", name);
    let rank = rank(row.priority);
    let lanes = own_lanes(&mut tx, &row.pool, tenant, rank).await?;
    let record = WaitingRecord {
        state: job_state(&row.state, row.end_state.as_deref())?,
        attempts: column("attempts").count(row.attempts)?,
        ready_at: row.ready_at.into(),
        image: column("image_digest").parse(&row.image_digest)?,
        sessions: shares::sessions(&mut tx, &row.pool).await?,
        quota: quota(&mut tx, &row.pool, tenant).await?,
        ahead: ahead(&mut tx, (&row.pool, tenant), (rank, job), &lanes).await?,
        other_tenants: others(&mut tx, &row.pool, tenant).await?,
    };
    let now = ServerTime::from(database.now(row.now, now));
    Ok(waiting::waiting(&record, now))
}

/// A tenant's lanes up to a rank, each with its first job: those that the scheduler knows, and those that it has news of.
async fn own_lanes(
    connection: &mut PgConnection,
    pool: &str,
    tenant: TenantId,
    rank: i32,
) -> Result<BTreeMap<(i32, String), Uuid>, StoreError> {
    let rows = sqlx::query!(
        r#"/* own_lanes */
         SELECT rank AS "rank!", image_digest AS "image!", first_job AS "first_job!"
           FROM lanes WHERE pool = $1 AND tenant_id = $2 AND rank <= $3 AND active
         UNION ALL
         SELECT n.rank, n.image_digest, n.first_job
           FROM (SELECT tenant_id, rank, image_digest, first_job
                   FROM pool_news WHERE pool = $1 AND made_by >= mayfly_news_from($1) ORDER BY made_by LIMIT $4) n
          WHERE n.tenant_id = $2 AND n.rank <= $3"#,
        pool,
        tenant.as_uuid(),
        rank,
        MOST_NEWS
    )
    .fetch_all(connection)
    .await
    .map_err(query("find where the tenant's jobs are ready"))?;
    let mut lanes = BTreeMap::new();
    for row in rows {
        let first = lanes.entry((row.rank, row.image)).or_insert(row.first_job);
        *first = row.first_job.min(*first);
    }
    Ok(lanes)
}

/// What a tenant has in flight of a pool, where there is a bound of it.
async fn quota(
    connection: &mut PgConnection,
    pool: &str,
    tenant: TenantId,
) -> Result<Option<Quota>, StoreError> {
    let row = sqlx::query!(
        r#"/* quota */
         SELECT t.most_in_flight AS "most!",
                coalesce((SELECT in_flight FROM tenant_shares WHERE pool = $1 AND tenant_id = $2), 0)
                    + coalesce((SELECT sum(n.in_flight)::bigint
                                  FROM (SELECT tenant_id, in_flight FROM pool_news
                                         WHERE pool = $1 AND made_by >= mayfly_news_from($1) ORDER BY made_by LIMIT $3) n
                                 WHERE n.tenant_id = $2), 0) AS "in_flight!"
           FROM tenants t WHERE t.tenant_id = $2 AND t.most_in_flight IS NOT NULL"#,
        pool,
        tenant.as_uuid(),
        MOST_NEWS
    )
    .fetch_optional(connection)
    .await
    .map_err(query("count what the tenant has in flight"))?;
    row.map(|row| {
        Ok(Quota {
            in_flight: u64::try_from(row.in_flight).unwrap_or(0),
            most: Column("tenants", "most_in_flight").number(row.most)?,
        })
    })
    .transpose()
}

/// How many of a tenant's jobs go before one of them, counted up to a bound.
async fn ahead(
    connection: &mut PgConnection,
    (pool, tenant): (&str, TenantId),
    (rank, job): (i32, JobId),
    lanes: &BTreeMap<(i32, String), Uuid>,
) -> Result<u64, StoreError> {
    let (mut ranks, mut images, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((of, image), first) in lanes {
        ranks.push(*of);
        images.push(image.clone());
        from.push(*first);
        to.push(if *of == rank { job.as_uuid() } else { Uuid::max() });
    }
    let most = i64::try_from(MOST_AHEAD).unwrap_or(i64::MAX);
    let ahead = sqlx::query_scalar!(
        r#"/* ahead */
         SELECT count(*) AS "ahead!"
           FROM (SELECT 1
                   FROM unnest($3::integer[], $4::text[], $5::uuid[], $6::uuid[]) AS u (rank, image_digest, from_job, to_job)
                        CROSS JOIN LATERAL
                        (SELECT 1 FROM ready_jobs
                          WHERE pool = $1 AND tenant_id = $2 AND rank = u.rank AND image_digest = u.image_digest
                            AND job_id >= u.from_job AND job_id < u.to_job
                          LIMIT $7) r
                  LIMIT $7) r"#,
        pool,
        tenant.as_uuid(),
        &ranks,
        &images,
        &from,
        &to,
        most
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the jobs that go first"))?;
    Column("ready_jobs", "rank").number(ahead)
}

/// How many other tenants have jobs that are ready.
async fn others(connection: &mut PgConnection, pool: &str, tenant: TenantId) -> Result<u64, StoreError> {
    let others = sqlx::query_scalar!(
        r#"/* others */
         SELECT count(*) AS "others!"
           FROM (SELECT l.tenant_id
                   FROM (SELECT tenant_id, active FROM lanes WHERE pool = $1 ORDER BY tenant_id LIMIT $4) l
                  WHERE l.active AND l.tenant_id <> $2
                 UNION
                 SELECT n.tenant_id
                   FROM (SELECT tenant_id, rank FROM pool_news
                          WHERE pool = $1 AND made_by >= mayfly_news_from($1) ORDER BY made_by LIMIT $3) n
                  WHERE n.rank IS NOT NULL AND n.tenant_id <> $2) o"#,
        pool,
        tenant.as_uuid(),
        MOST_NEWS,
        MOST_OTHERS
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the other tenants"))?;
    Column("lanes", "tenant_id").number(others)
}
