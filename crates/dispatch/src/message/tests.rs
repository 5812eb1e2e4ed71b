use mayfly_core::{
    id::{AttemptId, ExecutorId, SessionId},
    outcome::{MAX_REDACTION_NAME_BYTES, MAX_REDACTION_NAMES, Redacted},
    self_test::MAX_NAMED,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    samples::{self, report},
    time::ServerTime,
    token::TokenKey,
};

fn attempt(n: u128) -> AttemptId {
    AttemptId::from_uuid(Uuid::from_u128(n))
}

fn dispatch() -> DispatchMessage {
    samples::dispatch_message(attempt(1), 1)
}

fn batch() -> EventBatch {
    EventBatch {
        v: VERSION,
        executor: ExecutorId::from_uuid(Uuid::from_u128(2)),
        session: SessionId::from_uuid(Uuid::from_u128(3)),
        first: 1,
        events: vec![
            SessionEvent::Opened(Opened {
                slots: 2,
                pool: "default".to_owned(),
                facts: ExecutorFacts::default(),
            }),
            SessionEvent::Starting {
                attempt: attempt(1),
                publication: 1,
                token: TokenKey::from_bytes([1; 32]).token(attempt(1)),
            },
            SessionEvent::Finished {
                attempt: attempt(1),
                report: Box::new(report()),
            },
            SessionEvent::Abandoned {
                attempt: attempt(1),
                why: AbandonReason::LeaseEnding,
                ran: true,
            },
            SessionEvent::Closed,
        ],
        heartbeat: Some(Heartbeat {
            held: vec![Held {
                attempt: attempt(1),
                phase: Phase::Asked,
            }],
            free_slots: 1,
        }),
    }
}

fn tick() -> Tick {
    let judged = Judged {
        session: SessionId::from_uuid(Uuid::from_u128(3)),
        lease_end: ServerTime::from_micros(7),
    };
    Tick {
        v: VERSION,
        epoch: 1,
        number: 2,
        judged: vec![judged],
    }
}

fn reply() -> Reply {
    let answer = |verdict| Answer {
        attempt: attempt(1),
        ask: 2,
        verdict,
    };
    Reply {
        v: VERSION,
        session: SessionId::from_uuid(Uuid::from_u128(3)),
        processed: 5,
        gap: false,
        answers: vec![answer(Verdict::Grant), answer(Verdict::Deny(DenyReason::Token))],
        stops: vec![Stop {
            attempt: attempt(1),
            why: StopReason::Canceled,
        }],
        dead: false,
        cordoned: false,
    }
}

#[test]
fn every_message_reads_back_from_the_wire() {
    assert_eq!(DispatchMessage::decode(&dispatch().encode()).unwrap(), dispatch());
    assert_eq!(EventBatch::decode(&batch().encode()).unwrap(), batch());
    assert_eq!(Reply::decode(&reply().encode()).unwrap(), reply());
    assert_eq!(Tick::decode(&tick().encode()).unwrap(), tick());
}

#[test]
fn the_recorder_tells_batches_from_ticks() {
    assert_eq!(Inbound::decode(&tick().encode()).unwrap(), Inbound::Tick(tick()));
    assert_eq!(
        Inbound::decode(&batch().encode()).unwrap(),
        Inbound::Batch(Box::new(batch()))
    );
    assert!(matches!(
        Inbound::decode(b"{\"v\":1}"),
        Err(DecodeError::Garbage(_))
    ));
}

