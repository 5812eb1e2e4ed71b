//! Publishing with confirms: many messages under way at once, each judged by its own confirm.
//!
//! One task owns the channel and all its confirms, so that whoever waits for one may stop waiting. It ends with its
//! connection, or with the last handle.
//!
//! **Returned messages.** The broker returns an unroutable message before it acks it. The client library hands what was
//! returned to whichever confirm is completed next, which may be another message's. But it hands over everything that was
//! returned before it completes any confirm without: so a confirm that carries nothing is completed after the one that
//! carries its own message. Therefore the task first collects all confirms that are complete, looks what was returned by
//! the messages' ids, and only then says what became of each.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::{Stream, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use mayfly_dispatch::message::MAX_MESSAGE_BYTES;
use mayfly_failpoints::{Point, reach};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection::{CALL_LIMIT, Connection, bounded},
    health::Slot,
};
use crate::seam::{Cause, PublishError};

/// Messages under way at once. More wait for their turn.
const UNDER_WAY: usize = 256;

/// How long a confirm is waited for.
pub(super) const CONFIRM_LIMIT: Duration = Duration::from_secs(10);

/// A confirm that has not come in this time never will; the connection is made anew.
const LOST_CONFIRM: Duration = Duration::from_secs(30);

/// Publishes on one channel. Clones are the same channel.
#[derive(Clone)]
pub(super) struct Publisher {
    posts: mpsc::Sender<Post>,
    slot: Arc<Slot>,
}

/// A message to be published.
pub(super) struct Message {
    pub(super) exchange: ShortString,
    pub(super) key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Vec<u8>,
    /// Where it goes, for errors.
    pub(super) queue: String,
}

struct Post {
    message: Message,
    answer: oneshot::Sender<Verdict>,
}

/// What became of a message.
#[derive(Debug)]
enum Verdict {
    Confirmed,
    Unroutable,
    Refused,
    /// Nobody knows.
    Lost(Cause),
}

/// Persistent, as every message that is confirmed.
pub(super) fn persistent() -> BasicProperties {
    BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
}

impl Publisher {
    /// Opens a channel in confirm mode and begins to publish on it.
    pub(super) async fn begin(connection: &Connection, tasks: &TaskTracker) -> Result<Self, Cause> {
        let channel = connection.channel().await?;
        Self::on(channel, connection, tasks).await
    }

    /// The same on a channel that is there.
    pub(super) async fn on(
        channel: Channel,
        connection: &Connection,
        tasks: &TaskTracker,
    ) -> Result<Self, Cause> {
        bounded(
            CALL_LIMIT,
            channel.confirm_select(ConfirmSelectOptions::default()),
        )
        .await?;
        let (to, posts) = mpsc::channel(UNDER_WAY);
        let slot = Arc::clone(connection.slot());
        let task = Task {
            channel,
            posts,
            under_way: FuturesUnordered::new(),
            since: std::collections::BTreeMap::new(),
            returned: HashSet::new(),
            last: 0,
            slot: Arc::clone(&slot),
        };
        tasks.spawn(task.run(connection.gone().clone()));
        Ok(Self { posts: to, slot })
    }

    /// Publishes a message and waits, up to a bound, for its confirm.
    pub(super) async fn publish(&self, message: Message) -> Result<(), PublishError> {
        let (bytes, queue) = (message.body.len(), message.queue.clone());
        if bytes > MAX_MESSAGE_BYTES {
            return Err(PublishError::TooLong {
                bytes,
                most: MAX_MESSAGE_BYTES,
            });
        }
        // Nothing is written while the broker has an alarm: what was handed over would go out later, when its sender
        // has long thought of something else.
        if self.slot.is_blocked() {
            return Err(PublishError::Refused { queue });
        }
        let (answer, verdict) = oneshot::channel();
        let published = async {
            self.posts.send(Post { message, answer }).await.ok()?;
            verdict.await.ok()
        };
        match timeout(CONFIRM_LIMIT, published).await {
            Ok(Some(Verdict::Confirmed)) => Ok(()),
            Ok(Some(Verdict::Unroutable)) => Err(PublishError::Unroutable { queue }),
            Ok(Some(Verdict::Refused)) => Err(PublishError::Refused { queue }),
            Ok(Some(Verdict::Lost(cause))) => Err(PublishError::Disconnected { cause: Some(cause) }),
            Ok(None) => Err(PublishError::Disconnected { cause: None }),
            Err(_) => Err(PublishError::NotConfirmed {
                queue,
                waited: CONFIRM_LIMIT,
            }),
        }
    }
}

type UnderWay = Pin<Box<dyn Future<Output = Complete> + Send>>;

/// A message whose confirm has come, or won't.
struct Complete {
    id: u64,
    answer: oneshot::Sender<Verdict>,
    confirmed: Result<Confirmation, lapin::Error>,
}

struct Task {
    channel: Channel,
    posts: mpsc::Receiver<Post>,
    under_way: FuturesUnordered<UnderWay>,
    /// Since when each message is under way.
    since: std::collections::BTreeMap<u64, Instant>,
    /// Messages that were returned and whose confirm has not come.
    returned: HashSet<u64>,
    last: u64,
    slot: Arc<Slot>,
}

