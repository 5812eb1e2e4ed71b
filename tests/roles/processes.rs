//! What becomes of jobs whose process dies, and of those of its neighbours. A process is the roles in a runtime of their
//! own here, on one database, with a lock file of their own; it dies by the end of that runtime, with whatever it was at.
//! What only real processes show stands in `real`.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

#[path = "processes/real.rs"]
mod real;
#[path = "../newcomer/support.rs"]
mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use mayfly_cli::embedded::{Embedded, EmbeddedParts, OneListener, Submission};
use mayfly_core::{
    clock::Clock,
    id::{BatchId, ExecutorId, JobId, TenantId},
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_sandbox::seam::NoLiveOutput;
use mayfly_store::{
    records::{AuditFilter, NewBatch},
    seam::JobStore as _,
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_testkit::{job, sandbox::Scripted};
use serde_json::json;
use tokio::runtime::Runtime;

const GONE: (EndState, Cause) = (EndState::Canceled, Cause::SubmitterGone);

/// The folder that all processes of a test share.
struct Home(tempfile::TempDir);

/// A process.
struct Process {
    id: ExecutorId,
    runtime: Runtime,
    embedded: Embedded,
    store: Arc<SqliteStore>,
    sandboxes: Scripted,
}

/// A clock that is ahead of the host's.
struct Ahead(Duration);

impl Clock for Ahead {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now() + self.0
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot() + self.0
    }
}

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn locks(&self) -> PathBuf {
        self.0.path().join("processes")
    }

    /// Names of the files by which processes say that they live.
    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.locks()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn start(&self) -> Process {
        self.start_with(1, Scripted::default(), Duration::ZERO)
    }

    fn start_with(&self, slots: u32, sandboxes: Scripted, ahead: Duration) -> Process {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let id = ExecutorId::new();
        let (store, embedded) = runtime.block_on(async {
            let store = Arc::new(SqliteStore::open(&self.0.path().join("jobs.db")).await.unwrap());
            let parts = EmbeddedParts {
                executor: id,
                processes: self.locks(),
                containers_at: "scripted".to_owned(),
                store: store.clone(),
                sandbox: Arc::new(sandboxes.clone()),
                clock: Arc::new(Ahead(ahead)),
                outside: mayfly_executor::Outside::of_host(Vec::new()),
                #[cfg(feature = "fleet")]
                vault: None,
                listeners: Arc::new(OneListener(Arc::new(NoLiveOutput))),
                facts: ExecutorFacts::default(),
                slots,
            };
            (store, Embedded::start(parts).await.unwrap())
        });
        Process {
            id,
            runtime,
            embedded,
            store,
            sandboxes,
        }
    }
}

impl Process {
    fn submit(&self, command: &[&str], max_attempts: u32) -> JobId {
        let submission = submission(command, max_attempts);
        self.runtime.block_on(self.embedded.submit(submission)).unwrap()
    }

    /// Submits a job that does not end by itself, and waits until it runs.
    fn hang(&self, max_attempts: u32) -> JobId {
        let job = self.submit(&["hang"], max_attempts);
        self.runtime
            .block_on(self.sandboxes.wait_for(|counts| counts.running == 1));
        job
    }

    fn state(&self, job: JobId) -> JobState {
        let found = self.runtime.block_on(self.store.find_job(TenantId::LOCAL, job));
        found.unwrap().unwrap().job.state
    }

    /// The outcome, once there is one.
    fn end(&self, job: JobId) -> (EndState, Cause) {
        let waits = async { tokio::time::timeout(Duration::from_secs(60), self.embedded.wait(job)).await };
        let details = self
            .runtime
            .block_on(waits)
            .expect("the job ends in time")
            .unwrap();
        let outcome = details.job.outcome.unwrap();
        (outcome.state, outcome.cause)
    }

    fn kinds(&self, job: Option<JobId>) -> Vec<String> {
        let filter = AuditFilter { job, attempt: None };
        let events = self.store.list_audit(TenantId::LOCAL, filter, 1000);
        let events = self.runtime.block_on(events).unwrap();
        events.into_iter().map(|event| event.kind).collect()
    }

    /// Ends in order; what is done beside the roles is waited for.
    fn stop(self) {
        self.runtime.block_on(self.embedded.stop());
    }

    /// Dies with whatever it is at.
    fn die(self) -> ExecutorId {
        self.runtime.shutdown_timeout(Duration::from_secs(60));
        drop(self.embedded);
        self.id
    }

    /// Waits until it has tried to remove the containers of another.
    fn has_tried_to_remove(&self, of: ExecutorId) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.sandboxes.removed().contains(&of) {
            assert!(Instant::now() < until, "it tries in time");
            std::thread::yield_now();
        }
    }
}

fn submission(command: &[&str], max_attempts: u32) -> Submission {
    Submission {
        resolved: job(command, json!({"retry": {"max_attempts": max_attempts}})),
        labels: BTreeMap::new(),
        priority: 0,
        times: mayfly_core::job::Times::default(),
        retain_source: true,
    }
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|found| *found == kind).count()
}

