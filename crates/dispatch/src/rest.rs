//! Rests of a busy loop, so that it makes few large transactions and messages instead of many small ones.

use std::time::Duration;

/// How long a loop rests for each thing that it has just been about: several times as long as the thing itself takes, so
/// that a loop with much to do comes to rest for the longest time and not for a part of it.
const FOR_EACH: Duration = Duration::from_millis(1);

/// The longest rest, which nothing waits for longer.
const LONGEST: Duration = Duration::from_millis(40);

/// As many things go on at once, without a rest: what comes alone waits for nothing.
const AT_ONCE: usize = 2;

/// How long to rest after a transaction, or a message, that was about so many things: at most 40 ms.
///
/// A transaction costs as much as dozens of the things that it is about. Where many come, waiting for some more of them
/// costs nothing: there are fewer transactions and each has more. Where few come nobody waits, since the rest goes by how
/// much the last one had.
#[must_use]
pub fn after(count: usize) -> Duration {
    if count <= AT_ONCE {
        return Duration::ZERO;
    }
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    FOR_EACH.saturating_mul(count).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_alone_waits_for_nothing_and_nothing_waits_for_long() {
        assert_eq!(after(0), Duration::ZERO);
        assert_eq!(after(2), Duration::ZERO);
        assert_eq!(after(3), Duration::from_millis(3));
        assert_eq!(after(40), LONGEST);
        assert_eq!(after(usize::MAX), LONGEST);
    }
}
