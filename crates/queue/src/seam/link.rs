//! An executor's end.

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_dispatch::message::{Control, DecodeError, DispatchMessage, EventBatch, Reply};

use super::{Cause, DeliveryTag, Output, PublishError, SettleError};

/// An executor's connection to its pool.
///
/// Dropping it is the loss of the connection: what was delivered and not settled goes to another executor, marked as
/// redelivered, and replies that are under way are lost.
#[async_trait]
pub trait ExecutorLink: Send + Sync {
    /// Waits for the next thing to happen.
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    async fn next(&mut self) -> LinkEvent;

    /// Publishes this executor's events, also while [`ExecutorLink::next`] waits. It outlives the link, and says
    /// `Disconnected` then.
    fn publisher(&self) -> Arc<dyn EventPublisher>;

    /// Starts consuming the pool's queue, or ends it; asking for what is the case changes nothing.
    ///
    /// At the end, deliveries that [`ExecutorLink::next`] has not yet returned go back to the queue at once, for another
    /// executor, and it returns none from then on. Those that it has returned stay outstanding.
    ///
    /// AMQP: `basic.consume` and `basic.cancel`; what the client holds in its buffer is handed back. Where the queue
    /// is not there the link says [`LinkEvent::Cancelled`].
    ///
    /// # Errors
    /// [`SettleError::Disconnected`].
    async fn set_consuming(&self, consuming: bool) -> Result<(), SettleError>;

    /// The message has been dealt with. Not confirmed: it may be delivered again.
    ///
    /// # Errors
    /// [`SettleError`].
    async fn ack(&self, tag: DeliveryTag) -> Result<(), SettleError>;

    /// Gives a message back, near the head of the queue, for another executor; this one may get it again while it is
    /// consuming. Counts as a delivery for the delivery limit.
    ///
    /// AMQP: `basic.nack` with `requeue`.
    ///
    /// # Errors
    /// [`SettleError`].
    async fn hand_back(&self, tag: DeliveryTag) -> Result<(), SettleError>;

    /// Nobody will ever read this message: the broker makes it a dead letter.
    ///
    /// AMQP: `basic.reject` without `requeue`. An executor may not write to the dead letters itself, so there is no
    /// reason to be given.
    ///
    /// # Errors
    /// [`SettleError`].
    async fn dead_letter(&self, tag: DeliveryTag) -> Result<(), SettleError>;
}

/// Publishes the events of one link.
#[async_trait]
pub trait EventPublisher: Send + Sync {
    /// Publishes a batch to the queue of the pool's events and waits, up to a bound, until the broker has it. The reply
    /// comes through [`ExecutorLink::next`]. Calls may overlap; batches whose order counts follow each other.
    ///
    /// AMQP: persistent, mandatory, in confirm mode, with `user_id` and a direct reply-to address.
    ///
    /// # Errors
    /// [`PublishError`]; the batch may be in the queue nevertheless where [`PublishError::may_have_arrived`].
    ///
    /// # Cancel safety
    /// A call that is dropped may have published.
    async fn publish_events(&self, batch: &EventBatch) -> Result<(), PublishError>;

    /// Publishes live output to whoever listens, and returns at once. It is lost where nobody listens, the broker is slow
    /// or away, or the piece is longer than [`MAX_OUTPUT_BYTES`](super::MAX_OUTPUT_BYTES).
    ///
    /// AMQP: transient and unconfirmed, with `user_id`.
    fn publish_output(&self, output: Output);
}

/// Something that happened on a link.
#[derive(Debug)]
pub enum LinkEvent {
    /// A message was delivered.
    Delivery(Delivery),
    /// The recorder has answered a batch.
    Reply(Reply),
    /// The server wants something.
    Control(Control),
    /// The broker has ended the consumer: its queue is gone or has moved, or a delivery was out for too long. The link
    /// stands, but every delivery so far is void. Consume again, after a pause.
    Cancelled,
    /// The connection is gone. The link is over and says only this from now on; join again, after a pause.
    Disconnected {
        /// Why.
        cause: Option<Cause>,
    },
}

/// A message that was delivered to an executor.
#[derive(Debug)]
pub struct Delivery {
    /// By which it is settled.
    pub tag: DeliveryTag,
    /// It may have been delivered before. Where this is `false` it has not.
    pub redelivered: bool,
    /// What it is. [`DecodeError::NewerVersion`] is handed back, for an executor that can read it; any other error makes
    /// it a dead letter.
    pub message: Result<Box<DispatchMessage>, DecodeError>,
}
