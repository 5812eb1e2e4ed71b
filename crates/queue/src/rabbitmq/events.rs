//! The recorder's end: a consumer with a channel of its own, of which the broker lets one be active.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
};

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use lapin::{
    BasicProperties, Channel, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions},
    types::FieldTable,
};
use mayfly_dispatch::message::MAX_MESSAGE_BYTES;
use tokio::time::timeout;

use super::{
    Shared,
    connection::{CALL_LIMIT, Connection, NOT_FOUND, bounded, code},
    dead_letters::{buried, sender},
    topology,
    user::Sender,
};
use crate::seam::{
    Bad, Cause, Closed, Content, DeliveryTag, EventConsumer, Incoming, MAX_TAKE_BYTES, Origin, QueueError,
    ReplyAddress, SettleError,
};

/// Messages that the broker sends ahead.
const PREFETCH: u16 = 512;

pub(super) struct RabbitEvents {
    shared: Arc<Shared>,
    pool: String,
    connection: Arc<Connection>,
    /// Both are there until the end.
    open: Option<(Channel, Consumer)>,
    /// Read and not yet handed out.
    read: VecDeque<Delivery>,
    /// Handed out and not settled, by tag.
    outstanding: BTreeMap<u64, Delivery>,
    /// The consumer has said its last word.
    ended: bool,
    /// How it has ended, if it has.
    over: Option<Over>,
}

#[derive(Clone, Copy)]
enum Over {
    Cancelled,
    Disconnected,
}

impl RabbitEvents {
    pub(super) async fn begin(
        shared: Arc<Shared>,
        connection: Arc<Connection>,
        pool: &str,
    ) -> Result<Self, QueueError> {
        let queue = topology::events_queue(pool);
        let opened = open(&connection, &queue)
            .await
            .map_err(|cause| match code(&cause) {
                Some(NOT_FOUND) => QueueError::NoQueue { queue },
                _ => QueueError::Disconnected { cause: Some(cause) },
            })?;
        Ok(Self {
            shared,
            pool: pool.to_owned(),
            connection,
            open: Some(opened),
            read: VecDeque::new(),
            outstanding: BTreeMap::new(),
            ended: false,
            over: None,
        })
    }

    /// Ends the consumer. The channel is closed as a whole, and before the consumer is dropped: its messages go back in one
    /// step with its end, and the next consumer gets them in their order.
    fn end(&mut self) {
        self.outstanding.clear();
        self.read.clear();
        let Some((channel, consumer)) = self.open.take() else {
            return;
        };
        if tokio::runtime::Handle::try_current().is_ok() {
            self.shared.tasks.spawn(async move {
                // If it can't be closed the connection is broken, and ends by itself.
                timeout(CALL_LIMIT, channel.close(200, "OK".into())).await.ok();
                drop(consumer);
            });
        }
    }

    fn closed(&mut self) -> Closed {
        let over = *self.over.get_or_insert(if self.connection.gone().is_cancelled() {
            Over::Disconnected
        } else {
            Over::Cancelled
        });
        self.end();
        match over {
            Over::Cancelled => Closed::Cancelled,
            Over::Disconnected => Closed::Disconnected {
                cause: self.connection.cause(),
            },
        }
    }

    /// The channel, if a delivery of it is outstanding.
    fn holding(&self, tag: u64) -> Result<&Channel, SettleError> {
        match (&self.open, self.over) {
            (_, Some(Over::Disconnected)) => Err(SettleError::Disconnected {
                cause: self.connection.cause(),
            }),
            _ if self.connection.gone().is_cancelled() => Err(SettleError::Disconnected {
                cause: self.connection.cause(),
            }),
            (Some((channel, _)), None) if self.outstanding.contains_key(&tag) => Ok(channel),
            _ => Err(SettleError::NotOutstanding),
        }
    }

    /// Reads what is there, without waiting.
    fn read_on(&mut self, most: NonZeroUsize) {
        let mut bytes: usize = self.read.iter().map(|delivery| delivery.data.len()).sum();
        while self.read.len() < most.get() && bytes < MAX_TAKE_BYTES {
            let next = self
                .open
                .as_mut()
                .and_then(|(_, consumer)| consumer.next().now_or_never());
            match next {
                Some(Some(Ok(delivery))) => {
                    bytes += delivery.data.len();
                    self.read.push_back(delivery);
                }
                Some(Some(Err(_)) | None) => {
                    self.ended = true;
                    return;
                }
                None => return,
            }
        }
    }

