//! When a host is tried, what that takes of its slots, and what a failure means.

use super::{super::fitness::PATIENCE, *};

const HOUR: u64 = 3_600_000;

fn tested(failures: usize, next_in_ms: u64) -> Input {
    Input::SelfTested {
        test: Box::new(self_test(failures)),
        next_in: Some(Duration::from_millis(next_in_ms)),
    }
}

/// A machine that was tried before it began, whose session has its lease, and whose next test is due in an hour.
fn fit(slots: u32) -> Rig {
    let mut rig = Rig::live(slots);
    rig.say(tested(0, HOUR));
    rig.confirm_all();
    rig.take();
    rig
}

/// Goes on to a moment with every heartbeat on the way confirmed, and returns what was wanted meanwhile.
fn go_on_to(rig: &mut Rig, ms: u64) -> Vec<Action> {
    let mut wanted = Vec::new();
    while rig.now < ms {
        rig.pass_to((rig.now + 5_000).min(ms));
        rig.confirm_all();
        wanted.extend(rig.take());
    }
    wanted
}

#[test]
fn each_session_begins_with_what_it_stands_on() {
    let mut rig = Rig::new(1);
    rig.say(tested(0, HOUR));
    rig.say(Input::Connected);
    rig.say(Input::Swept);
    rig.say(Input::NewSession(session(0)));
    let batches = rig.confirm_all();
    assert!(matches!(
        events(&batches)[..],
        [SessionEvent::Opened(_), SessionEvent::SelfTested(test)] if **test == self_test(0)
    ));
    assert_eq!(batches[0].v, 4);
    assert!(rig.take().contains(&Action::StartConsuming));
}

#[test]
fn an_idle_host_is_tried_when_that_is_due_and_again_after_its_interval() {
    let mut rig = fit(2);
    assert_eq!(go_on_to(&mut rig, HOUR - 1), vec![]);
    assert_eq!(rig.machine.next_wake(), Some(at(HOUR)), "it wakes for that alone");
    assert_eq!(go_on_to(&mut rig, HOUR), vec![Action::SelfTest]);
    assert_eq!(go_on_to(&mut rig, HOUR + 60_000), vec![], "once");
    rig.say(tested(0, HOUR));
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::SelfTested(_)]
    ));
    assert_eq!(go_on_to(&mut rig, 2 * HOUR + 59_999), vec![]);
    assert_eq!(go_on_to(&mut rig, 2 * HOUR + 60_000), vec![Action::SelfTest]);
}

#[test]
fn a_test_has_a_slot_while_it_is_made() {
    let mut rig = fit(1);
    go_on_to(&mut rig, HOUR);
    rig.deliver(1, attempt(1));
    assert_eq!(rig.take(), vec![], "it waits, as for any other slot");
    rig.pass_to(HOUR + 200);
    assert_eq!(
        rig.take(),
        vec![Action::Return(Delivery(1)), Action::StopConsuming]
    );
    rig.say(tested(0, HOUR));
    rig.confirm_all();
    assert_eq!(rig.take(), vec![Action::StartConsuming]);
}

#[test]
fn a_host_that_is_not_what_it_was_takes_nothing_before_it_has_been_tried_again() {
    let mut rig = fit(2);
    rig.run(1, attempt(1), 3);
    rig.take();
    rig.say(Input::HostChanged);
    let wanted = rig.take();
    assert!(
        wanted.contains(&Action::SelfTest) && wanted.contains(&Action::StopConsuming),
        "at once, beside what runs: {wanted:?}"
    );
    rig.deliver(2, attempt(2));
    assert_eq!(rig.take(), vec![Action::Return(Delivery(2))]);
    rig.say(tested(1, 60_000));
    rig.confirm_all();
    assert!(!rig.take().contains(&Action::StartConsuming), "it has failed");
    rig.say(Input::HostChanged);
    assert!(rig.take().contains(&Action::SelfTest), "and may be mended");
    rig.say(tested(0, HOUR));
    rig.confirm_all();
    assert!(rig.take().contains(&Action::StartConsuming));
}

