//! Rows as the records that dispatching decides on: loaded under locks that last to the end of the transaction that will
//! write what was decided.
//!
//! Locks are taken in one order everywhere: somebody's turn, sessions by their ids, jobs by theirs. Whoever writes an
//! attempt holds its job, and whoever changes what a session holds holds the session, so that attempts need no locks of
//! their own. Counts come last, when all else is written.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    limits::LimitsAsked,
};
use mayfly_dispatch::{
    ledger::Ledger,
    record::{AttemptRecord, AttemptState, JobRecord, QueueRecord, SessionEnd, SessionRecord, SessionState},
    time::ServerTime,
};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{
    blobs::{load_files, load_uploads},
    columns::{Column, job_state},
    database::query,
};

/// What a decision looks at.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Sessions.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Those of the sessions of which all is wanted that they hold.
    pub(crate) holders: BTreeSet<SessionId>,
    /// Executors whose live sessions are wanted, with what they hold.
    pub(crate) executors: BTreeSet<ExecutorId>,
    /// The pool whose live sessions are wanted.
    pub(crate) pool: Option<String>,
    /// Attempts, each with its job.
    pub(crate) attempts: BTreeSet<AttemptId>,
    /// Attempts of whose output something may be kept already.
    pub(crate) uploads: BTreeSet<AttemptId>,
    /// Attempts of whose files something may be kept already.
    pub(crate) files: BTreeSet<AttemptId>,
    /// Jobs, each with the attempt that stands.
    pub(crate) jobs: BTreeSet<JobId>,
}

/// Records as they were read, and what else is needed of their rows to write what is decided.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) ledger: Ledger,
    pub(crate) jobs: BTreeMap<JobId, JobRow>,
    pub(crate) attempts: BTreeMap<AttemptId, AttemptRow>,
}

/// What rows and audit events of a job are made of, beside its record.
#[derive(Debug)]
pub(crate) struct JobRow {
    pub(crate) pool: String,
    pub(crate) priority: i16,
    pub(crate) batch: Option<BatchId>,
    pub(crate) submitted_at: DateTime<Utc>,
    pub(crate) image_digest: Digest,
    pub(crate) policy_version: Digest,
    pub(crate) asked: LimitsAsked,
}

/// What stands in an attempt's row beside its record.
#[derive(Debug)]
pub(crate) struct AttemptRow {
    pub(crate) pool: String,
    pub(crate) started_at: Option<DateTime<Utc>>,
}

/// The row of a queue; where there is none, what stands for a queue that nothing was sent to.
pub(crate) async fn queue(
    connection: &mut PgConnection,
    queue: &str,
    now: ServerTime,
) -> Result<QueueRecord, StoreError> {
    let row = sqlx::query!(
        "/* queue */ SELECT epoch, ticks_sent, last_tick_at, ticks_processed FROM queues WHERE queue = $1",
        queue
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the queue"))?;
    let Some(row) = row else {
        return Ok(QueueRecord::new(now));
    };
    let column = |name| Column("queues", name);
    Ok(QueueRecord {
        epoch: column("epoch").number(row.epoch)?,
        ticks_sent: column("ticks_sent").number(row.ticks_sent)?,
        last_tick_at: row.last_tick_at.into(),
        ticks_processed: column("ticks_processed").number(row.ticks_processed)?,
    })
}

/// Loads all that is wanted, each row once and locked.
pub(crate) async fn load(
    connection: &mut PgConnection,
    queue: QueueRecord,
    mut wanted: Wanted,
) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded {
        ledger: Ledger::new(queue),
        jobs: BTreeMap::new(),
        attempts: BTreeMap::new(),
    };
    if !wanted.sessions.is_empty() || !wanted.executors.is_empty() || wanted.pool.is_some() {
        let held = sessions(connection, &wanted, &mut loaded).await?;
        wanted.attempts.extend(held);
    }
    if !wanted.attempts.is_empty() {
        let of = jobs_of(connection, &wanted.attempts).await?;
        wanted.jobs.extend(of);
    }
    if wanted.jobs.is_empty() {
        return Ok(loaded);
    }
    jobs(connection, &wanted.jobs, &mut loaded).await?;
    let current: Vec<_> = loaded.ledger.jobs().filter_map(|job| job.current).collect();
    wanted.attempts.extend(current);
    if !wanted.attempts.is_empty() {
        attempts(connection, &wanted.attempts, &mut loaded).await?;
    }
    if !wanted.uploads.is_empty() {
        load_uploads(connection, &wanted.uploads, &mut loaded.ledger).await?;
    }
    if !wanted.files.is_empty() {
        load_files(connection, &wanted.files, &mut loaded.ledger).await?;
    }
    Ok(loaded)
}

