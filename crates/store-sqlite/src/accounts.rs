//! Tenants and keys.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    id::{KeyId, TenantId},
};
use mayfly_store::{
    accounts::{
        AccountStore, KeyRecord, KeysOf, LAST_USED_WITHIN, NewKey, NewTenant, Quotas, Standing, TenantChange,
        TenantRecord, is_name,
    },
    error::StoreError,
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    SqliteStore,
    audit::{self, About},
    columns::{Column, micros},
    database::query,
};

struct TenantRow {
    tenant_id: Uuid,
    name: String,
    weight: i64,
    most_in_flight: Option<i64>,
    most_queued: Option<i64>,
    created_at: i64,
}

impl TryFrom<TenantRow> for TenantRecord {
    type Error = StoreError;

    fn try_from(row: TenantRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: TenantId::from_uuid(row.tenant_id),
            name: row.name,
            weight: Column("tenants", "weight").count(row.weight)?,
            quotas: Quotas {
                most_in_flight: bound("most_in_flight", row.most_in_flight)?,
                most_queued: bound("most_queued", row.most_queued)?,
            },
            created_at: Column("tenants", "created_at").time(row.created_at)?,
        })
    }
}

fn bound(column: &'static str, most: Option<i64>) -> Result<Option<u32>, StoreError> {
    most.map(|most| Column("tenants", column).count(most)).transpose()
}

struct KeyRow {
    key_id: Uuid,
    tenant_id: Option<Uuid>,
    role: String,
    name: String,
    secret: String,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    last_used_at: Option<i64>,
}

impl KeyRow {
    fn record(self, now: DateTime<Utc>) -> Result<KeyRecord, StoreError> {
        let column = |name| Column("api_keys", name);
        let time = |name, at: Option<i64>| at.map(|at| column(name).time(at)).transpose();
        let expires_at = time("expires_at", self.expires_at)?;
        let revoked_at = time("revoked_at", self.revoked_at)?;
        Ok(KeyRecord {
            id: KeyId::from_uuid(self.key_id),
            tenant: self.tenant_id.map(TenantId::from_uuid),
            role: column("role").parse(&self.role)?,
            name: self.name,
            secret: column("secret").parse(&self.secret)?,
            created_at: column("created_at").time(self.created_at)?,
            expires_at,
            revoked_at,
            last_used_at: time("last_used_at", self.last_used_at)?,
            standing: Standing::at(now, expires_at, revoked_at),
        })
    }
}

/// What an event about nobody's job stands in the log of.
fn about(tenant: Option<TenantId>) -> About {
    About {
        tenant: tenant.unwrap_or(TenantId::LOCAL),
        job: None,
        attempt: None,
    }
}

fn refused(doing: &'static str, why: &str) -> StoreError {
    StoreError::Refused {
        doing,
        source: why.into(),
    }
}

const UNFIT: &str = "no tenant may have that weight, or those bounds";

