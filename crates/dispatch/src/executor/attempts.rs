use mayfly_core::{id::AttemptId, outcome::Cause, run::RunReport};

use super::{Action, Delivery, Executor, KillReason};
use crate::{
    message::{
        AbandonReason, Answer, DispatchMessage, Held, MAX_CONTRADICTION_BYTES, MAX_CONTRADICTIONS, Phase,
        Reply, SessionEvent, Stop, StopReason, Verdict,
    },
    rules::Rule,
    time::BootTime,
    token::ResultToken,
};

/// An attempt that this executor has asked for.
#[derive(Debug)]
pub(super) struct Attempt {
    publication: u32,
    token: ResultToken,
    /// Its delivery, while that can be acked.
    pub(super) delivery: Option<Delivery>,
    sandbox: SandboxState,
    stage: Stage,
}

#[derive(Debug)]
enum SandboxState {
    Preparing,
    /// In the making for as long as it takes an engine to answer.
    Delayed,
    Ready,
    Failed(Box<RunReport>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Asked for by the event with this number, at this time.
    Asked { ask: u64, at: BootTime },
    /// Granted, its job not sent.
    Granted,
    /// Its job is sent.
    Running,
    /// Killed, its container not gone.
    Dying { why: KillReason },
    /// The event with this number tells of its end. One that was given up before its ask was answered may go on waiting
    /// for another session.
    Over { event: u64, answered: bool },
}

impl Attempt {
    const fn phase(&self) -> Phase {
        match self.stage {
            Stage::Asked { .. } => Phase::Asked,
            Stage::Granted => Phase::Granted,
            Stage::Running | Stage::Dying { .. } => Phase::Running,
            Stage::Over { .. } => Phase::Finished,
        }
    }

    /// Whether it takes a slot.
    pub(super) const fn takes_slot(&self) -> bool {
        !self.is_over()
    }

    pub(super) const fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Asked { .. })
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    /// Whether a further copy of it needs no answer: the ask goes on, or has been answered.
    pub(super) const fn needs_no_ask(&self) -> bool {
        !matches!(self.stage, Stage::Over { answered: false, .. })
    }

    /// Whether it waits for an engine that does not answer.
    pub(super) const fn waits_for_engine(&self) -> bool {
        matches!(self.sandbox, SandboxState::Delayed) && !self.is_over()
    }

    /// Whether a job may run in a container of it.
    pub(super) const fn has_container(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Dying { .. })
    }
}

impl Executor {
    /// Takes an attempt: asks for it, and readies a sandbox meanwhile.
    pub(super) fn take(&mut self, delivery: Option<Delivery>, message: Box<DispatchMessage>, now: BootTime) {
        let (attempt, publication, token) = (message.attempt, message.publication, message.token);
        let ask = self.outbox.push(SessionEvent::Starting {
            attempt,
            publication,
            token,
        });
        let stage = Stage::Asked { ask, at: now };
        let taken = Attempt {
            publication,
            token,
            delivery,
            sandbox: SandboxState::Preparing,
            stage,
        };
        self.attempts.insert(attempt, taken);
        self.act(Action::Prepare(message));
    }

    pub(super) fn reply(&mut self, reply: Reply, now: BootTime) {
        if self.life.session() != Some(reply.session) {
            return;
        }
        if self.cordoned_on_record != reply.cordoned {
            (self.cordoned_on_record, self.cordoned) = (reply.cordoned, reply.cordoned);
        }
        self.outbox.cover(reply.processed);
        self.forget_covered();
        if reply.gap {
            self.send_again(now);
        }
        if self.life.is_open() {
            for answer in reply.answers {
                self.answered(answer);
            }
            for stop in reply.stops {
                self.stop(stop);
            }
        }
        if reply.dead {
            self.declared_dead(now);
        }
    }

    /// Drops what has ended and is covered by a receipt.
    fn forget_covered(&mut self) {
        let receipt = self.outbox.receipt();
        let recent = &mut self.recent;
        self.attempts.retain(|attempt, held| {
            let covered = matches!(held.stage, Stage::Over { event, .. } if event <= receipt);
            if covered && held.needs_no_ask() {
                recent.insert(*attempt);
            }
            !covered
        });
    }

    /// An answer counts for the newest ask alone. One to an earlier ask may have been overtaken: the server takes an ask
    /// as the word that nothing has been started until then.
    fn answered(&mut self, answer: Answer) {
        let Some(held) = self.attempts.get_mut(&answer.attempt) else {
            return;
        };
        let Stage::Asked { ask, .. } = held.stage else {
            return;
        };
        if ask != answer.ask && self.rules.hold(Rule::AnswerNamesAsk) {
            return;
        }
        let delivery = held.delivery.take();
        match answer.verdict {
            Verdict::Grant => {
                held.stage = Stage::Granted;
                self.go_on(answer.attempt);
            }
            Verdict::Deny(_) => self.drop_unstarted(answer.attempt),
        }
        if let Some(delivery) = delivery {
            self.act(Action::Ack(delivery));
        }
    }

