//! How events are put into messages, and when those go out.

use super::*;
use crate::rest;

/// What is to be published: each message's number, how many events it has, and whether a heartbeat.
fn published(rig: &Rig) -> Vec<(Publish, usize, bool)> {
    let batches = rig.actions.iter().filter_map(|action| match action {
        Action::Publish { publish, batch } => Some((*publish, batch.events.len(), batch.heartbeat.is_some())),
        _ => None,
    });
    batches.collect()
}

#[test]
fn batches_are_bounded_by_events_and_by_bytes_and_a_large_result_goes_alone() {
    let slots = 100;
    let mut rig = Rig::live(slots);
    rig.say(Input::Disconnected);
    for n in 0..u128::from(slots) {
        rig.deliver(1, attempt(n));
    }
    rig.say(Input::Connected);
    let batches = rig.confirm_all();
    assert_eq!(
        batches.iter().map(|batch| batch.events.len()).collect::<Vec<_>>(),
        vec![MAX_BATCH_EVENTS, 36]
    );
    assert!(batches.windows(2).all(|pair| pair[1].first == pair[0].last() + 1));
    rig.pass_to(100);
    for n in 0..3 {
        let mut large = report();
        large.stdout.head = vec![7; MAX_BATCH_BYTES];
        rig.answer(attempt(n), u64::try_from(n).unwrap_or(0) + 2, Verdict::Grant);
        rig.say(Input::Disconnected);
        rig.say(Input::SandboxFailed {
            attempt: attempt(n),
            report: Box::new(large),
        });
    }
    rig.say(Input::Connected);
    let batches = rig.confirm_all();
    assert_eq!(batches.iter().filter(|batch| batch.events.len() == 1).count(), 3);
    assert!(
        batches
            .iter()
            .all(|batch| EventBatch::decode(&batch.encode()).is_ok())
    );
}

/// Whatever comes while a confirm is waited for goes out in one message; a heartbeat takes along what stands before it.
#[test]
fn events_that_come_while_others_are_under_way_go_out_together() {
    let mut rig = Rig::live(4);
    for number in 1..=4 {
        rig.deliver(number, attempt(number.into()));
    }
    let [(first, 1, false)] = published(&rig)[..] else {
        panic!("the first ask goes out at once, alone: {:?}", rig.actions);
    };
    rig.take();
    assert!(
        rig.machine.next_wake().is_some_and(|wake| wake > at(rig.now)),
        "nobody is woken for what waits for a confirm"
    );
    rig.say(Input::Confirmed(first));
    let [(second, 3, false)] = published(&rig)[..] else {
        panic!("the others follow together: {:?}", rig.actions);
    };
    rig.take();
    rig.pass_to(5_000);
    let [(_, 0, true)] = published(&rig)[..] else {
        panic!("a heartbeat does not wait: {:?}", rig.actions);
    };
    rig.take();
    rig.say(Input::PublishFailed(second));
    rig.pass_to(5_250);
    assert!(
        published(&rig).iter().any(|(_, events, _)| *events == 3),
        "what failed goes out again: {:?}",
        rig.actions
    );
}

#[test]
fn after_many_events_there_is_a_rest_and_after_one_there_is_none() {
    let mut rig = Rig::live(8);
    for number in 1..=5 {
        rig.deliver(number, attempt(number.into()));
    }
    let alone = published(&rig)[0].0;
    rig.take();
    rig.say(Input::Confirmed(alone));
    let [(together, 4, false)] = published(&rig)[..] else {
        panic!("one event makes nothing wait: {:?}", rig.actions);
    };
    rig.take();
    rig.say(Input::Confirmed(together));
    for number in 6..=8 {
        rig.deliver(number, attempt(number.into()));
    }
    assert_eq!(published(&rig), vec![], "after four there is a rest");
    let over = at(rig.now) + rest::after(4);
    assert_eq!(rig.machine.next_wake(), Some(over));
    rig.pass_to(u64::try_from(over.as_millis()).expect("a rest is short"));
    let [(_, 3, false)] = published(&rig)[..] else {
        panic!("what has come meanwhile goes out together: {:?}", rig.actions);
    };
}
