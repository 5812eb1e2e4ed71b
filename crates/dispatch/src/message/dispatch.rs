use std::time::Duration;

use mayfly_core::{
    digest::Digest,
    id::{AttemptId, JobId, TenantId},
    job::ResolvedJob,
};
use serde::{Deserialize, Serialize};

use super::codec::{VERSION, encoded_bytes};
use crate::{
    blob::{BlobClaim, BlobKey, BlobKind, BlobUrl},
    content::JobContent,
    time::ServerTime,
    token::ResultToken,
};

/// The first version in which an order may name blobs.
pub const BLOBS_SINCE: u32 = 3;

/// The first version in which an order may be for a job with secrets.
pub const SECRETS_SINCE: u32 = 5;

/// The first version in which a file of a job may have a mode of its own.
pub const MODES_SINCE: u32 = 6;

/// The first version in which a job may ask for files to be kept.
pub const ARTIFACTS_SINCE: u32 = 7;

/// The first version in which a job may reach something outside.
pub const EGRESS_SINCE: u32 = 8;

/// The first version in which the secrets of a job may be elsewhere than in its order, and may be files or named ones.
pub const SECRETS_APART_SINCE: u32 = 9;

/// The first version in which a job may have files that its order only names.
pub const FETCHED_SINCE: u32 = 10;

/// Most bytes of the secrets of one job as they are fetched: their values are bounded, and the places that they are for.
pub const MAX_SECRETS_BYTES: u64 = 1 << 20;

/// One publication of an attempt: all that an executor needs to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchMessage {
    /// The message's version.
    pub v: u32,
    /// Whose job.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// The attempt. Every publication of it is the same attempt, and it starts at most once.
    pub attempt: AttemptId,
    /// Which try at the job, from 1.
    pub number: u32,
    /// Which publication of the attempt, from 1.
    pub publication: u32,
    /// What an ask for the attempt must present.
    pub token: ResultToken,
    /// The job, with nothing left to be decided.
    pub resolved: ResolvedJob,
    /// Where its files and its standard input are, where they are not in `resolved`. Since version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputBlob>,
    /// Where its run may leave long output. Since version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputPlace>,
    /// Where its run may leave files. Since version 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<BlobUrl>,
    /// Where its secrets are, as [`SecretValues`](mayfly_core::job::SecretValues) of at most [`MAX_SECRETS_BYTES`], where none of them is in `resolved`. What
    /// the broker keeps has no value of theirs, and no digest, by which a short one could be guessed. Since version 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BlobUrl>,
    /// Where the files are that `resolved` only names. Since version 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<BlobUrl>,
}

/// What a job brings, where it is not in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputBlob {
    /// Where a [`JobContent`] is to be fetched.
    pub url: BlobUrl,
    /// The digest of its bytes.
    pub digest: Digest,
    /// How many they are.
    pub bytes: u64,
}

/// Where a run may leave its output, in place of its report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputPlace {
    /// Where it is to be left, in one piece ([`RunReport::take_output`](mayfly_core::run::RunReport::take_output)).
    pub url: BlobUrl,
    /// Output of more bytes than this belongs there.
    pub above: u64,
    /// Most bytes that are taken.
    pub most: u64,
}

/// Where blobs are, and what is one.
#[derive(Debug, Clone)]
pub struct BlobPlaces {
    /// Where executors reach the server, without a slash at its end.
    pub base: String,
    /// What addresses are signed with.
    pub key: BlobKey,
    /// An order that is longer than this, in bytes, leaves what its job brings out.
    pub input_above: u64,
    /// A report with more output than this, in bytes, leaves that out.
    pub output_above: u64,
}