struct SessionRow {
    session_id: Uuid,
    executor_id: Uuid,
    pool: String,
    ended: Option<String>,
    processed: i64,
    lease_end: DateTime<Utc>,
    slots: i64,
    free_slots: i64,
    held: Vec<Uuid>,
    reads: i64,
    cordoned: bool,
}

/// Returns what the holders among them hold.
async fn sessions(
    connection: &mut PgConnection,
    wanted: &Wanted,
    loaded: &mut Loaded,
) -> Result<Vec<AttemptId>, StoreError> {
    let named: Vec<_> = wanted.sessions.iter().map(SessionId::as_uuid).collect();
    let executors: Vec<_> = wanted.executors.iter().map(ExecutorId::as_uuid).collect();
    let rows = sqlx::query_as!(
        SessionRow,
        r#"/* sessions */
         SELECT session_id, executor_id, pool, ended, processed, lease_end, slots, free_slots, held, reads,
                EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = s.executor_id AND e.cordoned) AS "cordoned!"
           FROM sessions s
          WHERE session_id = ANY ($1) OR (ended IS NULL AND executor_id = ANY ($2)) OR (ended IS NULL AND pool = $3)
          ORDER BY session_id
            FOR UPDATE OF s"#,
        &named,
        &executors,
        wanted.pool.as_deref()
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(query("find the sessions"))?;
    let mut held = Vec::new();
    for row in rows {
        let held_by_it = row.held.clone();
        let record = SessionRecord::try_from(row)?;
        if wanted.holders.contains(&record.session) || wanted.executors.contains(&record.executor) {
            held.extend(held_by_it.into_iter().map(AttemptId::from_uuid));
        }
        loaded.ledger.put_session(record);
    }
    if !executors.is_empty() {
        let cordoned = sqlx::query_scalar!(
            "/* sessions */ SELECT executor_id FROM executors WHERE executor_id = ANY ($1) AND cordoned",
            &executors
        );
        let cordoned = cordoned.fetch_all(connection).await;
        for executor in cordoned.map_err(query("find the executors"))? {
            loaded.ledger.put_cordoned(ExecutorId::from_uuid(executor));
        }
    }
    Ok(held)
}

impl TryFrom<SessionRow> for SessionRecord {
    type Error = StoreError;

    fn try_from(row: SessionRow) -> Result<Self, StoreError> {
        let column = |name| Column("sessions", name);
        Ok(Self {
            session: SessionId::from_uuid(row.session_id),
            executor: ExecutorId::from_uuid(row.executor_id),
            state: session_state(row.ended.as_deref())?,
            processed: column("processed").number(row.processed)?,
            lease_end: row.lease_end.into(),
            pool: row.pool,
            slots: column("slots").count(row.slots)?,
            free_slots: column("free_slots").count(row.free_slots)?,
            reads: column("reads").count(row.reads)?,
            cordoned: row.cordoned,
        })
    }
}

