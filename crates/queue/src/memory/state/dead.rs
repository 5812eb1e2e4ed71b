//! The dead letters. They go on counting as what they were: a heap of dead jobs keeps out further jobs, until somebody
//! looks at it, and never the events.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Notify;

use super::{Message, Over, Post, State, name};
use crate::seam::{DeadLetter, DeliveryTag, Origin, QueueError, SettleError, WhyDead};

pub(super) struct Letter {
    origin: Origin,
    why: WhyDead,
    post: Post,
}

pub(super) struct Reader {
    in_hands: BTreeMap<u64, Letter>,
    wake: Arc<Notify>,
}

impl State {
    /// Sets a message aside. Where everything is gone, so is it.
    pub(super) fn bury(&mut self, origin: Origin, why: WhyDead, message: Message) {
        let place = self.number();
        let Some(dead) = self.dead.as_mut() else {
            self.forget(&origin, &message);
            return;
        };
        tracing::warn!(why = ?why, from = name(&origin), "a message is a dead letter");
        let post = message.post;
        dead.insert(place, Letter { origin, why, post });
        self.wake_readers();
    }

    pub(in crate::memory) fn read_dead(&mut self, wake: Arc<Notify>) -> Result<u64, QueueError> {
        if self.dead.is_none() {
            return Err(QueueError::NoQueue {
                queue: "mayfly.dead".into(),
            });
        }
        let reader = self.number();
        let in_hands = BTreeMap::new();
        self.readers.insert(reader, Reader { in_hands, wake });
        Ok(reader)
    }

    /// The oldest one that nobody has in hands.
    pub(in crate::memory) fn take_dead(&mut self, reader: u64) -> Result<Option<DeadLetter>, Over> {
        let reader = self.readers.get_mut(&reader).ok_or(Over::Disconnected)?;
        let Some((place, letter)) = self.dead.as_mut().and_then(BTreeMap::pop_first) else {
            return Ok(None);
        };
        let shown = DeadLetter {
            tag: DeliveryTag(place),
            origin: letter.origin.clone(),
            why: letter.why.clone(),
            sender: letter.post.by.map_or_else(String::new, |by| by.to_string()),
            bytes: letter.post.bytes.to_vec(),
        };
        reader.in_hands.insert(place, letter);
        Ok(Some(shown))
    }

    pub(in crate::memory) fn discard(&mut self, reader: u64, place: u64) -> Result<(), SettleError> {
        let Some(state) = self.readers.get_mut(&reader) else {
            return Err(SettleError::Disconnected { cause: None });
        };
        let letter = state.in_hands.remove(&place).ok_or(SettleError::NotOutstanding)?;
        self.usage.release(&letter.origin, letter.post.bytes.len());
        Ok(())
    }

    /// A reader is gone; what it had and has not settled is there again, in its place.
    pub(in crate::memory) fn drop_reader(&mut self, reader: u64) {
        let Some(state) = self.readers.remove(&reader) else {
            return;
        };
        state.wake.notify_one();
        if let Some(dead) = self.dead.as_mut() {
            dead.extend(state.in_hands);
            self.wake_readers();
        }
    }

    fn wake_readers(&self) {
        for reader in self.readers.values() {
            reader.wake.notify_one();
        }
    }
}
