//! The scheduler's decisions on one job or attempt: its next attempt, when that is published, and how it is withdrawn.
//! Whose job comes next is decided by [`fairness`](crate::fairness).

use std::time::Duration;

use mayfly_core::{
    id::{AttemptId, JobId},
    outcome::{Blame, Cause, EndState, Outcome},
    run::RunReport,
    state::JobState,
};

use crate::{
    ledger::{Context, Ledger},
    record::{AttemptEnd, AttemptRecord, AttemptState, Change, JobNext, JobRecord},
    recorder::end_attempt,
    rules::Rule,
    time::ServerTime,
    timing::Timing,
};

#[cfg(test)]
mod tests;

/// How often a publication of one attempt may come back as a dead letter before its job ends.
pub const MAX_DEAD_LETTERS: u32 = 5;

/// What came of a request to end a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancel {
    /// It had not started, and is over.
    Ended(Vec<Change>),
    /// It has started: the only outcome from here on is `canceled`, once its run has ended. Its session is told when it
    /// next names the attempt; whoever can reach it sooner may.
    Requested(Vec<Change>),
    /// That had been asked before.
    AlreadyRequested,
    /// It was over before.
    AlreadyOver(EndState),
    /// There is no such job in the ledger.
    Unknown,
}

/// Makes the next attempt at a queued job, with its first publication. Load the job. Commit the changes, publish, then
/// [`confirmed`]. None if the job is not queued, or has to wait.
#[must_use]
pub fn dispatch(
    job: JobId,
    attempt: AttemptId,
    ledger: &mut Ledger,
    context: &Context,
) -> Option<Vec<Change>> {
    let record = ledger.job(job)?;
    if record.state != JobState::Queued || record.ready_at > context.now {
        return None;
    }
    let number = record.attempts + 1;
    let mut changes = Vec::new();
    let dispatched = AttemptRecord {
        attempt,
        job,
        number,
        state: AttemptState::Dispatched,
        publication: 1,
        published_at: context.now,
        confirmed: false,
        dead_letters: 0,
    };
    ledger.decide(Change::Dispatched(dispatched), &mut changes);
    Some(changes)
}

/// Takes the next publication of an unstarted attempt. Load the attempt. Commit the changes, publish with the number in
/// them, then [`confirmed`]. None if the attempt has started or is over.
#[must_use]
pub fn publish_again(attempt: AttemptId, ledger: &mut Ledger, context: &Context) -> Option<Vec<Change>> {
    let record = ledger
        .attempt(attempt)
        .filter(|record| record.state == AttemptState::Dispatched)?;
    let publication = record.publication + 1;
    let mut changes = Vec::new();
    ledger.decide(
        Change::Published {
            attempt,
            publication,
            at: context.now,
        },
        &mut changes,
    );
    Some(changes)
}

/// Takes note of a broker's confirm. Load the attempt. Nothing changes if there is a newer publication, or if nothing waits
/// for the confirm any more: the attempt has started, or is over.
#[must_use]
pub fn confirmed(attempt: AttemptId, publication: u32, ledger: &mut Ledger) -> Vec<Change> {
    let mut changes = Vec::new();
    if ledger.attempt(attempt).is_some_and(|record| {
        record.state == AttemptState::Dispatched && record.publication == publication && !record.confirmed
    }) {
        ledger.decide(
            Change::PublicationConfirmed { attempt, publication },
            &mut changes,
        );
    }
    changes
}

/// Ends a job, or asks for its end. Load the job and its current attempt.
#[must_use]
pub fn cancel(job: JobId, ledger: &mut Ledger, context: &Context) -> Cancel {
    let Some(record) = ledger.job(job) else {
        return Cancel::Unknown;
    };
    let mut changes = Vec::new();
    match record.state {
        JobState::Queued | JobState::Dispatched => {
            withdraw(
                job,
                EndState::Canceled,
                Cause::CanceledByRequest,
                ledger,
                context,
                &mut changes,
            );
            Cancel::Ended(changes)
        }
        JobState::Started => {
            ledger.decide(Change::CancelRequested { job }, &mut changes);
            Cancel::Requested(changes)
        }
        JobState::CancelRequested => Cancel::AlreadyRequested,
        JobState::Ended(end) => Cancel::AlreadyOver(end),
    }
}

