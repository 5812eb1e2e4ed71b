//! The server's processes, the broker and the database.

use std::collections::VecDeque;

use mayfly_core::{id::AttemptId, state::JobState};
use mayfly_dispatch::{
    executor::Input,
    ledger::{Context, Ledger},
    message::{Inbound, Reply},
    reconciler,
    record::{AttemptState, Change},
    recorder::{self, Needs},
    scheduler::{self, Cancel},
};

use crate::world::{World, job_id};

/// One recorder.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) frozen: bool,
    /// Delivered to it, not processed.
    pub(crate) buffer: VecDeque<(u64, Inbound)>,
    /// Processed: acks and replies that are still to be sent.
    pub(crate) done: VecDeque<(u64, Option<Reply>)>,
}

impl World {
    pub(crate) fn context(&mut self) -> Context {
        let random = self.random.next();
        Context::new(self.server_now(), self.timing, self.key.clone(), random).with_rules(self.rules)
    }

    /// Writes what was decided, as a store does, after the oracle has looked at it.
    pub(crate) fn commit(&mut self, changes: &[Change]) {
        for change in changes {
            self.note(|| format!("commit {change:?}"));
            let leases = self.live_leases();
            self.oracle.change(change, &self.db, |session| {
                leases.get(&session).copied().unwrap_or(false)
            });
            if let Err(error) = self.db.apply(change) {
                self.oracle.fail(format!("{error}: {change:?}"));
            }
        }
    }

    /// What a store loads for a decision, and nothing else.
    fn load(&self, needs: &Needs) -> Ledger {
        let mut ledger = Ledger::new(*self.db.queue());
        let named = needs
            .sessions
            .iter()
            .filter_map(|session| self.db.session(*session));
        let live = self.db.sessions().filter(|record| {
            record.is_live() && (needs.all_live_sessions || needs.executors.contains(&record.executor))
        });
        let sessions: Vec<_> = named.chain(live).cloned().collect();
        let looked_at = sessions.iter().filter(|record| {
            needs.holders.contains(&record.session) || needs.executors.contains(&record.executor)
        });
        let held = looked_at.flat_map(|record| self.db.held_by(record.session));
        let attempts: Vec<_> = needs
            .attempts
            .iter()
            .filter_map(|attempt| self.db.attempt(*attempt))
            .chain(held)
            .cloned()
            .collect();
        for attempt in attempts {
            if let Some(job) = self.db.job(attempt.job) {
                ledger.put_job(job.clone());
            }
            ledger.put_attempt(attempt);
        }
        for session in sessions {
            ledger.put_session(session);
        }
        ledger
    }

    /// A recorder processes some of what it has been given, in one transaction.
    pub(crate) fn record(&mut self, recorder: usize) {
        let most = 1 + self.random.below(3);
        let waiting = self.recorders[recorder].buffer.len();
        let taken: Vec<_> = self.recorders[recorder]
            .buffer
            .drain(..waiting.min(most))
            .collect();
        let mut needs = Needs::default();
        for (_, inbound) in &taken {
            let more = recorder::needs(inbound);
            needs.sessions.extend(more.sessions);
            needs.executors.extend(more.executors);
            needs.holders.extend(more.holders);
            needs.attempts.extend(more.attempts);
            needs.all_live_sessions |= more.all_live_sessions;
        }
        let (mut ledger, context) = (self.load(&needs), self.context());
        let mut changes = Vec::new();
        for (tag, inbound) in taken {
            let reply = match inbound {
                Inbound::Batch(batch) => {
                    let processed = recorder::process(&batch, &mut ledger, &context);
                    changes.extend(processed.changes);
                    Some(processed.reply)
                }
                Inbound::Tick(tick) => {
                    changes.extend(reconciler::process_tick(&tick, &mut ledger, &context));
                    None
                }
            };
            self.recorders[recorder].done.push_back((tag, reply));
        }
        self.commit(&changes);
    }

    /// A recorder sends a reply and acks the delivery, where that still stands.
    pub(crate) fn answer(&mut self, recorder: usize) {
        let Some((tag, reply)) = self.recorders[recorder].done.pop_front() else {
            return;
        };
        if self.active == recorder {
            self.events.unacked.retain(|(unacked, _)| *unacked != tag);
        }
        let Some(reply) = reply else {
            return;
        };
        let up = self.broker_up;
        // Every process of a host reads what was sent to its predecessor's session as well: it is to ignore that.
        let to = self
            .hosts
            .iter_mut()
            .find(|host| host.session() == Some(reply.session));
        if let Some(host) = to.filter(|host| up && host.events_linked && !host.loses_replies) {
            host.tell(Input::Reply(reply));
        }
    }

    pub(crate) fn hand_over(&mut self) {
        self.events.requeue();
        self.active = 1 - self.active;
    }

    pub(crate) fn crash_recorder(&mut self, recorder: usize) {
        let frozen = self.recorders[recorder].frozen;
        self.recorders[recorder] = Recorder {
            frozen,
            ..Recorder::default()
        };
        if self.active == recorder {
            self.events.requeue();
        }
    }

    /// The reconciler makes a tick.
    pub(crate) fn make_tick(&mut self, by: usize) {
        let needs = Needs {
            // For the mutant that judges without a tick, and ends sessions here with what they hold.
            holders: self.db.sessions().map(|record| record.session).collect(),
            all_live_sessions: true,
            ..Needs::default()
        };
        let (mut ledger, context) = (self.load(&needs), self.context());
        let (tick, changes) = reconciler::tick(&mut ledger, &context);
        self.commit(&changes);
        self.ticks.push_back((by, tick));
        self.next_tick = self.t + u64::try_from(self.timing.tick_every.as_millis()).unwrap_or(u64::MAX);
    }

