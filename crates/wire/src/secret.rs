//! Named secrets of a tenant.

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::SecretId,
    job::{SecretName, SecretText},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A value to be kept under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// The value: text of 4 bytes to 16 KiB beside white space around it. Nothing ever shows it again.
    pub value: SecretText,
}

/// What is told of a secret: everything but its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// What it is called.
    pub name: SecretName,
    /// The id of the value that is kept now: another one each time it is set. The audit log names it.
    pub value_id: SecretId,
    /// Since when it is.
    pub set_at: DateTime<Utc>,
}

/// The secrets of a tenant, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    /// The secrets; at most 1,000.
    pub secrets: Vec<Secret>,
}
