//! Batches: begun, filled, completed, counted.

use std::collections::{BTreeMap, btree_map::Entry};

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{BatchId, JobId, TenantId},
    state::JobState,
};
use mayfly_store::{
    error::StoreError,
    records::{
        BatchEnds, BatchJob, BatchPlace, BatchRecord, EndMark, MAX_ITEM_BYTES, NewBatch, NewJob, Submitted,
    },
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    audit,
    columns::{Column, job_state, micros},
    database::{Database, query},
    jobs, keys,
    quotas::Room,
};

pub(crate) async fn begin(
    database: &Database,
    batch: NewBatch,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut write = database.begin().await?;
    let (id, tenant, at) = (batch.id.as_uuid(), batch.tenant.as_uuid(), micros(now));
    sqlx::query!(
        "/* begin */ INSERT INTO batches (batch_id, tenant_id, input, created_at) VALUES (?, ?, ?, ?)",
        id,
        tenant,
        batch.input,
        at
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("begin the batch"))?;
    write.commit().await
}

pub(crate) async fn submit_many(
    database: &Database,
    jobs: Vec<NewJob>,
    now: DateTime<Utc>,
) -> Result<Vec<Submitted>, StoreError> {
    let doing = "accept the jobs";
    if u32::try_from(jobs.len()).is_ok_and(|count| count > MAX_PAGE) {
        return Err(refused(
            doing,
            format!("{} jobs are more than {MAX_PAGE}", jobs.len()),
        ));
    }
    let mut write = database.begin().await?;
    let (mut places, mut room) = (Places::default(), Room::default());
    let mut all = Vec::with_capacity(jobs.len());
    for job in &jobs {
        if let Some(existing) = keys::find(&mut write.tx, job, now).await? {
            all.push(Submitted::Existing(existing));
            continue;
        }
        let Some(place) = &job.batch else {
            room.take(&mut write.tx, job).await?;
            jobs::accept(&mut write.tx, job, None, now).await?;
            all.push(Submitted::Accepted);
            continue;
        };
        if place.item.is_empty() || place.item.len() > MAX_ITEM_BYTES {
            let why = format!(
                "the name of an item has 1 to {MAX_ITEM_BYTES} bytes, not {}",
                place.item.len()
            );
            return Err(refused(doing, why));
        }
        let next = places.next(&mut write.tx, job.tenant, place.batch).await?;
        if let Some(existing) = find_item(&mut write.tx, place).await? {
            all.push(Submitted::Existing(existing));
            continue;
        }
        room.take(&mut write.tx, job).await?;
        jobs::accept(&mut write.tx, job, Some(*next), now).await?;
        *next += 1;
        all.push(Submitted::Accepted);
    }
    if all.contains(&Submitted::Accepted) {
        write.commit().await?;
    }
    Ok(all)
}

/// The next free place of each batch that a submission is about.
#[derive(Default)]
struct Places(BTreeMap<BatchId, i64>);

impl Places {
    async fn next(
        &mut self,
        connection: &mut SqliteConnection,
        tenant: TenantId,
        batch: BatchId,
    ) -> Result<&mut i64, StoreError> {
        // Jobs of two tenants in one call: each has to have the batch.
        let (id, tenant_id) = (batch.as_uuid(), tenant.as_uuid());
        let found = sqlx::query_scalar!(
            r#"/* next */ SELECT 1 AS "found!: i64" FROM batches WHERE batch_id = ? AND tenant_id = ?"#,
            id,
            tenant_id
        )
        .fetch_optional(&mut *connection)
        .await
        .map_err(query("find the batch"))?;
        if found.is_none() {
            return Err(StoreError::NoSuchBatch(batch));
        }
        match self.0.entry(batch) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let last = sqlx::query_scalar!(
                    r#"/* next */
                     SELECT max(batch_position) AS "last: i64" FROM jobs WHERE batch_id = ?"#,
                    id
                )
                .fetch_one(connection)
                .await
                .map_err(query("find the batch's last job"))?;
                Ok(unknown.insert(last.unwrap_or(0) + 1))
            }
        }
    }
}