    /// A tick reaches the queue, or is lost.
    pub(crate) fn publish_tick(&mut self, index: usize) {
        if let Some((_, tick)) = self.ticks.remove(index)
            && self.broker_up
            && self.events.exists
        {
            self.events.push(Inbound::Tick(tick));
        }
    }

    /// The server finds that the queue is gone.
    pub(crate) fn declare(&mut self) {
        let needs = Needs {
            all_live_sessions: true,
            ..Needs::default()
        };
        let (mut ledger, context) = (self.load(&needs), self.context());
        let changes = reconciler::queue_is_gone(&mut ledger, &context);
        self.commit(&changes);
        self.events.exists = true;
    }

    /// A scheduler makes attempts of the jobs that are ready.
    pub(crate) fn dispatch(&mut self, by: usize) {
        let ready: Vec<_> = self
            .db
            .jobs()
            .filter(|job| job.state == JobState::Queued)
            .map(|job| job.job)
            .collect();
        for job in ready {
            let attempt = AttemptId::from_uuid(self.new_id());
            let context = self.context();
            let mut ledger = self.db.clone();
            if let Some(changes) = scheduler::dispatch(job, attempt, &mut ledger, &context) {
                self.commit(&changes);
                self.publications.push_back((by, attempt, 1));
            }
        }
    }

    pub(crate) fn can_dispatch(&self) -> bool {
        let now = self.server_now();
        self.db
            .jobs()
            .any(|job| job.state == JobState::Queued && job.ready_at <= now)
    }

    /// A scheduler looks after what waits: what is to be published again, and who has waited too long.
    pub(crate) fn look_after(&mut self, by: usize) {
        self.next_look = self.t + 1_000;
        let mut ledger = self.db.clone();
        let context = self.context();
        let jobs: Vec<_> = self.db.jobs().map(|job| job.job).collect();
        for job in jobs {
            let changes = scheduler::expire(job, &mut ledger, &context);
            self.commit(&changes);
        }
        let mut unstarted: Vec<_> = self
            .db
            .attempts()
            .filter(|record| record.state == AttemptState::Dispatched)
            .cloned()
            .collect();
        unstarted.sort_by_key(|record| record.published_at);
        if !self.broker_up {
            return;
        }
        let ready = self.jobs.ready.len() as u64;
        for attempt in scheduler::due_for_publication(&unstarted, ready, &mut self.low, &context) {
            if let Some(changes) = scheduler::publish_again(attempt, &mut ledger, &context) {
                self.commit(&changes);
                let publication = self.db.attempt(attempt).map_or(1, |record| record.publication);
                self.publications.push_back((by, attempt, publication));
            }
        }
    }

    /// A publication reaches the pool's queue, or is lost. By then the attempt may be over.
    pub(crate) fn publish_job(&mut self, index: usize) {
        let Some((_, attempt, publication)) = self.publications.remove(index) else {
            return;
        };
        if let Some(message) = self.message(attempt, publication).filter(|_| self.broker_up) {
            self.jobs.ready.push_back(message);
            self.confirms.push_back((attempt, publication));
        }
    }

    pub(crate) fn confirm_job(&mut self) {
        if let Some((attempt, publication)) = self.confirms.pop_front() {
            let changes = scheduler::confirmed(attempt, publication, &mut self.db.clone());
            self.commit(&changes);
        }
    }

    pub(crate) fn cancel(&mut self, job: usize) {
        if !self.db_up {
            return;
        }
        let (mut ledger, context) = (self.db.clone(), self.context());
        match scheduler::cancel(job_id(job), &mut ledger, &context) {
            Cancel::Ended(changes) | Cancel::Requested(changes) => self.commit(&changes),
            Cancel::AlreadyRequested | Cancel::AlreadyOver(_) | Cancel::Unknown => {}
        }
    }

    pub(crate) fn dead_letter(&mut self) {
        if !self.db_up {
            return;
        }
        if let Some(message) = self.jobs.ready.pop_front() {
            let (mut ledger, context) = (self.db.clone(), self.context());
            let (attempt, dead) = (message.attempt, message.publication);
            let changes = scheduler::dead_lettered(attempt, dead, &mut ledger, &context);
            self.oracle.dead.insert((attempt, dead));
            self.commit(&changes);
            // The server that reads the letters publishes at once, or is gone before it does.
            let next = self
                .db
                .attempt(attempt)
                .filter(|record| !changes.is_empty() && record.state == AttemptState::Dispatched);
            if let Some(publication) = next.map(|record| record.publication) {
                self.publications.push_back((0, attempt, publication));
            }
        }
    }

    pub(crate) fn broker(&mut self, down: bool) {
        self.broker_up = !down;
        if down {
            self.cut_all();
        }
    }

    pub(crate) fn wipe(&mut self) {
        self.cut_all();
        self.events.ready.clear();
        self.events.unacked.clear();
        self.events.exists = false;
        self.jobs.ready.clear();
        self.jobs.unacked.clear();
    }

    fn cut_all(&mut self) {
        self.events.requeue();
        for host in 0..self.hosts.len() {
            let (events, jobs) = (self.hosts[host].events_linked, self.hosts[host].jobs_linked);
            self.cut_events(host, false, true);
            self.cut_jobs(host);
            (self.hosts[host].events_linked, self.hosts[host].jobs_linked) = (events, jobs);
            if events {
                self.hosts[host].tell(Input::Connected);
            }
        }
    }
}
