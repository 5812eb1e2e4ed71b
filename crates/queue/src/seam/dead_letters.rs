//! Messages that were set aside for a person.

use std::fmt;

use async_trait::async_trait;

use super::{Closed, DeliveryTag, SettleError};

/// The dead letters, in the hands of one reader, oldest first. What it has looked at and not settled goes back when it
/// is dropped, so that a list changes nothing.
#[async_trait]
pub trait DeadLetters: Send {
    /// Waits for the next one.
    ///
    /// AMQP: a consumer with manual acks.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    async fn next(&mut self) -> Result<DeadLetter, Closed>;

    /// The next one that is there now and in nobody's hands.
    ///
    /// AMQP: `basic.get`.
    ///
    /// # Errors
    /// [`Closed`].
    async fn try_next(&mut self) -> Result<Option<DeadLetter>, Closed>;

    /// Forgets one, for good.
    ///
    /// # Errors
    /// [`SettleError`]; it stays a dead letter.
    async fn discard(&mut self, tag: DeliveryTag) -> Result<(), SettleError>;
}

/// A message that was set aside. A job's bytes hold its result token, which no view may show.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// By which it is settled.
    pub tag: DeliveryTag,
    /// The queue that it was in.
    pub origin: Origin,
    /// Why it is here.
    pub why: WhyDead,
    /// Who had published it, for [`Queue::republish`](super::Queue::republish); of no meaning to anybody else.
    pub sender: String,
    /// The message.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for DeadLetter {
    /// Without the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("tag", &self.tag)
            .field("origin", &self.origin)
            .field("why", &self.why)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// The queue that a dead letter was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The jobs of a pool.
    Jobs {
        /// The pool.
        pool: String,
    },
    /// The events of a pool.
    Events {
        /// The pool.
        pool: String,
    },
}

/// Why a message is a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyDead {
    /// An executor could not read it.
    Rejected,
    /// It was delivered and came back too often.
    DeliveryLimit,
    /// The recorder set it aside.
    SetAside {
        /// What it gave as its reason.
        reason: String,
    },
}
