//! How much of each kind is wanted: what is always kept, and what was asked for of late.

use std::time::Duration;

use tokio::time::Instant;

/// The time in which the weight of what was asked for halves.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// A weight is at most this, so that a kind that was asked for a thousand times is forgotten within minutes too.
const MOST: f64 = 64.0;
/// A kind of less weight is not kept ready: one request, two half-lives later.
const LEAST: f64 = 0.25;
/// How much more a kind must be wanted than one of which some are there, to take its place.
const INCUMBENT: f64 = 2.0;

/// How often a kind was asked for, each request weighing less as time goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    weight: f64,
    at: Instant,
}

impl Demand {
    pub(crate) const fn none(now: Instant) -> Self {
        Self { weight: 0.0, at: now }
    }

    pub(crate) fn ask(&mut self, now: Instant) {
        self.weight = (self.weight(now) + 1.0).min(MOST);
        self.at = now;
    }

    pub(crate) fn weight(&self, now: Instant) -> f64 {
        let halvings = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.weight * (-halvings).exp2()
    }

    /// Whether it is worth to be kept ready.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        self.weight(now) >= LEAST
    }

    /// When it was last asked for.
    pub(crate) const fn at(&self) -> Instant {
        self.at
    }
}

/// One kind among those that share the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// How many are always kept.
    pub(crate) min: u32,
    /// How much it is wanted now.
    pub(crate) weight: f64,
    /// When it was last asked for.
    pub(crate) at: Instant,
    /// Some are there or in the making.
    pub(crate) there: bool,
}

impl Want {
    /// How many it would have with all the room that there is.
    fn most(&self, max: u32) -> u32 {
        if self.weight < LEAST {
            return self.min;
        }
        // As many as were asked for within a half-life, about.
        let mut by_demand = 0;
        while f64::from(by_demand) < self.weight && by_demand < max {
            by_demand += 1;
        }
        by_demand.max(self.min)
    }
}

/// How many of each there should be: what is always kept, then one of each that is wanted, the most wanted first, then
/// the rest by weight. Of those that are wanted alike the one that was asked for last goes first.
pub(crate) fn shares(wants: &[Want], size: u32, max: u32) -> Vec<u32> {
    let mut shares: Vec<u32> = wants.iter().map(|want| want.min).collect();
    let mut room = size.saturating_sub(shares.iter().sum());
    let mut first: Vec<usize> = (0..wants.len()).collect();
    let rank = |n: usize| wants[n].weight * if wants[n].there { INCUMBENT } else { 1.0 };
    first.sort_by(|&a, &b| {
        let by_weight = rank(b).total_cmp(&rank(a));
        by_weight.then_with(|| wants[b].at.cmp(&wants[a].at))
    });
    for &n in &first {
        if room > 0 && shares[n] == 0 && wants[n].most(max) > 0 {
            shares[n] = 1;
            room -= 1;
        }
    }
    while room > 0 {
        // The next goes where the weight for each that it has is largest.
        let open = first.iter().filter(|&&n| shares[n] < wants[n].most(max));
        let worth = |n: usize| wants[n].weight / f64::from(shares[n] + 1);
        let Some(&next) = open.max_by(|&&a, &&b| worth(a).total_cmp(&worth(b))) else {
            break;
        };
        shares[next] += 1;
        room -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(min: u32, weight: f64, there: bool) -> Want {
        Want {
            min,
            weight,
            at: Instant::now(),
            there,
        }
    }

    #[test]
    fn what_is_always_kept_needs_no_demand() {
        assert_eq!(shares(&[want(2, 0.0, false), want(0, 0.0, false)], 4, 4), [2, 0]);
    }

    #[test]
    fn one_request_keeps_one_ready_and_many_keep_the_whole_pool() {
        assert_eq!(shares(&[want(0, 1.0, false)], 4, 4), [1]);
        assert_eq!(shares(&[want(0, 50.0, false)], 4, 4), [4]);
        assert_eq!(shares(&[want(0, 50.0, false)], 4, 3), [3]);
    }

    #[test]
    fn kinds_share_by_weight_and_each_that_is_wanted_has_one() {
        assert_eq!(shares(&[want(0, 30.0, true), want(0, 10.0, true)], 8, 8), [6, 2]);
        assert_eq!(shares(&[want(0, 60.0, true), want(0, 1.0, false)], 4, 4), [3, 1]);
    }

    #[test]
    fn with_more_kinds_than_places_the_most_wanted_have_them_and_those_that_are_there_stay() {
        let equal = [want(0, 3.0, true), want(0, 3.0, true), want(0, 3.0, false)];
        assert_eq!(shares(&equal, 2, 2), [1, 1, 0]);
        let wanted = [want(0, 3.0, true), want(0, 3.5, true), want(0, 6.5, false)];
        assert_eq!(shares(&wanted, 2, 2), [0, 1, 1]);
    }

    #[test]
    fn demand_decays() {
        let now = Instant::now();
        let mut demand = Demand::none(now);
        for _ in 0..1000 {
            demand.ask(now);
        }
        assert!((demand.weight(now) - MOST).abs() < 0.001);
        assert!((demand.weight(now + HALF_LIFE) - MOST / 2.0).abs() < 0.001);
        assert!(demand.weight(now + 9 * HALF_LIFE) < LEAST);
    }
}
