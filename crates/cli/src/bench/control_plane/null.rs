//! Executors whose sandbox ends each job at once: all of the role but the engine. Each is a process of its own, as in a
//! fleet, and says in the end what it has seen.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use mayfly_core::{
    clock::Clock,
    digest::Digest,
    id::{ExecutorId, JobId},
    outcome::{CapturedStream, Evidence, ProcessEnd, StreamCount},
    run::{Origin, RunReport, SandboxFacts},
};
use mayfly_dispatch::{
    executor::Config,
    message::{Control, DispatchMessage, EventBatch, ExecutorFacts, Reply, Tick, VERSION, Wire as _},
    timing::Timing,
};
use mayfly_executor::{Executor, ExecutorParts, Listeners, NoBlobs, Outside, RunId};
use mayfly_queue::seam::{
    DeadLetters, DeliveryTag, EventConsumer, EventPublisher, ExecutorLink, Health, LinkEvent, Output,
    OutputListener, PublishError, Queue, QueueError, ReplyAddress, SettleError,
};
use mayfly_sandbox::{
    Swept,
    error::EngineError,
    seam::{
        LiveOutput, NoLiveOutput, OutputStream, PrepareError, ReadySandbox, Run, RunEnd, Sandbox,
        SandboxRequest,
    },
};
use mayfly_telemetry::SystemClock;
use serde::{Deserialize, Serialize};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::Common, bench::args::NullExecutorArgs, context, embedded::Requests, exit, failure::Failure,
    fleet::broker, terminal::print,
};

/// What each run prints.
const OUTPUT: &[u8] = b"42\n";

/// What an executor has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Messages that were delivered to it.
    pub(crate) deliveries: u64,
    pub(crate) delivered_bytes: u64,
    /// Messages that it has published.
    pub(crate) batches: u64,
    pub(crate) batch_bytes: u64,
    /// The events in them.
    pub(crate) events: u64,
}

/// `mayfly bench null-executor`.
pub(crate) async fn executor(common: &Common, args: NullExecutorArgs) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    let settings = context::settings(context::service(common))?;
    let counts = Arc::new(Counts::default());
    let queue = Counted {
        queue: broker::connect(&settings.broker.amqp()?, "bench executor")?,
        counts: Arc::clone(&counts),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let executor = Executor::new(ExecutorParts {
        config: Config {
            executor: ExecutorId::new(),
            pool: args.pool,
            slots: args.slots,
            facts: ExecutorFacts {
                build: env!("CARGO_PKG_VERSION").to_owned(),
                reads: VERSION,
                ..ExecutorFacts::default()
            },
            timing: Timing::standard(),
        },
        queue: Arc::new(queue),
        sandbox: Arc::new(Null {
            clock: Arc::clone(&clock),
        }),
        clock,
        listeners: Arc::new(Nobody),
        blobs: Arc::new(NoBlobs),
        outside: Outside::of_host(Vec::new()),
        self_tests: None,
    });
    let (drain, abort, tasks) = (
        CancellationToken::new(),
        CancellationToken::new(),
        TaskTracker::new(),
    );
    let mut role = tasks.spawn({
        let (drain, abort) = (drain.clone(), abort.clone());
        async move { executor.run(drain, abort).await }
    });
    let ended = tokio::select! {
        ended = &mut role => ended,
        () = requests.next() => {
            drain.cancel();
            tokio::select! {
                ended = &mut role => ended,
                () = requests.next() => {
                    abort.cancel();
                    role.await
                }
            }
        }
    };
    ended.map_err(|error| Failure::new(exit::INTERNAL, error))?;
    let line = serde_json::to_string(&counts.seen()).map_err(|error| Failure::new(exit::INTERNAL, error))?;
    print(&format!("{line}\n"))?;
    Ok(ExitCode::SUCCESS)
}

struct Nobody;

impl Listeners for Nobody {
    fn listener(&self, _: RunId) -> Arc<dyn LiveOutput> {
        Arc::new(NoLiveOutput)
    }
}

/// Where sandboxes without a container come from.
struct Null {
    clock: Arc<dyn Clock>,
}

struct NullReady {
    clock: Arc<dyn Clock>,
    facts: SandboxFacts,
}

#[async_trait]
impl Sandbox for Null {
    async fn prepare(&self, request: SandboxRequest) -> Result<Box<dyn ReadySandbox>, PrepareError> {
        let digest = Digest::of(b"null");
        let facts = SandboxFacts {
            sandbox_id: request.sandbox_id,
            origin: Origin::Cold,
            // As long as an engine's.
            container_id: "0".repeat(64),
            image: request.image,
            runtime: request.runtime,
            engine: "none: a bench".to_owned(),
            kernel: "none".to_owned(),
            host: None,
            user_namespace: None,
            in_force: request.limits,
            enforced_digest: digest,
            filter_digest: digest,
            guest_digest: digest,
            not_enforceable: BTreeMap::new(),
            warm: None,
        };
        Ok(Box::new(NullReady {
            clock: Arc::clone(&self.clock),
            facts,
        }))
    }

    async fn drain(&self) {}

    async fn remove_all_of(&self, _: ExecutorId) -> Result<Swept, EngineError> {
        Ok(Swept {
            removed: 0,
            failed: 0,
        })
    }
}

#[async_trait]
impl ReadySandbox for NullReady {
    fn facts(&self) -> &SandboxFacts {
        &self.facts
    }

    fn is_alive(&mut self) -> bool {
        true
    }

