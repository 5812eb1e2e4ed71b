//! The records that a decision is made on: a part of what a store holds, loaded for one transaction.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_core::{
    artifact::Artifacts,
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, SessionId},
    outcome::{EndState, Outcome},
    run::UploadedOutput,
    state::{IllegalMove, JobMove, JobState},
};

use crate::{
    record::{
        AttemptEnd, AttemptMove, AttemptRecord, Change, IllegalAttemptMove, JobNext, JobRecord, QueueRecord,
        SessionRecord, SessionState,
    },
    rules::{Rule, Rules},
    time::ServerTime,
    timing::Timing,
    token::TokenKey,
};

#[cfg(test)]
mod tests;

/// Records, by their ids.
///
/// Each decision changes them as it goes, so that several can be made in one transaction; and it says what it changed,
/// for the store to write. [`Ledger::apply`] defines what each change means.
#[derive(Debug, Clone)]
pub struct Ledger {
    sessions: BTreeMap<SessionId, SessionRecord>,
    attempts: BTreeMap<AttemptId, AttemptRecord>,
    jobs: BTreeMap<JobId, JobRecord>,
    cordoned: BTreeSet<ExecutorId>,
    /// What was left on the server of an attempt's output: its digest and its length.
    uploads: BTreeMap<AttemptId, (Digest, u64)>,
    /// What was left there of its files, by their numbers.
    files: BTreeMap<AttemptId, BTreeMap<u32, Pieces>>,
    queue: QueueRecord,
}

/// What was left on the server of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// How many pieces.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What a decision takes into account beside the records.
#[derive(Debug, Clone)]
pub struct Context {
    /// Now, by the database's clock.
    pub now: ServerTime,
    /// The times in force.
    pub timing: Timing,
    /// What result tokens are checked with.
    pub key: TokenKey,
    /// Random bits, drawn anew for each transaction. They spread the waits of attempts that are tried again.
    pub random: u64,
    rules: Rules,
}

