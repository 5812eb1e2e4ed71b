//! A process that is started before its job is known.

use serde::{Deserialize, Serialize};

use crate::bounded;

/// What the guest starts and keeps waiting for the job.
///
/// The guest gives it, beside the job's three streams, two pipes: it reads its orders from descriptor 3 and answers on
/// descriptor 4. `docs/warm-sandboxes.md` has the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmOrder {
    /// Program and arguments, as in [`crate::Job`]. A job fits when its own begin with these.
    #[serde(deserialize_with = "bounded::list::<_, _, 1024>")]
    pub argv: Vec<String>,
    /// The environment that it is started with; the job's own comes with the job.
    #[serde(deserialize_with = "bounded::list::<_, _, 1024>")]
    pub env: Vec<(String, String)>,
    /// Absolute path of the working directory, which the job's must equal.
    pub cwd: String,
    /// How long it may take until it is ready.
    pub limit_ms: u64,
}

/// The process is ready and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warmed {
    /// From fork until it was ready.
    pub boot_us: u64,
}

/// There is no such process, and nothing of it is left. The guest takes a job as if none had been asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmFailed {
    /// Why: the process's own words, or the guest's. At most [`WarmFailed::MAX_REASON`] bytes.
    pub reason: String,
    /// Whether the kernel killed a process for memory meanwhile, as far as the cgroup tells.
    pub out_of_memory: bool,
}

impl WarmFailed {
    /// Most bytes of `reason`; together with JSON's escapes it fits its frame.
    pub const MAX_REASON: usize = 1024;

    /// A failure, its reason cut to what a frame holds.
    #[must_use]
    pub fn new(reason: impl Into<String>, out_of_memory: bool) -> Self {
        let mut reason = reason.into();
        bounded::cut(&mut reason, Self::MAX_REASON);
        Self {
            reason,
            out_of_memory,
        }
    }
}

/// The job's program runs, and how it came to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// What became of the process that waited for it.
    pub warm: WarmUse,
}

/// Whether a job runs in the process that was started before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarmUse {
    /// The job did not ask for one.
    NotAsked,
    /// It does.
    Used,
    /// It doesn't, and was started cold: there was no such process any more, or never.
    Gone,
    /// The same: the process was started for other arguments, another directory or other limits than the job's.
    Unfit,
    /// The same: the process had written something.
    Wrote,
    /// The same: the process did not take the job in time.
    Silent,
    /// The same: the process itself would not take it.
    Declined,
}
