//! Out of service: the engine does not answer, and what waits for it is neither ended nor joined by more; or the executor
//! is cordoned. And what its host has.

use super::*;

fn delayed(slots: u32) -> Rig {
    let mut rig = Rig::live(slots);
    rig.deliver(1, attempt(1));
    rig.confirm_all();
    rig.take();
    rig.answer(attempt(1), 2, Verdict::Grant);
    rig.take();
    rig.say(Input::SandboxDelayed(attempt(1)));
    rig
}

#[test]
fn an_executor_whose_engine_does_not_answer_takes_nothing_new_until_it_does() {
    let mut rig = delayed(2);
    assert_eq!(rig.take(), vec![Action::StopConsuming], "though a slot is free");
    rig.deliver(2, attempt(2));
    assert_eq!(
        rig.take(),
        vec![Action::Return(Delivery(2))],
        "at once, for whoever can run it"
    );
    rig.pass_to(20_000);
    rig.confirm_all();
    assert_eq!(rig.take(), vec![], "what is granted waits and is not ended");
    assert!(rig.machine.holds(attempt(1)));
    rig.say(Input::SandboxReady(attempt(1)));
    assert_eq!(
        rig.take(),
        vec![Action::SendJob(attempt(1)), Action::StartConsuming]
    );
}

#[test]
fn an_attempt_that_waits_for_the_engine_can_be_stopped_and_the_executor_is_in_service_again() {
    let mut rig = delayed(2);
    rig.take();
    let stops = vec![Stop {
        attempt: attempt(1),
        why: StopReason::Canceled,
    }];
    rig.say(Input::Reply(Reply {
        stops,
        ..rig.reply(2)
    }));
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Abandoned { ran: false, .. }]
    ));
    assert_eq!(
        rig.take(),
        vec![Action::Discard(attempt(1)), Action::StartConsuming]
    );
}

#[test]
fn a_wait_for_the_engine_that_came_to_nothing_is_reported_as_its_end() {
    let mut rig = delayed(1);
    rig.take();
    let failed = Box::new(report_of(EndState::Error, Cause::EngineFailure));
    rig.say(Input::SandboxFailed {
        attempt: attempt(1),
        report: failed,
    });
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
    assert_eq!(rig.take(), vec![Action::StartConsuming]);
}

#[test]
fn a_delay_that_is_told_too_late_changes_nothing() {
    let mut rig = Rig::live(2);
    rig.run(1, attempt(1), 2);
    rig.say(Input::SandboxDelayed(attempt(1)));
    rig.say(Input::SandboxDelayed(attempt(9)));
    assert_eq!(rig.take(), vec![]);
}

#[test]
fn a_cordoned_executor_takes_nothing_new_and_goes_on_with_what_it_has() {
    let mut rig = Rig::live(2);
    rig.run(1, attempt(1), 2);
    let cordoned = Reply {
        cordoned: true,
        ..rig.reply(2)
    };
    rig.say(Input::Reply(cordoned.clone()));
    assert_eq!(rig.take(), vec![Action::StopConsuming], "though a slot is free");
    rig.say(Input::Reply(cordoned));
    assert_eq!(rig.take(), vec![]);
    rig.deliver(2, attempt(2));
    assert_eq!(rig.take(), vec![Action::Return(Delivery(2))]);
    assert!(rig.machine.holds(attempt(1)));
    rig.say(Input::Reply(rig.reply(2)));
    assert_eq!(rig.take(), vec![Action::StartConsuming]);
}

#[test]
fn the_images_of_a_host_are_named_when_a_session_begins_and_when_they_change() {
    let image = |name: &[u8]| Digest::of(name);
    let mut rig = Rig::new(1);
    rig.say(Input::Images(vec![image(b"a")]));
    rig.say(Input::Connected);
    rig.say(Input::Swept);
    rig.say(Input::NewSession(session(0)));
    let batches = rig.confirm_all();
    let opened = |batches: &[EventBatch]| match events(batches)[..] {
        [SessionEvent::Opened(opened)] => opened.facts.clone(),
        ref others => panic!("a session begins: {others:?}"),
    };
    assert_eq!(opened(&batches).images, Some(vec![image(b"a")]));
    assert_eq!(opened(&batches).reads, READS);
    assert_eq!(batches[0].v, 2);
    rig.say(Input::Images(vec![image(b"a")]));
    assert_eq!(
        events(&rig.confirm_all()),
        Vec::<&SessionEvent>::new(),
        "nothing has changed"
    );
    let both = vec![image(b"a"), image(b"b")];
    rig.say(Input::Images(both.clone()));
    let batches = rig.confirm_all();
    assert_eq!(events(&batches), [&SessionEvent::Images { images: both.clone() }]);
    assert_eq!(batches[0].v, 2);
}
