//! The small tables of what waits: written beside the rows that they are about, in the same transaction.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{id::JobId, state::JobState};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{
    changes::{Decided, Moves, at, missing, waits},
    database::query,
    news::{self, News},
    writes::{expires_no_more, waited},
};

/// What goes first has the lowest rank.
pub(crate) fn rank(priority: i16) -> i32 {
    -i32::from(priority)
}

/// By how much the counts of waiting attempts change.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) dispatched: BTreeMap<String, i64>,
    pub(crate) departed: BTreeMap<String, i64>,
}

/// Jobs that begin to wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) pools: Vec<String>,
    pub(crate) ranks: Vec<i32>,
    pub(crate) jobs: Vec<Uuid>,
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) images: Vec<String>,
    pub(crate) ready_at: Vec<DateTime<Utc>>,
}

impl Waiting {
    /// Those that are ready now, and those that will be later; and what the scheduler is to know of it.
    pub(crate) async fn write(
        &self,
        connection: &mut PgConnection,
        now: DateTime<Utc>,
        news: &mut News,
    ) -> Result<(), StoreError> {
        for (index, (pool, ready_at)) in self.pools.iter().zip(&self.ready_at).enumerate() {
            news.of(pool, self.tenants[index]).queued += 1;
            if *ready_at <= now {
                news.ready(
                    (pool, self.tenants[index], self.ranks[index], &self.images[index]),
                    self.jobs[index],
                );
            }
        }
        if self.ready_at.iter().any(|at| *at <= now) {
            sqlx::query!(
                "/* waiting */
                 INSERT INTO ready_jobs (pool, tenant_id, rank, image_digest, job_id)
                 SELECT u.pool, u.tenant_id, u.rank, u.image_digest, u.job_id
                   FROM unnest($1::text[], $2::integer[], $3::uuid[], $4::uuid[], $5::timestamptz[], $7::text[])
                        AS u (pool, rank, job_id, tenant_id, ready_at, image_digest)
                  WHERE u.ready_at <= $6",
                &self.pools,
                &self.ranks,
                &self.jobs,
                &self.tenants,
                &self.ready_at,
                now,
                &self.images
            )
            .execute(&mut *connection)
            .await
            .map_err(query("make the jobs ready"))?;
        }
        if self.ready_at.iter().any(|at| *at > now) {
            sqlx::query!(
                "/* waiting */
                 INSERT INTO delayed_jobs (pool, ready_at, job_id, rank, tenant_id, image_digest)
                 SELECT u.pool, u.ready_at, u.job_id, u.rank, u.tenant_id, u.image_digest
                   FROM unnest($1::text[], $2::integer[], $3::uuid[], $4::uuid[], $5::timestamptz[], $7::text[])
                        AS u (pool, rank, job_id, tenant_id, ready_at, image_digest)
                  WHERE u.ready_at > $6",
                &self.pools,
                &self.ranks,
                &self.jobs,
                &self.tenants,
                &self.ready_at,
                now,
                &self.images
            )
            .execute(&mut *connection)
            .await
            .map_err(query("let the jobs wait"))?;
        }
        Ok(())
    }
}

/// Jobs that wait no longer where they did.
#[derive(Debug, Default)]
struct Gone {
    pools: Vec<String>,
    tenants: Vec<Uuid>,
    ranks: Vec<i32>,
    images: Vec<String>,
    jobs: Vec<Uuid>,
    /// Of those that may have been waiting for their time.
    ready_at: Vec<DateTime<Utc>>,
    /// Whether any of them may have been.
    delayed: bool,
}

