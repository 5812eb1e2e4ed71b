//! Rests between transactions, so that a busy loop makes few large ones.

use std::time::Duration;

use mayfly_dispatch::rest;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// When the next transaction of a loop may begin.
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

    /// A transaction is over that began at `begun` and was about so many things. Its own time is part of the rest: what has
    /// come during a long one has waited long enough. `full`: it had as many as there may be, and more may wait.
    pub(crate) fn after(&mut self, begun: Instant, count: usize, full: bool) {
        let rest = if full { Duration::ZERO } else { rest::after(count) };
        self.until = begun + rest;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_transaction_begins_when_the_rest_is_over() {
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let longest = rest::after(80);
        let mut rest = Rest::new();
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        rest.after(Instant::now(), 80, false);
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), longest);
        rest.after(Instant::now(), 256, true);
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), longest, "more waits already");
        rest.after(begun, 80, false);
        rest.wait(&stop).await;
        assert_eq!(
            begun.elapsed(),
            longest,
            "the transaction has taken as long as the rest"
        );
        rest.after(Instant::now(), 80, false);
        stop.cancel();
        rest.wait(&stop).await;
        assert_eq!(begun.elapsed(), longest, "a server that is to stop does not rest");
    }
}
