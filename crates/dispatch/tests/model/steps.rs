//! The smallest things that can happen, in any order in which they can.

use std::time::Duration;

use mayfly_core::{
    id::{AttemptId, SessionId},
    outcome::{Cause, EndState},
};
use mayfly_dispatch::{
    executor::{Action, ContainerLeft, Delivery, Input, KillReason},
    message::{DispatchMessage, Inbound},
    record::AttemptState,
};

use crate::{
    host::{Guest, GuestStage, report},
    world::World,
};

/// Most messages that a recorder has at a time.
const RECORDER_PREFETCH: usize = 6;

/// Steps at one moment that are taken for a loop without an end.
const MOST_STEPS: u64 = 20_000;

/// Something that can happen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A batch reaches the broker.
    Arrive {
        host: usize,
    },
    /// A process does the next thing that it has to do.
    Act {
        host: usize,
    },
    /// A process hears of the next thing that has happened.
    Hear {
        host: usize,
    },
    Wake {
        host: usize,
    },
    /// A job's frame reaches its guest.
    Frame {
        host: usize,
    },
    Engine {
        host: usize,
    },
    Restart {
        host: usize,
    },
    Deliver {
        host: usize,
    },
    Take {
        recorder: usize,
    },
    Record {
        recorder: usize,
    },
    Answer {
        recorder: usize,
    },
    MakeTick {
        by: usize,
    },
    PublishTick {
        index: usize,
    },
    Declare,
    Dispatch {
        by: usize,
    },
    LookAfter {
        by: usize,
    },
    PublishJob {
        index: usize,
    },
    ConfirmJob,
}

