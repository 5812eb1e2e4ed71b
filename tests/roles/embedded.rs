//! The roles wired in one process, on the real embedded database and queue, with a sandbox that does what its job says:
//! what becomes of a job whatever its run, its sandbox and the person at the keyboard do.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mayfly_cli::embedded::{Embedded, EmbeddedParts, OneListener, Submission};
use mayfly_core::{
    clock::Clock as _,
    id::{ExecutorId, JobId, TenantId},
    job::Times,
    limits::LimitRules,
    outcome::{Cause, EndState, Mismatch, MismatchSource},
    run::Origin,
    units::{ByteSize, Span},
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_sandbox::{
    error::EngineError,
    pool::{Classes, PoolConfig, WarmCommands, WarmPool},
    seam::{LiveOutput, NoLiveOutput, OutputStream, PrepareError, Sandbox},
};
use mayfly_store::{
    records::{AuditFilter, CancelAnswer, JobDetails},
    seam::{DispatchStore as _, JobStore as _},
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_testkit::{job, sandbox::Scripted};
use serde_json::{Value, json};
use tokio::sync::mpsc;

struct Roles {
    embedded: Embedded,
    sandboxes: Scripted,
    store: Arc<SqliteStore>,
    _folder: tempfile::TempDir,
}

impl Roles {
    async fn start(slots: u32) -> Self {
        Self::heard_by(slots, Arc::new(NoLiveOutput)).await
    }

    async fn heard_by(slots: u32, live: Arc<dyn LiveOutput>) -> Self {
        let sandboxes = Scripted::default();
        let source = Arc::new(sandboxes.clone());
        Self::on(slots, live, sandboxes, source).await
    }

    /// On sandboxes that come from here, whoever stands in between.
    async fn on(
        slots: u32,
        live: Arc<dyn LiveOutput>,
        sandboxes: Scripted,
        source: Arc<dyn Sandbox>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&folder.path().join("jobs.db")).await.unwrap());
        let parts = EmbeddedParts {
            executor: ExecutorId::new(),
            processes: folder.path().join("processes"),
            containers_at: "scripted".to_owned(),
            store: store.clone(),
            sandbox: source,
            outside: mayfly_executor::Outside::of_host(Vec::new()),
            #[cfg(feature = "fleet")]
            vault: None,
            clock: Arc::new(SystemClock),
            listeners: Arc::new(OneListener(live)),
            facts: ExecutorFacts::default(),
            slots,
        };
        Self {
            embedded: Embedded::start(parts).await.unwrap(),
            sandboxes,
            store,
            _folder: folder,
        }
    }

    async fn submit(&self, command: &[&str], more: Value) -> JobId {
        self.submit_for(command, more, None).await
    }

    async fn submit_for(&self, command: &[&str], more: Value, expires_after: Option<Span>) -> JobId {
        let resolved = job(command, more);
        let times = Times {
            not_before: None,
            expires_at: expires_after.map(|wait| SystemClock.now() + wait.as_duration()),
        };
        let submission = Submission {
            resolved,
            labels: BTreeMap::new(),
            priority: 0,
            times,
            retain_source: true,
        };
        self.embedded.submit(submission).await.unwrap()
    }

    async fn ended(&self, job: JobId) -> JobDetails {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.embedded.wait(job)).await;
        waited.expect("the job ends in time").unwrap()
    }

    async fn state_of(&self, job: JobId) -> (EndState, Cause) {
        let outcome = self.ended(job).await.job.outcome.unwrap();
        (outcome.state, outcome.cause)
    }

    /// The kinds of a job's events, in their order.
    async fn events_of(&self, job: JobId) -> Vec<String> {
        let filter = AuditFilter {
            job: Some(job),
            attempt: None,
        };
        let events = self.store.list_audit(TenantId::LOCAL, filter, 100).await.unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }
}

#[tokio::test]
async fn a_job_goes_the_whole_way_and_every_step_is_on_record() {
    let roles = Roles::start(1).await;
    let job = roles.submit(&["print", "hello"], json!({})).await;
    let details = roles.ended(job).await;
    assert_eq!(details.job.outcome.as_ref().unwrap().state, EndState::Succeeded);
    assert_eq!(details.report().unwrap().stdout.head, b"hello");
    assert_eq!((details.job.attempts, details.attempts.len()), (1, 1));
    let expected = [
        "job_submitted",
        "attempt_dispatched",
        "run_started",
        "run_finished",
        "job_ended",
    ];
    assert_eq!(roles.events_of(job).await, expected);
    roles.embedded.stop().await;
}

