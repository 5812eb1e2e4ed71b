//! The executor's side: one machine for the life of one process.
//!
//! The driver feeds it everything that happens as an [`Input`], with the time, and does the [`Action`]s that come back,
//! in their order. It sets one timer, for [`Executor::next_wake`], and sends `alive` frames to the guests that run a job
//! until it is told to kill them. Right before it sends a job to a sandbox it calls [`Executor::may_send`], with the
//! time of that very moment: the one call whose answer may not wait in a queue.
//!
//! The life of a process: its predecessor's containers are swept; a session is announced; its heartbeats are confirmed,
//! which makes its lease; attempts are taken, asked for, run, reported and kept until a receipt covers their end. When
//! the lease comes near its end, or the server says that the session is dead, everything that it holds is given up, and
//! once its containers are gone and its last events are delivered another session begins.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, SessionId},
    run::RunReport,
    self_test::SelfTest,
};

use crate::{
    message::{DecodeError, DispatchMessage, EventBatch, ExecutorFacts, Reply},
    rules::Rules,
    time::BootTime,
    timing::Timing,
};

mod attempts;
mod deliveries;
mod fitness;
mod lease;
mod life;
mod outbox;
mod publishing;
mod recent;

use attempts::Attempt;
use deliveries::Waiting;
use fitness::Fitness;
use lease::Lease;
use life::Life;
use outbox::Outbox;
use recent::Recent;

#[cfg(test)]
mod tests;

/// A delivery, by the number that the driver gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery(pub u64);

/// A publication of a batch, by the number that the machine gave it. It is used once in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Publish(u64);

/// What an executor is.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its id; the same across restarts.
    pub executor: ExecutorId,
    /// The pool whose jobs it takes.
    pub pool: String,
    /// Attempts that it runs at a time, at least 1. Its consumer's prefetch is the same number.
    pub slots: u32,
    /// Its host.
    pub facts: ExecutorFacts,
    /// The times in force.
    pub timing: Timing,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Time has passed; nothing else.
    Time,
    /// The containers of whatever this executor ran before are gone (answer to [`Action::Sweep`]).
    Swept,
    /// A fresh id (answer to [`Action::NewSession`]).
    NewSession(SessionId),
    /// The connection that events are published on is there, and replies to it are read.
    Connected,
    /// That connection is gone, and what was published on it and not confirmed may be lost.
    Disconnected,
    /// A batch is in the recorder's queue, for all that the broker can promise.
    Confirmed(Publish),
    /// A batch may not be in the recorder's queue: returned, refused, or not confirmed in time.
    PublishFailed(Publish),
    /// The recorder has answered.
    Reply(Reply),
    /// A message was delivered.
    Delivered {
        /// Under which number it is acked or handed back.
        delivery: Delivery,
        /// What it is.
        message: Result<Box<DispatchMessage>, DecodeError>,
    },
    /// The channel of the consumer is gone: no delivery so far can be acked or handed back any more. The driver
    /// consumes again by itself, if that was the last wish.
    DeliveriesVoid,
    /// A sandbox waits for the job of an attempt (answer to [`Action::Prepare`]).
    SandboxReady(AttemptId),
    /// The engine does not answer, and the driver goes on trying to make a sandbox for an attempt. Until that has come to
    /// an end this executor is out of service: it takes nothing new, which another one can have or can wait.
    SandboxDelayed(AttemptId),
    /// There is no sandbox for an attempt (the other answer to [`Action::Prepare`]); what there was of it is gone.
    SandboxFailed {
        /// The attempt.
        attempt: AttemptId,
        /// What the record will say, if the attempt is granted.
        report: Box<RunReport>,
    },
    /// The run of an attempt is over, by itself or killed: no process of it is left.
    RunEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        report: Box<RunReport>,
        /// What there is of its container.
        container: ContainerLeft,
    },
    /// The container of a run that had ended is gone (or left to the reaper), and the engine's word on its end is heard.
    Destroyed {
        /// The attempt.
        attempt: AttemptId,
        /// What contradicts the report, in words.
        contradictions: Vec<String>,
    },
    /// Take nothing new until told otherwise; what is held goes on, and so does the session.
    Cordon(bool),
    /// The host has these images now, by the digests that jobs are pinned to. The session names them.
    Images(Vec<Digest>),
    /// A self-test of the host has come to an end (answer to [`Action::SelfTest`]; also before anything else has happened,
    /// by the test that was made first of all). A host that has failed takes no jobs until one has passed.
    SelfTested {
        /// What came of it.
        test: Box<SelfTest>,
        /// How long from now the next one is due; none where there is none.
        next_in: Option<Duration>,
    },
    /// The host is not what it was when it was last tried: its engine is another one. It takes nothing new until it has
    /// been tried again, which is due at once; what runs goes on.
    HostChanged,
    /// Take nothing new, and end once everything that is held is delivered.
    Drain,
    /// The same, but kill what runs.
    Abort,
}