async fn find_item(
    connection: &mut SqliteConnection,
    place: &BatchPlace,
) -> Result<Option<JobId>, StoreError> {
    let batch = place.batch.as_uuid();
    let found = sqlx::query_scalar!(
        r#"/* find_item */ SELECT job_id AS "job_id!: Uuid" FROM batch_items WHERE batch_id = ? AND item = ?"#,
        batch,
        place.item
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the item"))?;
    Ok(found.map(JobId::from_uuid))
}

pub(crate) async fn complete(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    items: u64,
) -> Result<(), StoreError> {
    let doing = "complete the batch";
    let mut write = database.begin().await?;
    let (id, tenant_id) = (batch.as_uuid(), tenant.as_uuid());
    let row = sqlx::query!(
        r#"/* complete */
         SELECT items, (SELECT count(*) FROM jobs WHERE tenant_id = ?2 AND batch_id = ?1) AS "accepted!: i64"
           FROM batches WHERE batch_id = ?1 AND tenant_id = ?2"#,
        id,
        tenant_id
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("find the batch"))?
    .ok_or(StoreError::NoSuchBatch(batch))?;
    if u64::try_from(row.accepted) != Ok(items) {
        return Err(refused(
            doing,
            format!("it has {} jobs, not {items}", row.accepted),
        ));
    }
    if row.items.is_some() {
        return Ok(());
    }
    sqlx::query!(
        "/* complete */ UPDATE batches SET items = ? WHERE batch_id = ?",
        row.accepted,
        id
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query(doing))?;
    write.commit().await
}

pub(crate) fn refused(doing: &'static str, why: String) -> StoreError {
    StoreError::Refused {
        doing,
        source: why.into(),
    }
}

struct Row {
    batch_id: Uuid,
    input: String,
    created_at: i64,
    items: Option<i64>,
}

pub(crate) async fn find(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
) -> Result<Option<BatchRecord>, StoreError> {
    let (id, tenant_id) = (batch.as_uuid(), tenant.as_uuid());
    // One transaction, so that the batch and its jobs are of one moment.
    let mut tx = database.moment().await?;
    let row = sqlx::query_as!(
        Row,
        r#"/* find */
         SELECT batch_id AS "batch_id!: Uuid", input, created_at, items
           FROM batches WHERE batch_id = ? AND tenant_id = ?"#,
        id,
        tenant_id
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
    let (tenant_id, limit) = (tenant.as_uuid(), limit.min(MAX_PAGE));
    let mut tx = database.moment().await?;
    let rows = sqlx::query_as!(
        Row,
        r#"/* list */
         SELECT batch_id AS "batch_id!: Uuid", input, created_at, items
           FROM batches
          WHERE tenant_id = ?1 AND batch_id < ?2
          ORDER BY batch_id DESC
          LIMIT ?3"#,
        tenant_id,
        before,
        limit
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

/// A batch with its jobs counted.
async fn record(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    row: Row,
) -> Result<BatchRecord, StoreError> {
    let tenant_id = tenant.as_uuid();
    let counts = sqlx::query!(
        r#"/* record */
         SELECT state, end_state, count(*) AS "jobs!: i64" FROM jobs
          WHERE tenant_id = ? AND batch_id = ?
          GROUP BY state, end_state"#,
        tenant_id,
        row.batch_id
    )
    .fetch_all(connection)
    .await
    .map_err(query("count the batch's jobs"))?;
    let column = |name| Column("batches", name);
    let mut record = BatchRecord {
        id: BatchId::from_uuid(row.batch_id),
        tenant,
        input: row.input,
        created_at: column("created_at").time(row.created_at)?,
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
    let rows = jobs::list_of_batch(database, tenant, batch, after, limit.min(MAX_PAGE)).await?;
    let position = Column("jobs", "batch_position");
    rows.into_iter()
        .map(|(at, item, job)| {
            Ok(BatchJob {
                position: position.number(at)?,
                item: item.unwrap_or_default(),
                job,
            })
        })
        .collect()
}

pub(crate) async fn list_ends(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    since: Option<EndMark>,
    limit: u32,
) -> Result<BatchEnds, StoreError> {
    let limit = limit.min(MAX_PAGE);
    let position = Column("jobs", "batch_position");
    // One transaction, so that no end is committed between the jobs and the mark behind them.
    let mut tx = database.moment().await?;
    let rows = match since {
        Some(since) => {
            let since = i64::try_from(since.count()).unwrap_or(i64::MAX);
            jobs::list_ended_of_batch(&mut tx, tenant, batch, since, limit).await?
        }
        None => Vec::new(),
    };
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
    let last = match rows.last() {
        Some((mark, ..)) if is_full => *mark,
        _ => audit::last_position(&mut tx).await?,
    };
    let jobs = rows.into_iter().map(|(_, at, item, job)| {
        Ok(BatchJob {
            position: position.number(at)?,
            item: item.unwrap_or_default(),
            job,
        })
    });
    Ok(BatchEnds {
        jobs: jobs.collect::<Result<_, StoreError>>()?,
        upto: EndMark::from_count(Column("audit_events", "position").number(last)?),
    })
}
