use std::{num::NonZeroU16, sync::Arc};

use async_trait::async_trait;
use mayfly_core::{chain::Chain, id::ExecutorId};
use mayfly_dispatch::message::{Control, DispatchMessage, EventBatch, Reply, Wire};
use tokio::sync::Notify;

use super::{Broker, state::Arrived};
use crate::seam::{
    Delivery, DeliveryTag, EventPublisher, ExecutorLink, LinkEvent, Output, PublishError, SettleError,
};

pub(super) struct MemoryLink {
    broker: Broker,
    link: u64,
    wake: Arc<Notify>,
}

impl MemoryLink {
    pub(super) fn begin(broker: &Broker, pool: &str, executor: ExecutorId, prefetch: NonZeroU16) -> Self {
        let wake = Arc::new(Notify::new());
        let link = broker
            .state()
            .link(pool, executor, prefetch.get().into(), Arc::clone(&wake));
        Self {
            broker: broker.clone(),
            link,
            wake,
        }
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.broker.state().drop_link(self.link);
    }
}

#[async_trait]
impl ExecutorLink for MemoryLink {
    async fn next(&mut self) -> LinkEvent {
        loop {
            let arrived = self.broker.state().next_of(self.link);
            match arrived {
                // Nothing is awaited from here on, so that a call that is dropped has taken nothing.
                Some(Arrived::Delivery {
                    tag,
                    redelivered,
                    bytes,
                }) => {
                    return LinkEvent::Delivery(Delivery {
                        tag: DeliveryTag(tag),
                        redelivered,
                        message: DispatchMessage::decode(&bytes).map(Box::new),
                    });
                }
                Some(Arrived::Reply(bytes)) => match Reply::decode(&bytes) {
                    Ok(reply) => return LinkEvent::Reply(reply),
                    // What it said will be said again when the session asks again.
                    Err(error) => tracing::warn!(error = %Chain(&error), "a reply can't be read"),
                },
                Some(Arrived::Control(bytes)) => match Control::decode(&bytes) {
                    Ok(control) => return LinkEvent::Control(control),
                    // Of a newer server: what lasts is said in replies too.
                    Err(error) => tracing::warn!(error = %Chain(&error), "an order can't be read"),
                },
                Some(Arrived::Canceled) => return LinkEvent::Cancelled,
                Some(Arrived::Disconnected) => return LinkEvent::Disconnected { cause: None },
                None => self.wake.notified().await,
            }
        }
    }

    fn publisher(&self) -> Arc<dyn EventPublisher> {
        Arc::new(MemoryPublisher {
            broker: self.broker.clone(),
            link: self.link,
        })
    }

    async fn set_consuming(&self, consuming: bool) -> Result<(), SettleError> {
        self.broker.state().set_consuming(self.link, consuming)
    }

    async fn ack(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.broker.state().ack(self.link, tag.0)
    }

    async fn hand_back(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.broker.state().hand_back(self.link, tag.0)
    }

    async fn dead_letter(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.broker.state().reject(self.link, tag.0)
    }
}

struct MemoryPublisher {
    broker: Broker,
    link: u64,
}

#[async_trait]
impl EventPublisher for MemoryPublisher {
    async fn publish_events(&self, batch: &EventBatch) -> Result<(), PublishError> {
        let bytes = batch.encode().into();
        self.broker.state().publish_from(self.link, bytes)
    }

    fn publish_output(&self, output: Output) {
        self.broker.state().output(self.link, &output);
    }
}
