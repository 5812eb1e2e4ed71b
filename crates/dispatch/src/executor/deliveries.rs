use mayfly_core::id::AttemptId;

use super::{Action, Delivery, Executor, attempts::Attempt};
use crate::{
    message::{DecodeError, DispatchMessage},
    rules::Rule,
    time::BootTime,
};

/// A delivery that waits for a free slot.
#[derive(Debug)]
pub(super) struct Waiting {
    delivery: Delivery,
    message: Box<DispatchMessage>,
    since: BootTime,
}

impl Executor {
    pub(super) fn delivered(
        &mut self,
        delivery: Delivery,
        message: Result<Box<DispatchMessage>, DecodeError>,
        now: BootTime,
    ) {
        match message {
            Ok(message) if self.has_had(message.attempt) => self.act(Action::Ack(delivery)),
            Ok(message) if self.takes_jobs(now) => {
                self.waiting.push_back(Waiting {
                    delivery,
                    message,
                    since: now,
                });
            }
            Ok(_) => self.act(Action::Return(delivery)),
            Err(DecodeError::NewerVersion { .. }) => {
                // Somebody newer can read it. Whoever sent it will send more of its kind.
                self.refuses_newer = true;
                self.act(Action::Return(delivery));
            }
            Err(
                DecodeError::NoVersion
                | DecodeError::TooLong { .. }
                | DecodeError::TooMany { .. }
                | DecodeError::Garbage(_),
            ) => self.act(Action::Reject(delivery)),
        }
    }

    /// Whether this session has had an attempt: a further copy of it needs no answer.
    fn has_had(&self, attempt: AttemptId) -> bool {
        let had =
            self.attempts.get(&attempt).is_some_and(Attempt::needs_no_ask) || self.recent.contains(attempt);
        had && self.rules.hold(Rule::CopiesAreAcked)
    }

    pub(super) fn takes_jobs(&self, now: BootTime) -> bool {
        let in_service = !self.attempts.values().any(Attempt::waits_for_engine);
        self.life.is_open()
            && self.lease.is_live(now)
            && self.leaving.is_none()
            && !self.cordoned
            && !self.refuses_newer
            && self.fitness.allows_jobs()
            && in_service
    }

    pub(super) fn free_slots(&self) -> u32 {
        let held = self.attempts.values().filter(|held| held.takes_slot()).count();
        let taken = held + self.fitness.slots();
        self.config
            .slots
            .saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    pub(super) fn deliveries_void(&mut self) {
        self.waiting.clear();
        for held in self.attempts.values_mut() {
            held.delivery = None;
        }
    }

    /// Gives free slots to what waits, hands back what has waited for too long, and wishes for more or for no more.
    pub(super) fn settle_deliveries(&mut self, now: BootTime) {
        let takes_jobs = self.takes_jobs(now);
        while takes_jobs && self.free_slots() > 0 {
            let Some(next) = self.waiting.pop_front() else {
                break;
            };
            if self.has_had(next.message.attempt) {
                self.act(Action::Ack(next.delivery));
            } else {
                self.take(Some(next.delivery), next.message, now);
            }
        }
        let mut full = false;
        while let Some(first) = self.waiting.front() {
            if takes_jobs && now < first.since + self.config.timing.slot_wait {
                break;
            }
            let delivery = first.delivery;
            self.waiting.pop_front();
            self.act(Action::Return(delivery));
            full = true;
        }
        self.wish(takes_jobs, full);
    }

    fn wish(&mut self, takes_jobs: bool, full: bool) {
        if self.consuming && (full || !takes_jobs) {
            self.consuming = false;
            self.act(Action::StopConsuming);
        } else if !self.consuming && takes_jobs && self.free_slots() > 0 {
            self.consuming = true;
            self.act(Action::StartConsuming);
        }
    }

    pub(super) fn next_return(&self) -> Option<BootTime> {
        self.waiting
            .front()
            .map(|first| first.since + self.config.timing.slot_wait)
    }
}
