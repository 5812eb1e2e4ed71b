//! What is declared at the broker, and what it is called.
//!
//! ```text
//! mayfly.jobs     direct  -- pool ------------------> mayfly.jobs.<pool>     quorum
//! mayfly.events   direct  -- events.<pool> ---------> mayfly.events.<pool>   quorum, single active consumer
//!                         -- tick.<epoch>.<pool> --/
//! mayfly.dead     fanout  --------------------------> mayfly.dead            quorum; by jobs.<pool> or events.<pool>
//! mayfly.control  direct  -- <pool>.<executor> -----> an exclusive queue of each session
//! mayfly.output   direct  -- <job> -----------------> an exclusive queue of each listener
//! ```
//!
//! Nothing of it is refused by RabbitMQ 4: every queue is durable and of the quorum type, or exclusive; limits of
//! delivery are positive; there are no priorities. Arguments of a queue can't be changed, so that another set of them is
//! another [`VERSION`], whose names stand beside the old ones.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};

use mayfly_core::id::ExecutorId;

use super::connection::{CALL_LIMIT, PRECONDITION_FAILED, bounded, code};
use crate::seam::{Cause, EVENTS_DELIVERY_LIMIT, JOBS_DELIVERY_LIMIT, Origin, QueueError};

/// The version of what is declared. The first has the bare names; another one counts in the first word, as `mayfly2`.
pub const VERSION: u32 = 1;

/// The longest name of a pool, in bytes: names at the broker have at most 255.
pub const MAX_POOL_BYTES: usize = 128;

/// Epochs before the current one that are unbound. They grow one by one, and a new queue has no bindings at all.
const OLDER_EPOCHS: u64 = 16;

/// How much a queue keeps before the broker refuses further messages for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Messages of a pool's jobs. Those that executors have don't count.
    pub jobs: u32,
    /// Bytes of a pool's jobs.
    pub jobs_bytes: u64,
    /// Bytes of a pool's events.
    pub events_bytes: u64,
    /// Bytes of the dead letters.
    pub dead_bytes: u64,
}

impl QueueLimits {
    /// Far more than a fleet has under way: the scheduler keeps queues short.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            jobs: 100_000,
            jobs_bytes: 2 << 30,
            events_bytes: 4 << 30,
            dead_bytes: 1 << 30,
        }
    }
}

/// The first word of every name.
fn word() -> String {
    match VERSION {
        1 => "mayfly".into(),
        version => format!("mayfly{version}"),
    }
}

pub(super) fn jobs_exchange() -> ShortString {
    format!("{}.jobs", word()).into()
}

pub(super) fn events_exchange() -> ShortString {
    format!("{}.events", word()).into()
}

pub(super) fn dead_exchange() -> ShortString {
    format!("{}.dead", word()).into()
}

pub(super) fn control_exchange() -> ShortString {
    format!("{}.control", word()).into()
}

pub(super) fn output_exchange() -> ShortString {
    format!("{}.output", word()).into()
}

/// The queue of the dead letters.
pub(super) fn dead_queue() -> ShortString {
    dead_exchange()
}

/// The queue of a pool's jobs.
#[must_use]
pub fn jobs_queue(pool: &str) -> String {
    format!("{}.jobs.{pool}", word())
}

/// The queue of a pool's events.
#[must_use]
pub fn events_queue(pool: &str) -> String {
    format!("{}.events.{pool}", word())
}

/// By what orders for an executor are routed.
pub(super) fn control_key(pool: &str, executor: ExecutorId) -> String {
    format!("{pool}.{executor}")
}

/// By what batches of events are routed.
pub(super) fn events_key(pool: &str) -> String {
    format!("events.{pool}")
}

/// By what ticks of an epoch are routed.
pub(super) fn tick_key(pool: &str, epoch: u64) -> String {
    format!("tick.{epoch}.{pool}")
}

/// By what a queue's dead letters are routed, so that they tell where they come from.
pub(super) fn dead_key(origin: &Origin) -> String {
    match origin {
        Origin::Jobs { pool } => format!("jobs.{pool}"),
        Origin::Events { pool } => events_key(pool),
    }
}

/// Where a dead letter comes from.
pub(super) fn origin_of(key: &str) -> Option<Origin> {
    let pool = |pool: &str| pool.to_owned();
    if let Some(of) = key.strip_prefix("jobs.") {
        return Some(Origin::Jobs { pool: pool(of) });
    }
    key.strip_prefix("events.")
        .map(|of| Origin::Events { pool: pool(of) })
}

/// A name for the broker; one that is too long is refused.
pub(super) fn short(name: &str) -> Result<ShortString, Cause> {
    ShortString::try_new(name).map_err(|error| Box::new(error) as Cause)
}

