//! What a server says of itself.

use mayfly_core::{
    account::Role,
    id::{KeyId, TenantId},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// That the process answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Live {
    /// Always true.
    pub live: bool,
}

/// Whether the server can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// Whether requests are answered as they should be.
    pub ready: bool,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// Something that the server needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// What: `database`, `broker`.
    pub name: String,
    /// Whether it is there.
    pub ok: bool,
    /// Whether the server can't do without: where it can, requests are answered meanwhile.
    pub required: bool,
    /// What is wrong, and what that means.
    pub reason: Option<String>,
}

/// Which program this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `mayfly`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of this API.
    pub api: String,
}

/// Who a request is by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// The key.
    pub key: KeyId,
    /// What it is called.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Whose it is.
    pub tenant: Option<TenantId>,
}
