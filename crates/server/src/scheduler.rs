//! From jobs that are ready to messages in the pool's queue.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};

use mayfly_core::{chain::Chain, id::AttemptId};
use mayfly_dispatch::{
    message::{DispatchMessage, VERSION},
    scheduler::LowSince,
};
use mayfly_failpoints::{Point, reach};
use mayfly_store::error::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{NotPublished, Pause, Server, rest::Rest};

/// The longest time between two looks, whatever has been committed: a commit of another process wakes nobody here.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked for jobs that have waited too long: none of them is ended later than by so much, and most looks
/// have nothing to do with them.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);

/// Most publications that wait for their confirms at once.
const UNDER_WAY: usize = 256;

/// Confirms of the broker that are not on record yet. They are needed only where an attempt waits for long, and a
/// transaction about it would stand in the way of the grant that comes right after it; so they wait a while, in which most
/// attempts begin. One that is lost has its attempt published again, which is the same attempt.
#[derive(Debug, Default)]
struct Confirms {
    waiting: VecDeque<(Instant, AttemptId, u32)>,
}

impl Confirms {
    /// Those whose time has come, the oldest first. They stay until they are noted.
    fn due(&self) -> Vec<(AttemptId, u32)> {
        let now = Instant::now();
        let due = self.waiting.iter().take_while(|(at, ..)| *at <= now);
        due.map(|(_, attempt, publication)| (*attempt, *publication))
            .collect()
    }

    /// So many of the oldest are on record.
    fn noted(&mut self, count: usize) {
        self.waiting.drain(..count);
    }

    /// How long none is due.
    fn wait(&self) -> Option<Duration> {
        let (at, ..) = self.waiting.front()?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}

pub(crate) async fn run(server: Arc<Server>, stop: CancellationToken) {
    let mut commits = server.store.commits();
    let mut low = LowSince::default();
    let mut confirms = Confirms::default();
    let mut pause = Pause::default();
    let mut rest = Rest::new();
    let mut look_for_lost = Instant::now() + server.timing.publish_again / 4;
    let mut look_for_expired = Instant::now();
    while !stop.is_cancelled() {
        rest.wait(&stop).await;
        // Before the look, so that what is committed during it wakes the next one.
        commits.borrow_and_update();
        let begun = Instant::now();
        let looked = async {
            let mut passed_over = Some(look_for_expired);
            if Instant::now() >= look_for_expired {
                server.store.expire(&server.pool, &server.context()).await?;
                (look_for_expired, passed_over) = (Instant::now() + EXPIRE_EVERY, None);
            }
            let lost = if Instant::now() >= look_for_lost {
                look_for_lost = Instant::now() + server.timing.publish_again / 4;
                Some(&mut low)
            } else {
                None
            };
            let dispatched = look(&server, &mut confirms, lost).await?;
            rest.after(begun, dispatched, false);
            if commits.has_changed().unwrap_or(false) {
                return Ok(Duration::ZERO);
            }
            let context = server.context();
            let due = server.store.next_due(&server.pool, context.now).await?;
            // What has come to be due since the last look for it is not among what is due next.
            let passed_over = passed_over.map(|then| then.saturating_duration_since(Instant::now()));
            let waits = [
                due.map(|due| due.since(context.now)),
                confirms.wait(),
                passed_over,
            ];
            Ok::<_, StoreError>(waits.into_iter().flatten().fold(LONGEST_WAIT, Duration::min))
        };
        let wait = match looked.await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the scheduler could not look for jobs");
                pause.wait(&stop).await;
                continue;
            }
        };
        pause.reset();
        tokio::select! {
            changed = commits.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// One look: what is ready goes out. Returns how many attempts were made.
async fn look(
    server: &Server,
    confirms: &mut Confirms,
    lost: Option<&mut LowSince>,
) -> Result<usize, StoreError> {
    let context = server.context();
    let messages = server.store.dispatch(&server.pool, &context).await?;
    let dispatched = messages.len();
    publish(server, confirms, messages).await;
    if let Some(low) = lost
        && let Ok(ready) = server.queue.ready_count(&server.pool).await
    {
        let context = server.context();
        let messages = server
            .store
            .publish_again(&server.pool, ready, low, &context)
            .await?;
        publish(server, confirms, messages).await;
    }
    let due = confirms.due();
    if !due.is_empty() {
        let context = server.context();
        server.store.publications_confirmed(&due, &context).await?;
        confirms.noted(due.len());
    }
    Ok(dispatched)
}

/// Publishes attempts, all of them before the first confirm is waited for, and takes note of the confirms. One that was
/// not confirmed is published again in its time, as the same attempt.
async fn publish(server: &Server, confirms: &mut Confirms, messages: Vec<DispatchMessage>) {
    if messages.is_empty() {
        return;
    }
    reach(Point::AttemptsCommitted);
    let needs = messages
        .iter()
        .map(|message| server.least_version(message))
        .fold(VERSION, u32::max);
    let reads = server.reads(&server.pool, needs).await;
    let published = stream::iter(messages)
        .map(|message| async move {
            let publication = (message.attempt, message.publication);
            match server.publish_to(&server.pool, message, reads).await {
                Ok(()) => Some(publication),
                Err(error) => {
                    warn(publication, &error);
                    None
                }
            }
        })
        .buffer_unordered(UNDER_WAY);
    let mut published = std::pin::pin!(published);
    while let Some(confirmed) = published.next().await {
        if let Some((attempt, publication)) = confirmed {
            reach(Point::AttemptConfirmed);
            let at = Instant::now() + server.timing.publish_again / 20;
            confirms.waiting.push_back((at, attempt, publication));
        }
    }
}

fn warn((attempt, publication): (AttemptId, u32), error: &NotPublished) {
    tracing::warn!(
        attempt.id = %attempt,
        publication,
        error = %Chain(error),
        "an attempt could not be published; it will be published again"
    );
}