/// What is to be declared.
pub(super) enum Part<'a> {
    /// The exchanges.
    Exchanges,
    /// The queue of the dead letters.
    DeadLetters,
    /// The queue of a pool's jobs.
    Jobs { pool: &'a str },
    /// The queue of a pool's events, open to the ticks of an epoch.
    Events { pool: &'a str, epoch: u64 },
}

/// Declares a part of the topology. Idempotent; what is there with other properties is an error and stays.
///
/// This is the one place that says what exchanges and queues there are, and with which arguments.
pub(super) async fn declare(
    channel: &Channel,
    limits: &QueueLimits,
    part: &Part<'_>,
) -> Result<(), QueueError> {
    match part {
        Part::Exchanges => {
            for (name, kind) in [
                (jobs_exchange(), ExchangeKind::Direct),
                (events_exchange(), ExchangeKind::Direct),
                (dead_exchange(), ExchangeKind::Fanout),
                (control_exchange(), ExchangeKind::Direct),
                (output_exchange(), ExchangeKind::Direct),
            ] {
                exchange(channel, name, kind).await?;
            }
            Ok(())
        }
        Part::DeadLetters => {
            let arguments = Arguments::quorum(EVENTS_DELIVERY_LIMIT)
                .dead_letters_to("dead")
                .bytes(limits.dead_bytes);
            queue(channel, dead_queue().as_str(), arguments).await?;
            bind(channel, dead_queue().as_str(), dead_exchange(), "").await
        }
        Part::Jobs { pool } => {
            let (name, origin) = (jobs_queue(pool), Origin::Jobs { pool: (*pool).into() });
            let arguments = Arguments::quorum(JOBS_DELIVERY_LIMIT)
                .dead_letters_to(&dead_key(&origin))
                .messages(limits.jobs)
                .bytes(limits.jobs_bytes);
            queue(channel, &name, arguments).await?;
            bind(channel, &name, jobs_exchange(), pool).await
        }
        Part::Events { pool, epoch } => {
            let (name, origin) = (events_queue(pool), Origin::Events { pool: (*pool).into() });
            let arguments = Arguments::quorum(EVENTS_DELIVERY_LIMIT)
                .dead_letters_to(&dead_key(&origin))
                .bytes(limits.events_bytes)
                .single_active_consumer();
            queue(channel, &name, arguments).await?;
            bind(channel, &name, events_exchange(), &tick_key(pool, *epoch)).await?;
            for older in epoch.saturating_sub(OLDER_EPOCHS).max(1)..*epoch {
                unbind(channel, &name, events_exchange(), &tick_key(pool, older)).await?;
            }
            // Last, so that a queue that takes batches takes ticks too.
            bind(channel, &name, events_exchange(), &events_key(pool)).await
        }
    }
}

/// The arguments of a durable queue.
struct Arguments(FieldTable);

impl Arguments {
    fn quorum(delivery_limit: u32) -> Self {
        Self(FieldTable::default())
            .text("x-queue-type", "quorum")
            .number("x-delivery-limit", delivery_limit.into())
            // What is full says so to its publisher; anything else would drop messages.
            .text("x-overflow", "reject-publish")
    }

    fn dead_letters_to(self, key: &str) -> Self {
        self.text("x-dead-letter-exchange", dead_exchange().as_str())
            .text("x-dead-letter-routing-key", key)
            // The queue keeps a dead letter until the other one has it.
            .text("x-dead-letter-strategy", "at-least-once")
    }

    fn messages(self, most: u32) -> Self {
        self.number("x-max-length", most.into())
    }

    fn bytes(self, most: u64) -> Self {
        self.number("x-max-length-bytes", i64::try_from(most).unwrap_or(i64::MAX))
    }

    fn single_active_consumer(mut self) -> Self {
        self.0
            .insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
        self
    }

    fn text(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.into(), AMQPValue::LongString(value.into()));
        self
    }

    /// Always of the same type, since a broker compares them.
    fn number(mut self, name: &str, value: i64) -> Self {
        self.0.insert(name.into(), AMQPValue::LongLongInt(value));
        self
    }
}

async fn exchange(channel: &Channel, name: ShortString, kind: ExchangeKind) -> Result<(), QueueError> {
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let declared = channel.exchange_declare(name.clone(), kind, durable, FieldTable::default());
    bounded(CALL_LIMIT, declared)
        .await
        .map_err(|cause| refused(name.as_str(), cause))
}

async fn queue(channel: &Channel, name: &str, arguments: Arguments) -> Result<(), QueueError> {
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let short = short(name).map_err(|cause| refused(name, cause))?;
    bounded(CALL_LIMIT, channel.queue_declare(short, durable, arguments.0))
        .await
        .map(drop)
        .map_err(|cause| refused(name, cause))
}

async fn bind(channel: &Channel, queue: &str, exchange: ShortString, key: &str) -> Result<(), QueueError> {
    let names = short(queue).and_then(|queue| Ok((queue, short(key)?)));
    let (name, key) = names.map_err(|cause| refused(queue, cause))?;
    let bound = channel.queue_bind(
        name,
        exchange,
        key,
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    bounded(CALL_LIMIT, bound)
        .await
        .map_err(|cause| refused(queue, cause))
}

async fn unbind(channel: &Channel, queue: &str, exchange: ShortString, key: &str) -> Result<(), QueueError> {
    let names = short(queue).and_then(|queue| Ok((queue, short(key)?)));
    let (name, key) = names.map_err(|cause| refused(queue, cause))?;
    bounded(
        CALL_LIMIT,
        channel.queue_unbind(name, exchange, key, FieldTable::default()),
    )
    .await
    .map_err(|cause| refused(queue, cause))
}

/// What an error of the broker means for a declaration.
fn refused(queue: &str, cause: Cause) -> QueueError {
    match code(&cause) {
        Some(PRECONDITION_FAILED) => QueueError::Mismatch {
            queue: queue.into(),
            cause: Some(cause),
        },
        _ => QueueError::Disconnected { cause: Some(cause) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_tells_where_it_comes_from() {
        for origin in [
            Origin::Jobs {
                pool: "events.gpu".into(),
            },
            Origin::Events {
                pool: "jobs.1".into(),
            },
        ] {
            assert_eq!(origin_of(&dead_key(&origin)), Some(origin));
        }
        assert_eq!(origin_of("dead"), None);
    }

    #[test]
    fn no_tick_is_routed_like_a_batch_whatever_the_pool_is_called() {
        assert_ne!(events_key("x"), tick_key("x", 1));
        assert_ne!(events_key("tick.1.x"), tick_key("x", 1));
        assert_ne!(tick_key("2.x", 1), tick_key("x", 2));
    }
}
