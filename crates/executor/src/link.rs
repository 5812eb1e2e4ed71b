//! The connection to the queue: made, lost, and made again for as long as the process lives.

use std::{collections::HashMap, num::NonZeroU16, sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, id::ExecutorId};
use mayfly_dispatch::{
    executor::{Delivery as DeliveryNumber, Input, Publish},
    message::{EventBatch, Order},
};
use mayfly_queue::seam::{DeliveryTag, EventPublisher, ExecutorLink, LinkEvent, Queue, SettleError};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Listeners, pauses::Pauses};

/// The wait after a connection that could not be made, at first and at most. What runs goes on only until the lease's margin:
/// a pause is taken from the time that a broker may be away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the machine wants done on the connection.
#[derive(Debug)]
pub(crate) enum Command {
    Publish(Publish, EventBatch),
    Consume(bool),
    Ack(DeliveryNumber),
    Return(DeliveryNumber),
    Reject(DeliveryNumber),
}

/// The tasks that hold the connection.
pub(crate) struct Link {
    commands: mpsc::UnboundedSender<Command>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What the connecting task knows.
struct Connector {
    queue: Arc<dyn Queue>,
    pool: String,
    executor: ExecutorId,
    prefetch: NonZeroU16,
    happened: mpsc::UnboundedSender<Input>,
    listeners: Arc<dyn Listeners>,
    /// The machine's wish, kept across connections.
    consuming: bool,
    /// The last number that was given to a delivery, over all connections.
    last_delivery: u64,
}

impl Link {
    /// Begins to connect. What happens goes to `happened`.
    pub(crate) fn begin(
        queue: Arc<dyn Queue>,
        pool: String,
        executor: ExecutorId,
        prefetch: NonZeroU16,
        happened: mpsc::UnboundedSender<Input>,
        listeners: Arc<dyn Listeners>,
    ) -> Self {
        let (to, commands) = mpsc::unbounded_channel();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let connector = Connector {
            queue,
            pool,
            executor,
            prefetch,
            happened,
            listeners,
            consuming: false,
            last_delivery: 0,
        };
        tasks.spawn(connector.run(commands, stop.clone(), tasks.clone()));
        Self {
            commands: to,
            stop,
            tasks,
        }
    }

    /// Hands a command over.
    pub(crate) fn tell(&self, command: Command) {
        // The task lives until `end`.
        self.commands.send(command).unwrap_or_default();
    }

    /// Closes the connection, after what was told before.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Connector {
    async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
        stop: CancellationToken,
        tasks: TaskTracker,
    ) {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        while !stop.is_cancelled() {
            match self.queue.join(&self.pool, self.executor, self.prefetch).await {
                Ok(link) => {
                    pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
                    self.happened.send(Input::Connected).unwrap_or_default();
                    self.serve(link, &mut commands, &stop, &tasks).await;
                    self.happened.send(Input::DeliveriesVoid).unwrap_or_default();
                    self.happened.send(Input::Disconnected).unwrap_or_default();
                }
                Err(error) => tracing::warn!(error = %Chain(&error), "the executor could not join its pool"),
            }
            let mut rest = std::pin::pin!(tokio::time::sleep(pauses.next()));
            loop {
                tokio::select! {
                    () = &mut rest => break,
                    () = stop.cancelled() => break,
                    Some(command) = commands.recv() => self.without_connection(&command),
                }
            }
        }
    }

    /// What was wanted of a connection that is not there.
    fn without_connection(&mut self, command: &Command) {
        match command {
            Command::Publish(publish, _) => self
                .happened
                .send(Input::PublishFailed(*publish))
                .unwrap_or_default(),
            Command::Consume(consuming) => self.consuming = *consuming,
            // The deliveries are void.
            Command::Ack(_) | Command::Return(_) | Command::Reject(_) => {}
        }
    }

