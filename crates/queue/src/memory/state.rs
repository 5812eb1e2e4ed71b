//! What the broker holds, and every change of it. No I/O and no waiting: calls return at once and wake whoever waits.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use mayfly_core::id::ExecutorId;
use mayfly_dispatch::message::MAX_MESSAGE_BYTES;

use super::Limits;
use crate::seam::{
    EVENTS_DELIVERY_LIMIT, JOBS_DELIVERY_LIMIT, Origin, PublishError, QueueError, ReplyAddress, WhyDead,
};

mod consumers;
mod dead;
mod links;
mod live;
mod usage;

use consumers::Consumer;
pub(super) use consumers::{Over, Taken};
use dead::{Letter, Reader};
pub(super) use links::Arrived;
use links::LinkState;
use live::Listener;
use usage::Usage;

/// A message on its way in.
pub(super) struct Post {
    pub(super) bytes: Arc<[u8]>,
    /// Whose credentials publish it, where it is not the server.
    pub(super) by: Option<ExecutorId>,
    /// The link that its answer goes to.
    pub(super) reply_to: Option<u64>,
}

/// A message in the broker.
pub(super) struct Message {
    /// Its place in the queue, which it keeps when it comes back.
    position: u64,
    /// How often it has come back.
    returns: u32,
    pub(super) post: Post,
}

impl Message {
    pub(super) const fn redelivered(&self) -> bool {
        self.returns > 0
    }
}

/// The jobs of a pool.
#[derive(Default)]
struct Jobs {
    ready: BTreeMap<u64, Message>,
    /// The links that consume it; the one whose turn is next comes first.
    consumers: VecDeque<u64>,
}

/// The events of a pool.
#[derive(Default)]
struct Events {
    ready: BTreeMap<u64, Message>,
    /// The epochs whose ticks come to it.
    epochs: BTreeSet<u64>,
    /// Its consumers; the first is the active one.
    consumers: VecDeque<u64>,
}

pub(super) struct State {
    jobs: BTreeMap<String, Jobs>,
    events: BTreeMap<String, Events>,
    /// Where anything has been declared.
    dead: Option<BTreeMap<u64, Letter>>,
    links: BTreeMap<u64, LinkState>,
    consumers: BTreeMap<u64, Consumer>,
    readers: BTreeMap<u64, Reader>,
    listeners: BTreeMap<u64, Listener>,
    usage: Usage,
    /// The last number that was given out, for a position, a tag or a name.
    last: u64,
}

impl State {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            jobs: BTreeMap::new(),
            events: BTreeMap::new(),
            dead: None,
            links: BTreeMap::new(),
            consumers: BTreeMap::new(),
            readers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            usage: Usage::new(limits),
            last: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn declare(&mut self, pool: &str) {
        self.dead.get_or_insert_default();
        self.jobs.entry(pool.to_owned()).or_default();
    }

    pub(super) fn declare_events(&mut self, pool: &str, epoch: u64) {
        self.dead.get_or_insert_default();
        let events = self.events.entry(pool.to_owned()).or_default();
        events.epochs.retain(|bound| *bound >= epoch);
        events.epochs.insert(epoch);
    }

    pub(super) fn ready_count(&self, pool: &str) -> Result<u64, QueueError> {
        let jobs = self.jobs.get(pool).ok_or_else(|| QueueError::NoQueue {
            queue: name(&Origin::Jobs {
                pool: pool.to_owned(),
            }),
        })?;
        Ok(jobs.ready.len() as u64)
    }

    pub(super) fn publish_tick(&mut self, pool: &str, epoch: u64, post: Post) -> Result<(), PublishError> {
        let to = Origin::Events {
            pool: pool.to_owned(),
        };
        if self
            .events
            .get(pool)
            .is_some_and(|events| events.epochs.contains(&epoch))
        {
            self.publish(&to, post)
        } else {
            Err(PublishError::Unroutable {
                queue: format!("{} (epoch {epoch})", name(&to)),
            })
        }
    }

