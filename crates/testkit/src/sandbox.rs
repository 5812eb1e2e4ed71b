//! A sandbox without a container. What a job does is its first argument:
//!
//! | command | does |
//! | --- | --- |
//! | `succeed` | ends at once with 0 |
//! | `fail CODE` | ends at once with that exit code |
//! | `print TEXT` | writes it to stdout, then ends with 0 |
//! | `hang` | runs until it is stopped |
//! | `trouble` | the engine fails during the run |
//!
//! A sandbox for an image can be refused beforehand with [`Scripted::refuse`], take its time ([`Scripted::takes`]), and
//! die while it waits for a job ([`Scripted::kill_waiting`]).

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{ExecutorId, SandboxId},
    outcome::{CapturedStream, Evidence, KilledFor, ProcessEnd, StreamCount, Trouble, TroubleKind},
    run::{Origin, RunReport, SandboxFacts},
};
use mayfly_sandbox::{
    Swept,
    error::EngineError,
    seam::{OutputStream, PrepareError, ReadySandbox, Run, RunEnd, Sandbox, SandboxRequest},
};
use tokio::sync::watch;

/// Where scripted sandboxes come from, and what became of them.
#[derive(Clone)]
pub struct Scripted {
    shared: Arc<Shared>,
}

struct Shared {
    refusals: Mutex<Vec<PrepareError>>,
    counts: watch::Sender<Counts>,
    takes: Mutex<Duration>,
    requests: Mutex<Vec<SandboxRequest>>,
    waiting: Mutex<HashSet<SandboxId>>,
    dead: Mutex<HashSet<SandboxId>>,
    removed: Mutex<Vec<ExecutorId>>,
    stuck: Mutex<bool>,
}

/// How many sandboxes are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the making.
    pub preparing: u32,
    /// Made and waiting for a job.
    pub ready: u32,
    /// With a job that runs.
    pub running: u32,
    /// Jobs that were started in all.
    pub started: u32,
    /// Destroyed without a job.
    pub discarded: u32,
}

struct ScriptedReady {
    shared: Arc<Shared>,
    facts: SandboxFacts,
}

