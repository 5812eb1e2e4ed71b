//! An executor's end: two connections, one that publishes events and gets the replies to them, one that consumes jobs.
//! When either is lost so is the link, and the executor joins again.
//!
//! A task moves deliveries from the client library's buffer, which the prefetch bounds, to the link's, so that what was
//! not taken can be handed back.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer,
    message::Delivery as Delivered,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
        BasicRejectOptions, QueueBindOptions,
    },
    types::{FieldTable, ShortString},
};
use mayfly_core::{chain::Chain, id::ExecutorId};
use mayfly_dispatch::message::{Control, DispatchMessage, EventBatch, Reply, Wire};
use tokio::{
    sync::{Mutex as Turn, Notify},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    Shared,
    connection::{CALL_LIMIT, Connection, NOT_FOUND, bounded, code},
    output::{OutputPublisher, exclusive},
    publisher::{Message, Publisher, persistent},
    topology,
};
use crate::seam::{
    Cause, Delivery, DeliveryTag, EventPublisher, ExecutorLink, LinkEvent, Output, PublishError, SettleError,
};

/// The queue of direct replies. It is consumed on the channel that publishes what is replied to.
const REPLIES: &str = "amq.rabbitmq.reply-to";

/// Orders that wait for somebody to read them.
const MAX_ORDERS: usize = 64;

pub(super) struct RabbitLink {
    publishing: Arc<Connection>,
    consuming: Arc<Connection>,
    replies: Consumer,
    publisher: Arc<RabbitEventPublisher>,
    queue: String,
    /// By what orders for this executor are routed.
    key: ShortString,
    prefetch: NonZeroU16,
    inbox: Arc<Inbox>,
    /// One change of the consumer at a time.
    turn: Turn<Option<Consuming>>,
    tasks: TaskTracker,
}

/// A channel that consumes jobs, or has.
struct Consuming {
    channel: Channel,
    consumer: Option<Standing>,
}

/// A consumer that was begun and not ended.
struct Standing {
    tag: ShortString,
    /// Its end is wanted.
    asked: CancellationToken,
    /// Its task has ended.
    ended: CancellationToken,
}

/// What has been delivered.
#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    wake: Notify,
}

#[derive(Default)]
struct InboxState {
    /// The channel that deliveries are of. Another one voids them all.
    channel: Option<Channel>,
    /// Counts the channels.
    life: u64,
    /// Not yet returned by `next`.
    unread: VecDeque<Delivered>,
    /// Returned by `next` and not settled: the broker's tag by ours.
    outstanding: BTreeMap<u64, u64>,
    canceled: bool,
    last: u64,
    orders: VecDeque<Control>,
    takes_orders: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, control: Control) {
        let mut state = self.state();
        if state.orders.len() < MAX_ORDERS {
            state.orders.push_back(control);
            self.wake.notify_one();
        }
    }

    /// The consumer of a life has been ended by the broker.
    fn cancel(&self, life: u64) {
        let mut state = self.state();
        if state.life == life {
            state.void();
            state.canceled = true;
            self.wake.notify_one();
        }
    }
}

impl InboxState {
    fn void(&mut self) {
        self.channel = None;
        self.life += 1;
        self.unread.clear();
        self.outstanding.clear();
    }
}

