//! What reports name that runs have left on the server.

use super::*;

fn uploaded(bytes: u64) -> mayfly_core::run::UploadedOutput {
    mayfly_core::run::UploadedOutput {
        digest: Digest::of(b"output"),
        stdout_head: bytes,
        stdout_tail: 0,
        stderr_head: 0,
        stderr_tail: 0,
    }
}

/// What a job comes to whose report names output, with this of it on the server.
fn reported_with(upload: Option<(Digest, u64)>) -> (Needs, JobState) {
    let mut ledger = started(1);
    if let Some((digest, bytes)) = upload {
        ledger.put_upload(attempt(1), digest, bytes);
    }
    let mut report = report();
    report.uploaded = Some(uploaded(6));
    let event = SessionEvent::Finished {
        attempt: attempt(1),
        report: Box::new(report),
    };
    assert_eq!(event.version(), crate::message::BLOBS_SINCE);
    let inbound = batch(1, 3, vec![event]);
    let needs = needs(&Inbound::Batch(Box::new(inbound.clone())));
    let _processed = process(&inbound, &mut ledger, &context(2));
    (needs, state(&ledger))
}

#[test]
fn output_that_a_report_names_is_needed_and_has_to_be_there() {
    let digest = Digest::of(b"output");
    let (needs, state) = reported_with(Some((digest, 6)));
    assert_eq!(needs.uploads, [attempt(1)]);
    assert_eq!(state, JobState::Ended(EndState::Succeeded));
    let other = Digest::of(b"other");
    for upload in [None, Some((digest, 7)), Some((other, 6))] {
        assert_eq!(
            reported_with(upload).1,
            JobState::Ended(EndState::Error),
            "{upload:?}"
        );
    }
}

/// What a job comes to whose report names a file of so many bytes, with this of it on the server.
fn reported_with_file(bytes: u64, left: Option<(u32, Pieces)>) -> (Needs, JobState) {
    let mut ledger = started(1);
    if let Some((number, pieces)) = left {
        ledger.put_file(attempt(1), number, pieces);
    }
    let mut report = report();
    report.artifacts = Some(Artifacts {
        files: vec![Artifact {
            name: "a".into(),
            bytes,
            digest: Digest::of(b"file"),
            redacted: mayfly_core::outcome::Redacted::default(),
            is_text: false,
            number: 3,
        }],
        ..Artifacts::default()
    });
    let event = SessionEvent::Finished {
        attempt: attempt(1),
        report: Box::new(report),
    };
    assert_eq!(event.version(), crate::message::ARTIFACTS_SINCE);
    let inbound = batch(1, 3, vec![event]);
    let needs = needs(&Inbound::Batch(Box::new(inbound.clone())));
    let _processed = process(&inbound, &mut ledger, &context(2));
    (needs, state(&ledger))
}

#[test]
fn files_that_a_report_names_are_needed_and_have_to_be_there() {
    let pieces = |count, bytes| Pieces { count, bytes };
    let long = PIECE_BYTES + 1;
    let (needs, state) = reported_with_file(long, Some((3, pieces(2, long))));
    assert_eq!(needs.files, [attempt(1)]);
    assert_eq!(state, JobState::Ended(EndState::Succeeded));
    assert_eq!(
        reported_with_file(0, None).1,
        JobState::Ended(EndState::Succeeded)
    );
    for left in [
        None,
        Some((2, pieces(2, long))),
        Some((3, pieces(1, long))),
        Some((3, pieces(3, long))),
        Some((3, pieces(2, long - 1))),
    ] {
        let (_, state) = reported_with_file(long, left);
        assert_eq!(state, JobState::Ended(EndState::Error), "{left:?}");
    }
}

#[test]
fn a_report_that_names_more_files_than_are_read_is_refused() {
    use crate::message::{DecodeError, EventBatch, Wire as _};
    let of = |count: usize| {
        let mut report = report();
        let left_out = mayfly_core::artifact::LeftOut {
            name: "a".into(),
            why: mayfly_core::artifact::LeftOutWhy::Link,
            bytes: None,
        };
        report.artifacts = Some(Artifacts {
            left_out: vec![left_out; count],
            ..Artifacts::default()
        });
        let report = Box::new(report);
        let sent = batch(
            1,
            3,
            vec![SessionEvent::Finished {
                attempt: attempt(1),
                report,
            }],
        );
        EventBatch::decode(&sent.encode())
    };
    let most = mayfly_core::artifact::MAX_FILES;
    assert!(of(most).is_ok());
    assert!(matches!(of(most + 1), Err(DecodeError::TooMany { .. })));
}
