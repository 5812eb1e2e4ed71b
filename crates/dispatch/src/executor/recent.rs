use std::collections::{BTreeSet, VecDeque};

use mayfly_core::id::AttemptId;

/// Attempts that a session has had. Forgetting one is safe: the server denies what is over.
#[derive(Debug, Default)]
pub(super) struct Recent {
    order: VecDeque<AttemptId>,
    set: BTreeSet<AttemptId>,
}

/// How many are remembered.
const MOST: usize = 4096;

impl Recent {
    pub(super) fn insert(&mut self, attempt: AttemptId) {
        if self.set.insert(attempt) {
            self.order.push_back(attempt);
        }
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.set.remove(&oldest);
            }
        }
    }

    pub(super) fn contains(&self, attempt: AttemptId) -> bool {
        self.set.contains(&attempt)
    }
}