impl World {
    /// Lets everything go on, in a random order, until a time.
    pub(crate) fn run_until(&mut self, end: u64) {
        loop {
            let before = self.steps;
            while self.step() {
                let spins = self.steps - before > MOST_STEPS;
                self.oracle
                    .demand(!spins, || "the fleet spins, and no time passes".to_owned());
                if self.oracle.violation().is_some() {
                    return;
                }
            }
            if self.t >= end {
                return;
            }
            let next = self.next_event().unwrap_or(end).clamp(self.t + 1, end);
            self.pass(next - self.t);
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.t += ms;
        for host in &mut self.hosts {
            host.pass(ms, self.timing.alive_limit);
        }
    }

    /// One step, if there is any.
    pub(crate) fn step(&mut self) -> bool {
        let possible = self.possible();
        if possible.is_empty() {
            return false;
        }
        let step = possible[self.random.below(possible.len())];
        self.steps += 1;
        self.take_step(step);
        true
    }

    fn possible(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for host in 0..self.hosts.len() {
            self.possible_of_host(host, &mut steps);
        }
        if self.servers_up {
            self.possible_of_servers(&mut steps);
        }
        steps
    }

    fn possible_of_host(&self, index: usize, steps: &mut Vec<Step>) {
        let host = &self.hosts[index];
        if host.paused {
            return;
        }
        if host
            .next_of_engine(Duration::from_secs(1 << 30))
            .is_some_and(|at| at <= host.boot_ms)
        {
            steps.push(Step::Engine { host: index });
        }
        let Some(process) = &host.process else {
            if host.restart_at <= host.boot_ms {
                steps.push(Step::Restart { host: index });
            }
            return;
        };
        if !process.outgoing.is_empty() && self.broker_up && host.events_linked {
            steps.push(Step::Arrive { host: index });
        }
        let unacked = self.jobs.unacked.iter().filter(|(of, _, _)| *of == index).count();
        if process.consuming
            && host.jobs_linked
            && self.broker_up
            && !self.jobs.ready.is_empty()
            && unacked < host.slots as usize
        {
            steps.push(Step::Deliver { host: index });
        }
        if host.frozen {
            return;
        }
        if process.sending.is_some() {
            steps.push(Step::Frame { host: index });
        } else if !process.todo.is_empty() {
            steps.push(Step::Act { host: index });
        } else {
            if !process.inbox.is_empty() {
                steps.push(Step::Hear { host: index });
            }
            if process.machine.next_wake().is_some_and(|at| at <= host.now()) {
                steps.push(Step::Wake { host: index });
            }
        }
    }

    fn possible_of_servers(&self, steps: &mut Vec<Step>) {
        for (index, recorder) in self
            .recorders
            .iter()
            .enumerate()
            .filter(|(_, recorder)| !recorder.frozen)
        {
            let room = recorder.buffer.len() + recorder.done.len() < RECORDER_PREFETCH;
            if self.active == index && room && self.broker_up && !self.events.ready.is_empty() {
                steps.push(Step::Take { recorder: index });
            }
            if !recorder.buffer.is_empty() && self.db_up {
                steps.push(Step::Record { recorder: index });
            }
            if !recorder.done.is_empty() {
                steps.push(Step::Answer { recorder: index });
            }
        }
        if self.broker_up && !self.events.exists && self.db_up {
            steps.push(Step::Declare);
        }
        for by in (0..2).filter(|by| !self.schedulers_frozen[*by]) {
            if self.next_tick <= self.t && self.db_up {
                steps.push(Step::MakeTick { by });
            }
            if self.next_look <= self.t && self.db_up {
                steps.push(Step::LookAfter { by });
            }
            if self.db_up && self.can_dispatch() {
                steps.push(Step::Dispatch { by });
            }
            let ticks = self.ticks.iter().enumerate().filter(|(_, (of, _))| *of == by);
            steps.extend(ticks.map(|(index, _)| Step::PublishTick { index }));
            let publications = self
                .publications
                .iter()
                .enumerate()
                .filter(|(_, (of, _, _))| *of == by);
            steps.extend(publications.map(|(index, _)| Step::PublishJob { index }));
        }
        if !self.confirms.is_empty() && self.db_up {
            steps.push(Step::ConfirmJob);
        }
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Arrive { host } => self.arrive(host, true),
            Step::Act { host } => self.act(host),
            Step::Hear { host } => {
                let input = self.hosts[host]
                    .process
                    .as_mut()
                    .and_then(|process| process.inbox.pop_front());
                if let Some(input) = input {
                    self.handle(host, input);
                }
            }
            Step::Wake { host } => self.handle(host, Input::Time),
            Step::Frame { host } => self.frame(host),
            Step::Engine { host } => self.hosts[host].engine(),
            Step::Restart { host } => self.hosts[host].start(self.rules, self.timing),
            Step::Deliver { host } => self.deliver(host),
            Step::Take { recorder } => {
                if let Some(next) = self.events.ready.pop_front() {
                    self.events.unacked.push_back(next.clone());
                    self.recorders[recorder].buffer.push_back(next);
                }
            }
            Step::Record { recorder } => self.record(recorder),
            Step::Answer { recorder } => self.answer(recorder),
            Step::MakeTick { by } => self.make_tick(by),
            Step::PublishTick { index } => self.publish_tick(index),
            Step::Declare => self.declare(),
            Step::Dispatch { by } => self.dispatch(by),
            Step::LookAfter { by } => self.look_after(by),
            Step::PublishJob { index } => self.publish_job(index),
            Step::ConfirmJob => self.confirm_job(),
        }
    }

    fn handle(&mut self, host: usize, input: Input) {
        self.note(|| format!("{host} hears {input:?}"));
        let now = self.hosts[host].now();
        if let Some(process) = &mut self.hosts[host].process {
            let actions = process.machine.handle(input, now);
            process.todo.extend(actions);
        }
    }

    fn arrive(&mut self, host: usize, confirmed: bool) {
        let next = self.hosts[host]
            .process
            .as_mut()
            .and_then(|process| process.outgoing.pop_front());
        let Some((publish, batch)) = next else {
            return;
        };
        if self.events.exists {
            self.events.push(Inbound::Batch(Box::new(batch)));
        }
        if confirmed {
            let exists = self.events.exists;
            let input = if exists {
                Input::Confirmed(publish)
            } else {
                Input::PublishFailed(publish)
            };
            self.hosts[host].tell(input);
        }
    }

    fn deliver(&mut self, host: usize) {
        let pick = self.random.below(self.jobs.ready.len().min(3));
        let Some(message) = self.jobs.ready.remove(pick) else {
            return;
        };
        if let Some(process) = &mut self.hosts[host].process {
            process.next_delivery += 1;
            let delivery = Delivery(process.next_delivery);
            process.inbox.push_back(Input::Delivered {
                delivery,
                message: Ok(Box::new(message.clone())),
            });
            self.jobs.unacked.push((host, delivery, message));
        }
    }

