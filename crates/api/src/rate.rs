//! How quickly a key may send requests: the generic cell rate algorithm (ITU-T I.371, annex A), one cell for each key.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A bound for each of many keys.
pub(crate) struct RateLimit<K> {
    /// The time that one request takes of a key's share.
    interval: Duration,
    /// How far ahead of that a key may be.
    tolerance: Duration,
    /// When each key's share is used up; those whose time has passed have all of it.
    cells: Mutex<Cells<K>>,
}

struct Cells<K> {
    used_until: HashMap<K, Duration>,
    /// Above so many those of keys that have been quiet are dropped.
    sweep_above: usize,
}

/// The least that cells are swept above. After a sweep it is twice what is left, so that sweeping costs a request the
/// same however many keys are busy.
const SWEEP_ABOVE: usize = 1024;

impl<K: Eq + Hash> RateLimit<K> {
    /// So many requests a second, and so many at once after a pause.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self {
            interval,
            tolerance: interval * burst.max(1),
            cells: Mutex::new(Cells {
                used_until: HashMap::new(),
                sweep_above: SWEEP_ABOVE,
            }),
        }
    }

    /// Counts one request of a key, at a moment of a clock that never goes back.
    ///
    /// # Errors
    /// How long the key has to wait; the request is not counted.
    pub(crate) fn take(&self, key: K, now: Duration) -> Result<(), Duration> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if cells.used_until.len() > cells.sweep_above {
            cells.used_until.retain(|_, used_until| *used_until > now);
            cells.sweep_above = SWEEP_ABOVE.max(2 * cells.used_until.len());
        }
        let used_until = cells.used_until.get(&key).copied().unwrap_or(now).max(now) + self.interval;
        match used_until.checked_sub(now + self.tolerance) {
            Some(ahead) if !ahead.is_zero() => Err(ahead),
            _ => {
                cells.used_until.insert(key, used_until);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn after_a_burst_a_key_goes_on_at_its_rate_and_others_are_not_held_up() {
        let limit = RateLimit::new(10, 3);
        let at = Duration::from_millis;
        for _ in 0..3 {
            assert_eq!(limit.take("a", at(0)), Ok(()));
        }
        assert_eq!(limit.take("a", at(0)), Err(at(100)));
        assert_eq!(limit.take("a", at(40)), Err(at(60)));
        assert_eq!(limit.take("b", at(40)), Ok(()));
        assert_eq!(limit.take("a", at(100)), Ok(()));
        assert_eq!(limit.take("a", at(100)), Err(at(100)));
        for _ in 0..3 {
            assert_eq!(limit.take("a", at(10_000)), Ok(()));
        }
        assert!(limit.take("a", at(10_000)).is_err());
    }

    #[test]
    fn keys_that_are_quiet_take_no_memory() {
        let limit = RateLimit::new(1000, 1);
        for key in 0..100_000_u32 {
            limit.take(key, Duration::from_millis(u64::from(key))).unwrap();
        }
        assert!(limit.cells.lock().unwrap().used_until.len() <= SWEEP_ABOVE + 1);
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_its_share(gaps in prop::collection::vec(0u64..300, 1..200)) {
            let limit = RateLimit::new(10, 5);
            let mut now = Duration::ZERO;
            let mut taken = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                if limit.take((), now).is_ok() {
                    taken.push(now);
                }
            }
            for (index, from) in taken.iter().enumerate() {
                for (count, until) in (1..).zip(&taken[index..]) {
                    let share = 5.0 + (*until - *from).as_secs_f64() * 10.0;
                    prop_assert!(f64::from(count) <= share + 1e-6, "{count} in {:?}", *until - *from);
                }
            }
        }
    }
}
