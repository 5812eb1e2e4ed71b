use mayfly_core::{digest::Digest, id::SessionId};

use super::{Action, Executor, Leaving, attempts::Attempt, lease::Lease, outbox::Outbox, recent::Recent};
use crate::{
    message::{AbandonReason, ExecutorFacts, MAX_IMAGES, Opened, READS, SessionEvent},
    rules::Rule,
    time::BootTime,
};

/// Where a process is in its life.
#[derive(Debug)]
pub(super) enum Life {
    /// Containers of a process before this one may be left. Without `alive` frames their guests are gone by this time.
    Sweeping { give_up_at: BootTime },
    /// A session id is awaited.
    Waiting,
    /// A session is announced. It may hold something once it has a lease.
    Open { session: SessionId },
    /// A session has nothing more to say than this event, that it ends.
    Closing {
        session: SessionId,
        closed: u64,
        /// It is a courtesy, since its lease would run out: whoever can't deliver it by this time ends all the same.
        give_up_at: BootTime,
    },
    /// A session is over, as its server will find out.
    Ending(Ending),
    /// There is nothing more to be done.
    Done,
}

/// A session that is over. Another one may begin when its containers are gone and what it had finished is delivered.
#[derive(Debug)]
pub(super) struct Ending {
    session: SessionId,
    /// Containers that are not gone by now are taken for gone.
    give_up_at: BootTime,
    /// The server knows it, and wants nothing more of it.
    known: bool,
    /// Since when everything that it had to say is in the recorder's queue.
    said_since: Option<BootTime>,
}

impl Life {
    pub(super) const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Open { session } | Self::Closing { session, .. } | Self::Ending(Ending { session, .. }) => {
                Some(*session)
            }
            Self::Sweeping { .. } | Self::Waiting | Self::Done => None,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Whether heartbeats are due.
    pub(super) const fn beats(&self) -> bool {
        matches!(self, Self::Open { .. } | Self::Closing { .. })
    }
}

impl Executor {
    pub(super) fn swept(&mut self) {
        if matches!(self.life, Life::Sweeping { .. }) {
            self.ask_for_session();
        }
    }

    fn ask_for_session(&mut self) {
        self.life = Life::Waiting;
        self.act(Action::NewSession);
    }

    pub(super) fn begin(&mut self, session: SessionId) {
        if !matches!(self.life, Life::Waiting) {
            return;
        }
        self.lease = Lease::none(self.config.timing);
        self.outbox = Outbox::default();
        self.attempts.clear();
        self.recent = Recent::default();
        self.outbox.push(SessionEvent::Opened(Opened {
            slots: self.config.slots,
            pool: self.config.pool.clone(),
            facts: ExecutorFacts {
                reads: READS,
                ..self.config.facts.clone()
            },
        }));
        self.say_fitness();
        self.life = Life::Open { session };
    }

    /// The host has other images than before: a session says so, and the next one begins with it.
    pub(super) fn images(&mut self, images: Vec<Digest>) {
        let images: Vec<Digest> = images.into_iter().take(MAX_IMAGES).collect();
        if self.config.facts.images.as_ref() == Some(&images) {
            return;
        }
        if self.life.is_open() {
            self.outbox.push(SessionEvent::Images {
                images: images.clone(),
            });
        }
        self.config.facts.images = Some(images);
    }

    /// Ends the session if its lease is about to end. That is final: a confirm that comes later changes nothing, since
    /// by then the server may have given away what this session held.
    pub(super) fn judge_lease(&mut self, now: BootTime) {
        if !self.life.beats() || self.lease.give_up_at().is_none_or(|end| now < end) {
            return;
        }
        if self.rules.hold(Rule::EndedLeaseIsFinal) {
            self.end_session(false, now);
        }
    }

    /// The server has declared this session dead.
    pub(super) fn declared_dead(&mut self, now: BootTime) {
        match &mut self.life {
            Life::Ending(ending) => ending.known = true,
            Life::Open { .. } | Life::Closing { .. } => self.end_session(true, now),
            Life::Sweeping { .. } | Life::Waiting | Life::Done => {}
        }
    }

