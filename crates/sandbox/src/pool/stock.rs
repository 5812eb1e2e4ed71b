//! What a pool has and what it should have: no task, no engine, no clock but the times that it is told.
//!
//! Never more than `size` wait or are in the making, and none is handed out twice: what is taken is moved out.

use std::{collections::VecDeque, time::Duration};

use mayfly_core::id::SandboxId;
use tokio::time::Instant;

use super::{
    CALM, GUEST_LIMIT, LONGEST_YIELD, PoolConfig,
    counts::{Miss, PoolCounts},
    demand::{Demand, Want, shares},
    key::Key,
};
use crate::seam::{PrepareError, SandboxRequest};

/// Kinds that are remembered, at most, beside those that are there.
const MOST_KINDS: usize = 64;
/// The wait after a start that failed, at first and at most; it doubles.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The same where trying again soon can't help: settings that are not in force, an image or a runtime that is missing.
const LONG_PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));

/// All that is kept, of sandboxes `S`.
#[derive(Debug)]
pub(crate) struct Stock<S> {
    rules: Rules,
    shelves: Vec<Shelf<S>>,
    counts: PoolCounts,
    drained: bool,
    /// Jobs for which a sandbox is being made.
    waiting: u32,
    calm_at: Instant,
    /// Since when a start was wanted and put off for jobs.
    yields_since: Option<Instant>,
    /// The start rate allows none before.
    next_start: Instant,
    /// When the idle ones were last looked at.
    looked_at: Instant,
}

#[derive(Debug)]
struct Rules {
    size: u32,
    max: u32,
    max_idle: Duration,
    between_starts: Duration,
    starts: u32,
    longest_wall: mayfly_core::units::Span,
    longest_wait: Duration,
}

/// One kind.
#[derive(Debug)]
struct Shelf<S> {
    key: Key,
    request: SandboxRequest,
    min: u32,
    demand: Demand,
    idle: VecDeque<Idle<S>>,
    starting: u32,
    trouble: Option<PauseUntil>,
}

#[derive(Debug)]
struct Idle<S> {
    sandbox: S,
    ready_at: Instant,
    until: Instant,
}

#[derive(Debug, Clone, Copy)]
struct PauseUntil {
    failures: u32,
    at: Instant,
}

/// What a job is given.
#[derive(Debug)]
pub(crate) enum Took<S> {
    /// The one that has waited longest.
    Ready { sandbox: S, ready_at: Instant },
    /// None.
    None(Miss),
}

/// What is worth a log line about a start: trouble is told once, and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Quiet,
    Began,
    Recovered,
}

/// What is to be done for the stock.
#[derive(Debug)]
pub(crate) enum Next<S> {
    /// Make one. What is in its way goes first.
    Start {
        request: Box<SandboxRequest>,
        displaced: Option<S>,
    },
    /// Nothing before this time, or before something changes.
    Wait(Option<Instant>),
}

/// Why one could not be made, as far as it decides when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    Soon,
    Late,
}

impl Failed {
    pub(crate) const fn of(error: &PrepareError) -> Self {
        match error {
            PrepareError::Engine(_) => Self::Soon,
            PrepareError::Mismatch(_)
            | PrepareError::ImageUnavailable(_)
            | PrepareError::RuntimeUnavailable(_) => Self::Late,
        }
    }
}

