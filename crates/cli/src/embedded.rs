//! The roles of a fleet in one process: scheduler, recorder, reconciler and executor, on a queue in memory and the
//! embedded database. They are wired here and nowhere else, and are the same that a fleet runs.
//!
//! ```text
//! Embedded
//! ├── server     (scheduler, recorder, reconciler)          ends last
//! ├── executor   (one session, its sandboxes)               drained first
//! └── reconcile  (what processes have left that are dead)   beside
//! ```

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use mayfly_core::{
    chain::Chain,
    clock::Clock,
    digest::Salt,
    id::{BatchId, ExecutorId, JobId, TenantId},
    job::{ResolvedJob, Times},
};
use mayfly_dispatch::{
    executor::Config,
    ledger::Context,
    message::{ExecutorFacts, VERSION},
    timing::Timing,
    token::TokenKey,
};
use mayfly_executor::{Executor, ExecutorParts, Listeners, Outside, RunId};
use mayfly_queue::{
    memory::{Limits, MemoryQueue},
    seam::Queue,
};
use mayfly_sandbox::{
    pool::{PoolCounts, WarmPool},
    seam::{LiveOutput, Sandbox},
};
use mayfly_server::{Server, ServerParts};
use mayfly_store::{
    error::StoreError,
    records::{BatchPlace, CancelAnswer, JobDetails, NewJob},
    seam::Store,
};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    exit,
    failure::Failure,
    processes::{
        ProcessLock, Processes,
        reconcile::{Reconcile, pool_of},
    },
};

mod blobs;

use blobs::StoreBlobs;

/// How long the roles may take to end once they are asked to.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The roles, running.
pub struct Embedded {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pool: String,
    executor_id: ExecutorId,
    server: Arc<Server>,
    tasks: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
    stop_server: CancellationToken,
    stop_reconcile: CancellationToken,
    executor: JoinHandle<()>,
    server_task: JoinHandle<()>,
    /// That this process lives.
    lock: Arc<ProcessLock>,
    /// Looked at only: the pool ends with the executor.
    warm: Option<Weak<WarmPool>>,
    #[cfg(feature = "fleet")]
    vault: Option<Arc<mayfly_vault::Vault>>,
}

