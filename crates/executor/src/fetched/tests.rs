use mayfly_core::{
    id::{AttemptId, JobId, TenantId},
    job::FileMode,
};
use mayfly_dispatch::{
    message::{BlobPlaces, READS, VERSION},
    time::ServerTime,
    token::TokenKey,
};
use serde_json::json;

use super::*;
use crate::blobs::{
    HttpBlobs,
    scripted::{Scripted, answer},
};

const MIB: usize = 1 << 20;

/// An order for a job that fetches files of these digests and lengths.
fn order(base: &str, files: &[(Digest, usize)]) -> Arc<DispatchMessage> {
    let mut job = mayfly_testkit::job(&["true"], json!({}));
    let file = |(number, &(digest, bytes)): (usize, &(Digest, usize))| FetchedFile {
        path: number.to_string(),
        mode: FileMode::USUAL,
        digest,
        bytes: bytes as u64,
    };
    job.fetched = files.iter().enumerate().map(file).collect();
    let key = TokenKey::from_bytes([7; 32]);
    let attempt = AttemptId::new();
    let order = DispatchMessage {
        v: VERSION,
        tenant: TenantId::LOCAL,
        job: JobId::new(),
        attempt,
        number: 1,
        publication: 1,
        token: key.token(attempt),
        resolved: job,
        input: None,
        output: None,
        artifacts: None,
        secrets: None,
        fetched: None,
    };
    let places = BlobPlaces {
        base: base.to_owned(),
        key: key.blob_key(),
        input_above: 1 << 20,
        output_above: 64 << 20,
    };
    Arc::new(places.equip(order, READS, ServerTime::from_micros(0)))
}

fn ok(content: &[u8]) -> Vec<u8> {
    answer("200 OK", content.len(), content)
}

/// What comes of fetching: the bytes that were handed on, and how it ended.
async fn fetched(order: &Arc<DispatchMessage>) -> (Vec<u8>, Result<(), BlobError>) {
    let blobs = HttpBlobs::new().unwrap();
    let (sender, mut pieces) = tokio::sync::mpsc::channel(100);
    let end = fetch(&blobs, order, &sender).await;
    drop(sender);
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.recv().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    (bytes, end)
}

#[tokio::test]
async fn files_come_piece_by_piece_and_in_their_order() {
    let large: Vec<u8> = (0..=255).cycle().take(2 * MIB + 5).collect();
    let server = Scripted::start(vec![
        answer("503 Service Unavailable", 0, b""),
        ok(&large[..MIB]),
        // Another length than its place has.
        ok(&large[..MIB - 1]),
        ok(&large[MIB..2 * MIB]),
        ok(&large[2 * MIB..]),
        ok(b"small"),
    ])
    .await;
    let files = [
        (Digest::of(&large), large.len()),
        (Digest::of(b""), 0),
        (Digest::of(b"small"), 5),
    ];
    let (bytes, end) = fetched(&order(&server.base, &files)).await;
    end.unwrap();
    assert_eq!(bytes, [large.as_slice(), b"small"].concat());
    let heard = server.heard();
    let places: Vec<&str> = heard
        .lines()
        .filter_map(|line| line.strip_prefix("GET ")?.split_once("&file="))
        .map(|(_, place)| place.trim_end_matches(" HTTP/1.1"))
        .collect();
    let expected = [
        "0&piece=0",
        "0&piece=0",
        "0&piece=1",
        "0&piece=1",
        "0&piece=2",
        "2&piece=0",
    ];
    assert_eq!(places, expected);
}

#[tokio::test]
async fn of_a_file_that_is_another_the_last_piece_is_never_handed_on() {
    let content = vec![7; MIB + 3];
    let server = Scripted::start(vec![ok(&content[..MIB]), ok(b"abc")]).await;
    let (bytes, end) = fetched(&order(&server.base, &[(Digest::of(&content), content.len())])).await;
    assert!(matches!(end, Err(BlobError::Digest)), "{end:?}");
    assert_eq!(bytes.len(), MIB);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn what_the_server_refuses_ends_it_and_the_reason_has_no_address() {
    let server = Scripted::start(vec![answer("404 Not Found", 0, b"")]).await;
    let order = order(&server.base, &[(Digest::of(b"a"), 1)]);
    let blobs: Arc<dyn Blobs> = Arc::new(HttpBlobs::new().unwrap());
    let tasks = TaskTracker::new();
    let incoming = incoming(&order, &blobs, &tasks).expect("it fetches a file");
    drop(incoming);
    tasks.close();
    // Nobody waits for it, and it ends.
    tasks.wait().await;
    let (_, end) = fetched(&order).await;
    let text = Chain(&end.unwrap_err()).to_string();
    assert_eq!(text, "the server refuses it (status 404)");
}

#[tokio::test]
async fn a_job_without_such_files_asks_for_none() {
    let blobs: Arc<dyn Blobs> = Arc::new(HttpBlobs::new().unwrap());
    let order = order("http://127.0.0.1:1", &[]);
    assert!(incoming(&order, &blobs, &TaskTracker::new()).is_none());
    assert_eq!(longest(&order.resolved.fetched), Duration::ZERO);
}
