//! Files that jobs leave, through a fleet, whoever dies on the way.

use std::path::Path;

use mayfly_core::{
    artifact::PIECE,
    digest::Digest,
    id::{ExecutorId, JobId},
    outcome::EndState,
};
use mayfly_store::{blobs::PieceAt, seam::JobStore as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    blobs::{fleet, no_address_is_anywhere},
    support::{Fleet, SOON, wait_for},
};

/// Bytes of the larger file: some pieces, and a part of one.
const BYTES: usize = 3 * PIECE + 17;

/// Leaves two files, and says the digest of the larger one.
const PROGRAM: &str = "import hashlib, os, sys\n\
data = (bytes(range(251)) * (4 * 2**20 // 251))[:3 * 2**20 + 17]\n\
os.mkdir('out')\n\
open('out/large.bin', 'wb').write(data)\n\
open('out/small.txt', 'w').write('small')\n\
print(hashlib.sha256(data).hexdigest())\n";

async fn submit(fleet: &Fleet, program: &str) -> JobId {
    fleet.submit(program, json!({"artifacts": ["out/*"]})).await
}

/// The job has both files, whole, and nothing else is kept of any.
async fn has_its_files(fleet: &Fleet, job: JobId) {
    assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
    let details = fleet.details(job).await;
    let report = details.report().expect("it has run");
    let artifacts = report.artifacts.as_ref().expect("they were collected");
    assert_eq!(artifacts.incomplete, None);
    let [large, small] = &artifacts.files[..] else {
        panic!("{artifacts:?}")
    };
    assert_eq!((large.bytes, small.bytes), (BYTES as u64, 5));
    let said = format!("{}\n", large.digest.to_hex());
    assert_eq!(String::from_utf8_lossy(&report.stdout.head), said);
    let attempt = details.attempts.last().expect("it has run").id;
    let mut content = Vec::new();
    for piece in 0.. {
        let at = PieceAt {
            file: large.number,
            piece,
        };
        let found = fleet.store.find_piece(details.job.tenant, attempt, at).await;
        let Some(bytes) = found.expect("the database answers") else {
            break;
        };
        content.extend(bytes);
    }
    assert!(content.len() == BYTES && Digest::of(&content) == large.digest);
}

