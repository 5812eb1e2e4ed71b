//! The one reader of the events' queue: commit first, then reply, then ack.

use std::{num::NonZeroUsize, sync::Arc};

use mayfly_core::chain::Chain;
use mayfly_dispatch::message::{Inbound, Reply, Verdict};
use mayfly_failpoints::{Point, reach};
use mayfly_queue::seam::{Content, DeliveryTag, EventConsumer, Incoming, QueueError, ReplyAddress};
use mayfly_store::error::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Pause, Server, rest::Rest};

/// Most items of one transaction.
const MOST_AT_ONCE: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");

/// Where an item came from, and who waits for its answer.
struct Item {
    tag: DeliveryTag,
    reply_to: Option<ReplyAddress>,
}

/// Reads one queue, for as long as it has it.
struct Recorder<'a> {
    server: &'a Server,
    consumer: Box<dyn EventConsumer>,
    pause: Pause,
    rest: Rest,
    stop: &'a CancellationToken,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

pub(crate) async fn run(server: Arc<Server>, stop: CancellationToken) {
    let mut pause = Pause::default();
    while !stop.is_cancelled() {
        let consumer = tokio::select! {
            consumer = server.queue.consume_events(&server.pool) => consumer,
            () = stop.cancelled() => return,
        };
        match consumer {
            Ok(consumer) => {
                let mut recorder = Recorder {
                    server: &server,
                    consumer,
                    pause: Pause::default(),
                    rest: Rest::new(),
                    stop: &stop,
                };
                match recorder.consume().await {
                    Ok(()) => return,
                    Err(why) => tracing::warn!(why, "the recorder has lost its queue"),
                }
            }
            Err(QueueError::NoQueue { .. }) => {
                server.renew_events().await;
                // At once where that helped, and not in a circle where it did not.
                match server.queue.ready_count(&server.pool).await {
                    Ok(_) => continue,
                    Err(error) => tracing::warn!(error = %Chain(&error), "the broker does not answer"),
                }
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "the recorder has no queue"),
        }
        pause.wait(&stop).await;
    }
}

impl Recorder<'_> {
    /// Reads until it is to stop, or, with the reason, the queue is gone.
    async fn consume(&mut self) -> Result<(), String> {
        loop {
            self.rest.wait(self.stop).await;
            let waiting = tokio::select! {
                waiting = self.consumer.next_batch(MOST_AT_ONCE) => waiting.map_err(|error| Chain(&error).to_string())?,
                () = self.stop.cancelled() => return Ok(()),
            };
            let begun = Instant::now();
            // Beside each other, since the store takes what they say as it is: results can be large.
            let (mut items, mut said) = (
                Vec::with_capacity(waiting.len()),
                Vec::with_capacity(waiting.len()),
            );
            let mut newer = None;
            for incoming in waiting {
                let Incoming {
                    tag,
                    reply_to,
                    content,
                    ..
                } = incoming;
                match content {
                    Content::Message(inbound) => {
                        items.push(Item { tag, reply_to });
                        said.push(inbound);
                    }
                    // It is for a newer server: what stands before it is recorded, and then the consumer is given up,
                    // which gives it back.
                    Content::Bad { why, .. } if why.is_newer() => {
                        newer = Some(Chain(&why).to_string());
                        break;
                    }
                    Content::Bad { why, .. } => {
                        let reason = Chain(&why).to_string();
                        tracing::error!(reason, "an item of the events' queue is put aside");
                        self.dead_letter(tag, &reason).await?;
                    }
                }
            }
            if self.record(&items, &said).await? == Next::Stop {
                return Ok(());
            }
            let weight = said.iter().map(weight).sum();
            self.rest.after(begun, weight, items.len() == MOST_AT_ONCE.get());
            if let Some(reason) = newer {
                return Err(reason);
            }
        }
    }

    async fn dead_letter(&mut self, tag: DeliveryTag, reason: &str) -> Result<(), String> {
        self.consumer
            .dead_letter(tag, reason)
            .await
            .map_err(|error| Chain(&error).to_string())
    }

    /// Records items in one transaction. If that can't be written for what they are, halves of them, until the bad one
    /// is found and put aside; if the database is in trouble, again, for as long as it takes: nothing is acked or handed
    /// back meanwhile, so that their order stays.
    async fn record(&mut self, items: &[Item], said: &[Inbound]) -> Result<Next, String> {
        let (Some(last), Some(last_said)) = (items.last(), said.last()) else {
            return Ok(Next::GoOn);
        };
        loop {
            let (server, context) = (self.server, self.server.context());
            reach(Point::EventsTaken);
            let error = match server.store.process(&server.pool, said, &context).await {
                Ok(replies) => {
                    reach(Point::EventsCommitted);
                    for (item, reply) in items.iter().zip(replies) {
                        reply.iter().for_each(log_denials);
                        if let (Some(to), Some(reply)) = (&item.reply_to, reply) {
                            server.queue.reply(to, &reply).await;
                        }
                    }
                    self.pause.reset();
                    reach(Point::EventsAnswered);
                    self.consumer
                        .ack_up_to(last.tag)
                        .await
                        .map_err(|error| Chain(&error).to_string())?;
                    return Ok(Next::GoOn);
                }
                Err(error) => error,
            };
            if error.is_temporary() {
                tracing::error!(error = %Chain(&error), "the recorder could not write; it tries again");
                self.pause.wait(self.stop).await;
                if self.stop.is_cancelled() {
                    return Ok(Next::Stop);
                }
                continue;
            }
            let middle = items.len() / 2;
            if middle == 0 {
                return self.put_aside(last, last_said, &error).await;
            }
            let ((first, second), (said_first, said_second)) =
                (items.split_at(middle), said.split_at(middle));
            return match Box::pin(self.record(first, said_first)).await? {
                Next::GoOn => Box::pin(self.record(second, said_second)).await,
                Next::Stop => Ok(Next::Stop),
            };
        }
    }

    /// Puts the one item aside that can't be recorded; its events count as processed, without effect.
    async fn put_aside(&mut self, item: &Item, said: &Inbound, error: &StoreError) -> Result<Next, String> {
        let reason = Chain(error).to_string();
        tracing::error!(
            reason,
            "an item of the events' queue can't be recorded and is put aside"
        );
        if let Inbound::Batch(batch) = said {
            let (server, context) = (self.server, self.server.context());
            if let Err(error) = server.store.quarantine(&server.pool, batch, &context).await {
                tracing::error!(error = %Chain(&error), "its events could not be passed over");
            }
        }
        self.dead_letter(item.tag, &reason).await?;
        Ok(Next::GoOn)
    }
}

/// How many things an item is about.
fn weight(said: &Inbound) -> usize {
    match said {
        Inbound::Batch(batch) => batch.events.len(),
        Inbound::Tick(_) => 0,
    }
}

/// A start that is denied changes nothing and leaves no record: who wonders how often that happens reads it here. An ask that
/// is repeated, since its answer was lost, is answered again.
fn log_denials(reply: &Reply) {
    for answer in &reply.answers {
        if let Verdict::Deny(reason) = answer.verdict {
            tracing::info!(attempt.id = %answer.attempt, session.id = %reply.session, ?reason, "a start is denied");
        }
    }
}
