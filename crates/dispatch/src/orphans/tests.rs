use std::time::Duration;

use mayfly_core::{
    id::{ExecutorId, SessionId, TenantId},
    job::RetryPolicy,
    outcome::Outcome,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    message::{EventBatch, ExecutorFacts, Opened, SessionEvent, VERSION},
    record::QueueRecord,
    recorder,
    samples::{key, report},
    scheduler::{self, Cancel, LowSince},
    time::ServerTime,
    timing::Timing,
};

const POOL: &str = "local-dead";

fn job(n: u128) -> JobId {
    JobId::from_uuid(Uuid::from_u128(n))
}

fn context(seconds: u64) -> Context {
    let now = ServerTime::from_micros(0).after(Duration::from_secs(1000 + seconds));
    Context::new(now, Timing::standard(), key(), 7)
}

/// So many jobs that wait, from 1.
fn queued(jobs: u128, max_attempts: u32) -> Ledger {
    let mut ledger = Ledger::new(QueueRecord::new(context(0).now));
    for n in 1..=jobs {
        ledger.put_job(JobRecord {
            job: job(n),
            tenant: TenantId::LOCAL,
            state: JobState::Queued,
            retry: RetryPolicy {
                max_attempts,
                on: Vec::new(),
            },
            attempts: 0,
            current: None,
            ready_at: context(0).now,
            expires_at: None,
        });
    }
    ledger
}

fn dispatch(n: u128, ledger: &mut Ledger, now: &Context) -> AttemptId {
    let attempt = AttemptId::new();
    scheduler::dispatch(job(n), attempt, ledger, now).expect("it is queued and ready");
    attempt
}

fn batch(session: SessionId, executor: ExecutorId, first: u64, events: Vec<SessionEvent>) -> EventBatch {
    EventBatch {
        v: VERSION,
        executor,
        session,
        first,
        events,
        heartbeat: None,
    }
}

fn opened() -> SessionEvent {
    SessionEvent::Opened(Opened {
        slots: 4,
        pool: POOL.to_owned(),
        facts: ExecutorFacts::default(),
    })
}

/// The events by which the session of a dead process ends: its successor begins, and is over.
fn succeed(executor: ExecutorId, ledger: &mut Ledger, context: &Context) -> Vec<Change> {
    let last = batch(
        SessionId::new(),
        executor,
        1,
        vec![opened(), SessionEvent::Closed],
    );
    recorder::process(&last, ledger, context).changes
}

fn outcome(ledger: &Ledger, n: u128) -> Option<EndState> {
    ledger.job(job(n)).and_then(|job| job.state.end())
}

#[test]
fn a_job_that_has_not_started_ends_once_and_its_attempt_with_it() {
    let mut ledger = queued(2, 3);
    let attempt = dispatch(2, &mut ledger, &context(0));
    for n in [1, 2] {
        let changes = end(job(n), &mut ledger, &context(1));
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(outcome(&ledger, n), Some(EndState::Canceled));
        assert_eq!(end(job(n), &mut ledger, &context(1)), []);
        assert_eq!(adopt(job(n), "other", &mut ledger, &context(1)), []);
    }
    let over = AttemptState::Over {
        cause: Cause::SubmitterGone,
    };
    assert_eq!(ledger.attempt(attempt).map(|record| record.state), Some(over));
    assert_eq!(end(job(9), &mut ledger, &context(1)), [], "there is no such job");
}

#[test]
fn the_end_says_why_whether_an_attempt_stands_or_not() {
    let expected = Outcome::decided(EndState::Canceled, Cause::SubmitterGone);
    let mut ledger = queued(1, 3);
    let changes = end(job(1), &mut ledger, &context(1));
    assert!(matches!(&changes[..], [Change::JobEnded { outcome, .. }] if *outcome == expected));
    let mut ledger = queued(1, 3);
    dispatch(1, &mut ledger, &context(0));
    let changes = end(job(1), &mut ledger, &context(1));
    let then = crate::record::JobNext::Ended(expected);
    assert!(matches!(&changes[..], [Change::AttemptEnded { then: found, .. }] if *found == then));
}

#[test]
fn an_attempt_that_is_adopted_is_published_again_at_once_and_can_be_started() {
    let mut ledger = queued(1, 1);
    let attempt = dispatch(1, &mut ledger, &context(0));
    let confirmed = scheduler::confirmed(attempt, 1, &mut ledger);
    assert_eq!(confirmed.len(), 1);
    let due = |ledger: &Ledger| {
        let unstarted: Vec<_> = ledger.attempts().cloned().collect();
        scheduler::due_for_publication(&unstarted, 1, &mut LowSince::default(), &context(1))
    };
    assert_eq!(due(&ledger), []);
    assert_eq!(adopt(job(1), "other", &mut ledger, &context(1)).len(), 1);
    assert_eq!(due(&ledger), [attempt]);
    assert!(scheduler::publish_again(attempt, &mut ledger, &context(1)).is_some());
    assert_eq!(ledger.attempt(attempt).map(|record| record.publication), Some(2));
    let (session, executor) = (SessionId::new(), ExecutorId::new());
    let asks = SessionEvent::Starting {
        attempt,
        publication: 2,
        token: key().token(attempt),
    };
    let processed = recorder::process(
        &batch(session, executor, 1, vec![opened(), asks]),
        &mut ledger,
        &context(2),
    );
    assert_eq!(processed.reply.answers[0].verdict, crate::message::Verdict::Grant);
}

