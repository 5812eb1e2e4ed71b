//! The lease, and the sessions that follow one another.

use super::*;

#[test]
fn the_lease_runs_from_before_the_newest_heartbeat_that_is_confirmed() {
    let mut rig = Rig::live(1);
    rig.pass_to(5_000);
    assert!(matches!(rig.take()[..], [Action::Publish { .. }]));
    assert!(rig.machine.lease_is_live(at(32_999)), "from moment 0");
    assert!(
        !rig.machine.lease_is_live(at(33_000)),
        "what is not confirmed does not count"
    );
    rig.pass_to(10_000);
    let Some(Action::Publish { publish, batch }) = rig.take().pop() else {
        panic!("a heartbeat is due");
    };
    assert_eq!((batch.first, batch.events.len()), (2, 0));
    rig.now = 14_000;
    rig.say(Input::Confirmed(publish));
    assert!(rig.machine.lease_is_live(at(42_999)) && !rig.machine.lease_is_live(at(43_000)));
}

#[test]
fn a_job_is_sent_only_while_the_lease_outlasts_a_guest_without_alive_frames() {
    for (ms, may) in [(32_000, true), (34_999, true), (35_000, false), (60_000, false)] {
        let mut rig = Rig::live(1);
        rig.deliver(1, attempt(1));
        rig.answer(attempt(1), 2, Verdict::Grant);
        rig.say(Input::SandboxReady(attempt(1)));
        assert_eq!(
            rig.machine.may_send(attempt(1), at(ms)),
            may,
            "at {ms} ms of a lease of 45 s"
        );
    }
}

#[test]
fn before_its_lease_ends_a_session_gives_up_everything_and_delivers_what_it_finished() {
    let mut rig = Rig::live(3);
    rig.run(1, attempt(1), 2);
    rig.run(2, attempt(2), 3);
    rig.deliver(3, attempt(3));
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    rig.say(Input::Disconnected);
    rig.take();
    rig.pass_to(32_999);
    assert_eq!(rig.take(), vec![]);
    rig.pass_to(33_000);
    let kill = Action::Kill {
        attempt: attempt(2),
        why: KillReason::LeaseEnding,
    };
    assert_eq!(
        rig.take(),
        vec![
            kill,
            Action::Return(Delivery(3)),
            Action::Discard(attempt(3)),
            Action::StopConsuming
        ]
    );
    rig.say(Input::Connected);
    let abandoned = Box::new(report_of(EndState::Error, Cause::Abandoned));
    rig.say(Input::RunEnded {
        attempt: attempt(2),
        report: abandoned,
        container: ContainerLeft::Gone,
    });
    let mut batches = rig.confirm_all();
    // After so many events there is a rest.
    rig.pass_to(33_040);
    batches.extend(rig.confirm_all());
    assert!(
        batches
            .iter()
            .all(|batch| batch.session == session(0) && batch.heartbeat.is_none())
    );
    let said = events(&batches);
    assert!(
        said.iter()
            .any(|event| matches!(event, SessionEvent::Finished { .. }))
    );
    let given_up = |attempt_id, ran| SessionEvent::Abandoned {
        attempt: attempt_id,
        why: AbandonReason::LeaseEnding,
        ran,
    };
    assert!(said.contains(&&given_up(attempt(2), true)) && said.contains(&&given_up(attempt(3), false)));
    assert!(
        !rig.take().contains(&Action::NewSession),
        "its last events wait for their receipt"
    );
    let last = batches
        .iter()
        .map(EventBatch::last)
        .max()
        .expect("there are some");
    let receipt = rig.reply(last);
    rig.say(Input::Reply(receipt));
    assert_eq!(rig.take(), vec![Action::NewSession]);
}

#[test]
fn a_late_confirm_does_not_revive_a_lease() {
    let mut rig = Rig::live(1);
    rig.pass_to(5_000);
    let Some(Action::Publish { publish, .. }) = rig.take().pop() else {
        panic!("a heartbeat is due");
    };
    rig.now = 33_000;
    rig.say(Input::Confirmed(publish));
    assert!(rig.take().contains(&Action::StopConsuming));
    assert!(!rig.machine.lease_is_live(at(33_000)));
}

#[test]
fn a_session_is_announced_when_containers_before_it_are_gone_or_must_be() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.take(), vec![Action::Sweep]);
    rig.pass_to(9_999);
    assert_eq!(rig.take(), vec![]);
    rig.pass_to(10_000);
    assert_eq!(
        rig.take(),
        vec![Action::NewSession],
        "their guests have had no alive frame for the limit"
    );
    rig.say(Input::NewSession(session(0)));
    rig.say(Input::Connected);
    let batches = rig.confirm_all();
    assert!(matches!(events(&batches)[..], [SessionEvent::Opened(_)]));
    assert!(batches[0].heartbeat.is_some());
}

#[test]
fn a_session_that_is_declared_dead_is_followed_by_another_once_its_containers_are_gone() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    let dead = Reply {
        dead: true,
        cordoned: false,
        ..rig.reply(2)
    };
    rig.say(Input::Reply(dead));
    let actions = rig.take();
    assert!(actions.contains(&Action::Kill {
        attempt: attempt(1),
        why: KillReason::LeaseEnding
    }));
    assert!(!actions.contains(&Action::NewSession));
    rig.pass_to(9_999);
    assert!(!rig.take().contains(&Action::NewSession));
    rig.pass_to(10_000);
    assert!(
        rig.take().contains(&Action::NewSession),
        "an engine that hangs delays it no longer than a guest lives"
    );
    rig.say(Input::NewSession(session(1)));
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    let batches = rig.confirm_all();
    assert!(
        matches!(events(&batches)[..], [SessionEvent::Opened(_)]),
        "the late end belongs to nobody"
    );
}

#[test]
fn a_run_that_had_ended_by_itself_when_it_was_killed_is_reported_as_that() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.pass_to(33_000);
    assert!(rig.take().contains(&Action::Kill {
        attempt: attempt(1),
        why: KillReason::LeaseEnding
    }));
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    let batches = rig.confirm_all();
    assert!(matches!(events(&batches)[..], [SessionEvent::Finished { .. }]));
}

#[test]
fn a_copy_of_what_was_given_up_without_an_answer_is_handed_on() {
    let mut rig = Rig::live(1);
    rig.deliver(1, attempt(1));
    rig.pass_to(33_000);
    assert!(rig.take().contains(&Action::Return(Delivery(1))));
    rig.deliver(2, attempt(1));
    assert!(
        rig.take().contains(&Action::Return(Delivery(2))),
        "it may never have been started"
    );
}
