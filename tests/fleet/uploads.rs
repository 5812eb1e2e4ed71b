//! Files that are uploaded once and fetched by executors, whoever dies meanwhile.

use mayfly_core::{artifact::PIECE, digest::Digest, id::JobId, outcome::EndState};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    artifacts::{large_mib, peak},
    blobs::{fleet, no_address_is_anywhere},
    support::{Api, Fleet, SOON, wait_for},
};

/// Says of each of its files how long it is, and its digest.
const PROGRAM: &str = "import hashlib, os\n\
for name in sorted(os.listdir('in')):\n    \
    with open('in/' + name, 'rb') as file:\n        \
        print(name, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, 'sha256').hexdigest())\n";

/// Uploads content that is made while it is sent: so many bytes of a block, over and over.
async fn upload(api: &Api, block: &[u8], bytes: u64) -> Digest {
    let digest = digest(block, bytes);
    let parts = futures_util::stream::iter(parts(block, bytes).map(Ok::<_, std::io::Error>));
    let body = reqwest::Body::wrap_stream(parts);
    let answer = api.put(&format!("/v1/uploads/{digest}"), bytes, body).await;
    assert_eq!(answer.0, 201, "{}", answer.1);
    digest
}

fn parts(block: &[u8], bytes: u64) -> impl Iterator<Item = Vec<u8>> + use<> {
    let block = block.to_vec();
    let mut left = bytes;
    std::iter::from_fn(move || {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        left -= length as u64;
        (length > 0).then(|| block[..length].to_vec())
    })
}

fn digest(block: &[u8], bytes: u64) -> Digest {
    let mut hash = Sha256::new();
    parts(block, bytes).for_each(|part| hash.update(part));
    Digest::from_bytes(hash.finalize().into())
}

/// Submits a job that has these uploads, by their names below `in`.
async fn submit(api: &Api, program: &str, uploads: &[(&str, Digest)], limits: Value) -> JobId {
    let uploads: Vec<_> = uploads
        .iter()
        .map(|(name, digest)| json!({"path": format!("in/{name}"), "digest": digest}))
        .collect();
    let spec = json!({
        "image": "python", "source": {"text": program}, "uploads": uploads, "limits": limits,
    });
    let (status, answer) = api.post("/v1/jobs", &spec).await;
    assert_eq!(status, 202, "{answer}");
    let job = answer["job"].as_str().and_then(|id| id.parse().ok());
    job.expect("an id")
}

async fn said(fleet: &Fleet, job: JobId) -> String {
    assert_eq!(fleet.end_of(job, 20 * SOON).await, EndState::Succeeded);
    let details = fleet.details(job).await;
    let report = details.report().expect("it has run");
    String::from_utf8_lossy(&report.stdout.head).into_owned()
}

