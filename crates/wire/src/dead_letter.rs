//! Messages that the broker or a role has set aside.

use chrono::{DateTime, Utc};
use mayfly_core::id::{AttemptId, JobId, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A message that was set aside. What it holds is not shown: it may be a job's content, and its result token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetter {
    /// By which it is replayed or discarded: the SHA-256 of the message, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub id: String,
    /// When it was set aside.
    pub at: DateTime<Utc>,
    /// The queue that it was in.
    pub origin: DeadLetterOrigin,
    /// The pool of that queue.
    pub pool: String,
    /// Why it was set aside.
    pub why: WhyDead,
    /// What whoever set it aside gave as the reason.
    pub reason: Option<String>,
    /// How long it is.
    pub bytes: u64,
    /// The attempt that it is about, where it can be read.
    pub attempt: Option<AttemptId>,
    /// The job of that attempt.
    pub job: Option<JobId>,
    /// Whose that is.
    pub tenant: Option<TenantId>,
}

/// The queue that a message was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterOrigin {
    /// The jobs of a pool.
    Jobs,
    /// The events of a pool.
    Events,
}

/// Why a message was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyDead {
    /// An executor could not read it.
    Rejected,
    /// It was delivered and came back too often.
    DeliveryLimit,
    /// The recorder set it aside.
    SetAside,
}

/// Dead letters, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterList {
    /// The letters.
    pub dead_letters: Vec<DeadLetter>,
    /// Whether there are more than are listed.
    pub more: bool,
}
