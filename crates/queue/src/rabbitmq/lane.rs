//! A connection that is made again whenever it is lost, with everything that was set up on it.
//!
//! One task a lane: connect, set up, hold until the connection is gone, wait a while, again; for as long as the queue is
//! held, whatever the broker says, since a broker that was just wiped knows nobody for a moment. The same path makes the
//! first connection and every later one.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use mayfly_core::chain::Chain;
use tokio::{
    sync::watch,
    time::{sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection::{Connection, Dial},
    health::{Registry, Slot},
};
use crate::seam::Cause;

/// The wait after a connection that was lost or could not be made, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A call finds no connection at once only after it has been away for this long: one that was lost just now is back soon.
const SOON: Duration = Duration::from_secs(5);

/// What is set up on a connection.
pub(super) type SetUp<T> =
    Box<dyn Fn(Arc<Connection>) -> Pin<Box<dyn Future<Output = Result<T, Cause>> + Send>> + Send + Sync>;

/// A lane's task, seen from outside.
pub(super) struct Lane<T> {
    state: watch::Receiver<State<T>>,
}

enum State<T> {
    Up(Arc<Held<T>>),
    Down { since: Instant, why: Option<Arc<str>> },
}

/// A connection and what was set up on it. Holding it keeps neither: see [`Connection::gone`].
pub(super) struct Held<T> {
    pub(super) connection: Arc<Connection>,
    pub(super) with: T,
}

/// The lane is down.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Down(Arc<str>);

struct Task<T> {
    dial: Dial,
    purpose: &'static str,
    set_up: SetUp<T>,
    slot: Arc<Slot>,
    state: watch::Sender<State<T>>,
    tasks: TaskTracker,
}

impl<T: Send + Sync + 'static> Lane<T> {
    /// Begins to connect.
    pub(super) fn begin(
        dial: &Dial,
        purpose: &'static str,
        registry: &Arc<Registry>,
        tasks: &TaskTracker,
        stop: CancellationToken,
        set_up: SetUp<T>,
    ) -> Self {
        let down = State::Down {
            since: Instant::now(),
            why: None,
        };
        let (to, state) = watch::channel(down);
        let task = Task {
            dial: dial.clone(),
            purpose,
            set_up,
            slot: registry.slot(),
            state: to,
            tasks: tasks.clone(),
        };
        tasks.spawn(task.run(stop));
        Self { state }
    }

    /// The connection, if there is one.
    pub(super) fn now(&self) -> Option<Arc<Held<T>>> {
        match &*self.state.borrow() {
            State::Up(held) if !held.connection.gone().is_cancelled() => Some(Arc::clone(held)),
            State::Up(_) | State::Down { .. } => None,
        }
    }

    /// The connection, if there is one, or will be soon.
    pub(super) async fn held(&self) -> Result<Arc<Held<T>>, Option<Cause>> {
        let mut state = self.state.clone();
        loop {
            let until = match &*state.borrow_and_update() {
                State::Up(held) if !held.connection.gone().is_cancelled() => return Ok(Arc::clone(held)),
                // It is about to say so.
                State::Up(_) => Instant::now() + SOON,
                State::Down { since, .. } => *since + SOON,
            };
            let changed = timeout_at(until.into(), state.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return match &*state.borrow() {
                    State::Up(held) if !held.connection.gone().is_cancelled() => Ok(Arc::clone(held)),
                    State::Up(_) => Err(None),
                    State::Down { why, .. } => Err(why.clone().map(|why| Box::new(Down(why)) as Cause)),
                };
            }
        }
    }
}

impl<T> Task<T> {
    async fn run(self, stop: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut lost = Instant::now();
        while !stop.is_cancelled() {
            let made = tokio::select! {
                made = self.make() => made,
                () = stop.cancelled() => break,
            };
            let why = match made {
                Ok(held) => {
                    tracing::debug!(purpose = self.purpose, "connected to the broker");
                    let (gone, began) = (held.connection.gone().clone(), Instant::now());
                    self.state.send_replace(State::Up(Arc::clone(&held)));
                    tokio::select! {
                        () = gone.cancelled() => {}
                        () = stop.cancelled() => break,
                    }
                    // One that broke as soon as it was made is no success.
                    if began.elapsed() > LONGEST_PAUSE {
                        pause = FIRST_PAUSE;
                    }
                    lost = Instant::now();
                    held.connection.cause()
                }
                Err(cause) => Some(cause),
            };
            let why: Option<Arc<str>> = why.map(|cause| Chain(&*cause).to_string().into());
            // Said when it begins and when it changes, and not each time.
            let known = match &*self.state.borrow() {
                State::Down { why: known, .. } => *known == why,
                State::Up(_) => false,
            };
            if !known {
                let why = why.as_deref();
                tracing::warn!(
                    why,
                    purpose = self.purpose,
                    "there is no connection to the broker; it is made anew"
                );
            }
            self.state.send_replace(State::Down { since: lost, why });
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                () = stop.cancelled() => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn make(&self) -> Result<Arc<Held<T>>, Cause> {
        let slot = Arc::clone(&self.slot);
        let connection = Connection::open(&self.dial, self.purpose, slot, &self.tasks).await?;
        let with = (self.set_up)(Arc::clone(&connection)).await?;
        Ok(Arc::new(Held { connection, with }))
    }
}

/// Between half of a pause and all of it, so that many that were cut together don't come back together.
fn jittered(pause: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    let part = u32::try_from(random >> 48).unwrap_or(0);
    pause / 2 + (pause / 2).mul_f64(f64::from(part) / 65_536.0)
}
