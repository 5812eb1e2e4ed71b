use std::{collections::BTreeMap, time::Duration};

use super::Publish;
use crate::{time::BootTime, timing::Timing};

/// A session's lease, by the executor's clock. It runs from just before the newest heartbeat was published that the
/// broker has confirmed: the recorder processes that heartbeat later, so that its own count ends later.
#[derive(Debug)]
pub(super) struct Lease {
    timing: Timing,
    from: Option<BootTime>,
    unconfirmed: BTreeMap<Publish, BootTime>,
    last_beat: Option<BootTime>,
}

impl Lease {
    pub(super) const fn none(timing: Timing) -> Self {
        Self {
            timing,
            from: None,
            unconfirmed: BTreeMap::new(),
            last_beat: None,
        }
    }

    pub(super) fn published(&mut self, publish: Publish, now: BootTime) {
        self.unconfirmed.insert(publish, now);
        self.last_beat = Some(now);
    }

    pub(super) fn confirmed(&mut self, publish: Publish) {
        if let Some(at) = self.unconfirmed.remove(&publish) {
            self.from = self.from.max(Some(at));
        }
    }

    pub(super) fn failed(&mut self, publish: Publish) {
        if self.unconfirmed.remove(&publish).is_some() {
            self.last_beat = None;
        }
    }

    pub(super) fn disconnected(&mut self) {
        self.unconfirmed.clear();
        self.last_beat = None;
    }

    pub(super) fn beat_due_at(&self) -> BootTime {
        self.last_beat
            .map_or(Duration::ZERO, |last| last + self.timing.heartbeat_every)
    }

    /// When everything that is held has to be given up. None before the first confirm: nothing is held then.
    pub(super) fn give_up_at(&self) -> Option<BootTime> {
        self.from
            .map(|from| from + self.timing.lease.saturating_sub(self.timing.kill_margin))
    }

    /// Whether something may be held, or asked for.
    pub(super) fn is_live(&self, now: BootTime) -> bool {
        self.give_up_at().is_some_and(|end| now < end)
    }

    /// Whether the lease lasts for longer than this.
    pub(super) fn outlasts(&self, time: Duration, now: BootTime) -> bool {
        self.from
            .is_some_and(|from| now + time < from + self.timing.lease)
    }
}
