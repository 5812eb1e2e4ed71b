//! Secrets that are kept for tenants under names. What is here is sealed: whoever has the database and not the key has no value.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{KeyId, SecretId, TenantId},
    job::SecretName,
};

use crate::{blobs::BlobOwner, error::StoreError};

/// Most secrets of one tenant.
pub const MAX_SECRETS: u32 = 1000;

/// Longest sealed value, in bytes.
pub const MAX_SEALED_BYTES: usize = 64 << 10;

/// A value to be kept.
#[derive(Clone)]
pub struct NewSecret {
    /// Whose.
    pub tenant: TenantId,
    /// What it is called. What was kept under that name before is gone with it.
    pub name: SecretName,
    /// The id of this value.
    pub value: SecretId,
    /// The value, sealed, of at most [`MAX_SEALED_BYTES`].
    pub sealed: Vec<u8>,
}

/// What is told of a secret: everything but its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// What it is called.
    pub name: SecretName,
    /// The id of its value: another one with each that is set.
    pub value: SecretId,
    /// When that was set.
    pub set_at: DateTime<Utc>,
}

/// A secret with its value, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// What it is called.
    pub name: SecretName,
    /// The id of its value.
    pub value: SecretId,
    /// The value.
    pub sealed: Vec<u8>,
}

/// Secrets of tenants. Another tenant's is never found.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// Keeps a value under its name, with its `secret_set` event. Of two that come at once one counts.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the tenant would have more than [`MAX_SECRETS`], or the value is too long; trouble with
    /// the database. Nothing has changed.
    async fn set_secret(
        &self,
        secret: NewSecret,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<SecretRecord, StoreError>;

    /// Removes the value of a name, with its `secret_removed` event: no attempt is given it from here on. False where there
    /// is none.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn remove_secret(
        &self,
        tenant: TenantId,
        name: &SecretName,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError>;

    /// What a tenant has, by name.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn list_secrets(&self, tenant: TenantId) -> Result<Vec<SecretRecord>, StoreError>;

    /// The values of these names for an attempt of the tenant's, with the attempt's `secrets_given` event; in the order of
    /// their names, each once. None, and no event, where one of them is not there, where there is no such attempt of that
    /// job and tenant, and where it is over.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read; no event then.
    async fn give_secrets(
        &self,
        owner: BlobOwner,
        names: &[SecretName],
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<SealedSecret>>, StoreError>;
}
