//! What an executor reports of one run: how it ended, what it wrote, and in which sandbox, as observed.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{
    artifact::Artifacts,
    digest::Digest,
    egress::EgressRecord,
    host::HostFacts,
    id::SandboxId,
    image::ImagePin,
    limits::Limits,
    outcome::{CapturedStream, Outcome, Usage},
};

/// The report of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// Standard output.
    pub stdout: CapturedStream,
    /// Standard error.
    pub stderr: CapturedStream,
    /// What it used, where the guest could say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The sandbox that it ran in, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxFacts>,
    /// When the executor sent the job to the guest, by the executor's wall clock: for people, never for decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When the executor knew of the end, by the same clock.
    pub ended_at: DateTime<Utc>,
    /// What was left on the server of the output, where that was too long for a message: head and tail of both streams are
    /// empty then. A report that is on record has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploaded: Option<UploadedOutput>,
    /// What came of the files that the job asked for, where the program was started and its end was one after which they
    /// are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// What it asked of hosts outside, and what was decided of each request; where it had egress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressRecord>,
}

/// What is kept of both streams, in one piece elsewhere: heads and tails, stdout's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadedOutput {
    /// Digest of the piece.
    pub digest: Digest,
    /// Bytes of each part of it, in the order in which they stand there.
    pub stdout_head: u64,
    /// See above.
    pub stdout_tail: u64,
    /// See above.
    pub stderr_head: u64,
    /// See above.
    pub stderr_tail: u64,
}

impl UploadedOutput {
    /// Bytes of the piece.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.stdout_head
            .saturating_add(self.stdout_tail)
            .saturating_add(self.stderr_head)
            .saturating_add(self.stderr_tail)
    }
}

impl RunReport {
    /// Bytes of the output that the report holds.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        let of = |stream: &CapturedStream| (stream.head.len() + stream.tail.len()) as u64;
        of(&self.stdout) + of(&self.stderr)
    }

    /// The report without its output, which is kept beside it.
    #[must_use]
    pub fn without_output(&self) -> Self {
        Self {
            outcome: self.outcome.clone(),
            stdout: self.stdout.without_bytes(),
            stderr: self.stderr.without_bytes(),
            usage: self.usage,
            sandbox: self.sandbox.clone(),
            started_at: self.started_at,
            ended_at: self.ended_at,
            uploaded: None,
            artifacts: self.artifacts.clone(),
            egress: self.egress.clone(),
        }
    }

    /// Takes the output out of the report, in one piece, and says of what parts that is made.
    #[must_use]
    pub fn take_output(&mut self) -> (Vec<u8>, UploadedOutput) {
        let (out, err) = (&mut self.stdout, &mut self.stderr);
        let mut piece = std::mem::take(&mut out.head);
        let mut bytes = [piece.len() as u64, 0, 0, 0];
        for (part, bytes) in [&mut out.tail, &mut err.head, &mut err.tail]
            .into_iter()
            .zip(&mut bytes[1..])
        {
            *bytes = part.len() as u64;
            piece.append(part);
        }
        let [stdout_head, stdout_tail, stderr_head, stderr_tail] = bytes;
        let uploaded = UploadedOutput {
            digest: Digest::of(&piece),
            stdout_head,
            stdout_tail,
            stderr_head,
            stderr_tail,
        };
        (piece, uploaded)
    }

    /// Gives the report the output back that was taken out of it; false, and nothing is changed, where the piece is of
    /// another length.
    #[must_use]
    pub fn give_back_output(&mut self, piece: &[u8], uploaded: &UploadedOutput) -> bool {
        if piece.len() as u64 != uploaded.bytes() {
            return false;
        }
        let mut rest = piece;
        for (part, bytes) in [
            (&mut self.stdout.head, uploaded.stdout_head),
            (&mut self.stdout.tail, uploaded.stdout_tail),
            (&mut self.stderr.head, uploaded.stderr_head),
            (&mut self.stderr.tail, uploaded.stderr_tail),
        ] {
            let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(rest.len());
            let (taken, others) = rest.split_at(length);
            *part = taken.to_vec();
            rest = others;
        }
        self.uploaded = None;
        true
    }
}

