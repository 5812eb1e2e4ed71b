//! What an executor knows of sandboxes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::{
    id::{ExecutorId, SandboxId, SessionId},
    image::ImagePin,
    job::ResolvedJob,
    limits::Limits,
    outcome::{Evidence, KilledFor, Mismatch, Trouble, TroubleKind},
    policy::Network,
    run::{RunReport, SandboxFacts},
};
use mayfly_egress::Proxy;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    collect::Collect, error::EngineError, fetched::Incoming, host::HostCheck, reaper::Swept,
    redaction::Matcher, warm::WarmCommand,
};

/// All that is fixed when a sandbox is created, before its job is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequest {
    /// Our id of it.
    pub sandbox_id: SandboxId,
    /// Who makes it.
    pub executor: ExecutorId,
    /// In which session.
    pub session: SessionId,
    /// The image, by digest.
    pub image: ImagePin,
    /// The OCI runtime.
    pub runtime: String,
    /// The limits to be in force.
    pub limits: Limits,
    /// The network to be in force.
    pub network: Network,
    /// Whether its processes may make sockets on its loopback.
    pub loopback: Loopback,
    /// What is to be started in it before its job is known. A failure of that is no failure of the sandbox.
    pub warm: Option<WarmCommand>,
    /// Longest time that it may wait for its job; with the wall limit it makes the time after which a reaper may
    /// take it for left behind.
    pub longest_idle: Duration,
}

/// The sockets that a job may make, beside those between its own processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loopback {
    /// None.
    Closed,
    /// TCP and UDP. There is nothing to talk to but the job itself and, where it has egress, the guest's proxy.
    Open,
}

impl SandboxRequest {
    /// The sandbox that a job needs.
    #[must_use]
    pub fn for_job(
        job: &ResolvedJob,
        executor: ExecutorId,
        session: SessionId,
        longest_idle: Duration,
    ) -> Self {
        Self {
            sandbox_id: SandboxId::new(),
            executor,
            session,
            image: job.pin.clone(),
            runtime: job.runtime.clone(),
            limits: job.limits,
            network: job.network,
            loopback: match job.egress {
                Some(_) => Loopback::Open,
                None => Loopback::Closed,
            },
            warm: None,
            longest_idle,
        }
    }
}

/// The seam: where sandboxes come from.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Makes a container, starts its guest and reads every setting back, twice. No instruction of any job has run.
    ///
    /// # Errors
    /// Any difference from what was asked for, and any trouble. The container is removed before this returns, or left
    /// to the reaper where the engine does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a container without a job. Its guest ends when its stdin closes, and the reaper
    /// removes it.
    async fn prepare(&self, request: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError>;

    /// What is started in sandboxes from here before such a job is known: a part of what to ask for. Nothing, where each
    /// is made for its job.
    fn warm_command(&self, _job: &ResolvedJob) -> Option<WarmCommand> {
        None
    }

    /// From now on nothing is kept ready for jobs to come. Returns when what was is destroyed; sandboxes can be prepared
    /// as before, each made when it is asked for.
    ///
    /// # Cancel safety
    /// What was kept is destroyed all the same.
    async fn drain(&self);

    /// Removes the containers of an executor, whatever their age, except those that this process has made and still
    /// holds. For an executor that is proven dead, and at the start of one for what its last life left behind; a living
    /// one would lose what it runs. Where none could not be removed, no process in them is left.
    ///
    /// # Errors
    /// Where the engine does not list its containers. One that can't be removed is counted, and no error.
    ///
    /// # Cancel safety
    /// Call it again: it goes on.
    async fn remove_all_of(&self, executor: ExecutorId) -> Result<Swept, EngineError>;
}

/// A sandbox that is as it was asked for and waits for its job.
#[async_trait]
pub trait ReadySandbox: Send {
    /// What was read back.
    fn facts(&self) -> &SandboxFacts;

    /// Whether the guest can still be talked to, as far as that is known without asking anybody: false is certain.
    fn is_alive(&mut self) -> bool;

    /// Runs one job, and destroys the sandbox. It always comes back: within the wall limit, the time that a kill and a
    /// removal may take, and no more; also when the engine hangs.
    ///
    /// No process of the job is left when it does. Where the guest's account alone decides about the outcome, the
    /// container is destroyed afterwards, by a task that the sandbox's maker keeps track of.
    async fn run(self: Box<Self>, run: Run) -> RunEnd;

    /// Destroys the sandbox without a job.
    async fn discard(self: Box<Self>);
}

/// One job for a sandbox.
pub struct Run {
    /// The job.
    pub job: Arc<ResolvedJob>,
    /// Ends the run when it becomes `Some`. The first value counts.
    pub stop: watch::Receiver<Option<KilledFor>>,
    /// Hears the job's output while it runs.
    pub live: Arc<dyn LiveOutput>,
    /// What is taken out of that output, and out of what is said of the job, before anybody gets it.
    pub matcher: Matcher,
    /// Which of the job's files are wanted when it is over; none: the sandbox goes with all of them.
    pub collect: Option<Collect>,
    /// The content of the files that the job fetches; none, where it fetches none.
    pub fetched: Option<Incoming>,
    /// What the job may reach outside of its sandbox, whose loopback must be open then; none: nothing. It is closed with
    /// the run.
    pub egress: Option<Arc<Proxy>>,
}