/// What there is of a container when its run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerLeft {
    /// Nothing.
    Gone,
    /// It is being destroyed; [`Input::Destroyed`] follows.
    BeingDestroyed,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Remove every container of this executor that this process has not made, then say [`Input::Swept`].
    Sweep,
    /// Make a random session id and say [`Input::NewSession`].
    NewSession,
    /// Publish a batch, then say [`Input::Confirmed`] or [`Input::PublishFailed`]. Batches go out in this order.
    Publish {
        /// Its number.
        publish: Publish,
        /// The batch.
        batch: EventBatch,
    },
    /// Consume from the pool's queue.
    StartConsuming,
    /// Cancel the consumer. What was delivered until then stays valid.
    StopConsuming,
    /// Ack a delivery.
    Ack(Delivery),
    /// Hand a delivery back, for another executor.
    Return(Delivery),
    /// Refuse a delivery as broken, so that it becomes a dead letter.
    Reject(Delivery),
    /// Make a sandbox, then say [`Input::SandboxReady`] or [`Input::SandboxFailed`].
    Prepare(Box<DispatchMessage>),
    /// Call [`Executor::may_send`], and if it may be, send the job to its sandbox at once; then say
    /// [`Input::RunEnded`] some time. If it may not be, say [`Input::Time`].
    SendJob(AttemptId),
    /// Stop the `alive` frames of a run and kill it. Its end is said as [`Input::RunEnded`].
    Kill {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        why: KillReason,
    },
    /// Destroy the sandbox of an attempt that gets no job, ready or not. Nothing more is said of it.
    Discard(AttemptId),
    /// Try whether sandboxes hold on this host, then say [`Input::SelfTested`]. It has a slot meanwhile.
    SelfTest,
    /// The process may end: everything that it had to say is processed.
    Done,
}

/// Why a run is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KillReason {
    /// Somebody asked for its end: the report says so.
    Canceled,
    /// It counts for nothing any more.
    NotOurs,
    /// The lease of its session is about to end.
    LeaseEnding,
    /// The executor was told to stop at once.
    Stopped,
}

/// The machine.
#[derive(Debug)]
pub struct Executor {
    config: Config,
    rules: Rules,
    life: Life,
    lease: Lease,
    outbox: Outbox,
    attempts: BTreeMap<AttemptId, Attempt>,
    /// Runs that are over and whose containers are being destroyed, with the session that had them.
    lingering: BTreeMap<AttemptId, Option<SessionId>>,
    recent: Recent,
    waiting: VecDeque<Waiting>,
    fitness: Fitness,
    connected: bool,
    consuming: bool,
    refuses_newer: bool,
    cordoned: bool,
    /// By the newest reply, of whichever session. A change of it counts, whatever was said before.
    cordoned_on_record: bool,
    leaving: Option<Leaving>,
    sent_again_at: Option<BootTime>,
    publish_after: BootTime,
    next_publish: u64,
    actions: Vec<Action>,
}

/// How the process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// With what it holds finished.
    Drain,
    /// At once.
    Abort,
}

