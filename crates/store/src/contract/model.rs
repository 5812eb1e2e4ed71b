//! Random orders of operations, on the store and on the decisions alone: after every one of them rows, replies, events
//! and wake-ups are what the decisions say. The ledger that the decisions are made on here holds everything; the store
//! loads a part of it for each transaction, and this is what shows that the part is enough.

mod note;
mod op;
mod say;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use mayfly_core::{
    id::{AttemptId, ExecutorId, JobId, TenantId},
    outcome::{EndState, Outcome},
    run::RunReport,
};
use mayfly_dispatch::{
    ledger::Ledger,
    message::{DispatchMessage, EventBatch, Inbound},
    orphans, reconciler,
    record::{AttemptRecord, AttemptState, Change, JobRecord, QueueRecord},
    recorder,
    scheduler::{self, Cancel, LowSince},
    time::ServerTime,
};
use proptest::{
    collection::vec,
    prop_assert, prop_assert_eq,
    test_runner::{Config, TestCaseError, TestRunner},
};
use tokio::sync::watch;

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan},
    jobs::tenant,
};
use crate::{
    records::{AuditFilter, CancelAnswer},
    seam::{MAX_PAGE, Store},
};
use op::{Op, Pick, op, pick};

type Checked = Result<(), TestCaseError>;

