//! A host: an executor's process, a container engine, and the guests in its sandboxes.

use std::{collections::VecDeque, time::Duration};

use chrono::DateTime;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, ExecutorId, JobId, SessionId},
    outcome::{CapturedStream, Cause, EndState, Outcome, StreamCount, Usage},
    run::RunReport,
};
use mayfly_dispatch::{
    executor::{Action, Config, ContainerLeft, Executor, Input, Publish},
    message::{EventBatch, ExecutorFacts},
    rules::Rules,
    time::BootTime,
    timing::Timing,
};
use uuid::Uuid;

/// How long an engine takes to make a sandbox.
const PREPARE_MS: u64 = 40;
/// How long it takes to destroy one whose run has been told of.
const DESTROY_MS: u64 = 150;

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) executor: ExecutorId,
    pub(crate) slots: u32,
    /// The host's own clock since its boot, in milliseconds. It stands still while the host is paused.
    pub(crate) boot_ms: u64,
    pub(crate) process: Option<Process>,
    pub(crate) frozen: bool,
    pub(crate) paused: bool,
    pub(crate) hung: bool,
    pub(crate) loses_replies: bool,
    pub(crate) events_linked: bool,
    pub(crate) jobs_linked: bool,
    pub(crate) guests: Vec<Guest>,
    /// When a process is started again, by its own clock.
    pub(crate) restart_at: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Executor,
    /// Sent and not yet in the broker.
    pub(crate) outgoing: VecDeque<(Publish, EventBatch)>,
    pub(crate) inbox: VecDeque<Input>,
    pub(crate) todo: VecDeque<Action>,
    /// Jobs that may be sent, by the machine's word, and are not.
    pub(crate) sending: Option<AttemptId>,
    pub(crate) consuming: bool,
    pub(crate) next_delivery: u64,
}

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) attempt: AttemptId,
    pub(crate) job: JobId,
    pub(crate) run: u64,
    pub(crate) run_ms: u64,
    pub(crate) poison: bool,
    pub(crate) stage: GuestStage,
    /// By the host's clock.
    pub(crate) last_alive: u64,
    /// Whether the process still sends it `alive` frames.
    pub(crate) kept_alive: bool,
    /// The session that made it.
    pub(crate) session: Option<SessionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestStage {
    Preparing {
        until: u64,
    },
    /// The engine hangs, and the process has been told that it does.
    Delayed,
    Idle,
    Running {
        until: u64,
    },
    /// Its run has been told of, and its container is being destroyed.
    Lingering {
        until: u64,
    },
}

impl Guest {
    pub(crate) const fn runs(&self) -> bool {
        matches!(self.stage, GuestStage::Running { .. })
    }

    pub(crate) const fn new(attempt: AttemptId, job: JobId, now: u64, session: Option<SessionId>) -> Self {
        let stage = GuestStage::Preparing {
            until: now + PREPARE_MS,
        };
        Self {
            attempt,
            job,
            run: 0,
            run_ms: 0,
            poison: false,
            stage,
            last_alive: now,
            kept_alive: true,
            session,
        }
    }
}

/// What is heard of a container's end; now and then it contradicts the report.
fn destroyed(guest: &Guest) -> Input {
    let contradictions = match guest.run % 3 {
        0 => vec!["the engine says otherwise".to_owned()],
        _ => Vec::new(),
    };
    Input::Destroyed {
        attempt: guest.attempt,
        contradictions,
    }
}

impl Host {
    pub(crate) fn new(number: u128, slots: u32, rules: Rules, timing: Timing) -> Self {
        let executor = ExecutorId::from_uuid(Uuid::from_u128(number));
        let mut host = Self {
            executor,
            slots,
            boot_ms: 1_000 * u64::try_from(number).unwrap_or(1),
            process: None,
            frozen: false,
            paused: false,
            hung: false,
            loses_replies: false,
            events_linked: true,
            jobs_linked: true,
            guests: Vec::new(),
            restart_at: 0,
        };
        host.start(rules, timing);
        host
    }

    pub(crate) fn now(&self) -> BootTime {
        Duration::from_millis(self.boot_ms)
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        self.process
            .as_ref()
            .and_then(|process| process.machine.session())
    }

    /// Whether the process gets to do anything.
    pub(crate) fn acts(&self) -> bool {
        self.process.is_some() && !self.frozen && !self.paused
    }

    pub(crate) fn start(&mut self, rules: Rules, timing: Timing) {
        let config = Config {
            executor: self.executor,
            pool: "default".to_owned(),
            slots: self.slots,
            facts: ExecutorFacts::default(),
            timing,
        };
        let (machine, actions) = Executor::new(config, self.now());
        let mut inbox = VecDeque::new();
        if self.events_linked {
            inbox.push_back(Input::Connected);
        }
        self.process = Some(Process {
            machine: machine.with_rules(rules),
            outgoing: VecDeque::new(),
            inbox,
            todo: actions.into(),
            sending: None,
            consuming: false,
            next_delivery: 0,
        });
    }

    /// Hears of something, now or when it can.
    pub(crate) fn tell(&mut self, input: Input) {
        if let Some(process) = &mut self.process {
            process.inbox.push_back(input);
        }
    }

