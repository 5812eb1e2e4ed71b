//! Warm pools: sandboxes that are made and checked before their job is known.
//!
//! [`WarmPool`] is the seam around another one. A job that asks for a sandbox of a kind that is kept ready gets one that
//! waits already; any other gets one that is made for it, as without a pool. A kind is all that is fixed at creation
//! (`Key`); memory, cpu and pids are rounded up to classes first, for both alike, so that what a job gets never depends
//! on luck. Each sandbox was read back twice by the inner seam, and is given away once.
//!
//! ```text
//! WarmPool::prepare ── take ──┐
//!                             Stock   which kinds are wanted, what is kept of each (pure)
//! keeper ─ one task ── next ──┘
//! ├── start × starts   makes one for the stock
//! └── discard          what is too old, dead, or in another kind's way
//! ```
//!
//! Decided: an engine's update of a container's limits is not used. It is refused by gVisor, ignores ulimits and labels,
//! and would need both read-backs again; the classes make it needless.

mod classes;
mod counts;
mod demand;
mod keeper;
mod key;
mod stock;
mod taken;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_core::{digest::Digest, id::ExecutorId, job::ResolvedJob, run::Origin};
use tokio::{sync::Notify, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::{
    key::Key,
    stock::{Stock, Took},
    taken::Taken,
};
use crate::{
    error::EngineError,
    reaper::Swept,
    seam::{PrepareError, ReadySandbox, Sandbox, SandboxRequest},
    warm::WarmCommand,
};

pub use classes::Classes;
pub use counts::{Discards, Misses, PoolCounts};

/// How long no sandbox is made for the stock after one was taken: the job's first moments are its own.
const CALM: Duration = Duration::from_millis(50);
/// How long jobs go first, at most: then one at a time is made for the stock beside them.
const LONGEST_YIELD: Duration = Duration::from_millis(500);
/// How often the idle ones are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time in which a guest that hears nothing ends itself. Where nothing of this process ran for so long, no idle
/// guest is trusted.
const GUEST_LIMIT: Duration = Duration::from_secs(10);

/// What is kept ready, and how.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Sandboxes that wait for a job, those in the making included, at most.
    pub size: u32,
    /// Of one kind, at most.
    pub max: u32,
    /// Longest time that one waits in the pool.
    pub max_idle: Duration,
    /// Most that are begun in a second.
    pub starts_per_second: u32,
    /// Most that are in the making at once.
    pub starts: u32,
    /// What limits are rounded up to.
    pub classes: Classes,
    /// Longest wall limit of a job that gets one: the reaper's label is made for it.
    pub longest_wall: mayfly_core::units::Span,
    /// Longest wait for its job that is asked for beside that.
    pub longest_wait: Duration,
    /// What is started in them.
    pub warm: WarmCommands,
    /// What is kept ready whether or not it was asked for. Together at most `size`.
    pub kept: Vec<Kept>,
}

/// A kind of sandbox of which some are always kept ready.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What is asked for.
    pub request: SandboxRequest,
    /// How many.
    pub min: u32,
}

/// What is started in sandboxes of the pool before their jobs are known.
#[derive(Debug, Clone, Default)]
pub struct WarmCommands {
    /// For jobs that run such a command.
    pub usual: Vec<WarmCommand>,
    /// Instead of it for an image, by the digest of its configuration.
    pub of_images: Vec<(Digest, WarmCommand)>,
}

impl WarmCommands {
    /// The one for a job.
    #[must_use]
    pub fn of(&self, job: &ResolvedJob) -> Option<&WarmCommand> {
        let of_image = self
            .of_images
            .iter()
            .filter(|(image, _)| *image == job.pin.config_digest);
        let mut all = of_image.map(|(_, command)| command).chain(&self.usual);
        all.find(|command| command.suits(job))
    }
}

/// Sandboxes that wait for their jobs.
pub struct WarmPool {
    shared: Arc<Shared>,
    /// Ends the keeper of a pool that is dropped and was not drained. The sandboxes go with it, by their closed stdin.
    _end: DropGuard,
}

struct Shared {
    inner: Arc<dyn Sandbox>,
    config: PoolConfig,
    stock: Mutex<Stock<Box<dyn ReadySandbox>>>,
    /// Something has changed that the keeper may have to act on.
    changed: Notify,
    drain: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for WarmPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WarmPool")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl WarmPool {
    /// Begins to keep sandboxes of `inner` ready.
    #[must_use]
    pub fn start(inner: Arc<dyn Sandbox>, config: PoolConfig) -> Arc<Self> {
        let drain = CancellationToken::new();
        let shared = Arc::new(Shared {
            inner,
            stock: Mutex::new(Stock::new(&config)),
            config,
            changed: Notify::new(),
            drain: drain.clone(),
            tasks: TaskTracker::new(),
        });
        shared.tasks.spawn(keeper::keep(Arc::clone(&shared)));
        Arc::new(Self {
            shared,
            _end: drain.drop_guard(),
        })
    }

    /// What has come of it so far, and what is ready now.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        self.shared.stock().counts()
    }
}

#[async_trait]
impl Sandbox for WarmPool {
    async fn prepare(&self, mut request: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError> {
        let shared = &self.shared;
        shared.config.classes.round_up(&mut request.limits);
        let key = Key::of(&request);
        if let Some(warm) = shared.take(&key, &request) {
            return Ok(warm);
        }
        // A job that waits for its sandbox has nothing of a process that would be started before it.
        request.warm = None;
        let _job_waits = JobWaits::begin(shared);
        let made = shared.inner.prepare(request).await;
        if made.is_ok() {
            shared.stock().can_be_made(&key);
        }
        made
    }

    fn warm_command(&self, job: &ResolvedJob) -> Option<WarmCommand> {
        self.shared.config.warm.of(job).cloned()
    }

    async fn drain(&self) {
        self.shared.drain.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.inner.drain().await;
    }

    async fn remove_all_of(&self, executor: ExecutorId) -> Result<Swept, EngineError> {
        self.shared.inner.remove_all_of(executor).await
    }
}

impl Shared {
    fn stock(&self) -> MutexGuard<'_, Stock<Box<dyn ReadySandbox>>> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is ready and alive, for good.
    fn take(self: &Arc<Self>, key: &Key, request: &SandboxRequest) -> Option<Box<dyn ReadySandbox>> {
        let mut took = self.stock().ask(key, request, Instant::now());
        loop {
            let (mut sandbox, ready_at) = match took {
                Took::Ready { sandbox, ready_at } => (sandbox, ready_at),
                Took::None(reason) => {
                    self.changed.notify_one();
                    tracing::debug!(?reason, "no warm sandbox for a job");
                    return None;
                }
            };
            if sandbox.is_alive() {
                let idle = ready_at.elapsed();
                self.stock().hit();
                self.changed.notify_one();
                let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
                return Some(Box::new(Taken::new(
                    sandbox,
                    &request.limits,
                    Origin::Warm { idle_ms },
                )));
            }
            self.tasks.spawn(sandbox.discard());
            took = self.stock().take_another(key);
        }
    }
}

/// A job waits for a sandbox that is made for it: no other is begun meanwhile.
struct JobWaits<'a>(&'a Shared);

impl<'a> JobWaits<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.stock().job_waits();
        Self(shared)
    }
}

impl Drop for JobWaits<'_> {
    fn drop(&mut self) {
        self.0.stock().job_waits_no_longer();
        self.0.changed.notify_one();
    }
}
