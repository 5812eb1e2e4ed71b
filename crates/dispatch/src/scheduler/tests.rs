use mayfly_core::{
    id::{SessionId, TenantId},
    job::RetryPolicy,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{record::QueueRecord, samples::key};

fn job(n: u128) -> JobId {
    JobId::from_uuid(Uuid::from_u128(n))
}

fn attempt(n: u128) -> AttemptId {
    AttemptId::from_uuid(Uuid::from_u128(1_000 + n))
}

fn context(seconds: u64) -> Context {
    let now = ServerTime::from_micros(0).after(Duration::from_secs(seconds));
    Context::new(now, Timing::standard(), key(), 7)
}

fn record(state: JobState) -> JobRecord {
    JobRecord {
        job: job(1),
        tenant: TenantId::LOCAL,
        state,
        retry: RetryPolicy {
            max_attempts: 3,
            on: vec![EndState::TimedOut],
        },
        attempts: 1,
        current: Some(attempt(1)),
        ready_at: context(0).now,
        expires_at: Some(context(60).now),
    }
}

fn queued() -> Ledger {
    let mut ledger = Ledger::new(QueueRecord::new(context(0).now));
    ledger.put_job(JobRecord {
        attempts: 0,
        current: None,
        ..record(JobState::Queued)
    });
    ledger
}

fn dispatched() -> Ledger {
    let mut ledger = queued();
    dispatch(job(1), attempt(1), &mut ledger, &context(0)).expect("it is queued");
    ledger
}

fn state(ledger: &Ledger) -> JobState {
    ledger.job(job(1)).expect("it is there").state
}

#[test]
fn a_queued_job_is_dispatched_once_and_when_its_wait_is_over() {
    let mut ledger = queued();
    let waits = JobRecord {
        ready_at: context(5).now,
        ..ledger.job(job(1)).expect("it is there").clone()
    };
    ledger.put_job(waits);
    assert_eq!(dispatch(job(1), attempt(1), &mut ledger, &context(4)), None);
    assert!(dispatch(job(1), attempt(1), &mut ledger, &context(5)).is_some());
    assert_eq!(dispatch(job(1), attempt(2), &mut ledger, &context(5)), None);
    assert_eq!(ledger.attempts().count(), 1);
}

#[test]
fn a_job_that_has_not_started_is_canceled_at_once() {
    for mut ledger in [queued(), dispatched()] {
        assert!(
            matches!(cancel(job(1), &mut ledger, &context(1)), Cancel::Ended(changes) if changes.len() == 1)
        );
        assert_eq!(state(&ledger), JobState::Ended(EndState::Canceled));
        assert_eq!(
            cancel(job(1), &mut ledger, &context(2)),
            Cancel::AlreadyOver(EndState::Canceled)
        );
        assert!(publish_again(attempt(1), &mut ledger, &context(60)).is_none());
    }
}

#[test]
fn a_job_expires_unless_it_has_started_once() {
    for mut ledger in [queued(), dispatched()] {
        assert_eq!(expire(job(1), &mut ledger, &context(59)), vec![]);
        assert_eq!(expire(job(1), &mut ledger, &context(60)).len(), 1);
        assert_eq!(state(&ledger), JobState::Ended(EndState::Expired));
    }
    let mut again = queued();
    again.put_job(record(JobState::Queued));
    assert_eq!(
        expire(job(1), &mut again, &context(60)),
        vec![],
        "it is tried again after a start"
    );
    dispatch(job(1), attempt(2), &mut again, &context(0)).expect("it is queued");
    assert_eq!(
        expire(job(1), &mut again, &context(60)),
        vec![],
        "its second attempt waits for a slot"
    );
}

#[test]
fn a_fifth_dead_letter_ends_the_job() {
    let mut ledger = dispatched();
    for times in 1..MAX_DEAD_LETTERS {
        let changes = dead_lettered(attempt(1), times, &mut ledger, &context(1));
        assert_eq!(
            changes,
            vec![
                Change::DeadLettered {
                    attempt: attempt(1),
                    times
                },
                Change::Published {
                    attempt: attempt(1),
                    publication: times + 1,
                    at: context(1).now
                }
            ]
        );
    }
    let _changes = dead_lettered(attempt(1), MAX_DEAD_LETTERS, &mut ledger, &context(1));
    assert_eq!(state(&ledger), JobState::Ended(EndState::Error));
    let after = dead_lettered(attempt(1), MAX_DEAD_LETTERS, &mut ledger, &context(1));
    assert_eq!(after, vec![]);
}

#[test]
fn a_dead_letter_counts_once_and_its_confirm_no_more() {
    let mut ledger = dispatched();
    let changes = dead_lettered(attempt(1), 1, &mut ledger, &context(1));
    assert_eq!(changes.len(), 2);
    let before = ledger.clone();
    assert_eq!(dead_lettered(attempt(1), 1, &mut ledger, &context(1)), vec![]);
    assert_eq!(confirmed(attempt(1), 1, &mut ledger), vec![]);
    assert_eq!(ledger.attempt(attempt(1)), before.attempt(attempt(1)));
    assert!(!ledger.attempt(attempt(1)).expect("it is there").confirmed);
}

#[test]
fn a_confirm_counts_for_the_publication_that_it_names() {
    let mut ledger = dispatched();
    publish_again(attempt(1), &mut ledger, &context(11)).expect("it is unstarted");
    assert_eq!(confirmed(attempt(1), 1, &mut ledger), vec![]);
    assert_eq!(confirmed(attempt(1), 2, &mut ledger).len(), 1);
    assert_eq!(confirmed(attempt(1), 2, &mut ledger), vec![]);
}

fn lost(ran: bool) -> AttemptEnd {
    let session = SessionId::from_uuid(Uuid::from_u128(5));
    AttemptEnd::Lost {
        session,
        cause: Cause::ExecutorLost,
        ran,
    }
}

fn reported(state: EndState, cause: Cause) -> AttemptEnd {
    AttemptEnd::Reported {
        session: SessionId::from_uuid(Uuid::from_u128(5)),
        executor: mayfly_core::id::ExecutorId::from_uuid(Uuid::from_u128(6)),
        report: Box::new(crate::samples::report_of(state, cause)),
    }
}

fn next(job: &JobRecord, how: &AttemptEnd) -> Option<EndState> {
    match next_of_job(job, attempt(1), how, &context(0)) {
        JobNext::Ended(outcome) => Some(outcome.state),
        JobNext::Queued { .. } => None,
    }
}

#[test]
fn a_job_is_tried_again_after_trouble_of_ours_and_after_what_it_names_itself() {
    let job = record(JobState::Started);
    assert_eq!(next(&job, &lost(true)), None);
    assert_eq!(next(&job, &reported(EndState::Error, Cause::EngineFailure)), None);
    assert_eq!(
        next(&job, &reported(EndState::TimedOut, Cause::WallClock)),
        None,
        "it names that"
    );
    assert_eq!(
        next(&job, &reported(EndState::Failed, Cause::Exited)),
        Some(EndState::Failed)
    );
    assert_eq!(
        next(&job, &reported(EndState::Succeeded, Cause::Exited)),
        Some(EndState::Succeeded)
    );
    assert_eq!(
        next(&job, &reported(EndState::Rejected, Cause::SandboxMismatch)),
        Some(EndState::Rejected)
    );
}

#[test]
fn after_its_last_attempt_a_job_ends_as_what_is_known_of_it() {
    let last = JobRecord {
        attempts: 3,
        ..record(JobState::Started)
    };
    assert_eq!(next(&last, &lost(true)), Some(EndState::Lost));
    assert_eq!(next(&last, &lost(false)), Some(EndState::Error));
    assert_eq!(
        next(&last, &reported(EndState::TimedOut, Cause::WallClock)),
        Some(EndState::TimedOut)
    );
    let canceled = record(JobState::CancelRequested);
    assert_eq!(
        next(&canceled, &lost(true)),
        Some(EndState::Canceled),
        "and is not tried again"
    );
}

#[test]
fn attempts_that_the_broker_has_lost_are_published_again_oldest_first() {
    let unstarted: Vec<AttemptRecord> = (0..4)
        .map(|n| AttemptRecord {
            attempt: attempt(n),
            job: job(n),
            number: 1,
            state: AttemptState::Dispatched,
            publication: 1,
            published_at: context(u64::try_from(n).unwrap_or(0)).now,
            confirmed: true,
            dead_letters: 0,
        })
        .collect();
    let mut low = LowSince::default();
    let due =
        |ready, low: &mut LowSince, seconds| due_for_publication(&unstarted, ready, low, &context(seconds));
    assert_eq!(due(2, &mut low, 20), vec![], "it may be a moment only");
    assert_eq!(due(2, &mut low, 29), vec![]);
    assert_eq!(due(2, &mut low, 30), vec![attempt(0), attempt(1)]);
    assert_eq!(due(4, &mut low, 31), vec![], "they are all there");
    assert_eq!(due(2, &mut low, 32), vec![], "the wait begins again");
    let unconfirmed: Vec<_> = unstarted
        .iter()
        .map(|record| AttemptRecord {
            confirmed: record.attempt != attempt(0),
            ..record.clone()
        })
        .collect();
    let due = due_for_publication(&unconfirmed, 4, &mut LowSince::default(), &context(10));
    assert_eq!(due, vec![attempt(0)], "a confirm that never came needs no count");
}

#[test]
fn a_scheduler_keeps_a_little_more_than_the_free_slots_on_the_way() {
    assert_eq!(room(8, 0, 0), 10);
    assert_eq!(room(8, 10, 0), 0);
    assert_eq!(room(8, 20, 0), 0);
    assert_eq!(
        room(0, 0, 1_000),
        10,
        "a hundred attempts a second end ten in 100 ms"
    );
    assert_eq!(room(0, 0, 1_001), 11);
}

proptest! {
    /// The wait before a further attempt is spread over the upper half of a bound that doubles, up to the most.
    #[test]
    fn the_wait_before_an_attempt_is_bounded(attempts in 1_u32..100, random in any::<u64>(), n in any::<u128>()) {
        let timing = Timing::standard();
        let wait = back_off(attempts, AttemptId::from_uuid(Uuid::from_u128(n)), random, &timing);
        let longest = timing.retry_first.saturating_mul(2_u32.saturating_pow(attempts - 1)).min(timing.retry_most);
        prop_assert!(wait >= longest / 2 && wait <= longest, "{wait:?} of {longest:?}");
    }
}

#[test]
fn attempts_that_end_together_do_not_come_back_together() {
    let waits: std::collections::BTreeSet<_> = (0..100)
        .map(|n| back_off(3, attempt(n), 1, &Timing::standard()))
        .collect();
    assert!(waits.len() > 90, "{}", waits.len());
}
