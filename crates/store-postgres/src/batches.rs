//! Batches: begun, completed, counted.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{BatchId, TenantId},
    state::JobState,
};
use mayfly_store::{
    error::StoreError,
    records::{BatchEnds, BatchJob, BatchRecord, EndMark, NewBatch},
    seam::MAX_PAGE,
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    columns::{Column, job_state},
    database::{Database, expect_rows, query, refused, text},
    jobs::{self, OfBatch},
};

pub(crate) async fn begin(
    database: &Database,
    batch: NewBatch,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(batch.tenant, now).await?;
    let done = sqlx::query!(
        "/* begin */ INSERT INTO batches (tenant_id, batch_id, input, created_at) VALUES ($1, $2, $3, $4)",
        batch.tenant.as_uuid(),
        batch.id.as_uuid(),
        batch.input.as_bytes(),
        now
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, "begin the batch")?;
    write.commit().await
}

pub(crate) async fn complete(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    items: u64,
) -> Result<(), StoreError> {
    let doing = "complete the batch";
    let mut write = database.begin_for_tenants().await?;
    write.act_for(tenant, DateTime::UNIX_EPOCH).await?;
    let row = sqlx::query!(
        "/* complete */
         SELECT items, accepted FROM batches WHERE tenant_id = $1 AND batch_id = $2 FOR NO KEY UPDATE",
        tenant.as_uuid(),
        batch.as_uuid()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("find the batch"))?
    .ok_or(StoreError::NoSuchBatch(batch))?;
    if u64::try_from(row.accepted) != Ok(items) {
        let why = format!("it has {} jobs, not {items}", row.accepted);
        return Err(refused(doing, why));
    }
    if row.items.is_some() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* complete */ UPDATE batches SET items = $3 WHERE tenant_id = $1 AND batch_id = $2",
        tenant.as_uuid(),
        batch.as_uuid(),
        row.accepted
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, doing)?;
    write.commit().await
}

struct Row {
    batch_id: Uuid,
    input: Vec<u8>,
    created_at: DateTime<Utc>,
    items: Option<i64>,
}

pub(crate) async fn find(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
) -> Result<Option<BatchRecord>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let row = sqlx::query_as!(
        Row,
        "/* find */
         SELECT batch_id, input, created_at, items FROM batches WHERE tenant_id = $1 AND batch_id = $2",
        tenant.as_uuid(),
        batch.as_uuid()
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the batch"))?;
    match row {
        Some(row) => record(&mut tx, tenant, row).await.map(Some),
        None => Ok(None),
    }
}

pub(crate) async fn list(
    database: &Database,
    tenant: TenantId,
    before: Option<BatchId>,
    limit: u32,
) -> Result<Vec<BatchRecord>, StoreError> {
    // Without a cursor: before the last id that there can be.
    let before = before.map_or(Uuid::max(), |id| id.as_uuid());
    let mut tx = database.read_as(tenant).await?;
    let rows = sqlx::query_as!(
        Row,
        "/* list */
         SELECT batch_id, input, created_at, items
           FROM batches
          WHERE tenant_id = $1 AND batch_id < $2
          ORDER BY batch_id DESC
          LIMIT $3",
        tenant.as_uuid(),
        before,
        i64::from(limit.min(MAX_PAGE))
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("list the batches"))?;
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        records.push(record(&mut tx, tenant, row).await?);
    }
    Ok(records)
}

/// A batch with its jobs counted. Where they stand is in no index, which every move of theirs would write: this reads the
/// batch's rows.
async fn record(
    connection: &mut PgConnection,
    tenant: TenantId,
    row: Row,
) -> Result<BatchRecord, StoreError> {
    let counts = sqlx::query!(
        r#"/* record */
         SELECT state, end_state, count(*) AS "jobs!" FROM jobs
          WHERE tenant_id = $1 AND batch_id = $2
          GROUP BY state, end_state"#,
        tenant.as_uuid(),
        row.batch_id
    )
    .fetch_all(connection)
    .await
    .map_err(query("count the batch's jobs"))?;
    let column = |name| Column("batches", name);
    let mut record = BatchRecord {
        id: BatchId::from_uuid(row.batch_id),
        tenant,
        input: text(column("input"), row.input)?,
        created_at: row.created_at,
        items: row.items.map(|items| column("items").number(items)).transpose()?,
        waiting: 0,
        running: 0,
        ended: BTreeMap::new(),
    };
    for count in counts {
        let jobs = column("jobs").number(count.jobs)?;
        match job_state(&count.state, count.end_state.as_deref())? {
            JobState::Queued | JobState::Dispatched => record.waiting += jobs,
            JobState::Started | JobState::CancelRequested => record.running += jobs,
            JobState::Ended(end) => *record.ended.entry(end).or_default() += jobs,
        }
    }
    Ok(record)
}

pub(crate) async fn list_jobs(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    after: Option<u64>,
    limit: u32,
) -> Result<Vec<BatchJob>, StoreError> {
    let after = i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX);
    let mut tx = database.read_as(tenant).await?;
    let rows = jobs::list_of_batch(&mut tx, tenant, batch, after, limit.min(MAX_PAGE)).await?;
    rows.into_iter().map(of_batch).collect()
}

fn of_batch((_, position, item, job): OfBatch) -> Result<BatchJob, StoreError> {
    Ok(BatchJob {
        position: Column("jobs", "batch_position").number(position)?,
        item: item.unwrap_or_default(),
        job,
    })
}

pub(crate) async fn list_ends(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    since: Option<EndMark>,
    limit: u32,
) -> Result<BatchEnds, StoreError> {
    let limit = limit.min(MAX_PAGE);
    // One moment, so that no end is committed between the jobs and the mark behind them.
    let mut tx = database.read_as(tenant).await?;
    let rows = match since {
        Some(since) => {
            let since = i64::try_from(since.count()).unwrap_or(i64::MAX);
            jobs::list_ended_of_batch(&mut tx, tenant, batch, since, limit).await?
        }
        None => Vec::new(),
    };
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
    let last = match rows.last() {
        Some((position, ..)) if is_full => *position,
        _ => ended(&mut tx, tenant, batch).await?,
    };
    Ok(BatchEnds {
        jobs: rows.into_iter().map(of_batch).collect::<Result<_, _>>()?,
        upto: EndMark::from_count(Column("batch_counts", "ended").number(last)?),
    })
}

/// How many jobs of a batch have ended.
async fn ended(connection: &mut PgConnection, tenant: TenantId, batch: BatchId) -> Result<i64, StoreError> {
    let ended = sqlx::query_scalar!(
        "/* ended */ SELECT ended FROM batch_counts WHERE tenant_id = $1 AND batch_id = $2",
        tenant.as_uuid(),
        batch.as_uuid()
    );
    let ended = ended.fetch_optional(connection).await;
    Ok(ended.map_err(query("find how many have ended"))?.unwrap_or(0))
}
