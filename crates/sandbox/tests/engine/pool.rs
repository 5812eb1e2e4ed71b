//! The warm pool on a real engine: what comes from it is as one that was made for its job, and nothing is left of it.

use std::{
    collections::HashSet,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::query_parameters as query;
use mayfly_core::{
    job::ResolvedJob,
    limits::LimitRules,
    outcome::{Cause, EndState},
    run::{Origin, RunReport, SandboxFacts},
};
use mayfly_sandbox::{
    WarmCommand,
    pool::{Classes, Kept, PoolConfig, WarmCommands, WarmPool},
    seam::{NoLiveOutput, ReadySandbox, Run, Sandbox, SandboxRequest},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
};

use crate::support::{Bench, docker, matcher, settled, text};

/// A pool that keeps this many for a job.
fn pool_of(bench: &Bench, job: &ResolvedJob, size: u32) -> Arc<WarmPool> {
    pool_with(bench, job, size, WarmCommands::default())
}

/// The same, with these started in its sandboxes.
fn pool_with(bench: &Bench, job: &ResolvedJob, size: u32, warm: WarmCommands) -> Arc<WarmPool> {
    let most = LimitRules::default().ceilings;
    let config = PoolConfig {
        size,
        max: size,
        max_idle: Duration::from_secs(600),
        starts_per_second: 20,
        starts: 2,
        classes: Classes::new([], [], [], &most),
        longest_wall: most.wall,
        longest_wait: Duration::from_secs(60),
        warm: warm.clone(),
        kept: vec![Kept {
            request: SandboxRequest {
                warm: warm.of(job).cloned(),
                ..bench.request(job)
            },
            min: size,
        }],
    };
    WarmPool::start(bench.sandboxes.clone(), config)
}

async fn until(pool: &WarmPool, what: &str, so: impl Fn(&mayfly_sandbox::pool::PoolCounts) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !so(&pool.counts()) {
        assert!(Instant::now() < deadline, "not in a minute: {what}: {pool:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run(sandbox: Box<dyn ReadySandbox>, job: &ResolvedJob) -> RunReport {
    let run = Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: matcher(job),
        job: Arc::new(job.clone()),
        stop: watch::channel(None).1,
        live: Arc::new(NoLiveOutput),
    };
    settled(sandbox.run(run).await).await
}

fn is_warm(facts: &SandboxFacts) -> bool {
    matches!(facts.origin, Origin::Warm { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_jobs_from_a_pool_of_two_have_a_sandbox_each_and_nothing_is_left() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.python("import os; print(os.path.exists('/work/mark')); open('/work/mark', 'w').close()");
    let pool = pool_of(&bench, &job, 2);
    let mut seen = HashSet::new();
    for _ in 0..8 {
        until(&pool, "one is ready", |counts| counts.ready > 0).await;
        let sandbox = pool.prepare(bench.request(&job)).await.unwrap();
        assert!(is_warm(sandbox.facts()));
        let report = run(sandbox, &job).await;
        assert_eq!(report.outcome.state, EndState::Succeeded);
        assert_eq!(text(&report.stdout), "False\n", "no trace of another job");
        let facts = report.sandbox.unwrap();
        assert!(is_warm(&facts));
        assert!(seen.insert(facts.container_id), "used twice");
    }
    pool.drain().await;
    let counts = pool.counts();
    assert_eq!((counts.hits, counts.misses.total(), counts.failed), (8, 0, 0));
    bench.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_sandbox_was_checked_as_a_cold_one_and_is_the_same() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job =
        bench.python("print(open('/proc/self/limits').read(), sorted(__import__('os').environ.items()))");
    let pool = pool_of(&bench, &job, 1);
    until(&pool, "one is ready", |counts| counts.ready == 1).await;
    let begun = Instant::now();
    let warm = pool.prepare(bench.request(&job)).await.unwrap();
    let hit = begun.elapsed();
    let begun = Instant::now();
    let cold = bench.sandboxes.prepare(bench.request(&job)).await.unwrap();
    println!("prepare: {hit:?} from the pool, {:?} cold", begun.elapsed());
    assert!(is_warm(warm.facts()) && !is_warm(cold.facts()));
    let (warm, cold) = (run(warm, &job).await, run(cold, &job).await);
    assert_eq!(text(&warm.stdout), text(&cold.stdout));
    let (warm, cold) = (warm.sandbox.unwrap(), cold.sandbox.unwrap());
    // Each container has its own id, uids and end, so that the digest of its whole request is its own too.
    assert_ne!(warm.enforced_digest, cold.enforced_digest);
    let alike = SandboxFacts {
        sandbox_id: cold.sandbox_id,
        origin: cold.origin,
        container_id: cold.container_id.clone(),
        enforced_digest: cold.enforced_digest,
        ..warm
    };
    assert_eq!(alike, cold);
    pool.drain().await;
    bench.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_while_it_waits_is_replaced_and_given_to_nobody() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.python("print('ok')");
    let pool = pool_of(&bench, &job, 2);
    until(&pool, "both are ready", |counts| counts.ready == 2).await;
    let killed = bench.containers().await;
    assert_eq!(killed.len(), 2);
    for container in &killed {
        let options = query::KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        docker()
            .await
            .kill_container(container, Some(options))
            .await
            .unwrap();
    }
    until(&pool, "both are replaced", |counts| {
        counts.discarded.dead == 2 && counts.ready == 2
    })
    .await;
    let sandbox = pool.prepare(bench.request(&job)).await.unwrap();
    assert!(is_warm(sandbox.facts()));
    assert!(!killed.contains(&sandbox.facts().container_id));
    assert_eq!(text(&run(sandbox, &job).await.stdout), "ok\n");
    pool.drain().await;
    bench.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_while_some_are_in_the_making_leaves_none() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.python("print('ok')");
    let pool = pool_of(&bench, &job, 4);
    until(&pool, "some are there and some come", |counts| {
        counts.ready > 0 && counts.starting > 0
    })
    .await;
    pool.drain().await;
    bench.assert_nothing_is_left().await;
    let sandbox = pool.prepare(bench.request(&job)).await.unwrap();
    let report = run(sandbox, &job).await;
    assert_eq!(report.outcome.cause, Cause::Exited);
    assert!(!is_warm(&report.sandbox.unwrap()));
    bench.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_job_runs_in_the_interpreter_that_waited_and_one_that_misses_starts_as_without_a_pool() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.job(
        &["python3", "/work/main.py"],
        "import sys; print('json' in sys.modules)",
    );
    let command = WarmCommand::python(vec!["json".to_owned()]).unwrap();
    let warm = WarmCommands {
        usual: vec![command],
        of_images: Vec::new(),
    };
    let pool = pool_with(&bench, &job, 1, warm);
    let request = SandboxRequest {
        warm: pool.warm_command(&job),
        ..bench.request(&job)
    };
    assert!(request.warm.is_some());
    assert_eq!(pool.warm_command(&bench.job(&["sh", "main.sh"], "")), None);
    until(&pool, "one is ready", |counts| counts.ready == 1).await;
    let hit = pool.prepare(request.clone()).await.unwrap();
    let miss = pool.prepare(request).await.unwrap();
    let (hit, miss) = (run(hit, &job).await, run(miss, &job).await);
    let facts = |report: &RunReport| report.sandbox.clone().unwrap();
    let (warm, cold) = (facts(&hit), facts(&miss));
    assert!(is_warm(&warm) && !is_warm(&cold));
    let warm = warm.warm.unwrap();
    assert_eq!((warm.used, warm.why_cold), (true, None));
    assert_eq!(cold.warm, None);
    assert_eq!(
        (text(&hit.stdout).as_str(), text(&miss.stdout).as_str()),
        ("True\n", "False\n")
    );
    pool.drain().await;
    bench.assert_nothing_is_left().await;
}

/// Set in a process that is this test binary once more, for it to be stopped.
const FROZEN: &str = "MAYFLY_TEST_FROZEN";

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_executors_warm_sandboxes_end_by_themselves_and_are_not_given_to_jobs_afterwards() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let job = bench.python("print('ok')");
    if std::env::var_os(FROZEN).is_some() {
        return frozen(&bench, &job).await;
    }
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("pool::a_frozen_executors_warm_sandboxes_end_by_themselves_and_are_not_given_to_jobs_afterwards")
        .env(FROZEN, "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let idle = said(&mut lines, "idle").await;
    signal(&process, "STOP").await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_running(&idle).await {
        assert!(Instant::now() < deadline, "its guest lives on");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    signal(&process, "CONT").await;
    let given = said(&mut lines, "given").await;
    assert_ne!(idle, given);
    assert!(process.wait().await.unwrap().success());
}

/// The process that is stopped: it keeps one ready, and after a while has one for a job.
async fn frozen(bench: &Bench, job: &ResolvedJob) {
    let pool = pool_of(bench, job, 1);
    until(&pool, "one is ready", |counts| counts.ready == 1).await;
    println!("\nidle {}", bench.containers().await[0]);
    until(&pool, "it is replaced", |counts| {
        counts.discarded.dead == 1 && counts.ready == 1
    })
    .await;
    let sandbox = pool.prepare(bench.request(job)).await.unwrap();
    assert!(is_warm(sandbox.facts()));
    let report = run(sandbox, job).await;
    assert_eq!(text(&report.stdout), "ok\n");
    println!("\ngiven {}", report.sandbox.unwrap().container_id);
    pool.drain().await;
    bench.assert_nothing_is_left().await;
}

/// The container that the process names.
async fn said(lines: &mut Lines<BufReader<ChildStdout>>, word: &str) -> String {
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(container) = line.strip_prefix(word) {
            return container.trim().to_owned();
        }
    }
    panic!("it ended and never said {word}");
}

async fn signal(process: &Child, signal: &str) {
    let pid = process.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status().await;
    assert!(sent.unwrap().success());
}

async fn is_running(container: &str) -> bool {
    let found = docker().await.inspect_container(container, None).await;
    found.is_ok_and(|found| found.state.and_then(|state| state.running) == Some(true))
}