impl Executor {
    /// The machine of a process that has just begun, and what to do first.
    #[must_use]
    pub fn new(config: Config, now: BootTime) -> (Self, Vec<Action>) {
        let life = Life::Sweeping {
            give_up_at: now + config.timing.alive_limit,
        };
        let executor = Self {
            lease: Lease::none(config.timing),
            config,
            rules: Rules::all(),
            life,
            outbox: Outbox::default(),
            attempts: BTreeMap::new(),
            lingering: BTreeMap::new(),
            recent: Recent::default(),
            waiting: VecDeque::new(),
            fitness: Fitness::default(),
            connected: false,
            consuming: false,
            refuses_newer: false,
            cordoned: false,
            cordoned_on_record: false,
            leaving: None,
            sent_again_at: None,
            publish_after: now,
            next_publish: 0,
            actions: Vec::new(),
        };
        (executor, vec![Action::Sweep])
    }

    /// The same machine with some rules dropped.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Takes note of something that happened at `now`, which is never before the last call's.
    pub fn handle(&mut self, input: Input, now: BootTime) -> Vec<Action> {
        // Before anything else is believed: whatever comes may come after a freeze, into a session that is over.
        self.judge_lease(now);
        match input {
            Input::Time => {}
            Input::Swept => self.swept(),
            Input::NewSession(session) => self.begin(session),
            Input::Connected => self.connected = true,
            Input::Disconnected => {
                self.connected = false;
                self.outbox.disconnected();
                self.lease.disconnected();
            }
            Input::Confirmed(publish) => {
                self.outbox.confirmed(publish);
                self.lease.confirmed(publish);
            }
            Input::PublishFailed(publish) => {
                self.outbox.failed(publish);
                self.lease.failed(publish);
                self.publish_after = now + self.config.timing.publish_pause;
            }
            Input::Reply(reply) => self.reply(reply, now),
            Input::Delivered { delivery, message } => self.delivered(delivery, message, now),
            Input::DeliveriesVoid => self.deliveries_void(),
            Input::SandboxReady(attempt) => self.sandbox_ready(attempt),
            Input::SandboxDelayed(attempt) => self.sandbox_delayed(attempt),
            Input::SandboxFailed { attempt, report } => self.sandbox_failed(attempt, report),
            Input::RunEnded {
                attempt,
                report,
                container,
            } => {
                if container == ContainerLeft::BeingDestroyed {
                    self.lingering.insert(attempt, self.life.session());
                }
                self.run_ended(attempt, report);
            }
            Input::Destroyed {
                attempt,
                contradictions,
            } => self.destroyed(attempt, contradictions),
            Input::Cordon(cordoned) => self.cordoned = cordoned,
            Input::Images(images) => self.images(images),
            Input::SelfTested { test, next_in } => self.self_tested(test, next_in, now),
            Input::HostChanged => self.fitness.host_changed(now),
            Input::Drain => self.leaving = self.leaving.or(Some(Leaving::Drain)),
            Input::Abort => self.leaving = Some(Leaving::Abort),
        }
        self.settle(now);
        std::mem::take(&mut self.actions)
    }

    /// Whether the job of an attempt may be sent to its sandbox at this very moment; if so, it counts as running.
    ///
    /// The lease must last for longer than a guest goes on without `alive` frames: if this process is frozen between
    /// this answer and the frame, then the guest is gone, or the lease still stands.
    #[must_use]
    pub fn may_send(&mut self, attempt: AttemptId, now: BootTime) -> bool {
        self.may_send_under_lease(attempt, now)
    }

    /// When [`Input::Time`] is due if nothing else happens before. None: not at all.
    #[must_use]
    pub fn next_wake(&self) -> Option<BootTime> {
        self.wakes().into_iter().flatten().min()
    }

    /// The session, from its announcement until it is over.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        self.life.session()
    }

    /// Whether the session may hold and ask for anything at `now`.
    #[must_use]
    pub fn lease_is_live(&self, now: BootTime) -> bool {
        self.life.is_open() && self.lease.is_live(now)
    }

    /// Whether an attempt is neither denied nor, as over, covered by a receipt.
    #[must_use]
    pub fn holds(&self, attempt: AttemptId) -> bool {
        self.attempts.contains_key(&attempt)
    }

    /// Whether an attempt is asked for, and the ask is not answered.
    #[must_use]
    pub fn asks_for(&self, attempt: AttemptId) -> bool {
        self.attempts.get(&attempt).is_some_and(Attempt::is_asked)
    }

    /// Attempts that are neither denied nor, as over, covered by a receipt.
    #[must_use]
    pub fn held(&self) -> usize {
        self.attempts.len()
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }
}
