//! The server's roles that dispatch: scheduler, recorder and reconciler, over the Store and Queue seams.
//!
//! They decide nothing about grants, leases and receipts: that is `mayfly-dispatch`, asked by the store inside its
//! transactions. What stands here is the order of things: commit first, then publish, reply and ack.
//!
//! ```text
//! Server::run
//! ├── scheduler    jobs that are ready -> attempts -> the pool's queue; what the broker lost -> again; what waited too long -> expired
//! ├── recorder     the events' queue -> the store, in order, in batches -> replies
//! ├── reconciler   ticks, through the events' queue
//! └── dead letters what was set aside -> the store; a dispatch message -> published again, or the end of its job
//! ```
//!
//! Each loop reacts to a wake-up and to a timer. A loop that ends without being asked to ends the server.

mod dead_letters;
mod reconciler;
mod recorder;
mod rest;
mod scheduler;
mod uploads;

pub use uploads::{keep_sweeping_uploads, sweep_uploads};

use std::{sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, clock::Clock};
use mayfly_dispatch::{
    ledger::Context,
    message::{BlobPlaces, DispatchMessage, VERSION},
    time::ServerTime,
    timing::Timing,
    token::TokenKey,
};
use mayfly_queue::seam::{PublishError, Queue, QueueError};
use mayfly_store::seam::Store;
use tokio::sync::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What a server is made of.
pub struct ServerParts {
    /// Where jobs are kept.
    pub store: Arc<dyn Store>,
    /// How they travel.
    pub queue: Arc<dyn Queue>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// The pool that it dispatches to.
    pub pool: String,
    /// The times in force; the executors have the same.
    pub timing: Timing,
    /// The secret of result tokens.
    pub key: TokenKey,
    /// Where what is too long for a message lies; none: messages carry everything.
    pub blobs: Option<BlobPlaces>,
}

/// Scheduler, recorder and reconciler of one pool.
pub struct Server {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    pool: String,
    timing: Timing,
    key: TokenKey,
    blobs: Option<BlobPlaces>,
    clock: Arc<dyn Clock>,
    /// What the wall clock and the clock that never jumps showed at the start.
    started: (ServerTime, Duration),
    /// Held while the events' queue is declared anew, so that two loops that miss it do that once.
    renewing: Mutex<()>,
}

/// A loop of the server that has ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It panicked.
    #[error("the {0} has ended")]
    Ended(&'static str),
}

/// Why an attempt was not published. It is published again in its time.
#[derive(Debug, thiserror::Error)]
pub enum NotPublished {
    /// The broker.
    #[error(transparent)]
    Queue(#[from] PublishError),
    /// An executor of the pool is older than such orders.
    #[error(
        "the order has message version {needs}, and an executor of its pool reads up to {reads}: upgrade it"
    )]
    TooNew {
        /// The version of the order.
        needs: u32,
        /// What that executor reads.
        reads: u32,
    },
}