/// A change that can't be made to the records as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// There is no such row, or not in the state that the change takes for granted.
    #[error("there is no {0} to which this change could be made")]
    NoRow(&'static str),
    /// The attempt can't make that move.
    #[error(transparent)]
    Attempt(#[from] IllegalAttemptMove),
    /// The job can't make that move.
    #[error(transparent)]
    Job(#[from] IllegalMove),
}

impl Context {
    /// The context of a transaction.
    #[must_use]
    pub const fn new(now: ServerTime, timing: Timing, key: TokenKey, random: u64) -> Self {
        Self {
            now,
            timing,
            key,
            random,
            rules: Rules::all(),
        }
    }

    /// The same, with some rules dropped.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    pub(crate) const fn hold(&self, rule: Rule) -> bool {
        self.rules.hold(rule)
    }
}

impl Ledger {
    /// Nothing but the row of the queue.
    #[must_use]
    pub const fn new(queue: QueueRecord) -> Self {
        Self {
            sessions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            uploads: BTreeMap::new(),
            files: BTreeMap::new(),
            queue,
        }
    }

    /// Adds a session, as it was loaded.
    pub fn put_session(&mut self, record: SessionRecord) {
        self.sessions.insert(record.session, record);
    }

    /// Adds an attempt, as it was loaded.
    pub fn put_attempt(&mut self, record: AttemptRecord) {
        self.attempts.insert(record.attempt, record);
    }

    /// Adds a job, as it was loaded or accepted.
    pub fn put_job(&mut self, record: JobRecord) {
        self.jobs.insert(record.job, record);
    }

    /// Takes note that an executor is cordoned, as it was loaded.
    pub fn put_cordoned(&mut self, executor: ExecutorId) {
        self.cordoned.insert(executor);
    }

    /// Whether an executor is to take nothing new.
    #[must_use]
    pub fn is_cordoned(&self, executor: ExecutorId) -> bool {
        self.cordoned.contains(&executor)
    }

    /// Takes note of what was left on the server of an attempt's output, as it was loaded.
    pub fn put_upload(&mut self, attempt: AttemptId, digest: Digest, bytes: u64) {
        self.uploads.insert(attempt, (digest, bytes));
    }

    /// Whether that is what a report of the attempt names.
    pub(crate) fn has_upload(&self, attempt: AttemptId, named: &UploadedOutput) -> bool {
        self.uploads.get(&attempt) == Some(&(named.digest, named.bytes()))
    }

    /// Takes note of what was left on the server of a file that an attempt's run has made, as it was loaded.
    pub fn put_file(&mut self, attempt: AttemptId, number: u32, pieces: Pieces) {
        self.files.entry(attempt).or_default().insert(number, pieces);
    }

    /// Whether all that a report of the attempt names is there. An empty file has no pieces.
    pub(crate) fn has_files(&self, attempt: AttemptId, named: &Artifacts) -> bool {
        let there = self.files.get(&attempt);
        named.files.iter().filter(|file| file.bytes > 0).all(|file| {
            let whole = Pieces {
                count: file.pieces(),
                bytes: file.bytes,
            };
            there.and_then(|files| files.get(&file.number)) == Some(&whole)
        })
    }

    /// A session.
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<&SessionRecord> {
        self.sessions.get(&session)
    }

    /// An attempt.
    #[must_use]
    pub fn attempt(&self, attempt: AttemptId) -> Option<&AttemptRecord> {
        self.attempts.get(&attempt)
    }

    /// A job.
    #[must_use]
    pub fn job(&self, job: JobId) -> Option<&JobRecord> {
        self.jobs.get(&job)
    }

    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &QueueRecord {
        &self.queue
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionRecord> {
        self.sessions.values()
    }

    /// All attempts.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptRecord> {
        self.attempts.values()
    }

    /// All jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values()
    }

    /// Attempts that a session has started and that are not over.
    pub fn held_by(&self, session: SessionId) -> impl Iterator<Item = &AttemptRecord> {
        self.attempts
            .values()
            .filter(move |attempt| attempt.state.holder() == Some(session))
    }

    /// Sessions of an executor that are not over. There is one at most.
    pub fn live_sessions_of(&self, executor: ExecutorId) -> impl Iterator<Item = &SessionRecord> {
        self.sessions
            .values()
            .filter(move |session| session.executor == executor && session.is_live())
    }

    /// Makes one change.
    ///
    /// # Errors
    /// The records are not as the change takes for granted. Nothing is changed then.
    pub fn apply(&mut self, change: &Change) -> Result<(), ApplyError> {
        match change {
            Change::Dispatched(record) => self.apply_dispatched(record),
            Change::Published {
                attempt,
                publication,
                at,
            } => {
                let record = self.unstarted(*attempt)?;
                if record.publication >= *publication {
                    return Err(ApplyError::NoRow("attempt"));
                }
                (record.publication, record.published_at, record.confirmed) = (*publication, *at, false);
                Ok(())
            }
            Change::PublicationConfirmed { attempt, publication } => {
                let record = self
                    .attempts
                    .get_mut(attempt)
                    .ok_or(ApplyError::NoRow("attempt"))?;
                if record.publication != *publication {
                    return Err(ApplyError::NoRow("attempt"));
                }
                record.confirmed = true;
                Ok(())
            }
            Change::CancelRequested { job } => self.move_job(*job, JobMove::Cancel),
            Change::JobEnded { job, outcome } => self.end_job(*job, outcome),
            Change::SessionOpened { record, .. } => {
                if self.sessions.contains_key(&record.session) {
                    return Err(ApplyError::NoRow("new session"));
                }
                self.put_session(record.clone());
                Ok(())
            }
            Change::EventsProcessed { session, processed } => {
                self.sessions
                    .get_mut(session)
                    .ok_or(ApplyError::NoRow("session"))?
                    .processed = *processed;
                Ok(())
            }
            Change::LeaseMoved {
                session,
                lease_end,
                free_slots,
            } => {
                let record = self.live(*session)?;
                record.lease_end = *lease_end;
                record.free_slots = free_slots.unwrap_or(record.free_slots);
                Ok(())
            }
            Change::Images { session, .. } | Change::SelfTested { session, .. } => {
                self.live(*session).map(|_| ())
            }
            Change::SessionEnded { session, end, .. } => {
                self.live(*session)?.state = SessionState::Ended(*end);
                Ok(())
            }
            Change::Started {
                attempt,
                job,
                session,
                ..
            } => {
                let record = self.unstarted(*attempt)?;
                let state = record.state.after(AttemptMove::Start { session: *session })?;
                self.move_job(*job, JobMove::Start)?;
                self.unstarted(*attempt)?.state = state;
                Ok(())
            }
            Change::AttemptEnded {
                attempt,
                job,
                how,
                then,
            } => self.apply_ended(*attempt, *job, how, then),
            Change::Superseded { .. } | Change::Contradicted { .. } => Ok(()),
            Change::DeadLettered { attempt, times } => {
                let record = self.unstarted(*attempt)?;
                (record.dead_letters, record.confirmed) = (*times, false);
                Ok(())
            }
            Change::Adopted {
                job,
                attempt,
                published_at,
                ..
            } => {
                let record = self.jobs.get(job).ok_or(ApplyError::NoRow("job"))?;
                if !matches!(record.state, JobState::Queued | JobState::Dispatched) {
                    return Err(ApplyError::NoRow("job that has not started"));
                }
                if let Some(attempt) = attempt {
                    let record = self.unstarted(*attempt)?;
                    (record.published_at, record.confirmed) = (*published_at, false);
                }
                Ok(())
            }
            Change::Queue(queue) => {
                self.queue = *queue;
                Ok(())
            }
        }
    }

    /// Makes a change that was decided on these very records, and adds it to the list.
    pub(crate) fn decide(&mut self, change: Change, changes: &mut Vec<Change>) {
        self.apply(&change)
            .expect("the change was decided on the records that it is made to");
        changes.push(change);
    }

    fn live(&mut self, session: SessionId) -> Result<&mut SessionRecord, ApplyError> {
        let record = self.sessions.get_mut(&session).filter(|record| record.is_live());
        record.ok_or(ApplyError::NoRow("live session"))
    }

    fn unstarted(&mut self, attempt: AttemptId) -> Result<&mut AttemptRecord, ApplyError> {
        use crate::record::AttemptState::Dispatched;
        let record = self
            .attempts
            .get_mut(&attempt)
            .filter(|record| record.state == Dispatched);
        record.ok_or(ApplyError::NoRow("unstarted attempt"))
    }

    fn move_job(&mut self, job: JobId, next: JobMove) -> Result<(), ApplyError> {
        let record = self.jobs.get_mut(&job).ok_or(ApplyError::NoRow("job"))?;
        record.state = record.state.after(next)?;
        Ok(())
    }

    fn end_job(&mut self, job: JobId, outcome: &Outcome) -> Result<(), ApplyError> {
        let from = self.jobs.get(&job).ok_or(ApplyError::NoRow("job"))?.state;
        self.move_job(job, ending(from, outcome))
    }

    fn apply_dispatched(&mut self, attempt: &AttemptRecord) -> Result<(), ApplyError> {
        if self.attempts.contains_key(&attempt.attempt) {
            return Err(ApplyError::NoRow("new attempt"));
        }
        self.move_job(attempt.job, JobMove::Dispatch)?;
        let job = self.jobs.get_mut(&attempt.job).ok_or(ApplyError::NoRow("job"))?;
        (job.attempts, job.current) = (attempt.number, Some(attempt.attempt));
        self.put_attempt(attempt.clone());
        Ok(())
    }

    fn apply_ended(
        &mut self,
        attempt: AttemptId,
        job: JobId,
        how: &AttemptEnd,
        then: &JobNext,
    ) -> Result<(), ApplyError> {
        let attempt_move = match how {
            AttemptEnd::Reported { session, report, .. } => AttemptMove::End {
                session: *session,
                cause: report.outcome.cause,
            },
            AttemptEnd::Lost { session, cause, .. } => AttemptMove::End {
                session: *session,
                cause: *cause,
            },
            AttemptEnd::NeverStarted { cause } => AttemptMove::Withdraw { cause: *cause },
        };
        let record = self.attempts.get(&attempt).ok_or(ApplyError::NoRow("attempt"))?;
        let state = record.state.after(attempt_move)?;
        match then {
            JobNext::Ended(outcome) => self.end_job(job, outcome)?,
            JobNext::Queued { ready_at } => {
                self.move_job(job, JobMove::Retry)?;
                self.jobs.get_mut(&job).ok_or(ApplyError::NoRow("job"))?.ready_at = *ready_at;
            }
        }
        if let Some(record) = self.attempts.get_mut(&attempt) {
            record.state = state;
        }
        Ok(())
    }
}

/// The move by which a job that stands there ends so.
fn ending(from: JobState, outcome: &Outcome) -> JobMove {
    match (from, outcome.state) {
        (JobState::Queued | JobState::Dispatched, EndState::Canceled) => JobMove::Cancel,
        (_, EndState::Expired) => JobMove::Expire,
        (_, state) => JobMove::End(state),
    }
}
