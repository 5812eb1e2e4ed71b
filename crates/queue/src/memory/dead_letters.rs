use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::Broker;
use crate::seam::{Closed, DeadLetter, DeadLetters, DeliveryTag, QueueError, SettleError};

pub(super) struct MemoryDeadLetters {
    broker: Broker,
    reader: u64,
    wake: Arc<Notify>,
}

impl MemoryDeadLetters {
    pub(super) fn begin(broker: &Broker) -> Result<Self, QueueError> {
        let wake = Arc::new(Notify::new());
        let reader = broker.state().read_dead(Arc::clone(&wake))?;
        Ok(Self {
            broker: broker.clone(),
            reader,
            wake,
        })
    }
}

impl Drop for MemoryDeadLetters {
    fn drop(&mut self) {
        self.broker.state().drop_reader(self.reader);
    }
}

#[async_trait]
impl DeadLetters for MemoryDeadLetters {
    async fn next(&mut self) -> Result<DeadLetter, Closed> {
        loop {
            if let Some(letter) = self.try_next().await? {
                return Ok(letter);
            }
            self.wake.notified().await;
        }
    }

    async fn try_next(&mut self) -> Result<Option<DeadLetter>, Closed> {
        Ok(self.broker.state().take_dead(self.reader)?)
    }

    async fn discard(&mut self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.broker.state().discard(self.reader, tag.0)
    }
}
