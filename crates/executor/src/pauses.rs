//! How long to wait before the next try at something that is not there.

use std::time::Duration;

/// Pauses that double up to a most, each with jitter, so that many who wait for the same thing do not come at once.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    most: Duration,
}

impl Pauses {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// The next one: between half of its length and all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let half = self.next / 2;
        self.next = (self.next * 2).min(self.most);
        half + half.mul_f64(part())
    }
}

/// A number at random, from 0 to below 1.
pub(crate) fn part() -> f64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u32::try_from(random >> 48).unwrap_or(0)) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_most_and_no_further() {
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_millis(350));
        for length in [100, 200, 350, 350] {
            let (pause, length) = (pauses.next(), Duration::from_millis(length));
            assert!(pause >= length / 2 && pause <= length, "{pause:?} of {length:?}");
        }
    }
}
