use std::{num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{
    Broker,
    state::{Taken, address_of},
};
use crate::seam::{Closed, Content, DeliveryTag, EventConsumer, Incoming, QueueError, SettleError};

pub(super) struct MemoryEvents {
    broker: Broker,
    consumer: u64,
    wake: Arc<Notify>,
}

impl MemoryEvents {
    pub(super) fn begin(broker: &Broker, pool: &str) -> Result<Self, QueueError> {
        let wake = Arc::new(Notify::new());
        let consumer = broker.state().consume(pool, Arc::clone(&wake))?;
        Ok(Self {
            broker: broker.clone(),
            consumer,
            wake,
        })
    }
}

impl Drop for MemoryEvents {
    fn drop(&mut self) {
        self.broker.state().drop_consumer(self.consumer);
    }
}

#[async_trait]
impl EventConsumer for MemoryEvents {
    async fn next_batch(&mut self, most: NonZeroUsize) -> Result<Vec<Incoming>, Closed> {
        loop {
            let taken = self.broker.state().take(self.consumer, most);
            match taken {
                Ok(taken) if taken.is_empty() => self.wake.notified().await,
                // Nothing is awaited from here on, so that a call that is dropped has taken nothing.
                Ok(taken) => return Ok(taken.into_iter().map(incoming).collect()),
                Err(over) => return Err(over.into()),
            }
        }
    }

    async fn ack_up_to(&mut self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.broker.state().ack_up_to(self.consumer, tag.0)
    }

    async fn dead_letter(&mut self, tag: DeliveryTag, reason: &str) -> Result<(), SettleError> {
        self.broker.state().set_aside(self.consumer, tag.0, reason)
    }
}

fn incoming(taken: Taken) -> Incoming {
    Incoming {
        tag: DeliveryTag(taken.tag),
        redelivered: taken.redelivered,
        reply_to: taken.reply_to.map(address_of),
        content: Content::of(&taken.bytes, taken.by),
    }
}