    pub(crate) fn guest(&mut self, attempt: AttemptId) -> Option<&mut Guest> {
        self.guests.iter_mut().find(|guest| guest.attempt == attempt)
    }

    /// A guest that waits for the attempt's job.
    pub(crate) fn idle_guest(&mut self, attempt: AttemptId) -> Option<&mut Guest> {
        self.guests
            .iter_mut()
            .find(|guest| guest.attempt == attempt && guest.stage == GuestStage::Idle)
    }

    /// Passes time for this host. `alive` frames reach every guest at its end, if they are sent at all.
    pub(crate) fn pass(&mut self, ms: u64, alive_limit: Duration) {
        if self.paused {
            return;
        }
        self.boot_ms += ms;
        let (now, acts) = (self.boot_ms, self.acts());
        for guest in self.guests.iter_mut().filter(|guest| acts && guest.kept_alive) {
            guest.last_alive = now;
        }
        let limit = u64::try_from(alive_limit.as_millis()).unwrap_or(u64::MAX);
        let (dead, live): (Vec<_>, Vec<_>) = self
            .guests
            .drain(..)
            .partition(|guest| now > guest.last_alive + limit);
        self.guests = live;
        for guest in dead {
            let attempt = guest.attempt;
            let died = |run| Box::new(report(EndState::Error, Cause::EngineFailure, run));
            match guest.stage {
                GuestStage::Preparing { .. } | GuestStage::Delayed => self.tell(Input::SandboxFailed {
                    attempt,
                    report: died(None),
                }),
                // What waits in vain is noticed when the job is sent to it.
                GuestStage::Idle => {}
                GuestStage::Running { .. } => {
                    self.tell(Input::RunEnded {
                        attempt,
                        report: died(Some(guest.run)),
                        container: ContainerLeft::Gone,
                    });
                }
                GuestStage::Lingering { .. } => self.tell(destroyed(&guest)),
            }
        }
    }

    /// Lets guests do what is due: a sandbox is ready, a program ends.
    pub(crate) fn engine(&mut self) {
        let (now, hung) = (self.boot_ms, self.hung);
        let (mut told, mut index) = (Vec::new(), 0);
        while let Some(guest) = self.guests.get_mut(index) {
            match guest.stage {
                GuestStage::Preparing { until } if until <= now && !hung => {
                    guest.stage = GuestStage::Idle;
                    told.push(Input::SandboxReady(guest.attempt));
                }
                GuestStage::Preparing { until } if until <= now => {
                    guest.stage = GuestStage::Delayed;
                    told.push(Input::SandboxDelayed(guest.attempt));
                }
                GuestStage::Delayed if !hung => {
                    guest.stage = GuestStage::Idle;
                    told.push(Input::SandboxReady(guest.attempt));
                }
                GuestStage::Running { until } if until <= now && guest.kept_alive => {
                    let report = Box::new(report(EndState::Succeeded, Cause::Exited, Some(guest.run)));
                    told.push(Input::RunEnded {
                        attempt: guest.attempt,
                        report,
                        container: ContainerLeft::BeingDestroyed,
                    });
                    guest.stage = GuestStage::Lingering {
                        until: now + DESTROY_MS,
                    };
                }
                GuestStage::Lingering { until } if until <= now && !hung => {
                    told.push(destroyed(guest));
                    self.guests.remove(index);
                    continue;
                }
                GuestStage::Preparing { .. }
                | GuestStage::Delayed
                | GuestStage::Idle
                | GuestStage::Running { .. }
                | GuestStage::Lingering { .. } => {}
            }
            index += 1;
        }
        for input in told {
            self.tell(input);
        }
    }

    /// When the engine or a guest does something next, by the host's clock.
    pub(crate) fn next_of_engine(&self, alive_limit: Duration) -> Option<u64> {
        let limit = u64::try_from(alive_limit.as_millis()).unwrap_or(u64::MAX);
        let due = |guest: &Guest| {
            let death = guest.last_alive + limit + 1;
            match guest.stage {
                GuestStage::Preparing { until } => until.min(death),
                GuestStage::Delayed if !self.hung => self.boot_ms,
                GuestStage::Running { until } if guest.kept_alive => until.min(death),
                GuestStage::Lingering { until } if !self.hung => until.min(death),
                GuestStage::Delayed
                | GuestStage::Running { .. }
                | GuestStage::Lingering { .. }
                | GuestStage::Idle => death,
            }
        };
        self.guests.iter().map(due).min()
    }
}

/// What is reported of a run, recognisable by its number.
pub(crate) fn report(state: EndState, cause: Cause, run: Option<u64>) -> RunReport {
    let stream = CapturedStream {
        count: StreamCount {
            bytes: 0,
            digest: Digest::from_bytes([0; 32]),
            truncated: false,
        },
        head: Vec::new(),
        tail: Vec::new(),
        redacted: None,
    };
    RunReport {
        outcome: Outcome::decided(state, cause),
        stdout: stream.clone(),
        stderr: stream,
        usage: run.map(|run| Usage {
            wall_us: run,
            ..Usage::default()
        }),
        sandbox: None,
        started_at: None,
        ended_at: DateTime::UNIX_EPOCH,
        uploaded: None,
        artifacts: None,
        egress: None,
    }
}