/// The sandbox as it was observed, by both read-backs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxFacts {
    /// Our id of it.
    pub sandbox_id: SandboxId,
    /// Whether it was made for this job, or had been waiting for one.
    #[serde(default)]
    pub origin: Origin,
    /// The engine's id of the container.
    pub container_id: String,
    /// The image that the engine says the container has.
    pub image: ImagePin,
    /// The OCI runtime that was read back.
    pub runtime: String,
    /// The engine's name and version.
    pub engine: String,
    /// The kernel, by the guest's word.
    pub kernel: String,
    /// The host under it, where that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFacts>,
    /// Which users of the host those of the sandbox are; absent where they are the same ones, and where the runtime's kernel
    /// is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_namespace: Option<UserNamespace>,
    /// The limits that were read back as being in force.
    pub in_force: Limits,
    /// Digest of the whole request that the engine echoed and the guest confirmed.
    pub enforced_digest: Digest,
    /// Digest of the syscall filter.
    pub filter_digest: Digest,
    /// Digest of the guest: of the lines `SHA256  NAME` for its binary and the files beside it.
    pub guest_digest: Digest,
    /// What was asked for and can't be had with this engine, kernel or runtime, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_enforceable: BTreeMap<String, String>,
    /// The process that was started before the job was known, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmFacts>,
}

/// The ids of the host that those of a sandbox stand for, in order (user_namespaces(7)), by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserNamespace {
    /// The host's user that the sandbox's root is.
    pub first_uid: u32,
    /// The host's group that the sandbox's group 0 is.
    pub first_gid: u32,
    /// How many users, and how many groups, there are; the smaller of the two numbers.
    pub count: u32,
    /// Where the others begin, if not behind the root: root is then the user that a rootless engine runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherIds>,
}

/// Users and groups of a sandbox whose root is apart from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OtherIds {
    /// The host's user that the sandbox's user 1 is.
    pub first_uid: u32,
    /// The host's group that the sandbox's group 1 is.
    pub first_gid: u32,
}

impl UserNamespace {
    /// The host's user and group that this user and its group are, where there are such.
    #[must_use]
    pub fn outside(&self, id: u32) -> Option<(u32, u32)> {
        let (first_uid, first_gid, nth) = match self.others {
            Some(others) if id > 0 => (others.first_uid, others.first_gid, id - 1),
            Some(_) | None => (self.first_uid, self.first_gid, id),
        };
        (id < self.count).then_some((first_uid.checked_add(nth)?, first_gid.checked_add(nth)?))
    }
}

/// What came of a sandbox's warm command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WarmFacts {
    /// What it was to import.
    pub imports: Vec<String>,
    /// How long it took until it waited for the job; nothing where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_us: Option<u64>,
    /// Whether the job ran in it; otherwise it was started cold, in the same sandbox.
    pub used: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_cold: Option<String>,
}

/// Where a run's sandbox came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// It was made for this job.
    #[default]
    Cold,
    /// It had been made and checked before its job was known.
    Warm {
        /// How long it had waited by then.
        idle_ms: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Cause, EndState, StreamCount};

    fn stream(head: &[u8], tail: &[u8]) -> CapturedStream {
        CapturedStream {
            count: StreamCount {
                bytes: 100,
                digest: Digest::of(head),
                truncated: true,
            },
            head: head.to_vec(),
            tail: tail.to_vec(),
            redacted: None,
        }
    }

    #[test]
    fn output_that_was_taken_out_comes_back_part_by_part() {
        for parts in [
            ["a", "bc", "def", "ghij"],
            ["", "bc", "", ""],
            ["a", "", "", "d"],
            ["", "", "", ""],
        ] {
            let [out_head, out_tail, err_head, err_tail] = parts.map(str::as_bytes);
            let whole = RunReport {
                outcome: Outcome::decided(EndState::Succeeded, Cause::Exited),
                stdout: stream(out_head, out_tail),
                stderr: stream(err_head, err_tail),
                usage: None,
                sandbox: None,
                started_at: None,
                ended_at: DateTime::UNIX_EPOCH,
                uploaded: None,
                artifacts: None,
                egress: None,
            };
            let mut report = whole.clone();
            let (piece, named) = report.take_output();
            assert_eq!(piece, parts.concat().as_bytes());
            assert_eq!(
                (named.digest, named.bytes()),
                (Digest::of(&piece), piece.len() as u64)
            );
            assert_eq!(report.output_bytes(), 0);
            report.uploaded = Some(named);
            let longer = [piece.as_slice(), b"x"].concat();
            let before = report.clone();
            assert!(!report.give_back_output(&longer, &named));
            assert_eq!(report, before);
            assert!(report.give_back_output(&piece, &named));
            assert_eq!(report, whole);
        }
    }
}
