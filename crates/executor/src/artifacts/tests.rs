use mayfly_core::{
    id::{AttemptId, JobId, TenantId},
    outcome::Redacted,
};
use mayfly_dispatch::{
    message::{BlobPlaces, READS, VERSION},
    time::ServerTime,
    token::TokenKey,
};

use serde_json::json;

use super::*;
use crate::blobs::{
    HttpBlobs, NoBlobs,
    scripted::{Scripted, answer},
};

const MIB: usize = 1 << 20;

/// An order of a server for a job that asks for files, and for no more than so many bytes of them.
fn order(base: &str, most: u64) -> Arc<DispatchMessage> {
    let mut job = mayfly_testkit::job(&["true"], json!({"artifacts": ["*"]}));
    let limits = job.artifact_limits.as_mut().expect("it asks for files");
    (limits.file, limits.total) = (ByteSize::bytes(most), ByteSize::bytes(most));
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

fn sink(order: &Arc<DispatchMessage>, blobs: Arc<dyn Blobs>) -> Box<dyn ArtifactSink> {
    wanted(&order.resolved, order, &blobs)
        .expect("it asks for files")
        .sink
}

fn http() -> Arc<dyn Blobs> {
    Arc::new(HttpBlobs::new().unwrap())
}

fn artifact(number: u32, bytes: usize) -> Artifact {
    Artifact {
        name: "a".into(),
        bytes: bytes as u64,
        digest: Digest::of(b""),
        redacted: Redacted::default(),
        is_text: false,
        number,
    }
}

#[tokio::test]
async fn a_file_is_left_in_pieces_whatever_it_comes_in() {
    let answers = vec![
        answer("503 Service Unavailable", 0, b""),
        b"HTTP/1.1 204 No C".to_vec(),
        answer("204 No Content", 0, b""),
    ];
    let server = Scripted::start(answers).await;
    let order = order(&server.base, 10 << 20);
    let mut sink = sink(&order, http());
    let content: Vec<u8> = (0..=255).cycle().take(2 * MIB + 5).collect();
    assert_eq!(sink.begin().await.unwrap(), 0);
    for part in content.chunks(MIB - 7) {
        sink.write(part).await.unwrap();
    }
    sink.keep(&artifact(0, content.len())).await.unwrap();
    assert_eq!(server.body(), content[2 * MIB..]);
    // A file that is dropped takes its number with it, and an empty one needs no piece.
    assert_eq!(sink.begin().await.unwrap(), 1);
    sink.write(b"half").await.unwrap();
    sink.drop_it().await;
    assert_eq!(sink.begin().await.unwrap(), 2);
    sink.keep(&artifact(2, 0)).await.unwrap();
    assert_eq!(sink.begin().await.unwrap(), 3);
    sink.write(b"last").await.unwrap();
    sink.keep(&artifact(3, 4)).await.unwrap();
    assert_eq!(server.body(), b"last");
    let heard = server.heard();
    let places: Vec<&str> = heard
        .lines()
        .filter(|line| line.starts_with("PUT "))
        .filter_map(|line| line.split_once("&file="))
        .map(|(_, place)| place.trim_end_matches(" HTTP/1.1"))
        .collect();
    // The first piece was tried three times.
    let expected = [
        "0&piece=0",
        "0&piece=0",
        "0&piece=0",
        "0&piece=1",
        "0&piece=2",
        "3&piece=0",
    ];
    assert_eq!(places, expected);
}

#[tokio::test]
async fn no_more_is_left_than_a_job_may_leave() {
    let server = Scripted::start(vec![answer("204 No Content", 0, b"")]).await;
    let order = order(&server.base, MIB as u64 + 1);
    let mut sink = sink(&order, http());
    sink.begin().await.unwrap();
    sink.write(&vec![1; MIB + 2]).await.unwrap();
    let error = sink.keep(&artifact(0, MIB + 2)).await.unwrap_err();
    assert!(error.to_string().contains("they are more than"), "{error}");
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn a_server_that_refuses_is_asked_once_and_where_there_is_none_nobody_is() {
    let server = Scripted::start(vec![answer("404 Not Found", 0, b"")]).await;
    let order = order(&server.base, 100);
    let mut refused = sink(&order, http());
    refused.begin().await.unwrap();
    refused.write(b"a").await.unwrap();
    let error = refused.keep(&artifact(0, 1)).await.unwrap_err();
    assert!(error.to_string().contains("refuses it (status 404)"), "{error}");
    assert_eq!(server.asked(), 1);
    let mut nowhere = sink(&order, Arc::new(NoBlobs));
    nowhere.begin().await.unwrap();
    nowhere.write(b"a").await.unwrap();
    assert!(nowhere.keep(&artifact(0, 1)).await.is_err());
}

#[test]
fn a_job_that_asks_for_no_files_gets_none_collected() {
    let blobs: Arc<dyn Blobs> = Arc::new(NoBlobs);
    let mut order = DispatchMessage::clone(&order("http://server", 1));
    assert!(wanted(&order.resolved, &Arc::new(order.clone()), &blobs).is_some());
    order.resolved.artifacts.clear();
    assert!(wanted(&order.resolved, &Arc::new(order.clone()), &blobs).is_none());
}
