use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{exit, job, report, started, started_by, warm_order};
use crate::{FileHeader, Job, MAX_WINDOW, Refused, STDIN_WINDOW, Stage, Tunnel, WarmFailed, WarmUse, Warmed};

mod collection;

/// One thing that either end does.
#[derive(Debug, Clone)]
enum Act {
    Send(ToGuest),
    Receive(FromGuest),
}

fn send_ok(session: &mut GuestSession, frames: &[ToGuest]) {
    for frame in frames {
        session
            .send(frame)
            .unwrap_or_else(|error| panic!("{frame:?}: {error}"));
    }
}

fn ready() -> FromGuest {
    FromGuest::Ready(Box::new(report()))
}

fn refused() -> FromGuest {
    FromGuest::Refused(Refused::new(Stage::Exec, Some(2), "x"))
}

fn warm() -> ToGuest {
    ToGuest::Warm(warm_order())
}

fn warmed() -> FromGuest {
    FromGuest::Warmed(Warmed { boot_us: 1 })
}

fn warm_failed() -> FromGuest {
    FromGuest::WarmFailed(WarmFailed::new("x", false))
}

fn credit(stream: StreamId, bytes: u32) -> ToGuest {
    ToGuest::Credit { stream, bytes }
}

/// A session whose job runs, with 10 bytes of credit for stdout.
fn running() -> GuestSession {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    send_ok(
        &mut session,
        &[
            ToGuest::Job(job(0, true)),
            credit(StreamId::STDOUT, 10),
            ToGuest::Start,
        ],
    );
    session.receive(&started()).unwrap();
    session
}

#[test]
fn a_whole_conversation_is_accepted() {
    let mut session = GuestSession::new();
    send_ok(&mut session, &[ToGuest::Alive]);
    session.receive(&ready()).unwrap();
    let file = FileHeader {
        path: "a".to_owned(),
        mode: 0o644,
        size: 3,
    };
    send_ok(
        &mut session,
        &[
            ToGuest::Job(job(1, true)),
            ToGuest::File(file),
            ToGuest::FileData(vec![1, 2]),
            ToGuest::Alive,
            ToGuest::FileData(vec![3]),
            ToGuest::FileEnd,
            credit(StreamId::STDOUT, 5),
            credit(StreamId::STDERR, 1),
            ToGuest::Start,
            ToGuest::Stdin(vec![0; 1000]),
        ],
    );
    assert_eq!(session.state(), SessionState::Ready);
    session.receive(&started()).unwrap();
    session.receive(&FromGuest::Stdout(vec![0; 5])).unwrap();
    assert_eq!(
        (session.outstanding(StreamId::STDOUT), session.stdin_credit()),
        (0, 64_536)
    );
    session.receive(&FromGuest::Credit { bytes: 1000 }).unwrap();
    assert_eq!(session.stdin_credit(), STDIN_WINDOW);
    send_ok(&mut session, &[ToGuest::StdinClose, credit(StreamId::STDOUT, 5)]);
    session.receive(&FromGuest::Stderr(vec![1])).unwrap();
    session.receive(&FromGuest::Exit(exit(5, 1))).unwrap();
    assert_eq!(session.state(), SessionState::Ended);
    send_ok(&mut session, &[ToGuest::Alive, ToGuest::Kill]);
}

#[test]
fn a_guest_of_another_version_is_refused() {
    let mut other = report();
    other.version = VERSION + 1;
    let refused = GuestSession::new().receive(&FromGuest::Ready(Box::new(other)));
    assert_eq!(refused, Err(ProtocolError::Version { theirs: VERSION + 1 }));
}

#[test]
fn a_job_waits_for_the_answer_to_the_order_and_the_order_is_given_once() {
    for answer in [warmed(), warm_failed()] {
        let mut session = GuestSession::new();
        assert!(session.send(&warm()).is_err(), "before the guest is ready");
        session.receive(&ready()).unwrap();
        assert!(session.clone().receive(&answer).is_err(), "nobody asked");
        send_ok(&mut session, &[warm(), ToGuest::Alive]);
        assert!(session.send(&ToGuest::Job(job(0, false))).is_err());
        assert!(session.send(&warm()).is_err());
        session.receive(&answer).unwrap();
        assert!(session.send(&warm()).is_err());
        assert!(session.clone().receive(&answer).is_err(), "answered twice");
        send_ok(&mut session, &[ToGuest::Job(job(0, false))]);
        assert!(session.send(&warm()).is_err());
    }
}