    /// Takes a delivery out of the broker's hands, if it still stands.
    fn settle(&mut self, host: usize, delivery: Delivery) -> Option<DispatchMessage> {
        let index = self
            .jobs
            .unacked
            .iter()
            .position(|(of, which, _)| *of == host && *which == delivery)?;
        Some(self.jobs.unacked.remove(index).2)
    }

    fn act(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let now = host.boot_ms;
        let Some(process) = host.process.as_mut() else {
            return;
        };
        let Some(action) = process.todo.pop_front() else {
            return;
        };
        match action {
            Action::Sweep => {
                if !host.hung {
                    host.guests.clear();
                    host.tell(Input::Swept);
                }
            }
            Action::NewSession => {
                let session = SessionId::from_uuid(self.new_id());
                self.hosts[index].tell(Input::NewSession(session));
            }
            Action::Publish { publish, batch } => {
                if host.events_linked {
                    process.outgoing.push_back((publish, batch));
                } else {
                    host.tell(Input::PublishFailed(publish));
                }
            }
            Action::StartConsuming => process.consuming = true,
            Action::StopConsuming => process.consuming = false,
            Action::Ack(delivery) => self.ack(index, delivery),
            Action::Return(delivery) => {
                if let Some(message) = self.settle(index, delivery) {
                    self.jobs.ready.push_front(message);
                }
            }
            Action::Reject(_) => self.oracle.fail("no message is broken".to_owned()),
            Action::Prepare(message) => {
                let session = host.session();
                host.guests
                    .push(Guest::new(message.attempt, message.job, now, session));
            }
            Action::SendJob(attempt) => {
                if process.machine.may_send(attempt, Duration::from_millis(now)) {
                    process.sending = Some(attempt);
                } else {
                    self.handle(index, Input::Time);
                }
            }
            Action::Kill { attempt, why } => self.kill(index, attempt, why),
            Action::Discard(attempt) => {
                if host.hung {
                    if let Some(guest) = host.guest(attempt) {
                        guest.kept_alive = false;
                    }
                } else {
                    host.guests
                        .retain(|guest| guest.attempt != attempt || guest.runs());
                }
            }
            Action::SelfTest => self.oracle.fail("no self-test was ever due".to_owned()),
            Action::Done => self.crash(index),
        }
    }

    fn ack(&mut self, host: usize, delivery: Delivery) {
        let Some(attempt) = self.settle(host, delivery).map(|message| message.attempt) else {
            return;
        };
        let state = self.db.attempt(attempt).map(|record| record.state);
        // A further copy of what is being asked for may go: the ask goes on until it is answered.
        let process = self.hosts[host].process.as_ref();
        let asked = process.is_some_and(|process| process.machine.asks_for(attempt));
        let safe = state != Some(AttemptState::Dispatched) || asked;
        self.oracle
            .demand(safe, || format!("{attempt} was acked, and nobody has started it"));
    }

    fn kill(&mut self, index: usize, attempt: AttemptId, why: KillReason) {
        let host = &mut self.hosts[index];
        let hung = host.hung;
        if let Some(guest) = host.guest(attempt) {
            guest.kept_alive = false;
            if !hung {
                let run = Some(guest.run);
                let report = Box::new(match why {
                    KillReason::Canceled => report(EndState::Canceled, Cause::CanceledByRequest, run),
                    KillReason::NotOurs | KillReason::LeaseEnding | KillReason::Stopped => {
                        report(EndState::Error, Cause::Abandoned, run)
                    }
                });
                host.guests.retain(|guest| guest.attempt != attempt);
                host.tell(Input::RunEnded {
                    attempt,
                    report,
                    container: ContainerLeft::Gone,
                });
            }
        }
    }