impl<S> Stock<S> {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let now = Instant::now();
        let mut stock = Self {
            rules: Rules {
                size: config.size,
                max: config.max,
                max_idle: config.max_idle,
                between_starts: Duration::from_secs(1) / config.starts_per_second.max(1),
                starts: config.starts.max(1),
                longest_wall: config.longest_wall,
                longest_wait: config.longest_wait,
            },
            shelves: Vec::new(),
            counts: PoolCounts::default(),
            drained: false,
            waiting: 0,
            calm_at: now,
            yields_since: None,
            next_start: now,
            looked_at: now,
        };
        for kept in &config.kept {
            let mut request = kept.request.clone();
            config.classes.round_up(&mut request.limits);
            let key = Key::of(&request);
            let n = stock.shelf(&key, &request, now);
            stock.shelves[n].min = kept.min;
        }
        stock
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        let (ready, starting) = self.there();
        PoolCounts {
            ready,
            starting,
            ..self.counts
        }
    }

    /// A job asks for one of a kind. What it gets may turn out to be dead: then it asks for another.
    pub(crate) fn ask(&mut self, key: &Key, request: &SandboxRequest, now: Instant) -> Took<S> {
        let rules = &self.rules;
        let known = self.shelves.iter().any(|shelf| shelf.key == *key);
        let reason = if self.drained {
            Miss::Drained
        } else if request.limits.wall > rules.longest_wall || request.longest_idle > rules.longest_wait {
            Miss::TooLong
        } else {
            let n = self.shelf(key, request, now);
            let shelf = &mut self.shelves[n];
            shelf.demand.ask(now);
            shelf.request.session = request.session;
            self.calm_at = now + CALM;
            if self.stood_still(now) {
                // The keeper has not come to it yet.
                Miss::Dead
            } else if let Some(ready) = self.pop(n) {
                return ready;
            } else if known {
                Miss::Empty
            } else {
                Miss::Unknown
            }
        };
        self.counts.misses.count(reason);
        Took::None(reason)
    }

    /// The one that was taken is dead.
    pub(crate) fn take_another(&mut self, key: &Key) -> Took<S> {
        self.counts.discarded.dead += 1;
        let shelf = self.shelves.iter().position(|shelf| shelf.key == *key);
        if let Some(ready) = shelf.and_then(|n| self.pop(n)) {
            return ready;
        }
        self.counts.misses.count(Miss::Dead);
        Took::None(Miss::Dead)
    }

    fn pop(&mut self, n: usize) -> Option<Took<S>> {
        let idle = self.shelves[n].idle.pop_front()?;
        Some(Took::Ready {
            sandbox: idle.sandbox,
            ready_at: idle.ready_at,
        })
    }

    /// The one that was taken is alive.
    pub(crate) const fn hit(&mut self) {
        self.counts.hits += 1;
    }

    /// One of this kind was made for a job: whatever kept the stock from it may be over, and is tried at once.
    pub(crate) fn can_be_made(&mut self, key: &Key) {
        let shelf = self.shelves.iter_mut().find(|shelf| shelf.key == *key);
        if let Some(pause) = shelf.and_then(|shelf| shelf.trouble.as_mut()) {
            pause.at = self.looked_at;
        }
    }

    pub(crate) const fn job_waits(&mut self) {
        self.waiting += 1;
    }

    pub(crate) const fn job_waits_no_longer(&mut self) {
        self.waiting -= 1;
    }

    /// What to do for the stock now. A start that it asks for is in the making until [`Stock::made`].
    pub(crate) fn next(&mut self, now: Instant) -> Next<S> {
        if self.drained {
            return Next::Wait(None);
        }
        let (n, displaced) = match self.wanted(now) {
            Ok(wanted) => wanted,
            Err(wake) => {
                self.yields_since = None;
                return Next::Wait(wake);
            }
        };
        if let Some(wait) = self.held_up(now) {
            return Next::Wait(wait);
        }
        let displaced = displaced.and_then(|donor| self.shelves[donor].idle.pop_front());
        if displaced.is_some() {
            self.counts.discarded.displaced += 1;
        }
        self.yields_since = None;
        self.next_start = now.max(self.next_start) + self.rules.between_starts;
        self.counts.started += 1;
        let shelf = &mut self.shelves[n];
        shelf.starting += 1;
        let mut request = shelf.request.clone();
        request.sandbox_id = SandboxId::new();
        request.limits.wall = self.rules.longest_wall;
        request.longest_idle = self.rules.max_idle + self.rules.longest_wait;
        Next::Start {
            request: Box::new(request),
            displaced: displaced.map(|idle| idle.sandbox),
        }
    }

    /// Why a start that is wanted has to wait, and until when at most.
    fn held_up(&mut self, now: Instant) -> Option<Option<Instant>> {
        let (_, starting) = self.there();
        if starting >= self.rules.starts {
            return Some(None);
        }
        if self.waiting > 0 || now < self.calm_at {
            // Jobs go first, for a while; then one at a time goes along with them.
            let yields_to = *self.yields_since.get_or_insert(now) + LONGEST_YIELD;
            if now < yields_to {
                let calm = (self.waiting == 0).then_some(self.calm_at);
                return Some(Some(calm.map_or(yields_to, |calm| calm.min(yields_to))));
            }
            if starting > 0 {
                return Some(None);
            }
        }
        (now < self.next_start).then_some(Some(self.next_start))
    }

    /// The kind that most needs one, and the kind that has one too many where there is no room. Where there is none of
    /// the first: when that may change by itself.
    fn wanted(&self, now: Instant) -> Result<(usize, Option<usize>), Option<Instant>> {
        let wants: Vec<Want> = self.shelves.iter().map(|shelf| shelf.want(now)).collect();
        let shares = shares(&wants, self.rules.size, self.rules.max);
        let lacks = |n: usize| shares[n].saturating_sub(self.shelves[n].there());
        let lacking = || (0..shares.len()).filter(|&n| lacks(n) > 0);
        let may_start = |n: usize| self.shelves[n].trouble.is_none_or(|pause| pause.at <= now);
        let most_lacking = |n: &usize| (self.shelves[*n].there() == 0, lacks(*n));
        let later = || {
            let pauses = lacking().filter_map(|n| self.shelves[n].trouble.map(|pause| pause.at));
            pauses.min()
        };
        let (ready, starting) = self.there();
        let n = lacking().filter(|n| may_start(*n)).max_by_key(most_lacking);
        let n = n.ok_or_else(later)?;
        if ready + starting < self.rules.size {
            return Ok((n, None));
        }
        // None is destroyed to have one more of a kind of which there are some: shares change all the time.
        let donors = || (0..shares.len()).filter(|&n| self.shelves[n].has_more_than(shares[n]));
        let last_asked = |n: &usize| self.shelves[*n].demand.at();
        match donors().min_by_key(last_asked) {
            Some(donor) if self.shelves[n].there() == 0 => Ok((n, Some(donor))),
            _ => Err(later()),
        }
    }

    /// What came of a start. A sandbox that is handed back is not wanted any more.
    pub(crate) fn made(
        &mut self,
        request: &SandboxRequest,
        made: Result<S, Failed>,
        now: Instant,
    ) -> (Option<S>, Report) {
        let key = Key::of(request);
        let jitter = jitter(request.sandbox_id);
        let n = self.shelves.iter().position(|shelf| shelf.key == key);
        let shelf = &mut self.shelves[n.expect("a kind in the making is not forgotten")];
        shelf.starting -= 1;
        match made {
            Ok(sandbox) if self.drained => {
                self.counts.discarded.drained += 1;
                (Some(sandbox), Report::Quiet)
            }
            Ok(sandbox) => {
                let report = match shelf.trouble.take() {
                    Some(_) => Report::Recovered,
                    None => Report::Quiet,
                };
                // Up to a fifth earlier, so that what was made together does not end together.
                let until = now + self.rules.max_idle.mul_f64(1.0 - jitter / 5.0);
                shelf.idle.push_back(Idle {
                    sandbox,
                    ready_at: now,
                    until,
                });
                (None, report)
            }
            Err(failed) => {
                self.counts.failed += 1;
                let failures = shelf.trouble.map_or(0, |pause| pause.failures);
                let (first, longest) = match failed {
                    Failed::Soon => PAUSE,
                    Failed::Late => LONG_PAUSE,
                };
                let pause = first.saturating_mul(1 << failures.min(16)).min(longest);
                shelf.trouble = Some(PauseUntil {
                    failures: failures + 1,
                    // Half of it is left to chance.
                    at: now + pause.mul_f64(1.0 - jitter / 2.0),
                });
                let report = if failures == 0 {
                    Report::Began
                } else {
                    Report::Quiet
                };
                (None, report)
            }
        }
    }

    /// Takes out what has waited for long enough or is dead, to be destroyed. Where the whole process stood still for
    /// longer than guests live by themselves, none is trusted.
    pub(crate) fn look(&mut self, now: Instant, mut is_alive: impl FnMut(&mut S) -> bool) -> Vec<S> {
        let stood_still = self.stood_still(now);
        self.looked_at = now;
        let discarded = &mut self.counts.discarded;
        let mut out = Vec::new();
        for shelf in &mut self.shelves {
            for mut idle in std::mem::take(&mut shelf.idle) {
                let count = if stood_still || !is_alive(&mut idle.sandbox) {
                    &mut discarded.dead
                } else if now >= idle.until {
                    &mut discarded.aged
                } else {
                    shelf.idle.push_back(idle);
                    continue;
                };
                *count += 1;
                out.push(idle.sandbox);
            }
        }
        self.forget(now);
        out
    }

    /// Keeps nothing from now on, and hands out what there is, to be destroyed.
    pub(crate) fn drain(&mut self) -> Vec<S> {
        self.drained = true;
        let idle = self.shelves.iter_mut().flat_map(|shelf| shelf.idle.drain(..));
        let all: Vec<S> = idle.map(|idle| idle.sandbox).collect();
        self.counts.discarded.drained += all.len() as u64;
        all
    }

    /// Whether nothing of this process ran for longer than guests live by themselves.
    fn stood_still(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked_at) >= GUEST_LIMIT
    }

    /// Waiting, and in the making.
    fn there(&self) -> (u32, u32) {
        self.shelves.iter().fold((0, 0), |(ready, starting), shelf| {
            (ready + shelf.ready(), starting + shelf.starting)
        })
    }

    /// The place of a kind; made if it is new.
    fn shelf(&mut self, key: &Key, request: &SandboxRequest, now: Instant) -> usize {
        if let Some(n) = self.shelves.iter().position(|shelf| shelf.key == *key) {
            return n;
        }
        self.forget(now);
        if self.shelves.len() >= MOST_KINDS
            && let Some((n, _)) = self
                .shelves
                .iter()
                .enumerate()
                .filter(|(_, shelf)| shelf.can_be_forgotten())
                .min_by_key(|(_, shelf)| shelf.demand.at())
        {
            self.shelves.swap_remove(n);
        }
        self.shelves.push(Shelf {
            key: key.clone(),
            request: request.clone(),
            min: 0,
            demand: Demand::none(now),
            idle: VecDeque::new(),
            starting: 0,
            trouble: None,
        });
        self.shelves.len() - 1
    }

    /// Forgets kinds that nobody wants and of which there are none.
    fn forget(&mut self, now: Instant) {
        self.shelves
            .retain(|shelf| !shelf.can_be_forgotten() || shelf.demand.is_wanted(now));
    }
}

impl<S> Shelf<S> {
    fn ready(&self) -> u32 {
        u32::try_from(self.idle.len()).unwrap_or(u32::MAX)
    }

    fn there(&self) -> u32 {
        self.ready() + self.starting
    }

    fn want(&self, now: Instant) -> Want {
        Want {
            min: self.min,
            weight: self.demand.weight(now),
            at: self.demand.at(),
            there: self.there() > 0,
        }
    }

    fn has_more_than(&self, share: u32) -> bool {
        !self.idle.is_empty() && self.there() > share
    }

    fn can_be_forgotten(&self) -> bool {
        self.min == 0 && self.there() == 0
    }
}

/// Between 0 and 1, by the random bits of an id.
fn jitter(id: SandboxId) -> f64 {
    let random = id.as_uuid().as_u64_pair().1 & 0xffff_ffff;
    let random = u32::try_from(random).unwrap_or(u32::MAX);
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
