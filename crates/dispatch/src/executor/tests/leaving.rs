use mayfly_core::outcome::{Cause, EndState};

use super::*;

#[test]
fn a_drained_executor_finishes_what_it_holds_and_then_says_that_it_is_done() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.say(Input::Drain);
    assert_eq!(rig.take(), vec![Action::StopConsuming]);
    rig.deliver(2, attempt(2));
    assert_eq!(rig.take(), vec![Action::Return(Delivery(2))]);
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
    let receipt = rig.reply(3);
    rig.say(Input::Reply(receipt));
    assert!(matches!(events(&rig.confirm_all())[..], [SessionEvent::Closed]));
    assert_eq!(rig.take(), vec![], "not before the server knows");
    let receipt = rig.reply(4);
    rig.say(Input::Reply(receipt));
    assert_eq!(rig.take(), vec![Action::Done]);
    assert_eq!(rig.machine.next_wake(), None);
}

#[test]
fn a_drained_executor_that_holds_nothing_waits_a_while_for_its_last_receipt() {
    for connected in [true, false] {
        let mut rig = Rig::live(1);
        if !connected {
            rig.say(Input::Disconnected);
        }
        rig.say(Input::Drain);
        rig.confirm_all();
        rig.take();
        let limit = u64::try_from(Timing::standard().last_receipt.as_millis()).unwrap();
        rig.pass_to(limit - 1);
        assert!(!rig.take().contains(&Action::Done));
        assert_eq!(
            rig.machine.next_wake().map(|at| at.as_millis()),
            Some(u128::from(limit))
        );
        rig.pass_to(limit);
        assert!(rig.take().contains(&Action::Done));
    }
}

#[test]
fn a_drained_executor_that_holds_something_waits_for_its_connection() {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.say(Input::Disconnected);
    rig.say(Input::Drain);
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert_eq!(
        rig.take(),
        vec![Action::StopConsuming],
        "what it holds is not delivered"
    );
    rig.say(Input::Connected);
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
}

#[test]
fn a_cordoned_executor_takes_nothing_new_and_goes_on_with_what_it_holds() {
    let mut rig = Rig::live(2);
    rig.run(1, attempt(1), 2);
    rig.say(Input::Cordon(true));
    assert_eq!(rig.take(), vec![Action::StopConsuming]);
    rig.deliver(2, attempt(2));
    assert_eq!(rig.take(), vec![Action::Return(Delivery(2))]);
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::Gone,
    });
    assert!(matches!(
        events(&rig.confirm_all())[..],
        [SessionEvent::Finished { .. }]
    ));
    let receipt = rig.reply(3);
    rig.say(Input::Reply(receipt));
    assert_eq!(rig.take(), vec![], "the session stands");
    rig.say(Input::Cordon(false));
    assert_eq!(rig.take(), vec![Action::StartConsuming]);
}

#[test]
fn an_executor_that_is_to_stop_at_once_kills_and_abandons() {
    let mut rig = Rig::live(2);
    rig.run(1, attempt(1), 2);
    rig.deliver(2, attempt(2));
    rig.confirm_all();
    rig.take();
    rig.say(Input::Abort);
    assert!(rig.actions.contains(&Action::Kill {
        attempt: attempt(1),
        why: KillReason::Stopped
    }));
    assert!(rig.actions.contains(&Action::Return(Delivery(2))));
    let abandoned = Box::new(report_of(EndState::Error, Cause::Abandoned));
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: abandoned,
        container: ContainerLeft::Gone,
    });
    let batches = rig.confirm_all();
    let gone = SessionEvent::Abandoned {
        attempt: attempt(1),
        why: AbandonReason::Stopped,
        ran: true,
    };
    assert!(events(&batches).contains(&&gone));
}

#[test]
fn an_executor_that_never_had_a_session_stops_at_once() {
    let mut rig = Rig::new(1);
    rig.take();
    rig.say(Input::Drain);
    assert_eq!(rig.take(), vec![Action::Done]);
}
