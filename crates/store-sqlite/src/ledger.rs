//! Rows as the records that dispatching decides on: loaded in the transaction that will write what was decided.

use std::collections::BTreeSet;

use mayfly_core::id::{AttemptId, ExecutorId, JobId, SessionId, TenantId};
use mayfly_dispatch::{
    ledger::Ledger,
    record::{AttemptRecord, AttemptState, JobRecord, QueueRecord, SessionEnd, SessionRecord, SessionState},
    time::ServerTime,
};
use mayfly_store::error::StoreError;
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    blobs,
    columns::{Column, job_state},
    database::query,
};

/// Loads what a decision looks at, each row once.
pub(crate) struct Loader<'c> {
    connection: &'c mut SqliteConnection,
    ledger: Ledger,
    sessions: BTreeSet<SessionId>,
    attempts: BTreeSet<AttemptId>,
    jobs: BTreeSet<JobId>,
}

impl<'c> Loader<'c> {
    /// Nothing but the row of a queue; where there is none, what stands for a queue that nothing was sent to.
    pub(crate) async fn new(
        connection: &'c mut SqliteConnection,
        queue: &str,
        now: ServerTime,
    ) -> Result<Self, StoreError> {
        let row = sqlx::query!(
            "/* new */ SELECT epoch, ticks_sent, last_tick_at, ticks_processed FROM queues WHERE queue = ?",
            queue
        )
        .fetch_optional(&mut *connection)
        .await
        .map_err(query("find the queue"))?;
        let column = |name| Column("queues", name);
        let record = match row {
            Some(row) => QueueRecord {
                epoch: column("epoch").number(row.epoch)?,
                ticks_sent: column("ticks_sent").number(row.ticks_sent)?,
                last_tick_at: ServerTime::from_micros(row.last_tick_at),
                ticks_processed: column("ticks_processed").number(row.ticks_processed)?,
            },
            None => QueueRecord::new(now),
        };
        Ok(Self {
            connection,
            ledger: Ledger::new(record),
            sessions: BTreeSet::new(),
            attempts: BTreeSet::new(),
            jobs: BTreeSet::new(),
        })
    }

    /// What was loaded.
    pub(crate) fn into_ledger(self) -> Ledger {
        self.ledger
    }

    /// What is kept of an attempt's output.
    pub(crate) async fn upload(&mut self, attempt: AttemptId) -> Result<(), StoreError> {
        if let Some((digest, bytes)) = blobs::upload(self.connection, attempt).await? {
            self.ledger.put_upload(attempt, digest, bytes);
        }
        Ok(())
    }

    /// What is kept of an attempt's files.
    pub(crate) async fn files(&mut self, attempt: AttemptId) -> Result<(), StoreError> {
        for (number, pieces) in blobs::files(self.connection, attempt).await? {
            self.ledger.put_file(attempt, number, pieces);
        }
        Ok(())
    }

