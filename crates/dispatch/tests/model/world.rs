//! Everything there is, and how faults change it.

use std::collections::{BTreeMap, VecDeque};

use mayfly_core::{
    id::{AttemptId, ExecutorId, JobId, SessionId, TenantId},
    image::ImagePin,
    job::{ResolvedJob, RetryPolicy},
    limits::{LimitRules, LimitsAsked},
    outcome::{Cause, EndState},
    policy::{Network, OnOutputLimit},
    state::JobState,
};
use mayfly_dispatch::{
    executor::{Delivery, Input},
    ledger::Ledger,
    message::{DispatchMessage, EventBatch, ExecutorFacts, Inbound, Opened, SessionEvent, Tick, VERSION},
    record::{JobRecord, QueueRecord},
    rules::Rules,
    scheduler::LowSince,
    time::ServerTime,
    timing::Timing,
    token::TokenKey,
};
use uuid::Uuid;

use crate::{
    host::{Host, report},
    ops::{Case, JobPlan, Op},
    oracle::Oracle,
    random::Random,
    server::Recorder,
};

pub(crate) struct World {
    pub(crate) t: u64,
    pub(crate) rules: Rules,
    pub(crate) timing: Timing,
    pub(crate) key: TokenKey,
    pub(crate) random: Random,
    pub(crate) db: Ledger,
    pub(crate) db_up: bool,
    pub(crate) servers_up: bool,
    pub(crate) broker_up: bool,
    pub(crate) events: Events,
    pub(crate) jobs: Jobs,
    pub(crate) hosts: Vec<Host>,
    pub(crate) recorders: [Recorder; 2],
    pub(crate) active: usize,
    pub(crate) schedulers_frozen: [bool; 2],
    /// Committed, not published: by which scheduler, which attempt, which publication.
    pub(crate) publications: VecDeque<(usize, AttemptId, u32)>,
    /// Published and confirmed by the broker, which no row says yet.
    pub(crate) confirms: VecDeque<(AttemptId, u32)>,
    /// Committed, not published.
    pub(crate) ticks: VecDeque<(usize, Tick)>,
    pub(crate) next_tick: u64,
    pub(crate) next_look: u64,
    pub(crate) low: LowSince,
    pub(crate) plans: Vec<JobPlan>,
    pub(crate) submitted: usize,
    pub(crate) ids: u128,
    pub(crate) runs: u64,
    pub(crate) oracle: Oracle,
    pub(crate) steps: u64,
    keeps_notes: bool,
    log: Vec<String>,
    pub(crate) resolved: ResolvedJob,
}

/// The recorder's queue.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) exists: bool,
    pub(crate) ready: VecDeque<(u64, Inbound)>,
    /// Delivered to the active recorder, in order.
    pub(crate) unacked: VecDeque<(u64, Inbound)>,
    pub(crate) next_tag: u64,
}

/// The queue of the pool.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) ready: VecDeque<DispatchMessage>,
    pub(crate) unacked: Vec<(usize, Delivery, DispatchMessage)>,
}

impl Events {
    pub(crate) fn push(&mut self, inbound: Inbound) {
        self.next_tag += 1;
        self.ready.push_back((self.next_tag, inbound));
    }

    pub(crate) fn requeue(&mut self) {
        while let Some(unacked) = self.unacked.pop_back() {
            self.ready.push_front(unacked);
        }
    }
}

impl Jobs {
    pub(crate) fn requeue(&mut self, host: usize) {
        while let Some(index) = self.unacked.iter().rposition(|(of, _, _)| *of == host) {
            let (_, _, message) = self.unacked.remove(index);
            self.ready.push_front(message);
        }
    }
}

impl World {
    pub(crate) fn new(case: &Case, rules: Rules, timing: Timing) -> Self {
        let hosts = case
            .hosts
            .iter()
            .zip(1..)
            .map(|(slots, n)| Host::new(n, *slots, rules, timing))
            .collect();
        let mut world = Self {
            t: 1_000_000,
            rules,
            timing,
            key: TokenKey::from_bytes([7; 32]),
            random: Random::new(0),
            db: Ledger::new(QueueRecord::new(ServerTime::from_micros(0))),
            db_up: true,
            servers_up: true,
            broker_up: true,
            events: Events {
                exists: true,
                ..Events::default()
            },
            jobs: Jobs::default(),
            hosts,
            recorders: [Recorder::default(), Recorder::default()],
            active: 0,
            schedulers_frozen: [false; 2],
            publications: VecDeque::new(),
            confirms: VecDeque::new(),
            ticks: VecDeque::new(),
            next_tick: 0,
            next_look: 0,
            low: LowSince::default(),
            plans: case.jobs.clone(),
            submitted: 0,
            ids: 1_000,
            runs: 0,
            oracle: Oracle::default(),
            steps: 0,
            keeps_notes: false,
            log: Vec::new(),
            resolved: resolved_job(),
        };
        world.submit();
        world
    }

