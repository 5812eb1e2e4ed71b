//! The side of a store that knows who may use the API: tenants, and the keys that stand for them.
//!
//! A key's secret is never here: what is kept is its SHA-256. Each change is one transaction with its audit event, which
//! stands in the log of the tenant that it is about, and in that of [`TenantId::LOCAL`] where it is about none.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    account::Role,
    digest::Digest,
    id::{KeyId, TenantId},
};

use crate::error::StoreError;

pub use mayfly_dispatch::fairness::{MAX_WEIGHT, USUAL_WEIGHT};

/// Most bytes that the name of a tenant or of a key has.
pub const MAX_NAME_BYTES: usize = 63;

/// Whether a tenant or a key may be called so: lower-case letters, digits and `-`, at most [`MAX_NAME_BYTES`], a letter
/// or digit at both ends.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = name.bytes().next().is_some_and(is_word) && name.bytes().last().is_some_and(is_word);
    ends && name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| is_word(byte) || byte == b'-')
}

/// The largest bound that a quota has.
pub const MAX_QUOTA: u32 = 1_000_000_000;

/// Most of what a tenant may have in each pool, up to [`MAX_QUOTA`]; none where there is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Attempts in flight, dispatched or started. Its jobs wait while it has so many.
    pub most_in_flight: Option<u32>,
    /// Jobs that are queued. What would exceed it is not accepted.
    pub most_queued: Option<u32>,
}

impl Quotas {
    /// Whether a tenant may have these and this share.
    #[must_use]
    pub fn may_be_with(&self, weight: u32) -> bool {
        let fits = |most: Option<u32>| most.is_none_or(|most| most <= MAX_QUOTA);
        (1..=MAX_WEIGHT).contains(&weight) && fits(self.most_in_flight) && fits(self.most_queued)
    }
}

/// What is to change of a tenant; what is left out stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantChange {
    /// Its share of the fleet beside other tenants', from 1 to [`MAX_WEIGHT`].
    pub weight: Option<u32>,
    /// Attempts in flight, up to [`MAX_QUOTA`]; `Some(None)` removes the bound.
    pub most_in_flight: Option<Option<u32>>,
    /// Jobs that are queued, up to [`MAX_QUOTA`]; `Some(None)` removes the bound.
    pub most_queued: Option<Option<u32>>,
}

impl TenantChange {
    /// A tenant as it is then.
    #[must_use]
    pub fn of(&self, tenant: &TenantRecord) -> TenantRecord {
        let Quotas {
            most_in_flight,
            most_queued,
        } = tenant.quotas;
        TenantRecord {
            weight: self.weight.unwrap_or(tenant.weight),
            quotas: Quotas {
                most_in_flight: self.most_in_flight.unwrap_or(most_in_flight),
                most_queued: self.most_queued.unwrap_or(most_queued),
            },
            ..tenant.clone()
        }
    }
}

/// A tenant at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTenant {
    /// Its id.
    pub id: TenantId,
    /// What it is called: [`is_name`], and the only one of that name.
    pub name: String,
    /// Its share of the fleet beside other tenants', from 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// What it may have at once.
    pub quotas: Quotas,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// Its id.
    pub id: TenantId,
    /// What it is called.
    pub name: String,
    /// Its share of the fleet beside other tenants'.
    pub weight: u32,
    /// What it may have at once.
    pub quotas: Quotas,
    /// Since when it is there.
    pub created_at: DateTime<Utc>,
}

/// A key at its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its id, which its text begins with.
    pub id: KeyId,
    /// Whose; none for one of the fleet's own, as [`Role::belonging`] says.
    pub tenant: Option<TenantId>,
    /// What its holder may do.
    pub role: Role,
    /// What it is called: [`is_name`]. Several may have one name.
    pub name: String,
    /// SHA-256 of its secret.
    pub secret: Digest,
    /// From when on it opens nothing.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// Whose.
    pub tenant: Option<TenantId>,
    /// What its holder may do.
    pub role: Role,
    /// What it is called.
    pub name: String,
    /// SHA-256 of its secret.
    pub secret: Digest,
    /// Since when it is there.
    pub created_at: DateTime<Utc>,
    /// From when on it opens nothing.
    pub expires_at: Option<DateTime<Utc>>,
    /// Since when it opens nothing, where it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was last shown, to within [`LAST_USED_WITHIN`].
    pub last_used_at: Option<DateTime<Utc>>,
    /// Whether it opened anything when this was read.
    pub standing: Standing,
}

