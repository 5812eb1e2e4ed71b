//! What a case stands on: a pool, its executors and recorders, and waits with a bound.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use mayfly_core::id::{ExecutorId, JobId, SessionId};
use mayfly_dispatch::message::{DispatchMessage, EventBatch, Inbound, Reply};
use tokio::time::timeout;

use super::{PATIENCE, QUIET, Subject, samples};
use crate::seam::{
    Content, DeadLetter, DeadLetters, Delivery, EventConsumer, EventPublisher, ExecutorLink, Incoming,
    LinkEvent, Origin, PublishError, Queue,
};

/// Waits for what must happen.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come within {PATIENCE:?}"))
}

/// Waits a while for what must not happen.
pub(super) async fn never<T>(what: &str, future: impl Future<Output = T>) {
    assert!(timeout(QUIET, future).await.is_err(), "{what} came");
}

/// Waits for what must come once `cause` has happened, in one wait that began before it: whoever waits must be woken.
pub(super) async fn woken<T>(
    what: &str,
    wait: impl Future<Output = T>,
    cause: impl Future<Output = ()>,
) -> T {
    let mut wait = std::pin::pin!(wait);
    assert!(
        timeout(QUIET, &mut wait).await.is_err(),
        "{what} came without its cause"
    );
    cause.await;
    soon(what, wait).await
}

/// A pool of a subject.
pub(super) struct Ground {
    pub(super) subject: Arc<dyn Subject>,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) pool: String,
}

impl Ground {
    /// A pool in which nothing is declared.
    pub(super) fn bare(subject: Arc<dyn Subject>) -> Self {
        Self {
            queue: subject.queue(),
            subject,
            pool: format!("pool-{}", JobId::new()),
        }
    }

    /// A pool that is declared, in epoch 1.
    pub(super) async fn declared(subject: Arc<dyn Subject>) -> Self {
        let ground = Self::bare(subject);
        ground.declare(1).await;
        ground
    }

    pub(super) async fn declare(&self, epoch: u64) {
        let jobs = self.queue.declare(&self.pool);
        soon("the declaration", jobs)
            .await
            .expect("the pool can be declared");
        let events = self.queue.declare_events(&self.pool, epoch);
        soon("the declaration", events)
            .await
            .expect("the queue of events can be declared");
    }

    pub(super) fn jobs(&self) -> Origin {
        Origin::Jobs {
            pool: self.pool.clone(),
        }
    }

    pub(super) fn events(&self) -> Origin {
        Origin::Events {
            pool: self.pool.clone(),
        }
    }

    /// An attempt that is published and confirmed.
    pub(super) async fn publish(&self) -> DispatchMessage {
        let message = samples::attempt();
        self.try_publish(&message)
            .await
            .expect("the attempt is confirmed");
        message
    }

    pub(super) async fn try_publish(&self, message: &DispatchMessage) -> Result<(), PublishError> {
        soon("the confirm", self.queue.publish_attempt(&self.pool, message)).await
    }

    pub(super) async fn tick(&self, epoch: u64, number: u64) -> Result<(), PublishError> {
        let tick = samples::tick(epoch, number);
        soon("the confirm", self.queue.publish_tick(&self.pool, &tick)).await
    }

    /// Waits until so many jobs are ready: a broker counts after the fact.
    pub(super) async fn ready(&self, jobs: u64) {
        let counted = async {
            let mut look = tokio::time::interval(Duration::from_millis(5));
            loop {
                look.tick().await;
                let ready = self.queue.ready_count(&self.pool).await;
                if ready.expect("the ready jobs can be counted") == jobs {
                    return;
                }
            }
        };
        soon(&format!("a count of {jobs} ready jobs"), counted).await;
    }

    /// An executor that does not consume.
    pub(super) async fn executor(&self, prefetch: u16) -> Executor {
        self.executor_of(ExecutorId::new(), prefetch).await
    }

    pub(super) async fn executor_of(&self, id: ExecutorId, prefetch: u16) -> Executor {
        let prefetch = NonZeroU16::new(prefetch).expect("a prefetch is not zero");
        let queue = self.subject.queue_of(&self.pool, id).await;
        let link = soon("the link", queue.join(&self.pool, id, prefetch)).await;
        let link = link.unwrap_or_else(|error| panic!("an executor can join: {error}"));
        Executor {
            id,
            session: SessionId::new(),
            events: link.publisher(),
            link,
        }
    }