/// How long a loop waits after trouble, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Server {
    /// A server that has not begun.
    #[must_use]
    pub fn new(parts: ServerParts) -> Self {
        let started = (ServerTime::from(parts.clock.now()), parts.clock.since_boot());
        Self {
            store: parts.store,
            queue: parts.queue,
            pool: parts.pool,
            timing: parts.timing,
            key: parts.key,
            blobs: parts.blobs,
            clock: parts.clock,
            started,
            renewing: Mutex::new(()),
        }
    }

    /// Publishes an attempt to a pool's queue, as its executors can read it: what is too long for a message stays here.
    ///
    /// # Errors
    /// As [`Queue::publish_attempt`], and where an executor of the pool can't read such an order at all.
    pub async fn publish_attempt(&self, pool: &str, message: DispatchMessage) -> Result<(), NotPublished> {
        let reads = self.reads(pool, self.least_version(&message)).await;
        self.publish_to(pool, message, reads).await
    }

    /// `reads`: what every executor of the pool reads, where that is known.
    async fn publish_to(
        &self,
        pool: &str,
        mut message: DispatchMessage,
        reads: Option<u32>,
    ) -> Result<(), NotPublished> {
        let needs = self.least_version(&message);
        // An executor that gets what it can't read hands it back and takes nothing more.
        if let Some(reads) = reads
            && reads < needs
        {
            return Err(NotPublished::TooNew { needs, reads });
        }
        message.v = message.v.max(needs);
        let message = match &self.blobs {
            Some(blobs) => blobs.equip(message, reads.unwrap_or(VERSION).max(needs), self.context().now),
            None => message,
        };
        Ok(self.queue.publish_attempt(pool, &message).await?)
    }

    fn least_version(&self, message: &DispatchMessage) -> u32 {
        match &self.blobs {
            Some(blobs) => blobs.least_version(message),
            None => message.least_version(),
        }
    }

    /// The newest version of a message that every executor of a pool reads, where that is of use for an order of version
    /// `needs`. None where it is not known, or no executor is there: whichever comes reads the oldest, or hands the order back.
    async fn reads(&self, pool: &str, needs: u32) -> Option<u32> {
        if self.blobs.is_none() && needs == VERSION {
            return None;
        }
        match self.store.oldest_reader(pool).await {
            Ok(reads) => reads,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "what a pool's executors read can't be looked up");
                None
            }
        }
    }

    /// Where it publishes.
    #[must_use]
    pub const fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// What a decision takes into account now.
    ///
    /// The time goes on from the wall clock at the start by the clock that never jumps: somebody who sets the host's
    /// clock ends no lease by it. A store with a clock of its own replaces it.
    #[must_use]
    pub fn context(&self) -> Context {
        let (wall, boot) = self.started;
        let now = wall.after(self.clock.since_boot().saturating_sub(boot));
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        Context::new(now, self.timing, self.key.clone(), random)
    }

    /// Declares what the pool needs. Call it before executors join; a queue that is lost later is declared again by the
    /// loops that miss it.
    ///
    /// # Errors
    /// The broker.
    pub async fn declare(&self) -> Result<(), QueueError> {
        self.queue.declare(&self.pool).await?;
        // Whether there is one: a consumer that is dropped at once takes nothing.
        match self.queue.consume_events(&self.pool).await {
            Err(QueueError::NoQueue { .. }) => {
                self.renew_events().await;
                Ok(())
            }
            found => found.map(drop),
        }
    }

    /// Declares the events' queue anew, which is gone with whatever was in it. The record says so first: otherwise a
    /// tick could pass through the new queue as though nothing had been lost. Trouble is logged, and the caller, which
    /// misses the queue still, comes again.
    async fn renew_events(&self) {
        let _renewing = self.renewing.lock().await;
        let epoch = match self.store.queue_is_gone(&self.pool, &self.context()).await {
            Ok(epoch) => epoch,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the loss of the events' queue could not be recorded");
                return;
            }
        };
        if let Err(error) = self.queue.declare_events(&self.pool, epoch).await {
            tracing::error!(error = %Chain(&error), "the events' queue could not be declared");
        }
    }

    /// Runs until it is asked to stop.
    ///
    /// # Errors
    /// A loop that ended by itself; the others have been ended too.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), ServerError> {
        let tasks = TaskTracker::new();
        let end_all = stop.child_token();
        let spawn = |name: &'static str, task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let handle = tasks.spawn(task);
            async move { handle.await.map_or(name, |()| name) }
        };
        let scheduler = spawn(
            "scheduler",
            Box::pin(scheduler::run(Arc::clone(&self), end_all.clone())),
        );
        let recorder = spawn(
            "recorder",
            Box::pin(recorder::run(Arc::clone(&self), end_all.clone())),
        );
        let reconciler = spawn(
            "reconciler",
            Box::pin(reconciler::run(Arc::clone(&self), end_all.clone())),
        );
        let letters = spawn(
            "reader of dead letters",
            Box::pin(dead_letters::run(Arc::clone(&self), end_all.clone())),
        );
        let ended = tokio::select! {
            name = scheduler => name,
            name = recorder => name,
            name = reconciler => name,
            name = letters => name,
        };
        let asked = stop.is_cancelled();
        end_all.cancel();
        tasks.close();
        tasks.wait().await;
        if asked {
            Ok(())
        } else {
            Err(ServerError::Ended(ended))
        }
    }
}

/// Waits that grow with each failure in a row, with jitter so that several servers don't come back together.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
}

impl Pause {
    fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits, or returns at once where the server is to stop.
    async fn wait(&mut self, stop: &CancellationToken) {
        let longest = FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1).min(16);
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let part = u32::try_from(random >> 48).unwrap_or(0);
        let wait = longest / 2 + (longest / 2).mul_f64(f64::from(part) / 65_536.0);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => {}
        }
    }
}
