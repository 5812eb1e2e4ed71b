//! Jobs being accepted: rows and events of all of them in one transaction, one tenant after the other.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::{Fact, Submitted as SubmittedFact, SubmittedIn},
    digest::Digest,
    id::{BatchId, JobId, TenantId},
};
use mayfly_store::{
    error::StoreError,
    records::{MAX_ITEM_BYTES, NewJob, Submitted},
    seam::MAX_PAGE,
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    audit::Events,
    columns::json,
    database::{Database, expect_rows, query, refused},
    fetches, keys, lists,
    news::News,
    quotas,
    waiting::{Waiting, rank},
};

const DOING: &str = "accept the jobs";

pub(crate) async fn submit(
    database: &Database,
    job: NewJob,
    now: DateTime<Utc>,
) -> Result<Submitted, StoreError> {
    let answers = submit_many(database, vec![job], now).await?;
    Ok(answers.first().copied().unwrap_or(Submitted::Accepted))
}

pub(crate) async fn submit_many(
    database: &Database,
    jobs: Vec<NewJob>,
    now: DateTime<Utc>,
) -> Result<Vec<Submitted>, StoreError> {
    if u32::try_from(jobs.len()).is_ok_and(|count| count > MAX_PAGE) {
        let why = format!("{} jobs are more than {MAX_PAGE}", jobs.len());
        return Err(refused(DOING, why));
    }
    for place in jobs.iter().filter_map(|job| job.batch.as_ref()) {
        if place.item.is_empty() || place.item.len() > MAX_ITEM_BYTES {
            let why = format!(
                "the name of an item has 1 to {MAX_ITEM_BYTES} bytes, not {}",
                place.item.len()
            );
            return Err(refused(DOING, why));
        }
    }
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    // In the order of tenants, so that two calls that are about the same ones never wait for each other.
    let mut by_tenant: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
    for (index, job) in jobs.iter().enumerate() {
        by_tenant.entry(job.tenant).or_default().push(index);
    }
    let mut answers = vec![Submitted::Accepted; jobs.len()];
    let mut write = database.begin_for_tenants().await?;
    for (tenant, indexes) in by_tenant {
        let now = write.act_for(tenant, now).await?;
        let own: Vec<_> = indexes.iter().map(|index| &jobs[*index]).collect();
        let keys = keys::keep(&mut write.tx, tenant, &own, now).await?;
        let (mut fresh, mut fresh_indexes) = (Vec::new(), Vec::new());
        for (index, job) in indexes.into_iter().zip(own) {
            match keys.find(job) {
                Some(existing) => answers[index] = Submitted::Existing(existing),
                None => {
                    fresh.push(job);
                    fresh_indexes.push(index);
                }
            }
        }
        let places = places(&mut write.tx, tenant, &fresh).await?;
        let (mut accepted, mut taken) = (Vec::new(), Vec::new());
        for ((index, job), place) in fresh_indexes.into_iter().zip(fresh).zip(places) {
            match place {
                Place::Taken(existing) => {
                    answers[index] = Submitted::Existing(existing);
                    taken.push(job);
                }
                Place::Free(position) => accepted.push((job, position)),
            }
        }
        keys::give_back(&mut write.tx, tenant, &taken).await?;
        quotas::check(&mut write.tx, tenant, accepted.iter().map(|(job, _)| *job)).await?;
        accept(&mut write.tx, tenant, &accepted, now).await?;
    }
    if answers.contains(&Submitted::Accepted) {
        write.commit().await?;
    }
    Ok(answers)
}

/// Where a job comes to stand.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Its item was accepted before.
    Taken(JobId),
    /// At this place in its batch, where it has one.
    Free(Option<i64>),
}

