//! What the cases stand on: a server with two tenants and a key of each kind, and doubles of what has a broker.

use std::{
    collections::HashMap,
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_api::{
    Api, ApiKey, ApiLimits, ApiParts, UploadRules,
    seams::{
        DeadLetterDesk, Fleet, HealthSource, LiveOutput, LiveOutputSource, Order, OutputPiece, SourceError,
    },
};
use mayfly_core::{
    account::Role,
    artifact::{Artifact, Artifacts},
    clock::Clock,
    digest::Digest,
    id::{ExecutorId, JobId, KeyId, TenantId},
    outcome::Redacted,
    policy::Policy,
    run::RunReport,
    units::{ByteSize, Span},
};
use mayfly_dispatch::{
    ledger::Ledger, message::DispatchMessage, time::ServerTime, timing::Timing, token::TokenKey,
};
use mayfly_store::{
    accounts::NewKey,
    blobs::{BlobOwner, PieceAt},
    contract::{
        Place,
        accounts::tenant,
        bench::{Bench, Client, POOL, Plan, success},
    },
    executors::NewExecutor,
    seam::Store,
};
use mayfly_store_sqlite::SqliteStore;
use mayfly_wire::{
    dead_letter::{DeadLetter, DeadLetterOrigin, WhyDead},
    health::Check,
};
use reqwest::{Method, RequestBuilder};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::{Mutex as AsyncMutex, mpsc},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The id of the one dead letter that there is.
pub(crate) const LETTER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Who a request is by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// The admin, with the first tenant.
    Admin,
    /// An admin of no tenant.
    FleetAdmin,
    Operator,
    Submitter,
    Viewer,
    Auditor,
    /// The submitter of the second tenant.
    Stranger,
}

impl Who {
    pub(crate) const ALL: [Self; 7] = [
        Self::Admin,
        Self::FleetAdmin,
        Self::Operator,
        Self::Submitter,
        Self::Viewer,
        Self::Auditor,
        Self::Stranger,
    ];

    fn role(self) -> Role {
        match self {
            Self::Admin | Self::FleetAdmin => Role::Admin,
            Self::Operator => Role::Operator,
            Self::Submitter | Self::Stranger => Role::Submitter,
            Self::Viewer => Role::Viewer,
            Self::Auditor => Role::Auditor,
        }
    }
}

/// A clock that stands where the bench stands, and whose time since boot goes on.
struct StandingClock {
    date: Mutex<DateTime<Utc>>,
    started: std::time::Instant,
}

impl Clock for StandingClock {
    fn now(&self) -> DateTime<Utc> {
        *self.date.lock().unwrap()
    }

    fn since_boot(&self) -> Duration {
        self.started.elapsed()
    }
}

struct File(PathBuf);

#[async_trait]
impl Place for File {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&self.0).await.unwrap())
    }

    async fn ledger(&self, _: &str) -> Ledger {
        panic!("no case here looks at the rows")
    }

    async fn outputs(&self) -> usize {
        panic!("no case here looks at the rows")
    }

    async fn pieces(&self) -> usize {
        panic!("no case here looks at the rows")
    }
}

/// What has a broker in a fleet.
#[derive(Default)]
pub(crate) struct Doubles {
    listeners: Mutex<HashMap<JobId, mpsc::Sender<OutputPiece>>>,
    listening: tokio::sync::Notify,
    pub(crate) orders: Mutex<Vec<(ExecutorId, Order)>>,
    pub(crate) settled: Mutex<Vec<(&'static str, String)>>,
    pub(crate) checks: Mutex<Vec<Check>>,
    /// The next order ends in a panic.
    pub(crate) broken: Mutex<bool>,
}

impl Doubles {
    /// The way to whoever listens to a job, once somebody does.
    pub(crate) async fn listener(&self, job: JobId) -> mpsc::Sender<OutputPiece> {
        loop {
            let listening = self.listening.notified();
            if let Some(sender) = self.listeners.lock().unwrap().get(&job) {
                return sender.clone();
            }
            listening.await;
        }
    }

    /// Nobody is heard any more.
    pub(crate) fn hang_up(&self, job: JobId) {
        self.listeners.lock().unwrap().remove(&job);
    }
}

struct Heard(mpsc::Receiver<OutputPiece>);

#[async_trait]
impl LiveOutput for Heard {
    async fn next(&mut self) -> Option<OutputPiece> {
        self.0.recv().await
    }
}

#[async_trait]
impl LiveOutputSource for Doubles {
    async fn listen(&self, _: TenantId, job: JobId) -> Result<Box<dyn LiveOutput>, SourceError> {
        let (sender, receiver) = mpsc::channel(16);
        self.listeners.lock().unwrap().insert(job, sender);
        self.listening.notify_waiters();
        Ok(Box::new(Heard(receiver)))
    }
}

#[async_trait]
impl Fleet for Doubles {
    async fn order(&self, pool: &str, executor: ExecutorId, order: Order) -> Result<(), SourceError> {
        assert!(!*self.broken.lock().unwrap(), "inside-1b5c: the double is broken");
        assert_eq!(pool, POOL);
        self.orders.lock().unwrap().push((executor, order));
        Ok(())
    }
}

#[async_trait]
impl DeadLetterDesk for Doubles {
    async fn list(&self, _: u32) -> Result<(Vec<DeadLetter>, bool), SourceError> {
        let letter = DeadLetter {
            id: LETTER.to_owned(),
            at: DateTime::UNIX_EPOCH,
            origin: DeadLetterOrigin::Jobs,
            pool: POOL.to_owned(),
            why: WhyDead::DeliveryLimit,
            reason: None,
            bytes: 512,
            attempt: None,
            job: None,
            tenant: None,
        };
        Ok((vec![letter], false))
    }

