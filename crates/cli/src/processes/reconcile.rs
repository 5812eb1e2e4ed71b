//! Ends what processes have left that are proven dead: their containers first, then the sessions and with them what they
//! had started, then the jobs that nobody waits for any more. Each step may be repeated, so that one who dies over it
//! leaves the rest to the next.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mayfly_core::{
    chain::Chain,
    id::{ExecutorId, SessionId},
};
use mayfly_dispatch::message::{EventBatch, ExecutorFacts, Inbound, Opened, SessionEvent, VERSION};
use mayfly_sandbox::seam::Sandbox;
use mayfly_server::Server;
use mayfly_store::{
    error::StoreError,
    records::{OpenPool, OpenSession},
    seam::Store,
};
use tokio_util::sync::CancellationToken;

use super::{ProcessLock, Processes, Taken};

/// How long guests may live without their executor, and some more for a clock that is read late.
const GUESTS_ARE_GONE: Duration = Duration::from_secs(12);
/// How long until a process is looked at again whose death is not proven yet.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Whoever ends what is left.
pub(crate) struct Reconcile {
    pub(crate) processes: Processes,
    /// This process.
    pub(crate) own: ExecutorId,
    /// Where the containers of this process are. Those of one that wrote down the same can be removed by it.
    pub(crate) containers_at: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) server: Arc<Server>,
}

/// What came of a look at a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing of it is left.
    Nothing,
    /// It has to be looked at again.
    Undecided,
}

/// Why it was not seen to.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the file of the process can't be used")]
    File(#[from] std::io::Error),
}

/// The pool of a process, which no other takes jobs from.
pub(crate) fn pool_of(executor: ExecutorId) -> String {
    format!("local-{executor}")
}

fn process_of(pool: &str) -> Option<ExecutorId> {
    pool.strip_prefix("local-")?.parse().ok()
}

impl Reconcile {
    /// Sees to every process that is dead, until none is left that may be, or `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            match self.all(&stop).await {
                Ok(Found::Nothing) => return,
                Ok(Found::Undecided) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "could not look for processes that are dead");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn all(&self, stop: &CancellationToken) -> Result<Found, Trouble> {
        let open = self.store.open_pools().await?;
        let mut all: BTreeSet<ExecutorId> = self.processes.all()?.into_iter().collect();
        all.extend(open.iter().filter_map(|open| process_of(&open.pool)));
        all.remove(&self.own);
        let mut found = Found::Nothing;
        for executor in all {
            match self.one(executor, stop).await {
                Ok(Found::Nothing) => {}
                Ok(Found::Undecided) => found = Found::Undecided,
                Err(error) => {
                    found = Found::Undecided;
                    tracing::warn!(
                        executor.id = %executor,
                        error = %Chain(&error),
                        "could not see to what a dead process has left"
                    );
                }
            }
        }
        Ok(found)
    }

    async fn one(&self, executor: ExecutorId, stop: &CancellationToken) -> Result<Found, Trouble> {
        let Taken::Free { lock, containers_at } = self.processes.take(executor)? else {
            // It lives; or it is dead and another one sees to it, which may die too, or give up at its own end.
            return Ok(Found::Undecided);
        };
        // Only now, when it can't do anything any more.
        let reachable = containers_at.as_ref() == Some(&self.containers_at);
        let Some(open) = self.open_of(executor).await? else {
            if reachable {
                // It had ended its session, and may have died before the last of its containers was gone.
                self.containers_are_gone(executor).await;
            }
            lock.remove()?;
            return Ok(Found::Nothing);
        };
        let now = self.server.context().now;
        let leased = |session: &OpenSession| now < session.lease_end.into();
        let leased = open.sessions.iter().any(leased);
        if containers_at.is_none() && leased {
            // Somebody may have removed the file of a process that lives; that one's lease does not end.
            lock.remove()?;
            return Ok(Found::Undecided);
        }
        tracing::info!(executor.id = %executor, "a process is dead; ending what it has left");
        let gone = reachable && self.containers_are_gone(executor).await;
        if !gone && leased {
            // Without their executor the guests end by themselves, and by the end of its lease they have.
            tokio::select! {
                () = tokio::time::sleep(GUESTS_ARE_GONE) => {}
                () = stop.cancelled() => return Ok(Found::Undecided),
            }
        }
        self.end(executor, &open, lock).await?;
        Ok(Found::Nothing)
    }

    async fn open_of(&self, executor: ExecutorId) -> Result<Option<OpenPool>, StoreError> {
        let pool = pool_of(executor);
        let open = self.store.open_pools().await?;
        Ok(open.into_iter().find(|open| open.pool == pool))
    }

    async fn containers_are_gone(&self, executor: ExecutorId) -> bool {
        match self.sandbox.remove_all_of(executor).await {
            Ok(swept) => swept.failed == 0,
            Err(error) => {
                tracing::warn!(
                    executor.id = %executor,
                    error = %Chain(&error),
                    "could not remove the containers of a dead process"
                );
                false
            }
        }
    }

    async fn end(&self, executor: ExecutorId, open: &OpenPool, lock: ProcessLock) -> Result<(), Trouble> {
        let pool = &open.pool;
        if !open.sessions.is_empty() {
            let inbound = [Inbound::Batch(Box::new(successor(executor, pool)))];
            let context = self.server.context();
            self.store.process(pool, &inbound, &context).await?;
        }
        let ended = self.store.end_orphans(pool, &self.server.context()).await?;
        lock.remove()?;
        tracing::info!(executor.id = %executor, jobs.ended = ended, "what a dead process had left is over");
        Ok(())
    }
}

/// A session that ends its predecessor by its beginning, and itself.
fn successor(executor: ExecutorId, pool: &str) -> EventBatch {
    let opened = Opened {
        slots: 1,
        pool: pool.to_owned(),
        facts: ExecutorFacts {
            build: env!("CARGO_PKG_VERSION").to_owned(),
            reads: VERSION,
            ..ExecutorFacts::default()
        },
    };
    EventBatch {
        v: VERSION,
        executor,
        session: SessionId::new(),
        first: 1,
        events: vec![SessionEvent::Opened(opened), SessionEvent::Closed],
        heartbeat: None,
    }
}