    pub(crate) fn new_id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    pub(crate) fn server_now(&self) -> ServerTime {
        ServerTime::from_micros(i64::try_from(self.t * 1_000).unwrap_or(i64::MAX))
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.keeps_notes {
            self.log.push(format!("{:>9} {}", self.t, what()));
        }
    }

    /// Keeps what happens from here on, for a person.
    pub(crate) fn keep_notes(&mut self) {
        self.keeps_notes = true;
    }

    pub(crate) fn history(&self) -> String {
        self.log.join("\n")
    }

    /// How every job ended.
    pub(crate) fn ends(&self) -> Vec<EndState> {
        self.oracle.ends().values().copied().collect()
    }

    /// Accepts the next job, if there is one left.
    fn submit(&mut self) {
        if !self.db_up || self.submitted >= self.plans.len() {
            return;
        }
        let plan = self.plans[self.submitted].clone();
        self.submitted += 1;
        let now = self.server_now();
        self.db.put_job(JobRecord {
            job: job_id(self.submitted - 1),
            tenant: TenantId::LOCAL,
            state: JobState::Queued,
            retry: RetryPolicy {
                max_attempts: plan.max_attempts,
                on: Vec::new(),
            },
            attempts: 0,
            current: None,
            ready_at: now,
            expires_at: plan
                .expires_ms
                .map(|ms| now.after(std::time::Duration::from_millis(ms))),
        });
    }

    pub(crate) fn plan(&self, job: JobId) -> &JobPlan {
        let index = usize::try_from(job.as_uuid().as_u128() - FIRST_JOB).unwrap_or(0);
        &self.plans[index]
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        self.note(|| format!("-- {op:?}"));
        let hosts = self.hosts.len();
        match *op {
            Op::Run { ms, seed } => {
                self.random = Random::new(seed);
                self.run_until(self.t + ms);
            }
            Op::Steps { count, seed } => {
                self.random = Random::new(seed);
                for _ in 0..count {
                    if !self.step() {
                        break;
                    }
                }
            }
            Op::Stall { ms } => self.pass(ms),
            Op::Submit => self.submit(),
            Op::Cancel { job } => self.cancel(job % self.submitted.max(1)),
            Op::Crash { host } => self.crash(host % hosts),
            Op::Freeze { host } => self.hosts[host % hosts].frozen = true,
            Op::Thaw { host } => self.hosts[host % hosts].frozen = false,
            Op::Pause { host } => {
                let host = &mut self.hosts[host % hosts];
                host.paused = true;
                if let Some(session) = host.session() {
                    self.oracle.paused.insert(session);
                }
            }
            Op::Resume { host } => self.hosts[host % hosts].paused = false,
            Op::Hang { host } => self.hosts[host % hosts].hung = true,
            Op::Unhang { host } => self.unhang(host % hosts),
            Op::CutEvents { host, arrives, read } => self.cut_events(host % hosts, arrives, read),
            Op::CutJobs { host } => self.cut_jobs(host % hosts),
            Op::Reconnect { host } => self.reconnect(host % hosts),
            Op::Drain { host } => self.hosts[host % hosts].tell(Input::Drain),
            Op::Abort { host } => self.hosts[host % hosts].tell(Input::Abort),
            Op::LoseReplies { host, lose } => self.hosts[host % hosts].loses_replies = lose,
            Op::FreezeRecorder { recorder } => self.recorders[recorder % 2].frozen = true,
            Op::ThawRecorder { recorder } => self.recorders[recorder % 2].frozen = false,
            Op::HandOver => self.hand_over(),
            Op::CrashRecorder { recorder } => self.crash_recorder(recorder % 2),
            Op::FreezeScheduler { scheduler } => self.schedulers_frozen[scheduler % 2] = true,
            Op::ThawScheduler { scheduler } => self.schedulers_frozen[scheduler % 2] = false,
            Op::CrashScheduler { scheduler } => {
                self.publications.retain(|(of, _, _)| *of != scheduler % 2);
                self.ticks.retain(|(of, _)| *of != scheduler % 2);
                self.confirms.clear();
            }
            Op::ServersDown { down } => self.servers_up = !down,
            Op::DatabaseDown { down } => self.db_up = !down,
            Op::BrokerDown { down } => self.broker(down),
            Op::Wipe => self.wipe(),
            Op::LoseEvents => {
                if self
                    .events
                    .ready
                    .iter()
                    .any(|(_, inbound)| matches!(inbound, Inbound::Tick(_)))
                {
                    self.events.ready.clear();
                }
            }
            Op::LoseJob => {
                self.jobs.ready.pop_front();
            }
            Op::CopyJob { seed } => {
                let pick = Random::new(seed).below(self.jobs.ready.len() + self.jobs.unacked.len());
                let unacked = self.jobs.unacked.iter().map(|(_, _, message)| message);
                let copy = self.jobs.ready.iter().chain(unacked).nth(pick).cloned();
                self.jobs.ready.extend(copy);
            }
            Op::DeadLetter => self.dead_letter(),
            Op::Rogue { job } => self.rogue(job % self.submitted.max(1)),
        }
    }

