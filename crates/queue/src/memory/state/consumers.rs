//! The consumers of events: one is active, the others wait for its end.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use mayfly_core::id::ExecutorId;
use tokio::sync::Notify;

use super::{Message, State, name};
use crate::seam::{Closed, MAX_TAKE_BYTES, Origin, QueueError, SettleError, WhyDead};

pub(in crate::memory) struct Consumer {
    pool: String,
    /// Taken and not settled, by tag.
    outstanding: BTreeMap<u64, Message>,
    over: Option<Over>,
    wake: Arc<Notify>,
}

/// How a consumer has ended that nobody asked to.
#[derive(Debug, Clone, Copy)]
pub(in crate::memory) enum Over {
    Cancelled,
    Disconnected,
}

impl From<Over> for Closed {
    fn from(over: Over) -> Self {
        match over {
            Over::Cancelled => Self::Cancelled,
            Over::Disconnected => Self::Disconnected { cause: None },
        }
    }
}

/// A message that was taken.
pub(in crate::memory) struct Taken {
    pub(in crate::memory) tag: u64,
    pub(in crate::memory) redelivered: bool,
    pub(in crate::memory) by: Option<ExecutorId>,
    pub(in crate::memory) reply_to: Option<u64>,
    pub(in crate::memory) bytes: Arc<[u8]>,
}

impl State {
    pub(in crate::memory) fn consume(&mut self, pool: &str, wake: Arc<Notify>) -> Result<u64, QueueError> {
        let consumer = self.number();
        let Some(events) = self.events.get_mut(pool) else {
            let queue = name(&Origin::Events {
                pool: pool.to_owned(),
            });
            return Err(QueueError::NoQueue { queue });
        };
        events.consumers.push_back(consumer);
        self.consumers.insert(
            consumer,
            Consumer {
                pool: pool.to_owned(),
                outstanding: BTreeMap::new(),
                over: None,
                wake,
            },
        );
        Ok(consumer)
    }

    /// What waits, if this consumer is the active one; nothing is taken from an empty queue.
    pub(in crate::memory) fn take(&mut self, consumer: u64, most: NonZeroUsize) -> Result<Vec<Taken>, Over> {
        let mut taken = Vec::new();
        let Some(state) = self.consumers.get_mut(&consumer) else {
            return Err(Over::Disconnected);
        };
        if let Some(over) = state.over {
            return Err(over);
        }
        let Some(events) = self.events.get_mut(&state.pool) else {
            return Ok(taken);
        };
        if events.consumers.front() != Some(&consumer) {
            return Ok(taken);
        }
        let mut bytes = 0;
        while taken.len() < most.get() && bytes < MAX_TAKE_BYTES {
            let Some((_, message)) = events.ready.pop_first() else {
                break;
            };
            self.last += 1;
            bytes += message.post.bytes.len();
            taken.push(Taken {
                tag: self.last,
                redelivered: message.redelivered(),
                by: message.post.by,
                reply_to: message.post.reply_to,
                bytes: Arc::clone(&message.post.bytes),
            });
            state.outstanding.insert(self.last, message);
        }
        Ok(taken)
    }

    pub(in crate::memory) fn ack_up_to(&mut self, consumer: u64, tag: u64) -> Result<(), SettleError> {
        let state = self.standing(consumer)?;
        if !state.outstanding.contains_key(&tag) {
            return Err(SettleError::NotOutstanding);
        }
        let later = state.outstanding.split_off(&(tag + 1));
        let acked = std::mem::replace(&mut state.outstanding, later);
        let from = Origin::Events {
            pool: state.pool.clone(),
        };
        for message in acked.into_values() {
            self.forget(&from, &message);
        }
        Ok(())
    }

    pub(in crate::memory) fn set_aside(
        &mut self,
        consumer: u64,
        tag: u64,
        reason: &str,
    ) -> Result<(), SettleError> {
        let state = self.standing(consumer)?;
        let message = state
            .outstanding
            .remove(&tag)
            .ok_or(SettleError::NotOutstanding)?;
        let pool = state.pool.clone();
        let why = WhyDead::SetAside {
            reason: reason.to_owned(),
        };
        self.bury(Origin::Events { pool }, why, message);
        Ok(())
    }

    fn standing(&mut self, consumer: u64) -> Result<&mut Consumer, SettleError> {
        let state = self
            .consumers
            .get_mut(&consumer)
            .ok_or(SettleError::Disconnected { cause: None })?;
        match state.over {
            None => Ok(state),
            Some(Over::Cancelled) => Err(SettleError::NotOutstanding),
            Some(Over::Disconnected) => Err(SettleError::Disconnected { cause: None }),
        }
    }

    pub(in crate::memory) fn drop_consumer(&mut self, consumer: u64) {
        self.withdraw(consumer);
        self.consumers.remove(&consumer);
    }

    /// The broker ends a consumer, which is still there to say so.
    pub(super) fn end_consumer(&mut self, consumer: u64, over: Over) {
        self.withdraw(consumer);
        if let Some(state) = self.consumers.get_mut(&consumer) {
            state.over = Some(over);
            state.wake.notify_one();
        }
    }

    /// What a consumer had goes back, and the next one is active.
    fn withdraw(&mut self, consumer: u64) {
        let Some(state) = self.consumers.get_mut(&consumer) else {
            return;
        };
        let unsettled = std::mem::take(&mut state.outstanding);
        let pool = state.pool.clone();
        if let Some(events) = self.events.get_mut(&pool) {
            events.consumers.retain(|other| *other != consumer);
        }
        let to = Origin::Events { pool: pool.clone() };
        for message in unsettled.into_values() {
            self.give_back(&to, message);
        }
        self.wake_active(&pool);
    }

    pub(super) fn wake_active(&self, pool: &str) {
        let active = self.events.get(pool).and_then(|events| events.consumers.front());
        if let Some(consumer) = active.and_then(|consumer| self.consumers.get(consumer)) {
            consumer.wake.notify_one();
        }
    }
}
