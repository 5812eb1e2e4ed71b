//! What was decided, as the moves of rows that it comes to: however many changes a row sees in one transaction, it is
//! written once, from what was read to what stands in the end. So a batch costs a few statements and not one for each
//! change.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::{Fact, Finished, FinishedContext},
    digest::{Digest, Salt},
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    outcome::Outcome,
    run::RunReport,
    self_test::SelfTest,
    state::JobState,
};
use mayfly_dispatch::{
    ledger::Ledger,
    message::Opened,
    record::{AttemptEnd, AttemptState, Change, JobNext, JobRecord, QueueRecord},
    time::ServerTime,
};
use mayfly_store::error::StoreError;
use sqlx::PgConnection;

use crate::{
    audit::Events,
    columns::Column,
    database::{query, refused},
    ledger::{Loaded, session_end_word},
    writes,
};

const DOING: &str = "write what was decided";

/// What was decided on records.
pub(crate) struct Decided<'a> {
    /// As they were read.
    pub(crate) before: &'a Loaded,
    /// As they are with the changes.
    pub(crate) after: &'a Ledger,
    /// The changes, in their order.
    pub(crate) changes: &'a [Change],
    /// Which row of the queues is meant.
    pub(crate) queue: &'a str,
    pub(crate) now: DateTime<Utc>,
}

/// The rows that move.
pub(crate) struct Moves<'a> {
    pub(crate) queue: Option<QueueRecord>,
    pub(crate) opened: BTreeMap<SessionId, &'a Opened>,
    /// What images sessions have now.
    pub(crate) images: BTreeMap<SessionId, &'a [Digest]>,
    /// What sessions' newest self-tests came to.
    pub(crate) self_tests: BTreeMap<SessionId, &'a SelfTest>,
    /// Sessions that were there.
    pub(crate) sessions: BTreeSet<SessionId>,
    pub(crate) made: Vec<AttemptId>,
    /// Attempts that were there.
    pub(crate) attempts: BTreeMap<AttemptId, AttemptMove<'a>>,
    pub(crate) jobs: BTreeMap<JobId, JobMove<'a>>,
    pub(crate) results: Vec<(TenantId, AttemptId, &'a RunReport)>,
    /// Jobs of a batch that end, in the order in which they do.
    pub(crate) batch_ends: BTreeMap<(TenantId, BatchId), Vec<JobId>>,
    /// How many attempts of each pool end.
    pub(crate) ends: BTreeMap<&'a str, i64>,
    pub(crate) events: Events,
}

/// What the records don't say of an attempt that moves.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AttemptMove<'a> {
    /// Who has started it now.
    pub(crate) starter: Option<(SessionId, ExecutorId)>,
    /// Its new pool.
    pub(crate) pool: Option<&'a str>,
}

/// What the records don't say of a job that moves.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct JobMove<'a> {
    pub(crate) outcome: Option<&'a Outcome>,
    /// Its new pool.
    pub(crate) pool: Option<&'a str>,
}

impl<'a> Decided<'a> {
    pub(crate) async fn write(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let salts = self.salts(connection).await?;
        let moves = self.moves(&salts)?;
        writes::write(connection, self, &moves).await
    }

