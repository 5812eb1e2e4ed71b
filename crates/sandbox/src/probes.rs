//! The self-test: hostile programs, each in a sandbox of its own, and what has to become of them.
//!
//! [`ALL`] is the table: what each tries, and what holds on each runtime. [`run`] puts one of them through the seam and
//! judges it. Where it can be had, the verdict is the host's own: how the run ended by kernel and engine, how many
//! processes the engine counts in the container, what the record keeps of the output, whether the container is gone.
//! The rest is the program's account, which a program of ours has no reason to bend.
//!
//! The programs are bounded by themselves: in a sandbox without limits they fork, fill and allocate a few times what they
//! should get and no more; they open files of the kernel and write to none but their guest's; they dial nothing once there
//! is a network card. So a host that turns out weak is not harmed by learning it.

mod job;
mod judge;
mod table;
#[cfg(test)]
mod tests;

pub use table::ALL;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use mayfly_core::{
    id::{ExecutorId, SessionId},
    image::ImagePin,
    limits::LimitsAsked,
    outcome::{KilledFor, RefusalStage},
    run::RunReport,
};
use serde::Serialize;
use tokio::sync::watch;

use self::{job::job, judge::judge};
use crate::{
    baseline::{engine_pids_limit, is_gvisor, label},
    engine::Engine,
    error::{EngineError, chain},
    redaction::Matchers,
    seam::{LiveOutput, OutputStream, PrepareError, Run, RunEnd, Sandbox, SandboxRequest},
};

/// How long a sandbox may wait for its program.
const IDLE: Duration = Duration::from_secs(30);
/// How long the containers of a self-test may take to be gone after its last run.
const GONE_LIMIT: Duration = Duration::from_secs(15);
/// How often that is looked at.
const GONE_EVERY: Duration = Duration::from_millis(200);
/// What a program says when it is ready to be counted.
const HOLDING: &[u8] = b"holding";

/// A hostile program and what has to become of it.
#[derive(Debug)]
pub struct Probe {
    /// Its name, which stays.
    pub id: &'static str,
    /// What it tries.
    pub tries: &'static str,
    program: &'static str,
    limits: LimitsAsked,
    ends: ByRuntime<End>,
    answers: &'static [Expected],
}

/// One value for the host's kernel, one for gVisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByRuntime<T> {
    runc: T,
    runsc: T,
}

impl<T: Copy> ByRuntime<T> {
    const fn same(value: T) -> Self {
        Self {
            runc: value,
            runsc: value,
        }
    }

    fn of(&self, runtime: &str) -> T {
        if is_gvisor(runtime) { self.runsc } else { self.runc }
    }
}

/// How a run has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By itself, with the code that all probes choose.
    Itself,
    /// Killed for memory.
    OutOfMemory,
    /// Either of the two.
    ItselfOrOutOfMemory,
    /// At its wall-clock limit.
    Deadline,
    /// Counted by the host while it holds what it has got, and then killed.
    Counted,
}

/// What a line of the program's account has to say.
#[derive(Debug)]
struct Expected {
    name: &'static str,
    answer: ByRuntime<Answer>,
}

/// An answer that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Every attempt was refused before it reached anything.
    Refused,
    /// This word.
    Exactly(&'static str),
    /// A number up to this.
    AtMost(u64),
    /// Whatever it is: what stands behind it is not the host's kernel.
    Free,
}

/// Where probes are run.
pub struct Subject<'a> {
    /// Where sandboxes come from, with the very limits that are asked for: no pool, which rounds them up.
    pub sandbox: &'a dyn Sandbox,
    /// Who counts from outside.
    pub census: &'a dyn Census,
    /// An image with Python 3.
    pub image: ImagePin,
    /// The runtime that is tested.
    pub runtime: String,
    /// Whose the sandboxes are.
    pub executor: ExecutorId,
    /// In which session.
    pub session: SessionId,
}

/// The host's own count.
#[async_trait]
pub trait Census: Send + Sync {
    /// Processes in a container, by the word of the host.
    ///
    /// # Errors
    /// Trouble with the engine.
    async fn processes(&self, container: &str) -> Result<Option<u64>, EngineError>;

    /// Containers of an executor that are still there, whatever their state.
    ///
    /// # Errors
    /// Trouble with the engine.
    async fn containers(&self, executor: ExecutorId) -> Result<usize, EngineError>;
}

#[async_trait]
impl Census for Engine {
    async fn processes(&self, container: &str) -> Result<Option<u64>, EngineError> {
        self.count_processes(container).await
    }

    async fn containers(&self, executor: ExecutorId) -> Result<usize, EngineError> {
        let executor = executor.to_string();
        Ok(self.containers_labelled(label::EXECUTOR, &executor).await?.len())
    }
}

/// What became of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Which probe.
    pub id: String,
    /// What it tries.
    pub tries: String,
    /// What holds on this runtime.
    pub expected: String,
    /// Whether it held.
    pub result: ProbeResult,
    /// What did not hold, or why nothing was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// From the request for a sandbox to the end of the run, in milliseconds.
    pub took_ms: u64,
}

/// Whether a probe held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeResult {
    /// The sandbox held.
    Held,
    /// It did not.
    Broken,
    /// Nothing was tried, for trouble that proves nothing.
    NotRun,
}

/// What the host has counted during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    processes: Option<u64>,
    allowed: u64,
}

impl Probe {
    /// What holds on a runtime, in words.
    #[must_use]
    pub fn expected(&self, runtime: &str) -> String {
        judge::expected(self, runtime)
    }
}

