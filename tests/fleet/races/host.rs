//! An executor without an engine: it asks for whatever is delivered, holds what it is granted, and says that a run is over
//! when it is told to.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, SessionId},
    outcome::{CapturedStream, Cause, EndState, Outcome, StreamCount},
    run::RunReport,
};
use mayfly_dispatch::message::{
    EventBatch, ExecutorFacts, Heartbeat, Held as Named, MAX_BATCH_EVENTS, Opened, Phase, SessionEvent,
    VERSION, Verdict,
};
use mayfly_queue::{
    rabbitmq::{RabbitConfig, RabbitQueue},
    seam::{DeliveryTag, EventPublisher, ExecutorLink, LinkEvent, Queue as _},
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::support::{Fleet, SOON, wait_for};

/// The executor, until this is dropped.
pub struct Host {
    granted: mpsc::UnboundedReceiver<(JobId, AttemptId)>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Ends runs.
#[derive(Clone)]
pub struct Finisher(mpsc::UnboundedSender<SessionEvent>);

impl Finisher {
    /// Has the executor say that a run is over, and that it succeeded.
    pub fn finish(&self, attempt: AttemptId) {
        let report = Box::new(succeeded());
        let event = SessionEvent::Finished { attempt, report };
        self.0.send(event).expect("the executor is there");
    }
}

/// What the session has asked for, and how far that is. What is over stays named until a receipt covers that.
#[derive(Default)]
struct Held {
    phases: HashMap<AttemptId, Phase>,
    /// Those that are over, with the number of the event that says so.
    over: VecDeque<(u64, AttemptId)>,
}

type Holds = Arc<Mutex<Held>>;

impl Host {
    /// Enrolls one, and begins its session.
    pub async fn join(fleet: &Fleet, slots: u32) -> (Self, Finisher) {
        let settings = fleet.enroll("host-of-races");
        // A server that answers by HTTP may be about to declare its queues.
        wait_for(SOON, "the server to have declared its queues", async || {
            let queues = fleet.services.queues();
            let is_there = |name: &str| queues.iter().any(|queue| queue == name);
            (is_there("mayfly.jobs.default") && is_there("mayfly.events.default")).then_some(())
        })
        .await;
        let executor: ExecutorId = settings["MAYFLY_EXECUTOR__ID"].parse().expect("it is an id");
        let queue = RabbitQueue::connect(RabbitConfig::new(settings["MAYFLY_BROKER__URL"].clone()));
        let prefetch = u16::try_from(slots).ok().and_then(NonZeroU16::new);
        let link = queue
            .expect("it is an address")
            .join("default", executor, prefetch.expect("some slots"))
            .await
            .expect("the broker lets it in");
        link.set_consuming(true).await.expect("the queue is there");
        let (events, waiting) = mpsc::unbounded_channel();
        let opened = SessionEvent::Opened(Opened {
            slots,
            pool: "default".to_owned(),
            facts: ExecutorFacts::default(),
        });
        events.send(opened).expect("the receiver is here");
        let (granted_to, granted) = mpsc::unbounded_channel();
        let (holds, stop) = (Holds::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(say(
            link.publisher(),
            (executor, SessionId::new()),
            waiting,
            Arc::clone(&holds),
            stop.clone(),
        ));
        tasks.spawn(hear(link, events.clone(), holds, granted_to, stop.clone()));
        let host = Self { granted, stop, tasks };
        (host, Finisher(events))
    }

    /// A run that may start.
    pub async fn granted(&mut self) -> (JobId, AttemptId) {
        self.granted.recv().await.expect("the executor is there")
    }

    /// Ends it. It holds nothing any more.
    pub async fn leave(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("the executor was fine to its end");
        }
    }
}

impl Held {
    /// Forgets what is processed.
    fn cover(&mut self, processed: u64) {
        while self.over.front().is_some_and(|(number, _)| *number <= processed)
            && let Some((_, attempt)) = self.over.pop_front()
        {
            self.phases.remove(&attempt);
        }
    }
}

fn held(holds: &Holds) -> MutexGuard<'_, Held> {
    holds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Publishes events in their order, all that wait in one batch, and a heartbeat every few seconds.
async fn say(
    publisher: Arc<dyn EventPublisher>,
    (executor, session): (ExecutorId, SessionId),
    mut waiting: mpsc::UnboundedReceiver<SessionEvent>,
    holds: Holds,
    stop: CancellationToken,
) {
    let every = Duration::from_secs(5);
    // The session begins first.
    let mut beat = tokio::time::interval_at(Instant::now() + every, every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = 1;
    loop {
        let mut events = Vec::new();
        let beats = tokio::select! {
            _ = waiting.recv_many(&mut events, MAX_BATCH_EVENTS) => false,
            _ = beat.tick() => true,
            () = stop.cancelled() => return,
        };
        let first = next;
        for event in &events {
            if let SessionEvent::Finished { attempt, .. } = event {
                let mut held = held(&holds);
                held.phases.insert(*attempt, Phase::Finished);
                held.over.push_back((next, *attempt));
            }
            next += 1;
        }
        let heartbeat = beats.then(|| Heartbeat {
            held: held(&holds)
                .phases
                .iter()
                .map(|(attempt, phase)| Named {
                    attempt: *attempt,
                    phase: *phase,
                })
                .collect(),
            free_slots: 1,
        });
        let batch = EventBatch {
            v: VERSION,
            executor,
            session,
            first,
            events,
            heartbeat,
        };
        publisher
            .publish_events(&batch)
            .await
            .expect("the broker takes it");
    }
}

/// Asks for what is delivered, and takes note of what is granted.
async fn hear(
    mut link: Box<dyn ExecutorLink>,
    events: mpsc::UnboundedSender<SessionEvent>,
    holds: Holds,
    granted: mpsc::UnboundedSender<(JobId, AttemptId)>,
    stop: CancellationToken,
) {
    let mut asked: HashMap<AttemptId, (DeliveryTag, JobId)> = HashMap::new();
    loop {
        let event = tokio::select! {
            event = link.next() => event,
            () = stop.cancelled() => return,
        };
        match event {
            LinkEvent::Delivery(delivery) => {
                let message = delivery.message.expect("servers write messages");
                asked.insert(message.attempt, (delivery.tag, message.job));
                // Named from before it is asked for.
                held(&holds).phases.insert(message.attempt, Phase::Asked);
                let event = SessionEvent::Starting {
                    attempt: message.attempt,
                    publication: message.publication,
                    token: message.token,
                };
                events.send(event).unwrap_or_default();
            }
            LinkEvent::Reply(reply) => {
                assert!(
                    !reply.gap && !reply.dead,
                    "nothing was lost, and the session lives"
                );
                held(&holds).cover(reply.processed);
                for answer in reply.answers {
                    assert_eq!(answer.verdict, Verdict::Grant, "nobody cancels before the start");
                    let (tag, job) = asked.remove(&answer.attempt).expect("it was asked for");
                    link.ack(tag).await.expect("the delivery is outstanding");
                    held(&holds).phases.insert(answer.attempt, Phase::Running);
                    granted.send((job, answer.attempt)).unwrap_or_default();
                }
            }
            LinkEvent::Control(_) => {}
            over @ (LinkEvent::Cancelled | LinkEvent::Disconnected { .. }) => panic!("{over:?}"),
        }
    }
}

fn succeeded() -> RunReport {
    let nothing = || CapturedStream {
        count: StreamCount {
            bytes: 0,
            digest: Digest::of(b""),
            truncated: false,
        },
        head: Vec::new(),
        tail: Vec::new(),
        redacted: None,
    };
    RunReport {
        outcome: Outcome::decided(EndState::Succeeded, Cause::Exited),
        stdout: nothing(),
        stderr: nothing(),
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: DateTime::<Utc>::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}