    async fn replay(&self, id: Digest, _: KeyId) -> Result<(), SourceError> {
        self.settle("replay", &id.to_hex())
    }

    async fn discard(&self, id: Digest, _: KeyId) -> Result<(), SourceError> {
        self.settle("discard", &id.to_hex())
    }
}

impl Doubles {
    fn settle(&self, what: &'static str, id: &str) -> Result<(), SourceError> {
        if id != LETTER {
            return Err(SourceError::NoSuchThing);
        }
        self.settled.lock().unwrap().push((what, id.to_owned()));
        Ok(())
    }
}

#[async_trait]
impl HealthSource for Doubles {
    async fn checks(&self) -> Vec<Check> {
        self.checks.lock().unwrap().clone()
    }
}

/// A server, and all that is needed to ask it.
pub(crate) struct Ground {
    pub(crate) bench: Bench,
    pub(crate) address: SocketAddr,
    pub(crate) client: reqwest::Client,
    pub(crate) tenant: TenantId,
    pub(crate) other_tenant: TenantId,
    /// An executor that is enrolled and has never come.
    pub(crate) executor: ExecutorId,
    pub(crate) doubles: Arc<Doubles>,
    keys: HashMap<Who, ApiKey>,
    clock: Arc<StandingClock>,
    stop: CancellationToken,
    serving: Mutex<Option<JoinHandle<()>>>,
    session: AsyncMutex<Option<Client>>,
    _folder: TempDir,
}

/// Bounds that no case runs into unless it means to.
pub(crate) fn generous() -> ApiLimits {
    ApiLimits {
        requests_per_second: 100_000,
        burst: 100_000,
        failures_per_second: 100_000,
        ..ApiLimits::standard()
    }
}

/// What the ground's server seals secrets with.
pub(crate) fn vault() -> mayfly_vault::Vault {
    mayfly_vault::Vault::new(b"a key of the test's own, not a short one", None).unwrap()
}

/// The parts of an API on a store.
pub(crate) fn parts(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    doubles: &Arc<Doubles>,
    limits: ApiLimits,
) -> ApiParts {
    let time = Arc::clone(&clock);
    ApiParts {
        store,
        clock,
        policy: Policy::default(),
        keeps_artifacts: true,
        uploads: UploadRules {
            file: ByteSize::mib(8),
            total: ByteSize::mib(12),
            count: 20,
            keep: Span::seconds(3600),
        },
        vault: Some(Arc::new(vault())),
        baseline: Digest::of(b"baseline"),
        pool: Arc::new(|_| POOL.to_owned()),
        context: Arc::new(move || {
            mayfly_dispatch::ledger::Context::new(
                ServerTime::from(time.now()),
                Timing::standard(),
                TokenKey::from_bytes([7; 32]),
                0,
            )
        }),
        live: Arc::<Doubles>::clone(doubles),
        fleet: Arc::<Doubles>::clone(doubles),
        dead_letters: Arc::<Doubles>::clone(doubles),
        health: Arc::<Doubles>::clone(doubles),
        limits,
    }
}

impl Ground {
    pub(crate) async fn new() -> Self {
        Self::with(generous()).await
    }

    /// Where executors have no way to leave files.
    pub(crate) async fn without_artifacts() -> Self {
        Self::made(generous(), |parts| ApiParts {
            keeps_artifacts: false,
            ..parts
        })
        .await
    }

    /// Where no secrets are kept.
    pub(crate) async fn without_vault() -> Self {
        Self::made(generous(), |parts| ApiParts { vault: None, ..parts }).await
    }

    pub(crate) async fn with(limits: ApiLimits) -> Self {
        Self::made(limits, |parts| parts).await
    }