    async fn run(self: Box<Self>, run: Run) -> RunEnd {
        let started_at = self.clock.now();
        run.live.output(OutputStream::Stdout, OUTPUT);
        let evidence = Evidence {
            started: true,
            oom_kills: Some(0),
            end: Some(ProcessEnd::Code(0)),
            ..Evidence::default()
        };
        RunReport {
            outcome: evidence.judge(),
            stdout: stream(OUTPUT),
            stderr: stream(b""),
            usage: None,
            sandbox: Some(self.facts),
            started_at: Some(started_at),
            ended_at: self.clock.now(),
            uploaded: None,
            artifacts: None,
            egress: None,
        }
        .into()
    }

    async fn discard(self: Box<Self>) {}
}

fn stream(bytes: &[u8]) -> CapturedStream {
    CapturedStream {
        count: StreamCount {
            bytes: bytes.len() as u64,
            digest: Digest::of(bytes),
            truncated: false,
        },
        head: bytes.to_vec(),
        tail: Vec::new(),
        redacted: None,
    }
}

#[derive(Debug, Default)]
struct Counts {
    deliveries: AtomicU64,
    delivered_bytes: AtomicU64,
    batches: AtomicU64,
    batch_bytes: AtomicU64,
    events: AtomicU64,
}

/// Every how many messages one is encoded again to learn its length.
const MEASURED: u64 = 64;

impl Counts {
    fn seen(&self) -> Seen {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Seen {
            deliveries: of(&self.deliveries),
            delivered_bytes: of(&self.delivered_bytes),
            batches: of(&self.batches),
            batch_bytes: of(&self.batch_bytes),
            events: of(&self.events),
        }
    }

    fn delivered(&self, message: &DispatchMessage) {
        let before = self.deliveries.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(MEASURED) {
            let bytes = message.encode().len() as u64 * MEASURED;
            self.delivered_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn published(&self, batch: &EventBatch) {
        self.events
            .fetch_add(batch.events.len() as u64, Ordering::Relaxed);
        let before = self.batches.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(MEASURED) {
            let bytes = batch.encode().len() as u64 * MEASURED;
            self.batch_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// A queue that counts what an executor's links see.
struct Counted {
    queue: Arc<dyn Queue>,
    counts: Arc<Counts>,
}

struct CountedLink {
    link: Box<dyn ExecutorLink>,
    counts: Arc<Counts>,
}

struct CountedPublisher {
    publisher: Arc<dyn EventPublisher>,
    counts: Arc<Counts>,
}

#[async_trait]
impl Queue for Counted {
    async fn declare(&self, pool: &str) -> Result<(), QueueError> {
        self.queue.declare(pool).await
    }

    async fn declare_events(&self, pool: &str, epoch: u64) -> Result<(), QueueError> {
        self.queue.declare_events(pool, epoch).await
    }

    async fn publish_attempt(&self, pool: &str, message: &DispatchMessage) -> Result<(), PublishError> {
        self.queue.publish_attempt(pool, message).await
    }

    async fn publish_tick(&self, pool: &str, tick: &Tick) -> Result<(), PublishError> {
        self.queue.publish_tick(pool, tick).await
    }

    async fn ready_count(&self, pool: &str) -> Result<u64, QueueError> {
        self.queue.ready_count(pool).await
    }

    async fn consume_events(&self, pool: &str) -> Result<Box<dyn EventConsumer>, QueueError> {
        self.queue.consume_events(pool).await
    }

    async fn reply(&self, to: &ReplyAddress, reply: &Reply) {
        self.queue.reply(to, reply).await;
    }

    async fn control(&self, pool: &str, executor: ExecutorId, control: &Control) -> Result<(), PublishError> {
        self.queue.control(pool, executor, control).await
    }

    async fn listen(&self, job: JobId) -> Result<Box<dyn OutputListener>, QueueError> {
        self.queue.listen(job).await
    }

    fn health(&self) -> Health {
        self.queue.health()
    }

    async fn dead_letters(&self) -> Result<Box<dyn DeadLetters>, QueueError> {
        self.queue.dead_letters().await
    }

    async fn republish(
        &self,
        origin: &mayfly_queue::seam::Origin,
        sender: &str,
        bytes: &[u8],
    ) -> Result<(), PublishError> {
        self.queue.republish(origin, sender, bytes).await
    }

    async fn join(
        &self,
        pool: &str,
        executor: ExecutorId,
        prefetch: NonZeroU16,
    ) -> Result<Box<dyn ExecutorLink>, QueueError> {
        Ok(Box::new(CountedLink {
            link: self.queue.join(pool, executor, prefetch).await?,
            counts: Arc::clone(&self.counts),
        }))
    }
}

#[async_trait]
impl ExecutorLink for CountedLink {
    async fn next(&mut self) -> LinkEvent {
        let event = self.link.next().await;
        if let LinkEvent::Delivery(delivery) = &event
            && let Ok(message) = &delivery.message
        {
            self.counts.delivered(message);
        }
        event
    }

    fn publisher(&self) -> Arc<dyn EventPublisher> {
        Arc::new(CountedPublisher {
            publisher: self.link.publisher(),
            counts: Arc::clone(&self.counts),
        })
    }

    async fn set_consuming(&self, consuming: bool) -> Result<(), SettleError> {
        self.link.set_consuming(consuming).await
    }

    async fn ack(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.link.ack(tag).await
    }

    async fn hand_back(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.link.hand_back(tag).await
    }

    async fn dead_letter(&self, tag: DeliveryTag) -> Result<(), SettleError> {
        self.link.dead_letter(tag).await
    }
}

#[async_trait]
impl EventPublisher for CountedPublisher {
    async fn publish_events(&self, batch: &EventBatch) -> Result<(), PublishError> {
        self.counts.published(batch);
        self.publisher.publish_events(batch).await
    }

    fn publish_output(&self, output: Output) {
        self.publisher.publish_output(output);
    }
}
