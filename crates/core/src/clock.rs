//! The seam through which every role takes the time, so that a test can move it.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The wall clock: for records that people read. It may jump, and nothing is decided by it.
    fn now(&self) -> DateTime<Utc>;

    /// Time since the host was started, suspension included (`CLOCK_BOOTTIME`, clock_gettime(2)): leases and
    /// deadlines are judged by it. It never goes back.
    fn since_boot(&self) -> Duration;
}
