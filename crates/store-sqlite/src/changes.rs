//! What was decided, as writes: each with what has to be true of its row before, counted, and with the audit events that
//! it makes true.

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    digest::{Digest, Salt},
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
    limits::LimitsAsked,
};
use mayfly_dispatch::{
    message::{ExecutorFacts, Opened},
    record::{AttemptRecord, Change, QueueRecord, SessionRecord},
};
use mayfly_store::error::StoreError;
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    audit::{self, About},
    columns::{Column, json},
    database::query,
    executors,
    ledger::session_end_word,
    orphans,
};

mod ends;

/// Writes changes in their order, as part of a transaction.
pub(crate) struct Writer<'c> {
    pub(crate) connection: &'c mut SqliteConnection,
    /// Which row of the queues is meant.
    pub(crate) queue: &'c str,
    pub(crate) now: DateTime<Utc>,
}

/// What the audit events of a job are made of.
struct JobFacts {
    tenant: TenantId,
    attempts: u32,
    image_digest: Digest,
    policy_version: Digest,
    asked: LimitsAsked,
}

impl Writer<'_> {
    pub(crate) async fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        for change in changes {
            self.change(change).await?;
        }
        Ok(())
    }

    async fn change(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Dispatched(record) => self.dispatched(record).await,
            Change::Published {
                attempt,
                publication,
                at,
            } => {
                let (id, at) = (attempt.as_uuid(), at.as_micros());
                let done = sqlx::query!(
                    "/* published */
                     UPDATE attempts SET publication = ?2, published_at = ?3, confirmed = 0
                      WHERE attempt_id = ?1 AND state = 'dispatched' AND publication < ?2",
                    id,
                    publication,
                    at
                );
                let done = done.execute(&mut *self.connection).await;
                one(done, "take the next publication of the attempt")
            }
            Change::PublicationConfirmed { attempt, publication } => {
                let id = attempt.as_uuid();
                let done = sqlx::query!(
                    "/* publication_confirmed */
                     UPDATE attempts SET confirmed = 1
                      WHERE attempt_id = ?1 AND publication = ?2 AND state <> 'ended'",
                    id,
                    publication
                );
                one(
                    done.execute(&mut *self.connection).await,
                    "note the confirm of the attempt",
                )
            }
            Change::CancelRequested { job } => {
                let id = job.as_uuid();
                let done = sqlx::query!(
                    "/* cancel_requested */
                     UPDATE jobs SET state = 'cancel_requested' WHERE job_id = ? AND state = 'started'",
                    id
                );
                one(done.execute(&mut *self.connection).await, "request the job's end")?;
                let tenant = self.job(*job).await?.tenant;
                self.audit(tenant, Some(*job), None, Fact::CancelRequested).await
            }
            Change::JobEnded { job, outcome } => {
                let tenant = self.job(*job).await?.tenant;
                self.end_job(tenant, *job, None, outcome).await
            }
            Change::SessionOpened { record, opened } => self.session_opened(record, opened).await,
            Change::EventsProcessed { session, processed } => {
                let (id, processed) = (session.as_uuid(), column_number(*processed));
                let done = sqlx::query!(
                    "/* events_processed */
                     UPDATE sessions SET processed = ?2 WHERE session_id = ?1 AND processed < ?2",
                    id,
                    processed
                );
                one(
                    done.execute(&mut *self.connection).await,
                    "note the session's processed events",
                )
            }
            Change::LeaseMoved {
                session,
                lease_end,
                free_slots,
            } => {
                let (id, end) = (session.as_uuid(), lease_end.as_micros());
                let done = sqlx::query!(
                    "/* lease_moved */
                     UPDATE sessions SET lease_end = ?2, free_slots = coalesce(?3, free_slots)
                      WHERE session_id = ?1 AND ended IS NULL AND lease_end <= ?2",
                    id,
                    end,
                    free_slots
                );
                one(
                    done.execute(&mut *self.connection).await,
                    "move the session's lease",
                )
            }
            Change::Images { session, images } => {
                let (id, images) = (session.as_uuid(), json(images));
                let done = sqlx::query!(
                    "/* images */ UPDATE sessions SET images = ?2 WHERE session_id = ?1 AND ended IS NULL",
                    id,
                    images
                );
                one(
                    done.execute(&mut *self.connection).await,
                    "note the session's images",
                )
            }
            Change::SelfTested {
                session,
                executor,
                test,
            } => {
                executors::note_self_test(self.connection, *session, test).await?;
                let (executor, session, test) = (*executor, *session, test.clone());
                let fact = Fact::SelfTested {
                    executor,
                    session,
                    test,
                };
                self.audit(TenantId::LOCAL, None, None, fact).await
            }
            Change::SessionEnded {
                session,
                executor,
                end,
            } => {
                let (id, how, at) = (
                    session.as_uuid(),
                    session_end_word(*end),
                    self.now.timestamp_micros(),
                );
                let done = sqlx::query!(
                    "/* session_ended */
                     UPDATE sessions SET ended = ?2, ended_at = ?3 WHERE session_id = ?1 AND ended IS NULL",
                    id,
                    how,
                    at
                );
                one(done.execute(&mut *self.connection).await, "end the session")?;
                let fact = Fact::SessionEnded {
                    executor: *executor,
                    session: *session,
                    why: how.to_owned(),
                };
                self.audit(TenantId::LOCAL, None, None, fact).await
            }
            Change::Started {
                attempt,
                job,
                session,
                executor,
                publication,
            } => {
                self.started(*attempt, *job, (*session, *executor), *publication)
                    .await
            }
            Change::AttemptEnded {
                attempt,
                job,
                how,
                then,
            } => self.attempt_ended(*attempt, *job, how, then).await,
            Change::Superseded {
                attempt,
                job,
                session,
                state,
                cause,
            } => {
                let tenant = self.tenant_of(*job).await?;
                let fact = Fact::ResultSuperseded {
                    session: *session,
                    state: *state,
                    cause: *cause,
                };
                self.audit(tenant, *job, Some(*attempt), fact).await
            }
            Change::Contradicted {
                attempt,
                job,
                session,
                contradictions,
            } => {
                let tenant = self.tenant_of(*job).await?;
                let fact = Fact::RunContradicted {
                    session: *session,
                    contradictions: contradictions.clone(),
                };
                self.audit(tenant, *job, Some(*attempt), fact).await
            }
            Change::DeadLettered { attempt, times } => {
                let id = attempt.as_uuid();
                let done = sqlx::query!(
                    "/* dead_lettered */
                     UPDATE attempts SET dead_letters = ?2, confirmed = 0
                      WHERE attempt_id = ?1 AND state = 'dispatched'",
                    id,
                    times
                );
                one(
                    done.execute(&mut *self.connection).await,
                    "note the attempt's dead letter",
                )
            }
            Change::Adopted {
                job,
                attempt,
                pool,
                published_at,
            } => orphans::adopted(self.connection, (*job, *attempt), pool, *published_at).await,
            Change::Queue(record) => self.queue(record).await,
        }
    }

    /// Whose a fact is that may be about no job.
    async fn tenant_of(&mut self, job: Option<JobId>) -> Result<TenantId, StoreError> {
        match job {
            Some(job) => Ok(self.job(job).await?.tenant),
            None => Ok(TenantId::LOCAL),
        }
    }

    async fn dispatched(&mut self, record: &AttemptRecord) -> Result<(), StoreError> {
        let (attempt, job, at) = (
            record.attempt.as_uuid(),
            record.job.as_uuid(),
            record.published_at.as_micros(),
        );
        let done = sqlx::query!(
            "/* dispatched */
             UPDATE jobs SET state = 'dispatched', attempts = ?2, current_attempt = ?3
              WHERE job_id = ?1 AND state = 'queued' AND attempts = ?2 - 1",
            job,
            record.number,
            attempt
        );
        one(done.execute(&mut *self.connection).await, "dispatch the job")?;
        let done = sqlx::query!(
            "/* dispatched */
             INSERT INTO attempts (attempt_id, job_id, number, pool, state, publication, published_at)
             SELECT ?1, job_id, ?3, pool, 'dispatched', ?4, ?5 FROM jobs WHERE job_id = ?2",
            attempt,
            job,
            record.number,
            record.publication,
            at
        );
        one(done.execute(&mut *self.connection).await, "make the attempt")?;
        let tenant = self.job(record.job).await?.tenant;
        let fact = Fact::AttemptDispatched {
            number: record.number,
        };
        self.audit(tenant, Some(record.job), Some(record.attempt), fact)
            .await
    }

    async fn session_opened(&mut self, record: &SessionRecord, opened: &Opened) -> Result<(), StoreError> {
        let (session, executor) = (record.session.as_uuid(), record.executor.as_uuid());
        let (processed, lease_end) = (column_number(record.processed), record.lease_end.as_micros());
        let images = opened.facts.images.as_ref().map(json);
        let facts = ExecutorFacts {
            images: None,
            ..opened.facts.clone()
        };
        let (facts, at) = (json(&facts), self.now.timestamp_micros());
        let done = sqlx::query!(
            "/* session_opened */
             INSERT INTO sessions (session_id, executor_id, pool, processed, lease_end, slots, free_slots, facts,
                                   opened_at, reads, images)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            session,
            executor,
            record.pool,
            processed,
            lease_end,
            record.slots,
            record.free_slots,
            facts,
            at,
            record.reads,
            images
        );
        one(done.execute(&mut *self.connection).await, "open the session")?;
        let fact = Fact::SessionOpened {
            executor: record.executor,
            session: record.session,
        };
        self.audit(TenantId::LOCAL, None, None, fact).await
    }

    async fn started(
        &mut self,
        attempt: AttemptId,
        job: JobId,
        (session, executor): (SessionId, ExecutorId),
        publication: u32,
    ) -> Result<(), StoreError> {
        let at = self.now.timestamp_micros();
        let (attempt_id, job_id) = (attempt.as_uuid(), job.as_uuid());
        let (session_id, executor_id) = (session.as_uuid(), executor.as_uuid());
        let done = sqlx::query!(
            "/* started */
             UPDATE attempts SET state = 'started', session_id = ?2, executor_id = ?3, started_at = ?4
              WHERE attempt_id = ?1 AND state = 'dispatched'",
            attempt_id,
            session_id,
            executor_id,
            at
        );
        one(done.execute(&mut *self.connection).await, "start the attempt")?;
        let done = sqlx::query!(
            "/* started */
             UPDATE jobs SET state = 'started' WHERE job_id = ? AND state = 'dispatched' AND current_attempt = ?",
            job_id,
            attempt_id
        );
        one(done.execute(&mut *self.connection).await, "start the job")?;
        let tenant = self.job(job).await?.tenant;
        self.audit(
            tenant,
            Some(job),
            Some(attempt),
            Fact::RunStarted {
                executor,
                session,
                publication,
            },
        )
        .await
    }

    async fn queue(&mut self, record: &QueueRecord) -> Result<(), StoreError> {
        let (epoch, sent) = (column_number(record.epoch), column_number(record.ticks_sent));
        let (at, processed) = (
            record.last_tick_at.as_micros(),
            column_number(record.ticks_processed),
        );
        let done = sqlx::query!(
            "/* queue */
             INSERT INTO queues (queue, epoch, ticks_sent, last_tick_at, ticks_processed)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (queue) DO UPDATE
                SET epoch = excluded.epoch, ticks_sent = excluded.ticks_sent, last_tick_at = excluded.last_tick_at,
                    ticks_processed = excluded.ticks_processed",
            self.queue,
            epoch,
            sent,
            at,
            processed
        );
        one(
            done.execute(&mut *self.connection).await,
            "note the queue's ticks",
        )
    }

    async fn job(&mut self, job: JobId) -> Result<JobFacts, StoreError> {
        let id = job.as_uuid();
        let row = sqlx::query!(
            r#"/* job */
             SELECT tenant_id AS "tenant_id!: Uuid", attempts, image_digest, policy_version, asked
               FROM jobs WHERE job_id = ?"#,
            id
        )
        .fetch_optional(&mut *self.connection)
        .await
        .map_err(query("find the job"))?
        .ok_or(StoreError::NoSuchJob(job))?;
        let column = |name| Column("jobs", name);
        Ok(JobFacts {
            tenant: TenantId::from_uuid(row.tenant_id),
            attempts: column("attempts").count(row.attempts)?,
            image_digest: column("image_digest").parse(&row.image_digest)?,
            policy_version: column("policy_version").parse(&row.policy_version)?,
            asked: column("asked").json(&row.asked)?,
        })
    }

    /// What the job's commitments are made under.
    async fn salt(&mut self, job: JobId) -> Result<Salt, StoreError> {
        let id = job.as_uuid();
        let column = Column("job_contents", "salt");
        let salt = sqlx::query_scalar!("/* salt */ SELECT salt FROM job_contents WHERE job_id = ?", id)
            .fetch_optional(&mut *self.connection)
            .await
            .map_err(query("find the job's salt"))?
            .ok_or_else(|| column.corrupt(format!("job {job} has none")))?;
        let bytes = salt
            .try_into()
            .map_err(|_| column.corrupt("it is not 32 bytes long"))?;
        Ok(Salt::from_bytes(bytes))
    }

    async fn audit(
        &mut self,
        tenant: TenantId,
        job: Option<JobId>,
        attempt: Option<AttemptId>,
        fact: Fact,
    ) -> Result<(), StoreError> {
        audit::record(self.connection, About { tenant, job, attempt }, fact, self.now).await
    }
}

/// A number of the domain as a column's. Counts of events and ticks stay far below 2^63.
fn column_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A write that must change one row. The records that it was decided on were read in the same transaction, which holds
/// the lock, so that anything else is a fault of ours; it rolls the transaction back.
pub(crate) fn one(
    done: Result<sqlx::sqlite::SqliteQueryResult, sqlx::Error>,
    doing: &'static str,
) -> Result<(), StoreError> {
    let done = done.map_err(query(doing))?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    let source = format!(
        "{} rows were as the change takes for granted, instead of one",
        done.rows_affected()
    );
    Err(StoreError::Refused {
        doing,
        source: source.into(),
    })
}
