//! What the roles know of a message broker. It is written after RabbitMQ (AMQP 0-9-1 with quorum queues), and each item
//! says which mechanism of it is meant; an implementation may have others, but must behave like that.
//!
//! What its users have to live with, whatever the implementation:
//!
//! * **At least once.** A message whose confirm came is in the queue; one whose confirm did not come may be there too.
//!   Acks are not confirmed: an ack may be lost, and its message be delivered again. Every handler is safe to run twice.
//! * **Order.** The messages that one publisher sends one after the other, each after the other's confirm, come out of
//!   the events' queue in that order. What is delivered again comes before what was behind it. Jobs have no order.
//! * **Nothing is dropped in silence**, except a reply: a queue that is full refuses, one that is gone is unroutable, a
//!   message that was delivered too often is a dead letter. But a broker can lose its disk: then whatever was in it is
//!   gone, which shows as a queue that is gone ([`Queue::declare_events`]).
//!
//! Durable queues have a name, a positive delivery limit and a dead-letter exchange:
//!
//! | queue | written by | read by | delivery limit |
//! | --- | --- | --- | --- |
//! | a pool's jobs | scheduler | the pool's executors, competing | [`JOBS_DELIVERY_LIMIT`] |
//! | a pool's events | the pool's executors; reconciler (ticks) | recorder, one at a time | [`EVENTS_DELIVERY_LIMIT`] |
//! | dead letters | the broker; recorder | recorder, people | [`EVENTS_DELIVERY_LIMIT`] |

use std::num::NonZeroU16;

use async_trait::async_trait;
use mayfly_core::id::{ExecutorId, JobId};
use mayfly_dispatch::message::{Control, DispatchMessage, Reply, Tick};

mod dead_letters;
mod error;
mod events;
mod link;
mod live;

pub use dead_letters::{DeadLetter, DeadLetters, Origin, WhyDead};
pub use error::{Cause, Closed, PublishError, QueueError, SettleError};
pub use events::{Bad, Content, EventConsumer, Incoming, MAX_TAKE_BYTES, ReplyAddress};
pub use link::{Delivery, EventPublisher, ExecutorLink, LinkEvent};
pub use live::{Health, Heard, MAX_OUTPUT_BYTES, MAX_OUTPUT_WAITING, Output, OutputListener, Stream};

/// How often a job's message is delivered and comes back before it is a dead letter: far more than trouble before a
/// start explains. Whether an attempt is tried again is not decided by it.
pub const JOBS_DELIVERY_LIMIT: u32 = 50;

/// The same of events and of dead letters: out of reach, since a recorder gives back what it can't store for as long as
/// its database is away. It is a number at all because a queue without one drops messages, by default or at once,
/// depending on the broker's version.
pub const EVENTS_DELIVERY_LIMIT: u32 = 1_000_000;

/// One delivery, for whoever has it to settle. It means something only to the link or consumer that handed it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryTag(pub u64);

