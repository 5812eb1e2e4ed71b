//! How much is kept of each kind, in which queue and in whose hands it may be.

use super::super::{Limit, Limits};
use crate::seam::Origin;

pub(super) struct Usage {
    jobs: Used,
    events: Used,
}

struct Used {
    limit: Limit,
    messages: usize,
    bytes: usize,
}

impl Usage {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            jobs: Used::nothing(limits.jobs),
            events: Used::nothing(limits.events),
        }
    }

    /// Counts a message, if there is room for it.
    pub(super) fn admit(&mut self, to: &Origin, bytes: usize) -> bool {
        let used = self.of(to);
        let fits =
            used.messages < used.limit.messages && bytes <= used.limit.bytes.saturating_sub(used.bytes);
        if fits {
            used.messages += 1;
            used.bytes += bytes;
        }
        fits
    }

    /// A message that was counted is no more.
    pub(super) fn release(&mut self, from: &Origin, bytes: usize) {
        let used = self.of(from);
        used.messages = used.messages.saturating_sub(1);
        used.bytes = used.bytes.saturating_sub(bytes);
    }

    pub(super) fn reset(&mut self) {
        self.jobs = Used::nothing(self.jobs.limit);
        self.events = Used::nothing(self.events.limit);
    }

    const fn of(&mut self, queue: &Origin) -> &mut Used {
        match queue {
            Origin::Jobs { .. } => &mut self.jobs,
            Origin::Events { .. } => &mut self.events,
        }
    }
}

impl Used {
    const fn nothing(limit: Limit) -> Self {
        Self {
            limit,
            messages: 0,
            bytes: 0,
        }
    }
}
