//! Everything that a hostile guest can do to the executor's reader: bytes in any portions, through
//! the decoder and the order check, with orders and a job sent and credit given in between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_protocol::{
    CollectOrder, Decoder, FromGuest, GuestSession, Job, SessionState, StreamId, ToGuest, VERSION, WarmOrder,
};

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
        collects: warm,
        egress: warm,
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

fn files() -> CollectOrder {
    CollectOrder {
        globs: vec!["**".to_owned()],
        max_files: 4,
        max_file_bytes: 64,
        max_bytes: 128,
        max_entries: 64,
        max_named: 4,
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
                    is_over |= session.state() == SessionState::Ended;
                    // What was accepted can be said again, and means the same. Only its length may
                    // differ, by what JSON may leave out.
                    let mut again = Vec::new();
                    if frame.encode(&mut again).is_ok() {
                        let decoded = Decoder::<FromGuest>::new().decode(&mut again.as_slice());
                        assert_eq!(decoded, Ok(Some(frame)));
                    }
                    if session.state() == SessionState::Exited {
                        for frame in [
                            ToGuest::Collect(files()),
                            ToGuest::Credit {
                                stream: StreamId::ARTIFACTS,
                                bytes: 4096,
                            },
                        ] {
                            session.send(&frame).expect("the order is right");
                        }
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
