//! Files come after the end, in order, and never more than were asked for.

use super::*;
use crate::testing::{collect_order, file_name};
use crate::{ArtifactEnd, ArtifactHeader, Collected, LeftOut, LeftOutWhy};

/// A session whose job is over and whose files are asked for, with 100 bytes of credit for them.
fn collecting() -> GuestSession {
    let mut session = exited();
    send_ok(
        &mut session,
        &[
            ToGuest::Collect(collect_order()),
            credit(StreamId::ARTIFACTS, 100),
        ],
    );
    session
}

/// A session whose job is over and has files to collect.
fn exited() -> GuestSession {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    let job = Job {
        collects: true,
        ..job(0, false)
    };
    send_ok(&mut session, &[ToGuest::Job(job), ToGuest::Start]);
    session.receive(&started()).unwrap();
    session.receive(&FromGuest::Exit(exit(0, 0))).unwrap();
    assert_eq!(session.state(), SessionState::Exited);
    session
}

fn artifact(size: u64) -> FromGuest {
    FromGuest::Artifact(ArtifactHeader {
        name: file_name(b"a"),
        size,
    })
}

fn data(bytes: usize) -> FromGuest {
    FromGuest::ArtifactData(vec![0; bytes])
}

fn end(errno: Option<i32>) -> FromGuest {
    FromGuest::ArtifactEnd(ArtifactEnd { errno })
}

fn left_out() -> FromGuest {
    FromGuest::LeftOut(LeftOut {
        name: file_name(b"b"),
        why: LeftOutWhy::Link,
        size: None,
        errno: None,
    })
}

fn collected(entries: u32) -> FromGuest {
    FromGuest::Collected(Collected {
        entries,
        not_named: 0,
        incomplete: false,
    })
}

#[test]
fn files_come_one_after_the_other_and_then_nothing() {
    let mut session = collecting();
    let frames = [
        artifact(5),
        data(2),
        data(3),
        end(None),
        left_out(),
        artifact(0),
        end(None),
        left_out(),
    ];
    for frame in frames {
        session.receive(&frame).unwrap();
        assert_eq!(session.state(), SessionState::Collecting);
    }
    assert_eq!(session.outstanding(StreamId::ARTIFACTS), 95);
    session.receive(&collected(100)).unwrap();
    assert_eq!(session.state(), SessionState::Ended);
    assert!(session.receive(&artifact(0)).is_err());
}

#[test]
fn a_file_that_could_not_be_read_whole_ends_before_its_size() {
    let mut session = collecting();
    for frame in [
        artifact(5),
        data(2),
        end(Some(5)),
        artifact(5),
        data(5),
        end(None),
    ] {
        session.receive(&frame).unwrap();
    }
}

#[test]
fn nothing_comes_that_exceeds_what_was_asked_for() {
    let too_much: [(&str, &[FromGuest]); 12] = [
        ("a file too large", &[artifact(9)]),
        (
            "all files too large",
            &[artifact(8), data(8), end(None), artifact(3)],
        ),
        (
            "too many files",
            &[artifact(0), end(None), artifact(0), end(None), artifact(0)],
        ),
        ("too many named", &[left_out(), left_out(), left_out()]),
        ("too many looked at", &[collected(101)]),
        ("more than its size", &[artifact(1), data(2)]),
        ("less than its size", &[artifact(2), data(1), end(None)]),
        ("data of no file", &[data(1)]),
        ("an end of no file", &[end(None)]),
        ("a file in a file", &[artifact(2), artifact(2)]),
        ("a name in a file", &[artifact(2), left_out()]),
        ("the end in a file", &[artifact(2), collected(1)]),
    ];
    for (what, frames) in too_much {
        let mut session = collecting();
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            session
                .receive(frame)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        session.receive(last).expect_err(what);
        assert_eq!(session.state(), SessionState::Broken, "{what}");
    }
    let mut session = exited();
    send_ok(&mut session, &[ToGuest::Collect(collect_order())]);
    session.receive(&artifact(1)).unwrap();
    let error = session.receive(&data(1)).unwrap_err();
    assert!(matches!(error, ProtocolError::CreditExceeded { .. }), "{error}");
}

#[test]
fn files_are_asked_for_once_and_when_the_job_is_over() {
    let order = || ToGuest::Collect(collect_order());
    // The job runs.
    let mut session = running();
    assert!(session.send(&order()).is_err());
    // Twice.
    let mut session = collecting();
    assert!(session.send(&order()).is_err());
    // Before anybody asks the guest is silent.
    assert!(exited().receive(&artifact(0)).is_err());
    // A job without files to collect is over with its exit, and what is sent then means nothing.
    let mut session = running();
    session.receive(&FromGuest::Exit(exit(0, 0))).unwrap();
    assert_eq!(session.state(), SessionState::Ended);
    session.send(&order()).unwrap();
    assert!(session.receive(&artifact(0)).is_err());
    // Of a job that was killed they may be asked for as well, and a kill ends that.
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    let job = Job {
        collects: true,
        ..job(0, false)
    };
    send_ok(&mut session, &[ToGuest::Job(job), ToGuest::Start]);
    session.receive(&started()).unwrap();
    send_ok(&mut session, &[ToGuest::Kill]);
    session.receive(&FromGuest::Exit(exit(0, 0))).unwrap();
    send_ok(&mut session, &[order(), ToGuest::Kill, ToGuest::Kill]);
}

#[test]
fn credit_for_files_is_given_when_they_are_asked_for() {
    let credit = credit(StreamId::ARTIFACTS, 1);
    assert!(running().send(&credit).is_err());
    assert!(exited().send(&credit).is_err());
    let mut session = collecting();
    let over = ToGuest::Credit {
        stream: StreamId::ARTIFACTS,
        bytes: MAX_WINDOW,
    };
    assert!(matches!(session.send(&over), Err(ProtocolError::Grant { .. })));
}
