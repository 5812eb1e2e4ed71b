//! How a job ended: its terminal state, the cause, and the evidence that was observed. One function decides, so that
//! the same evidence always gives the same answer; nothing here is copied from what the job asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, units::ByteSize};

/// A terminal state. A job reaches exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// The program ended by itself with exit code 0.
    Succeeded,
    /// The program ended with another exit code, or by a signal that was not ours.
    Failed,
    /// The wall-clock limit passed first.
    TimedOut,
    /// The kernel killed the program for memory.
    OutOfMemory,
    /// The program passed a limit that its policy kills on.
    LimitExceeded,
    /// Somebody asked for its end.
    Canceled,
    /// It may not run: policy, image, or a sandbox that is not as it was asked for.
    Rejected,
    /// It waited longer than it may.
    Expired,
    /// Trouble of ours, after all attempts.
    Error,
    /// Its executor died and it may not be tried again, so that nobody knows how it ended.
    Lost,
}

/// Why a job ended so; more exact than its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The program ended by itself.
    Exited,
    /// A signal ended the program; nobody on our side sent it.
    Signaled,
    /// The program failed, and a child of it had been killed for memory.
    ChildOutOfMemory,
    /// The program could not be started: no such file, or not executable.
    CommandNotStarted,
    /// The job's files did not fit into `/work`.
    FilesDidNotFit,
    /// The guest ended without an exit report after it had taken the job; only the job can have brought that about.
    GuestLost,
    /// The wall-clock limit.
    WallClock,
    /// The memory limit.
    MemoryLimit,
    /// An output limit that the policy kills on.
    OutputLimit,
    /// Canceled by request.
    CanceledByRequest,
    /// Something in force differs from what was asked for; the evidence names it.
    SandboxMismatch,
    /// The image is not on the executor, or not the one that was pinned.
    ImageUnavailable,
    /// The runtime that was asked for is not installed.
    RuntimeUnavailable,
    /// The policy in force at the start forbids it.
    PolicyRefused,
    /// It was not started in the time that it may wait.
    WaitedTooLong,
    /// The container engine failed or did not answer.
    EngineFailure,
    /// What the job brings, or what it wrote, lay on the server and could not be had from there.
    ContentUnavailable,
    /// The session that held the attempt died.
    ExecutorLost,
    /// The session that held the attempt gave it up: its lease was about to end, or it was stopped.
    Abandoned,
    /// Its message could not be delivered, again and again.
    Undeliverable,
    /// The process that had submitted it and waited for it died, and it had not started, or was to be tried again.
    SubmitterGone,
}

/// How the program's main process ended, by the guest's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    /// With this exit code, 0 to 255.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// Which of ours ended the program before it ended by itself, if one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KilledFor {
    /// The executor's wall clock, the authority.
    ExecutorDeadline,
    /// The guest's own clock, the second line.
    GuestDeadline,
    /// A request to cancel.
    Cancel,
    /// Too much output, where the policy kills on that.
    OutputLimit,
    /// The session's lease, or a stop of the executor.
    Abandoned,
}

/// Resources that the run used, as the kernel counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// The largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
    /// The most memory that the whole container had, in bytes, where the kernel tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// How long processes had to wait because the CPU limit was used up, in microseconds and added up over the CPUs, where the
    /// kernel tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_us: Option<u64>,
    /// From the program's start to its end by the guest's monotonic clock, in microseconds.
    pub wall_us: u64,
}

/// One output stream: how much there was, and its hash, whatever was kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCount {
    /// Every byte that the program wrote.
    pub bytes: u64,
    /// SHA-256 over every byte that the program wrote.
    pub digest: Digest,
    /// Whether less than that is kept, what was taken out of it not counted.
    pub truncated: bool,
}

/// One setting that is not in force as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Mismatch {
    /// Who said so: `inspect` (the engine) or `guest` (the kernel, from inside).
    pub source: MismatchSource,
    /// The field, by the name that the source has for it.
    pub field: String,
    /// What was asked for.
    pub asked: String,
    /// What is in force.
    pub found: String,
}

/// Which of the two read-backs found a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MismatchSource {
    /// The engine: its inspect call, or what it says of itself (fields `info.…`).
    Inspect,
    /// The guest's report of what the kernel says.
    Guest,
}

