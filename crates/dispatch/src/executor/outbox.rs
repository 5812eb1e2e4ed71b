use std::collections::VecDeque;

use super::Publish;
use crate::message::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS, SessionEvent, encoded_bytes};

/// The numbered events of a session that no receipt covers. How many there are is bounded by what is held: an ask is
/// asked again only once a receipt covers it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Events up to this number are processed.
    receipt: u64,
    /// The event after the receipt, and those that follow it.
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    event: SessionEvent,
    bytes: usize,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here only.
    Unsent,
    /// Published, and not confirmed.
    InFlight(Publish),
    /// In the recorder's queue, or processed and nobody has told; unless the broker has lost it.
    Confirmed,
}

impl Outbox {
    /// Adds an event and returns its number.
    pub(super) fn push(&mut self, event: SessionEvent) -> u64 {
        let bytes = encoded_bytes(&event);
        self.entries.push_back(Entry {
            event,
            bytes,
            place: Place::Unsent,
        });
        self.last()
    }

    /// The number of the newest event.
    pub(super) fn last(&self) -> u64 {
        self.receipt + self.entries.len() as u64
    }

    pub(super) const fn receipt(&self) -> u64 {
        self.receipt
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.entries.iter().any(|entry| entry.place == Place::Unsent)
    }

    /// Whether a confirm of events is waited for.
    pub(super) fn is_under_way(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| matches!(entry.place, Place::InFlight(_)))
    }

    pub(super) fn all_confirmed(&self) -> bool {
        self.entries.iter().all(|entry| entry.place == Place::Confirmed)
    }

    /// The next events to be published, in one batch: the number of the first, and they.
    pub(super) fn take(&mut self, publish: Publish) -> Option<(u64, Vec<SessionEvent>)> {
        let skipped = self
            .entries
            .iter()
            .position(|entry| entry.place == Place::Unsent)?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        for entry in self.entries.iter_mut().skip(skipped) {
            let full = events.len() >= MAX_BATCH_EVENTS
                || (!events.is_empty() && bytes + entry.bytes > MAX_BATCH_BYTES);
            if entry.place != Place::Unsent || full {
                break;
            }
            entry.place = Place::InFlight(publish);
            bytes += entry.bytes;
            events.push(entry.event.clone());
        }
        Some((self.receipt + skipped as u64 + 1, events))
    }

    pub(super) fn confirmed(&mut self, publish: Publish) {
        self.move_all(|place| place == Place::InFlight(publish), Place::Confirmed);
    }

    pub(super) fn failed(&mut self, publish: Publish) {
        self.move_all(|place| place == Place::InFlight(publish), Place::Unsent);
    }

    pub(super) fn disconnected(&mut self) {
        self.move_all(|place| matches!(place, Place::InFlight(_)), Place::Unsent);
    }

    /// Makes everything be published again that the broker has confirmed and may have lost.
    pub(super) fn send_again(&mut self) {
        self.move_all(|place| place == Place::Confirmed, Place::Unsent);
    }

    /// Forgets what is processed. A receipt for more than there is counts for what there is.
    pub(super) fn cover(&mut self, processed: u64) {
        while self.receipt < processed && self.entries.pop_front().is_some() {
            self.receipt += 1;
        }
    }

    /// Forgets everything: nobody wants it any more.
    pub(super) fn clear(&mut self) {
        self.cover(u64::MAX);
    }

    fn move_all(&mut self, from: impl Fn(Place) -> bool, to: Place) {
        for entry in self.entries.iter_mut().filter(|entry| from(entry.place)) {
            entry.place = to;
        }
    }
}