/// The places of a tenant's jobs, with their batches locked, so that places have no gaps and items are accepted once.
async fn places(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[&NewJob],
) -> Result<Vec<Place>, StoreError> {
    let wanted: Vec<_> = jobs.iter().filter_map(|job| job.batch.as_ref()).collect();
    if wanted.is_empty() {
        return Ok(vec![Place::Free(None); jobs.len()]);
    }
    let mut last = lock(connection, tenant, wanted.iter().map(|place| place.batch)).await?;
    let (mut batches, mut items) = (Vec::new(), Vec::new());
    for place in &wanted {
        if !last.contains_key(&place.batch) {
            return Err(StoreError::NoSuchBatch(place.batch));
        }
        batches.push(place.batch.as_uuid());
        items.push(place.item.as_bytes());
    }
    let known = sqlx::query!(
        "/* places */
         SELECT i.batch_id, i.item, i.job_id
           FROM unnest($2::uuid[], $3::bytea[]) AS u (batch_id, item)
                JOIN batch_items i ON i.tenant_id = $1 AND i.batch_id = u.batch_id AND i.item = u.item",
        tenant.as_uuid(),
        &batches,
        &items as &[&[u8]]
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(query("find the items"))?;
    let mut known: BTreeMap<(BatchId, Vec<u8>), JobId> = known
        .into_iter()
        .map(|row| {
            (
                (BatchId::from_uuid(row.batch_id), row.item),
                JobId::from_uuid(row.job_id),
            )
        })
        .collect();
    let mut places = Vec::with_capacity(jobs.len());
    for job in jobs {
        let Some(place) = &job.batch else {
            places.push(Place::Free(None));
            continue;
        };
        let item = (place.batch, place.item.as_bytes().to_vec());
        if let Some(existing) = known.get(&item) {
            places.push(Place::Taken(*existing));
            continue;
        }
        let position = last.entry(place.batch).or_default();
        *position += 1;
        places.push(Place::Free(Some(*position)));
        known.insert(item, job.id);
    }
    Ok(places)
}

/// Locks batches, and says how many jobs each has.
async fn lock(
    connection: &mut PgConnection,
    tenant: TenantId,
    batches: impl Iterator<Item = BatchId>,
) -> Result<BTreeMap<BatchId, i64>, StoreError> {
    let ids: Vec<_> = batches.map(|batch| batch.as_uuid()).collect();
    let rows = sqlx::query!(
        "/* lock */
         SELECT batch_id, accepted FROM batches WHERE tenant_id = $1 AND batch_id = ANY ($2)
          ORDER BY batch_id
            FOR NO KEY UPDATE",
        tenant.as_uuid(),
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the batches"))?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| (BatchId::from_uuid(row.batch_id), row.accepted))
        .collect())
}

/// Writes jobs of one tenant.
async fn accept(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    rows(connection, tenant, jobs, now).await?;
    contents(connection, tenant, jobs).await?;
    fetches::fetch_for(connection, tenant, jobs.iter().map(|(job, _)| *job), now).await?;
    items(connection, tenant, jobs).await?;
    labels(connection, tenant, jobs, now).await?;
    wait(connection, tenant, jobs, now).await?;
    let mut events = Events::new(now);
    for (job, _) in jobs {
        events.add(tenant, Some(job.id), None, submitted(job));
    }
    events.write(connection).await
}

async fn rows(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let each = || jobs.iter().map(|(job, _)| *job);
    let ids: Vec<_> = each().map(|job| job.id.as_uuid()).collect();
    let pools: Vec<_> = each().map(|job| job.pool.clone()).collect();
    let priorities: Vec<_> = each().map(|job| job.priority).collect();
    let retries: Vec<_> = each().map(|job| json(&job.resolved.retry)).collect();
    let asked: Vec<_> = each().map(|job| json(&job.resolved.asked)).collect();
    let labels: Vec<_> = each().map(|job| json(&job.labels)).collect();
    let images: Vec<_> = each().map(|job| job.resolved.image.to_string()).collect();
    let digests: Vec<_> = each().map(|job| job.resolved.pin.digest.to_string()).collect();
    let policies: Vec<_> = each()
        .map(|job| job.resolved.policy_version.to_string())
        .collect();
    let expires_at: Vec<_> = each().map(|job| job.expires_at).collect();
    let batches: Vec<_> = each()
        .map(|job| job.batch.as_ref().map(|place| place.batch.as_uuid()))
        .collect();
    let positions: Vec<_> = jobs.iter().map(|(_, position)| *position).collect();
    let ready_at: Vec<_> = each().map(|job| ready_at(job, now)).collect();
    let retained: Vec<_> = each().map(|job| job.retain_source).collect();
    let done = sqlx::query!(
        "/* rows */
         INSERT INTO jobs (tenant_id, job_id, pool, state, priority, retry, asked, labels, image, image_digest,
                           policy_version, submitted_at, ready_at, expires_at, batch_id, batch_position,
                           retain_source)
         SELECT $1, u.job_id, u.pool, 'queued', u.priority, u.retry, u.asked, u.labels, u.image, u.image_digest,
                u.policy_version, $2, u.ready_at, u.expires_at, u.batch_id, u.batch_position, u.retain_source
           FROM unnest($3::uuid[], $4::text[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
                       $11::text[], $12::timestamptz[], $13::uuid[], $14::bigint[], $15::timestamptz[], $16::boolean[])
                AS u (job_id, pool, priority, retry, asked, labels, image, image_digest, policy_version, expires_at,
                      batch_id, batch_position, ready_at, retain_source)",
        tenant.as_uuid(),
        now,
        &ids,
        &pools,
        &priorities,
        &retries,
        &asked,
        &labels,
        &images,
        &digests,
        &policies,
        &expires_at as &[Option<DateTime<Utc>>],
        &batches as &[Option<Uuid>],
        &positions as &[Option<i64>],
        &ready_at,
        &retained
    );
    expect_rows(done.execute(connection).await, jobs.len(), DOING)
}

/// From when on a job may be dispatched.
fn ready_at(job: &NewJob, now: DateTime<Utc>) -> DateTime<Utc> {
    job.not_before.map_or(now, |time| time.max(now))
}

async fn contents(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
) -> Result<(), StoreError> {
    let ids: Vec<_> = jobs.iter().map(|(job, _)| job.id.as_uuid()).collect();
    let salts: Vec<_> = jobs
        .iter()
        .map(|(job, _)| job.salt.as_bytes().as_slice())
        .collect();
    let resolved: Vec<_> = jobs.iter().map(|(job, _)| json(&*job.resolved)).collect();
    let done = sqlx::query!(
        "/* contents */
         INSERT INTO job_contents (tenant_id, job_id, salt, resolved)
         SELECT $1, u.job_id, u.salt, u.resolved
           FROM unnest($2::uuid[], $3::bytea[], $4::text[]) AS u (job_id, salt, resolved)",
        tenant.as_uuid(),
        &ids,
        &salts as &[&[u8]],
        &resolved
    );
    let done = done.execute(connection).await;
    expect_rows(done, jobs.len(), "keep the jobs' contents")
}

/// The names of items, and how many jobs their batches have.
async fn items(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
) -> Result<(), StoreError> {
    let (mut batches, mut names, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let mut accepted: BTreeMap<Uuid, i64> = BTreeMap::new();
    for (job, position) in jobs {
        let (Some(place), Some(position)) = (&job.batch, position) else {
            continue;
        };
        batches.push(place.batch.as_uuid());
        names.push(place.item.as_bytes());
        ids.push(job.id.as_uuid());
        accepted.insert(place.batch.as_uuid(), *position);
    }
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* items */
         INSERT INTO batch_items (tenant_id, batch_id, item, job_id)
         SELECT $1, u.batch_id, u.item, u.job_id
           FROM unnest($2::uuid[], $3::bytea[], $4::uuid[]) AS u (batch_id, item, job_id)",
        tenant.as_uuid(),
        &batches,
        &names as &[&[u8]],
        &ids
    );
    let done = done.execute(&mut *connection).await;
    expect_rows(done, ids.len(), "keep the names of the items")?;
    let (batches, accepted): (Vec<_>, Vec<_>) = accepted.into_iter().unzip();
    let done = sqlx::query!(
        "/* items */
         UPDATE batches b SET accepted = u.accepted
           FROM unnest($2::uuid[], $3::bigint[]) AS u (batch_id, accepted)
          WHERE b.tenant_id = $1 AND b.batch_id = u.batch_id",
        tenant.as_uuid(),
        &batches,
        &accepted
    );
    let done = done.execute(connection).await;
    expect_rows(done, batches.len(), "count the batch's jobs")
}

/// What jobs are found by.
async fn labels(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (mut labels, mut ids) = (Vec::new(), Vec::new());
    for (job, _) in jobs {
        for (name, value) in &job.labels {
            labels.push(lists::label(name, value).to_vec());
            ids.push(job.id.as_uuid());
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* labels */
         INSERT INTO job_labels (tenant_id, label, submitted_at, job_id)
         SELECT $1, u.label, $2, u.job_id FROM unnest($3::bytea[], $4::uuid[]) AS u (label, job_id)",
        tenant.as_uuid(),
        now,
        &labels,
        &ids
    );
    let done = done.execute(connection).await;
    expect_rows(done, ids.len(), "keep the jobs' labels")
}

/// They wait for their turn, and some of them not for ever.
async fn wait(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[(&NewJob, Option<i64>)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut waiting = Waiting::default();
    let (mut pools, mut expires_at, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (job, _) in jobs {
        waiting.pools.push(job.pool.clone());
        waiting.ranks.push(rank(job.priority));
        waiting.jobs.push(job.id.as_uuid());
        waiting.tenants.push(tenant.as_uuid());
        waiting.images.push(job.resolved.pin.digest.to_string());
        waiting.ready_at.push(ready_at(job, now));
        if let Some(end) = job.expires_at {
            pools.push(job.pool.clone());
            expires_at.push(end);
            ids.push(job.id.as_uuid());
        }
    }
    let mut news = News::default();
    waiting.write(connection, now, &mut news).await?;
    news.write(connection).await?;
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* wait */
         INSERT INTO expiring_jobs (pool, expires_at, job_id, tenant_id)
         SELECT u.pool, u.expires_at, u.job_id, $1
           FROM unnest($2::text[], $3::timestamptz[], $4::uuid[]) AS u (pool, expires_at, job_id)",
        tenant.as_uuid(),
        &pools,
        &expires_at,
        &ids
    );
    let done = done.execute(connection).await;
    expect_rows(done, ids.len(), "note when the jobs expire")
}

/// What is on record of a job that is accepted.
fn submitted(job: &NewJob) -> Fact {
    let digests = job.resolved.content_digests();
    let batch = job.batch.as_ref().map(|place| SubmittedIn {
        id: place.batch,
        item: job.salt.commit(&Digest::of(place.item.as_bytes())),
    });
    Fact::JobSubmitted(Box::new(SubmittedFact {
        image_digest: job.resolved.pin.digest,
        policy_version: job.resolved.policy_version,
        code: job.salt.commit(&digests.code),
        files: job.salt.commit(&digests.files),
        stdin: job.salt.commit(&digests.stdin),
        asked: job.resolved.asked,
        limits: job.resolved.limits,
        runtime: job.resolved.runtime.clone(),
        max_attempts: job.resolved.retry.max_attempts,
        batch,
    }))
}
