//! The server's loops on the embedded database and queue, with an executor that does as the test says.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc, time::Duration};

use mayfly_core::{
    clock::Clock as _,
    digest::Salt,
    id::{ExecutorId, JobId, SessionId, TenantId},
    outcome::{Cause, EndState},
};
use mayfly_dispatch::{
    message::{EventBatch, ExecutorFacts, Inbound, Opened, SECRETS_SINCE, SessionEvent, VERSION},
    timing::Timing,
    token::TokenKey,
};
use mayfly_queue::{
    memory::{Limits, MemoryQueue},
    seam::{ExecutorLink, LinkEvent, Queue as _},
};
use mayfly_server::{Server, ServerParts};
use mayfly_store::{
    records::{JobDetails, NewJob},
    seam::{DispatchStore as _, JobStore as _},
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_telemetry::SystemClock;
use mayfly_testkit::job;
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const POOL: &str = "pool";

struct Bench {
    server: Arc<Server>,
    queue: MemoryQueue,
    store: Arc<SqliteStore>,
    stop: CancellationToken,
    tasks: TaskTracker,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// A server whose times are a hundredth of the usual ones.
    async fn start() -> Self {
        Self::start_with(Timing::standard().divided_by(100).unwrap()).await
    }

    async fn start_with(timing: Timing) -> Self {
        let bench = Self::without_loops(timing).await;
        let (server, token) = (Arc::clone(&bench.server), bench.stop.clone());
        bench.tasks.spawn(async move { server.run(token).await.unwrap() });
        bench
    }

    /// A server that does what a test asks it to, and nothing else.
    async fn without_loops(timing: Timing) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&folder.path().join("jobs.db")).await.unwrap());
        let queue = MemoryQueue::new(Limits::standard());
        let server = Arc::new(Server::new(ServerParts {
            blobs: None,
            store: store.clone(),
            queue: Arc::new(queue.clone()),
            clock: Arc::new(SystemClock),
            pool: POOL.to_owned(),
            timing,
            key: TokenKey::from_bytes([7; 32]),
        }));
        server.declare().await.unwrap();
        Self {
            server,
            queue,
            store,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            _folder: folder,
        }
    }

    async fn submit(&self) -> JobId {
        self.submit_with(json!({})).await
    }

    async fn submit_with(&self, fields: serde_json::Value) -> JobId {
        let id = JobId::new();
        let job = NewJob {
            id,
            tenant: TenantId::LOCAL,
            pool: POOL.to_owned(),
            resolved: Arc::new(job(&["true"], fields)),
            labels: BTreeMap::new(),
            priority: 0,
            not_before: None,
            expires_at: None,
            retain_source: true,
            salt: Salt::from_bytes([1; 32]),
            batch: None,
            idempotency: None,
        };
        self.store.submit(job, SystemClock.now()).await.unwrap();
        id
    }

    async fn join(&self) -> Box<dyn ExecutorLink> {
        let prefetch = NonZeroU16::new(1).unwrap();
        let link = self.queue.join(POOL, ExecutorId::new(), prefetch).await.unwrap();
        link.set_consuming(true).await.unwrap();
        link
    }

    async fn ended(&self, job: JobId) -> JobDetails {
        let mut commits = self.store.commits();
        loop {
            commits.borrow_and_update();
            let details = self.store.find_job(TenantId::LOCAL, job).await.unwrap().unwrap();
            if details.job.state.end().is_some() {
                return details;
            }
            commits.changed().await.unwrap();
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("it happens in time")
}

async fn delivery(link: &mut dyn ExecutorLink) -> mayfly_queue::seam::Delivery {
    loop {
        if let LinkEvent::Delivery(delivery) = in_time(link.next()).await {
            return delivery;
        }
    }
}

#[tokio::test]
async fn an_attempt_that_nobody_can_read_is_published_again_and_then_ends_its_job() {
    // Nothing is taken for lost while the machine is busy elsewhere: that would be a publication more.
    let bench = Bench::start_with(Timing::standard()).await;
    let job = bench.submit().await;
    let mut link = bench.join().await;
    let mut publications = Vec::new();
    for _ in 0..5 {
        let delivery = delivery(&mut *link).await;
        publications.push(delivery.message.unwrap().publication);
        link.dead_letter(delivery.tag).await.unwrap();
    }
    assert_eq!(
        publications,
        [1, 2, 3, 4, 5],
        "each is another publication of the one attempt"
    );
    let details = in_time(bench.ended(job)).await;
    let outcome = details.job.outcome.unwrap();
    assert_eq!(
        (outcome.state, outcome.cause),
        (EndState::Error, Cause::Undeliverable)
    );
    assert_eq!(details.attempts.len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn an_attempt_that_the_broker_has_lost_is_published_again() {
    let bench = Bench::start().await;
    bench.submit().await;
    let mut link = bench.join().await;
    let first = delivery(&mut *link).await.message.unwrap();
    bench.queue.wipe();
    // As an operator would, or another server that starts.
    bench.queue.declare(POOL).await.unwrap();
    drop(link);
    let mut link = bench.join().await;
    let again = delivery(&mut *link).await.message.unwrap();
    assert_eq!(again.attempt, first.attempt);
    assert!(again.publication > first.publication);
    bench.stop().await;
}

/// What a session says of itself, and its end.
async fn say(bench: &Bench, executor: ExecutorId, session: SessionId, first: u64, event: SessionEvent) {
    let batch = Inbound::Batch(Box::new(EventBatch {
        v: VERSION,
        executor,
        session,
        first,
        events: vec![event],
        heartbeat: None,
    }));
    let context = bench.server.context();
    bench.store.process(POOL, &[batch], &context).await.unwrap();
}

#[tokio::test]
async fn a_job_with_secrets_waits_until_no_executor_of_its_pool_would_run_it_without_them() {
    let bench = Bench::without_loops(Timing::standard()).await;
    let secrets = json!({"secrets": {"TOKEN": "correct-horse"}});
    for fields in [json!({}), secrets] {
        bench.submit_with(fields).await;
    }
    let context = bench.server.context();
    let orders = bench.store.dispatch(POOL, &context).await.unwrap();
    let (executor, session) = (ExecutorId::new(), SessionId::new());
    let opened = SessionEvent::Opened(Opened {
        slots: 2,
        pool: POOL.to_owned(),
        facts: ExecutorFacts {
            reads: SECRETS_SINCE - 1,
            ..ExecutorFacts::default()
        },
    });
    say(&bench, executor, session, 1, opened).await;
    let mut link = bench.join().await;
    for order in &orders {
        let published = bench.server.publish_attempt(POOL, order.clone()).await;
        if order.resolved.secrets.is_empty() {
            published.unwrap();
            let sent = delivery(&mut *link).await;
            assert_eq!(sent.message.unwrap().v, VERSION);
            link.ack(sent.tag).await.unwrap();
        } else {
            let said = published.unwrap_err().to_string();
            assert!(
                said.contains("reads up to 4") && !said.contains("correct-horse"),
                "{said}"
            );
        }
    }
    say(&bench, executor, session, 2, SessionEvent::Closed).await;
    let order = orders
        .into_iter()
        .find(|order| !order.resolved.secrets.is_empty());
    bench.server.publish_attempt(POOL, order.unwrap()).await.unwrap();
    let sent = delivery(&mut *link).await.message.unwrap();
    assert_eq!(sent.v, SECRETS_SINCE);
    assert_eq!(sent.resolved.secrets["TOKEN"].reveal(), "correct-horse");
}