/// Ends the executor's work.
#[derive(Debug, Clone)]
pub struct Brake {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Brake {
    /// Nothing new is taken; what runs goes on to its end.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// What runs is given up.
    pub fn abort(&self) {
        self.abort.cancel();
    }
}

/// A job on its way in.
#[derive(Debug)]
pub struct Submission {
    /// All that it is.
    pub resolved: ResolvedJob,
    /// The submitter's own labels.
    pub labels: BTreeMap<String, String>,
    /// Higher goes first.
    pub priority: i16,
    /// When it may start, and when it has waited too long.
    pub times: Times,
    /// Whether its content is kept after its end.
    pub retain_source: bool,
}

/// What the roles are made of.
pub struct EmbeddedParts {
    /// Who the executor is: an id that nobody has used before.
    pub executor: ExecutorId,
    /// Where each process on this database has the file that says that it lives.
    pub processes: PathBuf,
    /// Where containers are made, so that another process knows whether it can remove them: engine and deployment.
    pub containers_at: String,
    /// The database.
    pub store: Arc<dyn Store>,
    /// Where sandboxes come from.
    pub sandbox: Arc<dyn Sandbox>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// What named secrets are sealed with, where any may be kept.
    #[cfg(feature = "fleet")]
    pub vault: Option<Arc<mayfly_vault::Vault>>,
    /// What jobs may reach outside of their sandboxes.
    pub outside: Outside,
    /// Who hears the jobs' output.
    pub listeners: Arc<dyn Listeners>,
    /// The host, for the record.
    pub facts: ExecutorFacts,
    /// Jobs that run at a time.
    pub slots: u32,
}

/// Hears every job.
pub struct OneListener(pub Arc<dyn LiveOutput>);

impl Listeners for OneListener {
    fn listener(&self, _: RunId) -> Arc<dyn LiveOutput> {
        Arc::clone(&self.0)
    }
}

/// The times of roles that share a process: a request to end a job travels with a heartbeat, so that they come often.
fn timing() -> Timing {
    Timing {
        heartbeat_every: Duration::from_secs(1),
        ..Timing::standard()
    }
}

/// 32 bytes that nobody can guess.
pub(crate) fn secret() -> [u8; 32] {
    let (a, b) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let (c, d) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    // A version 4 UUID has 122 random bits; hashed together, four of them are 32 bytes of full strength.
    let random: Vec<u8> = [a, b, c, d].iter().flat_map(|id| *id.as_bytes()).collect();
    *mayfly_core::digest::Digest::of(&random).as_bytes()
}

impl Embedded {
    /// Starts the roles.
    ///
    /// # Errors
    /// A queue that can't be declared, a file that can't be made.
    pub async fn start(parts: EmbeddedParts) -> Result<Self, Failure> {
        let executor_id = parts.executor;
        let processes = Processes::in_folder(parts.processes);
        // Before the first row: from here on everybody sees that this process lives.
        let lock = processes
            .begin(executor_id, &parts.containers_at)
            .map_err(|error| {
                let error = anyhow::Error::new(error).context("the file that says that this process lives");
                Failure::new(exit::NO_STORE, error)
            })?;
        let lock = Arc::new(lock);
        // A pool of this process alone: another process on the same database never gets its jobs.
        let pool = pool_of(executor_id);
        let queue: Arc<dyn Queue> = Arc::new(MemoryQueue::new(Limits::standard()));
        queue
            .declare(&pool)
            .await
            .map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let server = Arc::new(Server::new(ServerParts {
            blobs: None,
            store: Arc::clone(&parts.store),
            queue: Arc::clone(&queue),
            clock: Arc::clone(&parts.clock),
            pool: pool.clone(),
            timing: timing(),
            key: TokenKey::from_bytes(secret()),
        }));
        server
            .declare()
            .await
            .map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let executor = Executor::new(ExecutorParts {
            config: Config {
                executor: executor_id,
                pool: pool.clone(),
                slots: parts.slots,
                facts: ExecutorFacts {
                    build: env!("CARGO_PKG_VERSION").to_owned(),
                    reads: VERSION,
                    ..parts.facts
                },
                timing: timing(),
            },
            queue,
            sandbox: Arc::clone(&parts.sandbox),
            clock: Arc::clone(&parts.clock),
            listeners: parts.listeners,
            blobs: Arc::new(StoreBlobs {
                store: Arc::clone(&parts.store),
                #[cfg(feature = "fleet")]
                clock: Arc::clone(&parts.clock),
                #[cfg(feature = "fleet")]
                vault: parts.vault.clone(),
            }),
            outside: parts.outside,
            self_tests: None,
        });
        let (drain, abort, stop_server) = (
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let tasks = TaskTracker::new();
        let server_task = tasks.spawn({
            let (server, stop) = (Arc::clone(&server), stop_server.clone());
            async move {
                if let Err(error) = server.run(stop).await {
                    tracing::error!(error = %Chain(&error), "the server has failed");
                }
            }
        });
        let executor = tasks.spawn({
            let (drain, abort, lock) = (drain.clone(), abort.clone(), Arc::clone(&lock));
            async move {
                executor.run(drain, abort).await;
                // Whatever becomes of the rest of this process: it lives for as long as this does.
                drop(lock);
            }
        });
        let reconcile = Reconcile {
            processes,
            own: executor_id,
            containers_at: parts.containers_at,
            store: Arc::clone(&parts.store),
            sandbox: parts.sandbox,
            server: Arc::clone(&server),
        };
        let stop_reconcile = CancellationToken::new();
        tasks.spawn(reconcile.run(stop_reconcile.clone()));
        Ok(Self {
            #[cfg(feature = "fleet")]
            vault: parts.vault,
            store: parts.store,
            clock: parts.clock,
            pool,
            executor_id,
            server,
            tasks,
            drain,
            abort,
            stop_server,
            stop_reconcile,
            executor,
            server_task,
            lock,
            warm: None,
        })
    }

    /// Whose the sandboxes are, by their labels.
    pub(crate) const fn executor(&self) -> ExecutorId {
        self.executor_id
    }

    /// The pool of this process, which jobs go to.
    #[cfg(feature = "fleet")]
    pub(crate) fn pool(&self) -> &str {
        &self.pool
    }

    /// What named secrets are sealed with.
    #[cfg(feature = "fleet")]
    pub(crate) fn vault(&self) -> Option<Arc<mayfly_vault::Vault>> {
        self.vault.clone()
    }

    /// Scheduler, recorder and reconciler.
    #[cfg(feature = "fleet")]
    pub(crate) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Does something beside the roles, which is waited for at their end.
    pub(crate) fn beside(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Accepts a job. When this returns it is in the database.
    ///
    /// # Errors
    /// Trouble with the database; the job is not accepted.
    pub async fn submit(&self, submission: Submission) -> Result<JobId, Failure> {
        let now = self.clock.now();
        let job = self.new_job(submission, None);
        let id = job.id;
        self.store.submit(job, now).await?;
        Ok(id)
    }

    /// Accepts jobs of a batch, each for the item of this name. When this returns they are in the database; an item that
    /// was there before is the job that it was.
    ///
    /// # Errors
    /// Trouble with the database; none of them is accepted.
    pub async fn submit_items(
        &self,
        batch: BatchId,
        items: Vec<(String, Submission)>,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let jobs = items
            .into_iter()
            .map(|(item, submission)| self.new_job(submission, Some(BatchPlace { batch, item })))
            .collect();
        self.store.submit_many(jobs, now).await.map(drop)
    }

    fn new_job(&self, submission: Submission, batch: Option<BatchPlace>) -> NewJob {
        NewJob {
            id: JobId::new(),
            tenant: TenantId::LOCAL,
            pool: self.pool.clone(),
            resolved: Arc::new(submission.resolved),
            labels: submission.labels,
            priority: submission.priority,
            not_before: submission.times.not_before,
            expires_at: submission.times.expires_at,
            retain_source: submission.retain_source,
            salt: Salt::from_bytes(secret()),
            batch,
            idempotency: None,
        }
    }

    /// Takes over the jobs of a batch that processes which are dead have left. Says whether that is all of them: what such
    /// a process had started is over only once its session is.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn adopt(&self, batch: BatchId) -> Result<bool, StoreError> {
        let mut is_all = true;
        for pool in self.store.batch_pools(TenantId::LOCAL, batch).await? {
            if pool == self.pool {
                continue;
            }
            let context = self.server.context();
            let adopted = self
                .store
                .adopt(TenantId::LOCAL, batch, &pool, &self.pool, &context);
            match adopted.await {
                Ok(_) => {}
                Err(StoreError::PoolIsLive(_)) => is_all = false,
                Err(error) => return Err(error),
            }
        }
        Ok(is_all)
    }

    /// Waits until a job has ended.
    ///
    /// # Errors
    /// Trouble with the database.
    ///
    /// # Cancel safety
    /// Nothing is lost; call it again.
    pub async fn wait(&self, job: JobId) -> Result<JobDetails, Failure> {
        let mut commits = self.store.commits();
        loop {
            commits.borrow_and_update();
            let found = self.store.find_job(TenantId::LOCAL, job).await?;
            let details = found.ok_or(StoreError::NoSuchJob(job))?;
            if details.job.state.end().is_some() {
                return Ok(details);
            }
            if self.executor.is_finished() || self.server_task.is_finished() {
                let error = anyhow::anyhow!("a role has ended before job {job} had; the log lines say why");
                return Err(Failure::new(exit::INTERNAL, error));
            }
            // The timer is for the end of a role, which commits nothing.
            let changed = tokio::time::timeout(Duration::from_secs(1), commits.changed());
            if let Ok(Err(_)) = changed.await {
                return Err(Failure::new(
                    exit::INTERNAL,
                    anyhow::anyhow!("the database was closed"),
                ));
            }
        }
    }

    /// Asks for a job's end.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn cancel(&self, job: JobId) -> Result<CancelAnswer, Failure> {
        Ok(self
            .store
            .cancel(TenantId::LOCAL, job, &self.server.context())
            .await?)
    }