    fn hand_out(&mut self, most: NonZeroUsize) -> Vec<Incoming> {
        let mut bytes = 0;
        let mut taken = Vec::new();
        while taken.len() < most.get() && bytes < MAX_TAKE_BYTES {
            let Some(delivery) = self.read.pop_front() else {
                break;
            };
            bytes += delivery.data.len();
            taken.push(incoming(&self.pool, &delivery));
            self.outstanding.insert(delivery.delivery_tag, delivery);
        }
        taken
    }
}

async fn open(connection: &Connection, queue: &str) -> Result<(Channel, Consumer), Cause> {
    let channel = connection.channel().await?;
    bounded(
        CALL_LIMIT,
        channel.basic_qos(PREFETCH, BasicQosOptions::default()),
    )
    .await?;
    let consumer = channel.basic_consume(
        topology::short(queue)?,
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let consumer = bounded(CALL_LIMIT, consumer).await?;
    Ok((channel, consumer))
}

impl Drop for RabbitEvents {
    fn drop(&mut self) {
        self.end();
    }
}

#[async_trait]
impl EventConsumer for RabbitEvents {
    async fn next_batch(&mut self, most: NonZeroUsize) -> Result<Vec<Incoming>, Closed> {
        if self.read.is_empty() {
            let Some((_, consumer)) = self.open.as_mut().filter(|_| !self.ended) else {
                return Err(self.closed());
            };
            let next = tokio::select! {
                next = consumer.next() => next,
                () = self.connection.gone().cancelled() => None,
            };
            match next {
                Some(Ok(delivery)) => self.read.push_back(delivery),
                Some(Err(_)) | None => return Err(self.closed()),
            }
        }
        // Nothing is awaited from here on, so that a call that is dropped has taken nothing.
        self.read_on(most);
        Ok(self.hand_out(most))
    }

    async fn ack_up_to(&mut self, tag: DeliveryTag) -> Result<(), SettleError> {
        let channel = self.holding(tag.0)?;
        let all = BasicAckOptions { multiple: true };
        bounded(CALL_LIMIT, channel.basic_ack(tag.0, all))
            .await
            .map_err(|cause| SettleError::Disconnected { cause: Some(cause) })?;
        self.outstanding = self.outstanding.split_off(&(tag.0 + 1));
        Ok(())
    }

    async fn dead_letter(&mut self, tag: DeliveryTag, reason: &str) -> Result<(), SettleError> {
        self.holding(tag.0)?;
        let Some(delivery) = self.outstanding.get(&tag.0) else {
            return Err(SettleError::NotOutstanding);
        };
        // We publish nothing of that length. The broker moves it by itself, without the reason; a message that nobody can
        // put aside would come back for ever, and hold up everything behind it.
        if delivery.data.len() > MAX_MESSAGE_BYTES {
            let channel = self.holding(tag.0)?;
            bounded(
                CALL_LIMIT,
                channel.basic_reject(tag.0, BasicRejectOptions::default()),
            )
            .await
            .map_err(|cause| SettleError::Disconnected { cause: Some(cause) })?;
            self.outstanding.remove(&tag.0);
            return Ok(());
        }
        let from = Origin::Events {
            pool: self.pool.clone(),
        };
        let letter = buried(&from, delivery, reason, self.shared.dial.user());
        self.shared
            .publish(letter)
            .await
            .map_err(|error| SettleError::Disconnected {
                cause: Some(Box::new(error)),
            })?;
        let channel = self.holding(tag.0)?;
        bounded(CALL_LIMIT, channel.basic_ack(tag.0, BasicAckOptions::default()))
            .await
            .map_err(|cause| SettleError::Disconnected { cause: Some(cause) })?;
        self.outstanding.remove(&tag.0);
        Ok(())
    }
}

/// A message, as the recorder sees it.
fn incoming(pool: &str, delivery: &Delivery) -> Incoming {
    let reply_to = delivery.properties.reply_to().as_ref();
    Incoming {
        tag: DeliveryTag(delivery.delivery_tag),
        redelivered: delivery.redelivered,
        reply_to: reply_to.map(|address| ReplyAddress(address.to_string())),
        content: content(pool, &delivery.data, &delivery.properties),
    }
}

/// What a message says, and whether whoever published it may say that.
fn content(pool: &str, bytes: &[u8], properties: &BasicProperties) -> Content {
    let why = match sender(properties) {
        Sender::Server => return Content::of(bytes, None),
        Sender::Executor { id, pool: of } if of == pool => return Content::of(bytes, Some(id)),
        Sender::Executor { id, pool: of } => Bad::Pool { by: id, of },
        Sender::Nobody => Bad::Unverified,
    };
    Content::Bad {
        bytes: bytes.to_vec(),
        why,
    }
}
