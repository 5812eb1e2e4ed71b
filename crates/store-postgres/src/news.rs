//! What the scheduler of a pool is told, beside the rows that it is about and in their transaction: in which lanes jobs
//! have come to be ready, and by how much the counts of tenants change. It is read by [`shares`](crate::shares), once.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_dispatch::record::AttemptState;
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{
    changes::{Decided, Moves, missing},
    database::expect_rows,
};

/// By how much a tenant's counts in a pool change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Jobs that wait.
    pub(crate) queued: i64,
    /// Attempts that are dispatched or started.
    pub(crate) in_flight: i64,
    /// Attempts that are started, and the sum of the moments at which they did, in milliseconds.
    pub(crate) started: i64,
    pub(crate) started_ms: i64,
    /// Runs that ended, and how long they took together, in microseconds.
    pub(crate) ended: i64,
    pub(crate) ended_us: i64,
}

/// Pool, tenant, rank and image.
type Lane = (String, Uuid, i32, String);

/// What a transaction has to tell.
#[derive(Debug, Default)]
pub(crate) struct News {
    counts: BTreeMap<(String, Uuid), Counts>,
    /// The first job that has come to each.
    lanes: BTreeMap<Lane, Uuid>,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.in_flight += other.in_flight;
        self.started += other.started;
        self.started_ms += other.started_ms;
        self.ended += other.ended;
        self.ended_us += other.ended_us;
    }
}

impl News {
    /// A tenant's counts in a pool.
    pub(crate) fn of(&mut self, pool: &str, tenant: Uuid) -> &mut Counts {
        self.counts.entry((pool.to_owned(), tenant)).or_default()
    }

    /// A job has come to be ready.
    pub(crate) fn ready(&mut self, (pool, tenant, rank, image): (&str, Uuid, i32, &str), job: Uuid) {
        let first = self
            .lanes
            .entry((pool.to_owned(), tenant, rank, image.to_owned()))
            .or_insert(job);
        *first = job.min(*first);
    }

    pub(crate) async fn write(self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let (mut pools, mut tenants, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ranks, mut images, mut first_jobs) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = self.counts;
        for ((pool, tenant, rank, image), job) in self.lanes {
            let of_tenant = (pool, tenant);
            // The counts go along with one of the lanes.
            counts.push(left.remove(&of_tenant).unwrap_or_default());
            pools.push(of_tenant.0);
            tenants.push(tenant);
            ranks.push(Some(rank));
            images.push(Some(image));
            first_jobs.push(Some(job));
        }
        for ((pool, tenant), count) in left {
            if count != Counts::default() {
                counts.push(count);
                pools.push(pool);
                tenants.push(tenant);
                ranks.push(None);
                images.push(None);
                first_jobs.push(None);
            }
        }
        if pools.is_empty() {
            return Ok(());
        }
        let each = |of: fn(&Counts) -> i64| counts.iter().map(of).collect::<Vec<_>>();
        let done = sqlx::query!(
            "/* news */
             INSERT INTO pool_news (pool, tenant_id, rank, image_digest, first_job, queued, in_flight, started, started_ms,
                                    ended, ended_us)
             SELECT u.pool, u.tenant_id, u.rank, u.image_digest, u.first_job, u.queued, u.in_flight, u.started,
                    u.started_ms, u.ended, u.ended_us
               FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::text[], $5::uuid[], $6::bigint[], $7::bigint[],
                           $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
                    AS u (pool, tenant_id, rank, image_digest, first_job, queued, in_flight, started, started_ms, ended,
                          ended_us)",
            &pools,
            &tenants,
            &ranks as &[Option<i32>],
            &images as &[Option<String>],
            &first_jobs as &[Option<Uuid>],
            &each(|count| count.queued),
            &each(|count| count.in_flight),
            &each(|count| count.started),
            &each(|count| count.started_ms),
            &each(|count| count.ended),
            &each(|count| count.ended_us)
        );
        let done = done.execute(connection).await;
        expect_rows(done, pools.len(), "tell the scheduler what has happened")
    }
}

/// Attempts that are made, start, end, or go to another pool.
pub(crate) fn add_attempts(
    news: &mut News,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    let moved = moves.attempts.iter().map(|(attempt, step)| (attempt, Some(step)));
    for (attempt, step) in moves.made.iter().map(|attempt| (attempt, None)).chain(moved) {
        let record = decided.after.attempt(*attempt);
        let record = record.ok_or_else(|| missing(format!("attempt {attempt}")))?;
        let tenant = decided.job(record.job)?.tenant.as_uuid();
        let from = decided.pool_of(*attempt, record.job)?;
        let to = step.and_then(|step| step.pool).unwrap_or(from);
        let row = decided.before.attempts.get(attempt);
        let started_at = row.and_then(|row| row.started_at);
        let before = decided.before.ledger.attempt(*attempt).map(|record| record.state);
        let old = news.of(from, tenant);
        if let Some(before) = before {
            add(old, before, started_at, -1);
        }
        let starts = step.is_some_and(|step| step.starter.is_some());
        let started_at = started_at.or_else(|| starts.then_some(decided.now));
        let was_over = matches!(before, Some(AttemptState::Over { .. }));
        if let AttemptState::Over { .. } = record.state
            && !was_over
            && let Some(started_at) = started_at
        {
            let took = decided.now.signed_duration_since(started_at);
            old.ended += 1;
            old.ended_us += took.num_microseconds().unwrap_or(i64::MAX).max(0);
        }
        add(news.of(to, tenant), record.state, started_at, 1);
    }
    Ok(())
}

/// Counts an attempt in a state, or counts it no longer.
fn add(counts: &mut Counts, state: AttemptState, started_at: Option<DateTime<Utc>>, sign: i64) {
    match state {
        AttemptState::Dispatched => counts.in_flight += sign,
        AttemptState::Started { .. } => {
            counts.in_flight += sign;
            counts.started += sign;
            counts.started_ms += sign * started_at.map_or(0, |time| time.timestamp_millis());
        }
        AttemptState::Over { .. } => {}
    }
}