    /// Takes a message in, or says why not; then it is nowhere.
    pub(super) fn publish(&mut self, to: &Origin, post: Post) -> Result<(), PublishError> {
        let bytes = post.bytes.len();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(PublishError::TooLong {
                bytes,
                most: MAX_MESSAGE_BYTES,
            });
        }
        if !self.exists(to) {
            return Err(PublishError::Unroutable { queue: name(to) });
        }
        if !self.usage.admit(to, bytes) {
            return Err(PublishError::Refused { queue: name(to) });
        }
        self.enqueue(to, post);
        Ok(())
    }

    fn exists(&self, queue: &Origin) -> bool {
        match queue {
            Origin::Jobs { pool } => self.jobs.contains_key(pool),
            Origin::Events { pool } => self.events.contains_key(pool),
        }
    }

    /// Puts a message that is counted already at the end of a queue that exists.
    fn enqueue(&mut self, to: &Origin, post: Post) {
        let position = self.number();
        let message = Message {
            position,
            returns: 0,
            post,
        };
        self.insert(to, message);
    }

    /// Puts a message in its place in the queue, and hands out what can be. Without the queue it is gone, like
    /// everything that was in it.
    fn insert(&mut self, to: &Origin, message: Message) {
        let ready = match to {
            Origin::Jobs { pool } => self.jobs.get_mut(pool).map(|jobs| &mut jobs.ready),
            Origin::Events { pool } => self.events.get_mut(pool).map(|events| &mut events.ready),
        };
        let Some(ready) = ready else {
            self.usage.release(to, message.post.bytes.len());
            return;
        };
        ready.insert(message.position, message);
        match to {
            Origin::Jobs { pool } => self.feed(pool),
            Origin::Events { pool } => self.wake_active(pool),
        }
    }

    /// A delivery has come back.
    fn give_back(&mut self, to: &Origin, mut message: Message) {
        message.returns += 1;
        let limit = match to {
            Origin::Jobs { .. } => JOBS_DELIVERY_LIMIT,
            Origin::Events { .. } => EVENTS_DELIVERY_LIMIT,
        };
        if message.returns > limit {
            self.bury(to.clone(), WhyDead::DeliveryLimit, message);
        } else {
            self.insert(to, message);
        }
    }

    /// A delivery has been dealt with.
    fn forget(&mut self, from: &Origin, message: &Message) {
        self.usage.release(from, message.post.bytes.len());
    }
}

/// What operators do to a broker, and accidents.
impl State {
    /// Every connection is gone.
    pub(super) fn cut(&mut self) {
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.cut_link(link);
        }
        for consumer in self.consumers.keys().copied().collect::<Vec<_>>() {
            self.end_consumer(consumer, Over::Disconnected);
        }
        for reader in self.readers.keys().copied().collect::<Vec<_>>() {
            self.drop_reader(reader);
        }
        for listener in self.listeners.keys().copied().collect::<Vec<_>>() {
            self.drop_listener(listener);
        }
    }

    /// The consumers of a pool's queues are canceled.
    pub(super) fn cancel_consumers(&mut self, pool: &str) {
        for link in self
            .jobs
            .get(pool)
            .map(|jobs| jobs.consumers.clone())
            .unwrap_or_default()
        {
            self.cancel_link(link);
        }
        for consumer in self
            .events
            .get(pool)
            .map(|events| events.consumers.clone())
            .unwrap_or_default()
        {
            self.end_consumer(consumer, Over::Cancelled);
        }
    }

    /// Everything that was declared is gone, with everything in it and every connection.
    pub(super) fn wipe(&mut self) {
        self.jobs.clear();
        self.events.clear();
        self.dead = None;
        self.cut();
        self.usage.reset();
    }
}

/// What a queue is called in an error.
fn name(queue: &Origin) -> String {
    match queue {
        Origin::Jobs { pool } => format!("mayfly.jobs.{pool}"),
        Origin::Events { pool } => format!("mayfly.events.{pool}"),
    }
}

const REPLY_PREFIX: &str = "mayfly.reply.";

/// Where the answers to what a link publishes go.
pub(super) fn address_of(link: u64) -> ReplyAddress {
    ReplyAddress(format!("{REPLY_PREFIX}{link}"))
}

/// The link that an address names, if it is one of ours.
pub(super) fn link_of(address: &ReplyAddress) -> Option<u64> {
    address.0.strip_prefix(REPLY_PREFIX)?.parse().ok()
}
