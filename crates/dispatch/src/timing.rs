//! The times that executors and server agree on, and the margins between them that keep the promises.

use std::time::Duration;

/// Every time of the dispatching protocol. Both sides of a deployment use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A session publishes a heartbeat this often.
    pub heartbeat_every: Duration,
    /// How long a session may hold what it runs without a confirmed heartbeat.
    pub lease: Duration,
    /// This long before its lease ends an executor kills what it runs.
    pub kill_margin: Duration,
    /// The executor sends each guest an `alive` frame this often.
    pub alive_every: Duration,
    /// A guest without an `alive` frame for this long kills its job and exits.
    pub alive_limit: Duration,
    /// An ask that a receipt covers and that has no answer after this long is asked again.
    pub ask_again: Duration,
    /// Events behind a gap are sent again at most this often.
    pub resend_every: Duration,
    /// After a publication that failed an executor publishes nothing for this long.
    pub publish_pause: Duration,
    /// A delivery waits this long for a free slot before it is handed back.
    pub slot_wait: Duration,
    /// An ended session's last events wait this long for their receipt before the next session is announced.
    pub last_receipt: Duration,
    /// The reconciler sends a tick this often.
    pub tick_every: Duration,
    /// Attempts that the broker seems to have lost are published again after this long.
    pub publish_again: Duration,
    /// The longest wait before a first further attempt. It doubles with each one.
    pub retry_first: Duration,
    /// The longest wait before any further attempt.
    pub retry_most: Duration,
}

/// Times that would break a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingFault {
    /// A frozen executor's guests would outlive its lease.
    #[error(
        "the guests' limit without an `alive` frame must be below the margin of the kill before the lease's end"
    )]
    AliveLimit,
    /// One late `alive` frame would end a run.
    #[error("`alive` frames must come at least three times within the guests' limit")]
    AliveFrames,
    /// One lost heartbeat would end a session.
    #[error("heartbeats must come at least three times before the kill margin of a lease")]
    Heartbeats,
    /// Something that is repeated would be repeated without pause.
    #[error("no interval may be zero")]
    Zero,
}

impl Timing {
    /// The times of a fleet.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            heartbeat_every: Duration::from_secs(5),
            lease: Duration::from_secs(45),
            // More than the guests' limit: a freeze at the very moment of the kill ends within the lease as well.
            kill_margin: Duration::from_secs(12),
            alive_every: Duration::from_secs(1),
            alive_limit: Duration::from_secs(10),
            ask_again: Duration::from_secs(2),
            resend_every: Duration::from_secs(2),
            publish_pause: Duration::from_millis(250),
            slot_wait: Duration::from_millis(200),
            last_receipt: Duration::from_secs(10),
            tick_every: Duration::from_secs(5),
            publish_again: Duration::from_secs(10),
            retry_first: Duration::from_secs(1),
            retry_most: Duration::from_secs(60),
        }
    }

    /// The same with every time divided, for tests that wait for real time to pass.
    ///
    /// # Errors
    /// A divisor that leaves nothing of an interval.
    pub fn divided_by(self, divisor: u32) -> Result<Self, TimingFault> {
        let part = |time: Duration| time.checked_div(divisor).unwrap_or(Duration::ZERO);
        Self {
            heartbeat_every: part(self.heartbeat_every),
            lease: part(self.lease),
            kill_margin: part(self.kill_margin),
            alive_every: part(self.alive_every),
            alive_limit: part(self.alive_limit),
            ask_again: part(self.ask_again),
            resend_every: part(self.resend_every),
            publish_pause: part(self.publish_pause),
            slot_wait: part(self.slot_wait),
            last_receipt: part(self.last_receipt),
            tick_every: part(self.tick_every),
            publish_again: part(self.publish_again),
            retry_first: part(self.retry_first),
            retry_most: part(self.retry_most),
        }
        .checked()
    }

    /// These times, if they keep the promises.
    ///
    /// # Errors
    /// The first margin that is missing.
    pub fn checked(self) -> Result<Self, TimingFault> {
        let intervals = [
            self.heartbeat_every,
            self.alive_every,
            self.ask_again,
            self.resend_every,
            self.publish_pause,
            self.slot_wait,
            self.last_receipt,
            self.tick_every,
            self.publish_again,
            self.retry_first,
            self.retry_most,
        ];
        if intervals.iter().any(Duration::is_zero) {
            return Err(TimingFault::Zero);
        }
        if self.alive_limit >= self.kill_margin {
            return Err(TimingFault::AliveLimit);
        }
        if self.alive_every * 3 > self.alive_limit {
            return Err(TimingFault::AliveFrames);
        }
        if self.kill_margin + self.heartbeat_every * 3 > self.lease {
            return Err(TimingFault::Heartbeats);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_standard_times_keep_every_margin_also_when_divided() {
        assert_eq!(Timing::standard().checked(), Ok(Timing::standard()));
        let quick = Timing::standard().divided_by(100).unwrap();
        assert_eq!(quick.lease, Duration::from_millis(450));
    }

    #[test]
    fn times_without_a_margin_are_refused() {
        let standard = Timing::standard();
        let cases = [
            (
                Timing {
                    alive_limit: standard.kill_margin,
                    ..standard
                },
                TimingFault::AliveLimit,
            ),
            (
                Timing {
                    alive_every: 4 * SECOND,
                    ..standard
                },
                TimingFault::AliveFrames,
            ),
            (
                Timing {
                    lease: 26 * SECOND,
                    ..standard
                },
                TimingFault::Heartbeats,
            ),
            (
                Timing {
                    ask_again: Duration::ZERO,
                    ..standard
                },
                TimingFault::Zero,
            ),
        ];
        for (timing, fault) in cases {
            assert_eq!(timing.checked(), Err(fault));
        }
        assert_eq!(standard.divided_by(0), Err(TimingFault::Zero));
        assert_eq!(standard.divided_by(u32::MAX), Err(TimingFault::Zero));
    }
}
