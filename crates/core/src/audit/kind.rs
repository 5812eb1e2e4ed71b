//! Kinds of facts.

use serde::{Deserialize, Serialize};

/// Kinds of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is described at the fact of the same name")]
pub enum FactKind {
    JobSubmitted,
    AttemptDispatched,
    RunStarted,
    RunFinished,
    ResultSuperseded,
    RunContradicted,
    AttemptLost,
    JobRequeued,
    CancelRequested,
    JobEnded,
    SessionOpened,
    SessionEnded,
    ExecutorEnrolled,
    ExecutorCordoned,
    ExecutorUncordoned,
    SelfTested,
    DeadLetterReplayed,
    DeadLetterDiscarded,
    ImagePinned,
    TenantCreated,
    TenantChanged,
    KeyCreated,
    KeyRevoked,
    SecretSet,
    SecretRemoved,
    SecretsGiven,
    UploadKept,
    UploadRemoved,
}

impl FactKind {
    /// The name in the canonical form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JobSubmitted => "job_submitted",
            Self::AttemptDispatched => "attempt_dispatched",
            Self::RunStarted => "run_started",
            Self::RunFinished => "run_finished",
            Self::ResultSuperseded => "result_superseded",
            Self::RunContradicted => "run_contradicted",
            Self::AttemptLost => "attempt_lost",
            Self::JobRequeued => "job_requeued",
            Self::CancelRequested => "cancel_requested",
            Self::JobEnded => "job_ended",
            Self::SessionOpened => "session_opened",
            Self::SessionEnded => "session_ended",
            Self::ExecutorEnrolled => "executor_enrolled",
            Self::ExecutorCordoned => "executor_cordoned",
            Self::ExecutorUncordoned => "executor_uncordoned",
            Self::SelfTested => "self_tested",
            Self::DeadLetterReplayed => "dead_letter_replayed",
            Self::DeadLetterDiscarded => "dead_letter_discarded",
            Self::ImagePinned => "image_pinned",
            Self::TenantCreated => "tenant_created",
            Self::TenantChanged => "tenant_changed",
            Self::KeyCreated => "key_created",
            Self::KeyRevoked => "key_revoked",
            Self::SecretSet => "secret_set",
            Self::SecretRemoved => "secret_removed",
            Self::SecretsGiven => "secrets_given",
            Self::UploadKept => "upload_kept",
            Self::UploadRemoved => "upload_removed",
        }
    }
}