/// Puts one probe through a sandbox of its own. It always comes back: the run's limits bound it, and each call to the
/// engine has its own.
pub async fn run(subject: &Subject<'_>, probe: &Probe) -> Verdict {
    let begun = Instant::now();
    let tried = attempt(subject, probe).await;
    let (result, why) = match tried {
        Ok(wrong) if wrong.is_empty() => (ProbeResult::Held, Vec::new()),
        Ok(wrong) => (ProbeResult::Broken, wrong),
        Err(why) => (ProbeResult::NotRun, vec![why]),
    };
    Verdict {
        id: probe.id.to_owned(),
        tries: probe.tries.to_owned(),
        expected: probe.expected(&subject.runtime),
        result,
        why,
        took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

/// Waits until no container of the subject's executor is left: what a kill leaves behind would show here.
pub async fn nothing_is_left(subject: &Subject<'_>) -> Verdict {
    let begun = Instant::now();
    let gone = async {
        loop {
            match subject.census.containers(subject.executor).await {
                Ok(0) => return Ok(()),
                Ok(_) => tokio::time::sleep(GONE_EVERY).await,
                Err(error) => return Err(chain(&error)),
            }
        }
    };
    let (result, why) = match tokio::time::timeout(GONE_LIMIT, gone).await {
        Ok(Ok(())) => (ProbeResult::Held, Vec::new()),
        Ok(Err(why)) => (ProbeResult::NotRun, vec![why]),
        Err(_) => {
            let why = format!(
                "a container is still there {} s after the last run",
                GONE_LIMIT.as_secs()
            );
            (ProbeResult::Broken, vec![why])
        }
    };
    Verdict {
        id: "nothing_left".to_owned(),
        tries: "outlive its sandbox".to_owned(),
        expected: "no container of the self-test is left".to_owned(),
        result,
        why,
        took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

/// What did not hold; an error where nothing was proven.
async fn attempt(subject: &Subject<'_>, probe: &Probe) -> Result<Vec<String>, String> {
    let job = Arc::new(job(subject, probe)?);
    let request = SandboxRequest::for_job(&job, subject.executor, subject.session, IDLE);
    let allowed = u64::try_from(engine_pids_limit(&request)).unwrap_or(0);
    let ready = match subject.sandbox.prepare(request).await {
        Ok(ready) => ready,
        // Settings that are not in force are the very thing that is looked for.
        Err(error @ PrepareError::Mismatch(_)) => return Ok(vec![chain(&error)]),
        Err(error) => return Err(chain(&error)),
    };
    let container = ready.facts().container_id.clone();
    let (stop_by, stop) = watch::channel(None);
    let (listener, mut holding) = Listener::new();
    let count = async {
        let mut counted = Counted {
            processes: None,
            allowed,
        };
        if probe.ends.of(&subject.runtime) == End::Counted && holding.wait_for(|holds| *holds).await.is_ok() {
            counted.processes = subject.census.processes(&container).await.ok().flatten();
            stop_by.send_replace(Some(KilledFor::Cancel));
        }
        counted
    };
    let live: Arc<Listener> = Arc::new(listener);
    let run = ready.run(Run {
        collect: None,
        fetched: None,
        egress: None,
        matcher: Matchers::default().of(&job).map_err(|error| error.to_string())?,
        job,
        stop,
        live,
    });
    let (
        counted,
        RunEnd {
            report, destruction, ..
        },
    ) = both(count, run).await;
    refuse_unproven(&report)?;
    let mut wrong = judge(probe, &subject.runtime, &report, counted);
    if let Some(destruction) = destruction {
        match tokio::time::timeout(GONE_LIMIT, destruction.contradictions()).await {
            Ok(contradictions) => wrong.extend(contradictions),
            Err(_) => wrong.push(format!(
                "its container is not gone after {} s",
                GONE_LIMIT.as_secs()
            )),
        }
    }
    Ok(wrong)
}

/// Counts while it runs; a run that ends without having been counted ends the count.
async fn both(count: impl Future<Output = Counted>, run: impl Future<Output = RunEnd>) -> (Counted, RunEnd) {
    let (mut count, mut run) = (std::pin::pin!(count), std::pin::pin!(run));
    tokio::select! {
        counted = &mut count => (counted, run.await),
        end = &mut run => (Counted::default(), end),
    }
}

/// Runs that say nothing of the sandbox: trouble of ours, or an image without Python.
fn refuse_unproven(report: &RunReport) -> Result<(), String> {
    let evidence = &report.outcome.evidence;
    if let Some(trouble) = &evidence.trouble {
        return Err(trouble.message.clone());
    }
    match &evidence.refused {
        None => Ok(()),
        Some(refused) if refused.stage == RefusalStage::Exec => Err(format!(
            "Python 3 could not be started; probes need an image that has it: {}",
            refused.reason
        )),
        Some(refused) => Err(format!(
            "the program could not be put in place: {}",
            refused.reason
        )),
    }
}

/// Hears when a program is ready to be counted.
struct Listener {
    heard: Mutex<Vec<u8>>,
    holds: watch::Sender<bool>,
}

impl Listener {
    fn new() -> (Self, watch::Receiver<bool>) {
        let (holds, receiver) = watch::channel(false);
        let listener = Self {
            heard: Mutex::new(Vec::new()),
            holds,
        };
        (listener, receiver)
    }
}

/// Most that is remembered of a program's output while it runs; the account of one that is counted is short.
const HEARD: usize = 4096;

#[async_trait]
impl LiveOutput for Listener {
    fn output(&self, stream: OutputStream, bytes: &[u8]) {
        if stream != OutputStream::Stdout {
            return;
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEARD.saturating_sub(heard.len());
        heard.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if heard.windows(HOLDING.len()).any(|window| window == HOLDING) {
            self.holds.send_replace(true);
        }
    }

    async fn ready(&self) {}
}
