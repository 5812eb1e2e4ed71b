//! What operators do to a broker, and accidents, for tests: nothing of a product calls it.

use mayfly_core::id::ExecutorId;

use super::{MemoryQueue, state::Post};
use crate::seam::{Origin, PublishError};

impl MemoryQueue {
    /// Cuts every connection. What was delivered and not settled goes back.
    pub fn cut_connections(&self) {
        self.broker.state().cut();
    }

    /// Cancels the consumers of a pool's jobs and events. What was delivered and not settled goes back.
    pub fn cancel_consumers(&self, pool: &str) {
        self.broker.state().cancel_consumers(pool);
    }

    /// Loses the disk: every message, every queue, every connection.
    pub fn wipe(&self) {
        self.broker.state().wipe();
    }

    /// Publishes bytes to a queue with the credentials of an executor, or of the server.
    ///
    /// # Errors
    /// As publishing a message.
    pub fn put(&self, to: &Origin, by: Option<ExecutorId>, bytes: &[u8]) -> Result<(), PublishError> {
        let post = Post {
            bytes: bytes.into(),
            by,
            reply_to: None,
        };
        self.broker.state().publish(to, post)
    }
}
