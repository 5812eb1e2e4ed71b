//! Jobs of a pool whose process is proven dead. What it had started ends with its session, as always; here stands what
//! becomes of the jobs that have not started. Whether it is dead, and its containers gone, is for the caller to prove.

use mayfly_core::{
    id::{AttemptId, JobId},
    outcome::{Cause, EndState},
    state::JobState,
};

use crate::{
    ledger::{Context, Ledger},
    record::{AttemptState, Change, JobRecord},
    scheduler::withdraw,
};

#[cfg(test)]
mod tests;

/// Ends a job that has not started, since whoever waited for it is gone: nobody wants its outcome any more, and it must
/// not run by surprise some day. Load the job and its current attempt. Nothing changes if it has started or is over.
#[must_use]
pub fn end(job: JobId, ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let mut changes = Vec::new();
    if ledger.job(job).is_some_and(has_not_started) {
        withdraw(
            job,
            EndState::Canceled,
            Cause::SubmitterGone,
            ledger,
            context,
            &mut changes,
        );
    }
    changes
}

/// Moves a job that has not started to the pool of a process that takes it over. Load the job and its current attempt.
/// An attempt that stands is due for publication there, as the same attempt with the next number: what was published of
/// it is gone with the queue of the old pool. Nothing changes if the job has started or is over.
#[must_use]
pub fn adopt(job: JobId, pool: &str, ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let mut changes = Vec::new();
    if ledger.job(job).is_some_and(has_not_started) {
        let change = Change::Adopted {
            job,
            attempt: unstarted(job, ledger),
            pool: pool.to_owned(),
            published_at: context.now.before(context.timing.publish_again),
        };
        ledger.decide(change, &mut changes);
    }
    changes
}

const fn has_not_started(job: &JobRecord) -> bool {
    matches!(job.state, JobState::Queued | JobState::Dispatched)
}

fn unstarted(job: JobId, ledger: &Ledger) -> Option<AttemptId> {
    let current = ledger.job(job)?.current?;
    let record = ledger.attempt(current)?;
    (record.state == AttemptState::Dispatched).then_some(current)
}
