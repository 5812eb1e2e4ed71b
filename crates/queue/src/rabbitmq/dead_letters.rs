//! Dead letters: how they are made, read and published again.
//!
//! They are looked for and then fetched one by one, not consumed: a consumer would hold what nobody has asked for yet.

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use lapin::{
    BasicProperties, Channel,
    message::{BasicGetMessage, Delivery},
    options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use tokio::time::{sleep, timeout};

use super::{
    Shared,
    connection::{CALL_LIMIT, Connection, NOT_FOUND, bounded, code},
    publisher::{Message, persistent},
    topology,
    user::{NOBODY, Sender},
};
use crate::seam::{
    Cause, Closed, DeadLetter, DeadLetters, DeliveryTag, Origin, QueueError, SettleError, WhyDead,
};

/// The user whom the broker had verified, in a message that the server publishes for it: the broker refuses another's
/// name as the sender.
const BY: &str = "mayfly-by";

/// Why the recorder has set a message aside.
const REASON: &str = "mayfly-reason";

/// Reasons are cut to this many bytes.
const MAX_REASON_BYTES: usize = 4096;

/// How often a reader looks for dead letters that were not there.
const LOOK: Duration = Duration::from_millis(250);

/// A dead letter of a message that the recorder sets aside.
pub(super) fn buried(from: &Origin, delivery: &Delivery, reason: &str, us: &str) -> Message {
    let mut headers = FieldTable::default();
    let by = by(&delivery.properties);
    headers.insert(BY.into(), AMQPValue::LongString(by.as_str().into()));
    let cut = reason.floor_char_boundary(MAX_REASON_BYTES);
    headers.insert(REASON.into(), AMQPValue::LongString(reason[..cut].into()));
    Message {
        exchange: topology::dead_exchange(),
        // A key that came from a queue's name is no longer than that.
        key: topology::short(&topology::dead_key(from)).unwrap_or_default(),
        properties: persistent().with_headers(headers).with_user_id(us.into()),
        body: delivery.data.clone(),
        queue: topology::dead_queue().to_string(),
    }
}

/// The user whom the broker had verified; where it had verified none, the name of nobody, so that a message that the
/// server publishes again doesn't become the server's own word.
fn by(properties: &BasicProperties) -> String {
    match header(properties, BY) {
        Some(by) if verified(properties) == Some(Sender::Server) => by,
        _ => properties
            .user_id()
            .as_ref()
            .map_or_else(|| NOBODY.to_owned(), ShortString::to_string),
    }
}

fn verified(properties: &BasicProperties) -> Option<Sender> {
    properties
        .user_id()
        .as_ref()
        .map(|user| Sender::of(user.as_str()))
}

fn header(properties: &BasicProperties, name: &str) -> Option<String> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Who has published a message: the user whom the broker has verified or, where the server has published it again, the
/// one whom the broker had verified before.
pub(super) fn sender(properties: &BasicProperties) -> Sender {
    match verified(properties) {
        Some(Sender::Server) => header(properties, BY).map_or(Sender::Server, |user| Sender::of(&user)),
        Some(other) => other,
        None => Sender::Nobody,
    }
}

/// Why a message is here.
fn why(properties: &BasicProperties) -> WhyDead {
    if let Some(reason) = header(properties, REASON)
        && verified(properties) == Some(Sender::Server)
    {
        return WhyDead::SetAside { reason };
    }
    let first = properties.headers().as_ref().and_then(|headers| {
        let AMQPValue::FieldArray(deaths) = headers.inner().get("x-death")? else {
            return None;
        };
        let AMQPValue::FieldTable(newest) = deaths.as_slice().first()? else {
            return None;
        };
        newest.inner().get("reason").cloned()
    });
    match first {
        Some(AMQPValue::LongString(reason)) if reason.as_bytes() == b"delivery_limit" => {
            WhyDead::DeliveryLimit
        }
        _ => WhyDead::Rejected,
    }
}

type Getting = Pin<Box<dyn Future<Output = Result<Option<BasicGetMessage>, Cause>> + Send>>;

pub(super) struct RabbitDeadLetters {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    channel: Channel,
    /// A call to the broker that whoever waited for it has given up; what it brings is for the next one.
    getting: Option<Getting>,
    in_hands: BTreeSet<u64>,
}

impl RabbitDeadLetters {
    pub(super) async fn begin(shared: Arc<Shared>, connection: Arc<Connection>) -> Result<Self, QueueError> {
        let opened = async {
            let channel = connection.channel().await?;
            ready(&channel).await?;
            Ok(channel)
        };
        let channel = opened.await.map_err(|cause: Cause| match code(&cause) {
            Some(NOT_FOUND) => QueueError::NoQueue {
                queue: topology::dead_queue().to_string(),
            },
            _ => QueueError::Disconnected { cause: Some(cause) },
        })?;
        Ok(Self {
            shared,
            connection,
            channel,
            getting: None,
            in_hands: BTreeSet::new(),
        })
    }

    fn closed(&self, cause: Cause) -> Closed {
        if self.connection.gone().is_cancelled() || code(&cause) != Some(NOT_FOUND) {
            Closed::Disconnected { cause: Some(cause) }
        } else {
            Closed::Cancelled
        }
    }

    /// Fetches the next one, if there is one that nobody has in hands.
    async fn fetch(&mut self) -> Result<Option<DeadLetter>, Closed> {
        let channel = self.channel.clone();
        let getting = self.getting.get_or_insert_with(|| {
            Box::pin(async move {
                if ready(&channel).await? == 0 {
                    return Ok(None);
                }
                let get = channel.basic_get(topology::dead_queue(), BasicGetOptions::default());
                bounded(CALL_LIMIT, get).await
            })
        });
        let got = getting.await;
        self.getting = None;
        let Some(message) = got.map_err(|cause| self.closed(cause))? else {
            return Ok(None);
        };
        let delivery = message.delivery;
        let key = delivery.routing_key.as_str();
        let origin = topology::origin_of(key).unwrap_or_else(|| Origin::Jobs { pool: key.to_owned() });
        let letter = DeadLetter {
            tag: DeliveryTag(delivery.delivery_tag),
            origin,
            why: why(&delivery.properties),
            sender: by(&delivery.properties),
            bytes: delivery.data,
        };
        self.in_hands.insert(delivery.delivery_tag);
        Ok(Some(letter))
    }

    fn connected(&self) -> Result<(), Option<Cause>> {
        if self.connection.gone().is_cancelled() {
            return Err(self.connection.cause());
        }
        Ok(())
    }

    async fn ack(&mut self, tag: u64) -> Result<(), Cause> {
        bounded(
            CALL_LIMIT,
            self.channel.basic_ack(tag, BasicAckOptions::default()),
        )
        .await
    }
}

/// How many dead letters nobody has in hands.
async fn ready(channel: &Channel) -> Result<u32, Cause> {
    let look = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(topology::dead_queue(), look, FieldTable::default());
    Ok(bounded(CALL_LIMIT, declared).await?.message_count())
}

/// What was a dead letter, for where it came from.
pub(super) fn revived(origin: &Origin, sender: &str, bytes: &[u8], us: &str) -> Result<Message, Cause> {
    let (exchange, key, queue) = match origin {
        Origin::Jobs { pool } => (
            topology::jobs_exchange(),
            pool.clone(),
            topology::jobs_queue(pool),
        ),
        Origin::Events { pool } => (
            topology::events_exchange(),
            topology::events_key(pool),
            topology::events_queue(pool),
        ),
    };
    let mut headers = FieldTable::default();
    headers.insert(BY.into(), AMQPValue::LongString(sender.into()));
    Ok(Message {
        exchange,
        key: topology::short(&key)?,
        properties: persistent().with_headers(headers).with_user_id(us.into()),
        body: bytes.to_vec(),
        queue,
    })
}

impl Drop for RabbitDeadLetters {
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let channel = self.channel.clone();
            self.shared.tasks.spawn(async move {
                // If it can't be closed the connection is broken, and ends by itself.
                timeout(CALL_LIMIT, channel.close(200, "OK".into())).await.ok();
            });
        }
    }
}

#[async_trait]
impl DeadLetters for RabbitDeadLetters {
    async fn next(&mut self) -> Result<DeadLetter, Closed> {
        loop {
            if let Some(letter) = self.try_next().await? {
                return Ok(letter);
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.connection.gone().cancelled() => {}
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<DeadLetter>, Closed> {
        self.connected().map_err(|cause| Closed::Disconnected { cause })?;
        self.fetch().await
    }

    async fn discard(&mut self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.connected()
            .map_err(|cause| SettleError::Disconnected { cause })?;
        if !self.in_hands.contains(&tag.0) {
            return Err(SettleError::NotOutstanding);
        }
        self.ack(tag.0)
            .await
            .map_err(|cause| SettleError::Disconnected { cause: Some(cause) })?;
        self.in_hands.remove(&tag.0);
        Ok(())
    }
}