/// The roles with a pool of this many around the sandboxes.
async fn with_pool(size: u32) -> (Roles, Arc<WarmPool>) {
    let sandboxes = Scripted::default();
    let ceilings = LimitRules::default().ceilings;
    let config = PoolConfig {
        size,
        max: size,
        max_idle: Duration::from_secs(300),
        starts_per_second: 100,
        starts: 2,
        classes: Classes::new([ByteSize::mib(512)], [], [], &ceilings),
        longest_wall: ceilings.wall,
        longest_wait: mayfly_executor::LONGEST_IDLE,
        warm: WarmCommands::default(),
        kept: Vec::new(),
    };
    let pool = WarmPool::start(Arc::new(sandboxes.clone()), config);
    let roles = Roles::on(1, Arc::new(NoLiveOutput), sandboxes, pool.clone()).await;
    (roles, pool)
}

#[tokio::test]
async fn with_a_pool_the_record_says_where_the_sandbox_came_from_and_which_class_is_in_force() {
    let (roles, pool) = with_pool(1).await;
    let cold = roles.submit(&["succeed"], json!({})).await;
    let cold = roles.ended(cold).await;
    roles.sandboxes.wait_for(|counts| counts.ready == 1).await;
    let warm = roles.submit(&["succeed"], json!({})).await;
    let warm = roles.ended(warm).await;
    let origin = |details: &JobDetails| details.report().unwrap().sandbox.clone().unwrap().origin;
    assert_eq!(origin(&cold), Origin::Cold);
    assert!(matches!(origin(&warm), Origin::Warm { .. }));
    assert_eq!((pool.counts().hits, pool.counts().misses.unknown), (1, 1));
    for details in [&cold, &warm] {
        let in_force = details.report().unwrap().sandbox.as_ref().unwrap().in_force;
        assert_eq!(in_force.memory, ByteSize::mib(512));
        assert_eq!(
            details.resolved.as_ref().unwrap().limits.memory,
            ByteSize::mib(256)
        );
    }
    let filter = AuditFilter {
        job: Some(warm.job.id),
        attempt: None,
    };
    let events = roles
        .store
        .list_audit(TenantId::LOCAL, filter, 100)
        .await
        .unwrap();
    let finished = events.iter().find(|event| event.kind == "run_finished").unwrap();
    let body: Value = serde_json::from_slice(&finished.body).unwrap();
    assert_eq!(body["fact"]["sandbox"]["origin"]["kind"], "warm");
    assert_eq!(body["fact"]["sandbox"]["in_force"]["memory"], "512MiB");
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_drained_executor_keeps_nothing_ready() {
    let (roles, pool) = with_pool(2).await;
    let long = roles.submit(&["hang"], json!({})).await;
    roles
        .sandboxes
        .wait_for(|counts| counts.running == 1 && counts.ready == 1)
        .await;
    roles.embedded.drain();
    roles.sandboxes.wait_for(|counts| counts.ready == 0).await;
    assert_eq!(roles.sandboxes.counts().running, 1, "what is held goes on");
    assert_eq!(pool.counts().discarded.drained, 1);
    roles.embedded.cancel(long).await.unwrap();
    roles.ended(long).await;
    let sandboxes = roles.sandboxes.clone();
    roles.embedded.stop().await;
    assert_eq!((sandboxes.counts().ready, sandboxes.counts().running), (0, 0));
}

#[tokio::test]
async fn whoever_listens_hears_the_output() {
    struct Heard(mpsc::UnboundedSender<(OutputStream, Vec<u8>)>);

    #[async_trait::async_trait]
    impl LiveOutput for Heard {
        fn output(&self, stream: OutputStream, bytes: &[u8]) {
            self.0.send((stream, bytes.to_vec())).unwrap();
        }

        async fn ready(&self) {}
    }

    let (to, mut heard) = mpsc::unbounded_channel();
    let roles = Roles::heard_by(1, Arc::new(Heard(to))).await;
    let job = roles.submit(&["print", "hello"], json!({})).await;
    roles.ended(job).await;
    assert_eq!(
        heard.recv().await,
        Some((OutputStream::Stdout, b"hello".to_vec()))
    );
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_program_that_fails_is_not_tried_again_and_trouble_of_ours_is() {
    let roles = Roles::start(1).await;
    let failed = roles.submit(&["fail", "3"], json!({})).await;
    let details = roles.ended(failed).await;
    let outcome = details.job.outcome.unwrap();
    assert_eq!(
        (outcome.state, outcome.exit_code, details.job.attempts),
        (EndState::Failed, Some(3), 1)
    );
    let trouble = roles
        .submit(&["trouble"], json!({"retry": {"max_attempts": 2}}))
        .await;
    let details = roles.ended(trouble).await;
    let outcome = details.job.outcome.unwrap();
    assert_eq!(
        (outcome.state, outcome.cause),
        (EndState::Error, Cause::EngineFailure)
    );
    assert_eq!(details.job.attempts, 2);
    let expected = [
        "job_submitted",
        "attempt_dispatched",
        "run_started",
        "run_finished",
        "job_requeued",
        "attempt_dispatched",
        "run_started",
        "run_finished",
        "job_ended",
    ];
    assert_eq!(roles.events_of(trouble).await, expected);
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_policy_that_names_an_end_tries_again_after_it() {
    let roles = Roles::start(1).await;
    let job = roles
        .submit(
            &["fail", "3"],
            json!({"retry": {"max_attempts": 2, "on": ["failed"]}}),
        )
        .await;
    let details = roles.ended(job).await;
    assert_eq!(
        (details.job.outcome.unwrap().state, details.job.attempts),
        (EndState::Failed, 2)
    );
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_can_not_be_had_ends_the_job_with_the_reason_and_runs_nothing() {
    let roles = Roles::start(1).await;
    let mismatch = Mismatch {
        source: MismatchSource::Inspect,
        field: "HostConfig.ReadonlyRootfs".into(),
        asked: "true".into(),
        found: "false".into(),
    };
    roles
        .sandboxes
        .refuse(PrepareError::Mismatch(vec![mismatch.clone()]));
    let refused = roles.submit(&["succeed"], json!({})).await;
    let outcome = roles.ended(refused).await.job.outcome.unwrap();
    assert_eq!(
        (outcome.state, outcome.cause),
        (EndState::Rejected, Cause::SandboxMismatch)
    );
    assert_eq!(outcome.evidence.mismatches, [mismatch]);

    roles
        .sandboxes
        .refuse(PrepareError::RuntimeUnavailable("runsc".into()));
    let runtime = roles.submit(&["succeed"], json!({"runtime": "runsc"})).await;
    assert_eq!(
        roles.state_of(runtime).await,
        (EndState::Rejected, Cause::RuntimeUnavailable)
    );

    roles.sandboxes.refuse(PrepareError::Engine(EngineError::Guest(
        "it did not come up".into(),
    )));
    let once = roles
        .submit(&["succeed"], json!({"retry": {"max_attempts": 1}}))
        .await;
    assert_eq!(
        roles.state_of(once).await,
        (EndState::Error, Cause::EngineFailure)
    );
    assert_eq!(roles.sandboxes.counts().started, 0);

    // The engine is back: the next one runs.
    let next = roles.submit(&["succeed"], json!({})).await;
    assert_eq!(roles.state_of(next).await, (EndState::Succeeded, Cause::Exited));
    roles.embedded.stop().await;
}

#[tokio::test]
async fn an_engine_that_is_away_for_a_while_costs_no_try() {
    let roles = Roles::start(1).await;
    // More often than a job may be tried.
    for _ in 0..5 {
        roles
            .sandboxes
            .refuse(PrepareError::Engine(EngineError::TimedOut {
                doing: "inspect the image",
                seconds: 10,
            }));
    }
    let waits = roles
        .submit(&["print", "hello"], json!({"retry": {"max_attempts": 1}}))
        .await;
    let behind = roles.submit(&["succeed"], json!({})).await;
    let details = roles.ended(waits).await;
    let outcome = details.job.outcome.as_ref().unwrap();
    assert_eq!(
        (outcome.state, details.job.attempts),
        (EndState::Succeeded, 1),
        "{outcome:?}"
    );
    assert_eq!(roles.state_of(behind).await, (EndState::Succeeded, Cause::Exited));
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_for_an_engine_can_be_canceled() {
    let roles = Roles::start(1).await;
    for _ in 0..1000 {
        roles
            .sandboxes
            .refuse(PrepareError::Engine(EngineError::TimedOut {
                doing: "inspect the image",
                seconds: 10,
            }));
    }
    let job = roles.submit(&["succeed"], json!({})).await;
    let mut commits = roles.store.commits();
    while !roles
        .events_of(job)
        .await
        .iter()
        .any(|kind| kind == "run_started")
    {
        commits.changed().await.unwrap();
    }
    assert_eq!(roles.embedded.cancel(job).await.unwrap(), CancelAnswer::Requested);
    assert_eq!(
        roles.state_of(job).await,
        (EndState::Canceled, Cause::CanceledByRequest)
    );
    assert_eq!(roles.sandboxes.counts().started, 0);
    roles.embedded.stop().await;
}

#[tokio::test]
async fn as_many_jobs_run_at_a_time_as_there_are_slots() {
    let roles = Roles::start(2).await;
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(roles.submit(&["hang"], json!({})).await);
    }
    roles.sandboxes.wait_for(|counts| counts.running == 2).await;
    roles.embedded.cancel(jobs[0]).await.unwrap();
    assert_eq!(
        roles.state_of(jobs[0]).await,
        (EndState::Canceled, Cause::CanceledByRequest)
    );
    roles.sandboxes.wait_for(|counts| counts.started == 3).await;
    assert_eq!(roles.sandboxes.counts().running, 2);
    for job in &jobs[1..] {
        roles.embedded.cancel(*job).await.unwrap();
    }
    for job in &jobs[1..] {
        assert_eq!(
            roles.ended(*job).await.job.outcome.unwrap().state,
            EndState::Canceled
        );
    }
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_job_that_is_canceled_before_its_start_never_starts() {
    let roles = Roles::start(1).await;
    let busy = roles.submit(&["hang"], json!({})).await;
    roles.sandboxes.wait_for(|counts| counts.running == 1).await;
    let waiting = roles.submit(&["succeed"], json!({})).await;
    assert_eq!(
        roles.embedded.cancel(waiting).await.unwrap(),
        CancelAnswer::Canceled
    );
    assert_eq!(roles.embedded.cancel(waiting).await.unwrap(), CancelAnswer::Over);
    assert_eq!(
        roles.state_of(waiting).await,
        (EndState::Canceled, Cause::CanceledByRequest)
    );
    assert_eq!(
        roles.embedded.cancel(busy).await.unwrap(),
        CancelAnswer::Requested
    );
    roles.ended(busy).await;
    let after = roles.submit(&["succeed"], json!({})).await;
    roles.ended(after).await;
    assert_eq!(
        roles.sandboxes.counts().started,
        2,
        "the canceled one did not start"
    );
    assert!(!roles.events_of(waiting).await.contains(&"run_started".to_owned()));
    roles.embedded.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_longer_than_it_may_expires() {
    let roles = Roles::start(1).await;
    let busy = roles.submit(&["hang"], json!({})).await;
    roles.sandboxes.wait_for(|counts| counts.running == 1).await;
    let late = roles
        .submit_for(&["succeed"], json!({}), Some(Span::millis(50)))
        .await;
    assert_eq!(
        roles.state_of(late).await,
        (EndState::Expired, Cause::WaitedTooLong)
    );
    roles.embedded.cancel(busy).await.unwrap();
    roles.ended(busy).await;
    assert_eq!(roles.sandboxes.counts().started, 1);
    roles.embedded.stop().await;
}

#[tokio::test]
async fn an_executor_that_is_stopped_at_once_gives_its_job_up_and_says_so() {
    let roles = Roles::start(1).await;
    let job = roles
        .submit(&["hang"], json!({"retry": {"max_attempts": 1}}))
        .await;
    roles.sandboxes.wait_for(|counts| counts.running == 1).await;
    let details = roles.embedded.abort(job).await.unwrap();
    let outcome = details.job.outcome.unwrap();
    assert_eq!((outcome.state, outcome.cause), (EndState::Lost, Cause::Abandoned));
    assert_eq!(roles.sandboxes.counts().running, 0);
    roles.embedded.stop().await;
}

#[tokio::test]
async fn an_executor_that_is_drained_finishes_what_it_holds() {
    let roles = Roles::start(1).await;
    let job = roles.submit(&["hang"], json!({})).await;
    roles.sandboxes.wait_for(|counts| counts.running == 1).await;
    let Roles {
        embedded,
        sandboxes,
        store,
        _folder,
    } = roles;
    embedded.drain();
    // It still runs, and what is asked of it still arrives.
    embedded.cancel(job).await.unwrap();
    let details = tokio::time::timeout(Duration::from_secs(60), embedded.wait(job))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(details.job.outcome.unwrap().state, EndState::Canceled);
    embedded.stop().await;
    assert_eq!(sandboxes.counts().running, 0);
    let found = store.find_job(TenantId::LOCAL, job).await.unwrap().unwrap();
    assert_eq!(found.job.state.end(), Some(EndState::Canceled));
}