/// How exactly the last use of a key is known: so that a busy key does not cost a write for each request.
pub const LAST_USED_WITHIN: chrono::Duration = chrono::Duration::minutes(1);

/// Whether a key opens anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Valid,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

impl Standing {
    /// How a key stands at a moment.
    #[must_use]
    pub fn at(now: DateTime<Utc>, expires: Option<DateTime<Utc>>, revoked: Option<DateTime<Utc>>) -> Self {
        match (revoked, expires) {
            (Some(_), _) => Self::Revoked,
            (None, Some(end)) if end <= now => Self::Expired,
            (None, _) => Self::Valid,
        }
    }
}

/// Whose keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysOf {
    /// Everybody's.
    All,
    /// Those of a tenant.
    Tenant(TenantId),
}

/// Tenants and keys. `by` is the key by which a change is asked for, none where that is done at the server itself.
///
/// The time is the caller's; a store whose database has a clock of its own replaces it by that.
#[async_trait]
pub trait AccountStore: Send + Sync {
    /// Makes a tenant, with its `tenant_created` event.
    ///
    /// # Errors
    /// [`StoreError::TenantExists`] where one has this id or name; [`StoreError::Refused`] for a name or weight that none
    /// may have; trouble with the database.
    async fn create_tenant(
        &self,
        tenant: NewTenant,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError>;

    /// Changes a tenant, with its `tenant_changed` event; nothing is recorded where that changes nothing. Of changes that
    /// come at once each leaves alone what it does not name.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTenant`]; [`StoreError::Refused`] for a weight or a bound that none may have; trouble with the
    /// database.
    async fn change_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError>;

    /// A tenant.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, StoreError>;

    /// The tenant of a name.
    ///
    /// # Errors
    /// As [`AccountStore::find_tenant`].
    async fn find_tenant_by_name(&self, name: &str) -> Result<Option<TenantRecord>, StoreError>;

    /// Tenants by their ids, those after one of them where it is named. At most [`MAX_PAGE`](crate::seam::MAX_PAGE).
    ///
    /// # Errors
    /// As [`AccountStore::find_tenant`].
    async fn list_tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<TenantRecord>, StoreError>;

    /// Makes a key, with its `key_created` event.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTenant`]; [`StoreError::Refused`] where there is such a key, for a name that none may have, and
    /// for a tenant, or the lack of one, that the role does not allow; trouble with the database.
    async fn create_key(
        &self,
        key: NewKey,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError>;

    /// A key by its id, whoever's it is: for whoever checks what a request shows.
    ///
    /// # Errors
    /// Trouble with the database, or a stored value that can't be read.
    async fn find_key(&self, id: KeyId, now: DateTime<Utc>) -> Result<Option<KeyRecord>, StoreError>;

    /// Keys by their ids, those after one of them where it is named; expired and revoked ones too. At most
    /// [`MAX_PAGE`](crate::seam::MAX_PAGE).
    ///
    /// # Errors
    /// As [`AccountStore::find_key`].
    async fn list_keys(
        &self,
        of: KeysOf,
        after: Option<KeyId>,
        limit: u32,
        now: DateTime<Utc>,
    ) -> Result<Vec<KeyRecord>, StoreError>;

    /// Makes a key open nothing from now on, with its `key_revoked` event; nothing changes where that is so.
    ///
    /// # Errors
    /// [`StoreError::NoSuchKey`]; trouble with the database.
    async fn revoke_key(
        &self,
        id: KeyId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError>;

    /// Takes note that a key was shown, where the last note is older than [`LAST_USED_WITHIN`]. It is no commit that
    /// anybody is woken by.
    ///
    /// # Errors
    /// Trouble with the database.
    async fn key_used(&self, id: KeyId, now: DateTime<Utc>) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["a", "0", "team-a", &"a".repeat(MAX_NAME_BYTES)] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "-a",
            "a-",
            "A",
            "ä",
            "a b",
            "a/b",
            "a\0",
            &"a".repeat(MAX_NAME_BYTES + 1),
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