#[async_trait]
impl AccountStore for SqliteStore {
    async fn create_tenant(
        &self,
        tenant: NewTenant,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError> {
        const DOING: &str = "make the tenant";
        if !is_name(&tenant.name) {
            return Err(refused(DOING, "no tenant may have that name"));
        }
        if !tenant.quotas.may_be_with(tenant.weight) {
            return Err(refused(DOING, UNFIT));
        }
        let mut write = self.database.begin().await?;
        let (id, at) = (tenant.id.as_uuid(), micros(now));
        let taken = sqlx::query_scalar!(
            r#"/* create_tenant */
             SELECT EXISTS (SELECT 1 FROM tenants WHERE tenant_id = ? OR name = ?) AS "taken!: bool""#,
            id,
            tenant.name
        )
        .fetch_one(&mut *write.tx)
        .await
        .map_err(query("look for the tenant"))?;
        if taken {
            return Err(StoreError::TenantExists(tenant.name));
        }
        sqlx::query!(
            "/* create_tenant */
             INSERT INTO tenants (tenant_id, name, weight, created_at, most_in_flight, most_queued)
             VALUES (?, ?, ?, ?, ?, ?)",
            id,
            tenant.name,
            tenant.weight,
            at,
            tenant.quotas.most_in_flight,
            tenant.quotas.most_queued
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let fact = Fact::TenantCreated {
            name: tenant.name,
            weight: tenant.weight,
            most_in_flight: tenant.quotas.most_in_flight,
            most_queued: tenant.quotas.most_queued,
            by,
        };
        audit::record(&mut write.tx, about(Some(tenant.id)), fact, now).await?;
        let made = tenant_of(&mut write.tx, tenant.id).await?;
        write.commit().await?;
        made.ok_or(StoreError::NoSuchTenant(tenant.id))
    }

    async fn change_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError> {
        const DOING: &str = "change the tenant";
        let mut write = self.database.begin().await?;
        let before = tenant_of(&mut write.tx, id).await?;
        let before = before.ok_or(StoreError::NoSuchTenant(id))?;
        let after = change.of(&before);
        if after == before {
            return Ok(after);
        }
        if !after.quotas.may_be_with(after.weight) {
            return Err(refused(DOING, UNFIT));
        }
        let (key, quotas) = (id.as_uuid(), after.quotas);
        sqlx::query!(
            "/* change_tenant */
             UPDATE tenants SET weight = ?, most_in_flight = ?, most_queued = ? WHERE tenant_id = ?",
            after.weight,
            quotas.most_in_flight,
            quotas.most_queued,
            key
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let fact = Fact::TenantChanged {
            weight: after.weight,
            most_in_flight: quotas.most_in_flight,
            most_queued: quotas.most_queued,
            by,
        };
        audit::record(&mut write.tx, about(Some(id)), fact, now).await?;
        write.commit().await?;
        Ok(after)
    }

    async fn find_tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, StoreError> {
        let mut connection = self.database.reader().await?;
        tenant_of(&mut connection, id).await
    }

    async fn find_tenant_by_name(&self, name: &str) -> Result<Option<TenantRecord>, StoreError> {
        sqlx::query_as!(
            TenantRow,
            r#"/* find_tenant_by_name */
             SELECT tenant_id AS "tenant_id!: Uuid", name, weight, most_in_flight, most_queued, created_at
               FROM tenants WHERE name = ?"#,
            name
        )
        .fetch_optional(&self.database.read)
        .await
        .map_err(query("find the tenant"))?
        .map(TenantRecord::try_from)
        .transpose()
    }

    async fn list_tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<TenantRecord>, StoreError> {
        let limit = limit.min(MAX_PAGE);
        // Also the tenant whose id is all zeros, where no other one is named.
        let after = after.map(|id| id.as_uuid());
        sqlx::query_as!(
            TenantRow,
            r#"/* list_tenants */
             SELECT tenant_id AS "tenant_id!: Uuid", name, weight, most_in_flight, most_queued, created_at
               FROM tenants WHERE tenant_id > ifnull(?1, x'') ORDER BY tenant_id LIMIT ?2"#,
            after,
            limit
        )
        .fetch_all(&self.database.read)
        .await
        .map_err(query("list the tenants"))?
        .into_iter()
        .map(TenantRecord::try_from)
        .collect()
    }

    async fn create_key(
        &self,
        key: NewKey,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError> {
        const DOING: &str = "make the key";
        if !is_name(&key.name) {
            return Err(refused(DOING, "no key may have that name"));
        }
        if !key.role.belonging().allows(key.tenant.is_some()) {
            return Err(refused(DOING, "a key of this role belongs to somebody else"));
        }
        let mut write = self.database.begin().await?;
        if let Some(tenant) = key.tenant
            && tenant_of(&mut write.tx, tenant).await?.is_none()
        {
            return Err(StoreError::NoSuchTenant(tenant));
        }
        let (id, tenant) = (key.id.as_uuid(), key.tenant.map(|id| id.as_uuid()));
        let (role, secret) = (key.role.as_str(), key.secret.to_string());
        let (at, expires_at) = (micros(now), key.expires_at.map(micros));
        sqlx::query!(
            "/* create_key */
             INSERT INTO api_keys (key_id, tenant_id, role, name, secret, created_at, expires_at)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
            id,
            tenant,
            role,
            key.name,
            secret,
            at,
            expires_at
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let fact = Fact::KeyCreated {
            key: key.id,
            role: key.role,
            name: key.name,
            expires_at: key.expires_at,
            by,
        };
        audit::record(&mut write.tx, about(key.tenant), fact, now).await?;
        let made = key_of(&mut write.tx, key.id, now).await?;
        write.commit().await?;
        made.ok_or(StoreError::NoSuchKey(key.id))
    }

    async fn find_key(&self, id: KeyId, now: DateTime<Utc>) -> Result<Option<KeyRecord>, StoreError> {
        let mut connection = self.database.reader().await?;
        key_of(&mut connection, id, now).await
    }

    async fn list_keys(
        &self,
        of: KeysOf,
        after: Option<KeyId>,
        limit: u32,
        now: DateTime<Utc>,
    ) -> Result<Vec<KeyRecord>, StoreError> {
        let (after, limit) = (after.map(|id| id.as_uuid()), limit.min(MAX_PAGE));
        // One statement for each filter, so that each has its index.
        let rows = match of {
            KeysOf::All => {
                sqlx::query_as!(
                    KeyRow,
                    r#"/* list_keys */
                     SELECT key_id AS "key_id!: Uuid", tenant_id AS "tenant_id: Uuid", role, name, secret,
                            created_at, expires_at, revoked_at, last_used_at
                       FROM api_keys WHERE key_id > ifnull(?1, x'') ORDER BY key_id LIMIT ?2"#,
                    after,
                    limit
                )
                .fetch_all(&self.database.read)
                .await
            }
            KeysOf::Tenant(tenant) => {
                let tenant = tenant.as_uuid();
                sqlx::query_as!(
                    KeyRow,
                    r#"/* list_keys */
                     SELECT key_id AS "key_id!: Uuid", tenant_id AS "tenant_id: Uuid", role, name, secret,
                            created_at, expires_at, revoked_at, last_used_at
                       FROM api_keys
                      WHERE tenant_id = ?1 AND key_id > ifnull(?2, x'') ORDER BY key_id LIMIT ?3"#,
                    tenant,
                    after,
                    limit
                )
                .fetch_all(&self.database.read)
                .await
            }
        };
        let rows = rows.map_err(query("list the keys"))?;
        rows.into_iter().map(|row| row.record(now)).collect()
    }

    async fn revoke_key(
        &self,
        id: KeyId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError> {
        let mut write = self.database.begin().await?;
        let (key_id, at) = (id.as_uuid(), micros(now));
        let done = sqlx::query!(
            "/* revoke_key */ UPDATE api_keys SET revoked_at = ? WHERE key_id = ? AND revoked_at IS NULL",
            at,
            key_id
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("revoke the key"))?;
        let key = key_of(&mut write.tx, id, now).await?;
        let key = key.ok_or(StoreError::NoSuchKey(id))?;
        if done.rows_affected() == 0 {
            return Ok(key);
        }
        let fact = Fact::KeyRevoked { key: id, by };
        audit::record(&mut write.tx, about(key.tenant), fact, now).await?;
        write.commit().await?;
        Ok(key)
    }

    async fn key_used(&self, id: KeyId, now: DateTime<Utc>) -> Result<(), StoreError> {
        let (key_id, at, stale) = (id.as_uuid(), micros(now), micros(now - LAST_USED_WITHIN));
        let mut write = self.database.begin().await?;
        sqlx::query!(
            "/* key_used */
             UPDATE api_keys SET last_used_at = ?2
              WHERE key_id = ?1 AND (last_used_at IS NULL OR last_used_at <= ?3)",
            key_id,
            at,
            stale
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("note that the key was used"))?;
        write.commit_unnoticed().await
    }
}

async fn tenant_of(
    connection: &mut SqliteConnection,
    id: TenantId,
) -> Result<Option<TenantRecord>, StoreError> {
    let id = id.as_uuid();
    sqlx::query_as!(
        TenantRow,
        r#"/* tenant_of */
         SELECT tenant_id AS "tenant_id!: Uuid", name, weight, most_in_flight, most_queued, created_at
           FROM tenants WHERE tenant_id = ?"#,
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the tenant"))?
    .map(TenantRecord::try_from)
    .transpose()
}

async fn key_of(
    connection: &mut SqliteConnection,
    id: KeyId,
    now: DateTime<Utc>,
) -> Result<Option<KeyRecord>, StoreError> {
    let id = id.as_uuid();
    sqlx::query_as!(
        KeyRow,
        r#"/* key_of */
         SELECT key_id AS "key_id!: Uuid", tenant_id AS "tenant_id: Uuid", role, name, secret, created_at, expires_at,
                revoked_at, last_used_at
           FROM api_keys WHERE key_id = ?"#,
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the key"))?
    .map(|row| row.record(now))
    .transpose()
}