    fn drop_unstarted(&mut self, attempt: AttemptId) {
        if self.attempts.remove(&attempt).is_some() {
            self.recent.insert(attempt);
            self.act(Action::Discard(attempt));
        }
    }

    pub(super) fn sandbox_ready(&mut self, attempt: AttemptId) {
        if let Some(held) = self.attempts.get_mut(&attempt) {
            held.sandbox = SandboxState::Ready;
            self.go_on(attempt);
        }
    }

    pub(super) fn sandbox_delayed(&mut self, attempt: AttemptId) {
        if let Some(held) = self.attempts.get_mut(&attempt)
            && matches!(held.sandbox, SandboxState::Preparing)
        {
            held.sandbox = SandboxState::Delayed;
        }
    }

    pub(super) fn sandbox_failed(&mut self, attempt: AttemptId, report: Box<RunReport>) {
        if let Some(held) = self.attempts.get_mut(&attempt) {
            held.sandbox = SandboxState::Failed(report);
            self.go_on(attempt);
        }
    }

    /// Sends the job of an attempt that is granted and whose sandbox is ready, or reports that it has none.
    fn go_on(&mut self, attempt: AttemptId) {
        let Some(held) = self
            .attempts
            .get_mut(&attempt)
            .filter(|held| held.stage == Stage::Granted)
        else {
            return;
        };
        match &held.sandbox {
            SandboxState::Preparing | SandboxState::Delayed => {}
            SandboxState::Ready => self.actions.push(Action::SendJob(attempt)),
            SandboxState::Failed(report) => {
                let report = report.clone();
                held.stage = Stage::Over {
                    event: self.outbox.push(SessionEvent::Finished { attempt, report }),
                    answered: true,
                };
            }
        }
    }

    pub(super) fn may_send_under_lease(&mut self, attempt: AttemptId, now: BootTime) -> bool {
        let margin = if self.rules.hold(Rule::AliveMargin) {
            self.config.timing.alive_limit
        } else {
            std::time::Duration::ZERO
        };
        let lasts = self.lease.outlasts(margin, now) || !self.rules.hold(Rule::LeaseCheckedBeforeJob);
        let open = self.life.is_open();
        let Some(held) = self.attempts.get_mut(&attempt) else {
            return false;
        };
        let may =
            open && lasts && held.stage == Stage::Granted && matches!(held.sandbox, SandboxState::Ready);
        if may {
            held.stage = Stage::Running;
        }
        may
    }

    /// A run is over. If it ended by itself just before it would have been killed, that is its end.
    pub(super) fn run_ended(&mut self, attempt: AttemptId, report: Box<RunReport>) {
        let Some(held) = self.attempts.get_mut(&attempt) else {
            return;
        };
        let given_up = match held.stage {
            Stage::Running => None,
            Stage::Dying {
                why: KillReason::Canceled | KillReason::NotOurs,
            } => None,
            Stage::Dying {
                why: KillReason::LeaseEnding,
            } => Some(AbandonReason::LeaseEnding),
            Stage::Dying {
                why: KillReason::Stopped,
            } => Some(AbandonReason::Stopped),
            Stage::Asked { .. } | Stage::Granted | Stage::Over { .. } => return,
        };
        let event = match given_up {
            Some(why) if report.outcome.cause == Cause::Abandoned => SessionEvent::Abandoned {
                attempt,
                why,
                ran: true,
            },
            Some(_) | None => SessionEvent::Finished { attempt, report },
        };
        held.stage = Stage::Over {
            event: self.outbox.push(event),
            answered: true,
        };
    }

    /// A container is gone whose run had been reported. What the engine said of it against the report goes on record,
    /// in the session that made the report; another session can't speak for it.
    pub(super) fn destroyed(&mut self, attempt: AttemptId, mut contradictions: Vec<String>) {
        let Some(session) = self.lingering.remove(&attempt) else {
            return;
        };
        if contradictions.is_empty() || session.is_none() || self.life.session() != session {
            return;
        }
        contradictions.truncate(MAX_CONTRADICTIONS);
        for text in &mut contradictions {
            text.truncate(text.floor_char_boundary(MAX_CONTRADICTION_BYTES));
        }
        self.outbox.push(SessionEvent::Contradicted {
            attempt,
            contradictions,
        });
    }

