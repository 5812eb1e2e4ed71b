//! The task that keeps the stock as it should be.

use std::sync::Arc;

use mayfly_core::chain::Chain;
use tokio::time::Instant;

use super::{
    LOOK_EVERY, Shared,
    stock::{Failed, Next, Report},
};
use crate::seam::SandboxRequest;

/// Until the pool is drained. Every task that it spawns ends by itself.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut look_at = Instant::now();
    while !shared.drain.is_cancelled() {
        let now = Instant::now();
        if now >= look_at {
            look_at = now + LOOK_EVERY;
            let out = shared.stock().look(now, |sandbox| sandbox.is_alive());
            for sandbox in out {
                shared.tasks.spawn(sandbox.discard());
            }
        }
        let next = shared.stock().next(now);
        let wake = match next {
            Next::Start { request, displaced } => {
                if let Some(displaced) = displaced {
                    shared.tasks.spawn(displaced.discard());
                }
                shared.tasks.spawn(make(Arc::clone(&shared), *request));
                continue;
            }
            Next::Wait(wake) => wake.map_or(look_at, |wake| wake.min(look_at)),
        };
        tokio::select! {
            () = shared.drain.cancelled() => {}
            () = shared.changed.notified() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
    let (rest, counts) = {
        let mut stock = shared.stock();
        (stock.drain(), stock.counts())
    };
    for sandbox in rest {
        shared.tasks.spawn(sandbox.discard());
    }
    tracing::info!(
        pool.hits = counts.hits,
        pool.misses = counts.misses.total(),
        misses.empty = counts.misses.empty,
        misses.unknown = counts.misses.unknown,
        misses.dead = counts.misses.dead,
        misses.too_long = counts.misses.too_long,
        pool.started = counts.started,
        pool.failed = counts.failed,
        discarded.aged = counts.discarded.aged,
        discarded.dead = counts.discarded.dead,
        discarded.displaced = counts.discarded.displaced,
        discarded.drained = counts.discarded.drained,
        "the pool of warm sandboxes is drained"
    );
}

/// Makes one sandbox for the stock.
async fn make(shared: Arc<Shared>, request: SandboxRequest) {
    let made = shared.inner.prepare(request.clone()).await;
    let (made, error) = match made {
        Ok(sandbox) => (Ok(sandbox), None),
        Err(error) => (Err(Failed::of(&error)), Some(error)),
    };
    let (unwanted, report) = shared.stock().made(&request, made, Instant::now());
    shared.changed.notify_one();
    match (report, error) {
        (Report::Began, Some(error)) => tracing::warn!(
            image = request.image.reference,
            runtime = request.runtime,
            error = %Chain(&error),
            "no warm sandboxes of this kind can be made; it is tried again, less and less often"
        ),
        (Report::Recovered, _) => tracing::info!(
            image = request.image.reference,
            runtime = request.runtime,
            "warm sandboxes of this kind can be made again"
        ),
        _ => {}
    }
    if let Some(sandbox) = unwanted {
        sandbox.discard().await;
    }
}