    /// A job's frame reaches its guest, if there is still one, and its code starts.
    fn frame(&mut self, index: usize) {
        self.runs += 1;
        let run = self.runs;
        let host = &mut self.hosts[index];
        let now = host.boot_ms;
        let Some(process) = host.process.as_mut() else {
            return;
        };
        let (Some(attempt), session) = (process.sending.take(), process.machine.session()) else {
            return;
        };
        let Some(guest) = host.idle_guest(attempt) else {
            let report = Box::new(report(EndState::Error, Cause::EngineFailure, None));
            host.tell(Input::RunEnded {
                attempt,
                report,
                container: ContainerLeft::Gone,
            });
            return;
        };
        let job = guest.job;
        guest.run = run;
        let plan = self.plan(job).clone();
        if let Some(guest) = self.hosts[index].idle_guest(attempt) {
            guest.stage = GuestStage::Running {
                until: now + plan.run_ms,
            };
            (guest.run_ms, guest.poison, guest.session) = (plan.run_ms, plan.poison, session);
        }
        self.note(|| format!("{index} runs {attempt} as run {run}"));
        if let Some(session) = session {
            self.oracle.code_starts(run, attempt, session, &self.db);
        }
        self.check_overlap(job);
        if plan.poison {
            self.crash(index);
        }
    }

    fn check_overlap(&mut self, job: mayfly_core::id::JobId) {
        let paused = &self.oracle.paused;
        let all = self.hosts.iter().flat_map(|host| &host.guests);
        let running: Vec<_> = all
            .filter(|guest| guest.job == job && guest.runs())
            .filter(|guest| guest.session.is_none_or(|session| !paused.contains(&session)))
            .map(|guest| (guest.attempt, guest.run))
            .collect();
        self.oracle.demand(running.len() <= 1, || {
            format!("two runs of {job} overlap: {running:?}")
        });
    }

    /// A process dies. Its guests' stdin closes, which they see unless the engine stands between.
    pub(crate) fn crash(&mut self, index: usize) {
        self.jobs.requeue(index);
        let host = &mut self.hosts[index];
        host.process = None;
        host.frozen = false;
        host.restart_at = host.boot_ms + 3_000;
        if host.hung {
            for guest in &mut host.guests {
                guest.kept_alive = false;
            }
        } else {
            host.guests.clear();
        }
    }

    /// The engine answers again, and does what it was asked to.
    pub(crate) fn unhang(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.hung = false;
        let (dead, live): (Vec<_>, Vec<_>) = host.guests.drain(..).partition(|guest| !guest.kept_alive);
        host.guests = live;
        for guest in dead.into_iter().filter(Guest::runs) {
            let report = Box::new(report(EndState::Error, Cause::Abandoned, Some(guest.run)));
            host.tell(Input::RunEnded {
                attempt: guest.attempt,
                report,
                container: ContainerLeft::Gone,
            });
        }
    }

    pub(crate) fn cut_events(&mut self, index: usize, arrives: bool, read: bool) {
        while arrives
            && self.broker_up
            && self.hosts[index]
                .process
                .as_ref()
                .is_some_and(|process| !process.outgoing.is_empty())
        {
            self.arrive(index, false);
        }
        let host = &mut self.hosts[index];
        host.events_linked = false;
        if let Some(process) = &mut host.process {
            process.outgoing.clear();
            if !read {
                process
                    .inbox
                    .retain(|input| !matches!(input, Input::Confirmed(_) | Input::Reply(_)));
            }
            process.inbox.push_back(Input::Disconnected);
        }
    }

    pub(crate) fn cut_jobs(&mut self, index: usize) {
        self.jobs.requeue(index);
        self.hosts[index].jobs_linked = false;
        self.hosts[index].tell(Input::DeliveriesVoid);
    }

    pub(crate) fn reconnect(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if !host.events_linked {
            host.events_linked = true;
            host.tell(Input::Connected);
        }
        host.jobs_linked = true;
    }

    /// When something happens by itself next.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let of_hosts = self.hosts.iter().filter(|host| !host.paused).filter_map(|host| {
            let wake = host
                .process
                .as_ref()
                .filter(|_| !host.frozen)
                .and_then(|process| {
                    let at = process.machine.next_wake()?.as_nanos().div_ceil(1_000_000);
                    u64::try_from(at).ok()
                });
            let restart = host.process.is_none().then_some(host.restart_at);
            let engine = host.next_of_engine(self.timing.alive_limit);
            let next = [wake, restart, engine].into_iter().flatten().min()?;
            Some(self.t + next.saturating_sub(host.boot_ms))
        });
        let of_servers = self.servers_up.then_some(self.next_tick.min(self.next_look));
        of_hosts.chain(of_servers).filter(|at| *at > self.t).min()
    }
}
