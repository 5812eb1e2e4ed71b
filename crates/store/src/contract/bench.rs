//! What the cases are written with: a store with a clock in the case's hand, jobs, and sessions as their executors see
//! them.

use std::{collections::BTreeMap, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::{Digest, Salt},
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    image::ImagePin,
    job::{ResolvedJob, RetryPolicy},
    limits::{LimitRules, LimitsAsked},
    outcome::{CapturedStream, Cause, EndState, Outcome, StreamCount},
    policy::{Network, OnOutputLimit},
    run::RunReport,
    state::JobState,
};
use mayfly_dispatch::{
    ledger::Context,
    message::{
        Answer, DispatchMessage, EventBatch, ExecutorFacts, Heartbeat, Held, Inbound, Opened, Phase, Reply,
        SessionEvent, VERSION, Verdict,
    },
    time::ServerTime,
    timing::Timing,
    token::TokenKey,
};

use super::Place;
use crate::{
    records::{
        AuditFilter, AuditRow, BatchJob, BatchPlace, BatchRecord, JobDetails, JobFilter, JobPage, NewBatch,
        NewJob, Submitted,
    },
    seam::{MAX_PAGE, Store},
};

/// The pool of the cases that need only one.
pub const POOL: &str = "python";

/// 2026-11-29 00:00 UTC, when every case begins.
const BEGIN_MICROS: i64 = 1_795_910_400_000_000;

/// A store, and the time.
pub struct Bench {
    /// Its database.
    pub place: Arc<dyn Place>,
    /// A handle on it.
    pub store: Arc<dyn Store>,
    /// Now.
    pub now: ServerTime,
    /// The times in force.
    pub timing: Timing,
    /// The secret of result tokens.
    pub key: TokenKey,
}

/// A job to be submitted.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Whose.
    pub tenant: TenantId,
    /// For whom.
    pub pool: String,
    /// How urgent.
    pub priority: i16,
    /// When it is tried again.
    pub retry: RetryPolicy,
    /// How long it has to wait.
    pub not_before: Option<Duration>,
    /// How long it may wait.
    pub expires_after: Option<Duration>,
    /// Whether its content is kept after its end.
    pub retain_source: bool,
    /// All else.
    pub resolved: ResolvedJob,
}

/// A session as its executor sees it: it numbers what it says.
#[derive(Debug, Clone)]
pub struct Client {
    /// The executor.
    pub executor: ExecutorId,
    /// The session.
    pub session: SessionId,
    /// The number of the next event.
    pub next: u64,
}

impl Bench {
    /// A bench on a fresh database.
    pub async fn new(place: Arc<dyn Place>) -> Self {
        Self {
            store: place.open().await,
            place,
            now: ServerTime::from_micros(BEGIN_MICROS),
            timing: Timing::standard(),
            key: TokenKey::from_bytes([7; 32]),
        }
    }

    /// The context of a transaction now.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::new(self.now, self.timing, self.key.clone(), 0x5bd1_e995)
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// Now, by the calendar.
    #[must_use]
    pub fn date(&self) -> DateTime<Utc> {
        self.now.into()
    }

    /// Submits a job.
    pub async fn submit(&self, plan: &Plan) -> JobId {
        let job = plan.job(self.date());
        let id = job.id;
        self.store
            .submit(job, self.date())
            .await
            .expect("the job is accepted");
        id
    }

    /// Begins a batch of the local tenant.
    pub async fn batch(&self) -> BatchId {
        let id = BatchId::new();
        let batch = NewBatch {
            id,
            tenant: TenantId::LOCAL,
            input: "programs/".to_owned(),
        };
        let begun = self.store.begin_batch(batch, self.date()).await;
        begun.expect("the batch begins");
        id
    }

