//! A queue in front of another one, with which a test loses what a broker loses: messages, confirms, replies.
//!
//! What a broker's operators and accidents do as a whole (cut connections, cancel consumers, lose the disk) the queue in
//! memory does itself.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_core::id::{ExecutorId, JobId};
use mayfly_dispatch::message::{Control, DispatchMessage, EventBatch, Reply, Tick};
use mayfly_queue::seam::{
    DeadLetters, DeliveryTag, EventConsumer, EventPublisher, ExecutorLink, Health, LinkEvent, Origin, Output,
    OutputListener, PublishError, Queue, QueueError, ReplyAddress, SettleError,
};
use tokio::sync::watch;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// An attempt, by the scheduler.
    Attempt,
    /// A tick, by the reconciler.
    Tick,
    /// A batch of events, by an executor.
    Events,
    /// A reply, by the recorder.
    Reply,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is gone, and its sender does not know: the connection broke before it arrived.
    Lost,
    /// It is in the queue, and its sender does not know: nobody confirmed it.
    Unconfirmed,
    /// It is in the queue twice, confirmed once.
    Twice,
    /// The broker refuses it, as a full queue does.
    Refused,
}

/// A queue that passes everything on, but for what it was told to spoil.
pub struct FaultyQueue {
    inner: Arc<dyn Queue>,
    plan: Plan,
}

impl FaultyQueue {
    /// Spoils nothing yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Queue>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            plan: Plan::default(),
        })
    }

    /// Spoils the next `times` sendings of a kind in this way, after those that were asked for before.
    pub fn spoil(&self, sent: Sent, fault: Fault, times: usize) {
        self.plan
            .waiting()
            .entry(sent)
            .or_default()
            .extend(std::iter::repeat_n(fault, times));
        self.plan.tell();
    }

    /// Waits until everything that was to be spoiled has been. A test that does not see this end has tested nothing.
    pub async fn spoiled(&self) {
        let mut left = self.plan.left.subscribe();
        let none_left = left.wait_for(|left| *left == 0).await;
        none_left.expect("the plan outlives this call");
    }
}

/// What is still to be spoiled.
#[derive(Clone, Default)]
struct Plan {
    waiting: Arc<Mutex<HashMap<Sent, VecDeque<Fault>>>>,
    left: watch::Sender<usize>,
}

impl Plan {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Sent, VecDeque<Fault>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let left = self.waiting().values().map(VecDeque::len).sum();
        self.left.send_replace(left);
    }

    fn take(&self, sent: Sent) -> Option<Fault> {
        self.waiting().get_mut(&sent)?.pop_front()
    }

    /// Publishes by `publish`, or not.
    async fn publish<F>(&self, sent: Sent, publish: impl Fn() -> F) -> Result<(), PublishError>
    where
        F: Future<Output = Result<(), PublishError>>,
    {
        let Some(fault) = self.take(sent) else {
            return publish().await;
        };
        let published = match fault {
            Fault::Lost => Err(PublishError::Disconnected { cause: None }),
            Fault::Unconfirmed => publish().await.and(Err(PublishError::NotConfirmed {
                queue: "spoiled".into(),
                waited: Duration::ZERO,
            })),
            Fault::Twice => match publish().await {
                Ok(()) => publish().await,
                refused => refused,
            },
            Fault::Refused => Err(PublishError::Refused {
                queue: "spoiled".into(),
            }),
        };
        self.tell();
        published
    }
}

#[async_trait]
impl Queue for FaultyQueue {
    async fn declare(&self, pool: &str) -> Result<(), QueueError> {
        self.inner.declare(pool).await
    }

    async fn declare_events(&self, pool: &str, epoch: u64) -> Result<(), QueueError> {
        self.inner.declare_events(pool, epoch).await
    }

    async fn publish_attempt(&self, pool: &str, message: &DispatchMessage) -> Result<(), PublishError> {
        let publish = || self.inner.publish_attempt(pool, message);
        self.plan.publish(Sent::Attempt, publish).await
    }

    async fn publish_tick(&self, pool: &str, tick: &Tick) -> Result<(), PublishError> {
        let publish = || self.inner.publish_tick(pool, tick);
        self.plan.publish(Sent::Tick, publish).await
    }

    async fn ready_count(&self, pool: &str) -> Result<u64, QueueError> {
        self.inner.ready_count(pool).await
    }

    async fn consume_events(&self, pool: &str) -> Result<Box<dyn EventConsumer>, QueueError> {
        self.inner.consume_events(pool).await
    }

    async fn reply(&self, to: &ReplyAddress, reply: &Reply) {
        let reply = || async {
            self.inner.reply(to, reply).await;
            Ok(())
        };
        // Nobody is told what becomes of a reply, whatever it is.
        self.plan.publish(Sent::Reply, reply).await.unwrap_or_default();
    }

    async fn dead_letters(&self) -> Result<Box<dyn DeadLetters>, QueueError> {
        self.inner.dead_letters().await
    }

    async fn republish(&self, origin: &Origin, sender: &str, bytes: &[u8]) -> Result<(), PublishError> {
        self.inner.republish(origin, sender, bytes).await
    }

    async fn control(&self, pool: &str, executor: ExecutorId, control: &Control) -> Result<(), PublishError> {
        self.inner.control(pool, executor, control).await
    }