fn line(name: &str, bytes: u64, digest: Digest) -> String {
    format!("{name} {bytes} {}\n", digest.to_hex())
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_pass_a_fleet_and_an_executor_that_dies_is_no_loss() {
    let Some(mut fleet) = fleet(
        1,
        &[("MAYFLY_LOG__FILTER", "debug")],
        &[("MAYFLY_LOG__FILTER", "debug")],
    )
    .await
    else {
        return;
    };
    let api = fleet.api().await;
    let block = b"canary-7f3a ".repeat(5000);
    let bytes = 5 * PIECE as u64 + 3;
    let large = upload(&api, &block, bytes).await;
    let small = upload(&api, b"small", 5).await;
    let zero = upload(&api, b"", 0).await;
    let files = [("large", large), ("small", small), ("zero", zero)];
    let expected = line("large", bytes, large) + &line("small", 5, small) + &line("zero", 0, zero);
    let job = submit(&api, PROGRAM, &files, json!({})).await;
    assert_eq!(said(&fleet, job).await, expected);
    // An attempt that is lost is followed by one that fetches all of it anew.
    let begin = "import os, sys, time\nprint('be' + 'gun', file=sys.stderr, flush=True)\ntime.sleep(5)\n";
    let job = submit(&api, &format!("{begin}{PROGRAM}"), &files, json!({})).await;
    api.hear(&job.to_string(), "begun").await;
    fleet.executors[0].kill();
    fleet.executors[0].restart();
    assert_eq!(said(&fleet, job).await, expected);
    assert_eq!(fleet.details(job).await.attempts.len(), 2);
    for path in [large, small].map(|digest| format!("/v1/uploads/{digest}")) {
        assert_eq!(api.act("DELETE", &path).await.0, 204);
    }
    let job = json!({"image": "python", "source": {"text": ""}, "uploads": [{"path": "a", "digest": large}]});
    let (status, problem) = api.post("/v1/jobs", &job).await;
    assert_eq!(
        (status, &problem["faults"][0]["code"]),
        (422, &json!("not_uploaded"))
    );
    // Nothing of it is in a job, in the log of the audit or of a process.
    let count = |query: &str| fleet.services.count(query);
    assert_eq!(
        count("SELECT count(*) FROM job_contents WHERE resolved LIKE '%canary-7f3a%'"),
        0
    );
    assert_eq!(count("SELECT count(*) FROM upload_pieces"), 0);
    let hex = large.to_hex();
    let told = format!("SELECT count(*) FROM audit_events WHERE encode(body, 'escape') LIKE '%{hex}%'");
    assert_eq!(count(&told), 0);
    for role in fleet.servers.iter().chain(&fleet.executors) {
        assert!(
            !role.log().contains("canary-7f3a"),
            "{}",
            role.log_file().display()
        );
    }
    no_address_is_anywhere(&fleet);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_while_a_file_is_fetched_is_waited_for() {
    let Some(mut fleet) = fleet(1, &[], &[]).await else {
        return;
    };
    let api = fleet.api().await;
    let block: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    // Long enough that the server is gone before the last piece is.
    let bytes = 200 << 20;
    let large = upload(&api, &block, bytes).await;
    let limits = json!({"memory": "512MiB", "work": "256MiB"});
    let job = submit(&api, PROGRAM, &[("large", large)], limits).await;
    fleet.started(job).await;
    fleet.servers[0].kill();
    wait_for(SOON, "the executor to miss the server", async || {
        let said = "could not fetch a file of a job; it is tried again";
        fleet.executors[0].log().contains(said).then_some(())
    })
    .await;
    fleet.servers[0].restart();
    assert_eq!(said(&fleet, job).await, line("large", bytes, large));
    assert_eq!(
        fleet.details(job).await.attempts.len(),
        1,
        "nothing has run again for it"
    );
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_passes_in_a_few_pieces_of_memory() {
    let Some(fleet) = fleet(1, &[], &[]).await else {
        return;
    };
    let api = fleet.api().await;
    // Once before, so that what is made for the first time is made.
    let small = upload(&api, b"small", 5).await;
    let job = submit(&api, PROGRAM, &[("small", small)], json!({})).await;
    assert_eq!(said(&fleet, job).await, line("small", 5, small));
    let (executor, server) = (fleet.executors[0].pid(), fleet.servers[0].pid());
    let before = (peak(executor), peak(server));
    let bytes = large_mib() << 20;
    let block: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
    let begun = std::time::Instant::now();
    let large = upload(&api, &block, bytes).await;
    let uploaded = begun.elapsed();
    let limits = json!({
        "memory": format!("{}MiB", large_mib() + 512), "work": format!("{}MiB", large_mib() + 64), "wall": "5m",
    });
    let job = submit(&api, PROGRAM, &[("large", large)], limits).await;
    assert_eq!(said(&fleet, job).await, line("large", bytes, large));
    let took = begun.elapsed();
    let begun = std::time::Instant::now();
    assert_eq!(api.act("DELETE", &format!("/v1/uploads/{large}")).await.0, 204);
    let removed = begun.elapsed();
    let after = (peak(executor), peak(server));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{} MiB: uploaded in {:.1} s, read by its job after {:.1} s, removed in {:.1} s; executor {} MiB at most ({} before), server {} ({})",
        mib(bytes),
        uploaded.as_secs_f64(),
        took.as_secs_f64(),
        removed.as_secs_f64(),
        mib(after.0),
        mib(before.0),
        mib(after.1),
        mib(before.1)
    );
    assert!(
        after.0 - before.0 < 32 << 20 && after.0 < 100_000_000,
        "{after:?}, {before:?}"
    );
    assert!(after.1 - before.1 < 64 << 20, "{after:?}, {before:?}");
}