fn file_of(id: ExecutorId) -> String {
    format!("{id}.lock")
}

#[test]
fn the_next_process_ends_what_a_dead_one_has_left_and_each_job_has_one_end() {
    let home = Home::new();
    let first = home.start();
    let (started, waits) = (first.hang(3), first.submit(&["succeed"], 3));
    let second = home.start();
    let lost = second.hang(1);
    assert_eq!(home.files().len(), 2);
    let dead = [first.die(), second.die()];

    let next = home.start();
    assert_eq!(next.end(started), GONE);
    assert_eq!(next.end(waits), GONE);
    assert_eq!(next.end(lost), (EndState::Lost, Cause::ExecutorLost));
    for job in [started, waits, lost] {
        let kinds = next.kinds(Some(job));
        assert_eq!(
            (count(&kinds, "job_submitted"), count(&kinds, "job_ended")),
            (1, 1)
        );
        assert_eq!(kinds.last().map(String::as_str), Some("job_ended"), "{kinds:?}");
    }
    assert_eq!(count(&next.kinds(Some(started)), "attempt_lost"), 1);
    for id in dead {
        assert!(
            next.sandboxes.removed().contains(&id),
            "its containers are removed"
        );
    }
    // And it does its own work all the same.
    let own = next.submit(&["succeed"], 1);
    assert_eq!(next.end(own), (EndState::Succeeded, Cause::Exited));
    assert_eq!(next.sandboxes.counts().started, 1, "nothing of the dead has run");
    next.stop();
    assert_eq!(home.files(), [""; 0]);
}

#[test]
fn a_process_that_lives_is_left_alone_whatever_its_neighbours_do() {
    let home = Home::new();
    let lives = home.start();
    let job = lives.hang(3);
    let waits = lives.submit(&["succeed"], 3);
    for _ in 0..2 {
        let next = home.start();
        let own = next.submit(&["succeed"], 1);
        assert_eq!(next.end(own), (EndState::Succeeded, Cause::Exited));
        // By its end it has looked at all that there is.
        let (removed, id) = (next.sandboxes.clone(), next.id);
        next.stop();
        assert_eq!(
            removed.removed(),
            [id],
            "at its start, what its own last life left"
        );
    }
    assert_eq!(lives.state(job), JobState::Started);
    assert_eq!(count(&lives.kinds(None), "session_ended"), 2, "those of the two");
    lives.runtime.block_on(lives.embedded.cancel(job)).unwrap();
    assert_eq!(lives.end(job), (EndState::Canceled, Cause::CanceledByRequest));
    assert_eq!(lives.end(waits), (EndState::Succeeded, Cause::Exited));
    assert_eq!(home.files(), [file_of(lives.id)]);
    lives.stop();
}

#[test]
fn nothing_ends_before_the_containers_are_gone_and_whoever_sees_to_it_may_die_over_it() {
    let home = Home::new();
    let first = home.start();
    let job = first.hang(3);
    let dead = first.die();
    for ends_in_order in [true, false] {
        let stuck = Scripted::default();
        stuck.keeps_what_is_left(true);
        let next = home.start_with(1, stuck, Duration::ZERO);
        next.has_tried_to_remove(dead);
        assert_eq!(next.state(job), JobState::Started, "its guest may live");
        if ends_in_order {
            next.stop();
            assert_eq!(home.files(), [file_of(dead)], "it is left to the next one");
        } else {
            next.die();
        }
    }
    let last = home.start();
    assert_eq!(last.end(job), GONE);
    let kinds = last.kinds(Some(job));
    assert_eq!(
        (count(&kinds, "attempt_lost"), count(&kinds, "job_ended")),
        (1, 1)
    );
    last.stop();
    assert_eq!(home.files(), [""; 0], "also what the one in between has left");
}

/// It may die too, or come to its own end first.
#[test]
fn whoever_finds_a_dead_one_in_anothers_hands_looks_again() {
    let home = Home::new();
    let first = home.start();
    let job = first.hang(3);
    let dead = first.die();
    let stuck = Scripted::default();
    stuck.keeps_what_is_left(true);
    let holder = home.start_with(1, stuck, Duration::ZERO);
    holder.has_tried_to_remove(dead);
    let heir = home.start();
    let own = heir.submit(&["succeed"], 1);
    heir.end(own);
    assert_eq!(heir.state(job), JobState::Started, "it is in the holder's hands");
    holder.stop();
    assert_eq!(heir.end(job), GONE);
    heir.stop();
    assert_eq!(home.files(), [""; 0]);
}

