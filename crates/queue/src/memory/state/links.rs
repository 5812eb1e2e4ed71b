//! The executors' links, and who is handed what.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use mayfly_core::id::ExecutorId;
use tokio::sync::Notify;

use super::{Message, Post, State};
use crate::seam::{Origin, PublishError, SettleError, WhyDead};

/// Replies that wait in a link for somebody to read them. Replies may be lost, so that more are.
const MAX_REPLIES: usize = 1024;

pub(in crate::memory) struct LinkState {
    pool: String,
    executor: ExecutorId,
    prefetch: usize,
    consuming: bool,
    /// The connection is gone.
    gone: bool,
    /// The consumer was canceled, which the link has not said yet.
    canceled: bool,
    /// Delivered, not yet returned by `next`.
    inbox: VecDeque<Message>,
    replies: VecDeque<Vec<u8>>,
    pub(super) controls: VecDeque<Vec<u8>>,
    /// Returned by `next` and not settled, by tag.
    outstanding: BTreeMap<u64, Message>,
    pub(super) wake: Arc<Notify>,
}

/// Something that a link has to say.
pub(in crate::memory) enum Arrived {
    Delivery {
        tag: u64,
        redelivered: bool,
        bytes: Arc<[u8]>,
    },
    Reply(Vec<u8>),
    Control(Vec<u8>),
    Canceled,
    Disconnected,
}

impl LinkState {
    /// Whether it is the standing link of an executor.
    pub(super) fn is_of(&self, pool: &str, executor: ExecutorId) -> bool {
        !self.gone && self.pool == pool && self.executor == executor
    }

    /// Whose it is, while it stands.
    pub(super) fn sender(&self) -> Option<ExecutorId> {
        (!self.gone).then_some(self.executor)
    }

    fn has_room(&self) -> bool {
        self.inbox.len() + self.outstanding.len() < self.prefetch
    }

    /// Every delivery, oldest first; none of them is outstanding any more.
    fn take_deliveries(&mut self) -> Vec<Message> {
        let outstanding = std::mem::take(&mut self.outstanding);
        outstanding.into_values().chain(self.inbox.drain(..)).collect()
    }
}

impl State {
    pub(in crate::memory) fn link(
        &mut self,
        pool: &str,
        executor: ExecutorId,
        prefetch: usize,
        wake: Arc<Notify>,
    ) -> u64 {
        let link = self.number();
        self.links.insert(
            link,
            LinkState {
                pool: pool.to_owned(),
                executor,
                prefetch,
                consuming: false,
                gone: false,
                canceled: false,
                inbox: VecDeque::new(),
                replies: VecDeque::new(),
                controls: VecDeque::new(),
                outstanding: BTreeMap::new(),
                wake,
            },
        );
        link
    }

    /// The next thing that a link has to say, if there is any.
    pub(in crate::memory) fn next_of(&mut self, link: u64) -> Option<Arrived> {
        let tag = self.number();
        let Some(state) = self.links.get_mut(&link).filter(|state| !state.gone) else {
            return Some(Arrived::Disconnected);
        };
        if std::mem::take(&mut state.canceled) {
            return Some(Arrived::Canceled);
        }
        if let Some(control) = state.controls.pop_front() {
            return Some(Arrived::Control(control));
        }
        if let Some(reply) = state.replies.pop_front() {
            return Some(Arrived::Reply(reply));
        }
        let message = state.inbox.pop_front()?;
        let arrived = Arrived::Delivery {
            tag,
            redelivered: message.redelivered(),
            bytes: Arc::clone(&message.post.bytes),
        };
        state.outstanding.insert(tag, message);
        Some(arrived)
    }

    pub(in crate::memory) fn publish_from(
        &mut self,
        link: u64,
        bytes: Arc<[u8]>,
    ) -> Result<(), PublishError> {
        let Some(state) = self.links.get(&link).filter(|state| !state.gone) else {
            return Err(PublishError::Disconnected { cause: None });
        };
        let post = Post {
            bytes,
            by: Some(state.executor),
            reply_to: Some(link),
        };
        let pool = state.pool.clone();
        self.publish(&Origin::Events { pool }, post)
    }

    pub(in crate::memory) fn reply(&mut self, link: u64, bytes: Vec<u8>) {
        if let Some(state) = self.links.get_mut(&link).filter(|state| !state.gone)
            && state.replies.len() < MAX_REPLIES
        {
            state.replies.push_back(bytes);
            state.wake.notify_one();
        }
    }