/// A broker, connected by itself for as long as it is held: connections that break are made again with back-off, and
/// calls fail with `Disconnected` meanwhile. Publishing and consuming use connections of their own (a broker that is
/// short of memory blocks those that publish, and acks must flow).
///
/// The server's half needs its credentials for everything but [`Queue::join`]; an executor's credentials allow that
/// alone, for its pool.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Declares what a pool needs, except the queue of its events, which has [`Queue::declare_events`]. Idempotent.
    ///
    /// AMQP: durable exchanges, a quorum queue with its delivery limit, `reject-publish` and dead-letter exchange, the
    /// dead letters' queue, their bindings. Names carry a topology version.
    ///
    /// # Errors
    /// [`QueueError::Mismatch`] where it exists with other properties.
    async fn declare(&self, pool: &str) -> Result<(), QueueError>;

    /// Declares the queue of a pool's events where it is gone or never was, and opens it to the ticks of `epoch`, from
    /// 1, one life of that queue. Idempotent.
    ///
    /// A queue that is gone has lost what was in it, and a tick that passes through its successor proves nothing.
    /// Therefore ticks and batches that come to no queue are [`PublishError::Unroutable`], nobody declares the queue on
    /// the side, and whoever finds it gone first commits a new epoch to the record and then declares for that. A
    /// declaration that comes late, for an older epoch, opens the queue to the ticks of that alone, so that the ticks
    /// of the epoch on record are unroutable still, and the loss is noticed.
    ///
    /// AMQP: a quorum queue with single active consumer; batches are routed by the pool, ticks by the pool and the
    /// epoch, bindings of older epochs are removed.
    ///
    /// # Errors
    /// As [`Queue::declare`].
    async fn declare_events(&self, pool: &str, epoch: u64) -> Result<(), QueueError>;

    /// Publishes an attempt to its pool's queue and waits, up to a bound, until the broker has it. Calls may overlap.
    ///
    /// AMQP: persistent, mandatory, on a channel in confirm mode.
    ///
    /// # Errors
    /// [`PublishError`]; the attempt may be in the queue nevertheless where [`PublishError::may_have_arrived`].
    ///
    /// # Cancel safety
    /// A call that is dropped may have published.
    async fn publish_attempt(&self, pool: &str, message: &DispatchMessage) -> Result<(), PublishError>;

    /// Publishes a tick to the queue of a pool's events in the same way.
    ///
    /// # Errors
    /// [`PublishError::Unroutable`] where that queue is gone, or has not been declared for the tick's epoch; otherwise
    /// as [`Queue::publish_attempt`].
    ///
    /// # Cancel safety
    /// A call that is dropped may have published.
    async fn publish_tick(&self, pool: &str, tick: &Tick) -> Result<(), PublishError>;

    /// Messages of a pool's queue that no executor has: those that were delivered and not settled don't count.
    ///
    /// AMQP: the count that a passive declaration answers.
    ///
    /// # Errors
    /// [`QueueError::NoQueue`] where it is gone.
    async fn ready_count(&self, pool: &str) -> Result<u64, QueueError>;

    /// Consumes a pool's events. Of several consumers one gets messages and the others wait for its end.
    ///
    /// AMQP: manual acks, single active consumer.
    ///
    /// # Errors
    /// [`QueueError::NoQueue`] where the queue is gone: see [`Queue::declare_events`].
    async fn consume_events(&self, pool: &str) -> Result<Box<dyn EventConsumer>, QueueError>;

    /// Answers whoever sent a batch. The reply is transient and nobody confirms it: it is lost in silence where that
    /// link is gone, or the broker away.
    ///
    /// AMQP: direct reply-to; an address that does not begin with `amq.rabbitmq.reply-to.` is not written to.
    async fn reply(&self, to: &ReplyAddress, reply: &Reply);

    /// Takes the dead letters of all queues in hand, to look at them and decide about them.
    ///
    /// # Errors
    /// [`QueueError::NoQueue`] where nothing has been declared.
    async fn dead_letters(&self) -> Result<Box<dyn DeadLetters>, QueueError>;

    /// Publishes what was a dead letter to where it came from, as a message that has never been delivered, and in the
    /// name of whoever had published it at first. Nobody waits for its answer any more.
    ///
    /// AMQP: the sender stands in a header, which counts in what the server itself publishes.
    ///
    /// # Errors
    /// As [`Queue::publish_attempt`].
    async fn republish(&self, origin: &Origin, sender: &str, bytes: &[u8]) -> Result<(), PublishError>;

    /// Says something to an executor that has joined a pool, out of turn, and waits until the broker has passed it on.
    /// Nobody keeps it: a link that breaks before it has read it never does.
    ///
    /// AMQP: a direct exchange to an exclusive queue of each link, mandatory and confirmed.
    ///
    /// # Errors
    /// [`PublishError::Unroutable`] where no such executor has joined; otherwise as [`Queue::publish_attempt`].
    async fn control(&self, pool: &str, executor: ExecutorId, control: &Control) -> Result<(), PublishError>;

    /// Listens to the live output of a job, from now on. What nobody listens to is lost.
    ///
    /// AMQP: an exclusive queue, bound for as long as the listener is held.
    ///
    /// # Errors
    /// Trouble with the broker.
    async fn listen(&self, job: JobId) -> Result<Box<dyn OutputListener>, QueueError>;

    /// How it stands with the broker, without asking it.
    fn health(&self) -> Health;

    /// Connects an executor to its pool. It consumes nothing until [`ExecutorLink::set_consuming`]; at most `prefetch`
    /// deliveries are with it unsettled at a time.
    ///
    /// AMQP: one channel that publishes events and reads the replies (direct reply-to must be consumed where the
    /// request is published), one that consumes, on a connection of its own.
    ///
    /// # Errors
    /// Trouble with the broker. That the pool has not been declared shows when it is consumed.
    async fn join(
        &self,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Box<dyn ExecutorLink>, QueueError>;
}
