//! Audit events.

use chrono::{DateTime, Utc};
use mayfly_core::id::{AttemptId, AuditEventId, JobId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A fact that is kept for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// Its id.
    pub id: AuditEventId,
    /// When.
    pub at: DateTime<Utc>,
    /// What kind of fact.
    pub kind: String,
    /// On which job.
    pub job: Option<JobId>,
    /// On which attempt.
    pub attempt: Option<AttemptId>,
    /// The event as it is stored: canonical JSON (RFC 8785), byte for byte.
    pub body: String,
}

/// Audit events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The newest events, as many as were asked for.
    pub events: Vec<AuditEvent>,
}