impl DispatchMessage {
    /// The oldest version in which there is such a job. What reads less would run it without a part of what it is.
    #[must_use]
    pub fn least_version(&self) -> u32 {
        let resolved = &self.resolved;
        if !resolved.fetched.is_empty() {
            FETCHED_SINCE
        } else if !resolved.secret_files.is_empty() || !resolved.named_secrets.is_empty() {
            SECRETS_APART_SINCE
        } else if resolved.egress.is_some() {
            EGRESS_SINCE
        } else if !resolved.artifacts.is_empty() {
            ARTIFACTS_SINCE
        } else if self.resolved.files.iter().any(|file| file.mode.is_some()) {
            MODES_SINCE
        } else if !self.resolved.secrets.is_empty() {
            SECRETS_SINCE
        } else {
            VERSION
        }
    }
}

impl BlobPlaces {
    /// The oldest version in which such an order is sent where there are these places: what the broker keeps has no secret.
    #[must_use]
    pub fn least_version(&self, order: &DispatchMessage) -> u32 {
        let least = order.least_version();
        if order.resolved.has_secrets() {
            least.max(SECRETS_APART_SINCE)
        } else {
            least
        }
    }

    /// An order as it goes to executors that read `reads`: what is too long for it is left out and named, and so is the
    /// place for what would be too long for its report.
    #[must_use]
    pub fn equip(&self, mut order: DispatchMessage, reads: u32, now: ServerTime) -> DispatchMessage {
        if reads < BLOBS_SINCE {
            return order;
        }
        let limits = order.resolved.limits;
        let most = limits.stdout.as_bytes().saturating_add(limits.stderr.as_bytes());
        if most > self.output_above {
            order.output = Some(OutputPlace {
                url: self.url(&order, BlobKind::Output, most, now),
                above: self.output_above,
                most,
            });
            order.v = order.v.max(BLOBS_SINCE);
        }
        if let Some(limits) = order
            .resolved
            .artifact_limits
            .filter(|_| reads >= ARTIFACTS_SINCE)
        {
            let most = limits.total.as_bytes();
            order.artifacts = Some(self.url(&order, BlobKind::Artifact, most, now));
            order.v = order.v.max(ARTIFACTS_SINCE);
        }
        if order.resolved.has_secrets() && reads >= SECRETS_APART_SINCE {
            // Whoever answers there takes them from the job's row, and from where named ones are kept.
            drop(order.resolved.take_secrets());
            order.secrets = Some(self.url(&order, BlobKind::Secrets, MAX_SECRETS_BYTES, now));
            order.v = order.v.max(SECRETS_APART_SINCE);
        }
        if !order.resolved.fetched.is_empty() && reads >= FETCHED_SINCE {
            let bytes = order.resolved.fetched.iter().map(|file| file.bytes);
            let bytes = bytes.fold(0, u64::saturating_add);
            order.fetched = Some(self.url(&order, BlobKind::Fetched, bytes, now));
            order.v = order.v.max(FETCHED_SINCE);
        }
        if encoded_bytes(&order) as u64 <= self.input_above {
            return order;
        }
        let content = JobContent::take(&mut order.resolved);
        if content.is_empty() {
            return order;
        }
        let bytes = content.encode();
        order.input = Some(InputBlob {
            url: self.url(&order, BlobKind::Input, bytes.len() as u64, now),
            digest: Digest::of(&bytes),
            bytes: bytes.len() as u64,
        });
        order.v = order.v.max(BLOBS_SINCE);
        order
    }

    fn url(&self, order: &DispatchMessage, kind: BlobKind, bytes: u64, now: ServerTime) -> BlobUrl {
        let claim = BlobClaim {
            tenant: order.tenant,
            job: order.job,
            attempt: order.attempt,
            kind,
            bytes,
            expires: BlobClaim::expiry(now, longest_run(&order.resolved)),
        };
        self.key.url(&self.base, &claim)
    }
}

/// How long a run may take, with the time in which its files are collected.
fn longest_run(job: &ResolvedJob) -> Duration {
    let collecting = job
        .artifact_limits
        .map_or(Duration::ZERO, |limits| limits.time.as_duration());
    job.limits.wall.as_duration().saturating_add(collecting)
}

#[cfg(test)]
mod tests;