    /// Serves one connection until it is gone, or the process ends.
    async fn serve(
        &mut self,
        mut link: Box<dyn ExecutorLink>,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) {
        // Batches go out one after the other, each to its confirm, beside everything else.
        let (batches_to, batches) = mpsc::unbounded_channel();
        self.listeners.connected(link.publisher());
        tasks.spawn(publish(
            link.publisher(),
            batches,
            self.happened.clone(),
            stop.clone(),
        ));
        let mut tags = HashMap::new();
        // When to consume again, after the broker has ended the consumer.
        let mut again = self.consuming.then(Instant::now);
        loop {
            let done = tokio::select! {
                biased;
                Some(command) = commands.recv() => match command {
                    Command::Publish(publish, batch) => {
                        batches_to.send((publish, batch)).unwrap_or_default();
                        Ok(())
                    }
                    command => self.obey(&*link, &mut tags, command).await,
                },
                event = link.next() => match event {
                    LinkEvent::Delivery(delivery) => {
                        self.last_delivery += 1;
                        let number = DeliveryNumber(self.last_delivery);
                        tags.insert(number, delivery.tag);
                        self.say(Input::Delivered { delivery: number, message: delivery.message })
                    }
                    LinkEvent::Reply(reply) => self.say(Input::Reply(reply)),
                    LinkEvent::Control(control) => self.say(match control.order {
                        Order::Cordon => Input::Cordon(true),
                        Order::Uncordon => Input::Cordon(false),
                        Order::Drain => Input::Drain,
                        Order::Stop => Input::Abort,
                    }),
                    LinkEvent::Cancelled => {
                        tags.clear();
                        again = Some(Instant::now() + FIRST_PAUSE);
                        self.say(Input::DeliveriesVoid)
                    }
                    LinkEvent::Disconnected { cause } => {
                        let cause = cause.map(|cause| Chain(&*cause).to_string());
                        tracing::warn!(cause, "the executor has lost its connection");
                        return;
                    }
                },
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    again = None;
                    if self.consuming { link.set_consuming(true).await } else { Ok(()) }
                }
                () = stop.cancelled() => return,
            };
            match done {
                // A delivery that is void already, by a race with the broker: nothing is lost by it.
                Ok(()) | Err(SettleError::NotOutstanding) => {}
                Err(error @ SettleError::Disconnected { .. }) => {
                    tracing::warn!(error = %Chain(&error), "the executor has lost its connection");
                    return;
                }
            }
        }
    }

    fn say(&self, input: Input) -> Result<(), SettleError> {
        self.happened.send(input).unwrap_or_default();
        Ok(())
    }

    async fn obey(
        &mut self,
        link: &dyn ExecutorLink,
        tags: &mut HashMap<DeliveryNumber, DeliveryTag>,
        command: Command,
    ) -> Result<(), SettleError> {
        match command {
            // It went to the publisher.
            Command::Publish(..) => Ok(()),
            Command::Consume(consuming) => {
                self.consuming = consuming;
                link.set_consuming(consuming).await
            }
            Command::Ack(delivery) => match tags.remove(&delivery) {
                Some(tag) => link.ack(tag).await,
                None => Ok(()),
            },
            Command::Return(delivery) => match tags.remove(&delivery) {
                Some(tag) => link.hand_back(tag).await,
                None => Ok(()),
            },
            Command::Reject(delivery) => match tags.remove(&delivery) {
                Some(tag) => link.dead_letter(tag).await,
                None => Ok(()),
            },
        }
    }
}

/// Trouble that goes on is said when it begins and once in a while, with how often it was not.
#[derive(Debug, Default)]
struct Trouble {
    said: Option<Instant>,
    unsaid: u64,
}

/// How often trouble that goes on is said.
const SAY_AGAIN: Duration = Duration::from_secs(60);

impl Trouble {
    fn is_to_be_said(&mut self, now: Instant) -> Option<u64> {
        if self.said.is_some_and(|said| now < said + SAY_AGAIN) {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Publishes batches in their order until the connection is given up, then says of the rest that they did not go out.
async fn publish(
    publisher: Arc<dyn EventPublisher>,
    mut batches: mpsc::UnboundedReceiver<(Publish, EventBatch)>,
    happened: mpsc::UnboundedSender<Input>,
    stop: CancellationToken,
) {
    let mut trouble = Trouble::default();
    while let Some((publish, batch)) = batches.recv().await {
        let input = match publisher.publish_events(&batch).await {
            Ok(()) => {
                trouble = Trouble::default();
                Input::Confirmed(publish)
            }
            // The connection was closed by ourselves: nobody's trouble.
            Err(_) if stop.is_cancelled() => Input::PublishFailed(publish),
            Err(error) => {
                if let Some(more) = trouble.is_to_be_said(Instant::now()) {
                    tracing::warn!(error = %Chain(&error), more, "a batch of events was not confirmed; it is sent again");
                }
                Input::PublishFailed(publish)
            }
        };
        happened.send(input).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use mayfly_dispatch::timing::Timing;

    use super::*;

    /// As docs/fleet.md promises. At the worst the broker goes right before a heartbeat, and is back right after a try.
    #[test]
    fn a_broker_that_is_back_after_25_seconds_is_found_before_anything_is_killed() {
        let timing = Timing::standard();
        let lives_on = timing.lease - timing.kill_margin - timing.heartbeat_every;
        let found_after = Duration::from_secs(25) + LONGEST_PAUSE;
        assert!(found_after < lives_on, "{found_after:?} of {lives_on:?}");
    }

    #[test]
    fn trouble_that_goes_on_is_said_once_in_a_while() {
        let mut trouble = Trouble::default();
        let begun = Instant::now();
        let mut after = |time| trouble.is_to_be_said(begun + time);
        assert_eq!(after(Duration::ZERO), Some(0));
        assert_eq!(after(Duration::from_secs(1)), None);
        assert_eq!(after(SAY_AGAIN - Duration::from_nanos(1)), None);
        assert_eq!(after(SAY_AGAIN), Some(2));
        assert_eq!(after(SAY_AGAIN), None);
    }
}
