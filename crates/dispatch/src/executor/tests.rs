use std::time::Duration;

use mayfly_core::{
    id::{AttemptId, ExecutorId, SessionId},
    outcome::{Cause, EndState},
};
use uuid::Uuid;

use super::*;
use crate::{
    message::{
        AbandonReason, Answer, DenyReason, MAX_BATCH_BYTES, MAX_BATCH_EVENTS, Phase, READS, SessionEvent,
        Stop, StopReason, VERSION, Verdict, Wire as _,
    },
    samples::{dispatch_message, report, report_of, self_test},
};

mod fitness;
mod lease;
mod leaving;
mod lingering;
mod publishing;
mod service;

fn attempt(n: u128) -> AttemptId {
    AttemptId::from_uuid(Uuid::from_u128(n))
}

fn session(n: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(1_000 + n))
}

fn at(ms: u64) -> BootTime {
    Duration::from_millis(ms)
}

/// A machine, and what it wants done.
struct Rig {
    machine: Executor,
    actions: Vec<Action>,
    now: u64,
}

impl Rig {
    fn new(slots: u32) -> Self {
        let config = Config {
            executor: ExecutorId::from_uuid(Uuid::from_u128(1)),
            pool: "default".to_owned(),
            slots,
            facts: ExecutorFacts::default(),
            timing: Timing::standard(),
        };
        let (machine, actions) = Executor::new(config, at(0));
        Self {
            machine,
            actions,
            now: 0,
        }
    }

    /// A machine whose session 0 is open and has its lease from moment 0.
    fn live(slots: u32) -> Self {
        let mut rig = Self::new(slots);
        rig.say(Input::Connected);
        rig.say(Input::Swept);
        rig.say(Input::NewSession(session(0)));
        rig.confirm_all();
        assert_eq!(
            rig.take(),
            vec![Action::Sweep, Action::NewSession, Action::StartConsuming]
        );
        rig
    }

    fn say(&mut self, input: Input) {
        let actions = self.machine.handle(input, at(self.now));
        self.actions.extend(actions);
    }

    fn pass_to(&mut self, ms: u64) {
        self.now = ms;
        self.say(Input::Time);
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Confirms everything that is published, and returns it.
    fn confirm_all(&mut self) -> Vec<EventBatch> {
        let mut batches = Vec::new();
        while let Some(index) = self
            .actions
            .iter()
            .position(|action| matches!(action, Action::Publish { .. }))
        {
            if let Action::Publish { publish, batch } = self.actions.remove(index) {
                batches.push(batch);
                self.say(Input::Confirmed(publish));
            }
        }
        batches
    }

    fn deliver(&mut self, delivery: u64, attempt: AttemptId) {
        let message = Ok(Box::new(dispatch_message(attempt, 1)));
        self.say(Input::Delivered {
            delivery: Delivery(delivery),
            message,
        });
    }

    fn reply(&self, processed: u64) -> Reply {
        Reply {
            v: VERSION,
            session: self.machine.session().expect("a session is open"),
            processed,
            gap: false,
            answers: Vec::new(),
            stops: Vec::new(),
            dead: false,
            cordoned: false,
        }
    }

    fn answer(&mut self, attempt: AttemptId, ask: u64, verdict: Verdict) {
        let answers = vec![Answer {
            attempt,
            ask,
            verdict,
        }];
        self.say(Input::Reply(Reply {
            answers,
            ..self.reply(ask)
        }));
    }

    /// Takes, asks for and starts an attempt, whose ask has this number.
    fn run(&mut self, delivery: u64, attempt: AttemptId, ask: u64) {
        self.deliver(delivery, attempt);
        self.confirm_all();
        self.say(Input::SandboxReady(attempt));
        self.answer(attempt, ask, Verdict::Grant);
        assert!(self.machine.may_send(attempt, at(self.now)));
        self.take();
    }
}

fn events(batches: &[EventBatch]) -> Vec<&SessionEvent> {
    batches.iter().flat_map(|batch| &batch.events).collect()
}

#[test]
fn an_attempt_is_asked_for_granted_acked_and_then_sent() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    let batches = rig.confirm_all();
    assert!(matches!(
        events(&batches)[..],
        [SessionEvent::Starting { publication: 1, .. }]
    ));
    assert_eq!(batches[0].first, 2);
    assert!(
        matches!(rig.take()[..], [Action::Prepare(_)]),
        "no ack before the grant"
    );
    rig.answer(attempt(1), 2, Verdict::Grant);
    assert_eq!(
        rig.take(),
        vec![Action::Ack(Delivery(1))],
        "no job before the sandbox"
    );
    rig.say(Input::SandboxReady(attempt(1)));
    assert_eq!(rig.take(), vec![Action::SendJob(attempt(1))]);
    assert!(rig.machine.may_send(attempt(1), at(0)));
    assert!(!rig.machine.may_send(attempt(1), at(0)), "once");
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
    assert!(rig.machine.holds(attempt(1)), "until a receipt covers it");
    let receipt = rig.reply(3);
    rig.say(Input::Reply(receipt));
    assert!(!rig.machine.holds(attempt(1)));
}