/// Ends a job that has waited too long for its first start. Load the job and its current attempt. Nothing changes if it
/// has not, or has started once.
#[must_use]
pub fn expire(job: JobId, ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let mut changes = Vec::new();
    let Some(record) = ledger.job(job) else {
        return changes;
    };
    let never_started = match record.state {
        JobState::Queued => record.attempts == 0,
        JobState::Dispatched => record.attempts <= 1,
        JobState::Started | JobState::CancelRequested | JobState::Ended(_) => false,
    };
    if never_started && record.expires_at.is_some_and(|end| end <= context.now) {
        withdraw(
            job,
            EndState::Expired,
            Cause::WaitedTooLong,
            ledger,
            context,
            &mut changes,
        );
    }
    changes
}

/// Takes note that a publication of an attempt came back as a dead letter. Load the attempt and its job. An attempt that
/// has not started takes its next publication, or ends its job if that happens too often. Commit the changes, and publish
/// where the attempt still waits for its start.
///
/// The next publication is taken here and not when it is looked for, so that a confirm of the dead one that comes late
/// counts for nothing. Nothing changes where there is a newer publication: that one reaches an executor, or comes back as
/// a dead letter itself, and the same letter may be read twice.
#[must_use]
pub fn dead_lettered(
    attempt: AttemptId,
    publication: u32,
    ledger: &mut Ledger,
    context: &Context,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let Some(record) = ledger
        .attempt(attempt)
        .filter(|record| record.state == AttemptState::Dispatched && record.publication == publication)
    else {
        return changes;
    };
    let times = record.dead_letters + 1;
    if times < MAX_DEAD_LETTERS {
        ledger.decide(Change::DeadLettered { attempt, times }, &mut changes);
        let next = Change::Published {
            attempt,
            publication: publication + 1,
            at: context.now,
        };
        ledger.decide(next, &mut changes);
    } else {
        let how = AttemptEnd::NeverStarted {
            cause: Cause::Undeliverable,
        };
        end_attempt(attempt, how, ledger, context, &mut changes);
    }
    changes
}

/// Since when a pool's queue has held fewer messages than the pool has unstarted attempts. One row a pool; it may be
/// kept in memory by the scheduler that holds the pool's lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LowSince(Option<ServerTime>);

/// Which unstarted attempts of a pool to publish again, oldest publication first: those whose confirm never came, and,
/// once the queue has held too few for long enough, as many as are missing. `unstarted` are the pool's unstarted
/// attempts in the order of `published_at`; `ready` is the queue's count of ready messages.
#[must_use]
pub fn due_for_publication(
    unstarted: &[AttemptRecord],
    ready: u64,
    low: &mut LowSince,
    context: &Context,
) -> Vec<AttemptId> {
    let late =
        |record: &&AttemptRecord| context.now.since(record.published_at) >= context.timing.publish_again;
    let missing = (unstarted.len() as u64).saturating_sub(ready);
    let since = match (missing, low.0) {
        (0, _) => None,
        (_, Some(since)) => Some(since),
        (_, None) => Some(context.now),
    };
    low.0 = since;
    if !context.hold(Rule::PublishAgain) {
        return Vec::new();
    }
    let low_for_long = since.is_some_and(|since| context.now.since(since) >= context.timing.publish_again);
    let lost = if low_for_long { missing } else { 0 };
    let lost = unstarted
        .iter()
        .filter(|record| record.confirmed)
        .filter(late)
        .take(usize::try_from(lost).unwrap_or(usize::MAX));
    unstarted
        .iter()
        .filter(|record| !record.confirmed)
        .filter(late)
        .chain(lost)
        .map(|record| record.attempt)
        .collect()
}

/// How many attempts a pool's scheduler may dispatch now: as many as keep the unstarted ones a little above the free
/// slots, so that none of them waits for a message, and no more, so that whose turn it is stays open.
///
/// `free_slots` are the live sessions' slots less the started attempts; `ended` is how many attempts have ended in the
/// last ten seconds.
#[must_use]
pub fn room(free_slots: u64, unstarted: u64, ended: u64) -> u64 {
    let ahead = ended.div_ceil(100).max(2);
    (free_slots + ahead).saturating_sub(unstarted)
}

