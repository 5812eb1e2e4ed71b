//! A broker for roles that share a process. It keeps nothing beyond the process, and is otherwise as strict as a real
//! one: messages are bytes while they are in it, an executor is handed no more than its prefetch and whether it reads
//! or not, what is not settled is delivered again, and a queue that is full refuses.
//!
//! All of it is one `State` behind one lock, which is held for a few map operations and never across an await.
//! There is no task: whoever changes the state wakes those whom it concerns.

use std::{
    fmt,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use mayfly_core::id::{ExecutorId, JobId};
use mayfly_dispatch::message::{Control, DispatchMessage, Reply, Tick, Wire};

use crate::seam::{
    DeadLetters, EventConsumer, ExecutorLink, Health, Origin, OutputListener, PublishError, Queue,
    QueueError, ReplyAddress,
};

mod dead_letters;
mod events;
mod link;
mod listener;
mod operator;
mod state;

use dead_letters::MemoryDeadLetters;
use events::MemoryEvents;
use link::MemoryLink;
use listener::MemoryListener;
use state::{Post, State};

/// How much is kept, in ready, delivered and dead messages together. Jobs and events are counted apart: a heap of jobs
/// that nobody takes must not keep out the events that would make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all pools' jobs.
    pub jobs: Limit,
    /// Of all pools' events.
    pub events: Limit,
}

/// How much of one kind is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Most messages.
    pub messages: usize,
    /// Most bytes. Less than the longest message would keep that one out for good.
    pub bytes: usize,
}

impl Limits {
    /// What the roles of one process need many times over, and a laptop can spare.
    #[must_use]
    pub const fn standard() -> Self {
        let limit = Limit {
            messages: 65_536,
            bytes: 256 * 1024 * 1024,
        };
        Self {
            jobs: limit,
            events: limit,
        }
    }
}

/// A broker in memory. Clones are the same broker.
#[derive(Clone)]
pub struct MemoryQueue {
    broker: Broker,
    begun: std::time::Instant,
}

impl MemoryQueue {
    /// An empty one, in which nothing is declared.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            broker: Broker {
                state: Arc::new(Mutex::new(State::new(limits))),
            },
            begun: std::time::Instant::now(),
        }
    }
}

impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages hold tenants' code and result tokens.
        f.debug_struct("MemoryQueue").finish_non_exhaustive()
    }
}

/// The state, for those that share it.
#[derive(Clone)]
struct Broker {
    state: Arc<Mutex<State>>,
}

impl Broker {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock panics half-way; a poisoned lock only says that a holder's task did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn declare(&self, pool: &str) -> Result<(), QueueError> {
        self.broker.state().declare(pool);
        Ok(())
    }

    async fn declare_events(&self, pool: &str, epoch: u64) -> Result<(), QueueError> {
        self.broker.state().declare_events(pool, epoch);
        Ok(())
    }

    async fn publish_attempt(&self, pool: &str, message: &DispatchMessage) -> Result<(), PublishError> {
        let post = Post {
            bytes: message.encode().into(),
            by: None,
            reply_to: None,
        };
        let pool = pool.to_owned();
        self.broker.state().publish(&Origin::Jobs { pool }, post)
    }

    async fn publish_tick(&self, pool: &str, tick: &Tick) -> Result<(), PublishError> {
        let post = Post {
            bytes: tick.encode().into(),
            by: None,
            reply_to: None,
        };
        self.broker.state().publish_tick(pool, tick.epoch, post)
    }

    async fn ready_count(&self, pool: &str) -> Result<u64, QueueError> {
        self.broker.state().ready_count(pool)
    }

    async fn consume_events(&self, pool: &str) -> Result<Box<dyn EventConsumer>, QueueError> {
        Ok(Box::new(MemoryEvents::begin(&self.broker, pool)?))
    }

    async fn reply(&self, to: &ReplyAddress, reply: &Reply) {
        let Some(link) = state::link_of(to) else {
            return;
        };
        self.broker.state().reply(link, reply.encode());
    }

    async fn dead_letters(&self) -> Result<Box<dyn DeadLetters>, QueueError> {
        Ok(Box::new(MemoryDeadLetters::begin(&self.broker)?))
    }

    async fn republish(&self, origin: &Origin, sender: &str, bytes: &[u8]) -> Result<(), PublishError> {
        let by = match sender {
            "" => None,
            executor => Some(executor.parse().map_err(|_| PublishError::Refused {
                queue: format!("{origin:?}"),
            })?),
        };
        let post = Post {
            bytes: bytes.into(),
            by,
            reply_to: None,
        };
        self.broker.state().publish(origin, post)
    }

    async fn control(&self, pool: &str, executor: ExecutorId, control: &Control) -> Result<(), PublishError> {
        self.broker.state().control(pool, executor, control.encode())
    }

    async fn listen(&self, job: JobId) -> Result<Box<dyn OutputListener>, QueueError> {
        Ok(Box::new(MemoryListener::begin(&self.broker, job)))
    }

    fn health(&self) -> Health {
        Health {
            connected: true,
            blocked: None,
            since: self.begun.elapsed(),
        }
    }

    async fn join(
        &self,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Box<dyn ExecutorLink>, QueueError> {
        Ok(Box::new(MemoryLink::begin(
            &self.broker,
            pool,
            executor,
            prefetch,
        )))
    }
}
