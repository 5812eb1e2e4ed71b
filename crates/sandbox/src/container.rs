//! A container of ours, until it is gone.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    docker::Shared,
    error::{EngineError, chain},
    reaper::HeldSandbox,
    uids::UidLease,
};

/// The wait between two tries at a removal, at first and at most; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Tries at a removal that the engine does not answer, about ten minutes of them; then the reaper has it.
const MOST_TRIES: u32 = 120;
/// How long the end of everything waits for removals that are owed.
const LAST_LIMIT: Duration = Duration::from_secs(5);

/// A container of ours and the uids that nobody else has while it is there.
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) lease: UidLease,
    /// It is ours for as long as this lives.
    _held: HeldSandbox,
}

/// How many containers an engine that does not answer has not removed yet.
#[derive(Debug, Default)]
pub(crate) struct Owed(watch::Sender<usize>);

impl Container {
    pub(crate) const fn new(id: String, lease: UidLease, held: HeldSandbox) -> Self {
        Self {
            id,
            lease,
            _held: held,
        }
    }

    /// Destroys it. An engine that does not answer is told again once it does, beside everything else; what it refuses
    /// to remove is left to the reaper, and its uids rest.
    pub(crate) async fn remove(self, shared: &Arc<Shared>) {
        match shared.engine.remove(&self.id).await {
            Ok(()) => self.lease.free(),
            Err(error) if error.may_pass() => {
                tracing::debug!(container = self.id, error = chain(&error), "a removal is owed");
                shared.owed.0.send_modify(|count| *count += 1);
                let later = Arc::clone(shared);
                shared.tasks.spawn(async move {
                    self.remove_later(&later).await;
                    later.owed.0.send_modify(|count| *count -= 1);
                });
            }
            Err(error) => self.leave(&error),
        }
    }

    async fn remove_later(self, shared: &Shared) {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match shared.engine.remove(&self.id).await {
                Ok(()) => return self.lease.free(),
                Err(error) if error.may_pass() && attempt < MOST_TRIES => {}
                Err(error) => return self.leave(&error),
            }
        }
    }

    fn leave(self, error: &EngineError) {
        tracing::warn!(
            container = self.id,
            error = chain(error),
            "a container could not be removed; it is left to the reaper"
        );
    }
}

impl Owed {
    /// Waits until nothing is owed, within a bound.
    pub(crate) async fn paid(&self) {
        let mut owed = self.0.subscribe();
        let paid = owed.wait_for(|count| *count == 0);
        if !matches!(tokio::time::timeout(LAST_LIMIT, paid).await, Ok(Ok(_))) {
            tracing::warn!(
                containers = *self.0.borrow(),
                "the engine does not answer, and has containers that are still to be removed"
            );
        }
    }
}