/// Moves what waits, and says how the counts change by it.
pub(crate) async fn write(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<Counted, StoreError> {
    let (mut gone, mut come) = (Gone::default(), Waiting::default());
    let (mut expiring, mut news) = (Expiring::default(), News::default());
    for (job, step) in &moves.jobs {
        let (before, record) = (decided.before.ledger.job(*job), decided.job(*job)?);
        let (Some(before), Some(row)) = (before, decided.before.jobs.get(job)) else {
            return Err(missing(format!("job {job}")));
        };
        let moved = step.pool.is_some();
        if before.state == JobState::Queued && (record.state != JobState::Queued || moved) {
            gone.pools.push(row.pool.clone());
            gone.tenants.push(before.tenant.as_uuid());
            gone.ranks.push(rank(row.priority));
            gone.images.push(row.image_digest.to_string());
            news.of(&row.pool, before.tenant.as_uuid()).queued -= 1;
            gone.jobs.push(job.as_uuid());
            gone.ready_at.push(at(before.ready_at));
            // What is dispatched was found among those that are ready.
            gone.delayed |= record.state != JobState::Dispatched;
        }
        if record.state == JobState::Queued && (before.state != JobState::Queued || moved) {
            come.pools.push(step.pool.unwrap_or(&row.pool).to_owned());
            come.ranks.push(rank(row.priority));
            come.jobs.push(job.as_uuid());
            come.tenants.push(record.tenant.as_uuid());
            come.images.push(row.image_digest.to_string());
            come.ready_at.push(at(record.ready_at));
        }
        if let Some(expires_at) = before.expires_at {
            if expires_no_more(decided, *job) {
                expiring.gone(&row.pool, at(expires_at), *job);
            } else if let Some(to) = step.pool {
                expiring.moved(&row.pool, at(expires_at), *job, to);
            }
        }
    }
    remove(connection, &gone).await?;
    come.write(connection, decided.now, &mut news).await?;
    expiring.write(connection).await?;
    news::add_attempts(&mut news, decided, moves)?;
    news.write(connection).await?;
    attempts(connection, decided, moves).await
}

async fn remove(connection: &mut PgConnection, gone: &Gone) -> Result<(), StoreError> {
    if gone.jobs.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "/* remove */
         DELETE FROM ready_jobs r
          USING unnest($1::text[], $2::uuid[], $3::integer[], $4::text[], $5::uuid[])
                AS u (pool, tenant_id, rank, image_digest, job_id)
          WHERE r.pool = u.pool AND r.tenant_id = u.tenant_id AND r.rank = u.rank AND r.image_digest = u.image_digest
            AND r.job_id = u.job_id",
        &gone.pools,
        &gone.tenants,
        &gone.ranks,
        &gone.images,
        &gone.jobs
    )
    .execute(&mut *connection)
    .await
    .map_err(query("take the jobs from those that are ready"))?;
    if gone.delayed {
        sqlx::query!(
            "/* remove */
             DELETE FROM delayed_jobs d
              USING unnest($1::text[], $2::timestamptz[], $3::uuid[]) AS u (pool, ready_at, job_id)
              WHERE d.pool = u.pool AND d.ready_at = u.ready_at AND d.job_id = u.job_id",
            &gone.pools,
            &gone.ready_at,
            &gone.jobs
        )
        .execute(connection)
        .await
        .map_err(query("take the jobs from those that wait for their time"))?;
    }
    Ok(())
}

/// Jobs that expire no more, or in another pool.
#[derive(Debug, Default)]
struct Expiring {
    pools: Vec<String>,
    expires_at: Vec<DateTime<Utc>>,
    jobs: Vec<Uuid>,
    to: Vec<Option<String>>,
}

impl Expiring {
    fn gone(&mut self, pool: &str, expires_at: DateTime<Utc>, job: JobId) {
        self.add(pool, expires_at, job, None);
    }

    fn moved(&mut self, pool: &str, expires_at: DateTime<Utc>, job: JobId, to: &str) {
        self.add(pool, expires_at, job, Some(to));
    }

    fn add(&mut self, pool: &str, expires_at: DateTime<Utc>, job: JobId, to: Option<&str>) {
        self.pools.push(pool.to_owned());
        self.expires_at.push(expires_at);
        self.jobs.push(job.as_uuid());
        self.to.push(to.map(str::to_owned));
    }