/// Everything that was observed of a run's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// Whether the guest said that the program was started.
    pub started: bool,
    /// How the main process ended, if the guest could say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessEnd>,
    /// Which of ours killed it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed_for: Option<KilledFor>,
    /// Processes that the kernel killed for memory during the run, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// How often the process limit refused a new one, where the kernel tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_refused: Option<u64>,
    /// The engine's word on the container: its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_exit_code: Option<i64>,
    /// The engine's word on the container: killed for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_oom_killed: Option<bool>,
    /// What the guest could not do, where it refused the job: stage and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Settings that were not as asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub mismatches: Vec<Mismatch>,
    /// Trouble of ours, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// The two accounts of the end that contradict each other, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub contradictions: Vec<String>,
}

/// What the guest could not do with a job before its first instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// Where it stopped.
    pub stage: RefusalStage,
    /// The kernel's reason, or the guest's rule.
    pub reason: String,
    /// What it was about, as the job has called it: a file, a program. Content of the job: never in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// Where the guest stopped with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusalStage {
    /// Writing the job's files.
    Files,
    /// Starting its program.
    Exec,
    /// Anything that is ours to get right.
    Setup,
}

/// Trouble of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trouble {
    /// Which kind.
    pub kind: TroubleKind,
    /// What we were doing and what went wrong.
    pub message: String,
}

/// Kinds of trouble of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// The engine failed, or did not answer in time.
    Engine,
    /// The image is not there, or is another one.
    Image,
    /// The runtime is not there.
    Runtime,
    /// The guest broke its protocol before it had a job.
    Guest,
    /// A blob of the attempt could not be fetched, or is not there.
    Content,
    /// The session's lease ended, or the executor was stopped.
    Abandoned,
}

/// The end of a run or of a job, immutable once recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The terminal state.
    pub state: EndState,
    /// Why.
    pub cause: Cause,
    /// The main process's exit code, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that ended the main process, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// What was observed.
    pub evidence: Evidence,
}

/// Whether a run that ended so may be tried again without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The infrastructure's: tried again by default.
    Ours,
    /// The job's: tried again only where its retry policy names the state.
    Job,
    /// Neither's: a decision, never tried again.
    Decision,
}

