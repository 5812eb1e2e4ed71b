//! What can go wrong, by what its user does about it.

use std::time::Duration;

/// What a client library has to say about it; for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A message that is not known to be in its queue.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// There is no such queue, and the message is nowhere.
    #[error("no queue takes messages for `{queue}`")]
    Unroutable {
        /// Where it was published to.
        queue: String,
    },
    /// The broker has refused it, as a full queue does, and the message is nowhere.
    #[error("the broker refuses messages for `{queue}`")]
    Refused {
        /// Where it was published to.
        queue: String,
    },
    /// Longer than any message may be. It has not been sent.
    #[error("the message has {bytes} bytes, and at most {most} are sent")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest that is sent.
        most: usize,
    },
    /// Nobody said in time what became of it.
    #[error("a message for `{queue}` was not confirmed within {} ms", waited.as_millis())]
    NotConfirmed {
        /// Where it was published to.
        queue: String,
        /// For how long the confirm was waited for.
        waited: Duration,
    },
    /// The connection is gone, and what became of the message is not known.
    #[error("there is no connection to the broker")]
    Disconnected {
        /// Why.
        #[source]
        cause: Option<Cause>,
    },
}

impl PublishError {
    /// Whether the message may be in its queue nevertheless.
    #[must_use]
    pub const fn may_have_arrived(&self) -> bool {
        match self {
            Self::NotConfirmed { .. } | Self::Disconnected { .. } => true,
            Self::Unroutable { .. } | Self::Refused { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// A call to the broker about a queue that failed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// It is gone, or was never declared.
    #[error("there is no queue `{queue}`")]
    NoQueue {
        /// Its name.
        queue: String,
    },
    /// It exists with other properties, which only a person can settle.
    #[error("the queue `{queue}` exists with other properties")]
    Mismatch {
        /// Its name.
        queue: String,
        /// What the broker said.
        #[source]
        cause: Option<Cause>,
    },
    /// The broker can't be reached.
    #[error("there is no connection to the broker")]
    Disconnected {
        /// Why.
        #[source]
        cause: Option<Cause>,
    },
}

/// A consumer that has ended without being asked to. What it had and had not settled is delivered again, to whoever
/// consumes next.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The broker has ended it: its queue was deleted, or moved to another node.
    #[error("the broker has canceled the consumer")]
    Cancelled,
    /// The connection is gone.
    #[error("the connection of the consumer is gone")]
    Disconnected {
        /// Why.
        #[source]
        cause: Option<Cause>,
    },
}

/// A delivery that could not be settled. Its message is, or will be, delivered again.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// Its consumer has ended since, or it is settled already.
    #[error("the delivery is not outstanding")]
    NotOutstanding,
    /// The connection is gone.
    #[error("the connection of the delivery is gone")]
    Disconnected {
        /// Why.
        #[source]
        cause: Option<Cause>,
    },
}