#[test]
fn a_newer_message_is_told_from_a_broken_one_whatever_else_is_in_it() {
    let tomorrow = READS + 1;
    let newer = format!(r#"{{"v":{tomorrow},"attempt":{{"shape":"of tomorrow"}}}}"#);
    for error in [
        DispatchMessage::decode(newer.as_bytes()).unwrap_err(),
        Inbound::decode(newer.as_bytes()).unwrap_err(),
    ] {
        assert!(
            matches!(error, DecodeError::NewerVersion { found } if found == tomorrow),
            "{error:?}"
        );
    }
    let mut newer = dispatch();
    newer.v = READS + 1;
    assert!(matches!(
        DispatchMessage::decode(&newer.encode()),
        Err(DecodeError::NewerVersion { .. })
    ));
    let mut none = dispatch();
    none.v = 0;
    assert!(matches!(
        DispatchMessage::decode(&none.encode()),
        Err(DecodeError::NoVersion)
    ));
}

#[test]
fn what_is_no_message_is_refused() {
    let text = String::from_utf8(dispatch().encode()).unwrap();
    let broken = [
        String::new(),
        "\0\u{1}\u{2}".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        "[".repeat(100_000),
        "{\"v\":".repeat(10_000),
        format!("{text}{text}"),
        text.replacen("{\"v\":1", "{\"v\":-1", 1),
        text.replacen("{\"v\":1", "{\"v\":1,\"v\":1", 1),
        text.replacen("{\"v\":1", "{\"v\":1,\"unknown\":1", 1),
        text.replacen("\"number\":1", "\"number\":1e3", 1),
        text.replacen("\"attempt\":\"0", "\"attempt\":\"x", 1),
    ];
    for (index, text) in broken.iter().enumerate() {
        let found = DispatchMessage::decode(text.as_bytes());
        assert!(
            matches!(found, Err(DecodeError::Garbage(_))),
            "case {index}: {found:?}"
        );
    }
    let long = vec![b' '; MAX_MESSAGE_BYTES + 1];
    assert!(matches!(
        DispatchMessage::decode(&long),
        Err(DecodeError::TooLong { .. })
    ));
}

#[test]
fn a_report_of_egress_is_for_those_who_read_it_and_lists_no_more_than_it_may() {
    use mayfly_core::egress::{Decision, EgressRecord, MAX_DECISIONS, Reason, Verdict};
    let decision = Decision {
        at_ms: 1,
        method: "CONNECT".to_owned(),
        name: "a.test".to_owned(),
        port: Some(443),
        address: Some("93.184.216.34".parse().unwrap()),
        class: None,
        verdict: Verdict::Allowed,
        reason: Reason::Allowed,
        credential: None,
        sent_bytes: 1,
        received_bytes: 2,
        took_ms: 3,
    };
    let finished = |count: usize| {
        let mut report = report();
        report.egress = Some(EgressRecord {
            decisions: vec![decision.clone(); count],
            ..EgressRecord::default()
        });
        SessionEvent::Finished {
            attempt: attempt(1),
            report: Box::new(report),
        }
    };
    let said = |count: usize| EventBatch {
        events: vec![finished(count)],
        ..batch()
    };
    assert_eq!(finished(1).version(), EGRESS_SINCE);
    let fits = said(MAX_DECISIONS);
    assert_eq!(EventBatch::decode(&fits.encode()).unwrap(), fits);
    assert!(matches!(
        EventBatch::decode(&said(MAX_DECISIONS + 1).encode()),
        Err(DecodeError::TooMany { .. })
    ));
    let mut long = said(1);
    let SessionEvent::Finished { report, .. } = &mut long.events[0] else {
        panic!("it is a report");
    };
    let name = &mut report.egress.as_mut().unwrap().decisions[0].name;
    *name = "x".repeat(mayfly_core::egress::MAX_DECISION_TEXT);
    assert!(EventBatch::decode(&long.encode()).is_ok());
    let SessionEvent::Finished { report, .. } = &mut long.events[0] else {
        panic!("it is a report");
    };
    let decision = &mut report.egress.as_mut().unwrap().decisions[0];
    decision.credential = Some(decision.name.clone() + "x");
    assert!(matches!(
        EventBatch::decode(&long.encode()),
        Err(DecodeError::TooMany { .. })
    ));
    let SessionEvent::Finished { report, .. } = &mut long.events[0] else {
        panic!("it is a report");
    };
    let decision = &mut report.egress.as_mut().unwrap().decisions[0];
    decision.credential = None;
    decision.name.push('x');
    assert!(matches!(
        EventBatch::decode(&long.encode()),
        Err(DecodeError::TooMany { .. })
    ));
}

#[test]
fn a_message_with_more_in_it_than_its_kind_allows_is_refused() {
    let fits = EventBatch {
        events: vec![SessionEvent::Closed; MAX_BATCH_EVENTS],
        ..batch()
    };
    assert!(EventBatch::decode(&fits.encode()).is_ok());
    let over = EventBatch {
        events: vec![SessionEvent::Closed; MAX_BATCH_EVENTS + 1],
        ..batch()
    };
    assert!(matches!(
        Inbound::decode(&over.encode()),
        Err(DecodeError::TooMany { what: "events", .. })
    ));
    let over = Tick {
        judged: vec![tick().judged[0]; MAX_JUDGED + 1],
        ..tick()
    };
    assert!(matches!(
        Inbound::decode(&over.encode()),
        Err(DecodeError::TooMany { .. })
    ));
    let held = vec![
        Held {
            attempt: attempt(1),
            phase: Phase::Asked
        };
        batch::MAX_HELD + 1
    ];
    let over = EventBatch {
        heartbeat: Some(Heartbeat { held, free_slots: 0 }),
        ..batch()
    };
    assert!(matches!(
        EventBatch::decode(&over.encode()),
        Err(DecodeError::TooMany { .. })
    ));
    let over = Reply {
        stops: vec![reply().stops[0]; batch::MAX_HELD + 1],
        ..reply()
    };
    assert!(matches!(
        Reply::decode(&over.encode()),
        Err(DecodeError::TooMany { .. })
    ));
}

#[test]
fn the_names_of_redactions_in_a_report_are_bounded() {
    let finished = |names: Vec<String>| {
        let mut report = report();
        report.stderr.redacted = Some(Redacted {
            counts: names.into_iter().map(|name| (name, u64::MAX)).collect(),
            bytes: u64::MAX,
            mark_bytes: u64::MAX,
        });
        let batch = EventBatch {
            events: vec![SessionEvent::Finished {
                attempt: attempt(1),
                report: Box::new(report),
            }],
            ..batch()
        };
        EventBatch::decode(&batch.encode()).map(|read| assert_eq!(read, batch))
    };
    let many = |count: usize| (0..count).map(|n| format!("rule_{n}")).collect();
    finished(many(MAX_REDACTION_NAMES)).unwrap();
    let long = |bytes: usize| vec!["x".repeat(bytes)];
    finished(long(MAX_REDACTION_NAME_BYTES)).unwrap();
    for over in [many(MAX_REDACTION_NAMES + 1), long(MAX_REDACTION_NAME_BYTES + 1)] {
        assert!(matches!(finished(over), Err(DecodeError::TooMany { .. })));
    }
}

/// So that builds of both versions can work side by side, servers being the newer ones.
#[test]
fn what_came_later_shows_in_the_version_and_what_did_not_reads_as_before() {
    let images = vec![mayfly_core::digest::Digest::of(b"image")];
    let opened = |images| {
        SessionEvent::Opened(Opened {
            slots: 2,
            pool: "default".to_owned(),
            facts: ExecutorFacts {
                images,
                ..ExecutorFacts::default()
            },
        })
    };
    assert_eq!(opened(Some(images.clone())).version(), 2);
    assert_eq!(
        SessionEvent::Images {
            images: images.clone()
        }
        .version(),
        2
    );
    for event in batch().events {
        assert_eq!(event.version(), VERSION, "{event:?}");
    }
    let later = EventBatch {
        v: 2,
        events: vec![opened(Some(images.clone())), SessionEvent::Images { images }],
        ..batch()
    };
    assert_eq!(EventBatch::decode(&later.encode()).unwrap(), later);
    for text in [batch().encode(), reply().encode()].map(|bytes| String::from_utf8(bytes).unwrap()) {
        assert!(!text.contains("images") && !text.contains("cordoned"), "{text}");
    }
    let tested = |failures: usize| EventBatch {
        v: 4,
        events: vec![SessionEvent::SelfTested(Box::new(samples::self_test(failures)))],
        ..batch()
    };
    assert_eq!(tested(1).events[0].version(), 4);
    assert_eq!(
        EventBatch::decode(&tested(MAX_NAMED).encode()).unwrap(),
        tested(MAX_NAMED)
    );
    assert!(matches!(
        EventBatch::decode(&tested(MAX_NAMED + 1).encode()),
        Err(DecodeError::TooMany {
            what: "names of a self-test",
            ..
        })
    ));
    let cordoned = Reply {
        v: 2,
        cordoned: true,
        ..reply()
    };
    assert_eq!(Reply::decode(&cordoned.encode()).unwrap(), cordoned);
    let many = SessionEvent::Images {
        images: vec![mayfly_core::digest::Digest::of(b""); MAX_IMAGES + 1],
    };
    let many = EventBatch {
        events: vec![many],
        ..batch()
    };
    assert!(matches!(
        EventBatch::decode(&many.encode()),
        Err(DecodeError::TooMany { what: "images", .. })
    ));
}

#[test]
fn no_token_shows_when_a_message_is_written_to_a_log() {
    let digits = serde_json::to_string(&dispatch().token).unwrap();
    let digits = digits.trim_matches('"');
    for shown in [format!("{:?}", dispatch()), format!("{:?}", batch())] {
        assert!(!shown.contains(digits));
    }
}

proptest! {
    /// Bytes of anybody are read without a panic, and a message that was cut or changed is never taken for more than
    /// it says: what is read is written as it was read.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _refused = Inbound::decode(&bytes).is_err();
        let _refused = DispatchMessage::decode(&bytes).is_err();
    }

    #[test]
    fn a_changed_message_is_refused_or_reads_as_what_it_now_says(at in 0_usize..4_000, byte in any::<u8>()) {
        let mut bytes = batch().encode();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(Inbound::Batch(read)) = Inbound::decode(&bytes) {
            prop_assert_eq!(EventBatch::decode(&read.encode()).unwrap(), *read);
        }
        bytes.truncate(at);
        prop_assert!(Inbound::decode(&bytes).is_err());
    }
}