#[test]
fn what_became_of_the_waiting_process_fits_what_was_asked_for() {
    let uses = [
        WarmUse::NotAsked,
        WarmUse::Gone,
        WarmUse::Used,
        WarmUse::Unfit,
        WarmUse::Wrote,
        WarmUse::Silent,
        WarmUse::Declined,
    ];
    let accepted = |answer: Option<FromGuest>, asks: bool| {
        let mut session = GuestSession::new();
        session.receive(&ready()).unwrap();
        if let Some(answer) = answer {
            send_ok(&mut session, &[warm()]);
            session.receive(&answer).unwrap();
        }
        let job = Job {
            warm: asks,
            ..job(0, false)
        };
        send_ok(&mut session, &[ToGuest::Job(job), ToGuest::Start]);
        uses.map(|warm| session.clone().receive(&started_by(warm)).is_ok())
    };
    let cold = [true, false, false, false, false, false, false];
    let gone = [false, true, false, false, false, false, false];
    for answer in [None, Some(warm_failed()), Some(warmed())] {
        assert_eq!(accepted(answer, false), cold);
    }
    assert_eq!(accepted(None, true), gone);
    assert_eq!(accepted(Some(warm_failed()), true), gone);
    let warm = [false, true, true, true, true, true, true];
    assert_eq!(accepted(Some(warmed()), true), warm);
}

#[test]
fn a_start_that_nobody_asked_for_is_refused() {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    send_ok(&mut session, &[ToGuest::Job(job(1, false))]);
    assert!(session.receive(&started()).is_err());

    // A kill is no start either.
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    send_ok(&mut session, &[ToGuest::Job(job(1, false)), ToGuest::Kill]);
    assert!(session.clone().receive(&started()).is_err());
    session.receive(&refused()).unwrap();
}

#[test]
fn a_started_crosses_a_kill() {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    send_ok(
        &mut session,
        &[ToGuest::Job(job(0, false)), ToGuest::Start, ToGuest::Kill],
    );
    session.receive(&started()).unwrap();
    session.receive(&FromGuest::Exit(exit(0, 0))).unwrap();
}

#[test]
fn a_refusal_has_its_time_between_the_job_and_the_start() {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    assert!(session.clone().receive(&refused()).is_err());
    send_ok(&mut session, &[ToGuest::Job(job(0, false))]);
    session.clone().receive(&refused()).unwrap();
    send_ok(&mut session, &[ToGuest::Start]);
    session.clone().receive(&refused()).unwrap();
    session.receive(&started()).unwrap();
    assert!(session.receive(&refused()).is_err());
}

#[test]
fn output_beyond_the_credit_breaks_the_conversation_for_good() {
    let mut session = running();
    let beyond = session.receive(&FromGuest::Stdout(vec![0; 11]));
    let stream = StreamId::STDOUT;
    assert_eq!(
        beyond,
        Err(ProtocolError::CreditExceeded {
            stream,
            bytes: 11,
            excess: 1
        })
    );
    assert_eq!(session.state(), SessionState::Broken);
    assert!(session.receive(&FromGuest::Stdout(vec![0; 1])).is_err());
    assert!(session.receive(&FromGuest::Exit(exit(0, 0))).is_err());
    assert!(session.send(&ToGuest::Alive).is_err());
    send_ok(&mut session, &[ToGuest::Kill]);
}

#[test]
fn an_exit_that_counts_other_bytes_than_came_is_refused() {
    for (stdout, stderr) in [(4, 0), (6, 0), (5, 1)] {
        let mut session = running();
        session.receive(&FromGuest::Stdout(vec![0; 5])).unwrap();
        assert!(matches!(
            session.receive(&FromGuest::Exit(exit(stdout, stderr))),
            Err(ProtocolError::ByteCount { .. })
        ));
    }
}

#[test]
fn windows_have_a_bound_on_both_sides() {
    let mut session = running();
    // 10 are outstanding already.
    assert!(session.send(&credit(StreamId::STDOUT, MAX_WINDOW)).is_err());
    send_ok(&mut session, &[credit(StreamId::STDOUT, MAX_WINDOW - 10)]);
    assert!(session.send(&credit(StreamId::STDOUT, 1)).is_err());
    assert!(session.send(&credit(StreamId::STDIN, 1)).is_err());
    let too_much = FromGuest::Credit {
        bytes: MAX_WINDOW - STDIN_WINDOW + 1,
    };
    assert!(session.receive(&too_much).is_err());
}

