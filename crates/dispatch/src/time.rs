//! The two clocks of dispatching. They are never compared with each other.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// A moment by the database's clock, in microseconds since 1970: the only clock of the server's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerTime(i64);

/// A moment by the executor's own clock: time since its host was started, suspension included (`CLOCK_BOOTTIME`).
pub type BootTime = Duration;

impl ServerTime {
    /// Takes what the database says, in microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970, for a column.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment and some time more. The end of time where there is no such moment.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// This moment less some time. The beginning of time where there is no such moment.
    #[must_use]
    pub fn before(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// Time since an earlier moment; none where it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<DateTime<Utc>> for ServerTime {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }
}

impl From<ServerTime> for DateTime<Utc> {
    /// The nearest moment that a calendar has, for a moment beyond it.
    fn from(at: ServerTime) -> Self {
        let nearest = if at.0 < 0 { Self::MIN_UTC } else { Self::MAX_UTC };
        Self::from_timestamp_micros(at.0).unwrap_or(nearest)
    }
}
