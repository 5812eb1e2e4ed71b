//! Uploads that nobody has used for long are removed, and so are those that broke off.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use mayfly_core::{chain::Chain, clock::Clock};
use mayfly_store::{seam::Store, uploads::SWEPT_AT_ONCE};
use tokio_util::sync::CancellationToken;

/// The wait between two looks.
const EVERY: Duration = Duration::from_secs(600);

/// After so long an upload is not under way any more: twice as long as one may take.
const BROKEN_OFF: TimeDelta = TimeDelta::hours(2);

/// Removes what was not used for `keep` and what broke off, until nothing of it is left; how much it was. What can't be done now
/// is done the next time.
pub async fn sweep_uploads(store: &dyn Store, clock: &dyn Clock, keep: Duration) -> u64 {
    let now = clock.now();
    let keep = TimeDelta::from_std(keep).unwrap_or(TimeDelta::MAX);
    let unused_since = now
        .checked_sub_signed(keep)
        .unwrap_or(chrono::DateTime::<chrono::Utc>::MIN_UTC);
    let mut removed = 0;
    loop {
        match store.sweep_uploads(unused_since, now - BROKEN_OFF, now).await {
            Ok(swept) => {
                removed += swept;
                if swept < u64::from(SWEPT_AT_ONCE) {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "uploads could not be swept");
                break;
            }
        }
    }
    if removed > 0 {
        tracing::info!(removed, "uploads that nobody uses were removed");
    }
    removed
}

/// Does that now and from time to time, until it is stopped.
pub async fn keep_sweeping_uploads(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    keep: Duration,
    stop: CancellationToken,
) {
    loop {
        sweep_uploads(&*store, &*clock, keep).await;
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}