    fn end_session(&mut self, known: bool, now: BootTime) {
        let Some(session) = self.life.session() else {
            return;
        };
        self.give_up_all(AbandonReason::LeaseEnding);
        let give_up_at = now + self.config.timing.alive_limit;
        self.life = Life::Ending(Ending {
            session,
            give_up_at,
            known,
            said_since: None,
        });
    }

    /// Goes on with everything that time or an input has made possible.
    pub(super) fn settle(&mut self, now: BootTime) {
        self.settle_life(now);
        self.settle_fitness(now);
        self.settle_deliveries(now);
        self.ask_again(now);
        self.publish(now);
    }

    fn settle_life(&mut self, now: BootTime) {
        match &self.life {
            Life::Sweeping { give_up_at }
                if now >= *give_up_at || !self.rules.hold(Rule::PredecessorIsGone) =>
            {
                self.ask_for_session();
            }
            Life::Ending(_) => self.settle_ending(now),
            Life::Closing {
                closed, give_up_at, ..
            } if *closed <= self.outbox.receipt() || now >= *give_up_at => self.finish(),
            Life::Open { .. } | Life::Sweeping { .. } | Life::Closing { .. } | Life::Waiting | Life::Done => {
            }
        }
        if let Some(leaving) = self.leaving {
            self.settle_leaving(leaving, now);
        }
    }

    fn settle_ending(&mut self, now: BootTime) {
        let Life::Ending(ending) = &mut self.life else {
            return;
        };
        if now >= ending.give_up_at {
            self.take_for_gone(AbandonReason::LeaseEnding);
        }
        let gone =
            !self.attempts.values().any(Attempt::has_container) || !self.rules.hold(Rule::PredecessorIsGone);
        let Life::Ending(ending) = &mut self.life else {
            return;
        };
        if ending.known {
            self.outbox.clear();
        }
        ending.said_since = self
            .outbox
            .all_confirmed()
            .then(|| ending.said_since.unwrap_or(now));
        let said = self.outbox.is_empty()
            || ending
                .said_since
                .is_some_and(|since| now >= since + self.config.timing.last_receipt);
        if gone && said {
            self.attempts.clear();
            self.ask_for_session();
        }
    }

    fn settle_leaving(&mut self, leaving: Leaving, now: BootTime) {
        match self.life {
            Life::Sweeping { .. } | Life::Waiting => self.finish(),
            Life::Open { session } => {
                if leaving == Leaving::Abort {
                    self.give_up_all(AbandonReason::Stopped);
                }
                if self.attempts.is_empty() && self.lingering.is_empty() {
                    self.life = Life::Closing {
                        session,
                        closed: self.outbox.push(SessionEvent::Closed),
                        give_up_at: now + self.config.timing.last_receipt,
                    };
                }
            }
            Life::Closing { .. } | Life::Ending(_) | Life::Done => {}
        }
    }

    fn finish(&mut self) {
        self.life = Life::Done;
        self.actions.retain(|action| *action != Action::NewSession);
        self.act(Action::Done);
    }

    /// When something is due by itself.
    pub(super) fn wakes(&self) -> [Option<BootTime>; 7] {
        let beats = self.life.beats();
        let (life, said) = match &self.life {
            Life::Sweeping { give_up_at } | Life::Closing { give_up_at, .. } => (Some(*give_up_at), None),
            Life::Ending(ending) => {
                let containers = self.attempts.values().any(Attempt::has_container);
                let said = ending
                    .said_since
                    .map(|since| since + self.config.timing.last_receipt);
                (
                    containers.then_some(ending.give_up_at),
                    said.filter(|_| !containers),
                )
            }
            Life::Waiting | Life::Open { .. } | Life::Done => (None, None),
        };
        [
            life,
            said,
            self.lease
                .give_up_at()
                .filter(|_| beats && self.rules.hold(Rule::EndedLeaseIsFinal)),
            self.next_publication(),
            self.next_ask_again()
                .filter(|_| self.life.is_open() && self.connected),
            self.next_return(),
            self.fitness.look_at(),
        ]
    }
}