    /// An executor that consumes.
    pub(super) async fn consuming(&self, prefetch: u16) -> Executor {
        let executor = self.executor(prefetch).await;
        executor.consume(true).await;
        executor
    }

    pub(super) async fn recorder(&self) -> Recorder {
        let consumer = soon("the consumer", self.queue.consume_events(&self.pool)).await;
        Recorder {
            events: consumer.unwrap_or_else(|error| panic!("events can be consumed: {error}")),
        }
    }

    pub(super) async fn reader(&self) -> Box<dyn DeadLetters> {
        let reader = soon("the reader", self.queue.dead_letters()).await;
        reader.unwrap_or_else(|error| panic!("dead letters can be read: {error}"))
    }

    /// Looks at the dead letters that there are now, and changes nothing.
    pub(super) async fn dead(&self) -> Vec<DeadLetter> {
        let mut reader = self.reader().await;
        let mut letters = Vec::new();
        while let Some(letter) = soon("a look", reader.try_next())
            .await
            .expect("the reader stands")
        {
            letters.push(letter);
        }
        letters
    }
}

pub(super) struct Executor {
    pub(super) id: ExecutorId,
    pub(super) session: SessionId,
    pub(super) events: Arc<dyn EventPublisher>,
    pub(super) link: Box<dyn ExecutorLink>,
}

impl Executor {
    pub(super) async fn consume(&self, consuming: bool) {
        let told = soon("the consumer's change", self.link.set_consuming(consuming)).await;
        told.expect("the link stands");
    }

    pub(super) async fn delivery(&mut self) -> Delivery {
        match soon("a delivery", self.link.next()).await {
            LinkEvent::Delivery(delivery) => delivery,
            other => panic!("{other:?} came in place of a delivery"),
        }
    }

    /// A delivery of this very message.
    pub(super) async fn delivery_of(&mut self, message: &DispatchMessage) -> Delivery {
        let delivery = self.delivery().await;
        let delivered = delivery.message.as_ref().expect("the message can be read");
        assert_eq!(**delivered, *message);
        delivery
    }

    pub(super) async fn ack(&self, delivery: &Delivery) {
        self.link
            .ack(delivery.tag)
            .await
            .expect("the delivery is outstanding");
    }

    pub(super) async fn reply(&mut self) -> Reply {
        match soon("a reply", self.link.next()).await {
            LinkEvent::Reply(reply) => reply,
            other => panic!("{other:?} came in place of a reply"),
        }
    }

    pub(super) fn batch(&self, number: u64) -> EventBatch {
        samples::batch(self.id, self.session, number)
    }

    /// Publishes the event of this number.
    pub(super) async fn say(&self, number: u64) {
        let said = self.try_say(number).await;
        said.expect("the batch is confirmed");
    }

    pub(super) async fn try_say(&self, number: u64) -> Result<(), PublishError> {
        let batch = self.batch(number);
        soon("the confirm", self.events.publish_events(&batch)).await
    }
}

pub(super) struct Recorder {
    pub(super) events: Box<dyn EventConsumer>,
}

impl Recorder {
    /// The next messages, at least so many; at most so many in each call.
    pub(super) async fn take(&mut self, messages: usize) -> Vec<Incoming> {
        let mut taken = Vec::new();
        while taken.len() < messages {
            let most = NonZeroUsize::new(messages - taken.len()).expect("some are missing");
            let more = soon("a message", self.events.next_batch(most)).await;
            taken.extend(more.expect("the consumer stands"));
        }
        taken
    }

    /// The next message.
    pub(super) async fn one(&mut self) -> Incoming {
        self.take(1).await.pop().expect("one was taken")
    }

    pub(super) async fn ack(&mut self, upto: &Incoming) {
        let acked = soon("the ack", self.events.ack_up_to(upto.tag)).await;
        acked.expect("the message is outstanding");
    }
}

/// The batch that a message is.
pub(super) fn batch_in(incoming: &Incoming) -> &EventBatch {
    match &incoming.content {
        Content::Message(Inbound::Batch(batch)) => batch,
        other => panic!("{other:?} came in place of a batch"),
    }
}

/// Session and number of the batches.
pub(super) fn numbers(incoming: &[Incoming]) -> Vec<(SessionId, u64)> {
    let batches = incoming.iter().map(batch_in);
    batches.map(|batch| (batch.session, batch.first)).collect()
}
