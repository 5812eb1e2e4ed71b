use std::time::Duration;

use mayfly_core::self_test::SelfTest;

use super::{Action, Executor, attempts::Attempt};
use crate::{message::SessionEvent, time::BootTime};

/// How long a self-test that is due waits for a moment in which nothing runs. After that it takes the next free slot.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// What is known of the host, and when more is to be known.
#[derive(Debug, Default)]
pub(super) struct Fitness {
    newest: Option<Box<SelfTest>>,
    /// When the next test is due; none where none is.
    due_at: Option<BootTime>,
    /// When it may begin by the passing of time alone.
    look_at: Option<BootTime>,
    /// A test is being made. It has a slot.
    under_way: bool,
    /// The newest test was made of what the host is no more.
    outdated: bool,
}

impl Fitness {
    /// Whether jobs may be run here, for all that is known.
    pub(super) fn allows_jobs(&self) -> bool {
        !self.outdated && self.newest.as_ref().is_none_or(|test| test.is_fit())
    }

    /// What is known of the host is of no worth any more.
    pub(super) const fn host_changed(&mut self, now: BootTime) {
        self.due_at = Some(now);
        self.outdated = true;
    }

    /// When there is something to be looked at if nothing else happens before.
    pub(super) const fn look_at(&self) -> Option<BootTime> {
        self.look_at
    }

    /// Slots that a self-test has.
    pub(super) const fn slots(&self) -> usize {
        if self.under_way { 1 } else { 0 }
    }
}

impl Executor {
    /// A self-test has come to an end, and the next one is due after a while, if one is.
    pub(super) fn self_tested(&mut self, test: Box<SelfTest>, next_in: Option<Duration>, now: BootTime) {
        if self.life.is_open() {
            self.outbox.push(SessionEvent::SelfTested(test.clone()));
        }
        self.fitness = Fitness {
            newest: Some(test),
            due_at: next_in.map(|wait| now + wait),
            look_at: None,
            under_way: false,
            outdated: false,
        };
    }

    /// What the session stands on, said as it begins.
    pub(super) fn say_fitness(&mut self) {
        if let Some(test) = &self.fitness.newest {
            self.outbox.push(SessionEvent::SelfTested(test.clone()));
        }
    }

    /// Begins a self-test that is due: when nothing runs, or when it has waited for that for long enough and a slot is
    /// free, of which it has precedence over whatever is delivered. A host that takes no jobs waits for no such moment.
    pub(super) fn settle_fitness(&mut self, now: BootTime) {
        self.fitness.look_at = None;
        let Some(due_at) = self.fitness.due_at else { return };
        if self.fitness.under_way || !self.life.is_open() || self.leaving.is_some() {
            return;
        }
        let last_at = due_at + PATIENCE;
        if now < due_at {
            self.fitness.look_at = Some(due_at);
            return;
        }
        let idle = self.waiting.is_empty()
            && self.lingering.is_empty()
            && !self.attempts.values().any(Attempt::takes_slot);
        let hurries = now >= last_at || !self.fitness.allows_jobs();
        if idle || (hurries && self.free_slots() > 0) {
            self.fitness.under_way = true;
            self.act(Action::SelfTest);
        } else if now < last_at {
            self.fitness.look_at = Some(last_at);
        }
    }
}
