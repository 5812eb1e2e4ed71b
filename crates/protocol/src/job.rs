//! What the executor asks of the guest.

use serde::{Deserialize, Serialize};

use crate::bounded;

/// A job as the guest has to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::VERSION`] of the sender.
    pub version: u16,
    /// Program and arguments, at least one, none with a NUL. A program without a slash is looked up
    /// in the `PATH` of `env`.
    #[serde(deserialize_with = "bounded::list::<_, _, 1024>")]
    pub argv: Vec<String>,
    /// The whole environment, in order. Names are not empty and have no `=` or NUL.
    #[serde(deserialize_with = "bounded::list::<_, _, 1024>")]
    pub env: Vec<(String, String)>,
    /// Absolute path of the working directory.
    pub cwd: String,
    /// The guest kills the job this many milliseconds after its start. A second line: the
    /// executor's own deadline is the authority.
    pub deadline_ms: u64,
    /// Limits to set for the job; those not named stay as the container has them.
    #[serde(deserialize_with = "bounded::list::<_, _, 16>")]
    pub rlimits: Vec<JobRlimit>,
    /// How many files precede `Start`, at most [`crate::MAX_FILES`].
    pub files: u32,
    /// Whether stdin follows. Without it the job reads end of file at once.
    pub stdin: bool,
    /// Whether it may run in the process that waits for it: whether nothing that the process has read already, such as
    /// its environment, would be otherwise for this job. The guest looks at arguments, directory and limits itself.
    pub warm: bool,
    /// Whether files are collected when it is over: the guest then waits after `Exit` for `Collect`, or for its end.
    pub collects: bool,
    /// Whether the guest listens on [`crate::TUNNEL_PORT`] and carries connections to the executor.
    pub egress: bool,
}

/// One resource limit of the job; soft and hard are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRlimit {
    /// What is limited.
    pub resource: Resource,
    /// The limit in the resource's own unit; `None` is unlimited.
    pub limit: Option<u64>,
}

/// The resources of `getrlimit(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the RLIMIT_ constant of its name")]
pub enum Resource {
    Cpu,
    Fsize,
    Data,
    Stack,
    Core,
    Rss,
    Nproc,
    Nofile,
    Memlock,
    As,
    Locks,
    Sigpending,
    Msgqueue,
    Nice,
    Rtprio,
    Rttime,
}

impl Resource {
    /// All of them, in the order of the kernel's numbers on x86-64 and arm64.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::Fsize,
        Self::Data,
        Self::Stack,
        Self::Core,
        Self::Rss,
        Self::Nproc,
        Self::Nofile,
        Self::Memlock,
        Self::As,
        Self::Locks,
        Self::Sigpending,
        Self::Msgqueue,
        Self::Nice,
        Self::Rtprio,
        Self::Rttime,
    ];
}

/// Announces a file of the job; its bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHeader {
    /// Path below the work directory: relative, with `/` between components, none of them empty,
    /// `.` or `..`; at most [`crate::MAX_PATH_BYTES`] bytes.
    pub path: String,
    /// Permission bits, at most `0o777`.
    pub mode: u32,
    /// Exact size in bytes.
    pub size: u64,
}

impl FileHeader {
    /// Whether the path and the mode keep the rules above.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.mode <= 0o777
            && self.path.len() <= crate::MAX_PATH_BYTES
            && !self.path.contains('\0')
            && self.path.split('/').all(|part| !matches!(part, "" | "." | ".."))
    }
}