    /// A session, and what it holds.
    pub(crate) async fn session(&mut self, session: SessionId) -> Result<(), StoreError> {
        if !self.sessions.insert(session) {
            return Ok(());
        }
        let id = session.as_uuid();
        let row = sqlx::query_as!(
            SessionRow,
            r#"/* session */
             SELECT session_id AS "session_id!: Uuid", executor_id AS "executor_id!: Uuid", pool, ended, processed,
                    lease_end, slots, free_slots, reads,
                    EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = sessions.executor_id AND e.cordoned = 1)
                        AS "cordoned!: bool"
               FROM sessions WHERE session_id = ?"#,
            id
        )
        .fetch_optional(&mut *self.connection)
        .await
        .map_err(query("find the session"))?;
        let Some(row) = row else { return Ok(()) };
        self.ledger.put_session(row.try_into()?);
        let held = sqlx::query_scalar!(
            r#"/* session */
             SELECT attempt_id AS "attempt_id!: Uuid" FROM attempts WHERE session_id = ? AND state = 'started'"#,
            id
        )
        .fetch_all(&mut *self.connection)
        .await
        .map_err(query("find what the session holds"))?;
        for attempt in held {
            self.attempt(AttemptId::from_uuid(attempt)).await?;
        }
        Ok(())
    }

    /// The sessions of an executor that are not over, and what they hold.
    pub(crate) async fn live_sessions_of(&mut self, executor: ExecutorId) -> Result<(), StoreError> {
        let id = executor.as_uuid();
        let live = sqlx::query_scalar!(
            r#"/* live_sessions_of */
             SELECT session_id AS "session_id!: Uuid" FROM sessions WHERE executor_id = ? AND ended IS NULL"#,
            id
        )
        .fetch_all(&mut *self.connection)
        .await
        .map_err(query("find the executor's sessions"))?;
        for session in live {
            self.session(SessionId::from_uuid(session)).await?;
        }
        let cordoned = sqlx::query_scalar!(
            r#"/* live_sessions_of */
             SELECT 1 AS "cordoned!: i64" FROM executors WHERE executor_id = ? AND cordoned = 1"#,
            id
        )
        .fetch_optional(&mut *self.connection)
        .await
        .map_err(query("find the executor"))?;
        if cordoned.is_some() {
            self.ledger.put_cordoned(executor);
        }
        Ok(())
    }

    /// The sessions of a pool that are not over, and what they hold.
    pub(crate) async fn live_sessions_in(&mut self, pool: &str) -> Result<(), StoreError> {
        let live = sqlx::query_scalar!(
            r#"/* live_sessions_in */
             SELECT session_id AS "session_id!: Uuid" FROM sessions WHERE pool = ? AND ended IS NULL"#,
            pool
        )
        .fetch_all(&mut *self.connection)
        .await
        .map_err(query("find the pool's sessions"))?;
        for session in live {
            self.session(SessionId::from_uuid(session)).await?;
        }
        Ok(())
    }

    /// The attempts of a pool that no session has started, with their jobs.
    pub(crate) async fn unstarted_in(&mut self, pool: &str) -> Result<(), StoreError> {
        let unstarted = sqlx::query_scalar!(
            r#"/* unstarted_in */
             SELECT attempt_id AS "attempt_id!: Uuid" FROM attempts WHERE pool = ? AND state = 'dispatched'
              ORDER BY attempt_id"#,
            pool
        )
        .fetch_all(&mut *self.connection)
        .await
        .map_err(query("find the attempts that wait"))?;
        for attempt in unstarted {
            self.attempt(AttemptId::from_uuid(attempt)).await?;
        }
        Ok(())
    }

    /// An attempt, and its job.
    pub(crate) async fn attempt(&mut self, attempt: AttemptId) -> Result<(), StoreError> {
        if !self.attempts.insert(attempt) {
            return Ok(());
        }
        let id = attempt.as_uuid();
        let row = sqlx::query!(
            r#"/* attempt */
             SELECT job_id AS "job_id!: Uuid", number, state, publication, published_at, confirmed, dead_letters,
                    session_id AS "session_id: Uuid", cause
               FROM attempts WHERE attempt_id = ?"#,
            id
        )
        .fetch_optional(&mut *self.connection)
        .await
        .map_err(query("find the attempt"))?;
        let Some(row) = row else { return Ok(()) };
        let column = |name| Column("attempts", name);
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
        let job = JobId::from_uuid(row.job_id);
        self.ledger.put_attempt(AttemptRecord {
            attempt,
            job,
            number: column("number").count(row.number)?,
            state,
            publication: column("publication").count(row.publication)?,
            published_at: ServerTime::from_micros(row.published_at),
            confirmed: row.confirmed != 0,
            dead_letters: column("dead_letters").count(row.dead_letters)?,
        });
        self.job(job).await
    }

    /// A job, and the attempt that stands.
    pub(crate) async fn job(&mut self, job: JobId) -> Result<(), StoreError> {
        if !self.jobs.insert(job) {
            return Ok(());
        }
        let id = job.as_uuid();
        let row = sqlx::query!(
            r#"/* job */
             SELECT tenant_id AS "tenant_id!: Uuid", state, end_state, attempts, retry,
                    current_attempt AS "current_attempt: Uuid", ready_at, expires_at
               FROM jobs WHERE job_id = ?"#,
            id
        )
        .fetch_optional(&mut *self.connection)
        .await
        .map_err(query("find the job"))?;
        let Some(row) = row else { return Ok(()) };
        let column = |name| Column("jobs", name);
        let current = row.current_attempt.map(AttemptId::from_uuid);
        self.ledger.put_job(JobRecord {
            job,
            tenant: TenantId::from_uuid(row.tenant_id),
            state: job_state(&row.state, row.end_state.as_deref())?,
            retry: column("retry").json(&row.retry)?,
            attempts: column("attempts").count(row.attempts)?,
            current,
            ready_at: ServerTime::from_micros(row.ready_at),
            expires_at: row.expires_at.map(ServerTime::from_micros),
        });
        match current {
            Some(attempt) => Box::pin(self.attempt(attempt)).await,
            None => Ok(()),
        }
    }
}

struct SessionRow {
    session_id: Uuid,
    executor_id: Uuid,
    pool: String,
    ended: Option<String>,
    processed: i64,
    lease_end: i64,
    slots: i64,
    free_slots: i64,
    reads: i64,
    cordoned: bool,
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
            lease_end: ServerTime::from_micros(row.lease_end),
            pool: row.pool,
            slots: column("slots").count(row.slots)?,
            free_slots: column("free_slots").count(row.free_slots)?,
            reads: column("reads").count(row.reads)?,
            cordoned: row.cordoned,
        })
    }
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