    fn stop(&mut self, stop: Stop) {
        let Some(held) = self.attempts.get_mut(&stop.attempt) else {
            return;
        };
        let attempt = stop.attempt;
        match (held.stage, stop.why) {
            (Stage::Running, why) => {
                let why = match why {
                    StopReason::Canceled => KillReason::Canceled,
                    StopReason::NotYours => KillReason::NotOurs,
                };
                held.stage = Stage::Dying { why };
                self.act(Action::Kill { attempt, why });
            }
            // Nothing of it has run, and nothing will.
            (Stage::Granted, StopReason::Canceled | StopReason::NotYours) => {
                self.give_up_unstarted(attempt, AbandonReason::Stopped);
            }
            (Stage::Asked { .. } | Stage::Dying { .. } | Stage::Over { .. }, _) => {}
        }
    }

    fn give_up_unstarted(&mut self, attempt: AttemptId, why: AbandonReason) {
        let event = self.outbox.push(SessionEvent::Abandoned {
            attempt,
            why,
            ran: false,
        });
        self.act(Action::Discard(attempt));
        if let Some(held) = self.attempts.get_mut(&attempt) {
            let answered = !matches!(held.stage, Stage::Asked { .. });
            held.stage = Stage::Over { event, answered };
        }
    }

    /// Gives up everything that is not over, asked for included: the server may have granted it meanwhile.
    pub(super) fn give_up_all(&mut self, why: AbandonReason) {
        let attempts: Vec<AttemptId> = self.attempts.keys().copied().collect();
        for attempt in attempts {
            self.give_up(attempt, why);
        }
    }

    fn give_up(&mut self, attempt: AttemptId, why: AbandonReason) {
        let Some(held) = self.attempts.get_mut(&attempt) else {
            return;
        };
        match held.stage {
            Stage::Asked { .. } | Stage::Granted => {
                // Another executor may have it, if nobody has started it.
                if let Some(delivery) = held.delivery.take() {
                    self.act(Action::Return(delivery));
                }
                self.give_up_unstarted(attempt, why);
            }
            Stage::Running => {
                let why = match why {
                    AbandonReason::LeaseEnding => KillReason::LeaseEnding,
                    AbandonReason::Stopped => KillReason::Stopped,
                };
                held.stage = Stage::Dying { why };
                self.act(Action::Kill { attempt, why });
            }
            Stage::Dying { .. } | Stage::Over { .. } => {}
        }
    }

    /// Takes the containers that have not ended by now for gone: their guests have had no `alive` frame for long enough.
    pub(super) fn take_for_gone(&mut self, why: AbandonReason) {
        for (attempt, held) in &mut self.attempts {
            if held.has_container() {
                let event = SessionEvent::Abandoned {
                    attempt: *attempt,
                    why,
                    ran: true,
                };
                held.stage = Stage::Over {
                    event: self.outbox.push(event),
                    answered: true,
                };
            }
        }
    }

    /// Asks again where a receipt covers an ask and its answer has not come. An ask that no receipt covers is still on
    /// its way, or will be sent again from the gap that it left.
    pub(super) fn ask_again(&mut self, now: BootTime) {
        if !self.life.is_open() || !self.lease.is_live(now) || !self.connected {
            return;
        }
        let due: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, held)| self.ask_again_at(held).is_some_and(|at| at <= now))
            .map(|(attempt, _)| *attempt)
            .collect();
        for attempt in due {
            if !self.rules.hold(Rule::AskUntilAnswered) {
                self.drop_unstarted(attempt);
                continue;
            }
            if let Some(held) = self.attempts.get_mut(&attempt) {
                let (publication, token) = (held.publication, held.token);
                let ask = self.outbox.push(SessionEvent::Starting {
                    attempt,
                    publication,
                    token,
                });
                held.stage = Stage::Asked { ask, at: now };
            }
        }
    }

    fn ask_again_at(&self, held: &Attempt) -> Option<BootTime> {
        match held.stage {
            Stage::Asked { ask, at } if ask <= self.outbox.receipt() => {
                Some(at + self.config.timing.ask_again)
            }
            Stage::Asked { .. }
            | Stage::Granted
            | Stage::Running
            | Stage::Dying { .. }
            | Stage::Over { .. } => None,
        }
    }

    pub(super) fn next_ask_again(&self) -> Option<BootTime> {
        self.attempts
            .values()
            .filter_map(|held| self.ask_again_at(held))
            .min()
    }

    /// What a heartbeat names.
    pub(super) fn named(&self) -> Vec<Held> {
        let named = |phase| match phase {
            Phase::Asked => self.rules.hold(Rule::HeartbeatNamesAsked),
            Phase::Finished => self.rules.hold(Rule::HeartbeatNamesFinished),
            Phase::Granted | Phase::Running => true,
        };
        let held = self.attempts.iter().map(|(attempt, held)| Held {
            attempt: *attempt,
            phase: held.phase(),
        });
        held.filter(|held| named(held.phase)).collect()
    }
}
