//! Tenants and keys.

use chrono::{DateTime, Utc};
use mayfly_core::{
    account::Role,
    id::{KeyId, TenantId},
    units::Span,
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A tenant to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// What it is called, and nobody else: lower-case letters, digits and `-`.
    #[schema(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length = 63)]
    pub name: String,
    /// Its share of the fleet beside other tenants'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// Most attempts that it may have in flight in each pool; no bound where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub most_in_flight: Option<u32>,
    /// Most jobs that it may have queued in each pool; no bound where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub most_queued: Option<u32>,
}

/// What is to change of a tenant. What is left out stays as it is, and `null` removes a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenant {
    /// Its share of the fleet beside other tenants'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// Most attempts that it may have in flight in each pool.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000_000)]
    pub most_in_flight: Option<Option<u32>>,
    /// Most jobs that it may have queued in each pool.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 1_000_000_000)]
    pub most_queued: Option<Option<u32>>,
}

/// A field that is there, be it `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its id.
    pub tenant: TenantId,
    /// What it is called.
    pub name: String,
    /// Its share of the fleet beside other tenants'.
    pub weight: u32,
    /// Most attempts that it may have in flight in each pool.
    pub most_in_flight: Option<u32>,
    /// Most jobs that it may have queued in each pool.
    pub most_queued: Option<u32>,
    /// Since when it is there.
    pub created_at: DateTime<Utc>,
}

/// Tenants, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// The tenants.
    pub tenants: Vec<Tenant>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// What it is called: lower-case letters, digits and `-`.
    #[schema(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length = 63)]
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Whose: a must for `submitter`, `viewer` and `auditor`, out of the question for `operator`, either way for `admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// How long it opens anything, from now; for ever where it is left out. At most ten years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
}

/// A key. Its secret is shown once, when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// Its id.
    pub key: KeyId,
    /// What its text begins with, by which it is recognised.
    pub prefix: String,
    /// What it is called.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// Whose it is; none for one of the fleet's own.
    pub tenant: Option<TenantId>,
    /// Whether it opens anything.
    pub standing: KeyStanding,
    /// Since when it is there.
    pub created_at: DateTime<Utc>,
    /// From when on it opens nothing.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was last shown, to within a minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// Whether a key opens anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyStanding {
    /// It does.
    Valid,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

/// A key that was made, with its secret, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// What is sent in `Authorization: Bearer`. It is stored nowhere: keep it.
    pub secret: String,
    /// The key.
    pub key: Key,
}

impl std::fmt::Debug for CreatedKey {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Keys, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// The keys.
    pub keys: Vec<Key>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}
