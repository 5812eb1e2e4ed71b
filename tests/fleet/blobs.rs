//! Long jobs and long output: what is too long for a message lies on a server, whoever dies meanwhile.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use mayfly_core::{
    id::{ExecutorId, JobId},
    outcome::EndState,
};
use serde_json::json;

use crate::support::{Fleet, Plan, SOON, Services, python, wait_for};

/// Bytes of the file that a job brings, and that its program writes.
const BROUGHT: usize = 5 << 20;
const WRITTEN: usize = 3 << 20;

/// Says the SHA-256 of its file on stderr, and writes much.
const PROGRAM: &str = "import hashlib, sys\n\
data = open('data', 'rb').read()\n\
print(len(data), hashlib.sha256(data).hexdigest(), file=sys.stderr)\n\
sys.stdout.buffer.write(bytes(range(251)) * (3 * 2**20 // 251 + 1))\n";

/// What the program writes, as far as it is kept.
fn written() -> Vec<u8> {
    let all = WRITTEN / 251 + 1;
    (0..=250).cycle().take(251 * all).collect()
}

fn brought() -> String {
    // Text, so that its length in JSON is its own.
    "mayfly! ".repeat(BROUGHT / 8)
}

/// A fleet whose servers are reached by an address that they know, also when they begin again.
pub(crate) async fn fleet(
    executors: usize,
    of_executors: &[(&str, &str)],
    of_servers: &[(&str, &str)],
) -> Option<Fleet> {
    let pin = python()?;
    let services = Services::start()?;
    let listen = free_port();
    let (listen, url) = (listen.to_string(), format!("http://{listen}"));
    let mut settings = vec![
        ("MAYFLY_SERVER__LISTEN", listen.as_str()),
        ("MAYFLY_SERVER__PUBLIC_URL", url.as_str()),
    ];
    settings.extend_from_slice(of_servers);
    let plan = Plan {
        executors,
        of_executors,
        of_servers: &settings,
        ..Plan::default()
    };
    Some(Fleet::on(services, pin, plan).await)
}

/// A port that nobody has at present.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound")
}

async fn submit(fleet: &Fleet, program: &str) -> JobId {
    let changes = json!({
        "files": [{ "path": "data", "content": brought() }],
        "limits": { "stdout": "8MiB", "work": "64MiB" },
    });
    fleet.submit(program, changes).await
}

async fn has_its_result(fleet: &Fleet, job: JobId) {
    assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
    let details = fleet.details(job).await;
    let report = details.report().expect("it has run");
    assert!(report.stdout.head == written() && report.stdout.tail.is_empty());
    assert_eq!(report.stdout.count.bytes, written().len() as u64);
    let digest = mayfly_core::digest::Digest::of(brought().as_bytes());
    let said = format!("{BROUGHT} {}\n", digest.to_hex());
    assert_eq!(String::from_utf8_lossy(&report.stderr.head), said);
}

/// How long each order is that the broker has for executors.
async fn orders(fleet: &Fleet) -> Vec<u64> {
    let url = format!(
        "{}/api/queues/%2f/mayfly.jobs.default/get",
        fleet.services.management()
    );
    let asked = json!({ "count": 10, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 16 });
    let answer = reqwest::Client::new().post(url).json(&asked).send().await;
    let messages: serde_json::Value = answer.expect("the broker answers").json().await.expect("JSON");
    let messages = messages.as_array().cloned().unwrap_or_default();
    let bytes = messages.iter().map(|message| message["payload_bytes"].as_u64());
    bytes.map(|bytes| bytes.expect("it has a length")).collect()
}

/// Outputs that no report has named. A job that still runs may have left one that its report names only next.
fn left_over(fleet: &Fleet) -> u64 {
    fleet.services.count("SELECT count(*) FROM output_blobs")
}

/// No address of a blob, and no part of one that opens anything, is in a log line or in the audit log.
pub(crate) fn no_address_is_anywhere(fleet: &Fleet) {
    for role in fleet.servers.iter().chain(&fleet.executors) {
        let log = role.log();
        assert!(!log.contains("signature="), "{}", role.log_file().display());
        assert!(!log.contains("expires="), "{}", role.log_file().display());
    }
    let told = "SELECT count(*) FROM audit_events WHERE encode(body, 'escape') LIKE '%signature=%'";
    assert_eq!(fleet.services.count(told), 0);
}

const DEBUG: (&str, &str) = ("MAYFLY_LOG__FILTER", "debug");

