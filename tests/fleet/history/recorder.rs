//! What a test does and sees, with the time, beside what is heard of the programs.

use std::sync::{Mutex, PoisonError};

use mayfly_core::clock::Clock as _;
use mayfly_telemetry::SystemClock;
use serde_json::Value;

use super::{Fault, History, Read, Row, Start, Submission, watch::Watch};

/// Milliseconds since 1970 by this host's clock, which is the programs' clock too.
pub fn now_ms() -> i64 {
    SystemClock.now().timestamp_millis()
}

/// Records a history from its making on.
pub struct Recorder {
    watch: Watch,
    seen: Mutex<History>,
}

impl Recorder {
    /// Listens to the containers of a deployment on the engine of `DOCKER_HOST`.
    pub fn begin(deployment: &str) -> Self {
        Self::begin_on(None, deployment)
    }

    /// The same, on this engine where there is one.
    pub fn begin_on(engine: Option<&str>, deployment: &str) -> Self {
        Self {
            watch: Watch::begin(engine, deployment),
            seen: Mutex::default(),
        }
    }

    fn see(&self, note: impl FnOnce(&mut History)) {
        note(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A job was accepted whose program says this token.
    pub fn accepted(&self, token: &str, job: &str) {
        let submission = Submission {
            token: token.to_owned(),
            job: job.to_owned(),
        };
        self.see(|history| history.submissions.push(submission));
    }

    /// Takes note of a job as the API has just shown it, and says whether it is over.
    pub fn read(&self, document: &Value) -> bool {
        let read = Read::of(document, now_ms());
        let over = read.is_some();
        self.see(|history| history.reads.extend(read));
        over
    }

    /// Something is done to the fleet, now. Say it before it is done: who runs then is hit.
    pub fn fault(&self, what: &str, executor: Option<&str>) {
        let fault = Fault {
            what: what.to_owned(),
            executor: executor.map(ToOwned::to_owned),
            at_ms: now_ms(),
        };
        self.see(|history| history.faults.push(fault));
    }

    /// Programs that run at this moment.
    pub fn under_way(&self) -> Vec<Start> {
        let now = now_ms();
        let mut starts = self.watch.starts();
        starts.retain(|start| start.runs_at(now));
        starts
    }

    /// Every program that was heard so far.
    pub fn heard(&self) -> Vec<Start> {
        self.watch.starts()
    }

    /// What there is so far.
    pub fn history(&self, audit: &[String], containers_left: usize) -> History {
        let mut history = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        history.starts = self.watch.starts();
        history.audit = audit.iter().map(|line| Row::parse(line)).collect();
        history.containers_left = containers_left;
        history
    }
}
