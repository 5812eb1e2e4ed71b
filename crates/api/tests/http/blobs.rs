//! What executors fetch by the addresses in their orders: by those alone, whole, and for as long as the attempt lasts.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    job::{Blob, InputFile},
};
use mayfly_dispatch::{
    blob::{BlobClaim, BlobKind, GRACE},
    content::JobContent,
    message::{BlobPlaces, DispatchMessage, InputBlob, READS},
    token::TokenKey,
};
use mayfly_store::contract::bench::{Plan, success};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::ground::Ground;

fn places(ground: &Ground) -> BlobPlaces {
    BlobPlaces {
        base: ground.url(""),
        // As the ground's server has it.
        key: TokenKey::from_bytes([7; 32]).blob_key(),
        input_above: 1024,
        output_above: 1024,
    }
}

/// A job that brings much and has started: its order as it would be sent, and the content that is not in it.
async fn started(ground: &Ground, tenant: TenantId) -> (DispatchMessage, InputBlob, Vec<u8>) {
    let mut plan = Plan {
        tenant,
        ..Plan::once()
    };
    plan.resolved.files = vec![InputFile {
        path: "data".to_owned(),
        content: Blob::from((0..=255).cycle().take(300_000).collect::<Vec<u8>>()),
        executable: false,
        mode: None,
    }];
    let job = ground.bench.submit(&plan).await;
    let whole = ground.start(job).await;
    let content = JobContent::take(&mut whole.resolved.clone()).encode();
    let order = places(ground).equip(whole, READS, ground.bench.now);
    let input = order.input.clone().unwrap();
    (order, input, content)
}

fn claim(order: &DispatchMessage, bytes: u64, ground: &Ground) -> BlobClaim {
    BlobClaim {
        tenant: order.tenant,
        job: order.job,
        attempt: order.attempt,
        kind: BlobKind::Input,
        bytes,
        expires: BlobClaim::expiry(ground.bench.now, order.resolved.limits.wall.as_duration()),
    }
}

async fn get(ground: &Ground, url: &str) -> reqwest::Response {
    ground.client.get(url).send().await.unwrap()
}