#[tokio::test(flavor = "multi_thread")]
async fn long_jobs_and_long_output_pass_the_broker_as_short_messages() {
    let Some(fleet) = fleet(2, &[DEBUG], &[DEBUG]).await else {
        return;
    };
    // So that a job's message is in the queue for as long as it takes to measure it, once all slots are taken.
    let mut busy = Vec::new();
    for _ in 0..4 {
        let program = "import time\ntime.sleep(20)\n";
        busy.push(fleet.submit(program, json!({})).await);
    }
    for job in &busy {
        fleet.started(*job).await;
    }
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(submit(&fleet, PROGRAM).await);
    }
    let bytes = wait_for(SOON, "the orders to be in the queue", async || {
        let orders = orders(&fleet).await;
        (orders.len() == 2).then(|| orders.iter().sum::<u64>())
    })
    .await;
    assert!(bytes < 2 * 8192, "{bytes} bytes of two orders");
    for job in busy {
        assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);
    }
    for job in jobs {
        has_its_result(&fleet, job).await;
    }
    assert_eq!(left_over(&fleet), 0);
    no_address_is_anywhere(&fleet);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_while_a_run_ends_is_waited_for() {
    let Some(mut fleet) = fleet(1, &[], &[]).await else {
        return;
    };
    // The program ends while there is no server, and the next one begins only then.
    let begin = "import sys, time\nprint('be' + 'gun', file=sys.stderr, flush=True)\ntime.sleep(5)\n";
    let api = fleet.api().await;
    let job = submit(&fleet, &format!("{begin}{PROGRAM}")).await;
    api.hear(&job.to_string(), "begun").await;
    fleet.servers[0].kill();
    wait_for(SOON, "the executor to miss the server", async || {
        let said = "could not leave what a run has written; it is tried again";
        fleet.executors[0].log().contains(said).then_some(())
    })
    .await;
    fleet.servers[0].restart();
    assert_eq!(fleet.end_of(job, 2 * SOON).await, EndState::Succeeded);
    let details = fleet.details(job).await;
    assert_eq!(details.attempts.len(), 1, "nothing has run again for it");
    assert!(details.report().expect("it has run").stdout.head == written());
    assert_eq!(left_over(&fleet), 0);
    no_address_is_anywhere(&fleet);
    fleet.every_job_has_one_result();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_killed_between_its_output_and_its_report_leaves_one_result_and_nothing_else() {
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
    wait_for(SOON, "an executor to die with its output left", async || {
        hit.exists().then_some(())
    })
    .await;
    let died: ExecutorId = fleet.details(job).await.attempts[0]
        .executor
        .expect("it has started");
    fleet.executor(died).ended(SOON).await;
    assert_eq!(
        left_over(&fleet),
        1,
        "it is of an attempt that nobody knows to be over"
    );
    // The next life of the executor ends the session of the last one at once, and with it the attempt.
    fleet.executor(died).restart();
    has_its_result(&fleet, job).await;
    assert_eq!(left_over(&fleet), 0);
    let details = fleet.details(job).await;
    assert_eq!(details.attempts.len(), 2);
    assert_eq!(details.attempts[0].report, None);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

/// An order that was published before its server went, and is fetched from the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_while_a_job_is_fetched_is_waited_for() {
    let Some(mut fleet) = fleet(1, &[], &[]).await else {
        return;
    };
    let mut busy = Vec::new();
    for _ in 0..2 {
        busy.push(fleet.submit("import time\ntime.sleep(20)\n", json!({})).await);
    }
    for job in &busy {
        fleet.started(*job).await;
    }
    let job = submit(&fleet, PROGRAM).await;
    wait_for(SOON, "the order to be in the queue", async || {
        (orders(&fleet).await.len() == 1).then_some(())
    })
    .await;
    fleet.servers[0].kill();
    wait_for(SOON, "the executor to miss the server", async || {
        let said = "could not fetch what a job brings; it is tried again";
        fleet.executors[0].log().contains(said).then_some(())
    })
    .await;
    fleet.servers[0].restart();
    has_its_result(&fleet, job).await;
    assert_eq!(left_over(&fleet), 0);
    assert_eq!(fleet.details(job).await.attempts.len(), 1);
    // Time to see that it is only once.
    tokio::time::timeout(Duration::from_secs(60), fleet.no_container_is_left())
        .await
        .expect("nothing is left");
    fleet.every_job_has_one_result();
}
