//! Runs that are over, with containers that are not gone yet.

use super::*;
use crate::message::{MAX_CONTRADICTION_BYTES, MAX_CONTRADICTIONS};

/// A machine with one slot whose attempt 1 has ended, its container being destroyed; the report is out.
fn lingering() -> Rig {
    let mut rig = Rig::live(1);
    rig.run(1, attempt(1), 2);
    rig.say(Input::RunEnded {
        attempt: attempt(1),
        report: Box::new(report()),
        container: ContainerLeft::BeingDestroyed,
    });
    rig
}

fn destroyed(contradictions: &[&str]) -> Input {
    Input::Destroyed {
        attempt: attempt(1),
        contradictions: contradictions.iter().map(|text| (*text).to_owned()).collect(),
    }
}

#[test]
fn the_report_does_not_wait_for_the_container_and_its_slot_is_free() {
    let mut rig = lingering();
    let batches = rig.confirm_all();
    assert!(matches!(events(&batches)[..], [SessionEvent::Finished { .. }]));
    rig.deliver(2, attempt(2));
    assert!(matches!(rig.take()[..], [Action::Prepare(_), ..]));
    rig.confirm_all();
    rig.say(destroyed(&[]));
    assert_eq!(
        rig.take(),
        vec![],
        "nothing contradicts it, so that there is nothing to say"
    );
}

#[test]
fn what_the_engine_says_against_the_report_follows_it() {
    let mut rig = lingering();
    rig.confirm_all();
    rig.say(destroyed(&["one thing", "another"]));
    let batches = rig.confirm_all();
    let said = SessionEvent::Contradicted {
        attempt: attempt(1),
        contradictions: vec!["one thing".to_owned(), "another".to_owned()],
    };
    assert_eq!(events(&batches), [&said]);
    rig.say(destroyed(&["again"]));
    assert_eq!(rig.confirm_all(), vec![], "it is said once");
}

#[test]
fn what_is_said_has_its_bounds() {
    let mut rig = lingering();
    rig.confirm_all();
    let long = "ä".repeat(MAX_CONTRADICTION_BYTES);
    rig.say(destroyed(&[long.as_str(); 2 * MAX_CONTRADICTIONS]));
    let batches = rig.confirm_all();
    let read = batches.iter().map(|batch| EventBatch::decode(&batch.encode()));
    assert!(read.into_iter().all(|batch| batch.is_ok()));
    let [SessionEvent::Contradicted { contradictions, .. }] = events(&batches)[..] else {
        panic!("{batches:?}");
    };
    assert_eq!(contradictions.len(), MAX_CONTRADICTIONS);
    assert!(
        contradictions
            .iter()
            .all(|text| text.len() == MAX_CONTRADICTION_BYTES)
    );
}

#[test]
fn a_process_that_leaves_waits_for_its_containers() {
    let mut rig = lingering();
    rig.confirm_all();
    rig.say(Input::Reply(rig.reply(3)));
    rig.say(Input::Drain);
    assert!(
        !events(&rig.confirm_all()).contains(&&SessionEvent::Closed),
        "what the engine will say could go on record nowhere"
    );
    rig.say(destroyed(&["one thing"]));
    let batches = rig.confirm_all();
    assert!(matches!(
        events(&batches)[..],
        [SessionEvent::Contradicted { .. }, SessionEvent::Closed]
    ));
}

#[test]
fn another_session_does_not_speak_for_the_one_that_made_the_report() {
    let mut rig = lingering();
    rig.confirm_all();
    let dead = Reply {
        dead: true,
        cordoned: false,
        ..rig.reply(3)
    };
    rig.say(Input::Reply(dead));
    rig.say(Input::NewSession(session(1)));
    rig.confirm_all();
    rig.say(destroyed(&["one thing"]));
    assert_eq!(rig.confirm_all(), vec![]);
}