    /// Kills what runs, and says where a job stands then.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn abort(&self, job: JobId) -> Result<JobDetails, Failure> {
        self.abort.cancel();
        self.wait(job).await
    }

    /// Lets the executor take nothing new; what it holds goes on.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// The same, knowing the pool that its sandboxes come from.
    pub(crate) fn with_pool(self, warm: Option<Weak<WarmPool>>) -> Self {
        Self { warm, ..self }
    }

    /// What has come of the pool of warm sandboxes, where there is one.
    pub(crate) fn pool_counts(&self) -> Option<PoolCounts> {
        Some(self.warm.as_ref()?.upgrade()?.counts())
    }

    /// What ends the executor's work, for whoever hears the signals.
    #[must_use]
    pub fn brake(&self) -> Brake {
        Brake {
            drain: self.drain.clone(),
            abort: self.abort.clone(),
        }
    }

    /// Whether a role has ended: the executor as it was asked to, or one of them in trouble. What the executor held is in
    /// the database then, unless the server was the one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.executor.is_finished() || self.server_task.is_finished()
    }

    /// Ends the roles: the executor finishes what it holds and delivers it, then the server goes.
    ///
    /// What has not finished in a minute is killed.
    pub async fn stop(mut self) {
        self.drain.cancel();
        self.stop_reconcile.cancel();
        let mut in_order = match tokio::time::timeout(STOP_LIMIT, &mut self.executor).await {
            Ok(ended) => went_well("executor", ended),
            Err(_) => {
                tracing::warn!("what the executor holds takes too long, and is killed");
                self.abort.cancel();
                end("executor", self.executor).await
            }
        };
        self.stop_server.cancel();
        in_order &= end("server", self.server_task).await;
        self.tasks.close();
        if tokio::time::timeout(STOP_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("what was done beside the roles has not ended in time");
        }
        if !in_order {
            // Something may run still. The lock, by which others know that, ends with the process; the file is left to
            // the next one.
            std::mem::forget(self.lock);
        } else if let Err(error) = self.lock.remove() {
            tracing::warn!(error = %Chain(&error), "the file of this process could not be removed");
        }
    }
}

