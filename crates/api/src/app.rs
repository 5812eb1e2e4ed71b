//! What every handler has.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{KeyId, TenantId},
    image::ImagePin,
};
use mayfly_store::accounts::KeyRecord;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{ApiParts, cache::Fresh, rate::RateLimit, waiters::Waiters};

/// How long what was read of a key counts: a key that is revoked by another replica opens nothing after that.
pub(crate) const KEY_IS_FRESH: Duration = Duration::from_secs(1);
/// How long what was read of the catalog counts.
const IMAGE_IS_FRESH: Duration = Duration::from_secs(1);

pub(crate) struct App {
    pub(crate) parts: ApiParts,
    /// A key that is on no record: whoever has it is in this process.
    pub(crate) own_key: Option<KeyRecord>,
    pub(crate) waiters: Waiters,
    pub(crate) keys: Fresh<KeyId, KeyRecord>,
    pub(crate) images: Fresh<String, ImagePin>,
    pub(crate) rate: RateLimit<KeyId>,
    /// Of requests whose key opens nothing, whoever they are from.
    pub(crate) failures: RateLimit<()>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// KiB of bodies that are in memory at once.
    pub(crate) bodies: Arc<Semaphore>,
    /// KiB of what archives expand to that are in memory at once.
    pub(crate) expanded: Arc<Semaphore>,
    /// Jobs whose archives are expanded at once: no more than there are processors, so that as many threads stay for
    /// everything else.
    pub(crate) expanding: Arc<Semaphore>,
    /// What is being waited for and streamed ends.
    pub(crate) stop: CancellationToken,
    /// What requests that were cut off leave to be done.
    pub(crate) cleaning: TaskTracker,
}

pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(parts: ApiParts, own_key: Option<KeyRecord>) -> Self {
        let limits = &parts.limits;
        let kib = |bytes: u64| usize::try_from(bytes.div_ceil(1024)).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            waiters: Waiters::new(Arc::clone(&parts.store)),
            keys: Fresh::new(KEY_IS_FRESH),
            images: Fresh::new(IMAGE_IS_FRESH),
            rate: RateLimit::new(limits.requests_per_second, limits.burst),
            failures: RateLimit::new(limits.failures_per_second, limits.failures_per_second),
            requests: Arc::new(Semaphore::new(limits.requests)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            bodies: Arc::new(Semaphore::new(
                kib(limits.bodies.as_bytes()).min(Semaphore::MAX_PERMITS),
            )),
            expanded: Arc::new(Semaphore::new(
                kib(limits.bodies.as_bytes()).min(Semaphore::MAX_PERMITS),
            )),
            expanding: Arc::new(Semaphore::new(
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            )),
            stop: CancellationToken::new(),
            cleaning: TaskTracker::new(),
            own_key,
            parts,
        }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.parts.clock.now()
    }

    /// By the clock that never goes back.
    pub(crate) fn moment(&self) -> Duration {
        self.parts.clock.since_boot()
    }

    pub(crate) async fn over(&self, tenant: TenantId, job: mayfly_core::id::JobId, limit: Duration) {
        self.waiters.over(tenant, job, limit, &self.stop).await;
    }
}