    pub(crate) fn job(&self, job: JobId) -> Result<&'a JobRecord, StoreError> {
        self.after.job(job).ok_or_else(|| missing(format!("job {job}")))
    }

    /// The pool of an attempt before the changes.
    pub(crate) fn pool_of(&self, attempt: AttemptId, job: JobId) -> Result<&'a str, StoreError> {
        let row = self.before.attempts.get(&attempt).map(|row| row.pool.as_str());
        let row = row.or_else(|| self.before.jobs.get(&job).map(|row| row.pool.as_str()));
        row.ok_or_else(|| missing(format!("job {job}")))
    }

    /// What the commitments of the jobs are made under that have a report.
    async fn salts(&self, connection: &mut PgConnection) -> Result<BTreeMap<JobId, Salt>, StoreError> {
        let reported = self.changes.iter().filter_map(|change| match change {
            Change::AttemptEnded {
                job,
                how: AttemptEnd::Reported { .. },
                ..
            } => Some(*job),
            _ => None,
        });
        let mut ids = Vec::new();
        let mut tenants = Vec::new();
        for job in reported {
            ids.push(job.as_uuid());
            tenants.push(self.job(job)?.tenant.as_uuid());
        }
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let rows = sqlx::query!(
            "/* salts */
             SELECT c.job_id, c.salt
               FROM unnest($1::uuid[], $2::uuid[]) AS r (tenant_id, job_id)
                    JOIN job_contents c ON c.tenant_id = r.tenant_id AND c.job_id = r.job_id",
            &tenants,
            &ids
        )
        .fetch_all(connection)
        .await
        .map_err(query("find the jobs' salts"))?;
        let column = Column("job_contents", "salt");
        rows.into_iter()
            .map(|row| {
                let bytes = row.salt.try_into();
                let bytes = bytes.map_err(|_| column.corrupt("it is not 32 bytes long"))?;
                Ok((JobId::from_uuid(row.job_id), Salt::from_bytes(bytes)))
            })
            .collect()
    }

    fn moves(&self, salts: &BTreeMap<JobId, Salt>) -> Result<Moves<'a>, StoreError> {
        let mut moves = Moves {
            queue: None,
            opened: BTreeMap::new(),
            images: BTreeMap::new(),
            self_tests: BTreeMap::new(),
            sessions: BTreeSet::new(),
            made: Vec::new(),
            attempts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            results: Vec::new(),
            batch_ends: BTreeMap::new(),
            ends: BTreeMap::new(),
            events: Events::new(self.now),
        };
        for change in self.changes {
            self.add(change, salts, &mut moves)?;
        }
        // Those that are new are written as they stand in the end.
        let opened: Vec<_> = moves.opened.keys().copied().collect();
        for session in opened {
            moves.sessions.remove(&session);
        }
        Ok(moves)
    }

    fn add(
        &self,
        change: &'a Change,
        salts: &BTreeMap<JobId, Salt>,
        moves: &mut Moves<'a>,
    ) -> Result<(), StoreError> {
        match change {
            Change::Dispatched(record) => {
                moves.made.push(record.attempt);
                moves.jobs.entry(record.job).or_default();
                let tenant = self.job(record.job)?.tenant;
                let fact = Fact::AttemptDispatched {
                    number: record.number,
                };
                moves
                    .events
                    .add(tenant, Some(record.job), Some(record.attempt), fact);
            }
            Change::Published { attempt, .. }
            | Change::PublicationConfirmed { attempt, .. }
            | Change::DeadLettered { attempt, .. } => {
                moves.attempts.entry(*attempt).or_default();
            }
            Change::CancelRequested { job } => {
                moves.jobs.entry(*job).or_default();
                let tenant = self.job(*job)?.tenant;
                moves.events.add(tenant, Some(*job), None, Fact::CancelRequested);
            }
            Change::JobEnded { job, outcome } => self.end_job(*job, None, outcome, moves)?,
            Change::SessionOpened { record, opened } => {
                moves.opened.insert(record.session, opened);
                let fact = Fact::SessionOpened {
                    executor: record.executor,
                    session: record.session,
                };
                moves.events.add(TenantId::LOCAL, None, None, fact);
            }
            Change::EventsProcessed { session, .. } | Change::LeaseMoved { session, .. } => {
                moves.sessions.insert(*session);
            }
            Change::Images { session, images } => {
                moves.images.insert(*session, images);
            }
            Change::SelfTested {
                session,
                executor,
                test,
            } => {
                moves.self_tests.insert(*session, test);
                let fact = Fact::SelfTested {
                    executor: *executor,
                    session: *session,
                    test: test.clone(),
                };
                moves.events.add(TenantId::LOCAL, None, None, fact);
            }
            Change::SessionEnded {
                session,
                executor,
                end,
            } => {
                moves.sessions.insert(*session);
                let fact = Fact::SessionEnded {
                    executor: *executor,
                    session: *session,
                    why: session_end_word(*end).to_owned(),
                };
                moves.events.add(TenantId::LOCAL, None, None, fact);
            }
            Change::Started {
                attempt,
                job,
                session,
                executor,
                publication,
            } => {
                moves.sessions.insert(*session);
                moves.attempts.entry(*attempt).or_default().starter = Some((*session, *executor));
                moves.jobs.entry(*job).or_default();
                let fact = Fact::RunStarted {
                    executor: *executor,
                    session: *session,
                    publication: *publication,
                };
                let tenant = self.job(*job)?.tenant;
                moves.events.add(tenant, Some(*job), Some(*attempt), fact);
            }
            Change::AttemptEnded {
                attempt,
                job,
                how,
                then,
            } => self.end_attempt((*attempt, *job), how, then, salts, moves)?,
            Change::Superseded {
                attempt,
                job,
                session,
                state,
                cause,
            } => {
                let fact = Fact::ResultSuperseded {
                    session: *session,
                    state: *state,
                    cause: *cause,
                };
                let tenant = self.tenant_of(*job)?;
                moves.events.add(tenant, *job, Some(*attempt), fact);
            }
            Change::Contradicted {
                attempt,
                job,
                session,
                contradictions,
            } => {
                let fact = Fact::RunContradicted {
                    session: *session,
                    contradictions: contradictions.clone(),
                };
                let tenant = self.tenant_of(*job)?;
                moves.events.add(tenant, *job, Some(*attempt), fact);
            }
            Change::Adopted {
                job, attempt, pool, ..
            } => {
                moves.jobs.entry(*job).or_default().pool = Some(pool);
                if let Some(attempt) = attempt {
                    moves.attempts.entry(*attempt).or_default().pool = Some(pool);
                }
            }
            Change::Queue(record) => moves.queue = Some(*record),
        }
        Ok(())
    }

    /// Whose a fact is that may be about no job.
    fn tenant_of(&self, job: Option<JobId>) -> Result<TenantId, StoreError> {
        job.map_or(Ok(TenantId::LOCAL), |job| Ok(self.job(job)?.tenant))
    }

    fn end_attempt(
        &self,
        (attempt, job): (AttemptId, JobId),
        how: &'a AttemptEnd,
        then: &'a JobNext,
        salts: &BTreeMap<JobId, Salt>,
        moves: &mut Moves<'a>,
    ) -> Result<(), StoreError> {
        let record = self.job(job)?;
        moves.attempts.entry(attempt).or_default();
        *moves.ends.entry(self.pool_of(attempt, job)?).or_default() += 1;
        match how {
            AttemptEnd::Reported {
                session,
                executor,
                report,
            } => {
                moves.sessions.insert(*session);
                moves.results.push((record.tenant, attempt, report));
                let facts = self.before.jobs.get(&job);
                let facts = facts.ok_or_else(|| missing(format!("job {job}")))?;
                let salt = salts.get(&job);
                let salt = salt
                    .ok_or_else(|| Column("job_contents", "salt").corrupt(format!("job {job} has none")))?;
                let context = FinishedContext {
                    executor: *executor,
                    session: *session,
                    image_digest: facts.image_digest,
                    policy_version: facts.policy_version,
                    asked: facts.asked,
                    salt,
                };
                let fact = Fact::RunFinished(Box::new(Finished::new(report, &context)));
                moves.events.add(record.tenant, Some(job), Some(attempt), fact);
            }
            AttemptEnd::Lost { session, cause, .. } => {
                moves.sessions.insert(*session);
                let fact = Fact::AttemptLost {
                    session: *session,
                    cause: *cause,
                };
                moves.events.add(record.tenant, Some(job), Some(attempt), fact);
            }
            // The job's own event says why.
            AttemptEnd::NeverStarted { .. } => {}
        }
        match then {
            JobNext::Ended(outcome) => self.end_job(job, Some(attempt), outcome, moves),
            JobNext::Queued { .. } => {
                moves.jobs.entry(job).or_default();
                let fact = Fact::JobRequeued {
                    attempts: record.attempts,
                };
                moves.events.add(record.tenant, Some(job), Some(attempt), fact);
                Ok(())
            }
        }
    }

    /// The one outcome of a job.
    fn end_job(
        &self,
        job: JobId,
        attempt: Option<AttemptId>,
        outcome: &'a Outcome,
        moves: &mut Moves<'a>,
    ) -> Result<(), StoreError> {
        let tenant = self.job(job)?.tenant;
        moves.jobs.entry(job).or_default().outcome = Some(outcome);
        if let Some(batch) = self.before.jobs.get(&job).and_then(|row| row.batch) {
            moves.batch_ends.entry((tenant, batch)).or_default().push(job);
        }
        let fact = Fact::JobEnded {
            state: outcome.state,
            cause: outcome.cause,
        };
        moves.events.add(tenant, Some(job), attempt, fact);
        Ok(())
    }
}

/// A change about what was not loaded is a fault of ours.
pub(crate) fn missing(what: String) -> StoreError {
    refused(DOING, format!("{what} was not read before"))
}

/// Whether a job has waited for its first start until now: then it may expire.
pub(crate) const fn has_never_started(job: &JobRecord) -> bool {
    match job.state {
        JobState::Queued => job.attempts == 0,
        JobState::Dispatched => job.attempts <= 1,
        JobState::Started | JobState::CancelRequested | JobState::Ended(_) => false,
    }
}

/// Whether an attempt waits for its start.
pub(crate) fn waits(state: AttemptState) -> bool {
    state == AttemptState::Dispatched
}

/// A moment as a column's.
pub(crate) fn at(time: ServerTime) -> DateTime<Utc> {
    time.into()
}
