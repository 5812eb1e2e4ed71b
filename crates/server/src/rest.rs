//! Rests between transactions, so that a busy loop makes few large ones.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a loop rests for each thing that its last transaction was about: about as long as the transaction took for it.
const FOR_EACH: Duration = Duration::from_micros(250);

/// The longest rest, which nothing waits for longer.
const LONGEST: Duration = Duration::from_millis(20);

/// When the next transaction of a loop may begin.
///
/// A transaction costs as much as dozens of the things that it is about. Where many come, waiting for some more of them
/// costs nothing: there are fewer transactions and each has more. Where few come nobody waits, since the rest goes by how
/// much the last transaction had.
#[derive(Debug)]
pub(crate) struct Rest {
    until: Instant,
}

impl Rest {
    pub(crate) fn new() -> Self {
        Self {
            until: Instant::now(),
        }
    }

    /// A transaction is over that was about so many things. `full`: it had as many as there may be, and more may wait.
    pub(crate) fn after(&mut self, count: usize, full: bool) {
        let rest = if full { Duration::ZERO } else { rest_for(count) };
        self.until = Instant::now() + rest;
    }

    /// Returns once the next may begin, or the server is to stop.
    pub(crate) async fn wait(&self, stop: &CancellationToken) {
        if self.until <= Instant::now() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(self.until) => {}
            () = stop.cancelled() => {}
        }
    }
}

fn rest_for(count: usize) -> Duration {
    // One job alone goes on at once.
    if count <= 2 {
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
        assert_eq!(rest_for(0), Duration::ZERO);
        assert_eq!(rest_for(2), Duration::ZERO);
        assert_eq!(rest_for(40), Duration::from_millis(10));
        assert_eq!(rest_for(usize::MAX), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_transaction_begins_when_the_rest_is_over() {
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let mut rest = Rest::new();
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        rest.after(80, false);
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), LONGEST);
        rest.after(256, true);
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), LONGEST, "more waits already");
        rest.after(80, false);
        stop.cancel();
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), LONGEST, "a server that is to stop does not rest");
    }
}
