//! RabbitMQ, from 3.10 to 4: quorum queues, publisher confirms, and connections that are made again for ever.
//!
//! ```text
//! RabbitQueue (server)                           RabbitQueue (executor)
//! ├── lane "publish": attempts, ticks, replies   └── join: two connections of the link's own
//! │   └── publisher: the channel of confirms         ├── publish: events, with their replies
//! └── lane "consume": events, dead letters           └── consume: jobs
//! ```
//!
//! Start with [`RabbitQueue::connect`]. `lane` makes connections again, `publisher` judges confirms, `topology` says what
//! is declared and what it is called, `user` who may do what. Publishing and consuming use separate connections: a broker
//! with an alarm stops reading from those that publish, and acks must flow.
//!
//! Absent on purpose: the client library's own recovery (it gives up at some time, and restores what should be looked at
//! anew), counts of outstanding confirms (each is judged by itself), priorities and global prefetch (refused by quorum
//! queues).

use std::{
    collections::BTreeSet,
    fmt,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use async_trait::async_trait;
use lapin::{options::QueueDeclareOptions, types::FieldTable, uri::AMQPUri};
use mayfly_core::id::{ExecutorId, JobId};
use mayfly_dispatch::message::{Control, DispatchMessage, Reply, Tick, Wire};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::seam::{
    Cause, DeadLetters, EventConsumer, ExecutorLink, Health, Origin, OutputListener, PublishError, Queue,
    QueueError, ReplyAddress,
};

mod bench;
mod connection;
mod dead_letters;
mod events;
mod health;
mod lane;
mod link;
mod management;
mod output;
mod publisher;
mod replies;
mod topology;
mod user;

pub use bench::Load;
use connection::{CALL_LIMIT, Connection, Dial, NOT_FOUND, bounded, code};
use dead_letters::{RabbitDeadLetters, revived};
use events::RabbitEvents;
use health::Registry;
use lane::Lane;
use link::RabbitLink;
pub use management::{Management, ManagementError};
use output::RabbitListener;
use publisher::{Message, Publisher, persistent};
use replies::Replies;
use topology::Part;
pub use topology::{MAX_POOL_BYTES, QueueLimits, VERSION, events_queue, jobs_queue};
pub use user::{Enrollment, Permissions, executor_permissions, user_name};

/// How a broker is reached.
#[derive(Clone)]
pub struct RabbitConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps://…`. A heartbeat in it is ignored.
    pub url: String,
    /// What the broker's operators see of the connection.
    pub name: String,
    /// Certificates of authorities in PEM that are trusted beside those of the host.
    pub authorities: Option<String>,
    /// Between two heartbeats, in whole seconds; 10 s in [`RabbitConfig::new`]. Two that are missed end a connection, on
    /// either side.
    pub heartbeat_seconds: NonZeroU16,
    /// How much queues keep. All servers of a fleet must have the same.
    pub limits: QueueLimits,
}

impl fmt::Debug for RabbitConfig {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitConfig")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl RabbitConfig {
    /// The usual one.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self {
            url,
            name: "mayfly".into(),
            authorities: None,
            heartbeat_seconds: const { NonZeroU16::new(10).expect("10 is not zero") },
            limits: QueueLimits::standard(),
        }
    }
}

/// A configuration that means nothing.
#[derive(Debug, thiserror::Error)]
pub enum RabbitConfigError {
    /// The address can't be read. What is wrong is not said, since it holds a password.
    #[error("the broker's address is not of the form amqp://user:password@host:port/vhost")]
    Url,
}

/// The longest name in AMQP.
const MAX_NAME_BYTES: usize = 255;

/// A RabbitMQ broker. Clones are the same connections.
#[derive(Clone)]
pub struct RabbitQueue {
    shared: Arc<Shared>,
    _stop: Arc<tokio_util::sync::DropGuard>,
}

/// What the parts of a queue share.
struct Shared {
    dial: Dial,
    limits: QueueLimits,
    registry: Arc<Registry>,
    tasks: TaskTracker,
    stop: CancellationToken,
    lanes: OnceLock<Lanes>,
    /// Pools that were declared here, which are declared again where they are missing.
    declared: Mutex<BTreeSet<String>>,
}

/// The server's connections.
struct Lanes {
    publish: Lane<Publishing>,
    consume: Lane<()>,
}

struct Publishing {
    publisher: Publisher,
    replies: Replies,
}

impl fmt::Debug for RabbitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitQueue").finish_non_exhaustive()
    }
}

