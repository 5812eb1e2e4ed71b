//! Everything that a hostile guest can do to the executor's reader: bytes in any portions, through
//! the decoder and the order check, with orders and a job sent and credit given in between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_protocol::{Decoder, FromGuest, GuestSession, Job, SessionState, StreamId, ToGuest, VERSION, WarmOrder};

fn job(warm: bool) -> Job {
    Job {
        version: VERSION,
        argv: vec!["true".to_owned()],
        env: vec![],
        cwd: "/".to_owned(),
        deadline_ms: 1,
        rlimits: vec![],
        files: 0,
        stdin: true,
        warm,
    }
}

fn order() -> WarmOrder {
    WarmOrder {
        argv: vec!["true".to_owned()],
        env: vec![],
        cwd: "/".to_owned(),
        limit_ms: 1,
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((portion, mut bytes)) = input.split_first() else {
        return;
    };
    let (portion, warm) = (usize::from(*portion >> 1) + 1, *portion & 1 == 1);
    let mut decoder = Decoder::<FromGuest>::new();
    let mut session = GuestSession::new();
    let mut is_over = false;
    while !bytes.is_empty() {
        let (mut part, rest) = bytes.split_at(portion.min(bytes.len()));
        bytes = rest;
        loop {
            match decoder.decode(&mut part) {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(frame)) => {
                    let accepted = session.receive(&frame).is_ok();
                    assert!(!(accepted && is_over), "nothing follows the end");
                    if !accepted {
                        assert_eq!(session.state(), SessionState::Broken);
                        return;
                    }
                    let is_ready = matches!(frame, FromGuest::Ready(_));
                    is_over |= matches!(frame, FromGuest::Exit(_) | FromGuest::Refused(_));
                    // What was accepted can be said again, and means the same. Only its length may
                    // differ, by what JSON may leave out.
                    let mut again = Vec::new();
                    if frame.encode(&mut again).is_ok() {
                        let decoded = Decoder::<FromGuest>::new().decode(&mut again.as_slice());
                        assert_eq!(decoded, Ok(Some(frame)));
                    }
                    if warm && is_ready {
                        session.send(&ToGuest::Warm(order())).expect("the order is right");
                    } else if session.state() == SessionState::Ready {
                        for frame in [
                            ToGuest::Job(job(warm)),
                            ToGuest::Credit {
                                stream: StreamId::STDOUT,
                                bytes: 4096,
                            },
                            ToGuest::Credit {
                                stream: StreamId::STDERR,
                                bytes: 4096,
                            },
                            ToGuest::Start,
                        ] {
                            session.send(&frame).expect("the order is right");
                        }
                    }
                }
            }
        }
    }
});
