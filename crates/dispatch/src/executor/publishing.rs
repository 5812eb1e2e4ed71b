use mayfly_core::id::SessionId;

use super::{Action, Executor, Publish};
use crate::{
    message::{EventBatch, Heartbeat, SessionEvent, VERSION},
    rest,
    rules::Rule,
    time::BootTime,
};

impl Executor {
    /// Publishes the events that are not under way, and a heartbeat where one is due.
    ///
    /// While events are under way further ones wait for their confirm, and then go out together, and after many of them
    /// there is a rest: the busier a session is the fewer messages an event costs. A heartbeat waits for no confirm, and
    /// all that stands before it goes out with it.
    pub(super) fn publish(&mut self, now: BootTime) {
        let Some(session) = self.life.session().filter(|_| self.connected) else {
            return;
        };
        let beats = self.life.beats() && self.lease.beat_due_at() <= now;
        if now < self.publish_after || (self.outbox.is_under_way() && !beats) {
            return;
        }
        let mut batches = Vec::new();
        loop {
            let publish = Publish(self.next_publish);
            let Some((first, events)) = self.outbox.take(publish) else {
                break;
            };
            self.next_publish += 1;
            batches.push((publish, self.batch(session, first, events)));
        }
        let events = batches.iter().map(|(_, batch)| batch.events.len()).sum();
        self.publish_after = now + rest::after(events);
        if beats {
            self.add_heartbeat(session, &mut batches, now);
        }
        let actions = batches
            .into_iter()
            .map(|(publish, batch)| Action::Publish { publish, batch });
        self.actions.extend(actions);
    }

    /// When something is to be published next.
    pub(super) fn next_publication(&self) -> Option<BootTime> {
        let beat = Some(self.lease.beat_due_at()).filter(|_| self.life.beats());
        let event =
            Some(self.publish_after).filter(|_| self.outbox.has_unsent() && !self.outbox.is_under_way());
        let next = beat.into_iter().chain(event).min()?.max(self.publish_after);
        (self.connected && self.life.session().is_some()).then_some(next)
    }

    /// A heartbeat stands after every event: on the last batch, or alone.
    fn add_heartbeat(&mut self, session: SessionId, batches: &mut Vec<(Publish, EventBatch)>, now: BootTime) {
        let last = self.outbox.last();
        if batches.last().is_none_or(|(_, batch)| batch.last() != last) {
            let publish = Publish(self.next_publish);
            self.next_publish += 1;
            batches.push((publish, self.batch(session, last + 1, Vec::new())));
        }
        let heartbeat = Heartbeat {
            held: self.named(),
            free_slots: self.free_slots(),
        };
        if let Some((publish, batch)) = batches.last_mut() {
            batch.heartbeat = Some(heartbeat);
            self.lease.published(*publish, now);
        }
    }

    fn batch(&self, session: SessionId, first: u64, events: Vec<SessionEvent>) -> EventBatch {
        EventBatch {
            v: events.iter().map(SessionEvent::version).max().unwrap_or(VERSION),
            executor: self.config.executor,
            session,
            first,
            events,
            heartbeat: None,
        }
    }

    /// The recorder misses events. At most one answer in a while makes them go out again: every batch behind the gap
    /// has such an answer.
    pub(super) fn send_again(&mut self, now: BootTime) {
        let again = self
            .sent_again_at
            .is_none_or(|last| now >= last + self.config.timing.resend_every);
        if again && self.rules.hold(Rule::KeptUntilReceipt) {
            self.sent_again_at = Some(now);
            self.outbox.send_again();
        }
    }
}