#[test]
fn an_attempt_that_is_denied_is_acked_and_its_sandbox_discarded() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.confirm_all();
    rig.take();
    rig.answer(attempt(1), 2, Verdict::Deny(DenyReason::Canceled));
    assert_eq!(
        rig.take(),
        vec![Action::Discard(attempt(1)), Action::Ack(Delivery(1))]
    );
    rig.deliver(2, attempt(1));
    assert_eq!(
        rig.take(),
        vec![Action::Ack(Delivery(2))],
        "a further copy needs no ask"
    );
}

#[test]
fn an_attempt_without_a_sandbox_is_reported_once_it_is_granted() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    let failed = Box::new(report_of(EndState::Error, Cause::EngineFailure));
    rig.say(Input::SandboxFailed {
        attempt: attempt(1),
        report: failed,
    });
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Starting { .. }]
    ));
    rig.answer(attempt(1), 2, Verdict::Grant);
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
}

#[test]
fn a_delivery_that_finds_no_slot_is_handed_back_and_the_consumer_waits_for_one() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.deliver(2, attempt(2));
    rig.deliver(3, attempt(3));
    assert_eq!(rig.take(), vec![]);
    assert_eq!(rig.machine.next_wake(), Some(at(200)));
    rig.pass_to(199);
    assert_eq!(rig.take(), vec![]);
    rig.pass_to(200);
    assert_eq!(
        rig.take(),
        vec![
            Action::Return(Delivery(2)),
            Action::Return(Delivery(3)),
            Action::StopConsuming
        ]
    );
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert!(rig.take().contains(&Action::StartConsuming));
}

#[test]
fn a_delivery_that_waits_gets_the_slot_that_comes_free() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.deliver(2, attempt(2));
    rig.now = 150;
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert!(
        rig.take()
            .iter()
            .any(|action| matches!(action, Action::Prepare(_)))
    );
    rig.pass_to(400);
    assert!(!rig.take().contains(&Action::Return(Delivery(2))));
}

#[test]
fn a_message_of_a_newer_server_is_handed_back_and_a_broken_one_refused() {
    let mut rig = Rig::live(1);
    let garbage = DispatchMessage::decode(b"{}").map(Box::new);
    rig.say(Input::Delivered {
        delivery: Delivery(1),
        message: garbage,
    });
    assert_eq!(rig.take(), vec![Action::Reject(Delivery(1))]);
    let newer = DispatchMessage::decode(format!("{{\"v\":{}}}", READS + 1).as_bytes()).map(Box::new);
    rig.say(Input::Delivered {
        delivery: Delivery(2),
        message: newer,
    });
    assert_eq!(
        rig.take(),
        vec![Action::Return(Delivery(2)), Action::StopConsuming]
    );
    rig.deliver(3, attempt(1));
    assert_eq!(
        rig.take(),
        vec![Action::Return(Delivery(3))],
        "nothing more is taken"
    );
}

#[test]
fn an_ask_is_repeated_once_a_receipt_covers_it_without_an_answer() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.confirm_all();
    rig.pass_to(4_000);
    assert!(
        events(&rig.confirm_all()).is_empty(),
        "it may still be on its way"
    );
    let receipt = rig.reply(2);
    rig.say(Input::Reply(receipt));
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Starting { .. }]
    ));
    rig.take();
    rig.answer(attempt(1), 2, Verdict::Grant);
    assert_eq!(rig.take(), vec![], "an answer to the earlier ask");
    rig.answer(attempt(1), 3, Verdict::Grant);
    assert_eq!(rig.take(), vec![Action::Ack(Delivery(1))]);
}

