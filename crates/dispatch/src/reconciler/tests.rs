use std::time::Duration;

use mayfly_core::id::{ExecutorId, SessionId};
use uuid::Uuid;

use super::*;
use crate::{
    message::{EventBatch, ExecutorFacts, Heartbeat, Opened, SessionEvent},
    record::SessionState,
    recorder::process,
    samples::key,
    time::ServerTime,
    timing::Timing,
};

fn session(n: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(n))
}

fn context(seconds: u64) -> Context {
    let now = ServerTime::from_micros(0).after(Duration::from_secs(seconds));
    Context::new(now, Timing::standard(), key(), 0)
}

fn beat(n: u128, first: u64, events: Vec<SessionEvent>) -> EventBatch {
    EventBatch {
        v: VERSION,
        executor: ExecutorId::from_uuid(Uuid::from_u128(n)),
        session: session(n),
        first,
        events,
        heartbeat: Some(Heartbeat {
            held: Vec::new(),
            free_slots: 1,
        }),
    }
}

/// A ledger with live sessions that began at second 0.
fn sessions(count: u128) -> Ledger {
    let mut ledger = Ledger::new(QueueRecord::new(context(0).now));
    for n in 0..count {
        let opened = SessionEvent::Opened(Opened {
            slots: 1,
            pool: "default".to_owned(),
            facts: ExecutorFacts::default(),
        });
        let _opened = process(&beat(n, 1, vec![opened]), &mut ledger, &context(0));
    }
    ledger
}

fn is_live(ledger: &Ledger, n: u128) -> bool {
    ledger.session(session(n)).expect("it is there").is_live()
}

fn tick_at(seconds: u64, ledger: &mut Ledger) -> Tick {
    tick(ledger, &context(seconds)).0
}

#[test]
fn a_session_is_dead_once_a_tick_behind_its_lease_is_processed() {
    let mut ledger = sessions(1);
    let early = tick_at(44, &mut ledger);
    assert_eq!(early.judged, vec![]);
    assert_eq!(
        process_tick(&early, &mut ledger, &context(50)).len(),
        1,
        "only the queue's row"
    );
    let late = tick_at(46, &mut ledger);
    assert!(is_live(&ledger, 0), "the clock alone proves nothing");
    let _changes = process_tick(&late, &mut ledger, &context(46));
    assert_eq!(
        ledger.session(session(0)).map(|record| record.state),
        Some(SessionState::Ended(SessionEnd::LeaseEnded))
    );
}

#[test]
fn a_heartbeat_that_is_processed_before_a_tick_makes_it_void() {
    let mut ledger = sessions(1);
    let tick = tick_at(46, &mut ledger);
    let _renewed = process(&beat(0, 2, Vec::new()), &mut ledger, &context(46));
    let _changes = process_tick(&tick, &mut ledger, &context(46));
    assert!(is_live(&ledger, 0));
}

#[test]
fn a_heartbeat_makes_a_tick_void_also_when_the_databases_clock_was_set_back() {
    let mut ledger = sessions(1);
    let tick = tick_at(46, &mut ledger);
    let before = ledger.session(session(0)).expect("it is there").lease_end;
    let _renewed = process(&beat(0, 2, Vec::new()), &mut ledger, &context(0));
    assert!(ledger.session(session(0)).expect("it is there").lease_end > before);
    let _changes = process_tick(&tick, &mut ledger, &context(1));
    assert!(is_live(&ledger, 0));
}

#[test]
fn a_missing_tick_starts_every_lease_afresh() {
    let mut ledger = sessions(2);
    let _lost = tick_at(46, &mut ledger);
    let next = tick_at(51, &mut ledger);
    let _changes = process_tick(&next, &mut ledger, &context(51));
    assert!(is_live(&ledger, 0) && is_live(&ledger, 1));
    assert_eq!(
        tick_at(95, &mut ledger).judged,
        vec![],
        "the leases last to second 96"
    );
    assert_eq!(tick_at(97, &mut ledger).judged.len(), 2);
}

#[test]
fn a_tick_that_comes_again_or_of_an_older_epoch_is_void() {
    let mut ledger = sessions(1);
    let old = tick_at(1, &mut ledger);
    let _changes = process_tick(&old, &mut ledger, &context(1));
    assert_eq!(process_tick(&old, &mut ledger, &context(2)), vec![]);
    let judging = tick_at(46, &mut ledger);
    let _changes = queue_is_gone(&mut ledger, &context(47));
    assert_eq!(process_tick(&judging, &mut ledger, &context(47)), vec![]);
    assert!(is_live(&ledger, 0));
    let first = tick_at(48, &mut ledger);
    assert_eq!((first.epoch, first.number), (2, 1));
    assert_eq!(first.judged, vec![], "the new queue began with fresh leases");
}

#[test]
fn one_tick_judges_a_bounded_number_of_sessions() {
    let mut ledger = sessions(MAX_JUDGED as u128 + 5);
    let tick = tick_at(46, &mut ledger);
    assert_eq!(tick.judged.len(), MAX_JUDGED);
    let _changes = process_tick(&tick, &mut ledger, &context(46));
    assert_eq!(
        tick_at(51, &mut ledger).judged.len(),
        5,
        "the next one judges the others"
    );
}