impl RabbitQueue {
    /// A queue that connects when it is first used, and again whenever it must. That nobody answers shows in the calls.
    ///
    /// # Errors
    /// [`RabbitConfigError`].
    pub fn connect(config: RabbitConfig) -> Result<Self, RabbitConfigError> {
        let uri: AMQPUri = config.url.parse().map_err(|_| RabbitConfigError::Url)?;
        // As every name in the protocol.
        if uri.authority.userinfo.username.len() > MAX_NAME_BYTES {
            return Err(RabbitConfigError::Url);
        }
        let stop = CancellationToken::new();
        let shared = Shared {
            dial: Dial {
                uri,
                name: config.name,
                authorities: config.authorities,
                heartbeat_seconds: config.heartbeat_seconds.get(),
            },
            limits: config.limits,
            registry: Arc::default(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            lanes: OnceLock::new(),
            declared: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            _stop: Arc::new(stop.drop_guard()),
        })
    }
}

impl Shared {
    fn lanes(&self) -> &Lanes {
        self.lanes.get_or_init(|| {
            let (tasks, limits) = (self.tasks.clone(), self.limits);
            let publishing = move |connection: Arc<Connection>| {
                let tasks = tasks.clone();
                Box::pin(async move { Publishing::begin(&connection, &limits, &tasks).await }) as _
            };
            Lanes {
                publish: Lane::begin(
                    &self.dial,
                    "publish",
                    &self.registry,
                    &self.tasks,
                    self.stop.clone(),
                    Box::new(publishing),
                ),
                consume: Lane::begin(
                    &self.dial,
                    "consume",
                    &self.registry,
                    &self.tasks,
                    self.stop.clone(),
                    Box::new(|_| Box::pin(async { Ok(()) })),
                ),
            }
        })
    }

    /// Publishes with the server's credentials.
    async fn publish(&self, message: Message) -> Result<(), PublishError> {
        let held = self.lanes().publish.held().await;
        let held = held.map_err(|cause| PublishError::Disconnected { cause })?;
        held.with.publisher.publish(message).await
    }

    /// The connection that consumes.
    async fn consuming(&self) -> Result<Arc<Connection>, QueueError> {
        let held = self.lanes().consume.held().await;
        let held = held.map_err(|cause| QueueError::Disconnected { cause })?;
        Ok(Arc::clone(&held.connection))
    }

