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
use sqlx::{PgConnection, types::Uuid};

use crate::{
    PostgresStore,
    audit::Events,
    columns::Column,
    database::{Database, Write, expect_rows, query, refused},
};

struct TenantRow {
    tenant_id: Uuid,
    name: String,
    weight: i64,
    most_in_flight: Option<i64>,
    most_queued: Option<i64>,
    created_at: DateTime<Utc>,
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
            created_at: row.created_at,
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
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl KeyRow {
    fn record(self, now: DateTime<Utc>) -> Result<KeyRecord, StoreError> {
        let column = |name| Column("api_keys", name);
        Ok(KeyRecord {
            id: KeyId::from_uuid(self.key_id),
            tenant: self.tenant_id.map(TenantId::from_uuid),
            role: column("role").parse(&self.role)?,
            name: self.name,
            secret: column("secret").parse(&self.secret)?,
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
            standing: Standing::at(now, self.expires_at, self.revoked_at),
        })
    }
}

/// In whose log an event stands that is about nobody's job.
fn log_of(tenant: Option<TenantId>) -> TenantId {
    tenant.unwrap_or(TenantId::LOCAL)
}

/// Writes the event of a change.
async fn record(
    write: &mut Write<'_>,
    tenant: TenantId,
    fact: Fact,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut events = Events::new(now);
    events.add(tenant, None, None, fact);
    events.write(&mut write.tx).await
}

/// The least id behind one, the all-zero one where there is none; nothing where there can be none.
fn behind(id: Option<Uuid>) -> Option<Uuid> {
    match id {
        Some(id) => id.as_u128().checked_add(1).map(Uuid::from_u128),
        None => Some(Uuid::nil()),
    }
}

const UNFIT: &str = "no tenant may have that weight, or those bounds";

async fn create_tenant(
    database: &Database,
    tenant: NewTenant,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<TenantRecord, StoreError> {
    const DOING: &str = "make the tenant";
    if !is_name(&tenant.name) {
        return Err(refused(DOING, "no tenant may have that name".to_owned()));
    }
    if !tenant.quotas.may_be_with(tenant.weight) {
        return Err(refused(DOING, UNFIT.to_owned()));
    }
    let (mut write, now) = database.begin_on_accounts(tenant.id, now).await?;
    let done = sqlx::query!(
        "/* create_tenant */
         INSERT INTO tenants (tenant_id, name, weight, created_at, most_in_flight, most_queued)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        tenant.id.as_uuid(),
        tenant.name,
        i64::from(tenant.weight),
        now,
        tenant.quotas.most_in_flight.map(i64::from),
        tenant.quotas.most_queued.map(i64::from)
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if done.rows_affected() == 0 {
        return Err(StoreError::TenantExists(tenant.name));
    }
    let fact = Fact::TenantCreated {
        name: tenant.name,
        weight: tenant.weight,
        most_in_flight: tenant.quotas.most_in_flight,
        most_queued: tenant.quotas.most_queued,
        by,
    };
    record(&mut write, tenant.id, fact, now).await?;
    let made = tenant_of(&mut write.tx, tenant.id).await?;
    write.commit().await?;
    made.ok_or(StoreError::NoSuchTenant(tenant.id))
}

async fn change_tenant(
    database: &Database,
    id: TenantId,
    change: TenantChange,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<TenantRecord, StoreError> {
    const DOING: &str = "change the tenant";
    let (mut write, now) = database.begin_on_accounts(id, now).await?;
    let before = sqlx::query_as!(
        TenantRow,
        "/* change_tenant */
         SELECT tenant_id, name, weight, most_in_flight, most_queued, created_at
           FROM tenants WHERE tenant_id = $1 FOR UPDATE",
        id.as_uuid()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    let before = TenantRecord::try_from(before.ok_or(StoreError::NoSuchTenant(id))?)?;
    let after = change.of(&before);
    if after == before {
        return Ok(after);
    }
    if !after.quotas.may_be_with(after.weight) {
        return Err(refused(DOING, UNFIT.to_owned()));
    }
    let quotas = after.quotas;
    let done = sqlx::query!(
        "/* change_tenant */
         UPDATE tenants SET weight = $2, most_in_flight = $3, most_queued = $4 WHERE tenant_id = $1",
        id.as_uuid(),
        i64::from(after.weight),
        quotas.most_in_flight.map(i64::from),
        quotas.most_queued.map(i64::from)
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, DOING)?;
    let fact = Fact::TenantChanged {
        weight: after.weight,
        most_in_flight: quotas.most_in_flight,
        most_queued: quotas.most_queued,
        by,
    };
    record(&mut write, id, fact, now).await?;
    write.commit().await?;
    Ok(after)
}

async fn find_tenant_by_name(database: &Database, name: &str) -> Result<Option<TenantRecord>, StoreError> {
    let (mut write, _) = database
        .begin_on_accounts(TenantId::LOCAL, DateTime::UNIX_EPOCH)
        .await?;
    sqlx::query_as!(
        TenantRow,
        "/* find_tenant_by_name */
         SELECT tenant_id, name, weight, most_in_flight, most_queued, created_at FROM tenants WHERE name = $1",
        name
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("find the tenant"))?
    .map(TenantRecord::try_from)
    .transpose()
}

async fn list_tenants(
    database: &Database,
    after: Option<TenantId>,
    limit: u32,
) -> Result<Vec<TenantRecord>, StoreError> {
    let Some(from) = behind(after.map(|id| id.as_uuid())) else {
        return Ok(Vec::new());
    };
    let (mut write, _) = database
        .begin_on_accounts(TenantId::LOCAL, DateTime::UNIX_EPOCH)
        .await?;
    sqlx::query_as!(
        TenantRow,
        "/* list_tenants */
         SELECT tenant_id, name, weight, most_in_flight, most_queued, created_at
           FROM tenants WHERE tenant_id >= $1 ORDER BY tenant_id LIMIT $2",
        from,
        i64::from(limit.min(MAX_PAGE))
    )
    .fetch_all(&mut *write.tx)
    .await
    .map_err(query("list the tenants"))?
    .into_iter()
    .map(TenantRecord::try_from)
    .collect()
}

async fn create_key(
    database: &Database,
    key: NewKey,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<KeyRecord, StoreError> {
    const DOING: &str = "make the key";
    if !is_name(&key.name) {
        return Err(refused(DOING, "no key may have that name".to_owned()));
    }
    if !key.role.belonging().allows(key.tenant.is_some()) {
        return Err(refused(
            DOING,
            "a key of this role belongs to somebody else".to_owned(),
        ));
    }
    let (mut write, now) = database.begin_on_accounts(log_of(key.tenant), now).await?;
    if let Some(tenant) = key.tenant
        && tenant_of(&mut write.tx, tenant).await?.is_none()
    {
        return Err(StoreError::NoSuchTenant(tenant));
    }
    let done = sqlx::query!(
        "/* create_key */
         INSERT INTO api_keys (key_id, tenant_id, role, name, secret, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        key.id.as_uuid(),
        key.tenant.map(|id| id.as_uuid()),
        key.role.as_str(),
        key.name,
        key.secret.to_string(),
        now,
        key.expires_at
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, DOING)?;
    let fact = Fact::KeyCreated {
        key: key.id,
        role: key.role,
        name: key.name,
        expires_at: key.expires_at,
        by,
    };
    record(&mut write, log_of(key.tenant), fact, now).await?;
    let made = key_of(&mut write.tx, key.id, now).await?;
    write.commit().await?;
    made.ok_or(StoreError::NoSuchKey(key.id))
}

async fn list_keys(
    database: &Database,
    of: KeysOf,
    after: Option<KeyId>,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<KeyRecord>, StoreError> {
    let Some(from) = behind(after.map(|id| id.as_uuid())) else {
        return Ok(Vec::new());
    };
    let limit = i64::from(limit.min(MAX_PAGE));
    let (mut write, now) = database.begin_on_accounts(TenantId::LOCAL, now).await?;
    // One statement for each filter, so that each has its index.
    let rows = match of {
        KeysOf::All => {
            sqlx::query_as!(
                KeyRow,
                "/* list_keys */
                 SELECT key_id, tenant_id, role, name, secret, created_at, expires_at, revoked_at, last_used_at
                   FROM api_keys WHERE key_id >= $1 ORDER BY key_id LIMIT $2",
                from,
                limit
            )
            .fetch_all(&mut *write.tx)
            .await
        }
        KeysOf::Tenant(tenant) => {
            sqlx::query_as!(
                KeyRow,
                "/* list_keys */
                 SELECT key_id, tenant_id, role, name, secret, created_at, expires_at, revoked_at, last_used_at
                   FROM api_keys WHERE tenant_id = $1 AND key_id >= $2 ORDER BY key_id LIMIT $3",
                tenant.as_uuid(),
                from,
                limit
            )
            .fetch_all(&mut *write.tx)
            .await
        }
    };
    let rows = rows.map_err(query("list the keys"))?;
    rows.into_iter().map(|row| row.record(now)).collect()
}

async fn revoke_key(
    database: &Database,
    id: KeyId,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<KeyRecord, StoreError> {
    let (mut write, now) = database.begin_on_accounts(TenantId::LOCAL, now).await?;
    let done = sqlx::query!(
        "/* revoke_key */ UPDATE api_keys SET revoked_at = $2 WHERE key_id = $1 AND revoked_at IS NULL",
        id.as_uuid(),
        now
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("revoke the key"))?;
    let key = key_of(&mut write.tx, id, now).await?;
    let key = key.ok_or(StoreError::NoSuchKey(id))?;
    if done.rows_affected() == 0 {
        return Ok(key);
    }
    // Whose it is was not known before, and it is his log that this stands in.
    let log = log_of(key.tenant);
    write.act_for(log, now).await?;
    record(&mut write, log, Fact::KeyRevoked { key: id, by }, now).await?;
    write.commit().await?;
    Ok(key)
}

async fn key_used(database: &Database, id: KeyId, now: DateTime<Utc>) -> Result<(), StoreError> {
    let (mut write, now) = database.begin_on_accounts(TenantId::LOCAL, now).await?;
    sqlx::query!(
        "/* key_used */
         UPDATE api_keys SET last_used_at = $2 WHERE key_id = $1 AND (last_used_at IS NULL OR last_used_at <= $3)",
        id.as_uuid(),
        now,
        now - LAST_USED_WITHIN
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("note that the key was used"))?;
    write.commit_quietly().await
}

async fn tenant_of(connection: &mut PgConnection, id: TenantId) -> Result<Option<TenantRecord>, StoreError> {
    sqlx::query_as!(
        TenantRow,
        "/* tenant_of */
         SELECT tenant_id, name, weight, most_in_flight, most_queued, created_at FROM tenants WHERE tenant_id = $1",
        id.as_uuid()
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the tenant"))?
    .map(TenantRecord::try_from)
    .transpose()
}

async fn key_of(
    connection: &mut PgConnection,
    id: KeyId,
    now: DateTime<Utc>,
) -> Result<Option<KeyRecord>, StoreError> {
    sqlx::query_as!(
        KeyRow,
        "/* key_of */
         SELECT key_id, tenant_id, role, name, secret, created_at, expires_at, revoked_at, last_used_at
           FROM api_keys WHERE key_id = $1",
        id.as_uuid()
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the key"))?
    .map(|row| row.record(now))
    .transpose()
}

#[async_trait]
impl AccountStore for PostgresStore {
    async fn create_tenant(
        &self,
        tenant: NewTenant,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError> {
        let call = create_tenant(&self.database, tenant, by, now);
        self.database.call("make the tenant", call).await
    }

    async fn change_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<TenantRecord, StoreError> {
        let call = change_tenant(&self.database, id, change, by, now);
        self.database.call("change the tenant", call).await
    }

    async fn find_tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, StoreError> {
        let call = async {
            let begun = self
                .database
                .begin_on_accounts(TenantId::LOCAL, DateTime::UNIX_EPOCH);
            tenant_of(&mut begun.await?.0.tx, id).await
        };
        self.database.call("find the tenant", call).await
    }

    async fn find_tenant_by_name(&self, name: &str) -> Result<Option<TenantRecord>, StoreError> {
        let call = find_tenant_by_name(&self.database, name);
        self.database.call("find the tenant", call).await
    }

    async fn list_tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<TenantRecord>, StoreError> {
        let call = list_tenants(&self.database, after, limit);
        self.database.call("list the tenants", call).await
    }

    async fn create_key(
        &self,
        key: NewKey,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError> {
        let call = create_key(&self.database, key, by, now);
        self.database.call("make the key", call).await
    }

    async fn find_key(&self, id: KeyId, now: DateTime<Utc>) -> Result<Option<KeyRecord>, StoreError> {
        let call = async {
            let begun = self.database.begin_on_accounts(TenantId::LOCAL, now);
            let (mut write, now) = begun.await?;
            key_of(&mut write.tx, id, now).await
        };
        self.database.call("find the key", call).await
    }

    async fn list_keys(
        &self,
        of: KeysOf,
        after: Option<KeyId>,
        limit: u32,
        now: DateTime<Utc>,
    ) -> Result<Vec<KeyRecord>, StoreError> {
        let call = list_keys(&self.database, of, after, limit, now);
        self.database.call("list the keys", call).await
    }

    async fn revoke_key(
        &self,
        id: KeyId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<KeyRecord, StoreError> {
        let call = revoke_key(&self.database, id, by, now);
        self.database.call("revoke the key", call).await
    }

    async fn key_used(&self, id: KeyId, now: DateTime<Utc>) -> Result<(), StoreError> {
        let call = key_used(&self.database, id, now);
        self.database.call("note that the key was used", call).await
    }
}
