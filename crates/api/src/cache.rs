//! What was just read from the store, for as long as that is good enough.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Most entries. One more, and all are read again: that costs one read each, and no look through all of them.
const MOST: usize = 4096;

/// Values that are taken for true for a while after they were read.
pub(crate) struct Fresh<K, V> {
    keep: Duration,
    entries: Mutex<HashMap<K, (Duration, V)>>,
}

impl<K: Eq + Hash, V: Clone> Fresh<K, V> {
    pub(crate) fn new(keep: Duration) -> Self {
        Self {
            keep,
            entries: Mutex::new(HashMap::new()),
        }
    }

    /// What was read no longer ago than it keeps, at a moment of a clock that never goes back.
    pub(crate) fn get(&self, key: &K, now: Duration) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, value) = entries.get(key)?;
        (now.saturating_sub(*read_at) < self.keep).then(|| value.clone())
    }

    /// Takes note of what a read that began at `read_at` has found.
    pub(crate) fn put(&self, key: K, value: V, read_at: Duration) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MOST {
            entries.clear();
        }
        entries.insert(key, (read_at, value));
    }

    /// Forgets what was read.
    pub(crate) fn forget(&self, key: &K) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_or_forgotten_is_read_again_and_memory_has_a_bound() {
        let fresh = Fresh::new(Duration::from_secs(1));
        let at = Duration::from_millis;
        fresh.put(1, "a", at(0));
        assert_eq!(fresh.get(&1, at(999)), Some("a"));
        assert_eq!(fresh.get(&1, at(1000)), None);
        fresh.put(1, "b", at(1000));
        fresh.forget(&1);
        assert_eq!(fresh.get(&1, at(1000)), None);
        for key in 0..100_000 {
            fresh.put(key, "c", at(2000));
        }
        assert!(fresh.entries.lock().unwrap().len() <= MOST);
        fresh.put(7_000_000, "d", at(5000));
        assert_eq!(fresh.get(&7_000_000, at(5000)), Some("d"));
    }
}
