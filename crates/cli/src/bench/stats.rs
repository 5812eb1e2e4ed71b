//! What many times come to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Times of one way, in milliseconds. A percentile is by nearest rank: the smallest time that at least so many percent
/// of all times do not exceed; it is always one of the times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Times {
    /// How many times there are.
    pub(crate) n: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Times {
    /// Of no times there is nothing to say.
    pub(crate) fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = u32::try_from(sorted.len()).ok()?;
        Some(Self {
            n: sorted.len(),
            p50: millis(percentile(&sorted, 50)),
            p90: millis(percentile(&sorted, 90)),
            p99: millis(percentile(&sorted, 99)),
            min: millis(min),
            max: millis(max),
            mean: millis(sorted.iter().sum::<Duration>() / n),
        })
    }
}

/// Nearest rank, of times that are sorted and at least one.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.max(1) - 1]
}

/// The median of a part of the runs, in milliseconds.
pub(crate) fn median(times: &[Duration]) -> Option<f64> {
    Times::of(times).map(|times| times.p50)
}

/// Milliseconds, to a thousandth.
pub(crate) fn millis(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1000.0)
}

/// To a thousandth.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(list: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        list.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred = Times::of(&times((1..=100).rev())).unwrap();
        assert_eq!((hundred.p50, hundred.p90, hundred.p99), (50.0, 90.0, 99.0));
        assert_eq!(
            (hundred.min, hundred.max, hundred.mean, hundred.n),
            (1.0, 100.0, 50.5, 100)
        );
        let five = Times::of(&times([15, 20, 35, 40, 50])).unwrap();
        assert_eq!((five.p50, five.p90, five.p99), (35.0, 50.0, 50.0));
        let one = Times::of(&times([7])).unwrap();
        assert_eq!((one.p50, one.p99, one.n), (7.0, 7.0, 1));
        assert_eq!(Times::of(&[]), None);
    }

    proptest! {
        /// The definition itself, counted.
        #[test]
        fn a_percentile_is_a_time_that_enough_do_not_exceed_and_the_one_before_is_not(
            list in prop::collection::vec(0_u64..1000, 1..200), percent in 1_usize..=100
        ) {
            let mut sorted = times(list);
            sorted.sort_unstable();
            let found = percentile(&sorted, percent);
            let at_most = |limit| sorted.iter().filter(|time| **time <= limit).count() * 100;
            prop_assert!(at_most(found) >= percent * sorted.len());
            let below = sorted.iter().filter(|time| **time < found).count() * 100;
            prop_assert!(below < percent * sorted.len());
        }
    }
}