impl Evidence {
    /// The outcome that this evidence proves. The order of the questions is the order of precedence:
    ///
    /// 1. a sandbox that is not as asked for, then trouble of ours: no instruction of the job counts;
    /// 2. what the guest could not do with the job;
    /// 3. a kill of ours: what ended the program is known, whatever code it left;
    /// 4. the kernel's memory kill of the main process, or of the whole container;
    /// 5. the program's own end. An exit code of 137 is an exit code; a child that was killed for memory while the
    ///    parent ended with 0 leaves `succeeded`, with the kill in the evidence, since the program chose to go on;
    /// 6. no account of the end at all: the guest was lost, and only the job can have done that.
    #[must_use]
    pub fn judge(self) -> Outcome {
        let (state, cause) = self.verdict();
        let (exit_code, signal) = match self.end {
            Some(ProcessEnd::Code(code)) => (Some(code), None),
            Some(ProcessEnd::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Outcome {
            state,
            cause,
            exit_code,
            signal,
            evidence: self,
        }
    }

    fn verdict(&self) -> (EndState, Cause) {
        if !self.mismatches.is_empty() {
            return (EndState::Rejected, Cause::SandboxMismatch);
        }
        if let Some(trouble) = &self.trouble {
            return match trouble.kind {
                TroubleKind::Engine | TroubleKind::Guest => (EndState::Error, Cause::EngineFailure),
                TroubleKind::Image => (EndState::Rejected, Cause::ImageUnavailable),
                TroubleKind::Runtime => (EndState::Rejected, Cause::RuntimeUnavailable),
                TroubleKind::Content => (EndState::Error, Cause::ContentUnavailable),
                TroubleKind::Abandoned => (EndState::Error, Cause::Abandoned),
            };
        }
        if let Some(refusal) = &self.refused {
            return match refusal.stage {
                RefusalStage::Files => (EndState::Failed, Cause::FilesDidNotFit),
                RefusalStage::Exec => (EndState::Failed, Cause::CommandNotStarted),
                RefusalStage::Setup => (EndState::Error, Cause::EngineFailure),
            };
        }
        match self.killed_for {
            Some(KilledFor::ExecutorDeadline | KilledFor::GuestDeadline) => {
                return (EndState::TimedOut, Cause::WallClock);
            }
            Some(KilledFor::Cancel) => return (EndState::Canceled, Cause::CanceledByRequest),
            Some(KilledFor::OutputLimit) => return (EndState::LimitExceeded, Cause::OutputLimit),
            Some(KilledFor::Abandoned) => return (EndState::Error, Cause::Abandoned),
            None => {}
        }
        let killed_for_memory = self.oom_kills.is_some_and(|kills| kills > 0);
        match self.end {
            Some(ProcessEnd::Code(0)) => (EndState::Succeeded, Cause::Exited),
            Some(ProcessEnd::Code(_)) if killed_for_memory => (EndState::Failed, Cause::ChildOutOfMemory),
            Some(ProcessEnd::Code(_)) => (EndState::Failed, Cause::Exited),
            Some(ProcessEnd::Signal(SIGKILL)) if killed_for_memory => {
                (EndState::OutOfMemory, Cause::MemoryLimit)
            }
            // gVisor shows no counts inside; there the engine's word is all there is.
            Some(ProcessEnd::Signal(SIGKILL))
                if self.oom_kills.is_none() && self.engine_oom_killed == Some(true) =>
            {
                (EndState::OutOfMemory, Cause::MemoryLimit)
            }
            Some(ProcessEnd::Signal(_)) => (EndState::Failed, Cause::Signaled),
            None if self.engine_oom_killed == Some(true) => (EndState::OutOfMemory, Cause::MemoryLimit),
            None => (EndState::Failed, Cause::GuestLost),
        }
    }
}

/// The signal that can't be caught, by which the kernel kills for memory (signal(7)).
const SIGKILL: u8 = 9;

impl Outcome {
    /// An outcome that was decided rather than observed of a run: expired, canceled in the queue, lost.
    #[must_use]
    pub fn decided(state: EndState, cause: Cause) -> Self {
        Self {
            state,
            cause,
            exit_code: None,
            signal: None,
            evidence: Evidence::default(),
        }
    }
}

impl Cause {
    /// Whose trouble this is, which decides about a further attempt.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self {
            Self::Exited
            | Self::Signaled
            | Self::ChildOutOfMemory
            | Self::CommandNotStarted
            | Self::FilesDidNotFit
            | Self::GuestLost
            | Self::WallClock
            | Self::MemoryLimit
            | Self::OutputLimit => Blame::Job,
            Self::EngineFailure | Self::ContentUnavailable | Self::ExecutorLost | Self::Abandoned => {
                Blame::Ours
            }
            Self::CanceledByRequest
            | Self::SandboxMismatch
            | Self::ImageUnavailable
            | Self::RuntimeUnavailable
            | Self::PolicyRefused
            | Self::WaitedTooLong
            | Self::Undeliverable
            | Self::SubmitterGone => Blame::Decision,
        }
    }
}

/// What is kept of an output stream: the whole, or its head and tail with a gap between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedStream {
    /// How much there was.
    pub count: StreamCount,
    /// The first bytes; all of them where nothing was cut.
    #[serde(with = "base64_bytes")]
    pub head: Vec<u8>,
    /// The last bytes, where something was cut.
    #[serde(with = "base64_bytes")]
    pub tail: Vec<u8>,
    /// What was taken out of it before anything was kept or shown; none where nobody looked: there was no run, or it was one
    /// of a build that did not do this yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<Redacted>,
}

/// What was taken out of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Redacted {
    /// How many redactions there were, by the name of their rule; `secret` are the job's own secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Bytes of the program that were taken out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Bytes of the marks that stand in their place.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mark_bytes: u64,
}

/// Most names in the counts of one stream that are read.
pub const MAX_REDACTION_NAMES: usize = 512;

/// Longest name in them that is read, in bytes.
pub const MAX_REDACTION_NAME_BYTES: usize = 64;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Redacted {
    /// Whether there were none.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// All redactions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl CapturedStream {
    /// Bytes of the stream as it is shown: what the program wrote, with marks for what was taken out.
    #[must_use]
    pub fn shown_bytes(&self) -> u64 {
        self.redacted.as_ref().map_or(self.count.bytes, |redacted| {
            let left = self.count.bytes.saturating_sub(redacted.bytes);
            left.saturating_add(redacted.mark_bytes)
        })
    }

    /// Bytes that were cut between head and tail, of the stream as it is shown.
    #[must_use]
    pub fn omitted(&self) -> ByteSize {
        let kept = self.head.len() as u64 + self.tail.len() as u64;
        ByteSize::bytes(self.shown_bytes().saturating_sub(kept))
    }

    /// The same with nothing kept of it.
    #[must_use]
    pub fn without_bytes(&self) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            ..self.clone()
        }
    }
}

mod base64_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD
            .decode(String::deserialize(deserializer)?)
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
