//! The recorder's end of the events' queue.

use std::{fmt, num::NonZeroUsize};

use async_trait::async_trait;
use mayfly_core::id::ExecutorId;
use mayfly_dispatch::message::{DecodeError, Inbound};

use super::{Closed, DeliveryTag, SettleError};

/// [`EventConsumer::next_batch`] takes no further message once it has this many bytes. One message alone may have more.
pub const MAX_TAKE_BYTES: usize = 2 * 1024 * 1024;

/// Consumes the events of a pool, in order, each until it is acked.
///
/// Dropping it ends the consumer in order: what it has not settled goes back to where it was in the queue, and another
/// consumer gets it, marked as redelivered.
#[async_trait]
pub trait EventConsumer: Send {
    /// Waits for a message and takes what else is there, up to `most` messages and about [`MAX_TAKE_BYTES`]. While
    /// another consumer is the active one this waits for its end.
    ///
    /// # Errors
    /// [`Closed`]: the consumer has ended without being asked to, and every tag that it gave is void.
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    async fn next_batch(&mut self, most: NonZeroUsize) -> Result<Vec<Incoming>, Closed>;

    /// Acks a message and every earlier one that is not settled.
    ///
    /// AMQP: `basic.ack` with `multiple`. It is not confirmed, so the messages may be delivered again.
    ///
    /// # Errors
    /// [`SettleError`]; the messages are delivered again.
    async fn ack_up_to(&mut self, tag: DeliveryTag) -> Result<(), SettleError>;

    /// Sets one message aside as a dead letter, with a reason for the person who will look at it.
    ///
    /// AMQP: a confirmed publication to the dead-letter exchange with the reason in a header, then an ack: `basic.reject`
    /// carries no reason. At least once. One that is longer than any of ours is rejected nevertheless.
    ///
    /// # Errors
    /// [`SettleError`]; the message is delivered again, and may be a dead letter as well.
    async fn dead_letter(&mut self, tag: DeliveryTag, reason: &str) -> Result<(), SettleError>;
}

/// A message from the events' queue.
#[derive(Debug)]
pub struct Incoming {
    /// By which it is settled. Tags grow in the order of delivery.
    pub tag: DeliveryTag,
    /// It may have been delivered before. Where this is `false` it has not.
    pub redelivered: bool,
    /// Where its answer goes; a tick wants none.
    pub reply_to: Option<ReplyAddress>,
    /// What it says.
    pub content: Content,
}

/// What a message from the events' queue says.
pub enum Content {
    /// A message, from whom it says it is from: the broker has checked who published it.
    Message(Inbound),
    /// No message for this build.
    Bad {
        /// The bytes.
        bytes: Vec<u8>,
        /// What is wrong with them.
        why: Bad,
    },
}

impl fmt::Debug for Content {
    /// Without the bytes: they may hold a result token, or what a job wrote.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.debug_tuple("Message").field(message).finish(),
            Self::Bad { bytes, why } => f
                .debug_struct("Bad")
                .field("bytes", &bytes.len())
                .field("why", why)
                .finish(),
        }
    }
}

impl Content {
    /// Reads bytes that this executor's credentials published, or the server's where there is none.
    #[must_use]
    pub fn of(bytes: &[u8], by: Option<ExecutorId>) -> Self {
        let why = match (Inbound::decode(bytes), by) {
            (Ok(Inbound::Batch(batch)), Some(by)) if batch.executor != by => Bad::Sender {
                says: batch.executor,
                by,
            },
            (Ok(Inbound::Tick(_)), Some(by)) => Bad::Tick { by },
            (Ok(message), _) => return Self::Message(message),
            (Err(error), _) => Bad::Unreadable(error),
        };
        Self::Bad {
            bytes: bytes.to_vec(),
            why,
        }
    }
}

/// What is wrong with a message from the events' queue.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// It can't be read. [`DecodeError::NewerVersion`] is for a newer server, by dropping the consumer; anything else is
    /// for the dead letters.
    #[error("the message can't be read")]
    Unreadable(#[source] DecodeError),
    /// An executor speaks for another one.
    #[error("a message in the name of executor {says} was published by {by}")]
    Sender {
        /// Whose it says it is.
        says: ExecutorId,
        /// Whose credentials published it.
        by: ExecutorId,
    },
    /// An executor has published what only the server may.
    #[error("a tick was published by executor {by}")]
    Tick {
        /// Whose credentials published it.
        by: ExecutorId,
    },
    /// An executor has published it for a pool that it is not of.
    #[error("a message was published by executor {by} of another pool, `{of}`")]
    Pool {
        /// Whose credentials published it.
        by: ExecutorId,
        /// The pool that those are for.
        of: String,
    },
    /// It does not say who has published it in a way that the broker checks.
    #[error("a message does not say who has published it")]
    Unverified,
}

impl Bad {
    /// Whether a newer build could read the message.
    #[must_use]
    pub const fn is_newer(&self) -> bool {
        matches!(self, Self::Unreadable(DecodeError::NewerVersion { .. }))
    }
}

/// Where a reply goes: one link of one session, as long as that stands. Only the queue that gave it can read it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplyAddress(pub String);