/// What becomes of a job whose attempt has ended so.
pub(crate) fn next_of_job(
    job: &JobRecord,
    attempt: AttemptId,
    how: &AttemptEnd,
    context: &Context,
) -> JobNext {
    if job.state == JobState::CancelRequested {
        return JobNext::Ended(canceled(how));
    }
    let outcome = match how {
        AttemptEnd::Reported { report, .. } => believed(report),
        AttemptEnd::Lost { cause, ran, .. } => {
            // Where nothing has run nothing is unknown about how it ended.
            let state = if *ran { EndState::Lost } else { EndState::Error };
            Outcome::decided(state, *cause)
        }
        AttemptEnd::NeverStarted { cause } => {
            let state = match cause {
                Cause::CanceledByRequest | Cause::SubmitterGone => EndState::Canceled,
                Cause::WaitedTooLong => EndState::Expired,
                _ => EndState::Error,
            };
            return JobNext::Ended(Outcome::decided(state, *cause));
        }
    };
    let again = match outcome.cause.blame() {
        Blame::Ours => true,
        Blame::Job => job.retry.on.contains(&outcome.state),
        Blame::Decision => false,
    };
    if again && job.attempts < job.retry.max_attempts {
        let wait = back_off(job.attempts, attempt, context.random, &context.timing);
        return JobNext::Queued {
            ready_at: context.now.after(wait),
        };
    }
    JobNext::Ended(outcome)
}

/// Ends a job that has not started, and the attempt that stands.
pub(crate) fn withdraw(
    job: JobId,
    state: EndState,
    cause: Cause,
    ledger: &mut Ledger,
    context: &Context,
    changes: &mut Vec<Change>,
) {
    let current = ledger
        .job(job)
        .and_then(|record| record.current)
        .and_then(|attempt| ledger.attempt(attempt));
    match current
        .filter(|record| record.state == AttemptState::Dispatched)
        .map(|record| record.attempt)
    {
        Some(attempt) => end_attempt(
            attempt,
            AttemptEnd::NeverStarted { cause },
            ledger,
            context,
            changes,
        ),
        None => ledger.decide(
            Change::JobEnded {
                job,
                outcome: Outcome::decided(state, cause),
            },
            changes,
        ),
    }
}

/// The outcome of a job whose end was asked for: canceled, with what was observed of its run until then.
fn canceled(how: &AttemptEnd) -> Outcome {
    let decided = Outcome::decided(EndState::Canceled, Cause::CanceledByRequest);
    match how {
        AttemptEnd::Reported { report, .. } => Outcome {
            exit_code: report.outcome.exit_code,
            signal: report.outcome.signal,
            evidence: report.outcome.evidence.clone(),
            ..decided
        },
        AttemptEnd::Lost { .. } | AttemptEnd::NeverStarted { .. } => decided,
    }
}

/// A reported outcome, as far as it is one that a run can have. The others are for the server alone to decide, so that
/// a report of one is trouble of ours.
fn believed(report: &RunReport) -> Outcome {
    let outcome = report.outcome.clone();
    match outcome.state {
        EndState::Succeeded
        | EndState::Failed
        | EndState::TimedOut
        | EndState::OutOfMemory
        | EndState::LimitExceeded
        | EndState::Rejected
        | EndState::Error => outcome,
        EndState::Canceled | EndState::Expired | EndState::Lost => {
            let mut evidence = outcome.evidence;
            evidence.contradictions.push(format!(
                "the executor reported {:?}, which nobody had decided",
                outcome.state
            ));
            Outcome {
                state: EndState::Error,
                cause: Cause::EngineFailure,
                evidence,
                ..outcome
            }
        }
    }
}

/// How long a job waits before its next attempt: at least half of the longest wait, which doubles each time.
fn back_off(attempts: u32, attempt: AttemptId, random: u64, timing: &Timing) -> Duration {
    let doubled = timing
        .retry_first
        .saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)));
    let longest = doubled.min(timing.retry_most);
    // Attempts that end in one transaction must not come back together: each has bits of its own id.
    let (high, low) = attempt.as_uuid().as_u64_pair();
    let mixed = (random ^ high ^ low.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    longest / 2 + (longest / 2).mul_f64(f64::from(u32::try_from(mixed).unwrap_or(0)) / 65_536.0)
}
