//! Whoever waits for a job: woken by the store's commits. However many wait, there is one look at the store for each
//! wake-up, and no more of them at once than one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mayfly_core::{
    chain::Chain,
    id::{JobId, TenantId},
};
use mayfly_store::{
    error::StoreError,
    records::JobStanding,
    seam::{MAX_PAGE, Store},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// A look without a wake-up, in case one was lost on its way from another process.
const TIMER: Duration = Duration::from_secs(5);
/// Longest pause between two looks: each is followed by one as long as it took itself, so that looking takes at most
/// half of a connection, and a look finds what several commits have changed.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

/// What is known of a job that somebody waits for: nothing before the first look at it.
pub(crate) type Seen = Option<JobStanding>;

/// Everybody who waits.
pub(crate) struct Waiters {
    store: Arc<dyn Store>,
    waiting: Mutex<HashMap<(TenantId, JobId), watch::Sender<Seen>>>,
    /// Somebody new waits, and has seen nothing yet.
    joined: Notify,
}

impl Waiters {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            waiting: Mutex::new(HashMap::new()),
            joined: Notify::new(),
        }
    }

    /// Begins to wait for a job. What the receiver shows is never older than this call.
    pub(crate) fn join(&self, tenant: TenantId, job: JobId) -> watch::Receiver<Seen> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = waiting
            .entry((tenant, job))
            .or_insert_with(|| watch::Sender::new(None));
        let receiver = sender.subscribe();
        drop(waiting);
        self.joined.notify_one();
        receiver
    }

    /// Waits until a job is over, or the time has passed.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn over(&self, tenant: TenantId, job: JobId, limit: Duration, stop: &CancellationToken) {
        let mut seen = self.join(tenant, job);
        let over = seen.wait_for(|seen| seen.is_some_and(|standing| standing.state.end().is_some()));
        tokio::select! {
            _ = tokio::time::timeout(limit, over) => {}
            () = stop.cancelled() => {}
        }
    }

    /// Looks whenever something was committed, until it is asked to stop.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut commits = self.store.commits();
        loop {
            let begun = Instant::now();
            let pause = match self.look().await {
                Ok(()) => begun.elapsed().min(LONGEST_PAUSE),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "how jobs stand could not be read for whoever waits");
                    AFTER_TROUBLE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                changed = commits.changed() => if changed.is_err() { return },
                () = self.joined.notified() => {}
                () = tokio::time::sleep(TIMER) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn look(&self) -> Result<(), StoreError> {
        let page = usize::try_from(MAX_PAGE).unwrap_or(usize::MAX);
        for (tenant, jobs) in self.asked() {
            for jobs in jobs.chunks(page) {
                let standings = self.store.job_standings(tenant, jobs).await?;
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                for standing in standings {
                    if let Some(sender) = waiting.get(&(tenant, standing.id)) {
                        sender.send_if_modified(|seen| {
                            let news = *seen != Some(standing);
                            *seen = Some(standing);
                            news
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The jobs that somebody waits for, by tenant; others are forgotten.
    fn asked(&self) -> HashMap<TenantId, Vec<JobId>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        let mut asked: HashMap<_, Vec<_>> = HashMap::new();
        for (tenant, job) in waiting.keys() {
            asked.entry(*tenant).or_default().push(*job);
        }
        asked
    }
}
