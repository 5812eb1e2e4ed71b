//! A job as it goes, by server-sent events.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use mayfly_api::seams::OutputPiece;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId},
    outcome::{CapturedStream, StreamCount},
    run::RunReport,
};
use mayfly_store::contract::bench::success;
use mayfly_wire::job::StreamName;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::ground::{Ground, Who, generous, key};

/// An event as a client sees it.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// A client of one stream.
struct Listener {
    bytes: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>> + Send>>,
    text: Vec<u8>,
}

impl Listener {
    async fn new(ground: &Ground, job: JobId, last: Option<&str>) -> Self {
        let mut request = ground.get(Who::Viewer, &format!("/v1/jobs/{job}/events"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self {
            bytes: Box::pin(answer.bytes_stream().map(|part| part.map(|part| part.to_vec()))),
            text: Vec::new(),
        }
    }

    /// The next event; none at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
                };
                if field("event:").is_empty() {
                    continue;
                }
                return Some(Event {
                    id: field("id:"),
                    name: field("event:"),
                    data: serde_json::from_str(&field("data:")).unwrap(),
                });
            }
            self.text.extend(self.bytes.next().await?.unwrap());
        }
    }

    async fn expect(&mut self, name: &str) -> Event {
        let next = tokio::time::timeout(Duration::from_secs(20), self.next());
        let event = next.await.unwrap().unwrap();
        assert_eq!(event.name, name, "{event:?}");
        event
    }

    async fn rest(mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

fn piece(attempt: AttemptId, offset: u64, bytes: &[u8]) -> OutputPiece {
    OutputPiece {
        attempt,
        stream: StreamName::Stdout,
        offset,
        bytes: bytes.to_vec(),
    }
}

fn wrote(head: &[u8], tail: &[u8], written: u64) -> RunReport {
    let mut report = success();
    report.stdout = CapturedStream {
        count: StreamCount {
            bytes: written,
            digest: Digest::of(head),
            truncated: written > (head.len() + tail.len()) as u64,
        },
        head: head.to_vec(),
        tail: tail.to_vec(),
        redacted: None,
    };
    report
}

/// What a client has of stdout: the bytes, and the ranges that it knows to be missing.
fn put_together(events: &[Event]) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut gaps, mut next) = (Vec::new(), Vec::new(), 0);
    for event in events.iter().filter(|event| event.data["stream"] == "stdout") {
        if event.name == "output" {
            assert_eq!(event.data["offset"], next, "{event:?}");
            let content: mayfly_wire::bytes::Bytes =
                serde_json::from_value(event.data["content"].clone()).unwrap();
            let content = content.into_bytes().unwrap();
            next += content.len() as u64;
            bytes.extend(content);
        } else {
            assert_eq!(event.data["from"], next, "{event:?}");
            next = event.data["to"].as_u64().unwrap();
            gaps.push((event.data["from"].as_u64().unwrap(), next));
        }
    }
    (bytes, gaps)
}

#[tokio::test]
async fn a_job_is_followed_from_its_acceptance_to_its_end() {
    let ground = Ground::new().await;
    let job = ground.submitted(ground.tenant).await;
    let mut listener = Listener::new(&ground, job, None).await;
    assert_eq!(listener.expect("state").await.data["state"], "queued");
    let message = ground.start(job).await;
    let mut state = listener.expect("state").await;
    while state.data["state"] != "started" {
        assert_eq!(state.data["state"], "dispatched");
        state = listener.expect("state").await;
    }
    let sender = ground.doubles.listener(job).await;
    sender.send(piece(message.attempt, 0, b"one\n")).await.unwrap();
    assert_eq!(
        listener.expect("output").await.data,
        json!({"attempt": message.attempt, "stream": "stdout", "offset": 0, "content": {"text": "one\n"}})
    );
    ground.finish(&message, wrote(b"one\ntwo\n", b"", 8)).await;
    let rest = listener.rest().await;
    let names: Vec<_> = rest.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["state", "output", "end"]);
    assert_eq!(rest[1].data["content"], json!({"text": "two\n"}));
    assert_eq!(
        rest[2].data,
        json!({"job": job, "state": "succeeded", "cause": "exited", "exit_code": null, "signal": null})
    );
}