/// What a refusal looks like, without what differs by itself.
async fn refusal(ground: &Ground, method: Method, url: &str) -> Value {
    let answer = ground.client.request(method, url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{url}");
    let mut problem: Value = answer.json().await.unwrap();
    problem["request_id"] = Value::Null;
    problem
}

#[tokio::test]
async fn what_a_job_brings_comes_as_its_order_names_it() {
    let ground = Ground::new().await;
    let (_, input, content) = started(&ground, ground.tenant).await;
    for _ in 0..2 {
        let answer = get(&ground, input.url.reveal()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.content_length(), Some(input.bytes));
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(answer.headers()["content-type"], "application/octet-stream");
        let bytes = answer.bytes().await.unwrap();
        assert!(bytes == content && Digest::of(&bytes) == input.digest);
    }
}

#[tokio::test]
async fn an_address_that_says_something_else_than_was_signed_leads_nowhere_and_nobody_learns_why() {
    let ground = Ground::new().await;
    let (order, input, _) = started(&ground, ground.tenant).await;
    let (other, other_input, _) = started(&ground, ground.other_tenant).await;
    let good = input.url.reveal();
    let (path, query) = good.split_once('?').unwrap();
    let claim = claim(&order, input.bytes, &ground);
    let (before, signature) = good.rsplit_once("signature=").unwrap();
    let (_, others) = other_input.url.reveal().rsplit_once("signature=").unwrap();
    let swapped = |from: String, to: String| good.replace(&from, &to);
    let changed = [
        swapped(order.tenant.to_string(), other.tenant.to_string()),
        swapped(order.job.to_string(), other.job.to_string()),
        swapped(order.attempt.to_string(), other.attempt.to_string()),
        swapped(order.tenant.to_string(), TenantId::new().to_string()),
        swapped(order.job.to_string(), JobId::new().to_string()),
        swapped(order.attempt.to_string(), AttemptId::new().to_string()),
        good.replace(
            &format!("expires={}", claim.expires),
            &format!("expires={}", claim.expires + 1),
        ),
        good.replace(
            &format!("bytes={}", claim.bytes),
            &format!("bytes={}", claim.bytes - 1),
        ),
        good.replace("/input?", "/output?"),
        good.replace("/input?", "/else?"),
        format!("{before}signature={others}"),
        format!("{before}signature={}", "0".repeat(64)),
        format!("{before}signature={}0", &signature[..63]),
        format!("{before}signature={signature}0"),
        format!("{good}&bytes=1"),
        format!("{good}&more=1"),
        format!("{good}&file=0&piece=0"),
        path.to_owned(),
        format!("{path}?{}", query.replace("bytes=", "bytes=-")),
        good.replace(&order.attempt.to_string(), "no-id"),
        good.replace(&order.attempt.to_string(), "%ff"),
        // By another key, and for another kind.
        TokenKey::from_bytes([8; 32])
            .blob_key()
            .url(&ground.url(""), &claim)
            .reveal()
            .to_owned(),
        // Signed, of an attempt that there is not; and of one whose job is another.
        places(&ground)
            .key
            .url(
                &ground.url(""),
                &BlobClaim {
                    attempt: AttemptId::new(),
                    ..claim
                },
            )
            .reveal()
            .to_owned(),
        places(&ground)
            .key
            .url(
                &ground.url(""),
                &BlobClaim {
                    attempt: other.attempt,
                    ..claim
                },
            )
            .reveal()
            .to_owned(),
    ];
    let mut seen = Vec::new();
    for url in changed {
        // The last of these changes would change nothing where two signatures end alike.
        if url == good {
            continue;
        }
        seen.push(refusal(&ground, Method::GET, &url).await);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "each refusal reads the same: {seen:?}");
    let head = ground.client.head(good).send().await.unwrap();
    assert_eq!(head.status(), StatusCode::NOT_FOUND, "another method");
    for method in [Method::POST, Method::DELETE] {
        let answer = ground.client.request(method, good).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    assert_eq!(get(&ground, good).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_address_leads_nowhere_once_its_time_or_its_attempt_is_over() {
    let mut ground = Ground::new().await;
    let (order, input, _) = started(&ground, ground.tenant).await;
    let (late, late_input, _) = started(&ground, ground.tenant).await;
    ground.finish(&order, success()).await;
    let over = refusal(&ground, Method::GET, input.url.reveal()).await;
    assert_eq!(
        get(&ground, late_input.url.reveal()).await.status(),
        StatusCode::OK
    );
    let wall = late.resolved.limits.wall.as_duration();
    ground.pass(GRACE + wall - Duration::from_secs(1));
    assert_eq!(
        get(&ground, late_input.url.reveal()).await.status(),
        StatusCode::OK
    );
    ground.pass(Duration::from_secs(1));
    let expired = refusal(&ground, Method::GET, late_input.url.reveal()).await;
    assert_eq!(over, expired);
}

/// Neither the document nor any answer names what executors alone have a part in.
#[tokio::test]
async fn no_refusal_and_no_document_shows_an_address() {
    let ground = Ground::new().await;
    let (_, input, _) = started(&ground, ground.tenant).await;
    let wrong = input.url.reveal().replace("bytes=", "bytes=1");
    let problem = refusal(&ground, Method::GET, &wrong).await.to_string();
    assert!(
        !problem.contains("signature") && !problem.contains("/v1/blobs"),
        "{problem}"
    );
    let document = get(&ground, &ground.url("/v1/openapi.json"))
        .await
        .text()
        .await
        .unwrap();
    assert!(!document.contains("/v1/blobs"));
}

/// Where the run of an order may leave its output, and how a request says what it leaves.
async fn leave(
    ground: &Ground,
    url: &str,
    named: &[u8],
    body: impl Into<reqwest::Body>,
) -> reqwest::Response {
    let digest = STANDARD.encode(Digest::of(named).as_bytes());
    let request = ground
        .client
        .put(url)
        .header("content-digest", format!("sha-256=:{digest}:"));
    request.body(body).send().await.unwrap()
}

fn output_url(order: &DispatchMessage) -> String {
    order.output.as_ref().unwrap().url.reveal().to_owned()
}

async fn refused(answer: reqwest::Response) -> Value {
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let mut problem: Value = answer.json().await.unwrap();
    problem["request_id"] = Value::Null;
    problem
}

#[tokio::test]
async fn what_a_run_has_written_is_taken_once_and_becomes_its_result() {
    let ground = Ground::new().await;
    let (order, ..) = started(&ground, ground.tenant).await;
    let mut report = success();
    report.stdout.head = (0..=255).cycle().take(700_000).collect();
    report.stdout.count.bytes = 700_000;
    let whole = report.clone();
    let (piece, named) = report.take_output();
    report.uploaded = Some(named);
    let url = output_url(&order);
    for _ in 0..2 {
        let answer = leave(&ground, &url, &piece, piece.clone()).await;
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    }
    refused(leave(&ground, &url, b"other", "other").await).await;
    ground.finish(&order, report).await;
    assert_eq!(
        ground
            .bench
            .store
            .find_job(order.tenant, order.job)
            .await
            .unwrap()
            .unwrap()
            .report(),
        Some(&whole)
    );
    refused(leave(&ground, &url, &piece, piece.clone()).await).await;
}

#[tokio::test]
async fn output_that_is_not_as_it_was_signed_or_named_is_refused_and_nobody_learns_why() {
    let mut ground = Ground::new().await;
    let (order, input, _) = started(&ground, ground.tenant).await;
    let (other, ..) = started(&ground, ground.other_tenant).await;
    let (url, most) = (output_url(&order), order.output.as_ref().unwrap().most);
    let wall = order.resolved.limits.wall.as_duration();
    let claim = BlobClaim {
        kind: BlobKind::Output,
        ..claim(&order, most, &ground)
    };
    let (before, _) = url.rsplit_once("signature=").unwrap();
    let other_url = output_url(&other);
    let (_, others) = url_signature(&other_url);
    let swapped = |from: String, to: String| url.replace(&from, &to);
    let mut seen = Vec::new();
    for changed in [
        swapped(order.tenant.to_string(), other.tenant.to_string()),
        swapped(order.job.to_string(), other.job.to_string()),
        swapped(order.attempt.to_string(), other.attempt.to_string()),
        swapped(
            format!("expires={}", claim.expires),
            format!("expires={}", claim.expires + 1),
        ),
        swapped(format!("bytes={most}"), format!("bytes={}", most + 1)),
        format!("{before}signature={others}"),
        format!("{before}signature={}", "0".repeat(64)),
        url.replace("/output?", "/input?"),
        // Made for another method.
        input.url.reveal().to_owned(),
    ] {
        seen.push(refused(leave(&ground, &changed, b"output", "output").await).await);
    }
    // Another content than is named, no name of it, more than is taken, no length.
    seen.push(refused(leave(&ground, &url, b"output", "else").await).await);
    seen.push(refused(ground.client.put(&url).body("output").send().await.unwrap()).await);
    let long = by_hand(&ground, &url, most + 1, b"").await;
    assert!(long.starts_with("HTTP/1.1 404 "), "{long}");
    let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>("out"), Ok("put")]);
    seen.push(refused(leave(&ground, &url, b"output", reqwest::Body::wrap_stream(chunks)).await).await);
    seen.push(refusal(&ground, Method::GET, &url).await);
    // A body that breaks off.
    let cut = by_hand(&ground, &url, 6, b"out").await;
    assert!(!cut.starts_with("HTTP/1.1 2"), "{cut}");
    let context = ground.bench.context();
    ground
        .bench
        .store
        .cancel(other.tenant, other.job, &context)
        .await
        .unwrap();
    ground.finish(&other, success()).await;
    seen.push(refused(leave(&ground, &output_url(&other), b"output", "output").await).await);
    ground.pass(GRACE + wall);
    seen.push(refused(leave(&ground, &url, b"output", "output").await).await);
    seen.dedup();
    assert_eq!(seen.len(), 1, "each refusal reads the same: {seen:?}");
}

fn url_signature(url: &str) -> (&str, &str) {
    url.rsplit_once("signature=").unwrap()
}

/// Says that so many bytes will come, sends these, and hangs up; what is answered.
async fn by_hand(ground: &Ground, url: &str, length: u64, sent: &[u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(ground.address).await.unwrap();
    let target = url.strip_prefix(&ground.url("")).unwrap();
    let digest = STANDARD.encode(Digest::of(b"output").as_bytes());
    let head = format!(
        "PUT {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\ncontent-digest: sha-256=:{digest}:\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