#[test]
fn credit_for_a_stdin_that_there_is_not_is_refused() {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    send_ok(&mut session, &[ToGuest::Job(job(0, false)), ToGuest::Start]);
    session.receive(&started()).unwrap();
    assert!(session.receive(&FromGuest::Credit { bytes: 1 }).is_err());
}

#[test]
fn the_owner_cannot_send_a_job_to_a_guest_that_is_not_ready() {
    assert!(GuestSession::new().send(&ToGuest::Job(job(0, false))).is_err());
}

/// Acts in which violations are common.
fn any_act() -> impl Strategy<Value = Act> {
    let stream = prop_oneof![Just(StreamId::STDOUT), Just(StreamId::STDERR)];
    prop_oneof![
        Just(Act::Receive(ready())),
        Just(Act::Receive(started())),
        Just(Act::Receive(refused())),
        (1_usize..40).prop_map(|n| Act::Receive(FromGuest::Stdout(vec![0; n]))),
        (1_usize..40).prop_map(|n| Act::Receive(FromGuest::Stderr(vec![0; n]))),
        (1_u32..40).prop_map(|bytes| Act::Receive(FromGuest::Credit { bytes })),
        (0_u64..40).prop_map(|bytes| Act::Receive(FromGuest::Exit(exit(bytes, 0)))),
        any::<(bool, bool)>().prop_map(|(stdin, warm)| Act::Send(ToGuest::Job(Job {
            warm,
            ..job(0, stdin)
        }))),
        Just(Act::Send(warm())),
        Just(Act::Receive(warmed())),
        Just(Act::Receive(warm_failed())),
        Just(Act::Receive(started_by(WarmUse::Used))),
        Just(Act::Receive(started_by(WarmUse::Gone))),
        Just(Act::Receive(started_by(WarmUse::Silent))),
        Just(Act::Receive(FromGuest::ArtifactData(vec![0]))),
        Just(Act::Send(ToGuest::Start)),
        Just(Act::Send(ToGuest::Kill)),
        Just(Act::Send(ToGuest::StdinClose)),
        (1_usize..40).prop_map(|n| Act::Send(ToGuest::Stdin(vec![0; n]))),
        (1_u32..60, stream).prop_map(|(bytes, stream)| Act::Send(credit(stream, bytes))),
    ]
}

/// What the guest may say, stated over the whole history and with no state machine: whether
/// `frame` may follow what was accepted so far.
fn may_follow(history: &[Act], frame: &FromGuest) -> bool {
    let received = |wanted: &dyn Fn(&FromGuest) -> bool| {
        history
            .iter()
            .any(|act| matches!(act, Act::Receive(frame) if wanted(frame)))
    };
    let sent = |wanted: &dyn Fn(&ToGuest) -> bool| {
        history
            .iter()
            .any(|act| matches!(act, Act::Send(frame) if wanted(frame)))
    };
    let granted = |wanted: StreamId| -> usize {
        let grants = history.iter().map(|act| match act {
            Act::Send(ToGuest::Credit { stream, bytes }) if *stream == wanted => *bytes as usize,
            _ => 0,
        });
        grants.sum()
    };
    let came = |wanted: StreamId| -> usize {
        let data = history.iter().map(|act| match act {
            Act::Receive(FromGuest::Stdout(data)) if wanted == StreamId::STDOUT => data.len(),
            Act::Receive(FromGuest::Stderr(data)) if wanted == StreamId::STDERR => data.len(),
            _ => 0,
        });
        data.sum()
    };
    let is_ready = received(&|frame| matches!(frame, FromGuest::Ready(_)));
    let is_started = received(&|frame| matches!(frame, FromGuest::Started(_)));
    let is_over = received(&|frame| matches!(frame, FromGuest::Exit(_) | FromGuest::Refused(_)));
    let has_job = sent(&|frame| matches!(frame, ToGuest::Job(_)));
    let asks = sent(&|frame| matches!(frame, ToGuest::Job(job) if job.warm));
    let is_warm = received(&|frame| matches!(frame, FromGuest::Warmed(_)));
    let is_answered = is_warm || received(&|frame| matches!(frame, FromGuest::WarmFailed(_)));
    let runs = is_started && !is_over;
    match frame {
        FromGuest::Ready(_) => !is_ready,
        FromGuest::Started(start) => {
            let plausible = match start.warm {
                WarmUse::NotAsked => !asks,
                WarmUse::Gone => asks,
                _ => asks && is_warm,
            };
            is_ready && !is_started && !is_over && sent(&|f| *f == ToGuest::Start) && plausible
        }
        FromGuest::Warmed(_) | FromGuest::WarmFailed(_) => {
            is_ready && !is_started && !is_over && !is_answered && sent(&|f| matches!(f, ToGuest::Warm(_)))
        }
        FromGuest::Refused(_) => is_ready && has_job && !is_started && !is_over,
        FromGuest::Stdout(data) => runs && came(StreamId::STDOUT) + data.len() <= granted(StreamId::STDOUT),
        FromGuest::Stderr(data) => runs && came(StreamId::STDERR) + data.len() <= granted(StreamId::STDERR),
        FromGuest::Credit { .. } => runs && sent(&|frame| matches!(frame, ToGuest::Job(job) if job.stdin)),
        FromGuest::Exit(exit) => {
            runs && exit.stdout_bytes == came(StreamId::STDOUT) as u64
                && exit.stderr_bytes == came(StreamId::STDERR) as u64
        }
        // No job here has files to collect.
        FromGuest::Artifact(_)
        | FromGuest::ArtifactData(_)
        | FromGuest::ArtifactEnd(_)
        | FromGuest::LeftOut(_)
        | FromGuest::TunnelOpen { .. }
        | FromGuest::Tunnel { .. }
        | FromGuest::Collected(_) => false,
    }
}