/// Whether it has ended as it was asked to.
async fn end(role: &'static str, mut task: JoinHandle<()>) -> bool {
    match tokio::time::timeout(STOP_LIMIT, &mut task).await {
        Ok(ended) => went_well(role, ended),
        Err(_) => {
            tracing::error!(role, "the role did not end in time");
            task.abort();
            false
        }
    }
}

fn went_well(role: &'static str, ended: Result<(), JoinError>) -> bool {
    if let Err(error) = &ended {
        tracing::error!(role, error = %Chain(error), "the role has panicked");
    }
    ended.is_ok()
}

/// The context of a change that needs no role.
pub(crate) fn context(clock: &dyn Clock) -> Context {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    Context::new(
        clock.now().into(),
        timing(),
        TokenKey::from_bytes(secret()),
        random,
    )
}

/// Requests to end that this process gets: Ctrl-C, or SIGTERM. From its making on they don't end the process by
/// themselves.
pub(crate) struct Requests {
    #[cfg(unix)]
    signals: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            signals: {
                use tokio::signal::unix::{SignalKind, signal};
                signal(SignalKind::interrupt())
                    .ok()
                    .zip(signal(SignalKind::terminate()).ok())
            },
        }
    }

    /// Resolves at the next one.
    ///
    /// # Cancel safety
    /// None is lost.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some((interrupt, terminate)) = &mut self.signals {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler the signal ends the process, which closes the guest's stdin.
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves when this process is asked to end: Ctrl-C, or SIGTERM.
pub(crate) async fn asked_to_stop() {
    Requests::new().next().await;
}