impl Task {
    async fn run(mut self, gone: CancellationToken) {
        let flag = Arc::new(Flag::default());
        loop {
            let deadline = self.deadline();
            let more = tokio::select! {
                more = std::future::poll_fn(|cx| self.poll(cx, &flag)) => more,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    // While there is an alarm nothing is confirmed, and nothing is lost.
                    if !self.slot.is_blocked() {
                        tracing::warn!("a confirm of the broker is missing; the connection is made anew");
                        break;
                    }
                    let now = Instant::now();
                    self.since.values_mut().for_each(|since| *since = now);
                    true
                }
                () = gone.cancelled() => break,
            };
            if !more && self.under_way.is_empty() {
                return;
            }
            if !self.channel.status().connected() {
                break;
            }
        }
        // Whoever holds the connection sees that it is no good any more.
        gone.cancel();
        self.collect(&flag, &mut Context::from_waker(Waker::noop()));
    }

    /// When the oldest message has been under way for too long.
    fn deadline(&self) -> Option<Instant> {
        self.since
            .first_key_value()
            .map(|(_, since)| *since + LOST_CONFIRM)
    }

    /// Takes what is to be published and says what became of what is complete. Ready after either; `false` where nothing
    /// further will be published.
    fn poll(&mut self, cx: &mut Context<'_>, flag: &Arc<Flag>) -> Poll<bool> {
        let mut taken = false;
        while self.under_way.len() < UNDER_WAY {
            match self.posts.poll_recv(cx) {
                Poll::Ready(Some(post)) => {
                    self.send(post);
                    taken = true;
                }
                Poll::Ready(None) => {
                    return if self.collect(flag, cx) || self.under_way.is_empty() {
                        Poll::Ready(false)
                    } else {
                        Poll::Pending
                    };
                }
                Poll::Pending => break,
            }
        }
        if self.collect(flag, cx) || taken {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    }

    fn send(&mut self, post: Post) {
        self.last += 1;
        let id = self.last;
        let channel = self.channel.clone();
        self.since.insert(id, Instant::now());
        self.under_way.push(Box::pin(async move {
            let Post { message, answer } = post;
            let mandatory = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let properties = message.properties.with_message_id(id.to_string().into());
            let published = channel.basic_publish(
                message.exchange,
                message.key,
                mandatory,
                &message.body,
                properties,
            );
            let confirmed = match published.await {
                Ok(confirm) => {
                    reach(Point::MessageWritten);
                    confirm.await
                }
                Err(error) => Err(error),
            };
            Complete {
                id,
                answer,
                confirmed,
            }
        }));
    }

    /// Answers all that are complete; `false` where none is.
    fn collect(&mut self, flag: &Arc<Flag>, cx: &mut Context<'_>) -> bool {
        flag.pass_on_to(cx.waker());
        let waker = Waker::from(Arc::clone(flag));
        let mut complete = Vec::new();
        // Until the set has nothing more to say: woken while it is asked, it may have kept something back.
        loop {
            flag.lower();
            let asked = Pin::new(&mut self.under_way).poll_next(&mut Context::from_waker(&waker));
            match asked {
                Poll::Ready(Some(one)) => complete.push(one),
                Poll::Ready(None) => break,
                Poll::Pending if flag.is_up() => {}
                Poll::Pending => break,
            }
        }
        for one in &complete {
            let returned = match &one.confirmed {
                Ok(Confirmation::Ack(returned) | Confirmation::Nack(returned)) => returned.as_ref(),
                Ok(Confirmation::NotRequested) | Err(_) => None,
            };
            let id: Option<u64> =
                returned.and_then(|message| message.properties.message_id().as_ref()?.as_str().parse().ok());
            self.returned.extend(id);
        }
        let any = !complete.is_empty();
        for Complete {
            id,
            answer,
            confirmed,
        } in complete
        {
            self.since.remove(&id);
            let verdict = judge(confirmed, self.returned.remove(&id));
            // Whoever asked may have stopped waiting.
            answer.send(verdict).unwrap_or_default();
        }
        any
    }
}

/// What a confirm says of its own message.
fn judge(confirmed: Result<Confirmation, lapin::Error>, returned: bool) -> Verdict {
    match confirmed {
        Ok(Confirmation::Ack(_)) if returned => Verdict::Unroutable,
        Ok(Confirmation::Ack(_)) => Verdict::Confirmed,
        Ok(Confirmation::Nack(_)) => Verdict::Refused,
        Ok(Confirmation::NotRequested) => Verdict::Lost("the channel is not in confirm mode".into()),
        Err(error) => Verdict::Lost(Box::new(error)),
    }
}

/// A waker that notes that it was woken, and wakes the task.
#[derive(Default)]
struct Flag {
    up: AtomicBool,
    task: std::sync::Mutex<Option<Waker>>,
}

impl Flag {
    fn pass_on_to(&self, waker: &Waker) {
        let mut task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &mut *task {
            Some(task) => task.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn lower(&self) {
        self.up.store(false, Ordering::SeqCst);
    }

    fn is_up(&self) -> bool {
        self.up.load(Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.up.store(true, Ordering::SeqCst);
        let task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirm_that_nobody_asked_the_broker_for_is_no_success() {
        let verdict = judge(Ok(Confirmation::NotRequested), false);
        assert!(matches!(verdict, Verdict::Lost(_)), "{verdict:?}");
    }

    #[test]
    fn a_message_that_came_back_is_unroutable_although_it_was_acked() {
        let verdict = judge(Ok(Confirmation::Ack(None)), true);
        assert!(matches!(verdict, Verdict::Unroutable), "{verdict:?}");
        let verdict = judge(Ok(Confirmation::Nack(None)), false);
        assert!(matches!(verdict, Verdict::Refused), "{verdict:?}");
    }
}