/// Whose attempts they are, which never changes.
async fn jobs_of(
    connection: &mut PgConnection,
    attempts: &BTreeSet<AttemptId>,
) -> Result<Vec<JobId>, StoreError> {
    let ids: Vec<_> = attempts.iter().map(AttemptId::as_uuid).collect();
    let jobs = sqlx::query_scalar!(
        "/* jobs_of */ SELECT job_id FROM attempts WHERE attempt_id = ANY ($1)",
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the attempts' jobs"))?;
    Ok(jobs.into_iter().map(JobId::from_uuid).collect())
}

async fn jobs(
    connection: &mut PgConnection,
    wanted: &BTreeSet<JobId>,
    loaded: &mut Loaded,
) -> Result<(), StoreError> {
    let ids: Vec<_> = wanted.iter().map(JobId::as_uuid).collect();
    let rows = sqlx::query!(
        "/* jobs */
         SELECT job_id, tenant_id, pool, state, end_state, priority, attempts, current_attempt, retry, asked, image_digest,
                policy_version, submitted_at, ready_at, expires_at, batch_id
           FROM jobs WHERE job_id = ANY ($1)
          ORDER BY job_id
            FOR NO KEY UPDATE",
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the jobs"))?;
    let column = |name| Column("jobs", name);
    for row in rows {
        let job = JobId::from_uuid(row.job_id);
        loaded.ledger.put_job(JobRecord {
            job,
            tenant: TenantId::from_uuid(row.tenant_id),
            state: job_state(&row.state, row.end_state.as_deref())?,
            retry: column("retry").json(&row.retry)?,
            attempts: column("attempts").count(row.attempts)?,
            current: row.current_attempt.map(AttemptId::from_uuid),
            ready_at: row.ready_at.into(),
            expires_at: row.expires_at.map(ServerTime::from),
        });
        let others = JobRow {
            pool: row.pool,
            priority: row.priority,
            batch: row.batch_id.map(BatchId::from_uuid),
            submitted_at: row.submitted_at,
            image_digest: column("image_digest").parse(&row.image_digest)?,
            policy_version: column("policy_version").parse(&row.policy_version)?,
            asked: column("asked").json(&row.asked)?,
        };
        loaded.jobs.insert(job, others);
    }
    Ok(())
}

async fn attempts(
    connection: &mut PgConnection,
    wanted: &BTreeSet<AttemptId>,
    loaded: &mut Loaded,
) -> Result<(), StoreError> {
    let ids: Vec<_> = wanted.iter().map(AttemptId::as_uuid).collect();
    let rows = sqlx::query!(
        "/* attempts */
         SELECT attempt_id, job_id, number, pool, state, publication, published_at, confirmed, dead_letters, session_id,
                started_at, cause
           FROM attempts WHERE attempt_id = ANY ($1)",
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the attempts"))?;
    let column = |name| Column("attempts", name);
    for row in rows {
        let attempt = AttemptId::from_uuid(row.attempt_id);
        let state = match (row.state.as_str(), row.session_id, row.cause) {
            ("dispatched", None, None) => AttemptState::Dispatched,
            ("started", Some(session), None) => AttemptState::Started {
                session: SessionId::from_uuid(session),
            },
            ("ended", _, Some(cause)) => AttemptState::Over {
                cause: column("cause").word(&cause)?,
            },
            (state, ..) => {
                return Err(column("state").corrupt(format!("`{state}` without what belongs to it")));
            }
        };
        loaded.ledger.put_attempt(AttemptRecord {
            attempt,
            job: JobId::from_uuid(row.job_id),
            number: column("number").count(row.number)?,
            state,
            publication: column("publication").count(row.publication)?,
            published_at: row.published_at.into(),
            confirmed: row.confirmed,
            dead_letters: column("dead_letters").count(row.dead_letters)?,
        });
        let others = AttemptRow {
            pool: row.pool,
            started_at: row.started_at,
        };
        loaded.attempts.insert(attempt, others);
    }
    Ok(())
}

/// Whether a session is over, by its column.
pub(crate) fn session_state(ended: Option<&str>) -> Result<SessionState, StoreError> {
    match ended {
        None => Ok(SessionState::Live),
        Some("closed") => Ok(SessionState::Ended(SessionEnd::Closed)),
        Some("lease_ended") => Ok(SessionState::Ended(SessionEnd::LeaseEnded)),
        Some("succeeded_by_another") => Ok(SessionState::Ended(SessionEnd::SucceededByAnother)),
        Some(other) => Err(Column("sessions", "ended").corrupt(format!("`{other}` is no end of a session"))),
    }
}

/// The word of a column for the end of a session.
pub(crate) const fn session_end_word(end: SessionEnd) -> &'static str {
    match end {
        SessionEnd::Closed => "closed",
        SessionEnd::LeaseEnded => "lease_ended",
        SessionEnd::SucceededByAnother => "succeeded_by_another",
    }
}
