//! Both directions of a conversation in which the job runs and has connections: frames of the guest and of the executor, each
//! through its decoder, in turns. Both ends keep an account of the connections; the two always agree.
//!
//! The first two bytes say how many of the rest are the executor's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_protocol::{
    CommandOrder, Decoder, FromGuest, GuestSession, Incoming, Job, MAX_WINDOW, SessionState, StreamId,
    ToGuest, VERSION,
};

/// What a guest says until its job runs.
const BEGUN: &[u8] = include_bytes!("../seeds/from_guest/run");

fn job() -> ToGuest {
    ToGuest::Job(Job {
        version: VERSION,
        argv: vec!["true".to_owned()],
        env: vec![],
        cwd: "/".to_owned(),
        deadline_ms: 1,
        rlimits: vec![],
        files: 0,
        stdin: true,
        warm: false,
        collects: false,
        egress: true,
    })
}

/// The executor's account and the guest's, at the start of a job.
fn begun() -> (GuestSession, CommandOrder) {
    let (mut session, mut order) = (GuestSession::new(), CommandOrder::new());
    let (mut decoder, mut bytes) = (Decoder::<FromGuest>::new(), &BEGUN[1..]);
    while session.state() != SessionState::Started {
        let frame = decoder
            .decode(&mut bytes)
            .expect("the seed is one")
            .expect("it is whole");
        session.receive(&frame).expect("the seed is in order");
        if session.state() == SessionState::Ready {
            for frame in [job(), ToGuest::Start] {
                session.send(&frame).expect("the order is right");
                order.accept(&frame).expect("the order is right");
            }
        }
    }
    (session, order)
}

/// The next frame of these bytes, if there is one.
fn next<F: Incoming>(decoder: &mut Decoder<F>, bytes: &mut &[u8]) -> Option<F> {
    decoder.decode(bytes).ok().flatten()
}

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return;
    };
    let (mut down, mut up) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
    let (mut session, mut order) = begun();
    let (mut commands, mut answers) = (Decoder::<ToGuest>::new(), Decoder::<FromGuest>::new());
    loop {
        let command = next(&mut commands, &mut down);
        if let Some(frame) = &command {
            let mut again = Vec::new();
            if frame.encode(&mut again).is_ok() {
                assert_eq!(
                    next(&mut Decoder::<ToGuest>::new(), &mut again.as_slice()).as_ref(),
                    Some(frame)
                );
            }
            if let ToGuest::Tunnel { stream, .. } = frame {
                let sent = session.send(frame);
                assert_eq!(sent, order.accept(frame), "{frame:?}");
                assert!(order.tunnel_credit(*stream) <= MAX_WINDOW);
                assert!(sent.is_err() || *stream >= StreamId::FIRST_TUNNEL);
            }
        }
        let answer = next(&mut answers, &mut up);
        if let Some(frame) = &answer {
            let mut again = Vec::new();
            if frame.encode(&mut again).is_ok() {
                assert_eq!(
                    next(&mut Decoder::<FromGuest>::new(), &mut again.as_slice()).as_ref(),
                    Some(frame)
                );
            }
            if let FromGuest::TunnelOpen { stream } | FromGuest::Tunnel { stream, .. } = frame {
                let told = order.next_tunnel();
                let received = session.receive(frame);
                assert_eq!(received, order.accept_tunnel(frame), "{frame:?}");
                if received.is_err() {
                    assert_eq!(session.state(), SessionState::Broken);
                    return;
                }
                if matches!(frame, FromGuest::TunnelOpen { .. }) {
                    assert_eq!(told, Some(*stream), "numbers only grow");
                }
                assert!(order.tunnel_credit(*stream) <= MAX_WINDOW);
            }
        }
        if command.is_none() && answer.is_none() {
            return;
        }
    }
});