/// What a process had done before it died, job by job.
#[derive(Debug, Clone, Copy)]
enum Before {
    Waits,
    Dispatched,
    Started,
    CancelRequested,
    Finished,
}

fn before() -> impl Strategy<Value = Before> {
    prop::sample::select(vec![
        Before::Waits,
        Before::Dispatched,
        Before::Started,
        Before::CancelRequested,
        Before::Finished,
    ])
}

proptest! {
    /// Wherever its jobs stood, after the two steps each has one end, by one change; in the other order those that it
    /// had started and that are tried again would be left behind.
    #[test]
    fn reconciled_in_order_every_job_of_a_dead_process_ends_once(
        all in prop::collection::vec(before(), 1..12),
        max_attempts in 1..4_u32,
        again in 0..3_usize,
    ) {
        let mut ledger = queued(all.len() as u128, max_attempts);
        let (session, executor) = (SessionId::new(), ExecutorId::new());
        let mut changes = recorder::process(
            &batch(session, executor, 1, vec![opened()]), &mut ledger, &context(0)).changes;
        let mut next = 2;
        for (n, before) in (1_u128..).zip(&all) {
            if matches!(before, Before::Waits) {
                continue;
            }
            let attempt = dispatch(n, &mut ledger, &context(0));
            let asks = SessionEvent::Starting { attempt, publication: 1, token: key().token(attempt) };
            let events = match before {
                Before::Waits | Before::Dispatched => continue,
                Before::Started | Before::CancelRequested => vec![asks],
                Before::Finished => vec![asks, SessionEvent::Finished { attempt, report: Box::new(report()) }],
            };
            let said = batch(session, executor, next, events);
            next = said.last() + 1;
            changes.extend(recorder::process(&said, &mut ledger, &context(0)).changes);
            if matches!(before, Before::CancelRequested) {
                prop_assert!(matches!(scheduler::cancel(job(n), &mut ledger, &context(0)), Cancel::Requested(_)));
            }
        }
        // Repeated as after a crash in between, or by another process that was as quick.
        for _ in 0..=again {
            if ledger.live_sessions_of(executor).next().is_some() {
                changes.extend(succeed(executor, &mut ledger, &context(1)));
            }
            for n in 1..=all.len() as u128 {
                changes.extend(end(job(n), &mut ledger, &context(2)));
            }
        }
        prop_assert!(ledger.sessions().all(|session| !session.is_live()));
        for (n, before) in (1_u128..).zip(&all) {
            let ends = changes.iter().filter(|change| match change {
                Change::JobEnded { job: of, .. } => *of == job(n),
                Change::AttemptEnded { job: of, then: crate::record::JobNext::Ended(_), .. } => *of == job(n),
                _ => false,
            }).count();
            prop_assert_eq!(ends, 1, "job {} ({:?}) has one end", n, before);
            let expected = match before {
                Before::Finished => EndState::Succeeded,
                Before::Started if max_attempts == 1 => EndState::Lost,
                Before::Waits | Before::Dispatched | Before::Started | Before::CancelRequested => EndState::Canceled,
            };
            prop_assert_eq!(outcome(&ledger, n), Some(expected));
        }
        let over = |attempt: &crate::record::AttemptRecord| matches!(attempt.state, AttemptState::Over { .. });
        prop_assert!(ledger.attempts().all(over));
    }

    /// Whatever has started stays where it is.
    #[test]
    fn what_has_started_is_neither_ended_nor_moved(cancel in any::<bool>()) {
        let mut ledger = queued(1, 3);
        let attempt = dispatch(1, &mut ledger, &context(0));
        let (session, executor) = (SessionId::new(), ExecutorId::new());
        let asks = SessionEvent::Starting { attempt, publication: 1, token: key().token(attempt) };
        let _granted = recorder::process(
            &batch(session, executor, 1, vec![opened(), asks]), &mut ledger, &context(0));
        if cancel {
            prop_assert!(matches!(scheduler::cancel(job(1), &mut ledger, &context(0)), Cancel::Requested(_)));
        }
        prop_assert_eq!(end(job(1), &mut ledger, &context(1)), []);
        prop_assert_eq!(adopt(job(1), "other", &mut ledger, &context(1)), []);
        prop_assert_eq!(ledger.held_by(session).count(), 1);
    }
}