/// Whatever happens in whatever order. A failure is shrunk to the shortest list that shows it.
pub fn rows_and_model_agree_after_every_step<F>(make: impl Fn() -> F, cases: u32)
where
    F: Future<Output = Option<Arc<dyn Place>>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let config = Config {
        cases,
        max_shrink_iters: 500,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&vec(op(), 20..90), |ops| {
        runtime.block_on(async {
            let Some(place) = make().await else {
                return Ok(());
            };
            let mut world = World::new(place).await;
            for op in ops {
                world.step(&op).await.map_err(|error| match error {
                    TestCaseError::Fail(why) => TestCaseError::fail(format!("after {op:?}: {why}")),
                    rejected @ TestCaseError::Reject(_) => rejected,
                })?;
            }
            world.check_outcomes().await
        })
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// What an audit event is found by.
type Event = (TenantId, Option<JobId>, Option<AttemptId>, &'static str);

struct World {
    bench: Bench,
    /// Two handles on the database, that take turns.
    stores: [Arc<dyn Store>; 2],
    turn: usize,
    ledger: Ledger,
    queue: Vec<Inbound>,
    sent: Vec<EventBatch>,
    executors: [ExecutorId; 3],
    clients: Vec<Client>,
    messages: Vec<DispatchMessage>,
    jobs: Vec<(JobId, TenantId, i16)>,
    low: [LowSince; 2],
    ended_at: Vec<ServerTime>,
    events: Vec<Event>,
    reports: BTreeMap<AttemptId, RunReport>,
    outcomes: BTreeMap<JobId, Outcome>,
}

impl World {
    async fn new(place: Arc<dyn Place>) -> Self {
        let bench = Bench::new(place).await;
        Self {
            stores: [Arc::clone(&bench.store), bench.place.open().await],
            turn: 0,
            ledger: Ledger::new(QueueRecord::new(bench.now)),
            queue: Vec::new(),
            sent: Vec::new(),
            executors: [ExecutorId::new(), ExecutorId::new(), ExecutorId::new()],
            clients: Vec::new(),
            messages: Vec::new(),
            jobs: Vec::new(),
            low: [LowSince::default(); 2],
            ended_at: Vec::new(),
            events: Vec::new(),
            reports: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            bench,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.stores[self.turn])
    }

    async fn step(&mut self, op: &Op) -> Checked {
        self.turn = 1 - self.turn;
        let mut commits = self.store().commits();
        commits.borrow_and_update();
        match op {
            Op::Submit { .. } => self.submit(op).await,
            Op::Dispatch => self.dispatch(&mut commits).await?,
            Op::Confirm(message, publication) => self.confirm(*message, *publication, &mut commits).await?,
            Op::PublishAgain(ready) => self.publish_again(*ready, &mut commits).await?,
            Op::DeadLetter(message) => self.dead_letter(*message, &mut commits).await?,
            Op::Process(count) => self.process(*count, &mut commits).await?,
            Op::Quarantine => self.quarantine(&mut commits).await?,
            Op::Tick => self.tick(&mut commits).await?,
            Op::QueueIsGone => self.queue_is_gone(&mut commits).await?,
            Op::Cancel(job, stranger) => self.cancel(*job, *stranger, &mut commits).await?,
            Op::Expire => self.expire(&mut commits).await?,
            Op::Orphans => self.orphans(&mut commits).await?,
            Op::Pass(seconds) => self.bench.pass(Duration::from_secs(u64::from(*seconds))),
            Op::Lose => {
                if !self.queue.is_empty() {
                    self.queue.remove(0);
                }
            }
            Op::Again(batch) => {
                if let Some(batch) = pick(&self.sent, *batch) {
                    self.queue.push(Inbound::Batch(Box::new(batch.clone())));
                }
            }
            Op::Open(..) | Op::Ask(..) | Op::Beat(..) | Op::Finish(..) | Op::Abandon(..) | Op::Close(_) => {
                self.say(op);
            }
        }
        self.check().await
    }

    async fn submit(&mut self, op: &Op) {
        let Op::Submit {
            of_another,
            priority,
            max_attempts,
            again_after_failure,
            expires_after,
        } = op
        else {
            return;
        };
        let mut plan = Plan {
            tenant: if *of_another { tenant(7) } else { TenantId::LOCAL },
            priority: *priority,
            expires_after: expires_after.map(|seconds| Duration::from_secs(u64::from(seconds))),
            ..Plan::default()
        };
        plan.retry.max_attempts = *max_attempts;
        plan.retry.on = if *again_after_failure {
            vec![EndState::Failed]
        } else {
            Vec::new()
        };
        let job = plan.job(self.bench.date());
        let accepted = self.store().submit(job.clone(), self.bench.date()).await;
        accepted.expect("the job is accepted");
        self.ledger.put_job(JobRecord {
            job: job.id,
            tenant: job.tenant,
            state: mayfly_core::state::JobState::Queued,
            retry: plan.retry.clone(),
            attempts: 0,
            current: None,
            ready_at: self.bench.now,
            expires_at: job.expires_at.map(ServerTime::from),
        });
        self.events
            .push((job.tenant, Some(job.id), None, "job_submitted"));
        self.jobs.push((job.id, job.tenant, *priority));
    }

    async fn dispatch(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        let mut ready = self.jobs.clone();
        ready.sort_by_key(|(job, _, priority)| (-priority, *job));
        ready.retain(|(job, ..)| {
            scheduler::dispatch(*job, AttemptId::new(), &mut self.ledger.clone(), &context).is_some()
        });
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        let messages = self
            .store()
            .dispatch(POOL, &context)
            .await
            .expect("dispatching works");
        prop_assert_eq!(
            messages.len(),
            ready.len().min(room),
            "as many as there is room for"
        );
        let tenants: BTreeSet<TenantId> = ready.iter().map(|(_, tenant, _)| *tenant).collect();
        for tenant in tenants {
            let of_tenant = |(job, whose, _): &(JobId, TenantId, i16)| (*whose == tenant).then_some(*job);
            let made = messages.iter().filter(|message| message.tenant == tenant);
            let made: Vec<_> = made.map(|message| message.job).collect();
            let first = ready.iter().filter_map(of_tenant).take(made.len());
            prop_assert_eq!(made.clone(), first.collect::<Vec<_>>(), "whose turn it is");
        }
        let mut changes = Vec::new();
        for message in &messages {
            let decided = scheduler::dispatch(message.job, message.attempt, &mut self.ledger, &context);
            changes.extend(decided.expect("the store has decided so"));
        }
        self.messages.extend(messages);
        self.decided(&changes, commits)
    }

    fn room(&self) -> u64 {
        let live = self.ledger.sessions().filter(|session| session.is_live());
        let slots: u64 = live.map(|session| u64::from(session.slots)).sum();
        let count = |wanted: fn(&AttemptRecord) -> bool| {
            self.ledger.attempts().filter(|attempt| wanted(attempt)).count() as u64
        };
        let started = count(|attempt| attempt.state.holder().is_some());
        let unstarted = count(|attempt| attempt.state == AttemptState::Dispatched);
        let now = self.bench.now;
        let recent = |at: &&ServerTime| now.since(**at) < Duration::from_secs(10);
        let ended = self.ended_at.iter().filter(recent).count() as u64;
        scheduler::room(slots.saturating_sub(started), unstarted, ended)
    }

    async fn confirm(
        &mut self,
        message: Pick,
        publication: u32,
        commits: &mut watch::Receiver<u64>,
    ) -> Checked {
        let Some(attempt) = pick(&self.messages, message).map(|message| message.attempt) else {
            return Ok(());
        };
        let context = self.bench.context();
        let noted = self
            .store()
            .publications_confirmed(&[(attempt, publication)], &context)
            .await;
        noted.expect("noting works");
        let changes = scheduler::confirmed(attempt, publication, &mut self.ledger);
        self.decided(&changes, commits)
    }

    async fn publish_again(&mut self, ready: u64, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        let low = &mut self.low;
        let taken = self.stores[self.turn]
            .publish_again(POOL, ready, &mut low[0], &context)
            .await;
        let taken = taken.expect("publishing works");
        let mut unstarted: Vec<_> = self
            .ledger
            .attempts()
            .filter(|attempt| attempt.state == AttemptState::Dispatched)
            .cloned()
            .collect();
        unstarted.sort_by_key(|attempt| (attempt.published_at, attempt.attempt));
        let due = scheduler::due_for_publication(&unstarted, ready, &mut low[1], &context);
        let mut changes = Vec::new();
        for attempt in &due {
            let decided = scheduler::publish_again(*attempt, &mut self.ledger, &context);
            changes.extend(decided.expect("it has not started"));
        }
        let numbers: Vec<_> = taken
            .iter()
            .map(|message| (message.attempt, message.publication))
            .collect();
        let expected: Vec<_> = due
            .iter()
            .filter_map(|attempt| self.ledger.attempt(*attempt))
            .map(|record| (record.attempt, record.publication))
            .collect();
        prop_assert_eq!(numbers, expected, "what is published again");
        self.messages.extend(taken);
        self.decided(&changes, commits)
    }

    async fn dead_letter(&mut self, message: Pick, commits: &mut watch::Receiver<u64>) -> Checked {
        let picked = pick(&self.messages, message).map(|message| (message.attempt, message.publication));
        let Some((attempt, publication)) = picked else {
            return Ok(());
        };
        let context = self.bench.context();
        let next = self
            .store()
            .dead_lettered(attempt, publication, &context)
            .await
            .expect("noting works");
        let changes = scheduler::dead_lettered(attempt, publication, &mut self.ledger, &context);
        let expected = changes.iter().find_map(|change| match change {
            Change::Published { publication, .. } => Some(*publication),
            _ => None,
        });
        let found = next.as_ref().map(|message| message.publication);
        prop_assert_eq!(found, expected, "what is published for the dead letter");
        self.messages.extend(next);
        self.decided(&changes, commits)
    }

    fn publish(&mut self, batch: EventBatch) {
        self.sent.push(batch.clone());
        self.queue.push(Inbound::Batch(Box::new(batch)));
    }

    async fn process(&mut self, count: usize, commits: &mut watch::Receiver<u64>) -> Checked {
        let inbound: Vec<_> = self.queue.drain(..count.min(self.queue.len())).collect();
        let context = self.bench.context();
        let replies = self
            .store()
            .process(POOL, &inbound, &context)
            .await
            .expect("processing works");
        let (mut expected, mut changes) = (Vec::new(), Vec::new());
        for message in &inbound {
            match message {
                Inbound::Batch(batch) => {
                    let processed = recorder::process(batch, &mut self.ledger, &context);
                    expected.push(Some(processed.reply));
                    changes.extend(processed.changes);
                }
                Inbound::Tick(tick) => {
                    expected.push(None);
                    changes.extend(reconciler::process_tick(tick, &mut self.ledger, &context));
                }
            }
        }
        prop_assert_eq!(replies, expected, "what sessions are told");
        self.decided(&changes, commits)
    }

    async fn quarantine(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        if !matches!(self.queue.first(), Some(Inbound::Batch(_))) {
            return Ok(());
        }
        let Inbound::Batch(batch) = self.queue.remove(0) else {
            return Ok(());
        };
        let context = self.bench.context();
        self.store()
            .quarantine(POOL, &batch, &context)
            .await
            .expect("noting works");
        let changes = recorder::quarantine(&batch, &mut self.ledger);
        self.decided(&changes, commits)
    }

    async fn tick(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        let tick = self
            .store()
            .next_tick(POOL, &context)
            .await
            .expect("a tick is made");
        let (expected, changes) = reconciler::tick(&mut self.ledger, &context);
        prop_assert_eq!(&tick, &expected);
        self.queue.push(Inbound::Tick(tick));
        self.decided(&changes, commits)
    }

    async fn queue_is_gone(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        self.store()
            .queue_is_gone(POOL, &context)
            .await
            .expect("noting works");
        let changes = reconciler::queue_is_gone(&mut self.ledger, &context);
        // Not all that was in it: a recorder may still have some of it.
        self.queue.truncate(1);
        self.decided(&changes, commits)
    }

    async fn cancel(&mut self, job: Pick, stranger: bool, commits: &mut watch::Receiver<u64>) -> Checked {
        let Some((job, tenant_id, _)) = pick(&self.jobs, job).copied() else {
            return Ok(());
        };
        let context = self.bench.context();
        let who = if stranger { tenant(99) } else { tenant_id };
        let answer = self.store().cancel(who, job, &context).await.ok();
        let (expected, changes) = if stranger {
            (None, Vec::new())
        } else {
            match scheduler::cancel(job, &mut self.ledger, &context) {
                Cancel::Ended(changes) => (Some(CancelAnswer::Canceled), changes),
                Cancel::Requested(changes) => (Some(CancelAnswer::Requested), changes),
                Cancel::AlreadyRequested => (Some(CancelAnswer::Requested), Vec::new()),
                Cancel::AlreadyOver(_) => (Some(CancelAnswer::Over), Vec::new()),
                Cancel::Unknown => (None, Vec::new()),
            }
        };
        prop_assert_eq!(answer, expected);
        self.decided(&changes, commits)
    }

    async fn expire(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        self.store().expire(POOL, &context).await.expect("expiring works");
        let mut jobs: Vec<_> = self.ledger.jobs().map(|job| (job.expires_at, job.job)).collect();
        jobs.sort_unstable();
        let mut changes = Vec::new();
        for (_, job) in jobs {
            changes.extend(scheduler::expire(job, &mut self.ledger, &context));
        }
        self.decided(&changes, commits)
    }

    async fn orphans(&mut self, commits: &mut watch::Receiver<u64>) -> Checked {
        let context = self.bench.context();
        let ended = self.store().end_orphans(POOL, &context).await;
        let live = self.ledger.sessions().any(|session| session.is_live());
        prop_assert_eq!(
            ended.is_err(),
            live,
            "a live session's jobs are not left behind: {:?}",
            ended
        );
        let mut changes = Vec::new();
        if !live {
            let jobs: Vec<_> = self.ledger.jobs().map(|job| job.job).collect();
            for job in jobs {
                changes.extend(orphans::end(job, &mut self.ledger, &context));
            }
            prop_assert_eq!(ended.ok(), Some(changes.len() as u64));
        }
        self.decided(&changes, commits)
    }

    /// Takes note of what was decided: whoever waits was woken if that is anything, and it has its events.
    fn decided(&mut self, changes: &[Change], commits: &mut watch::Receiver<u64>) -> Checked {
        let woken = commits.has_changed().expect("the store is there");
        prop_assert_eq!(woken, !changes.is_empty(), "commits are noticed: {:?}", changes);
        for change in changes {
            self.note(change);
        }
        Ok(())
    }

    /// Rows, events and what is due next.
    async fn check(&self) -> Checked {
        let rows = self.bench.place.ledger(POOL).await;
        prop_assert!(
            rows.jobs().eq(self.ledger.jobs()),
            "jobs: {:?}\n{:?}",
            rows,
            self.ledger
        );
        prop_assert!(
            rows.attempts().eq(self.ledger.attempts()),
            "attempts: {:?}\n{:?}",
            rows,
            self.ledger
        );
        prop_assert!(
            rows.sessions().eq(self.ledger.sessions()),
            "sessions: {:?}\n{:?}",
            rows,
            self.ledger
        );
        let queue = self.ledger.queue();
        if queue.epoch > 1 || queue.ticks_sent > 0 {
            prop_assert_eq!(rows.queue(), queue);
        }
        for tenant in [TenantId::LOCAL, tenant(7)] {
            let found = self.stores[0]
                .list_audit(tenant, AuditFilter::default(), MAX_PAGE)
                .await;
            let found = found.expect("listing works");
            let found: Vec<_> = found
                .iter()
                .map(|event| (event.job, event.attempt, event.kind.as_str()))
                .collect();
            let expected = self.events.iter().filter(|event| event.0 == tenant);
            let expected: Vec<_> = expected
                .map(|(_, job, attempt, kind)| (*job, *attempt, *kind))
                .collect();
            prop_assert_eq!(found, expected, "the events of {}", tenant);
        }
        let due = self.stores[1]
            .next_due(POOL, self.bench.now)
            .await
            .expect("looking works");
        prop_assert_eq!(due, self.next_due(), "what is due next");
        Ok(())
    }

    fn next_due(&self) -> Option<ServerTime> {
        use mayfly_core::state::JobState::{Dispatched, Queued};
        let moments = self.ledger.jobs().flat_map(|job| {
            let ready = (job.state == Queued).then_some(job.ready_at);
            let never_started = match job.state {
                Queued => job.attempts == 0,
                Dispatched => job.attempts == 1,
                _ => false,
            };
            [ready, job.expires_at.filter(|_| never_started)]
        });
        moments.flatten().filter(|at| *at > self.bench.now).min()
    }

    /// Outcomes and reports, at the end: what was decided once is there.
    async fn check_outcomes(&self) -> Checked {
        for (id, tenant, _) in &self.jobs {
            let found = self.stores[0]
                .find_job(*tenant, *id)
                .await
                .expect("finding works");
            let found = found.expect("the job is there");
            let expected = self.ledger.job(*id).expect("it was accepted");
            prop_assert_eq!(found.job.state, expected.state);
            prop_assert_eq!(found.job.outcome.as_ref(), self.outcomes.get(id));
            for attempt in &found.attempts {
                prop_assert_eq!(attempt.report.as_ref(), self.reports.get(&attempt.id));
            }
        }
        Ok(())
    }
}