#[test]
fn an_ask_goes_on_when_its_delivery_is_void() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.say(Input::DeliveriesVoid);
    rig.deliver(1, attempt(1));
    assert!(
        rig.take().contains(&Action::Ack(Delivery(1))),
        "the copy that came instead"
    );
    rig.say(Input::SandboxReady(attempt(1)));
    rig.answer(attempt(1), 2, Verdict::Grant);
    assert_eq!(rig.take(), vec![Action::SendJob(attempt(1))]);
}

#[test]
fn events_are_sent_again_from_a_gap_with_the_same_numbers_and_at_most_once_in_a_while() {
    let mut rig = Rig::live(2);
    rig.deliver(1, attempt(1));
    rig.deliver(2, attempt(2));
    let sent = rig.confirm_all();
    let gap = |rig: &Rig| Reply {
        gap: true,
        ..rig.reply(1)
    };
    let reply = gap(&rig);
    rig.say(Input::Reply(reply));
    let again = rig.confirm_all();
    assert_eq!(again.iter().map(|batch| batch.first).min(), Some(2));
    assert_eq!(events(&again), events(&sent));
    let reply = gap(&rig);
    rig.say(Input::Reply(reply));
    assert_eq!(
        rig.confirm_all(),
        vec![],
        "every batch behind the gap has such an answer"
    );
}

#[test]
fn what_was_under_way_when_the_connection_broke_is_published_again() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.take();
    rig.say(Input::Disconnected);
    assert_eq!(rig.take(), vec![]);
    rig.say(Input::Connected);
    let batches = rig.confirm_all();
    assert!(matches!(events(&batches)[..], [SessionEvent::Starting { .. }]));
    assert!(
        batches.iter().any(|batch| batch.heartbeat.is_some()),
        "and a heartbeat at once"
    );
}

#[test]
fn a_publication_that_fails_is_repeated_after_a_pause() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    let Some(Action::Publish { publish, .. }) = rig.take().pop() else {
        panic!("the ask is published");
    };
    rig.say(Input::PublishFailed(publish));
    assert_eq!(rig.take(), vec![]);
    assert_eq!(rig.machine.next_wake(), Some(at(250)));
    rig.pass_to(250);
    assert!(matches!(rig.take()[..], [Action::Publish { .. }]));
}

#[test]
fn a_run_that_is_to_stop_is_killed_for_the_reason_given() {
    for (why, kill) in [
        (StopReason::Canceled, KillReason::Canceled),
        (StopReason::NotYours, KillReason::NotOurs),
    ] {
        let mut rig = Rig::live(1);
        rig.run(1, attempt(1), 2);
        let stops = vec![Stop {
            attempt: attempt(1),
            why,
        }];
        let stop = Reply {
            stops,
            ..rig.reply(2)
        };
        rig.say(Input::Reply(stop.clone()));
        rig.say(Input::Reply(stop));
        assert_eq!(
            rig.take(),
            vec![Action::Kill {
                attempt: attempt(1),
                why: kill
            }],
            "once"
        );
    }
}

#[test]
fn heartbeats_name_everything_that_is_not_over_for_the_server() {
    let mut rig = Rig::live(4);
    rig.run(1, attempt(1), 2);
    rig.run(2, attempt(2), 3);
    rig.say(Input::RunEnded {
        attempt: attempt(2),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    rig.deliver(3, attempt(3));
    rig.confirm_all();
    rig.answer(attempt(3), 5, Verdict::Grant);
    rig.deliver(4, attempt(4));
    rig.confirm_all();
    rig.pass_to(5_000);
    let batches = rig.confirm_all();
    let beat = batches
        .last()
        .and_then(|batch| batch.heartbeat.clone())
        .expect("it is due");
    let phases: Vec<_> = beat.held.iter().map(|held| (held.attempt, held.phase)).collect();
    assert_eq!(
        phases,
        vec![
            (attempt(1), Phase::Running),
            // Its end is covered by the receipt that came with the next answer.
            (attempt(3), Phase::Granted),
            (attempt(4), Phase::Asked)
        ]
    );
    assert_eq!(beat.free_slots, 1);
}

#[test]
fn a_reply_to_another_session_says_nothing_to_this_one() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.confirm_all();
    rig.take();
    let answers = vec![Answer {
        attempt: attempt(1),
        ask: 2,
        verdict: Verdict::Grant,
    }];
    let reply = Reply {
        session: session(9),
        answers,
        dead: true,
        cordoned: false,
        ..rig.reply(9)
    };
    rig.say(Input::Reply(reply));
    assert_eq!(rig.take(), vec![]);
    assert_eq!(rig.machine.session(), Some(session(0)));
}