    /// Ends every fault, and lets the fleet go on until every job has ended and nobody holds anything.
    pub(crate) fn heal_and_finish(&mut self) {
        self.note(|| "-- all faults end".to_owned());
        (self.servers_up, self.db_up, self.schedulers_frozen) = (true, true, [false; 2]);
        self.broker(false);
        for recorder in &mut self.recorders {
            recorder.frozen = false;
        }
        for host in 0..self.hosts.len() {
            (self.hosts[host].frozen, self.hosts[host].paused) = (false, false);
            self.hosts[host].loses_replies = false;
            self.unhang(host);
            self.reconnect(host);
        }
        while self.submitted < self.plans.len() {
            self.submit();
        }
        let end = self.t + LONGEST_RECOVERY_MS;
        while self.t < end && self.oracle.violation().is_none() {
            if self.is_quiet() {
                return;
            }
            self.run_until(self.t + 2_000);
        }
        let open: Vec<_> = self
            .db
            .jobs()
            .filter(|job| job.state.end().is_none())
            .cloned()
            .collect();
        self.oracle.demand(open.is_empty(), || {
            format!("no fault is left, and these have not ended: {open:?}")
        });
        let held: Vec<_> = self.hosts.iter().map(held).collect();
        self.oracle.demand(held.iter().all(|held| *held == 0), || {
            format!("executors still hold {held:?}")
        });
    }

    fn is_quiet(&self) -> bool {
        let ended = self.db.jobs().all(|job| job.state.end().is_some());
        ended
            && self
                .hosts
                .iter()
                .all(|host| held(host) == 0 && !host.guests.iter().any(|guest| guest.runs()))
    }

    /// An executor that holds nothing reports a result of a job's newest attempt, in an orderly session of its own.
    fn rogue(&mut self, job: usize) {
        let current = self.db.job(job_id(job)).and_then(|job| job.current);
        let Some(attempt) = current.filter(|_| self.broker_up && self.events.exists) else {
            return;
        };
        let opened = Opened {
            slots: 1,
            pool: "default".to_owned(),
            facts: ExecutorFacts::default(),
        };
        let forged = Box::new(report(EndState::Succeeded, Cause::Exited, Some(u64::MAX)));
        let batch = EventBatch {
            v: VERSION,
            executor: ExecutorId::from_uuid(Uuid::from_u128(999)),
            session: SessionId::from_uuid(self.new_id()),
            first: 1,
            events: vec![
                SessionEvent::Opened(opened),
                SessionEvent::Finished {
                    attempt,
                    report: forged,
                },
            ],
            heartbeat: None,
        };
        self.events.push(Inbound::Batch(Box::new(batch)));
    }

    /// The message of an attempt's publication.
    pub(crate) fn message(&self, attempt: AttemptId, publication: u32) -> Option<DispatchMessage> {
        let record = self.db.attempt(attempt)?;
        Some(DispatchMessage {
            v: VERSION,
            tenant: TenantId::LOCAL,
            job: record.job,
            attempt,
            number: record.number,
            publication,
            token: self.key.token(attempt),
            resolved: self.resolved.clone(),
            input: None,
            output: None,
            artifacts: None,
            secrets: None,
            fetched: None,
        })
    }

    /// Leases by the executors' own account.
    pub(crate) fn live_leases(&self) -> BTreeMap<SessionId, bool> {
        let of = |host: &Host| {
            let process = host.process.as_ref()?;
            Some((
                process.machine.session()?,
                process.machine.lease_is_live(host.now()),
            ))
        };
        self.hosts.iter().filter_map(of).collect()
    }
}

fn held(host: &Host) -> usize {
    host.process.as_ref().map_or(0, |process| process.machine.held())
}

const FIRST_JOB: u128 = 1 << 64;

/// After the last fault every job of a case has ended within this time.
const LONGEST_RECOVERY_MS: u64 = 900_000;

pub(crate) fn job_id(index: usize) -> JobId {
    JobId::from_uuid(Uuid::from_u128(FIRST_JOB + index as u128))
}

fn resolved_job() -> ResolvedJob {
    let digest = mayfly_core::digest::Digest::from_bytes([1; 32]);
    ResolvedJob {
        image: "python".parse().expect("`python` is a name"),
        pin: ImagePin {
            reference: "python".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        },
        argv: Vec::new(),
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
        policy_version: digest,
    }
}
