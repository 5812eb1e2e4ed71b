//! How a job ended, or why it never began.

use serde::{Deserialize, Serialize};

use crate::bounded;

/// The guest's word on the end of a job. Exactly one comes, after all output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// How the job's main process ended.
    pub how: Ended,
    /// The guest's deadline passed while the main process lived, and the guest killed it.
    pub deadline_fired: bool,
    /// A `Kill` frame came while the main process lived, and the guest killed it.
    pub killed_by_request: bool,
    /// From fork, or from the hand-over to the process that waited, to the main process's end, on the monotonic clock.
    pub wall_us: u64,
    /// Resources of the whole process tree; not those of a process that waited, before it had the job.
    pub usage: Usage,
    /// Other processes that were left when the main process ended, or when it was killed.
    pub left_processes: u32,
    /// Bytes of stdout that were sent in frames.
    pub stdout_bytes: u64,
    /// Bytes of stderr that were sent in frames.
    pub stderr_bytes: u64,
    /// What the sandbox's cgroup counted while the job ran.
    pub cgroup: CgroupCounts,
    /// Processes of the sandbox that were killed for memory before the job's start; `None` where that can't be read.
    pub oom_kills_before: Option<u64>,
}

/// How a process ended, from `wait4(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

/// Resources of all processes of a job, from `getrusage(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// CPU time in user mode.
    pub utime_us: u64,
    /// CPU time in the kernel.
    pub stime_us: u64,
    /// Largest resident set of any one process.
    pub maxrss_bytes: u64,
    /// Page faults served without I/O.
    pub minflt: u64,
    /// Page faults served with I/O.
    pub majflt: u64,
    /// Block input operations.
    pub inblock: u64,
    /// Block output operations.
    pub oublock: u64,
}

/// Counts of the cgroup; `None` where the file can't be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupCounts {
    /// Processes killed for memory since the job's start.
    pub oom_kills: Option<u64>,
    /// Forks refused for the pids limit since the job's start.
    pub pids_max_events: Option<u64>,
    /// Time that processes had to wait because the CPU limit was used up, since the job's start.
    pub cpu_throttled_us: Option<u64>,
    /// Most memory that the cgroup ever held, the guest's and the page cache's included.
    pub memory_peak_bytes: Option<u64>,
}

/// Why a job did not start. No instruction of it has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// What the guest was doing.
    pub stage: Stage,
    /// `errno` of the call that failed, if one did.
    pub errno: Option<i32>,
    /// What it was about: a path, a rule. At most [`Refused::MAX_DETAIL`] bytes.
    pub detail: String,
}

impl Refused {
    /// Most bytes of `detail`; together with JSON's escapes it fits its frame.
    pub const MAX_DETAIL: usize = 1024;

    /// A refusal, its detail cut to what a frame holds.
    #[must_use]
    pub fn new(stage: Stage, errno: Option<i32>, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        bounded::cut(&mut detail, Self::MAX_DETAIL);
        Self { stage, errno, detail }
    }
}

/// What the guest was doing when it had to refuse a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Checking the job's own text: an empty argv, a NUL, a relative working directory. The job's fault.
    Job,
    /// Writing a file: `ENOSPC`, `EDQUOT`, `EEXIST`, `ENOTDIR`. The job's fault.
    File,
    /// Making pipes or forking: the sandbox's fault.
    Resources,
    /// Becoming the job's user, before anything of the job's is looked at: the sandbox's fault.
    Identity,
    /// Setting a resource limit of the job's.
    Rlimit,
    /// Entering the working directory: the job's fault.
    Cwd,
    /// `execve(2)`: `ENOENT`, `EACCES`, `ENOEXEC`, `E2BIG`. The job's fault.
    Exec,
    /// A `Kill` frame came first.
    Canceled,
}