fn pieces(fleet: &Fleet) -> u64 {
    fleet.services.count("SELECT count(*) FROM artifact_pieces")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_pass_a_fleet_and_a_server_that_is_away_is_waited_for() {
    let Some(mut fleet) = fleet(1, &[], &[]).await else {
        return;
    };
    let job = submit(&fleet, PROGRAM).await;
    has_its_files(&fleet, job).await;
    assert_eq!(pieces(&fleet), 5);
    // The program ends while there is no server, and the next one begins only then.
    let begin = "import sys, time\nprint('be' + 'gun', file=sys.stderr, flush=True)\ntime.sleep(3)\n";
    let api = fleet.api().await;
    let job = submit(&fleet, &format!("{begin}{PROGRAM}")).await;
    api.hear(&job.to_string(), "begun").await;
    fleet.servers[0].kill();
    wait_for(SOON, "the executor to miss the server", async || {
        let said = "could not leave a file that a run has made; it is tried again";
        fleet.executors[0].log().contains(said).then_some(())
    })
    .await;
    fleet.servers[0].restart();
    has_its_files(&fleet, job).await;
    assert_eq!(
        fleet.details(job).await.attempts.len(),
        1,
        "nothing has run again for it"
    );
    assert_eq!(pieces(&fleet), 10);
    no_address_is_anywhere(&fleet);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

/// Bytes of the file whose way is measured; `MAYFLY_TEST_ARTIFACT_MIB` says how many.
#[expect(clippy::disallowed_methods, reason = "a test's own variables are no settings")]
pub(crate) fn large_mib() -> u64 {
    let asked = std::env::var("MAYFLY_TEST_ARTIFACT_MIB").ok();
    asked.map_or(64, |text| text.parse().expect("a number"))
}

/// The most memory that a process has had in use, in bytes (proc(5), `VmHWM`).
pub(crate) fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix("kB"))
        .expect("it is there");
    kib.trim().parse::<u64>().expect("a number") * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_passes_in_a_few_pieces_of_memory() {
    let bytes = large_mib() << 20;
    let most = format!("{}MiB", large_mib());
    let of_servers = [
        ("MAYFLY_POLICY__ARTIFACTS__FILE", most.as_str()),
        ("MAYFLY_POLICY__ARTIFACTS__TOTAL", most.as_str()),
        ("MAYFLY_POLICY__ARTIFACTS__TIME", "10m"),
    ];
    let Some(fleet) = fleet(1, &[], &of_servers).await else {
        return;
    };
    // Once before, so that what is made for the first time is made.
    let small = submit(&fleet, PROGRAM).await;
    has_its_files(&fleet, small).await;
    let (executor, server) = (fleet.executors[0].pid(), fleet.servers[0].pid());
    let before = (peak(executor), peak(server));
    let program = format!(
        "import os\nos.mkdir('out')\nblock = os.urandom(1 << 20)\nwith open('out/large', 'wb') as file:\n    \
         for _ in range({}): file.write(block)\n",
        large_mib()
    );
    let limits = json!({
        "memory": format!("{}MiB", large_mib() + 512), "work": format!("{}MiB", large_mib() + 64), "wall": "5m",
    });
    let begun = std::time::Instant::now();
    // By the API, whose policy is the server's.
    let api = fleet.api().await;
    let spec = json!({
        "image": "python", "source": {"text": program}, "artifacts": ["out/*"], "limits": limits,
    });
    let (status, answer) = api.try_submit("large", &spec).await.expect("the server answers");
    assert_eq!(status, 202, "{answer}");
    let job = answer["job"].as_str().and_then(|id| id.parse().ok());
    let job: JobId = job.expect("an id");
    assert_eq!(fleet.end_of(job, 20 * SOON).await, EndState::Succeeded);
    let took = begun.elapsed();
    let details = fleet.details(job).await;
    let artifacts = details.report().and_then(|report| report.artifacts.as_ref());
    let [file] = &artifacts.expect("they were collected").files[..] else {
        panic!("{artifacts:?}")
    };
    assert_eq!(file.bytes, bytes);
    let mut answer = api.get(&format!("/v1/jobs/{job}/artifacts/0")).await;
    let (mut got, mut hash) = (0, Sha256::new());
    while let Some(part) = answer.chunk().await.expect("all of it comes") {
        got += part.len() as u64;
        hash.update(&part);
    }
    assert_eq!(
        (got, Digest::from_bytes(hash.finalize().into())),
        (bytes, file.digest)
    );
    let after = (peak(executor), peak(server));
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{} MiB in {:.1} s; executor {} MiB at most ({} before), server {} ({})",
        mib(bytes),
        took.as_secs_f64(),
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

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_killed_between_files_and_report_leaves_the_files_of_one_run() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (trap, hit) = (folder.path().join("trap"), folder.path().join("hit"));
    std::fs::write(&trap, "output-uploaded").expect("a file for the test");
    let text = |path: &Path| path.to_str().expect("a path of ours is text").to_owned();
    let (at, hit_file) = (format!("@{}", text(&trap)), text(&hit));
    let of_executors = [
        ("MAYFLY_TEST_FAILPOINT", at.as_str()),
        ("MAYFLY_TEST_FAILPOINT_HIT", hit_file.as_str()),
    ];
    let Some(mut fleet) = fleet(2, &of_executors, &[]).await else {
        return;
    };
    let job = submit(&fleet, PROGRAM).await;
    wait_for(SOON, "an executor to die with its files left", async || {
        hit.exists().then_some(())
    })
    .await;
    let died: ExecutorId = fleet.details(job).await.attempts[0]
        .executor
        .expect("it has started");
    fleet.executor(died).ended(SOON).await;
    assert_eq!(
        pieces(&fleet),
        5,
        "they are of an attempt that nobody knows to be over"
    );
    fleet.executor(died).restart();
    has_its_files(&fleet, job).await;
    assert_eq!(fleet.details(job).await.attempts.len(), 2);
    assert_eq!(pieces(&fleet), 5);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}
