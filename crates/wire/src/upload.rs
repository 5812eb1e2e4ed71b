//! Files that a tenant uploads for its jobs.

use chrono::{DateTime, Utc};
use mayfly_core::digest::Digest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file that is kept for jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upload {
    /// The digest of its content, by which jobs name it.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// Since when it is kept.
    pub kept_at: DateTime<Utc>,
    /// When it was last uploaded, or a job was submitted with it; to the minute.
    pub used_at: DateTime<Utc>,
    /// Until when it is kept, unless it is used again.
    pub kept_until: DateTime<Utc>,
}

/// A page of uploads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadList {
    /// The uploads.
    pub uploads: Vec<Upload>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}
