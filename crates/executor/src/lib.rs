//! The executor role: takes attempts from a pool's queue, runs each in a sandbox of its own, reports what came of it.
//!
//! What is asked, held, reported and given up is decided by one pure machine, `mayfly_dispatch::executor`; here stands
//! its driver, which tells it what happens and does what it says, in its order. Start with [`Executor::run`].
//!
//! ```text
//! Executor::run            the one task that owns the machine
//! ├── link                 connects and connects again
//! ├── publisher            batches of events, one after the other, each to its confirm
//! ├── prepare × slots      makes a sandbox, also if its engine has to be waited for; fetches what the job brings beside its order
//! ├── run × slots          one job in one sandbox, to its end; leaves long output on the server
//! └── self-test            now and then, on one of the slots: whether sandboxes here still hold
//! ```
//!
//! It holds no database and no secret: a stolen executor can read the jobs that it is handed, and report on those.

mod artifacts;
mod blobs;
mod driver;
mod fetched;
mod fitness;
mod input;
mod jobs;
mod link;
mod output;
mod outside;
mod pauses;
mod preparation;
mod relay;

use std::sync::Arc;

use mayfly_core::{
    clock::Clock,
    id::{AttemptId, JobId, SessionId},
};
use mayfly_dispatch::executor::Config;
use mayfly_queue::seam::{EventPublisher, Queue};
use mayfly_sandbox::seam::{LiveOutput, Sandbox};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "http")]
pub use blobs::HttpBlobs;
pub use blobs::{BlobError, Blobs, NoBlobs, Piece};
pub use fetched::AskedPiece;
pub use fitness::{HostTest, Repetition, SelfTests};
pub use jobs::LONGEST_IDLE;
pub use outside::{Outside, TenantCredentials, Tenants};
pub use relay::Relay;

/// What an executor is made of.
pub struct ExecutorParts {
    /// Who it is, and the times in force.
    pub config: Config,
    /// Where attempts come from and events go to.
    pub queue: Arc<dyn Queue>,
    /// Where sandboxes come from.
    pub sandbox: Arc<dyn Sandbox>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Who hears the jobs' output.
    pub listeners: Arc<dyn Listeners>,
    /// The way to what lies on the server beside the messages.
    pub blobs: Arc<dyn Blobs>,
    /// What jobs may reach outside of their sandboxes, where their policy lets them.
    pub outside: Outside,
    /// Whether its host is fit; none where nobody asks.
    pub self_tests: Option<SelfTests>,
}

/// Who hears the output of which job, while it runs.
pub trait Listeners: Send + Sync {
    /// The listener of a run.
    fn listener(&self, run: RunId) -> Arc<dyn LiveOutput>;

    /// There is a connection to the broker, on which output can be published.
    fn connected(&self, _: Arc<dyn EventPublisher>) {}
}

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunId {
    /// The job.
    pub job: JobId,
    /// Its attempt.
    pub attempt: AttemptId,
    /// The session that runs it.
    pub session: SessionId,
}

/// The role.
pub struct Executor {
    parts: ExecutorParts,
}

impl Executor {
    /// An executor that has not begun.
    #[must_use]
    pub const fn new(parts: ExecutorParts) -> Self {
        Self { parts }
    }

    /// Runs until it is drained: nothing new is taken, what is held is finished and delivered. `abort` kills what runs
    /// and delivers that. Both return when the server has everything, or cannot be reached any more.
    pub async fn run(self, drain: CancellationToken, abort: CancellationToken) {
        driver::Driver::new(self.parts).run(drain, abort).await;
    }
}