    pub(in crate::memory) fn set_consuming(&mut self, link: u64, consuming: bool) -> Result<(), SettleError> {
        let state = self
            .links
            .get_mut(&link)
            .filter(|state| !state.gone)
            .ok_or(SettleError::Disconnected { cause: None })?;
        if state.consuming == consuming {
            return Ok(());
        }
        let pool = state.pool.clone();
        if !consuming {
            let unread: Vec<Message> = state.inbox.drain(..).collect();
            self.leave(link, unread);
        } else if let Some(jobs) = self.jobs.get_mut(&pool) {
            state.consuming = true;
            jobs.consumers.push_back(link);
            self.feed(&pool);
        } else {
            state.canceled = true;
            state.wake.notify_one();
        }
        Ok(())
    }

    /// Takes an outstanding delivery out of a link's hands.
    fn settle(&mut self, link: u64, tag: u64) -> Result<(Origin, Message), SettleError> {
        let state = self
            .links
            .get_mut(&link)
            .filter(|state| !state.gone)
            .ok_or(SettleError::Disconnected { cause: None })?;
        let message = state
            .outstanding
            .remove(&tag)
            .ok_or(SettleError::NotOutstanding)?;
        let pool = state.pool.clone();
        Ok((Origin::Jobs { pool }, message))
    }

    pub(in crate::memory) fn ack(&mut self, link: u64, tag: u64) -> Result<(), SettleError> {
        let (from, message) = self.settle(link, tag)?;
        self.forget(&from, &message);
        self.feed_of(&from);
        Ok(())
    }

    pub(in crate::memory) fn hand_back(&mut self, link: u64, tag: u64) -> Result<(), SettleError> {
        let (to, message) = self.settle(link, tag)?;
        self.give_back(&to, message);
        self.feed_of(&to);
        Ok(())
    }

    pub(in crate::memory) fn reject(&mut self, link: u64, tag: u64) -> Result<(), SettleError> {
        let (from, message) = self.settle(link, tag)?;
        self.bury(from.clone(), WhyDead::Rejected, message);
        self.feed_of(&from);
        Ok(())
    }

    /// The connection of a link is gone; the link is still there to say so.
    pub(in crate::memory) fn cut_link(&mut self, link: u64) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        state.gone = true;
        state.replies.clear();
        state.wake.notify_one();
        let unsettled = state.take_deliveries();
        self.leave(link, unsettled);
    }

    pub(in crate::memory) fn drop_link(&mut self, link: u64) {
        self.cut_link(link);
        self.links.remove(&link);
    }

    /// The broker ends the consumer of a link, and voids what it had.
    pub(super) fn cancel_link(&mut self, link: u64) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        state.canceled = true;
        state.wake.notify_one();
        let unsettled = state.take_deliveries();
        self.leave(link, unsettled);
    }

    /// A link consumes no more, and these messages of its go back.
    fn leave(&mut self, link: u64, messages: Vec<Message>) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        state.consuming = false;
        let pool = state.pool.clone();
        if let Some(jobs) = self.jobs.get_mut(&pool) {
            jobs.consumers.retain(|consumer| *consumer != link);
        }
        let to = Origin::Jobs { pool };
        for message in messages {
            self.give_back(&to, message);
        }
    }

    fn feed_of(&mut self, queue: &Origin) {
        match queue {
            Origin::Jobs { pool } => self.feed(pool),
            Origin::Events { .. } => {}
        }
    }

    /// Hands ready jobs to the links that have room, in turn.
    pub(super) fn feed(&mut self, pool: &str) {
        let Some(jobs) = self.jobs.get_mut(pool) else {
            return;
        };
        while !jobs.ready.is_empty() {
            let free = |link: &u64| self.links.get(link).is_some_and(LinkState::has_room);
            let Some(at) = jobs.consumers.iter().position(free) else {
                return;
            };
            if let Some(link) = jobs.consumers.remove(at)
                && let Some(state) = self.links.get_mut(&link)
                && let Some((_, message)) = jobs.ready.pop_first()
            {
                jobs.consumers.push_back(link);
                state.inbox.push_back(message);
                state.wake.notify_one();
            }
        }
    }
}
