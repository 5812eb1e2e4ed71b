//! Uids of sandboxes: a pair for each that is alive, so that no two of a host share what the kernel counts by uid.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::seam::UidRange;

/// How long a pair rests whose container may still be there: longer than a guest lives without its executor.
const REST: Duration = Duration::from_secs(60);

/// The two users of one sandbox. Each is its own group too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UidPair {
    /// The guest's.
    pub(crate) guest: u32,
    /// The job's.
    pub(crate) job: u32,
}

/// The pairs of one executor.
#[derive(Debug)]
pub(crate) struct Uids {
    pairs: u32,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    free: VecDeque<UidPair>,
    resting: Vec<(Instant, UidPair)>,
}

/// A pair that is taken. Dropping it lets the pair rest; [`UidLease::free`] gives it back at once.
#[derive(Debug)]
pub(crate) struct UidLease {
    pair: UidPair,
    from: Arc<Uids>,
    removed: bool,
}

impl Uids {
    pub(crate) fn new(range: UidRange) -> Arc<Self> {
        let pairs = range.count / 2;
        let free = (0..pairs)
            .map(|n| UidPair {
                guest: range.first + 2 * n,
                job: range.first + 2 * n + 1,
            })
            .collect();
        Arc::new(Self {
            pairs,
            state: Mutex::new(State {
                free,
                resting: Vec::new(),
            }),
            freed: Notify::new(),
        })
    }

    /// How many sandboxes can live at once.
    pub(crate) fn pairs(&self) -> u32 {
        self.pairs
    }

    /// A pair that no other sandbox has: containers that are being destroyed give theirs back in a moment. `None` where
    /// there is none within the limit.
    pub(crate) async fn wait(self: &Arc<Self>, limit: Duration) -> Option<UidLease> {
        let end = Instant::now() + limit;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before the look, so that a pair that is freed in between is not missed.
            freed.as_mut().enable();
            let now = Instant::now();
            if let Some(lease) = self.take(now) {
                return Some(lease);
            }
            if now >= end {
                return None;
            }
            // Nobody tells of a pair that has rested for long enough.
            let next = self.next_rested().map_or(end, |rested| rested.min(end));
            tokio::time::timeout(next.saturating_duration_since(now), freed)
                .await
                .ok();
        }
    }

    fn next_rested(&self) -> Option<Instant> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.resting.iter().map(|(until, _)| *until).min()
    }

    /// A pair that no other sandbox has, if there is one.
    pub(crate) fn take(self: &Arc<Self>, now: Instant) -> Option<UidLease> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rested: Vec<_> = state.resting.extract_if(.., |(until, _)| *until <= now).collect();
        state.free.extend(rested.into_iter().map(|(_, pair)| pair));
        // The one that has been free longest.
        let pair = state.free.pop_front()?;
        Some(UidLease {
            pair,
            from: Arc::clone(self),
            removed: false,
        })
    }
}

impl UidLease {
    pub(crate) fn pair(&self) -> UidPair {
        self.pair
    }

    /// Gives the pair back: its container is gone.
    pub(crate) fn free(mut self) {
        self.removed = true;
    }
}

impl Drop for UidLease {
    fn drop(&mut self) {
        let mut state = self.from.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.removed {
            state.free.push_back(self.pair);
            self.from.freed.notify_one();
        } else {
            state.resting.push((Instant::now() + REST, self.pair));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn uids(count: u32) -> Arc<Uids> {
        Uids::new(UidRange { first: 20_000, count })
    }

    #[test]
    fn no_uid_is_given_twice_and_all_stay_in_the_range() {
        let uids = uids(9);
        let leases: Vec<_> = std::iter::from_fn(|| uids.take(Instant::now())).collect();
        assert_eq!(leases.len(), 4);
        let all: HashSet<_> = leases
            .iter()
            .flat_map(|lease| [lease.pair().guest, lease.pair().job])
            .collect();
        assert_eq!(all.len(), 8);
        assert!(all.iter().all(|uid| (20_000..20_009).contains(uid)));
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_next_pair_that_is_free_and_no_one_waits_for_ever() {
        let uids = uids(2);
        let held = uids.wait(REST).await.unwrap();
        let waiting = async { uids.wait(REST).await.map(UidLease::free) };
        let releasing = async {
            tokio::task::yield_now().await;
            held.free();
        };
        assert_eq!(tokio::join!(waiting, releasing).0, Some(()));
        let _held = uids.take(Instant::now()).unwrap();
        assert!(uids.wait(Duration::from_millis(20)).await.is_none());
    }

    #[test]
    fn a_pair_comes_back_at_once_when_its_container_is_gone_and_rests_otherwise() {
        let uids = uids(2);
        let now = Instant::now();
        uids.take(now).unwrap().free();
        let lease = uids.take(now).unwrap();
        drop(lease);
        assert!(uids.take(now).is_none());
        assert!(uids.take(now + REST + Duration::from_secs(5)).is_some());
    }
}