impl RabbitLink {
    pub(super) async fn begin(
        shared: &Shared,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Self, Cause> {
        let (dial, tasks) = (&shared.dial, &shared.tasks);
        let (publishing, consuming) = tokio::try_join!(
            Connection::open(dial, "events", shared.registry.slot(), tasks),
            Connection::open(dial, "jobs", shared.registry.slot(), tasks),
        )?;
        let channel = publishing.channel().await?;
        let no_ack = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let replies = channel.basic_consume(REPLIES.into(), "".into(), no_ack, FieldTable::default());
        let replies = bounded(CALL_LIMIT, replies).await?;
        let publisher = RabbitEventPublisher {
            publisher: Publisher::on(channel, &publishing, tasks).await?,
            key: topology::short(&topology::events_key(pool))?,
            queue: topology::events_queue(pool),
            output: OutputPublisher::begin(&publishing, topology::short(dial.user())?, tasks).await?,
            user: topology::short(dial.user())?,
        };
        let link = Self {
            publishing,
            consuming,
            replies,
            publisher: Arc::new(publisher),
            queue: topology::jobs_queue(pool),
            key: topology::short(&topology::control_key(pool, executor))?,
            prefetch,
            inbox: Arc::default(),
            turn: Turn::new(None),
            tasks: tasks.clone(),
        };
        link.take_orders().await?;
        tracing::debug!(executor.id = %executor, pool, "joined");
        Ok(link)
    }

    /// Begins to read the orders for this executor. Where the broker knows nothing of orders yet it is tried again when
    /// jobs are consumed.
    async fn take_orders(&self) -> Result<(), Cause> {
        if self.inbox.state().takes_orders {
            return Ok(());
        }
        let channel = self.consuming.channel().await?;
        let queue = exclusive(&channel, FieldTable::default()).await?;
        let bound = channel.queue_bind(
            queue.clone(),
            topology::control_exchange(),
            self.key.clone(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        match bounded(CALL_LIMIT, bound).await {
            Err(cause) if code(&cause) == Some(NOT_FOUND) => return Ok(()),
            bound => bound?,
        }
        let no_ack = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let consumer = channel.basic_consume(queue, "".into(), no_ack, FieldTable::default());
        let mut consumer = bounded(CALL_LIMIT, consumer).await?;
        let (inbox, gone) = (Arc::clone(&self.inbox), self.consuming.gone().clone());
        inbox.state().takes_orders = true;
        self.tasks.spawn(async move {
            loop {
                let next = tokio::select! {
                    next = consumer.next() => next,
                    () = gone.cancelled() => return,
                };
                let Some(Ok(delivered)) = next else { break };
                match Control::decode(&delivered.data) {
                    Ok(control) => inbox.order(control),
                    // Of a newer server: what lasts is said in replies too.
                    Err(error) => tracing::warn!(error = %Chain(&error), "an order can't be read"),
                }
            }
            inbox.state().takes_orders = false;
            drop(channel);
        });
        Ok(())
    }

    fn cause(&self) -> Option<Cause> {
        self.consuming.cause().or_else(|| self.publishing.cause())
    }

    fn is_gone(&self) -> bool {
        self.consuming.gone().is_cancelled() || self.publishing.gone().is_cancelled()
    }

    fn disconnected(&self) -> SettleError {
        SettleError::Disconnected { cause: self.cause() }
    }

    /// What there is to say without waiting.
    fn said(&self) -> Option<LinkEvent> {
        if self.is_gone() {
            return Some(LinkEvent::Disconnected { cause: self.cause() });
        }
        let mut state = self.inbox.state();
        if std::mem::take(&mut state.canceled) {
            return Some(LinkEvent::Cancelled);
        }
        if let Some(control) = state.orders.pop_front() {
            return Some(LinkEvent::Control(control));
        }
        let delivered = state.unread.pop_front()?;
        state.last += 1;
        let tag = state.last;
        state.outstanding.insert(tag, delivered.delivery_tag);
        Some(LinkEvent::Delivery(Delivery {
            tag: DeliveryTag(tag),
            redelivered: delivered.redelivered,
            message: DispatchMessage::decode(&delivered.data).map(Box::new),
        }))
    }

    /// Takes an outstanding delivery out of this link's hands.
    fn settle(&self, tag: DeliveryTag) -> Result<(Channel, u64, u64), SettleError> {
        if self.is_gone() {
            return Err(self.disconnected());
        }
        let mut state = self.inbox.state();
        let brokers = state
            .outstanding
            .remove(&tag.0)
            .ok_or(SettleError::NotOutstanding)?;
        let channel = state.channel.clone().ok_or(SettleError::NotOutstanding)?;
        Ok((channel, brokers, state.life))
    }

    /// What a settlement that failed means: the channel is gone, with or without its connection.
    fn settled(&self, life: u64, done: Result<(), Cause>) -> Result<(), SettleError> {
        let Err(cause) = done else { return Ok(()) };
        if self.is_gone() {
            return Err(SettleError::Disconnected { cause: Some(cause) });
        }
        tracing::warn!(error = %Chain(&*cause), "the channel of deliveries is gone");
        self.inbox.cancel(life);
        Err(SettleError::NotOutstanding)
    }

    async fn consume(&self, turn: &mut Option<Consuming>) -> Result<(), Cause> {
        self.take_orders().await?;
        let standing = turn
            .take()
            .filter(|consuming| consuming.channel.status().connected());
        let channel = match standing {
            Some(consuming) if self.inbox.state().channel.is_some() => consuming.channel,
            _ => {
                let channel = self.consuming.channel().await?;
                let prefetch = channel.basic_qos(self.prefetch.get(), BasicQosOptions::default());
                bounded(CALL_LIMIT, prefetch).await?;
                let mut state = self.inbox.state();
                state.void();
                state.channel = Some(channel.clone());
                channel
            }
        };
        let consumer = channel.basic_consume(
            topology::short(&self.queue)?,
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumer = bounded(CALL_LIMIT, consumer).await?;
        let standing = Standing {
            tag: consumer.tag(),
            asked: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let life = self.inbox.state().life;
        let mover = Mover {
            channel: channel.clone(),
            consumer,
            inbox: Arc::clone(&self.inbox),
            life,
            gone: self.consuming.gone().clone(),
            asked: standing.asked.clone(),
            _ended: standing.ended.clone().drop_guard(),
        };
        self.tasks.spawn(mover.run());
        *turn = Some(Consuming {
            channel,
            consumer: Some(standing),
        });
        Ok(())
    }

    /// Ends the consumer, and hands back what it has delivered and nobody has taken.
    async fn stop(&self, consuming: &mut Consuming) -> Result<(), Cause> {
        let Some(Standing { tag, asked, ended }) = consuming.consumer.take() else {
            return Ok(());
        };
        asked.cancel();
        let canceled = consuming.channel.basic_cancel(tag, BasicCancelOptions::default());
        bounded(CALL_LIMIT, canceled).await?;
        // All that was delivered before the end has been moved then.
        timeout(CALL_LIMIT, ended.cancelled()).await?;
        let unread: Vec<Delivered> = self.inbox.state().unread.drain(..).collect();
        let requeue = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        for delivered in unread {
            let back = consuming.channel.basic_nack(delivered.delivery_tag, requeue);
            bounded(CALL_LIMIT, back).await?;
        }
        Ok(())
    }
}

impl Drop for RabbitLink {
    fn drop(&mut self) {
        // The tasks hold channels, which would keep the connections open.
        self.publishing.gone().cancel();
        self.consuming.gone().cancel();
    }
}

/// Moves deliveries of one consumer to the inbox, until its end.
struct Mover {
    channel: Channel,
    consumer: Consumer,
    inbox: Arc<Inbox>,
    life: u64,
    gone: CancellationToken,
    asked: CancellationToken,
    _ended: DropGuard,
}

impl Mover {
    async fn run(mut self) {
        loop {
            let next = tokio::select! {
                biased;
                () = self.gone.cancelled() => return self.inbox.wake.notify_one(),
                next = self.consumer.next() => next,
            };
            match next {
                Some(Ok(delivered)) => {
                    let mut state = self.inbox.state();
                    if state.life == self.life {
                        state.unread.push_back(delivered);
                        self.inbox.wake.notify_one();
                    }
                }
                // With the channel, or the connection.
                Some(Err(error)) => {
                    tracing::warn!(error = %Chain(&error), "the consumer of jobs has failed");
                    return self.inbox.cancel(self.life);
                }
                None => break,
            }
        }
        // The link has ended it, unless the broker has: then what it had delivered goes back when the channel closes.
        if self.asked.is_cancelled() {
            return;
        }
        tracing::warn!("the broker has ended the consumer of jobs; it is begun anew");
        self.inbox.cancel(self.life);
        bounded(CALL_LIMIT, self.channel.close(200, "OK".into()))
            .await
            .ok();
    }
}

#[async_trait]
impl ExecutorLink for RabbitLink {
    async fn next(&mut self) -> LinkEvent {
        loop {
            let woken = self.inbox.wake.notified();
            if let Some(event) = self.said() {
                return event;
            }
            tokio::select! {
                () = woken => {}
                () = self.consuming.gone().cancelled() => {}
                () = self.publishing.gone().cancelled() => {}
                reply = self.replies.next() => match reply {
                    Some(Ok(reply)) => match Reply::decode(&reply.data) {
                        Ok(reply) => return LinkEvent::Reply(reply),
                        // What it said will be said again when the session asks again.
                        Err(error) => tracing::warn!(error = %Chain(&error), "a reply can't be read"),
                    },
                    // Without replies the link is no good.
                    Some(Err(_)) | None => self.publishing.gone().cancel(),
                },
            }
        }
    }

    fn publisher(&self) -> Arc<dyn EventPublisher> {
        Arc::clone(&self.publisher) as Arc<dyn EventPublisher>
    }

    async fn set_consuming(&self, consuming: bool) -> Result<(), SettleError> {
        let mut turn = self.turn.lock().await;
        if self.is_gone() {
            return Err(self.disconnected());
        }
        let consumes = self.inbox.state().channel.is_some()
            && turn
                .as_ref()
                .is_some_and(|consuming| consuming.consumer.is_some());
        if consumes == consuming {
            return Ok(());
        }
        let changed = match turn.as_mut().filter(|_| !consuming) {
            Some(standing) => self.stop(standing).await,
            None => self.consume(&mut turn).await,
        };
        let Err(cause) = changed else { return Ok(()) };
        if self.is_gone() {
            return Err(SettleError::Disconnected { cause: Some(cause) });
        }
        if code(&cause) != Some(NOT_FOUND) {
            tracing::warn!(error = %Chain(&*cause), "the pool's jobs can't be consumed");
        }
        *turn = None;
        let life = self.inbox.state().life;
        self.inbox.cancel(life);
        Ok(())
    }

    async fn ack(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        let (channel, tag, life) = self.settle(tag)?;
        let done = channel.basic_ack(tag, BasicAckOptions::default());
        self.settled(life, bounded(CALL_LIMIT, done).await)
    }

    async fn hand_back(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        let (channel, tag, life) = self.settle(tag)?;
        let requeue = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        let done = channel.basic_nack(tag, requeue);
        self.settled(life, bounded(CALL_LIMIT, done).await)
    }

    async fn dead_letter(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        let (channel, tag, life) = self.settle(tag)?;
        let done = channel.basic_reject(tag, BasicRejectOptions { requeue: false });
        self.settled(life, bounded(CALL_LIMIT, done).await)
    }
}

struct RabbitEventPublisher {
    publisher: Publisher,
    key: ShortString,
    queue: String,
    user: ShortString,
    output: OutputPublisher,
}

#[async_trait]
impl EventPublisher for RabbitEventPublisher {
    async fn publish_events(&self, batch: &EventBatch) -> Result<(), PublishError> {
        let message = Message {
            exchange: topology::events_exchange(),
            key: self.key.clone(),
            properties: persistent()
                .with_user_id(self.user.clone())
                .with_reply_to(REPLIES.into()),
            body: batch.encode(),
            queue: self.queue.clone(),
        };
        self.publisher.publish(message).await
    }

    fn publish_output(&self, output: Output) {
        self.output.send(output);
    }
}
