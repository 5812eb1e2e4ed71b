use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{JobId, TenantId},
    outcome::{CapturedStream, Cause, EndState, Outcome, StreamCount},
};
use mayfly_dispatch::{
    blob::{BlobClaim, BlobKind},
    token::TokenKey,
};

use super::*;
use crate::blobs::{
    HttpBlobs,
    scripted::{Scripted, answer},
};

fn stream(head: usize, tail: usize) -> CapturedStream {
    CapturedStream {
        count: StreamCount {
            bytes: 1 << 30,
            digest: Digest::of(b"all of it"),
            truncated: true,
        },
        head: vec![1; head],
        tail: vec![2; tail],
        redacted: None,
    }
}

fn report() -> RunReport {
    RunReport {
        outcome: Outcome::decided(EndState::Succeeded, Cause::Exited),
        stdout: stream(300_000, 100_000),
        stderr: stream(7, 0),
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: DateTime::<Utc>::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}

fn place(base: &str, above: u64, most: u64) -> OutputPlace {
    let claim = BlobClaim {
        tenant: TenantId::LOCAL,
        job: JobId::new(),
        attempt: AttemptId::new(),
        kind: BlobKind::Output,
        bytes: most,
        expires: 1,
    };
    OutputPlace {
        url: TokenKey::from_bytes([7; 32]).blob_key().url(base, &claim),
        above,
        most,
    }
}

/// What becomes of the report, with this said to the run.
async fn left(place: &OutputPlace, said: Option<KilledFor>) -> RunReport {
    let (_sender, mut stop) = watch::channel(said);
    let mut report = report();
    let blobs = HttpBlobs::new().unwrap();
    leave(&blobs, Some(place), AttemptId::new(), &mut report, &mut stop).await;
    report
}

#[tokio::test]
async fn long_output_is_left_on_the_server_and_named_by_the_report() {
    let answers = vec![
        answer("503 Service Unavailable", 0, b""),
        b"HTTP/1.1 204 No C".to_vec(),
        answer("204 No Content", 0, b""),
    ];
    let server = Scripted::start(answers).await;
    for said in [None, Some(KilledFor::Cancel)] {
        let mut left = left(&place(&server.base, 256 << 10, 1 << 20), said).await;
        let named = left.uploaded.expect("it is named");
        assert_eq!(named.bytes(), 400_007);
        assert_eq!(left.output_bytes(), 0);
        let body = server.body();
        assert_eq!(Digest::of(&body), named.digest);
        assert!(left.give_back_output(&body, &named));
        assert_eq!(left, report());
    }
    assert_eq!(server.asked(), 4);
    let heard = server.heard().to_lowercase();
    assert!(
        heard.contains("put /v1/blobs/") && heard.contains("content-digest: sha-256=:"),
        "{heard}"
    );
    assert!(
        !heard.contains("authorization") && !heard.contains("chunked"),
        "{heard}"
    );
}

#[tokio::test]
async fn output_that_can_not_be_left_stays_in_the_report() {
    let server = Scripted::start(vec![answer("404 Not Found", 0, b"")]).await;
    let refused = left(&place(&server.base, 256 << 10, 1 << 20), None).await;
    assert_eq!(refused, report());
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn short_output_and_more_than_is_taken_stay_in_the_report() {
    let server = Scripted::start(vec![answer("204 No Content", 0, b"")]).await;
    for (above, most) in [(400_007, 1 << 20), (1, 400_006)] {
        assert_eq!(left(&place(&server.base, above, most), None).await, report());
    }
    let (_sender, mut stop) = watch::channel(None);
    let mut plain = report();
    leave(
        &HttpBlobs::new().unwrap(),
        None,
        AttemptId::new(),
        &mut plain,
        &mut stop,
    )
    .await;
    assert_eq!((plain, server.asked()), (report(), 0));
}

#[tokio::test]
async fn an_attempt_that_is_given_up_waits_for_no_server() {
    let server = Scripted::start(vec![answer("503 Service Unavailable", 0, b"")]).await;
    let given_up = left(&place(&server.base, 1, 1 << 20), Some(KilledFor::Abandoned)).await;
    assert_eq!(given_up, report());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_waited_for_and_then_the_broker_has_it() {
    let begun = tokio::time::Instant::now();
    let left = left(&place("http://127.0.0.1:1", 1, 1 << 20), None).await;
    assert_eq!(left, report());
    let waited = begun.elapsed();
    assert!(waited > LIMIT / 2 && waited <= LIMIT, "{waited:?}");
}
