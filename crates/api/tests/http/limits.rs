//! Bounds of requests, each of them reached.

use std::time::Duration;

use futures_util::future::join_all;
use mayfly_api::ApiLimits;
use mayfly_core::units::ByteSize;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::ground::{Ground, Who, generous, spec};

#[tokio::test]
async fn a_key_that_is_too_quick_is_told_when_to_go_on_and_others_are_not_held_up() {
    let limits = ApiLimits {
        requests_per_second: 1,
        burst: 3,
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let whoami = async |who: Who| ground.get(who, "/v1/whoami").send().await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(whoami(Who::Viewer).await);
    }
    let limited: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)
        .collect();
    assert!(!limited.is_empty());
    let wait: u64 = limited[0].headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=2).contains(&wait));
    assert_eq!(whoami(Who::Auditor).await.status(), StatusCode::OK);
    let again = async { while whoami(Who::Viewer).await.status() != StatusCode::OK {} };
    tokio::time::timeout(Duration::from_secs(10), again)
        .await
        .unwrap();
}

#[tokio::test]
async fn guessing_at_keys_is_slowed_down_and_good_keys_are_not() {
    let limits = ApiLimits {
        failures_per_second: 5,
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let guess = async || {
        let key = mayfly_api::ApiKey::generate();
        ground
            .open(Method::GET, "/v1/whoami")
            .bearer_auth(key.reveal())
            .send()
            .await
            .unwrap()
            .status()
    };
    let mut statuses = Vec::new();
    while !statuses.contains(&StatusCode::TOO_MANY_REQUESTS) {
        assert!(statuses.len() < 1000);
        statuses.push(guess().await);
    }
    assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
    assert_eq!(
        ground
            .get(Who::Viewer, "/v1/whoami")
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn requests_at_once_have_a_bound_and_whoever_waits_counts() {
    let limits = ApiLimits {
        requests: 2,
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let message = ground.started(ground.tenant).await;
    let path = format!("/v1/jobs/{}?wait=60s", message.job);
    let waiting = join_all((0..2).map(|_| ground.get(Who::Viewer, &path).send()));
    let refused = async {
        loop {
            let answer = ground.open(Method::GET, "/v1/version").send().await.unwrap();
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                assert!(answer.headers().contains_key("retry-after"));
                let problem: Value = answer.json().await.unwrap();
                assert_eq!(problem["code"], "overloaded");
                break;
            }
        }
        ground
            .finish(&message, mayfly_store::contract::bench::success())
            .await;
    };
    let (waited, ()) = tokio::join!(waiting, refused);
    for answer in waited {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(
        ground
            .open(Method::GET, "/v1/version")
            .send()
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
}

/// A body that does not come keeps its room, and others wait for it or are refused.
#[tokio::test]
async fn bodies_in_memory_at_once_have_a_bound() {
    let limits = ApiLimits {
        body: ByteSize::mib(1),
        bodies: ByteSize::mib(1),
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let mut slow = tokio::net::TcpStream::connect(ground.address).await.unwrap();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 1048576\r\nExpect: 100-continue\r\n\r\n",
        ground.key(Who::Submitter).reveal()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body once it has room for it.
    let mut answer = [0; 25];
    slow.read_exact(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 100"), "{answer:?}");
    let refused = ground
        .post(Who::Submitter, "/v1/jobs", &spec())
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(slow);
    let accepted = ground
        .post(Who::Submitter, "/v1/jobs", &spec())
        .send()
        .await
        .unwrap();
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
}

/// Also of what it took while its length was not known.
#[tokio::test]
async fn a_submission_that_waits_has_given_back_the_room_of_its_body() {
    let limits = ApiLimits {
        body: ByteSize::mib(1),
        bodies: ByteSize::mib(1),
        ..generous()
    };
    let ground = Ground::with(limits).await;
    let in_chunks = |path: &str| {
        let bytes = serde_json::to_vec(&spec()).unwrap();
        let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>(bytes)]);
        ground
            .open(Method::POST, path)
            .bearer_auth(ground.key(Who::Submitter).reveal())
            .header("content-type", "application/json")
            .body(reqwest::Body::wrap_stream(chunks))
    };
    let mut commits = ground.bench.store.commits();
    let mut waits = tokio::task::JoinSet::new();
    waits.spawn(in_chunks("/v1/jobs?wait=60s").send());
    commits.changed().await.unwrap();
    let other = in_chunks("/v1/jobs").send().await.unwrap();
    assert_eq!(other.status(), StatusCode::ACCEPTED);
    assert!(waits.try_join_next().is_none(), "nobody runs it");
}