impl Default for Scripted {
    fn default() -> Self {
        let shared = Shared {
            refusals: Mutex::new(Vec::new()),
            counts: watch::Sender::new(Counts::default()),
            takes: Mutex::new(Duration::ZERO),
            requests: Mutex::new(Vec::new()),
            waiting: Mutex::new(HashSet::new()),
            dead: Mutex::new(HashSet::new()),
            removed: Mutex::new(Vec::new()),
            stuck: Mutex::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Scripted {
    /// The next sandbox is not made, for this reason.
    pub fn refuse(&self, why: PrepareError) {
        lock(&self.shared.refusals).push(why);
    }

    /// From now on it takes so long to make one.
    pub fn takes(&self, time: Duration) {
        *lock(&self.shared.takes) = time;
    }

    /// The guests of all that wait for a job are gone.
    pub fn kill_waiting(&self) {
        let waiting = lock(&self.shared.waiting).clone();
        lock(&self.shared.dead).extend(waiting);
    }

    /// From now on containers that were left behind can't be removed, or can again.
    pub fn keeps_what_is_left(&self, stuck: bool) {
        *lock(&self.shared.stuck) = stuck;
    }

    /// Executors whose containers were asked to be removed, in order.
    #[must_use]
    pub fn removed(&self) -> Vec<ExecutorId> {
        lock(&self.shared.removed).clone()
    }

    /// All that was asked for, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SandboxRequest> {
        lock(&self.shared.requests).clone()
    }

    /// How many are where, now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until the counts are so.
    ///
    /// # Panics
    /// They are not within a minute.
    pub async fn wait_for(&self, what: impl Fn(&Counts) -> bool + Send + Sync) {
        let mut counts = self.shared.counts.subscribe();
        let waited =
            tokio::time::timeout(Duration::from_secs(60), counts.wait_for(|counts| what(counts))).await;
        assert!(
            waited.is_ok(),
            "the sandboxes are not as awaited: {:?}",
            self.counts()
        );
    }
}

#[async_trait]
impl Sandbox for Scripted {
    async fn prepare(&self, request: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError> {
        lock(&self.shared.requests).push(request.clone());
        let takes = *lock(&self.shared.takes);
        self.shared.counts.send_modify(|counts| counts.preparing += 1);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        self.shared.counts.send_modify(|counts| counts.preparing -= 1);
        if let Some(why) = lock(&self.shared.refusals).pop() {
            return Err(why);
        }
        lock(&self.shared.waiting).insert(request.sandbox_id);
        self.shared.counts.send_modify(|counts| counts.ready += 1);
        let digest = Digest::of(b"scripted");
        let facts = SandboxFacts {
            sandbox_id: request.sandbox_id,
            origin: Origin::Cold,
            container_id: "none".to_owned(),
            image: request.image,
            runtime: request.runtime,
            engine: "scripted".to_owned(),
            kernel: "none".to_owned(),
            host: None,
            user_namespace: None,
            in_force: request.limits,
            enforced_digest: digest,
            filter_digest: digest,
            guest_digest: digest,
            not_enforceable: std::collections::BTreeMap::new(),
            warm: None,
        };
        Ok(Box::new(ScriptedReady {
            shared: Arc::clone(&self.shared),
            facts,
        }))
    }

    async fn drain(&self) {}

    async fn remove_all_of(&self, executor: ExecutorId) -> Result<Swept, EngineError> {
        lock(&self.shared.removed).push(executor);
        let failed = usize::from(*lock(&self.shared.stuck));
        Ok(Swept { removed: 0, failed })
    }
}

#[async_trait]
impl ReadySandbox for ScriptedReady {
    fn facts(&self) -> &SandboxFacts {
        &self.facts
    }

    fn is_alive(&mut self) -> bool {
        !lock(&self.shared.dead).contains(&self.facts.sandbox_id)
    }

    async fn run(self: Box<Self>, run: Run) -> RunEnd {
        lock(&self.shared.waiting).remove(&self.facts.sandbox_id);
        self.shared.counts.send_modify(|counts| {
            counts.ready -= 1;
            counts.running += 1;
            counts.started += 1;
        });
        let argv: Vec<&str> = run.job.argv.iter().map(String::as_str).collect();
        let mut evidence = Evidence {
            started: true,
            oom_kills: Some(0),
            ..Evidence::default()
        };
        let mut stdout = Vec::new();
        match argv.as_slice() {
            ["fail", code] => evidence.end = Some(ProcessEnd::Code(code.parse().unwrap_or(1))),
            ["print", text] => {
                run.live.output(OutputStream::Stdout, text.as_bytes());
                stdout = text.as_bytes().to_vec();
                evidence.end = Some(ProcessEnd::Code(0));
            }
            ["hang"] => {
                evidence.killed_for = Some(stopped(run.stop).await);
                evidence.end = Some(ProcessEnd::Signal(9));
            }
            ["trouble"] => {
                evidence.trouble = Some(Trouble {
                    kind: TroubleKind::Engine,
                    message: "the engine is gone".into(),
                });
            }
            _ => evidence.end = Some(ProcessEnd::Code(0)),
        }
        self.shared.counts.send_modify(|counts| counts.running -= 1);
        RunReport {
            outcome: evidence.judge(),
            stdout: stream(stdout),
            stderr: stream(Vec::new()),
            usage: None,
            sandbox: Some(self.facts),
            started_at: None,
            ended_at: DateTime::<Utc>::UNIX_EPOCH,
            uploaded: None,
            artifacts: None,
            egress: None,
        }
        .into()
    }

    async fn discard(self: Box<Self>) {
        lock(&self.shared.waiting).remove(&self.facts.sandbox_id);
        self.shared.counts.send_modify(|counts| {
            counts.ready -= 1;
            counts.discarded += 1;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn stopped(mut stop: watch::Receiver<Option<KilledFor>>) -> KilledFor {
    let reason = stop
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|reason| *reason);
    match reason {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}

fn stream(bytes: Vec<u8>) -> CapturedStream {
    let count = StreamCount {
        bytes: bytes.len() as u64,
        digest: Digest::of(&bytes),
        truncated: false,
    };
    CapturedStream {
        count,
        head: bytes,
        tail: Vec::new(),
        redacted: None,
    }
}