#[test]
fn containers_of_one_that_died_with_nothing_else_left_are_removed_where_they_can_be() {
    let home = Home::new();
    home.start().stop();
    let (here, elsewhere) = (ExecutorId::new(), ExecutorId::new());
    for (id, place) in [(here, "scripted"), (elsewhere, "another engine")] {
        std::fs::write(home.locks().join(file_of(id)), format!("1\n{place}\n")).unwrap();
    }
    let next = home.start();
    let (removed, own) = (next.sandboxes.clone(), next.id);
    next.stop();
    let mut removed = removed.removed();
    removed.retain(|id| *id != own);
    assert_eq!(removed, [here]);
    assert_eq!(home.files(), [""; 0]);
}

/// As after somebody has cleaned up the folder: that alone is no proof.
#[test]
fn a_process_without_its_file_is_dead_once_its_lease_has_ended() {
    let home = Home::new();
    let lives = home.start();
    let job = lives.hang(3);
    std::fs::remove_file(home.locks().join(file_of(lives.id))).unwrap();
    let next = home.start();
    let own = next.submit(&["succeed"], 1);
    next.end(own);
    next.stop();
    assert_eq!(lives.state(job), JobState::Started);
    assert_eq!(home.files(), [""; 0], "what was made for the look is gone");
    let dead = lives.die();
    // Where nobody says where its containers are, the time since its lease is the proof that they are gone.
    let later = home.start_with(1, Scripted::default(), Duration::from_secs(60));
    assert_eq!(later.end(job), GONE);
    assert!(!later.sandboxes.removed().contains(&dead));
    later.stop();
}

#[test]
fn of_many_that_start_together_one_sees_to_it() {
    let home = Home::new();
    let first = home.start();
    let jobs = [
        first.hang(1),
        first.submit(&["succeed"], 1),
        first.submit(&["succeed"], 1),
    ];
    first.die();
    let before = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| home.start())).collect();
        let all: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        for process in &all {
            assert_eq!(process.end(jobs[0]), (EndState::Lost, Cause::ExecutorLost));
            assert_eq!((process.end(jobs[1]), process.end(jobs[2])), (GONE, GONE));
        }
        let kinds = all[0].kinds(None);
        for process in all {
            process.stop();
        }
        kinds
    });
    assert_eq!(count(&before, "job_ended"), 3);
    assert_eq!(count(&before, "attempt_lost"), 1);
    assert_eq!(home.files(), [""; 0]);
}

#[test]
fn jobs_of_a_batch_wait_for_whoever_resumes_it() {
    let home = Home::new();
    let first = home.start();
    let batch = BatchId::new();
    let new = NewBatch {
        id: batch,
        tenant: TenantId::LOCAL,
        input: "programs/".to_owned(),
    };
    let now = SystemClock.now();
    first.runtime.block_on(first.store.begin_batch(new, now)).unwrap();
    let items = ["hang", "succeed", "succeed"].iter().enumerate();
    let items = items
        .map(|(n, command)| (n.to_string(), submission(&[command], 2)))
        .collect();
    first
        .runtime
        .block_on(first.embedded.submit_items(batch, items))
        .unwrap();
    first
        .runtime
        .block_on(first.sandboxes.wait_for(|counts| counts.running == 1));
    let alone = first.submit(&["succeed"], 1);
    let dead = first.die();

    // Another process ends what nobody waits for; nothing of the batch runs there.
    let stranger = home.start();
    assert_eq!(stranger.end(alone), GONE);
    let started = stranger.sandboxes.clone();
    stranger.stop();
    assert_eq!(started.counts().started, 0);

    let heir = home.start_with(2, Scripted::default(), Duration::ZERO);
    let found = heir
        .runtime
        .block_on(heir.store.find_batch(TenantId::LOCAL, batch));
    let found = found.unwrap().unwrap();
    assert_eq!((found.waiting, found.running, found.over()), (3, 0, 0));
    assert!(heir.runtime.block_on(heir.embedded.adopt(batch)).unwrap());
    let jobs = heir.store.list_batch_jobs(TenantId::LOCAL, batch, None, 10);
    let jobs = heir.runtime.block_on(jobs).unwrap();
    for job in &jobs[1..] {
        assert_eq!(heir.end(job.job.id), (EndState::Succeeded, Cause::Exited));
        let kinds = heir.kinds(Some(job.job.id));
        assert_eq!((count(&kinds, "run_started"), count(&kinds, "job_ended")), (1, 1));
    }
    // What had run is tried again, after its wait; it hangs again.
    heir.runtime
        .block_on(heir.sandboxes.wait_for(|counts| counts.running == 1));
    heir.runtime
        .block_on(heir.embedded.cancel(jobs[0].job.id))
        .unwrap();
    assert_eq!(
        heir.end(jobs[0].job.id),
        (EndState::Canceled, Cause::CanceledByRequest)
    );
    let kinds = heir.kinds(Some(jobs[0].job.id));
    assert_eq!(
        (count(&kinds, "run_started"), count(&kinds, "attempt_lost")),
        (2, 1)
    );
    heir.stop();
    assert!(!Path::new(&home.locks().join(file_of(dead))).exists());
}
