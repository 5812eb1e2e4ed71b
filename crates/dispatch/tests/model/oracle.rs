//! What must hold, looked at after every step.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_core::{
    id::{AttemptId, JobId, SessionId},
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::{
    ledger::Ledger,
    record::{AttemptEnd, AttemptState, Change, JobNext},
};

/// Looks on.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    violation: Option<String>,
    starts: BTreeMap<AttemptId, u32>,
    starts_of_job: BTreeMap<JobId, u32>,
    code_starts: BTreeMap<AttemptId, u32>,
    ends: BTreeMap<JobId, EndState>,
    cancel_requested: BTreeSet<JobId>,
    /// Who ran each run.
    runs: BTreeMap<u64, (AttemptId, SessionId)>,
    recorded: BTreeSet<(AttemptId, SessionId)>,
    contradicted: BTreeSet<(AttemptId, SessionId)>,
    /// Publications that came back as dead letters.
    pub(crate) dead: BTreeSet<(AttemptId, u32)>,
    /// Sessions of machines whose clock stood still: their runs may overlap with their successors'.
    pub(crate) paused: BTreeSet<SessionId>,
}

impl Oracle {
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn demand(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what());
        }
    }

    /// Looks at a change before it is made to the database's records.
    pub(crate) fn change(
        &mut self,
        change: &Change,
        before: &Ledger,
        lease_is_live: impl Fn(SessionId) -> bool,
    ) {
        match change {
            Change::Started {
                attempt,
                job,
                session,
                ..
            } => self.started(*attempt, *job, *session, before),
            Change::AttemptEnded {
                attempt,
                job,
                how,
                then,
            } => {
                self.attempt_ended(*attempt, how, before, lease_is_live);
                self.demand(!self.ends.contains_key(job), || {
                    format!("{job} had ended when {attempt} ended")
                });
                if let JobNext::Ended(outcome) = then {
                    self.job_ended(*job, outcome.state);
                }
            }
            Change::JobEnded { job, outcome } => self.job_ended(*job, outcome.state),
            Change::CancelRequested { job } => {
                self.cancel_requested.insert(*job);
            }
            Change::Superseded { attempt, session, .. } => self.recorded(*attempt, *session),
            Change::Contradicted { attempt, session, .. } => self.contradicted(*attempt, *session),
            Change::PublicationConfirmed { attempt, publication } => {
                let dead = self.dead.contains(&(*attempt, *publication));
                self.demand(!dead, || {
                    format!("the dead publication {publication} of {attempt} counts as confirmed")
                });
            }
            Change::Dispatched(_)
            | Change::Published { .. }
            | Change::SessionOpened { .. }
            | Change::EventsProcessed { .. }
            | Change::LeaseMoved { .. }
            | Change::Images { .. }
            | Change::SelfTested { .. }
            | Change::SessionEnded { .. }
            | Change::DeadLettered { .. }
            | Change::Adopted { .. }
            | Change::Queue(_) => {}
        }
    }

    fn started(&mut self, attempt: AttemptId, job: JobId, session: SessionId, before: &Ledger) {
        let starts = self.starts.entry(attempt).or_default();
        *starts += 1;
        let once = *starts == 1;
        self.demand(once, || format!("{attempt} started twice, now in {session}"));
        let of_job = self.starts_of_job.entry(job).or_default();
        *of_job += 1;
        let most = before.job(job).map_or(0, |job| job.retry.max_attempts);
        let within = *of_job <= most;
        self.demand(within, || format!("{job} started more than {most} times"));
        let state = before.job(job).map(|job| job.state);
        self.demand(state == Some(JobState::Dispatched), || {
            format!("{job} started while {state:?}")
        });
    }

    fn attempt_ended(
        &mut self,
        attempt: AttemptId,
        how: &AttemptEnd,
        before: &Ledger,
        lease_is_live: impl Fn(SessionId) -> bool,
    ) {
        let holder = before.attempt(attempt).and_then(|record| record.state.holder());
        match how {
            AttemptEnd::Reported { session, report, .. } => {
                self.recorded(attempt, *session);
                self.demand(holder == Some(*session), || {
                    format!("{attempt} ended by {session}, held by {holder:?}")
                });
                if let Some(run) = report.usage.map(|usage| usage.wall_us) {
                    let ran = self.runs.get(&run).copied();
                    self.demand(ran == holder.map(|holder| (attempt, holder)), || {
                        format!("the result of {attempt}, held by {holder:?}, came from {ran:?}")
                    });
                }
            }
            AttemptEnd::Lost {
                session,
                cause: Cause::ExecutorLost,
                ..
            } => {
                let healthy = lease_is_live(*session) && !self.paused.contains(session);
                self.demand(!healthy, || {
                    format!("{attempt} was lost, and the lease of {session} stands")
                });
            }
            AttemptEnd::Lost { .. } | AttemptEnd::NeverStarted { .. } => {}
        }
    }

    fn job_ended(&mut self, job: JobId, end: EndState) {
        let before = self.ends.insert(job, end);
        self.demand(before.is_none(), || {
            format!("{job} ended as {before:?} and again as {end:?}")
        });
        let canceled = self.cancel_requested.contains(&job);
        self.demand(!canceled || end == EndState::Canceled, || {
            format!("{job} was to be canceled and ended as {end:?}")
        });
    }

    /// A session's result of an attempt is on record once: as the attempt's, or as superseded.
    fn recorded(&mut self, attempt: AttemptId, session: SessionId) {
        let first = self.recorded.insert((attempt, session));
        self.demand(first, || {
            format!("the result of {attempt} by {session} is on record twice")
        });
    }

    /// A report is contradicted once, by the session that made it, and after it.
    fn contradicted(&mut self, attempt: AttemptId, session: SessionId) {
        let reported = self.recorded.contains(&(attempt, session));
        self.demand(reported, || {
            format!("{session} contradicts a report of {attempt} that it has not made")
        });
        let first = self.contradicted.insert((attempt, session));
        self.demand(first, || {
            format!("the report of {attempt} by {session} is contradicted twice")
        });
    }

    /// The first instruction of an attempt's code.
    pub(crate) fn code_starts(&mut self, run: u64, attempt: AttemptId, session: SessionId, records: &Ledger) {
        self.runs.insert(run, (attempt, session));
        let starts = self.code_starts.entry(attempt).or_default();
        *starts += 1;
        let once = *starts == 1;
        self.demand(once, || {
            format!("the code of {attempt} ran twice, now in {session}")
        });
        let state = records.attempt(attempt).map(|record| record.state);
        let held = state == Some(AttemptState::Started { session }) || self.paused.contains(&session);
        self.demand(held, || {
            format!("{session} runs the code of {attempt}, which is {state:?}")
        });
    }

    pub(crate) fn ends(&self) -> &BTreeMap<JobId, EndState> {
        &self.ends
    }
}