#[tokio::test]
async fn what_is_lost_on_its_way_shows_as_a_gap_and_nothing_comes_twice() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let mut listener = Listener::new(&ground, message.job, None).await;
    listener.expect("state").await;
    let sender = ground.doubles.listener(message.job).await;
    let mut all = Vec::new();
    for (offset, bytes) in [(0, &b"0123"[..]), (2, b"2345"), (0, b"0"), (8, b"89")] {
        sender.send(piece(message.attempt, offset, bytes)).await.unwrap();
    }
    // Of an attempt that is older than the one that is seen.
    let older = AttemptId::from_uuid(uuid::Uuid::nil());
    sender.send(piece(older, 100, b"old")).await.unwrap();
    for name in ["output", "output", "gap", "output"] {
        all.push(listener.expect(name).await);
    }
    ground.finish(&message, wrote(b"0123456789", b"yz", 30)).await;
    all.extend(listener.rest().await);
    let (bytes, gaps) = put_together(&all);
    assert_eq!(bytes, b"01234589yz");
    assert_eq!(gaps, [(6, 8), (10, 28)]);
    assert_eq!(all.last().unwrap().name, "end");
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_behind_what_it_has_seen() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let mut listener = Listener::new(&ground, message.job, None).await;
    let mut all = vec![listener.expect("state").await];
    let sender = ground.doubles.listener(message.job).await;
    sender.send(piece(message.attempt, 0, b"0123")).await.unwrap();
    all.push(listener.expect("output").await);
    drop(listener);
    // Nobody listens now. 45 is written, and 67 once the client is back.
    let last = all.last().unwrap().id.clone();
    let mut listener = Listener::new(&ground, message.job, Some(&last)).await;
    let sender = ground.doubles.listener(message.job).await;
    sender.send(piece(message.attempt, 6, b"67")).await.unwrap();
    all.push(listener.expect("gap").await);
    all.push(listener.expect("output").await);
    drop(listener);
    ground.finish(&message, wrote(b"0123456789", b"", 10)).await;
    let last = all.last().unwrap().id.clone();
    let listener = Listener::new(&ground, message.job, Some(&last)).await;
    all.extend(listener.rest().await);
    let (bytes, gaps) = put_together(&all);
    assert_eq!(
        (bytes.as_slice(), gaps.as_slice()),
        (&b"01236789"[..], &[(4, 6)][..])
    );
    assert_eq!(all.last().unwrap().name, "end");
    // And from the beginning, where the id is none of ours.
    let again = Listener::new(&ground, message.job, Some("42")).await.rest().await;
    assert_eq!(put_together(&again), (b"0123456789".to_vec(), vec![]));
}

#[tokio::test]
async fn a_source_that_goes_away_is_asked_again() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let mut listener = Listener::new(&ground, message.job, None).await;
    listener.expect("state").await;
    ground.doubles.listener(message.job).await;
    ground.doubles.hang_up(message.job);
    let sender = ground.doubles.listener(message.job).await;
    sender.send(piece(message.attempt, 3, b"later")).await.unwrap();
    listener.expect("gap").await;
    assert_eq!(
        listener.expect("output").await.data["content"],
        json!({"text": "later"})
    );
}

#[tokio::test]
async fn large_output_comes_in_parts_and_text_stays_text() {
    let ground = Ground::new().await;
    let message = ground.started(ground.tenant).await;
    let text = "aé€😀".repeat(20_000);
    ground
        .finish(&message, wrote(text.as_bytes(), b"", text.len() as u64))
        .await;
    let events = Listener::new(&ground, message.job, None).await.rest().await;
    assert_eq!(put_together(&events).0, text.as_bytes());
    let outputs: Vec<_> = events.iter().filter(|event| event.name == "output").collect();
    assert!(outputs.len() > 5);
    assert!(
        outputs
            .iter()
            .all(|event| event.data["content"]["text"].is_string())
    );
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked_or_the_server_stops() {
    let limits = mayfly_api::ApiLimits {
        look_again: Duration::from_millis(100),
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let message = ground.started(ground.tenant).await;
    let path = format!("/v1/jobs/{}/events", message.job);
    let viewer = key(
        &ground.bench,
        Some(ground.tenant),
        mayfly_core::account::Role::Viewer,
        None,
    )
    .await;
    let request = ground
        .open(reqwest::Method::GET, &path)
        .bearer_auth(viewer.reveal());
    let revoked = request.send().await.unwrap();
    let mut kept = Listener::new(&ground, message.job, None).await;
    ground
        .bench
        .store
        .revoke_key(viewer.id(), None, ground.bench.date())
        .await
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), revoked.text());
    assert!(ended.await.unwrap().unwrap().contains("event: state"));
    kept.expect("state").await;
    ground.ask_to_stop();
    assert_eq!(kept.rest().await, []);
    ground.stopped().await;
}

#[tokio::test]
async fn streams_have_a_bound() {
    let limits = mayfly_api::ApiLimits {
        streams: 1,
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let message = ground.started(ground.tenant).await;
    let first = Listener::new(&ground, message.job, None).await;
    let path = format!("/v1/jobs/{}/events", message.job);
    let second = ground.get(Who::Viewer, &path).send().await.unwrap();
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(second.headers().contains_key("retry-after"));
    drop(first);
    let third = async {
        loop {
            let answer = ground.get(Who::Viewer, &path).send().await.unwrap();
            if answer.status() == StatusCode::OK {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), third)
        .await
        .unwrap();
}
