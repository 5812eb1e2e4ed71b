//! The facts that are kept for good. An event is written once, in the transaction that makes it true, as its
//! canonical bytes (RFC 8785); nothing that a job chose stands in it in clear, only commitments under the run's salt.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

use crate::{
    account::Role,
    artifact::{Artifact, Artifacts},
    digest::{Digest, Salt, canonical_json},
    egress::{EgressRecord, Verdict},
    id::{
        AttemptId, AuditEventId, BatchId, ExecutorId, JobId, KeyId, SecretId, SessionId, TenantId, UploadId,
    },
    job::SecretName,
    limits::{Limits, LimitsAsked},
    outcome::{Cause, EndState, Evidence, Outcome, Redacted, StreamCount, Usage},
    run::{RunReport, SandboxFacts},
    self_test::SelfTest,
};

mod kind;

pub use kind::FactKind;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEvent {
    /// Its id, made by whoever writes it.
    pub id: AuditEventId,
    /// When, by the clock of whoever writes it, to the millisecond.
    #[serde(serialize_with = "timestamp")]
    pub at: DateTime<Utc>,
    /// Whose.
    pub tenant: TenantId,
    /// On which job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// On which attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// What.
    pub fact: Fact,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fact {
    /// A job was accepted.
    JobSubmitted(Box<Submitted>),
    /// An attempt at it was made and sent.
    AttemptDispatched {
        /// From 1.
        number: u32,
    },
    /// A session was allowed to start the attempt. No code runs before this is committed.
    RunStarted {
        /// The executor.
        executor: ExecutorId,
        /// Its session, which holds the attempt from here on.
        session: SessionId,
        /// Which publication of the attempt it had.
        publication: u32,
    },
    /// The run ended, and this is its one result.
    RunFinished(Box<Finished>),
    /// A result came that counts for nothing: late, or from a session that doesn't hold the attempt.
    ResultSuperseded {
        /// Who sent it.
        session: SessionId,
        /// What it said.
        state: EndState,
        /// And why.
        cause: Cause,
    },
    /// The engine's word on a container's end, heard when the result stood already, contradicts the guest's account.
    /// The result stays.
    RunContradicted {
        /// Who says so.
        session: SessionId,
        /// Each contradiction, in words of ours.
        contradictions: Vec<String>,
    },
    /// The attempt ended without a report: its session died or gave it up.
    AttemptLost {
        /// The session that held it.
        session: SessionId,
        /// Why it is over.
        cause: Cause,
    },
    /// The job goes back into the queue for a further attempt.
    JobRequeued {
        /// Attempts so far.
        attempts: u32,
    },
    /// Somebody asked for the job's end.
    CancelRequested,
    /// The job is over.
    JobEnded {
        /// Its terminal state.
        state: EndState,
        /// Why.
        cause: Cause,
    },
    /// An executor's process began a session.
    SessionOpened {
        /// The executor.
        executor: ExecutorId,
        /// The session.
        session: SessionId,
    },
    /// A session is over.
    SessionEnded {
        /// The executor.
        executor: ExecutorId,
        /// The session.
        session: SessionId,
        /// `closed`, `lease_ended` or `succeeded_by_another`.
        why: String,
    },
    /// An executor may take part from here on.
    ExecutorEnrolled {
        /// The executor.
        executor: ExecutorId,
        /// What it is called.
        name: String,
        /// Whose jobs it takes.
        pool: String,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// An executor takes nothing new from here on.
    ExecutorCordoned {
        /// The executor.
        executor: ExecutorId,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// An executor takes jobs again.
    ExecutorUncordoned {
        /// The executor.
        executor: ExecutorId,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// An executor has tried whether sandboxes hold on its host. What it tells again as it begins a session is a further
    /// event, with the same time of the test: what that session stands on.
    SelfTested {
        /// The executor.
        executor: ExecutorId,
        /// Its session.
        session: SessionId,
        /// What came of it.
        test: Box<SelfTest>,
    },
    /// A message that was set aside is published again: an attempt's, as its next publication.
    DeadLetterReplayed {
        /// The digest of the message.
        letter: Digest,
        /// The attempt's publication that it becomes; none where it is about no attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        publication: Option<u32>,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A message that was set aside is forgotten.
    DeadLetterDiscarded {
        /// The digest of the message.
        letter: Digest,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A name of the image catalog means this content from here on.
    ImagePinned {
        /// The name.
        name: String,
        /// The reference that it was pinned from.
        reference: String,
        /// What runs under that name.
        digest: Digest,
        /// The engine's id of it.
        config_digest: Digest,
        /// Which platform.
        platform: String,
        /// The key by which that was asked for; none where it was done at the server itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// There is a tenant.
    TenantCreated {
        /// Its name.
        name: String,
        /// Its share beside other tenants'.
        weight: u32,
        /// Most attempts that it may have in flight in each pool.
        #[serde(skip_serializing_if = "Option::is_none")]
        most_in_flight: Option<u32>,
        /// Most jobs that it may have queued in each pool.
        #[serde(skip_serializing_if = "Option::is_none")]
        most_queued: Option<u32>,
        /// The key by which it was asked for; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A tenant's share and quotas are these from now on.
    TenantChanged {
        /// Its share beside other tenants'.
        weight: u32,
        /// Most attempts that it may have in flight in each pool.
        #[serde(skip_serializing_if = "Option::is_none")]
        most_in_flight: Option<u32>,
        /// Most jobs that it may have queued in each pool.
        #[serde(skip_serializing_if = "Option::is_none")]
        most_queued: Option<u32>,
        /// The key by which it was asked for; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// There is a key to the API.
    KeyCreated {
        /// Its id; the secret is nowhere.
        key: KeyId,
        /// What its holder may do.
        role: Role,
        /// What it is called.
        name: String,
        /// From when on it opens nothing.
        #[serde(
            skip_serializing_if = "Option::is_none",
            serialize_with = "optional_timestamp"
        )]
        expires_at: Option<DateTime<Utc>>,
        /// The key by which it was asked for; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A key opens nothing from here on.
    KeyRevoked {
        /// Its id.
        key: KeyId,
        /// The key by which that was asked for; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A tenant's secret has this value from here on. Neither it nor a digest of it is anywhere in the log.
    SecretSet {
        /// What it is called.
        name: SecretName,
        /// The value's id.
        value: SecretId,
        /// The key by which it was set; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A tenant's secret is kept no more.
    SecretRemoved {
        /// What it was called.
        name: SecretName,
        /// The id of its last value.
        value: SecretId,
        /// The key by which that was asked for; none where it was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// An attempt's executor was given secrets that the job names.
    SecretsGiven {
        /// Which value of each.
        secrets: BTreeMap<SecretName, SecretId>,
    },
    /// A tenant's upload is kept from here on. Its digest, by which jobs name it, is not in the log: it would say for ever
    /// what it was.
    UploadKept {
        /// Its id.
        upload: UploadId,
        /// Its length.
        bytes: u64,
        /// The key by which it was sent; none where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
    /// A tenant's upload is kept no more.
    UploadRemoved {
        /// Its id.
        upload: UploadId,
        /// Its length.
        bytes: u64,
        /// The key by which that was asked for; none where its time was over, or where that was done at the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<KeyId>,
    },
}

/// What was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Submitted {
    /// The image that the name meant then.
    pub image_digest: Digest,
    /// The policy that was applied.
    pub policy_version: Digest,
    /// Commitment to the program.
    pub code: Digest,
    /// Commitment to the files.
    pub files: Digest,
    /// Commitment to standard input.
    pub stdin: Digest,
    /// What was asked for.
    pub asked: LimitsAsked,
    /// What will be in force.
    pub limits: Limits,
    /// The runtime.
    pub runtime: String,
    /// Attempts that it may have.
    pub max_attempts: u32,
    /// The batch that it is one of, where it is one of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<SubmittedIn>,
}

/// Which of which batch a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubmittedIn {
    /// The batch.
    pub id: BatchId,
    /// Commitment to the item's name.
    pub item: Digest,
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finished {
    /// Who ran it.
    pub executor: ExecutorId,
    /// In which session.
    pub session: SessionId,
    /// The terminal state of the run.
    pub state: EndState,
    /// Why.
    pub cause: Cause,
    /// The program's exit code, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The signal that ended it, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// What was observed.
    pub evidence: Evidence,
    /// The image that the job was accepted with.
    pub image_digest: Digest,
    /// The policy in force.
    pub policy_version: Digest,
    /// What the job asked for.
    pub asked: LimitsAsked,
    /// The sandbox as read back, limits in force included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxFacts>,
    /// Standard output: counted, and committed to.
    pub stdout: StreamCount,
    /// Standard error: counted, and committed to.
    pub stderr: StreamCount,
    /// What was taken out of standard output, where anybody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_redacted: Option<Redacted>,
    /// What was taken out of standard error, where anybody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_redacted: Option<Redacted>,
    /// The files that were kept of it, where any were asked for and its end was one after which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<KeptFiles>,
    /// What it asked of hosts outside, where it had egress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressSummary>,
    /// What it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// By the executor's clock.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_timestamp"
    )]
    pub started_at: Option<DateTime<Utc>>,
    /// By the executor's clock.
    #[serde(serialize_with = "timestamp")]
    pub ended_at: DateTime<Utc>,
}

/// Files that were kept of a run. Their names, which the job chose, are no part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptFiles {
    /// Each of them.
    pub files: Vec<KeptFile>,
    /// How many were asked for and not kept, as far as that is known.
    pub left_out: u64,
    /// Whether there may be files of which nothing is known.
    pub incomplete: bool,
}

/// A file that was kept: counted, and committed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KeptFile {
    /// Its bytes.
    pub bytes: u64,
    /// The commitment to their digest.
    pub digest: Digest,
}

impl KeptFiles {
    fn new(artifacts: &Artifacts, salt: &Salt) -> Self {
        let file = |file: &Artifact| KeptFile {
            bytes: file.bytes,
            digest: salt.commit(&file.digest),
        };
        Self {
            files: artifacts.files.iter().map(file).collect(),
            left_out: artifacts.left_out.len() as u64 + u64::from(artifacts.not_named),
            incomplete: artifacts.incomplete.is_some(),
        }
    }
}

/// What was decided of a run's requests to hosts outside, without the names that it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressSummary {
    /// How many requests came to what.
    pub counts: BTreeMap<Verdict, u64>,
    /// How many are not among those that the commitment is of.
    pub not_listed: u64,
    /// Bytes that left, on all connections.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Commitment to the canonical form of the listed decisions, in their order.
    pub decisions: Digest,
}

impl EgressSummary {
    fn new(record: &EgressRecord, salt: &Salt) -> Self {
        Self {
            counts: record.counts.clone(),
            not_listed: record.not_listed,
            sent_bytes: record.sent_bytes,
            received_bytes: record.received_bytes,
            decisions: salt.commit(&Digest::of(&canonical_json(&record.decisions))),
        }
    }
}

/// What a finished event is made of, beside the report.
#[derive(Debug)]
pub struct FinishedContext<'a> {
    /// Who ran it.
    pub executor: ExecutorId,
    /// In which session.
    pub session: SessionId,
    /// The image that the job was accepted with.
    pub image_digest: Digest,
    /// The policy in force.
    pub policy_version: Digest,
    /// What the job asked for.
    pub asked: LimitsAsked,
    /// The run's salt.
    pub salt: &'a Salt,
}

impl Finished {
    /// The fact that a report makes: digests of output become commitments under the run's salt.
    #[must_use]
    pub fn new(report: &RunReport, context: &FinishedContext<'_>) -> Self {
        let commit = |count: &StreamCount| StreamCount {
            digest: context.salt.commit(&count.digest),
            ..*count
        };
        let Outcome {
            state,
            cause,
            exit_code,
            signal,
            mut evidence,
        } = report.outcome.clone();
        if let Some(refusal) = &mut evidence.refused {
            refusal.subject = None;
        }
        let mut sandbox = report.sandbox.clone();
        if let Some(warm) = sandbox.as_mut().and_then(|sandbox| sandbox.warm.as_mut()) {
            // It may name a file or a variable as the job has called it. It stands with the report, which can be erased.
            warm.why_cold = None;
        }
        Self {
            executor: context.executor,
            session: context.session,
            state,
            cause,
            exit_code,
            signal,
            evidence,
            image_digest: context.image_digest,
            policy_version: context.policy_version,
            asked: context.asked,
            sandbox,
            stdout: commit(&report.stdout.count),
            stderr: commit(&report.stderr.count),
            stdout_redacted: report.stdout.redacted.clone(),
            stderr_redacted: report.stderr.redacted.clone(),
            artifacts: report
                .artifacts
                .as_ref()
                .map(|artifacts| KeptFiles::new(artifacts, context.salt)),
            egress: report
                .egress
                .as_ref()
                .map(|record| EgressSummary::new(record, context.salt)),
            usage: report.usage,
            started_at: report.started_at,
            ended_at: report.ended_at,
        }
    }
}

impl AuditEvent {
    /// The bytes that are stored, and that a verifier will hash.
    #[must_use]
    pub fn canonical_bytes(&self) -> Vec<u8> {
        canonical_json(self)
    }
}

impl Fact {
    /// The kind's name, as it stands in the canonical form and in the column beside it.
    #[must_use]
    pub const fn kind(&self) -> FactKind {
        match self {
            Self::JobSubmitted(_) => FactKind::JobSubmitted,
            Self::AttemptDispatched { .. } => FactKind::AttemptDispatched,
            Self::RunStarted { .. } => FactKind::RunStarted,
            Self::RunFinished(_) => FactKind::RunFinished,
            Self::ResultSuperseded { .. } => FactKind::ResultSuperseded,
            Self::RunContradicted { .. } => FactKind::RunContradicted,
            Self::AttemptLost { .. } => FactKind::AttemptLost,
            Self::JobRequeued { .. } => FactKind::JobRequeued,
            Self::CancelRequested => FactKind::CancelRequested,
            Self::JobEnded { .. } => FactKind::JobEnded,
            Self::SessionOpened { .. } => FactKind::SessionOpened,
            Self::SessionEnded { .. } => FactKind::SessionEnded,
            Self::ExecutorEnrolled { .. } => FactKind::ExecutorEnrolled,
            Self::ExecutorCordoned { .. } => FactKind::ExecutorCordoned,
            Self::ExecutorUncordoned { .. } => FactKind::ExecutorUncordoned,
            Self::SelfTested { .. } => FactKind::SelfTested,
            Self::DeadLetterReplayed { .. } => FactKind::DeadLetterReplayed,
            Self::DeadLetterDiscarded { .. } => FactKind::DeadLetterDiscarded,
            Self::ImagePinned { .. } => FactKind::ImagePinned,
            Self::TenantCreated { .. } => FactKind::TenantCreated,
            Self::TenantChanged { .. } => FactKind::TenantChanged,
            Self::KeyCreated { .. } => FactKind::KeyCreated,
            Self::KeyRevoked { .. } => FactKind::KeyRevoked,
            Self::SecretSet { .. } => FactKind::SecretSet,
            Self::SecretRemoved { .. } => FactKind::SecretRemoved,
            Self::SecretsGiven { .. } => FactKind::SecretsGiven,
            Self::UploadKept { .. } => FactKind::UploadKept,
            Self::UploadRemoved { .. } => FactKind::UploadRemoved,
        }
    }
}

pub(crate) fn timestamp<S: Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

fn optional_timestamp<S: Serializer>(at: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => timestamp(at, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests;