    async fn write(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        if self.to.iter().any(Option::is_none) {
            sqlx::query!(
                "/* expiring */
                 DELETE FROM expiring_jobs e
                  USING unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::text[]) AS u (pool, expires_at, job_id, pool_to)
                  WHERE e.pool = u.pool AND e.expires_at = u.expires_at AND e.job_id = u.job_id AND u.pool_to IS NULL",
                &self.pools,
                &self.expires_at,
                &self.jobs,
                &self.to as &[Option<String>]
            )
            .execute(&mut *connection)
            .await
            .map_err(query("forget when the jobs expire"))?;
        }
        if self.to.iter().any(Option::is_some) {
            sqlx::query!(
                "/* expiring */
                 UPDATE expiring_jobs e SET pool = u.pool_to
                   FROM unnest($1::text[], $2::timestamptz[], $3::uuid[], $4::text[]) AS u (pool, expires_at, job_id, pool_to)
                  WHERE e.pool = u.pool AND e.expires_at = u.expires_at AND e.job_id = u.job_id AND u.pool_to IS NOT NULL",
                &self.pools,
                &self.expires_at,
                &self.jobs,
                &self.to as &[Option<String>]
            )
            .execute(connection)
            .await
            .map_err(query("note where the jobs expire"))?;
        }
        Ok(())
    }
}

/// Attempts that begin to wait for their start, wait no longer, or wait in another pool.
async fn attempts(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<Counted, StoreError> {
    let mut counted = Counted::default();
    let (mut pools, mut ids, mut jobs, mut tenants) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut old_pools, mut old_ids) = (Vec::new(), Vec::new());
    let moved = moves.attempts.iter().map(|(attempt, step)| (attempt, step.pool));
    for (attempt, to) in moves.made.iter().map(|attempt| (attempt, None)).chain(moved) {
        let record = decided.after.attempt(*attempt);
        let record = record.ok_or_else(|| missing(format!("attempt {attempt}")))?;
        let from = decided.pool_of(*attempt, record.job)?;
        let (before, after) = (waited(decided, *attempt), waits(record.state));
        if before && (!after || to.is_some()) {
            old_pools.push(from.to_owned());
            old_ids.push(attempt.as_uuid());
            *counted.departed.entry(from.to_owned()).or_default() += 1;
        }
        if after && (!before || to.is_some()) {
            let pool = to.unwrap_or(from);
            pools.push(pool.to_owned());
            ids.push(attempt.as_uuid());
            jobs.push(record.job.as_uuid());
            tenants.push(decided.job(record.job)?.tenant.as_uuid());
            *counted.dispatched.entry(pool.to_owned()).or_default() += 1;
        }
    }
    if !old_ids.is_empty() {
        let done = sqlx::query!(
            "/* attempts */
             DELETE FROM unstarted_attempts a
              USING unnest($1::text[], $2::uuid[]) AS u (pool, attempt_id)
              WHERE a.pool = u.pool AND a.attempt_id = u.attempt_id",
            &old_pools,
            &old_ids
        );
        let done = done.execute(&mut *connection).await;
        crate::database::expect_rows(done, old_ids.len(), "take the attempts from those that wait")?;
    }
    if !ids.is_empty() {
        let done = sqlx::query!(
            "/* attempts */
             INSERT INTO unstarted_attempts (pool, attempt_id, job_id, tenant_id)
             SELECT u.pool, u.attempt_id, u.job_id, u.tenant_id
               FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::uuid[]) AS u (pool, attempt_id, job_id, tenant_id)",
            &pools,
            &ids,
            &jobs,
            &tenants
        );
        let done = done.execute(connection).await;
        crate::database::expect_rows(done, ids.len(), "let the attempts wait for their start")?;
    }
    Ok(counted)
}