/// A beginning that gets past the first steps, which random acts alone seldom do.
fn beginning(warmly: bool, steps: usize) -> Vec<Act> {
    let used = if warmly { WarmUse::Used } else { WarmUse::NotAsked };
    let mut acts = vec![
        Act::Receive(ready()),
        Act::Send(warm()),
        Act::Receive(warmed()),
        Act::Send(ToGuest::Job(Job {
            warm: warmly,
            ..job(0, true)
        })),
        Act::Send(credit(StreamId::STDOUT, 50)),
        Act::Send(ToGuest::Start),
        Act::Receive(started_by(used)),
    ];
    if !warmly {
        acts.drain(1..3);
    }
    acts.truncate(steps);
    acts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_frame_is_accepted_exactly_when_it_may_follow(
        warmly in any::<bool>(),
        steps in 0_usize..=7,
        acts in vec(any_act(), 1..20),
    ) {
        let mut session = GuestSession::new();
        let mut history = Vec::new();
        for act in beginning(warmly, steps).into_iter().chain(acts) {
            match &act {
                Act::Send(frame) => {
                    if session.send(frame).is_err() {
                        continue;
                    }
                }
                Act::Receive(frame) => {
                    let expected = may_follow(&history, frame);
                    prop_assert_eq!(session.receive(frame).is_ok(), expected, "{:?}", frame);
                    if !expected {
                        prop_assert_eq!(session.state(), SessionState::Broken);
                        break;
                    }
                }
            }
            history.push(act);
        }
    }
}

/// A session whose job runs and has egress.
fn running_with_egress() -> GuestSession {
    let mut session = GuestSession::new();
    session.receive(&ready()).unwrap();
    let job = Job {
        egress: true,
        ..job(0, false)
    };
    send_ok(&mut session, &[ToGuest::Job(job), ToGuest::Start]);
    session.receive(&started()).unwrap();
    session
}

fn open(stream: u16) -> FromGuest {
    FromGuest::TunnelOpen {
        stream: StreamId(stream),
    }
}

#[test]
fn connections_are_the_guests_to_open_where_the_job_has_egress() {
    let mut session = running_with_egress();
    let stream = StreamId::FIRST_TUNNEL;
    let frame = Tunnel::Data(vec![1]);
    let down = ToGuest::Tunnel {
        stream,
        frame: frame.clone(),
    };
    assert!(session.send(&down).is_err());
    session.receive(&open(stream.0)).unwrap();
    session.send(&down).unwrap();
    session.receive(&FromGuest::Tunnel { stream, frame }).unwrap();
    assert_eq!(session.state(), SessionState::Started);

    let mut without = running();
    assert!(without.send(&down).is_err());
    without.receive(&open(stream.0)).unwrap_err();
    assert_eq!(without.state(), SessionState::Broken);
}

#[test]
fn a_connection_of_another_number_or_after_the_end_breaks_the_protocol() {
    for number in [0, 15, 17, u16::MAX] {
        let mut session = running_with_egress();
        session.receive(&open(number)).unwrap_err();
        assert_eq!(session.state(), SessionState::Broken, "{number}");
    }
    let mut session = running_with_egress();
    session.receive(&FromGuest::Exit(exit(0, 0))).unwrap();
    session.receive(&open(16)).unwrap_err();
}