    async fn made(limits: ApiLimits, change: impl FnOnce(ApiParts) -> ApiParts) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = File(folder.path().join("mayfly").join("jobs.db"));
        let bench = Bench::new(Arc::new(file)).await;
        let (one, two) = (tenant(&bench, "team-a").await, tenant(&bench, "team-b").await);
        let mut keys = HashMap::new();
        for who in Who::ALL {
            let owner = match who {
                Who::FleetAdmin | Who::Operator => None,
                Who::Stranger => Some(two.id),
                _ => Some(one.id),
            };
            let key = key(&bench, owner, who.role(), None).await;
            keys.insert(who, key);
        }
        let pin = Plan::default().resolved.pin;
        bench
            .store
            .pin_image("python", &pin, None, bench.date())
            .await
            .unwrap();
        let clock = Arc::new(StandingClock {
            date: Mutex::new(bench.date()),
            started: std::time::Instant::now(),
        });
        let doubles = Arc::new(Doubles::default());
        let executor = ExecutorId::new();
        let enrolled = NewExecutor {
            id: executor,
            name: "one".to_owned(),
            pool: POOL.to_owned(),
        };
        let date = bench.date();
        bench.store.enroll_executor(enrolled, None, date).await.unwrap();
        let time: Arc<dyn Clock> = Arc::<StandingClock>::clone(&clock);
        let api = Api::new(change(parts(Arc::clone(&bench.store), time, &doubles, limits)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let asked = stop.clone();
        let serving =
            TaskTracker::new().spawn(async move { api.serve(listener, None, asked).await.unwrap() });
        Self {
            bench,
            address,
            client: client(),
            tenant: one.id,
            other_tenant: two.id,
            executor,
            doubles,
            keys,
            clock,
            stop,
            serving: Mutex::new(Some(serving)),
            session: AsyncMutex::new(None),
            _folder: folder,
        }
    }

    /// Lets time pass, for the store and for the server.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.bench.pass(time);
        *self.clock.date.lock().unwrap() = self.bench.date();
    }

    pub(crate) fn key(&self, who: Who) -> &ApiKey {
        &self.keys[&who]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request by nobody.
    pub(crate) fn open(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// A request.
    pub(crate) fn by(&self, who: Who, method: Method, path: &str) -> RequestBuilder {
        self.open(method, path).bearer_auth(self.key(who).reveal())
    }

    pub(crate) fn get(&self, who: Who, path: &str) -> RequestBuilder {
        self.by(who, Method::GET, path)
    }

    pub(crate) fn post(&self, who: Who, path: &str, body: &serde_json::Value) -> RequestBuilder {
        self.by(who, Method::POST, path).json(body)
    }

    /// A job that waits.
    pub(crate) async fn submitted(&self, tenant: TenantId) -> JobId {
        let plan = Plan {
            tenant,
            ..Plan::once()
        };
        self.bench.submit(&plan).await
    }

    /// A job that has started, and its message.
    pub(crate) async fn started(&self, tenant: TenantId) -> DispatchMessage {
        let job = self.submitted(tenant).await;
        self.start(job).await
    }

    /// Starts a job that waits, and whatever else does.
    pub(crate) async fn start(&self, job: JobId) -> DispatchMessage {
        let mut session = self.session.lock().await;
        if session.is_none() {
            *session = Some(self.bench.session().await);
        }
        let client = session.as_mut().unwrap();
        let mut ours = None;
        for message in self.bench.dispatch().await {
            self.bench.send(&client.ask(&message)).await;
            if message.job == job {
                ours = Some(message);
            }
        }
        ours.expect("the job is dispatched")
    }

    /// Ends a job that has started.
    pub(crate) async fn finish(&self, message: &DispatchMessage, report: RunReport) {
        let mut session = self.session.lock().await;
        let client = session.as_mut().unwrap();
        self.bench.send(&client.finish(message.attempt, report)).await;
    }

    /// A job that is over and has left a file.
    pub(crate) async fn ended(&self, tenant: TenantId) -> JobId {
        let message = self.started(tenant).await;
        let owner = BlobOwner {
            tenant,
            job: message.job,
            attempt: message.attempt,
        };
        let (at, digest) = (PieceAt { file: 0, piece: 0 }, Digest::of(b"kept"));
        let kept = self.bench.store.keep_piece(owner, at, digest, b"kept", 4).await;
        assert!(kept.unwrap());
        let file = Artifact {
            name: "out/kept.txt".into(),
            bytes: 4,
            digest,
            redacted: Redacted::default(),
            is_text: true,
            number: 0,
        };
        let report = RunReport {
            artifacts: Some(Artifacts {
                files: vec![file],
                ..Artifacts::default()
            }),
            ..success()
        };
        self.finish(&message, report).await;
        message.job
    }

    /// The server's clock.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::<StandingClock>::clone(&self.clock)
    }

    /// Asks the server to stop, without waiting for it.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&self) {
        let serving = self.serving.lock().unwrap().take().unwrap();
        serving.await.unwrap();
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A key of its own.
pub(crate) async fn key(
    bench: &Bench,
    tenant: Option<TenantId>,
    role: Role,
    expires_at: Option<DateTime<Utc>>,
) -> ApiKey {
    let key = ApiKey::generate();
    let new = NewKey {
        id: key.id(),
        tenant,
        role,
        name: format!("test-{role}"),
        secret: key.digest(),
        expires_at,
    };
    bench.store.create_key(new, None, bench.date()).await.unwrap();
    key
}

pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .timeout(Duration::from_secs(60))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .unwrap()
}

/// The smallest job.
pub(crate) fn spec() -> serde_json::Value {
    serde_json::json!({"image": "python", "source": {"text": "print(42)"}})
}

/// Says that a case can't run here, and why, where that is counted.
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        writeln!(log, "api: {reason}").unwrap();
    }
}
