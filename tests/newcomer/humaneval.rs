//! 164 programs as a language model would write them, through the embedded roles: each succeeds, and with one assertion
//! of its test inverted each fails by that assertion. The programs are HumanEval's (MIT licence), read from the archive
//! that `MAYFLY_HUMANEVAL` names; without it the test is skipped.

mod support;

use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::Arc, time::Duration};

use mayfly_cli::embedded::{Embedded, EmbeddedParts, OneListener, Submission};
use mayfly_core::{
    id::{ExecutorId, TenantId},
    image::ImagePin,
    job::{Blob, JobSpec, ResolvedJob},
    outcome::{Cause, EndState},
    policy::Policy,
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_sandbox::{
    DockerSandbox, baseline_digest,
    seam::{NoLiveOutput, SandboxConfig, UidRange},
};
use mayfly_store::{records::JobDetails, seam::JobStore as _};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use serde_json::{Value, json};
use support::{Mayfly, skip};

/// Sandboxes at a time.
const SLOTS: u32 = 4;
/// Programs in the archive.
const PROGRAMS: usize = 164;

struct Program {
    name: String,
    text: String,
    inverted: String,
}

/// The archive's programs, or nothing where there is no archive.
fn programs() -> Option<Vec<Program>> {
    let Some(archive) = std::env::var_os("MAYFLY_HUMANEVAL").map(PathBuf::from) else {
        skip("MAYFLY_HUMANEVAL does not name the archive HumanEval.jsonl.gz");
        return None;
    };
    let output = Command::new("gzip")
        .arg("-dc")
        .arg(&archive)
        .output()
        .expect("gzip runs");
    assert!(output.status.success(), "{} can't be unpacked", archive.display());
    let text = String::from_utf8(output.stdout).expect("the archive is text");
    let programs: Vec<_> = text
        .lines()
        .map(|line| {
            let problem: Value = serde_json::from_str(line).expect("a line is an object");
            let field = |name: &str| problem[name].as_str().expect("a field is text").to_owned();
            let head = field("prompt") + &field("canonical_solution");
            let tail = format!("\ncheck({})\n", field("entry_point"));
            let test = field("test");
            Program {
                name: field("task_id"),
                text: format!("{head}\n{test}{tail}"),
                inverted: format!("{head}\n{}{tail}", inverted(&test)),
            }
        })
        .collect();
    assert_eq!(programs.len(), PROGRAMS);
    Some(programs)
}

/// A test whose first assertion is turned into its opposite. What follows `assert` to the end of the statement may span
/// lines and hold a message, so that Python's own parser says where it is.
fn inverted(test: &str) -> String {
    let script = "import ast, sys\n\
                  tree = ast.parse(sys.stdin.read())\n\
                  found = next(n for n in ast.walk(tree) if isinstance(n, ast.Assert))\n\
                  found.test = ast.UnaryOp(op=ast.Not(), operand=found.test)\n\
                  print(ast.unparse(ast.fix_missing_locations(tree)))\n";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 runs");
    std::io::Write::write_all(python.stdin.as_mut().expect("stdin is a pipe"), test.as_bytes())
        .expect("it reads");
    let output = python.wait_with_output().expect("python3 ends");
    assert!(output.status.success(), "the test has no assertion: {test}");
    String::from_utf8(output.stdout).expect("Python prints text")
}

fn job(text: &str, pin: &ImagePin) -> ResolvedJob {
    let spec: JobSpec = serde_json::from_value(json!({
        "image": "python", "source": {"text": Blob::from(text)}, "limits": {"wall": "60s"},
    }))
    .expect("a job that can be read");
    spec.resolve(&Policy::default(), pin.clone(), &baseline_digest())
        .expect("a job without faults")
}

async fn all(embedded: &Embedded, jobs: Vec<ResolvedJob>) -> Vec<JobDetails> {
    let mut ids = Vec::new();
    for resolved in jobs {
        let submission = Submission {
            resolved,
            labels: BTreeMap::new(),
            priority: 0,
            times: mayfly_core::job::Times::default(),
            retain_source: true,
        };
        ids.push(embedded.submit(submission).await.expect("the job is accepted"));
    }
    let mut ended = Vec::new();
    for id in ids {
        let waited = tokio::time::timeout(Duration::from_secs(600), embedded.wait(id)).await;
        ended.push(
            waited
                .expect("the job ends in time")
                .expect("the database answers"),
        );
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn all_programs_succeed_and_each_fails_by_an_inverted_assertion() {
    let Some(programs) = programs() else { return };
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let store = Arc::new(
        SqliteStore::open(&mayfly.database())
            .await
            .expect("the database opens"),
    );
    let pin = store
        .find_image("python")
        .await
        .unwrap()
        .expect("the image is pinned")
        .pin;
    let config = SandboxConfig {
        engine: std::env::var_os("DOCKER_HOST").and_then(|address| address.into_string().ok()),
        deployment: "humaneval".to_owned(),
        uids: UidRange {
            first: 59_000,
            count: 2 * SLOTS + 8,
        },
        guest: None,
        kill_grace: Duration::from_secs(2),
        host_check: None,
    };
    let embedded = Embedded::start(EmbeddedParts {
        executor: ExecutorId::new(),
        processes: mayfly.database().with_file_name("processes"),
        containers_at: "humaneval".to_owned(),
        store: store.clone(),
        sandbox: DockerSandbox::connect(config, Arc::new(SystemClock))
            .await
            .expect("the engine answers"),
        clock: Arc::new(SystemClock),
        outside: mayfly_executor::Outside::of_host(Vec::new()),
        #[cfg(feature = "fleet")]
        vault: None,
        listeners: Arc::new(OneListener(Arc::new(NoLiveOutput))),
        facts: ExecutorFacts::default(),
        slots: SLOTS,
    })
    .await
    .expect("the roles start");

    let succeeded = all(
        &embedded,
        programs.iter().map(|program| job(&program.text, &pin)).collect(),
    )
    .await;
    let failed = all(
        &embedded,
        programs
            .iter()
            .map(|program| job(&program.inverted, &pin))
            .collect(),
    )
    .await;
    embedded.stop().await;

    for (program, details) in programs.iter().zip(&succeeded) {
        let outcome = details.job.outcome.as_ref().expect("it has ended");
        let stderr = details
            .report()
            .map(|report| String::from_utf8_lossy(&report.stderr.head).into_owned());
        assert_eq!(
            outcome.state,
            EndState::Succeeded,
            "{}: {outcome:?} {stderr:?}",
            program.name
        );
        assert_eq!(details.job.attempts, 1, "{}", program.name);
    }
    for (program, details) in programs.iter().zip(&failed) {
        let outcome = details.job.outcome.as_ref().expect("it has ended");
        let found = (outcome.state, outcome.cause, outcome.exit_code);
        assert_eq!(
            found,
            (EndState::Failed, Cause::Exited, Some(1)),
            "{}: {outcome:?}",
            program.name
        );
        let report = details.report().expect("it has run");
        let stderr = String::from_utf8_lossy(&report.stderr.head).into_owned();
        let last = stderr.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("AssertionError"), "{}: {stderr}", program.name);
    }
    let listed = store
        .list_jobs(TenantId::LOCAL, &Default::default(), None, 1000)
        .await
        .unwrap()
        .jobs;
    assert_eq!(listed.len(), 2 * PROGRAMS, "one row for each job");
}