    async fn declare(&self, parts: &[Part<'_>]) -> Result<(), QueueError> {
        let channel = self.consuming().await?.channel().await;
        let channel = channel.map_err(|cause| QueueError::Disconnected { cause: Some(cause) })?;
        for part in parts {
            topology::declare(&channel, &self.limits, part).await?;
        }
        close(&channel).await;
        Ok(())
    }

    fn declared(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Declares again what a pool needs, if it was declared here: its queue was seen to be gone. Not the queue of its
    /// events, which is declared for an epoch, by whoever has committed that.
    async fn repair(&self, pool: &str) {
        if !self.declared().contains(pool) {
            return;
        }
        match self
            .declare(&[Part::Exchanges, Part::DeadLetters, Part::Jobs { pool }])
            .await
        {
            Ok(()) => tracing::warn!(
                pool,
                "the queue of a pool's jobs was gone and has been declared again"
            ),
            Err(error) => {
                let error = mayfly_core::chain::Chain(&error).to_string();
                tracing::warn!(
                    error,
                    pool,
                    "the queue of a pool's jobs is gone and can't be declared"
                );
            }
        }
    }
}

impl Publishing {
    /// The exchanges come first: publishing to one that is not there would end the channel, with every confirm on it.
    async fn begin(
        connection: &Connection,
        limits: &QueueLimits,
        tasks: &TaskTracker,
    ) -> Result<Self, Cause> {
        let channel = connection.channel().await?;
        topology::declare(&channel, limits, &Part::Exchanges).await?;
        close(&channel).await;
        Ok(Self {
            publisher: Publisher::begin(connection, tasks).await?,
            replies: Replies::begin(connection, tasks).await?,
        })
    }
}

/// Closes a channel that nothing is outstanding on.
async fn close(channel: &lapin::Channel) {
    // One that can't be closed is closed, or its connection is gone.
    bounded(CALL_LIMIT, channel.close(200, "OK".into())).await.ok();
}

/// The messages of a queue that nobody has.
async fn ready(connection: &Connection, queue: &str) -> Result<u64, Cause> {
    let channel = connection.channel().await?;
    let look = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(topology::short(queue)?, look, FieldTable::default());
    let count = bounded(CALL_LIMIT, declared).await?.message_count();
    close(&channel).await;
    Ok(count.into())
}

#[async_trait]
impl Queue for RabbitQueue {
    async fn declare(&self, pool: &str) -> Result<(), QueueError> {
        let parts = [Part::Exchanges, Part::DeadLetters, Part::Jobs { pool }];
        self.shared.declare(&parts).await?;
        self.shared.declared().insert(pool.to_owned());
        Ok(())
    }

    async fn declare_events(&self, pool: &str, epoch: u64) -> Result<(), QueueError> {
        let parts = [Part::Exchanges, Part::DeadLetters, Part::Events { pool, epoch }];
        self.shared.declare(&parts).await
    }

    async fn publish_attempt(&self, pool: &str, message: &DispatchMessage) -> Result<(), PublishError> {
        let queue = jobs_queue(pool);
        let Ok(key) = topology::short(pool) else {
            return Err(PublishError::Unroutable { queue });
        };
        let message = Message {
            exchange: topology::jobs_exchange(),
            key,
            properties: persistent(),
            body: message.encode(),
            queue,
        };
        let published = self.shared.publish(message).await;
        if matches!(published, Err(PublishError::Unroutable { .. })) {
            self.shared.repair(pool).await;
        }
        published
    }

    async fn publish_tick(&self, pool: &str, tick: &Tick) -> Result<(), PublishError> {
        let queue = format!("{} (epoch {})", events_queue(pool), tick.epoch);
        let Ok(key) = topology::short(&topology::tick_key(pool, tick.epoch)) else {
            return Err(PublishError::Unroutable { queue });
        };
        let message = Message {
            exchange: topology::events_exchange(),
            key,
            properties: persistent().with_user_id(self.shared.dial.user().into()),
            body: tick.encode(),
            queue,
        };
        self.shared.publish(message).await
    }

    async fn ready_count(&self, pool: &str) -> Result<u64, QueueError> {
        let connection = self.shared.consuming().await?;
        let queue = jobs_queue(pool);
        match ready(&connection, &queue).await {
            Ok(count) => Ok(count),
            Err(cause) if code(&cause) == Some(NOT_FOUND) => {
                self.shared.repair(pool).await;
                Err(QueueError::NoQueue { queue })
            }
            Err(cause) => Err(QueueError::Disconnected { cause: Some(cause) }),
        }
    }

    async fn consume_events(&self, pool: &str) -> Result<Box<dyn EventConsumer>, QueueError> {
        let connection = self.shared.consuming().await?;
        let events = RabbitEvents::begin(Arc::clone(&self.shared), connection, pool).await?;
        Ok(Box::new(events))
    }

    async fn reply(&self, to: &ReplyAddress, reply: &Reply) {
        // One that is not there yet is not waited for: what it would say is said again when it is asked again.
        if let Some(held) = self.shared.lanes().publish.now() {
            held.with.replies.send(to, reply.encode());
        }
    }

    async fn dead_letters(&self) -> Result<Box<dyn DeadLetters>, QueueError> {
        let connection = self.shared.consuming().await?;
        let letters = RabbitDeadLetters::begin(Arc::clone(&self.shared), connection).await;
        if matches!(letters, Err(QueueError::NoQueue { .. })) && !self.shared.declared().is_empty() {
            self.shared.declare(&[Part::Exchanges, Part::DeadLetters]).await?;
        }
        Ok(Box::new(letters?))
    }

    async fn republish(&self, origin: &Origin, sender: &str, bytes: &[u8]) -> Result<(), PublishError> {
        let message = revived(origin, sender, bytes, self.shared.dial.user())
            .map_err(|cause| PublishError::Disconnected { cause: Some(cause) })?;
        self.shared.publish(message).await
    }

    async fn control(&self, pool: &str, executor: ExecutorId, control: &Control) -> Result<(), PublishError> {
        let key = topology::control_key(pool, executor);
        let queue = format!("{} ({key})", topology::control_exchange());
        let Ok(key) = topology::short(&key) else {
            return Err(PublishError::Unroutable { queue });
        };
        let message = Message {
            exchange: topology::control_exchange(),
            key,
            properties: persistent().with_delivery_mode(1),
            body: control.encode(),
            queue,
        };
        self.shared.publish(message).await
    }

    async fn listen(&self, job: JobId) -> Result<Box<dyn OutputListener>, QueueError> {
        Ok(Box::new(RabbitListener::begin(&self.shared, job).await?))
    }

    fn health(&self) -> Health {
        self.shared.registry.health()
    }

    async fn join(
        &self,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Box<dyn ExecutorLink>, QueueError> {
        let link = RabbitLink::begin(&self.shared, pool, executor, prefetch).await;
        let link = link.map_err(|cause| QueueError::Disconnected { cause: Some(cause) })?;
        Ok(Box::new(link))
    }
}