    /// Jobs of a batch, one for each name, each tried once.
    #[must_use]
    pub fn items<'a>(&self, batch: BatchId, items: impl IntoIterator<Item = &'a str>) -> Vec<NewJob> {
        let job = |item: &str| NewJob {
            batch: Some(BatchPlace {
                batch,
                item: item.to_owned(),
            }),
            ..Plan::once().job(self.date())
        };
        items.into_iter().map(job).collect()
    }

    /// Submits jobs together.
    pub async fn submit_many(&self, jobs: Vec<NewJob>) -> Vec<Submitted> {
        let answers = self.store.submit_many(jobs, self.date()).await;
        answers.expect("the jobs are accepted")
    }

    /// Submits jobs of a batch.
    pub async fn submit_items<'a>(
        &self,
        batch: BatchId,
        items: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Submitted> {
        self.submit_many(self.items(batch, items)).await
    }

    /// All jobs of a batch are accepted.
    pub async fn complete(&self, batch: BatchId, items: u64) {
        let completed = self.store.complete_batch(TenantId::LOCAL, batch, items).await;
        completed.expect("the batch is complete");
    }

    /// A batch of the local tenant.
    pub async fn find_batch(&self, batch: BatchId) -> BatchRecord {
        let found = self.store.find_batch(TenantId::LOCAL, batch).await;
        found.expect("finding works").expect("the batch is there")
    }

    /// The first page of a batch's jobs.
    pub async fn batch_jobs(&self, batch: BatchId) -> Vec<BatchJob> {
        let listed = self
            .store
            .list_batch_jobs(TenantId::LOCAL, batch, None, MAX_PAGE)
            .await;
        listed.expect("listing works")
    }

    /// Dispatches to the pool.
    pub async fn dispatch(&self) -> Vec<DispatchMessage> {
        self.store
            .dispatch(POOL, &self.context())
            .await
            .expect("dispatching works")
    }

    /// Submits a job and dispatches it. No other job is ready.
    pub async fn dispatched(&self, plan: &Plan) -> DispatchMessage {
        let job = self.submit(plan).await;
        let [message] = <[_; 1]>::try_from(self.dispatch().await).expect("one job is ready");
        assert_eq!(message.job, job);
        message
    }

    /// A session that has begun, with many slots.
    pub async fn session(&self) -> Client {
        let mut client = Client::new();
        let batch = client.opened(100);
        self.send(&batch).await;
        client
    }

    /// A job that a session has started.
    pub async fn started(&self, plan: &Plan, client: &mut Client) -> DispatchMessage {
        let message = self.dispatched(plan).await;
        let ask = client.ask(&message);
        assert_eq!(verdict(&self.send(&ask).await), Verdict::Grant);
        message
    }

    /// Processes one batch.
    pub async fn send(&self, batch: &EventBatch) -> Reply {
        self.try_send(batch).await.expect("processing works")
    }

    /// Processes one batch, perhaps.
    ///
    /// # Errors
    /// What the store says.
    pub async fn try_send(&self, batch: &EventBatch) -> Result<Reply, crate::error::StoreError> {
        let inbound = [Inbound::Batch(Box::new(batch.clone()))];
        let replies = self.store.process(POOL, &inbound, &self.context()).await?;
        let [Some(reply)] = <[_; 1]>::try_from(replies).expect("one batch has one reply") else {
            panic!("a batch has a reply")
        };
        Ok(reply)
    }

    /// A tick that goes through the queue at once.
    pub async fn tick(&self) {
        let tick = self
            .store
            .next_tick(POOL, &self.context())
            .await
            .expect("a tick is made");
        self.deliver(Inbound::Tick(tick)).await;
    }

    /// Processes one thing.
    pub async fn deliver(&self, inbound: Inbound) {
        self.store
            .process(POOL, &[inbound], &self.context())
            .await
            .expect("processing works");
    }

    /// A job of the local tenant.
    pub async fn job(&self, job: JobId) -> JobDetails {
        self.store
            .find_job(TenantId::LOCAL, job)
            .await
            .expect("finding works")
            .expect("the job is there")
    }

    /// Lists a tenant's jobs.
    pub async fn list(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> JobPage {
        let listed = self.store.list_jobs(tenant, filter, before, limit).await;
        listed.expect("listing works")
    }

    /// Where a job of the local tenant stands.
    pub async fn state(&self, job: JobId) -> JobState {
        self.job(job).await.job.state
    }

    /// The audit events of the local tenant, all of them.
    pub async fn events(&self, filter: AuditFilter) -> Vec<AuditRow> {
        self.store
            .list_audit(TenantId::LOCAL, filter, MAX_PAGE)
            .await
            .expect("listing works")
    }

    /// The kinds of a job's audit events.
    pub async fn kinds(&self, job: JobId) -> Vec<String> {
        let filter = AuditFilter {
            job: Some(job),
            attempt: None,
        };
        self.events(filter)
            .await
            .into_iter()
            .map(|event| event.kind)
            .collect()
    }

    /// Everything that can be seen of the database, to be compared.
    pub async fn everything(&self) -> String {
        let ledger = self.place.ledger(POOL).await;
        let events = self.events(AuditFilter::default()).await;
        format!("{ledger:?}{events:?}")
    }
}

impl Plan {
    /// A job that is tried once.
    #[must_use]
    pub fn once() -> Self {
        Self {
            retry: RetryPolicy {
                max_attempts: 1,
                on: Vec::new(),
            },
            ..Self::default()
        }
    }