#[test]
fn a_test_waits_for_an_idle_moment() {
    let mut rig = fit(2);
    go_on_to(&mut rig, HOUR - 1_000);
    rig.run(1, attempt(1), 3);
    assert_eq!(go_on_to(&mut rig, HOUR + 60_000), vec![], "though a slot is free");
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::BeingDestroyed,
    });
    rig.confirm_all();
    assert_eq!(rig.take(), vec![], "its container is being destroyed");
    rig.say(Input::Destroyed {
        attempt: attempt(1),
        contradictions: Vec::new(),
    });
    assert_eq!(rig.take(), vec![Action::SelfTest]);
}

#[test]
fn a_test_waits_for_no_idle_moment_that_does_not_come() {
    let mut rig = fit(2);
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap();
    go_on_to(&mut rig, HOUR - 1_000);
    rig.run(1, attempt(1), 3);
    assert_eq!(go_on_to(&mut rig, HOUR + patience - 1), vec![]);
    assert_eq!(rig.machine.next_wake(), Some(at(HOUR + patience)));
    assert_eq!(go_on_to(&mut rig, HOUR + patience), vec![Action::SelfTest]);
}

#[test]
fn a_test_that_has_waited_for_long_has_the_next_free_slot_before_whatever_is_delivered() {
    let mut rig = fit(1);
    go_on_to(&mut rig, HOUR - 1_000);
    rig.run(1, attempt(1), 3);
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap();
    assert_eq!(go_on_to(&mut rig, HOUR + patience + 1_000), vec![]);
    rig.deliver(2, attempt(2));
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    rig.confirm_all();
    assert_eq!(rig.take(), vec![Action::SelfTest]);
    rig.pass_to(rig.now + 200);
    rig.confirm_all();
    assert_eq!(
        rig.take(),
        vec![Action::Return(Delivery(2)), Action::StopConsuming]
    );
}

#[test]
fn a_host_that_has_failed_takes_nothing_finishes_what_it_runs_and_comes_back_by_a_test_that_passes() {
    let mut rig = fit(2);
    rig.run(1, attempt(1), 3);
    rig.say(tested(1, 60_000));
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::SelfTested(test)] if !test.is_fit()
    ));
    assert_eq!(rig.take(), vec![Action::StopConsuming], "and nothing is killed");
    rig.deliver(2, attempt(2));
    assert_eq!(rig.take(), vec![Action::Return(Delivery(2))]);
    assert!(rig.machine.holds(attempt(1)));
    // It waits for no idle moment: nothing new comes that it could disturb.
    assert_eq!(go_on_to(&mut rig, 60_000), vec![Action::SelfTest]);
    rig.say(tested(2, 120_000));
    rig.confirm_all();
    assert_eq!(go_on_to(&mut rig, 179_999), vec![]);
    assert_eq!(go_on_to(&mut rig, 180_000), vec![Action::SelfTest]);
    rig.say(tested(0, HOUR));
    rig.confirm_all();
    assert_eq!(rig.take(), vec![Action::StartConsuming]);
}

#[test]
fn a_host_that_failed_before_it_began_takes_nothing_and_says_so() {
    let mut rig = Rig::new(1);
    rig.say(tested(1, 60_000));
    rig.say(Input::Connected);
    rig.say(Input::Swept);
    rig.say(Input::NewSession(session(0)));
    rig.confirm_all();
    assert_eq!(rig.take(), vec![Action::Sweep, Action::NewSession]);
    assert_eq!(go_on_to(&mut rig, 60_000), vec![Action::SelfTest]);
}

#[test]
fn one_that_is_never_due_again_is_never_made() {
    let mut rig = Rig::live(1);
    rig.say(Input::SelfTested {
        test: Box::new(self_test(0)),
        next_in: None,
    });
    rig.confirm_all();
    rig.take();
    assert_eq!(go_on_to(&mut rig, 2 * HOUR), vec![]);
}

#[test]
fn whoever_leaves_is_not_tried_any_more() {
    let mut rig = fit(1);
    go_on_to(&mut rig, HOUR - 1_000);
    rig.run(1, attempt(1), 3);
    rig.say(Input::Drain);
    rig.confirm_all();
    rig.take();
    let patience = u64::try_from(PATIENCE.as_millis()).unwrap();
    assert_eq!(go_on_to(&mut rig, HOUR + 2 * patience), vec![]);
    assert!(rig.machine.next_wake().is_none_or(|wake| wake > at(rig.now)));
}