/// A run that is over.
#[derive(Debug)]
pub struct RunEnd {
    /// What came of it; nothing that is found out later changes it.
    pub report: RunReport,
    /// The rest of the container's end, where it was not waited for.
    pub destruction: Option<Destruction>,
}

/// A container that is being destroyed, whether or not anybody waits for it.
#[derive(Debug)]
pub struct Destruction(JoinHandle<Vec<String>>);

impl Destruction {
    /// What a task destroys that ends with the contradictions between the engine's word on the end and the report.
    #[must_use]
    pub const fn new(task: JoinHandle<Vec<String>>) -> Self {
        Self(task)
    }

    /// Waits until the container is gone or is left to the reaper, and says what the engine said against the report.
    pub async fn contradictions(self) -> Vec<String> {
        self.0
            .await
            .unwrap_or_else(|error| vec![format!("nobody heard of the container's end: {error}")])
    }
}

impl RunEnd {
    /// Waits for all of it: the report, and what contradicts it.
    pub async fn settled(self) -> (RunReport, Vec<String>) {
        let contradictions = match self.destruction {
            Some(destruction) => destruction.contradictions().await,
            None => Vec::new(),
        };
        (self.report, contradictions)
    }
}

impl From<RunReport> for RunEnd {
    /// Of a container that is gone.
    fn from(report: RunReport) -> Self {
        Self {
            report,
            destruction: None,
        }
    }
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Hears output as it comes: what is left of it once secrets are taken out, also what will not be kept. What may be the
/// beginning of a secret comes when it is none, at the end of the run at the latest; by then all that came is the stream of
/// which the report keeps head and tail.
///
/// A listener that is slow slows the job, as a slow reader of a pipe does: the run grants the guest no further credit
/// for a stream until [`LiveOutput::ready`] resolves. Deadlines, stops and `alive` frames go on meanwhile, and no more
/// than the credit that was out, and the marks in it, is ever handed over in between.
#[async_trait]
pub trait LiveOutput: Send + Sync {
    /// The next bytes of a stream. Never blocks.
    fn output(&self, stream: OutputStream, bytes: &[u8]);

    /// Resolves when the listener has room for more.
    async fn ready(&self);
}

/// Listens to nothing.
#[derive(Debug)]
pub struct NoLiveOutput;

#[async_trait]
impl LiveOutput for NoLiveOutput {
    fn output(&self, _: OutputStream, _: &[u8]) {}

    async fn ready(&self) {}
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Settings in force differ from those asked for.
    #[error("the sandbox is not as it was asked for: {}", fields(.0))]
    Mismatch(Vec<Mismatch>),
    /// The image is not on the engine, or its id is another one than the pin says.
    #[error("image {} is not on this engine", .0.digest)]
    ImageUnavailable(ImagePin),
    /// The engine knows no such runtime.
    #[error("the engine has no runtime `{0}`")]
    RuntimeUnavailable(String),
    /// The engine or the guest failed.
    #[error("could not prepare a sandbox")]
    Engine(#[source] EngineError),
}

fn fields(mismatches: &[Mismatch]) -> String {
    mismatches
        .iter()
        .map(|mismatch| mismatch.field.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

impl PrepareError {
    /// Whether the same request may well succeed later: the engine did not answer.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Engine(error) => error.may_pass(),
            Self::Mismatch(_) | Self::ImageUnavailable(_) | Self::RuntimeUnavailable(_) => false,
        }
    }

    /// What the record will say of it.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let trouble = |kind, message| Some(Trouble { kind, message });
        match self {
            Self::Mismatch(mismatches) => Evidence {
                mismatches: mismatches.clone(),
                ..Evidence::default()
            },
            Self::ImageUnavailable(_) => Evidence {
                trouble: trouble(TroubleKind::Image, self.to_string()),
                ..Evidence::default()
            },
            Self::RuntimeUnavailable(_) => Evidence {
                trouble: trouble(TroubleKind::Runtime, self.to_string()),
                ..Evidence::default()
            },
            Self::Engine(source) => Evidence {
                trouble: trouble(TroubleKind::Engine, crate::error::chain(source)),
                ..Evidence::default()
            },
        }
    }
}

/// Which uids an executor's sandboxes have. Each sandbox takes two of them: one for the guest, one for the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The first; above the host's own users.
    pub first: u32,
    /// How many; twice the number of sandboxes that can live at once.
    pub count: u32,
}

/// How to reach the engine, and what is the same for all sandboxes of an executor.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// `unix:///path` or `tcp://host:port`; by default what the engine's own client would use.
    pub engine: Option<String>,
    /// Which deployment this is: the label by which sandboxes of others are left alone.
    pub deployment: String,
    /// The uids of its sandboxes.
    pub uids: UidRange,
    /// A guest for another architecture than the one that was built in.
    pub guest: Option<PathBuf>,
    /// How long the guest may take over a kill before the engine is asked to do it.
    pub kill_grace: Duration,
    /// How its host is judged, now and when its engine is back after it was away; none: nobody asks, and the record says
    /// nothing of it.
    pub host_check: Option<HostCheck>,
}
