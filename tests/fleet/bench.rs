//! `mayfly bench control-plane` on services of its own: that every job is looked at and whole, that each part of the report
//! is there, and that nothing of it is left. No figure is judged.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{Services, migrate};

fn settings(services: &Services) -> BTreeMap<String, String> {
    let (_, place) = services
        .postgres()
        .split_once('@')
        .expect("an address has a host");
    let of = |role: &str| format!("postgres://{role}:{role}-of-the-test@{place}");
    BTreeMap::from(
        [
            ("MAYFLY_DATABASE__API_URL", of("mayfly_api")),
            ("MAYFLY_DATABASE__ENGINE_URL", of("mayfly_engine")),
            ("MAYFLY_DATABASE__OWNER_URL", services.postgres().to_owned()),
            ("MAYFLY_BROKER__URL", services.amqp().to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

#[test]
fn a_bench_of_the_control_plane_finds_every_job_whole_and_leaves_no_queue() {
    let Some(services) = Services::start() else { return };
    let settings = settings(&services);
    migrate(services.postgres(), &settings);
    let args = "bench control-plane --seconds 3 --executors 2 --slots 8 --submitters 1 --bulk 20 --stored 3000 --old-snapshot --json";
    let output = Command::new(env!("CARGO_BIN_EXE_mayfly"))
        .args(args.split(' '))
        .env_remove("HOME")
        .envs(&settings)
        .stdin(Stdio::null())
        .output()
        .expect("mayfly starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let number = |pointer: &str| {
        let found = report.pointer(pointer).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("{pointer} is a number of {report}"))
    };
    // A report at all says that the record is whole: what is counted here is counted without mayfly.
    assert_eq!(number("/record/wrong"), 0.0);
    assert_eq!(number("/record/accepted"), number("/record/fetched_succeeded"));
    assert_eq!(
        services.count("SELECT count(*) FROM jobs WHERE state <> 'ended'"),
        0
    );
    let ran = "SELECT count(DISTINCT job_id) FROM audit_events WHERE kind = 'run_started'";
    assert!(number("/jobs") > 0.0 && number("/jobs") <= services.count(ran) as f64);
    assert!(number("/messages/deliveries") >= number("/jobs"));
    assert!(number("/bare/jobs_per_second") > 0.0);
    assert_eq!(
        report.pointer("/sizes").and_then(Value::as_array).map(Vec::len),
        Some(3)
    );
    assert!(number("/sizes/1/stored_jobs") >= 3000.0);
    assert!(number("/sizes/2/snapshot_seconds") >= 3.0);
    for process in ["server", "executor 1", "executor 2"] {
        let used = report.pointer("/used").and_then(Value::as_array).expect("a list");
        assert!(
            used.iter().any(|used| used["process"] == process),
            "{process}: {used:?}"
        );
    }
    let queues = services.queues();
    assert!(
        !queues.iter().any(|queue| queue.contains("bench-")),
        "the bare broker's queues are gone: {queues:?}"
    );
}
