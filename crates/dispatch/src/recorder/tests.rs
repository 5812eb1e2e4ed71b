use std::time::Duration;

use mayfly_core::{
    artifact::{Artifact, Artifacts, PIECE_BYTES},
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
    job::RetryPolicy,
    outcome::{Cause, EndState},
    state::JobState,
};
use uuid::Uuid;

use super::*;
use crate::{
    ledger::Pieces,
    message::{ExecutorFacts, Wire as _},
    record::{JobRecord, QueueRecord},
    samples::{key, report, report_of},
    scheduler,
    time::ServerTime,
    timing::Timing,
};

mod uploads;

const SECOND: Duration = Duration::from_secs(1);

fn job() -> JobId {
    JobId::from_uuid(Uuid::from_u128(100))
}

fn attempt(n: u128) -> AttemptId {
    AttemptId::from_uuid(Uuid::from_u128(200 + n))
}

fn session(n: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(300 + n))
}

fn executor(n: u128) -> ExecutorId {
    ExecutorId::from_uuid(Uuid::from_u128(400 + n))
}

fn context(seconds: u32) -> Context {
    let now = ServerTime::from_micros(0).after(seconds * SECOND);
    Context::new(now, Timing::standard(), key(), 0)
}

/// A ledger with one job, and attempt 1 at it dispatched.
fn dispatched(max_attempts: u32) -> Ledger {
    let mut ledger = Ledger::new(QueueRecord::new(context(0).now));
    ledger.put_job(JobRecord {
        job: job(),
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
    scheduler::dispatch(job(), attempt(1), &mut ledger, &context(0)).expect("the job is queued");
    ledger
}

fn batch(n: u128, first: u64, events: Vec<SessionEvent>) -> EventBatch {
    EventBatch {
        v: VERSION,
        executor: executor(n),
        session: session(n),
        first,
        events,
        heartbeat: None,
    }
}

fn beat(n: u128, first: u64, held: &[(AttemptId, Phase)]) -> EventBatch {
    let held = held
        .iter()
        .map(|(attempt, phase)| Held {
            attempt: *attempt,
            phase: *phase,
        })
        .collect();
    EventBatch {
        heartbeat: Some(Heartbeat { held, free_slots: 1 }),
        ..batch(n, first, Vec::new())
    }
}

fn opened() -> SessionEvent {
    SessionEvent::Opened(Opened {
        slots: 2,
        pool: "default".to_owned(),
        facts: ExecutorFacts::default(),
    })
}

fn starting(attempt: AttemptId) -> SessionEvent {
    SessionEvent::Starting {
        attempt,
        publication: 1,
        token: key().token(attempt),
    }
}

fn finished(attempt: AttemptId) -> SessionEvent {
    SessionEvent::Finished {
        attempt,
        report: Box::new(report()),
    }
}

fn verdict(processed: &Processed) -> Verdict {
    assert_eq!(processed.reply.answers.len(), 1, "{:?}", processed.reply);
    processed.reply.answers[0].verdict
}

/// Session 1 is open and has started attempt 1.
fn started(max_attempts: u32) -> Ledger {
    let mut ledger = dispatched(max_attempts);
    let first = process(
        &batch(1, 1, vec![opened(), starting(attempt(1))]),
        &mut ledger,
        &context(1),
    );
    assert_eq!(verdict(&first), Verdict::Grant);
    ledger
}

fn state(ledger: &Ledger) -> JobState {
    ledger.job(job()).expect("it is there").state
}

#[test]
fn a_start_is_committed_with_its_grant_and_asking_again_gives_the_same_answer() {
    let mut ledger = dispatched(3);
    let ask = batch(1, 1, vec![opened(), starting(attempt(1))]);
    let first = process(&ask, &mut ledger, &context(1));
    assert!(
        first
            .changes
            .iter()
            .any(|change| matches!(change, Change::Started { .. }))
    );
    assert_eq!(
        first.reply.answers[0].ask, 2,
        "the answer names the event that asked"
    );
    assert_eq!(first.reply.processed, 2);
    let again = process(&batch(1, 3, vec![starting(attempt(1))]), &mut ledger, &context(2));
    assert_eq!(verdict(&again), Verdict::Grant);
    assert!(
        !again
            .changes
            .iter()
            .any(|change| matches!(change, Change::Started { .. }))
    );
}

#[test]
fn a_batch_that_is_delivered_again_changes_nothing() {
    let mut ledger = started(3);
    let end = batch(1, 3, vec![finished(attempt(1))]);
    let _processed = process(&end, &mut ledger, &context(2));
    for old in [
        end,
        batch(1, 1, vec![opened(), starting(attempt(1))]),
        beat(1, 3, &[]),
    ] {
        let again = process(&old, &mut ledger, &context(3));
        assert_eq!(again.changes, vec![], "{old:?}");
        assert_eq!(again.reply.processed, 3);
    }
}

#[test]
fn a_batch_that_overlaps_with_what_is_processed_counts_for_the_rest() {
    let mut ledger = started(3);
    let more = batch(1, 2, vec![starting(attempt(1)), finished(attempt(1))]);
    let processed = process(&more, &mut ledger, &context(2));
    assert_eq!(processed.reply.answers, vec![], "the ask has been answered");
    assert_eq!(state(&ledger), JobState::Ended(EndState::Succeeded));
}

#[test]
fn each_denial_has_its_reason() {
    let mut ledger = started(3);
    let ask = |ledger: &mut Ledger, n, event| {
        let processed = process(&batch(n, 1, vec![opened(), event]), ledger, &context(2));
        assert!(
            !processed
                .changes
                .iter()
                .any(|change| matches!(change, Change::Started { .. }))
        );
        verdict(&processed)
    };
    assert_eq!(
        ask(&mut ledger, 2, starting(attempt(1))),
        Verdict::Deny(DenyReason::Duplicate)
    );
    assert_eq!(
        ask(&mut ledger, 3, starting(attempt(9))),
        Verdict::Deny(DenyReason::Unknown)
    );
    let token = key().token(attempt(9));
    let forged = SessionEvent::Starting {
        attempt: attempt(1),
        publication: 1,
        token,
    };
    assert_eq!(ask(&mut ledger, 4, forged), Verdict::Deny(DenyReason::Token));
    let _processed = process(&batch(1, 3, vec![finished(attempt(1))]), &mut ledger, &context(2));
    assert_eq!(
        ask(&mut ledger, 5, starting(attempt(1))),
        Verdict::Deny(DenyReason::Superseded)
    );
    let mut canceled = dispatched(3);
    let _ended = scheduler::cancel(job(), &mut canceled, &context(1));
    assert_eq!(
        ask(&mut canceled, 6, starting(attempt(1))),
        Verdict::Deny(DenyReason::Canceled)
    );
}

#[test]
fn events_behind_a_gap_wait_until_it_is_filled() {
    let mut ledger = started(3);
    let behind = EventBatch {
        heartbeat: Some(Heartbeat {
            held: Vec::new(),
            free_slots: 1,
        }),
        ..batch(1, 4, vec![finished(attempt(1))])
    };
    let before = ledger.session(session(1)).expect("it is open").lease_end;
    let gap = process(&behind, &mut ledger, &context(5));
    assert!(gap.reply.gap);
    assert_eq!(gap.reply.processed, 2);
    assert!(matches!(gap.changes[..], [Change::LeaseMoved { lease_end, .. }] if lease_end > before));
    assert_eq!(
        state(&ledger),
        JobState::Started,
        "what it does not name is not judged across the gap"
    );
    let filled = process(
        &batch(1, 3, vec![starting(attempt(1)), finished(attempt(1))]),
        &mut ledger,
        &context(6),
    );
    assert!(!filled.reply.gap);
    assert_eq!(state(&ledger), JobState::Ended(EndState::Succeeded));
}

#[test]
fn a_session_whose_beginning_is_missing_is_asked_for_it() {
    let mut ledger = dispatched(3);
    for batch in [
        batch(1, 2, vec![starting(attempt(1))]),
        beat(1, 2, &[]),
        batch(1, 1, vec![starting(attempt(1))]),
    ] {
        let processed = process(&batch, &mut ledger, &context(1));
        assert_eq!((processed.reply.processed, processed.reply.gap), (0, true));
        assert_eq!(processed.changes, vec![]);
    }
}

#[test]
fn an_attempt_that_its_session_no_longer_names_is_lost() {
    let mut ledger = started(1);
    let _processed = process(
        &beat(1, 3, &[(attempt(1), Phase::Asked)]),
        &mut ledger,
        &context(2),
    );
    assert_eq!(state(&ledger), JobState::Started);
    let processed = process(&beat(1, 3, &[]), &mut ledger, &context(3));
    assert_eq!(state(&ledger), JobState::Ended(EndState::Lost));
    assert!(!processed.reply.dead, "the session goes on");
}

#[test]
fn a_heartbeat_is_told_what_to_stop_and_why() {
    let mut ledger = started(3);
    let _requested = scheduler::cancel(job(), &mut ledger, &context(2));
    let held = [
        (attempt(1), Phase::Running),
        (attempt(8), Phase::Running),
        (attempt(9), Phase::Finished),
    ];
    let stops = process(&beat(1, 3, &held), &mut ledger, &context(3)).reply.stops;
    let stop = |attempt, why| Stop { attempt, why };
    assert_eq!(
        stops,
        vec![
            stop(attempt(1), StopReason::Canceled),
            stop(attempt(8), StopReason::NotYours)
        ]
    );
}

#[test]
fn a_job_whose_end_was_asked_for_ends_as_canceled_with_what_its_run_left() {
    let mut ledger = started(3);
    let _requested = scheduler::cancel(job(), &mut ledger, &context(2));
    assert_eq!(state(&ledger), JobState::CancelRequested);
    let processed = process(&batch(1, 3, vec![finished(attempt(1))]), &mut ledger, &context(3));
    assert_eq!(state(&ledger), JobState::Ended(EndState::Canceled));
    let ended = processed.changes.iter().any(|change| {
        matches!(change, Change::AttemptEnded { how: AttemptEnd::Reported { report, .. }, .. }
            if report.outcome.state == EndState::Succeeded)
    });
    assert!(ended, "the report is kept as it came");
}

#[test]
fn a_session_that_still_asks_when_its_job_is_to_end_has_not_started_it() {
    let mut ledger = started(3);
    let _requested = scheduler::cancel(job(), &mut ledger, &context(2));
    let again = process(&batch(1, 3, vec![starting(attempt(1))]), &mut ledger, &context(3));
    assert_eq!(verdict(&again), Verdict::Deny(DenyReason::Canceled));
    assert_eq!(
        state(&ledger),
        JobState::Ended(EndState::Canceled),
        "without waiting for anybody"
    );
}

#[test]
fn a_new_session_of_an_executor_ends_the_old_one_and_what_it_held() {
    let mut ledger = started(1);
    let new = EventBatch {
        session: session(7),
        ..batch(1, 1, vec![opened()])
    };
    let _processed = process(&new, &mut ledger, &context(2));
    assert_eq!(state(&ledger), JobState::Ended(EndState::Lost));
    let late = process(&batch(1, 3, vec![finished(attempt(1))]), &mut ledger, &context(3));
    assert!(late.reply.dead);
    assert!(matches!(
        late.changes[..],
        [
            Change::Superseded {
                state: EndState::Succeeded,
                ..
            },
            Change::EventsProcessed { .. }
        ]
    ));
    let again = process(&batch(1, 3, vec![finished(attempt(1))]), &mut ledger, &context(4));
    assert_eq!(again.changes, vec![], "a late result is on record once");
    assert_eq!(state(&ledger), JobState::Ended(EndState::Lost));
}

#[test]
fn a_dead_session_asks_in_vain_and_renews_nothing() {
    let mut ledger = dispatched(3);
    let _processed = process(&batch(1, 1, vec![opened()]), &mut ledger, &context(1));
    end_session(
        session(1),
        SessionEnd::LeaseEnded,
        &mut ledger,
        &context(60),
        &mut Vec::new(),
    );
    let ask = EventBatch {
        heartbeat: Some(Heartbeat {
            held: Vec::new(),
            free_slots: 1,
        }),
        ..batch(1, 2, vec![starting(attempt(1))])
    };
    let processed = process(&ask, &mut ledger, &context(61));
    assert!(processed.reply.dead);
    assert_eq!(processed.reply.answers, vec![]);
    assert_eq!(state(&ledger), JobState::Dispatched);
    assert!(
        !processed
            .changes
            .iter()
            .any(|change| matches!(change, Change::LeaseMoved { .. }))
    );
}

#[test]
fn a_session_that_closes_is_over_and_not_dead() {
    let mut ledger = dispatched(3);
    let _processed = process(&batch(1, 1, vec![opened()]), &mut ledger, &context(1));
    let closed = process(&batch(1, 2, vec![SessionEvent::Closed]), &mut ledger, &context(2));
    assert!(!closed.reply.dead);
    assert_eq!(closed.reply.processed, 2);
    assert!(!ledger.session(session(1)).expect("it is kept").is_live());
}

#[test]
fn a_session_speaks_for_its_own_executor_only() {
    let mut ledger = started(3);
    let stolen = EventBatch {
        executor: executor(2),
        ..batch(1, 3, vec![finished(attempt(1))])
    };
    let processed = process(&stolen, &mut ledger, &context(2));
    assert_eq!(processed.changes, vec![]);
    assert_eq!(state(&ledger), JobState::Started);
}

#[test]
fn an_attempt_is_abandoned_by_its_holder_only_and_lost_only_if_it_ran() {
    let abandoned = |ran| SessionEvent::Abandoned {
        attempt: attempt(1),
        why: AbandonReason::LeaseEnding,
        ran,
    };
    let mut ledger = started(1);
    let _processed = process(
        &batch(2, 1, vec![opened(), abandoned(true)]),
        &mut ledger,
        &context(2),
    );
    assert_eq!(state(&ledger), JobState::Started);
    let mut unran = ledger.clone();
    let _processed = process(&batch(1, 3, vec![abandoned(true)]), &mut ledger, &context(2));
    assert_eq!(state(&ledger), JobState::Ended(EndState::Lost));
    let _processed = process(&batch(1, 3, vec![abandoned(false)]), &mut unran, &context(2));
    assert_eq!(state(&unran), JobState::Ended(EndState::Error));
}

#[test]
fn an_end_that_only_the_server_decides_is_trouble_of_ours_when_it_is_reported() {
    for (state_told, cause) in [
        (EndState::Canceled, Cause::CanceledByRequest),
        (EndState::Lost, Cause::ExecutorLost),
        (EndState::Expired, Cause::WaitedTooLong),
    ] {
        let mut ledger = started(1);
        let event = SessionEvent::Finished {
            attempt: attempt(1),
            report: Box::new(report_of(state_told, cause)),
        };
        let _processed = process(&batch(1, 3, vec![event]), &mut ledger, &context(2));
        assert_eq!(state(&ledger), JobState::Ended(EndState::Error));
    }
}

#[test]
fn a_batch_in_quarantine_counts_as_processed_and_as_nothing_else() {
    let mut ledger = started(1);
    let poison = batch(1, 3, vec![finished(attempt(1))]);
    assert!(matches!(
        quarantine(&poison, &mut ledger)[..],
        [Change::EventsProcessed { processed: 3, .. }]
    ));
    assert_eq!(quarantine(&poison, &mut ledger), vec![], "once");
    let next = process(
        &beat(1, 4, &[(attempt(1), Phase::Finished)]),
        &mut ledger,
        &context(2),
    );
    assert!(!next.reply.gap);
    let _processed = process(&beat(1, 4, &[]), &mut ledger, &context(3));
    assert_eq!(
        state(&ledger),
        JobState::Ended(EndState::Lost),
        "its job ends all the same"
    );
}

#[test]
fn what_is_needed_for_a_batch_is_named() {
    let batch = EventBatch {
        heartbeat: beat(1, 3, &[(attempt(2), Phase::Running)]).heartbeat,
        ..batch(1, 1, vec![opened(), starting(attempt(1))])
    };
    let needs = needs(&Inbound::decode(&batch.encode()).expect("it was encoded"));
    assert_eq!(needs.sessions, vec![session(1)]);
    assert_eq!(needs.executors, vec![executor(1)]);
    assert_eq!(needs.holders, vec![session(1)]);
    assert_eq!(needs.attempts, vec![attempt(1), attempt(2)]);
}

/// So that a batch costs what it speaks of, however much its session holds.
#[test]
fn what_a_session_holds_is_needed_where_all_of_it_is_looked_at_alone() {
    let holders = |batch: EventBatch| needs(&Inbound::Batch(Box::new(batch))).holders;
    assert_eq!(holders(batch(1, 2, vec![starting(attempt(1))])), vec![]);
    assert_eq!(holders(beat(1, 2, &[])), vec![session(1)]);
    let closed = vec![starting(attempt(1)), SessionEvent::Closed];
    assert_eq!(holders(batch(1, 2, closed)), vec![session(1)]);
    let starts = Inbound::Batch(Box::new(batch(1, 2, vec![starting(attempt(1))])));
    assert!(needs(&starts).executors.is_empty(), "it ends no session");
}

#[test]
fn a_session_is_told_with_each_reply_that_it_is_cordoned_where_it_can_read_that() {
    for (reads, told) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut ledger = dispatched(1);
        ledger.put_cordoned(executor(1));
        let mut begins = opened();
        if let SessionEvent::Opened(opened) = &mut begins {
            opened.facts.reads = reads;
        }
        let first = process(&batch(1, 1, vec![begins]), &mut ledger, &context(0)).reply;
        assert_eq!(
            (first.cordoned, first.v),
            (told, if told { 2 } else { 1 }),
            "reads {reads}"
        );
        let later = process(&beat(1, 2, &[]), &mut ledger, &context(1)).reply;
        assert_eq!(later.cordoned, told);
        let other = process(&batch(2, 1, vec![opened()]), &mut ledger, &context(0)).reply;
        assert!(!other.cordoned, "another executor is not");
    }
}

#[test]
fn the_images_of_a_live_session_alone_are_noted() {
    let images = SessionEvent::Images {
        images: vec![Digest::of(b"image")],
    };
    let mut ledger = dispatched(1);
    let noted = process(
        &batch(1, 1, vec![opened(), images.clone()]),
        &mut ledger,
        &context(0),
    );
    let is_noted = |change: &Change| matches!(change, Change::Images { images, .. } if images.len() == 1);
    assert!(noted.changes.iter().any(is_noted));
    let closed = process(
        &batch(1, 3, vec![SessionEvent::Closed, images]),
        &mut ledger,
        &context(0),
    );
    assert!(!closed.changes.iter().any(is_noted), "{:?}", closed.changes);
}

#[test]
fn a_self_test_of_a_live_session_alone_is_noted_as_it_came() {
    let tested = SessionEvent::SelfTested(Box::new(crate::samples::self_test(1)));
    let mut ledger = dispatched(1);
    let noted = process(
        &batch(1, 1, vec![opened(), tested.clone()]),
        &mut ledger,
        &context(0),
    );
    let is_noted = |change: &Change| matches!(change, Change::SelfTested { executor: by, test, .. } if *by == executor(1) && **test == crate::samples::self_test(1));
    assert!(noted.changes.iter().any(is_noted));
    let closed = process(
        &batch(1, 3, vec![SessionEvent::Closed, tested]),
        &mut ledger,
        &context(0),
    );
    assert!(!closed.changes.iter().any(is_noted), "{:?}", closed.changes);
}
