//! Whose job is next: shares of a pool's slots over time, by the weights of the tenants that want them.
//!
//! Each tenant has an account in each pool: the slot time that its runs have taken, divided by its weight. The next slot
//! goes to whoever has had the least, what is in flight included: a run counts for the time that it has taken so far and
//! for one mean run to come. The pool's own level is the account of the worst served among those that want more than
//! they get. Nobody who comes stands below it: time in which a tenant wanted nothing earns it nothing, and slots that
//! nobody else wanted cost it nothing.
//!
//! So a tenant that comes to a pool full of another's jobs has the next free slot, unless the weights say otherwise,
//! whatever the other one has queued; and tenants that always want more have slot time in the proportion of their
//! weights. Accounts lag behind commits of others a little at most: a share is a tendency, and no promise hangs on one
//! run.

use std::collections::BTreeMap;

use mayfly_core::id::TenantId;

use crate::time::ServerTime;

#[cfg(test)]
mod tests;

/// A tenant's weight where nobody has said another one.
pub const USUAL_WEIGHT: u32 = 1;

/// The largest weight. The smallest is 1.
pub const MAX_WEIGHT: u32 = 1000;

/// Bounds of the mean run that is assumed, in seconds.
const SHORTEST_RUN: f64 = 0.001;
const LONGEST_RUN: f64 = 3600.0;

/// Runs that a mean is taken over, about.
const MEAN_OVER: f64 = 32.0;

/// What is kept of a pool. One row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolShares {
    /// Whoever begins to want slots has had at least this much, in seconds of slot time at weight 1.
    pub level: f64,
    /// The mean time of a run, in seconds.
    pub mean_run: f64,
    /// Runs that ended until then are on the accounts.
    pub counted_to: ServerTime,
}

/// What a tenant has of a pool, and wants of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TenantLoad {
    /// The tenant.
    pub tenant: TenantId,
    /// Its weight, from 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Its account, as it is stored: seconds of slot time at weight 1. 0 where there is none.
    pub account: f64,
    /// Its runs that have ended since [`PoolShares::counted_to`].
    pub ended: u64,
    /// How long they took together, in seconds.
    pub ended_seconds: f64,
    /// Its attempts in flight: dispatched or started.
    pub in_flight: u64,
    /// How long those that have started have run together, in seconds.
    pub running_seconds: f64,
    /// Whether it has jobs that are ready.
    pub wants: bool,
    /// Most attempts that it may have in flight.
    pub most_in_flight: Option<u64>,
}

/// What is to be kept once jobs were picked.
#[derive(Debug, Clone, PartialEq)]
pub struct Accounts {
    /// The pool's row.
    pub pool: PoolShares,
    /// Accounts that have changed.
    pub tenants: Vec<(TenantId, f64)>,
}

/// Picks the tenants whose jobs are next, one after the other.
#[derive(Debug, Clone)]
pub struct Picker {
    pool: PoolShares,
    tenants: BTreeMap<TenantId, Standing>,
}

/// How a tenant stands while jobs are picked.
#[derive(Debug, Clone, Copy)]
struct Standing {
    stored: f64,
    account: f64,
    /// The account with what runs.
    service: f64,
    weight: f64,
    in_flight: u64,
    most_in_flight: Option<u64>,
    wants: bool,
}

impl PoolShares {
    /// Of a pool of which nothing is kept: what ran before counts for nobody.
    #[must_use]
    pub const fn new(now: ServerTime) -> Self {
        Self {
            level: 0.0,
            mean_run: 1.0,
            counted_to: now,
        }
    }
}

impl TenantLoad {
    /// A tenant of which nothing is known.
    #[must_use]
    pub const fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            weight: USUAL_WEIGHT,
            account: 0.0,
            ended: 0,
            ended_seconds: 0.0,
            in_flight: 0,
            running_seconds: 0.0,
            wants: false,
            most_in_flight: None,
        }
    }
}

impl Standing {
    fn new(load: &TenantLoad, level: f64) -> Self {
        let weight = f64::from(load.weight.clamp(1, MAX_WEIGHT));
        let account = load.account + load.ended_seconds / weight;
        let running = load.running_seconds / weight;
        let service = if load.wants {
            (account + running).max(level)
        } else {
            account + running
        };
        Self {
            stored: load.account,
            account: service - running,
            service,
            weight,
            in_flight: load.in_flight,
            most_in_flight: load.most_in_flight,
            wants: load.wants,
        }
    }

    fn may_have_more(&self) -> bool {
        self.wants && self.most_in_flight.is_none_or(|most| self.in_flight < most)
    }
}

impl Picker {
    /// For a pool as it stands. `counted_to`: the end of the newest run that the loads count.
    #[must_use]
    pub fn new(
        pool: PoolShares,
        counted_to: ServerTime,
        loads: impl IntoIterator<Item = TenantLoad>,
    ) -> Self {
        let mut mean_run = pool.mean_run;
        let mut tenants = BTreeMap::new();
        for load in loads {
            if load.ended > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a mean need not be exact")]
                let ended = load.ended as f64;
                let part = (ended / MEAN_OVER).min(1.0);
                mean_run += (load.ended_seconds / ended - mean_run) * part;
            }
            tenants.insert(load.tenant, Standing::new(&load, pool.level));
        }
        let pool = PoolShares {
            mean_run: mean_run.clamp(SHORTEST_RUN, LONGEST_RUN),
            counted_to: pool.counted_to.max(counted_to),
            ..pool
        };
        Self { pool, tenants }
    }

    /// Whose job is next; none where nobody wants anything, or may have it. It counts as in flight from here on.
    pub fn pick(&mut self) -> Option<TenantId> {
        let mean_run = self.pool.mean_run;
        let after = |standing: &Standing| {
            #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 attempts in flight")]
            let in_flight = (standing.in_flight + 1) as f64;
            standing.service + in_flight * mean_run / standing.weight
        };
        let (tenant, standing) = self
            .tenants
            .iter_mut()
            .filter(|(_, standing)| standing.may_have_more())
            .min_by(|(_, one), (_, other)| after(one).total_cmp(&after(other)))?;
        standing.in_flight += 1;
        Some(*tenant)
    }

    /// A tenant that was picked has no job that is ready: it has got nothing, and wants nothing more.
    pub fn has_none(&mut self, tenant: TenantId) {
        if let Some(standing) = self.tenants.get_mut(&tenant) {
            standing.in_flight = standing.in_flight.saturating_sub(1);
            standing.wants = false;
        }
    }

    /// A tenant that was picked has got its job, and has no further one that is ready.
    pub fn has_no_more(&mut self, tenant: TenantId) {
        if let Some(standing) = self.tenants.get_mut(&tenant) {
            standing.wants = false;
        }
    }

    /// What is to be kept.
    #[must_use]
    pub fn finish(self) -> Accounts {
        let service = |wanting: bool| {
            let standings = self.tenants.values();
            standings
                .filter(move |standing| !wanting || standing.may_have_more())
                .map(|standing| standing.service)
        };
        let least = service(true).min_by(f64::total_cmp);
        // Where everybody has what it wants, nobody's use is at another's cost.
        let level = least.or_else(|| service(false).max_by(f64::total_cmp));
        let pool = PoolShares {
            level: level.map_or(self.pool.level, |level| level.max(self.pool.level)),
            ..self.pool
        };
        let tenants = self
            .tenants
            .into_iter()
            .filter(|(_, standing)| standing.account.total_cmp(&standing.stored).is_ne())
            .map(|(tenant, standing)| (tenant, standing.account))
            .collect();
        Accounts { pool, tenants }
    }
}