    /// The job.
    #[must_use]
    pub fn job(&self, now: DateTime<Utc>) -> NewJob {
        let resolved = ResolvedJob {
            retry: self.retry.clone(),
            ..self.resolved.clone()
        };
        NewJob {
            id: JobId::new(),
            tenant: self.tenant,
            pool: self.pool.clone(),
            resolved: Arc::new(resolved),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            priority: self.priority,
            not_before: self.not_before.map(|time| now + time),
            expires_at: self.expires_after.map(|time| now + time),
            retain_source: self.retain_source,
            salt: Salt::from_bytes([9; 32]),
            batch: None,
            idempotency: None,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        let digest = Digest::of(b"image");
        Self {
            tenant: TenantId::LOCAL,
            pool: POOL.to_owned(),
            priority: 0,
            retry: RetryPolicy::default(),
            not_before: None,
            expires_after: None,
            retain_source: true,
            resolved: ResolvedJob {
                image: "python".parse().expect("`python` is a name"),
                pin: ImagePin {
                    reference: "python:3".to_owned(),
                    digest,
                    config_digest: Digest::of(b"config"),
                    platform: "linux/amd64".to_owned(),
                },
                argv: vec!["python3".to_owned(), "/work/main.py".to_owned()],
                files: Vec::new(),
                stdin: None,
                env: BTreeMap::new(),
                secrets: Default::default(),
                secret_files: Default::default(),
                fetched: Vec::new(),
                named_secrets: Default::default(),
                redaction: Default::default(),
                asked: LimitsAsked::default(),
                limits: LimitRules::default().defaults,
                network: Network::None,
                egress: None,
                runtime: "runc".to_owned(),
                on_output_limit: OnOutputLimit::Truncate,
                artifacts: Vec::new(),
                artifacts_after: Default::default(),
                artifact_limits: None,
                retry: RetryPolicy::default(),
                policy_version: Digest::of(b"policy"),
            },
        }
    }
}

impl Client {
    /// The first session of a new executor.
    #[must_use]
    pub fn new() -> Self {
        Self::of(ExecutorId::new())
    }

    /// A new session of an executor.
    #[must_use]
    pub fn of(executor: ExecutorId) -> Self {
        Self {
            executor,
            session: SessionId::new(),
            next: 1,
        }
    }

    /// The next batch.
    pub fn batch(&mut self, events: Vec<SessionEvent>) -> EventBatch {
        let first = self.next;
        self.next += events.len() as u64;
        EventBatch {
            v: VERSION,
            executor: self.executor,
            session: self.session,
            first,
            events,
            heartbeat: None,
        }
    }

    /// It begins.
    pub fn opened(&mut self, slots: u32) -> EventBatch {
        self.opened_in(POOL, slots)
    }

    /// It begins, in a pool.
    pub fn opened_in(&mut self, pool: &str, slots: u32) -> EventBatch {
        self.batch(vec![SessionEvent::Opened(Opened {
            slots,
            pool: pool.to_owned(),
            facts: ExecutorFacts::default(),
        })])
    }

    /// It begins, with these slots and these facts.
    pub fn opened_with(&mut self, slots: u32, facts: ExecutorFacts) -> EventBatch {
        self.batch(vec![SessionEvent::Opened(Opened {
            slots,
            pool: POOL.to_owned(),
            facts,
        })])
    }

    /// It asks for what a message offers.
    pub fn ask(&mut self, message: &DispatchMessage) -> EventBatch {
        self.batch(vec![SessionEvent::Starting {
            attempt: message.attempt,
            publication: message.publication,
            token: message.token,
        }])
    }

    /// A run of it has ended.
    pub fn finish(&mut self, attempt: AttemptId, report: RunReport) -> EventBatch {
        self.batch(vec![SessionEvent::Finished {
            attempt,
            report: Box::new(report),
        }])
    }

    /// The engine has contradicted a report of it.
    pub fn contradict(&mut self, attempt: AttemptId, what: &str) -> EventBatch {
        self.batch(vec![SessionEvent::Contradicted {
            attempt,
            contradictions: vec![what.to_owned()],
        }])
    }

    /// It lives, and runs these.
    #[must_use]
    pub fn beat(&self, running: &[AttemptId]) -> EventBatch {
        let held = running
            .iter()
            .map(|attempt| Held {
                attempt: *attempt,
                phase: Phase::Running,
            })
            .collect();
        EventBatch {
            v: VERSION,
            executor: self.executor,
            session: self.session,
            first: self.next,
            events: Vec::new(),
            heartbeat: Some(Heartbeat { held, free_slots: 1 }),
        }
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

/// The one answer of a reply.
///
/// # Panics
/// There is none, or more than one.
#[must_use]
pub fn verdict(reply: &Reply) -> Verdict {
    match reply.answers.as_slice() {
        [Answer { verdict, .. }] => *verdict,
        others => panic!("one ask has one answer: {others:?}"),
    }
}

/// What a call comes to that is dropped once it has been polled so often; none where it had not finished by then.
pub async fn dropped_after<T>(polls: u32, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        call.as_mut().poll(cx).map(Some)
    })
    .await
}

/// A report of a run that has written this.
#[must_use]
pub fn report(state: EndState, cause: Cause, stdout: &[u8]) -> RunReport {
    let stream = |bytes: &[u8]| CapturedStream {
        count: StreamCount {
            bytes: bytes.len() as u64,
            digest: Digest::of(bytes),
            truncated: false,
        },
        head: bytes.to_vec(),
        tail: Vec::new(),
        redacted: None,
    };
    RunReport {
        outcome: Outcome::decided(state, cause),
        stdout: stream(stdout),
        stderr: stream(b""),
        usage: None,
        sandbox: None,
        started_at: None,
        ended_at: DateTime::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}

/// A report of a run that has succeeded.
#[must_use]
pub fn success() -> RunReport {
    report(EndState::Succeeded, Cause::Exited, b"42\n")
}