    async fn listen(&self, job: JobId) -> Result<Box<dyn OutputListener>, QueueError> {
        self.inner.listen(job).await
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn join(
        &self,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Box<dyn ExecutorLink>, QueueError> {
        let inner = self.inner.join(pool, executor, prefetch).await?;
        let plan = self.plan.clone();
        Ok(Box::new(FaultyLink { inner, plan }))
    }
}

struct FaultyLink {
    inner: Box<dyn ExecutorLink>,
    plan: Plan,
}

#[async_trait]
impl ExecutorLink for FaultyLink {
    async fn next(&mut self) -> LinkEvent {
        self.inner.next().await
    }

    fn publisher(&self) -> Arc<dyn EventPublisher> {
        Arc::new(FaultyPublisher {
            inner: self.inner.publisher(),
            plan: self.plan.clone(),
        })
    }

    async fn set_consuming(&self, consuming: bool) -> Result<(), SettleError> {
        self.inner.set_consuming(consuming).await
    }

    async fn ack(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.inner.ack(tag).await
    }

    async fn hand_back(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.inner.hand_back(tag).await
    }

    async fn dead_letter(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.inner.dead_letter(tag).await
    }
}

struct FaultyPublisher {
    inner: Arc<dyn EventPublisher>,
    plan: Plan,
}

#[async_trait]
impl EventPublisher for FaultyPublisher {
    async fn publish_events(&self, batch: &EventBatch) -> Result<(), PublishError> {
        let publish = || self.inner.publish_events(batch);
        self.plan.publish(Sent::Events, publish).await
    }

    fn publish_output(&self, output: Output) {
        self.inner.publish_output(output);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use mayfly_core::id::SessionId;
    use mayfly_dispatch::message::VERSION;
    use mayfly_queue::memory::{Limits, MemoryQueue};

    use super::*;

    const POOL: &str = "pool";
    const SOME: NonZeroUsize = NonZeroUsize::new(64).unwrap();

    async fn queue() -> Arc<FaultyQueue> {
        let queue = FaultyQueue::new(Arc::new(MemoryQueue::new(Limits::standard())));
        queue.declare(POOL).await.unwrap();
        queue.declare_events(POOL, 1).await.unwrap();
        queue
    }

    fn tick(number: u64) -> Tick {
        Tick {
            v: VERSION,
            epoch: 1,
            number,
            judged: Vec::new(),
        }
    }

    #[tokio::test]
    async fn each_fault_does_what_it_says_and_only_once() {
        let queue = queue().await;
        let mut numbers = 1..;
        for (fault, arrives) in [
            (Fault::Lost, 0),
            (Fault::Unconfirmed, 1),
            (Fault::Twice, 2),
            (Fault::Refused, 0),
        ] {
            queue.spoil(Sent::Tick, fault, 1);
            // Another kind is none of its business.
            queue.spoil(Sent::Attempt, fault, 1);
            let published = queue.publish_tick(POOL, &tick(numbers.next().unwrap())).await;
            match fault {
                Fault::Lost => assert!(matches!(published, Err(PublishError::Disconnected { .. }))),
                Fault::Unconfirmed => assert!(matches!(published, Err(PublishError::NotConfirmed { .. }))),
                Fault::Twice => assert!(published.is_ok()),
                Fault::Refused => assert!(matches!(published, Err(PublishError::Refused { .. }))),
            }
            queue
                .publish_tick(POOL, &tick(numbers.next().unwrap()))
                .await
                .unwrap();
            let mut consumer = queue.consume_events(POOL).await.unwrap();
            let taken = consumer.next_batch(SOME).await.unwrap();
            assert_eq!(taken.len(), arrives + 1, "{fault:?}");
            consumer.ack_up_to(taken.last().unwrap().tag).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_spoiled_can_be_waited_for() {
        let queue = queue().await;
        queue.spoiled().await;
        queue.spoil(Sent::Events, Fault::Lost, 2);
        let executor = ExecutorId::new();
        let mut link = queue.join(POOL, executor, NonZeroU16::MIN).await.unwrap();
        let batch = EventBatch {
            v: VERSION,
            executor,
            session: SessionId::new(),
            first: 1,
            events: Vec::new(),
            heartbeat: None,
        };
        for _ in 0..2 {
            let early = tokio::time::timeout(Duration::from_millis(20), queue.spoiled()).await;
            assert!(early.is_err());
            link.publisher().publish_events(&batch).await.unwrap_err();
        }
        queue.spoiled().await;
        // Replies are spoiled as well, of which nobody is told.
        link.publisher().publish_events(&batch).await.unwrap();
        let taken = queue
            .consume_events(POOL)
            .await
            .unwrap()
            .next_batch(SOME)
            .await
            .unwrap();
        let to = taken[0].reply_to.clone().unwrap();
        queue.spoil(Sent::Reply, Fault::Lost, 1);
        for processed in [1, 2] {
            let reply = Reply {
                v: VERSION,
                session: batch.session,
                processed,
                gap: false,
                answers: Vec::new(),
                stops: Vec::new(),
                dead: false,
                cordoned: false,
            };
            queue.reply(&to, &reply).await;
        }
        let LinkEvent::Reply(reply) = link.next().await else {
            panic!("something else than a reply came");
        };
        assert_eq!(reply.processed, 2);
    }
}
