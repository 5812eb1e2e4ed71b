//! Secrets of tenants, as the API's role sees them: no other has a right to the table.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    id::{KeyId, SecretId, TenantId},
    job::SecretName,
};
use mayfly_store::{
    blobs::BlobOwner,
    error::StoreError,
    secrets::{MAX_SEALED_BYTES, MAX_SECRETS, NewSecret, SealedSecret, SecretRecord, SecretStore},
};
use sqlx::types::Uuid;

use crate::{
    PostgresStore,
    audit::Events,
    columns::Column,
    database::{Database, expect_rows, query, refused},
};

fn name_of(text: &str) -> Result<SecretName, StoreError> {
    Column("tenant_secrets", "name").parse(text)
}

async fn set(
    database: &Database,
    secret: NewSecret,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<SecretRecord, StoreError> {
    const DOING: &str = "keep the secret";
    if secret.sealed.len() > MAX_SEALED_BYTES {
        return Err(refused(DOING, "the value is too long".to_owned()));
    }
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(secret.tenant, now).await?;
    let (tenant, name) = (secret.tenant.as_uuid(), secret.name.as_str());
    // Of two that come at once one waits here, so that together they do not exceed the bound.
    sqlx::query!(
        r#"/* set_secret */
         WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS taken)
         SELECT count(*) AS "turn!" FROM turn"#,
        format!("secrets of {tenant}")
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    let others = sqlx::query_scalar!(
        r#"/* set_secret */ SELECT count(*) AS "count!" FROM tenant_secrets WHERE tenant_id = $1 AND name <> $2"#,
        tenant,
        name
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if others >= i64::from(MAX_SECRETS) {
        return Err(refused(DOING, format!("a tenant has at most {MAX_SECRETS}")));
    }
    let done = sqlx::query!(
        "/* set_secret */
         INSERT INTO tenant_secrets (tenant_id, name, value_id, sealed, set_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (tenant_id, name) DO UPDATE
            SET value_id = EXCLUDED.value_id, sealed = EXCLUDED.sealed, set_at = EXCLUDED.set_at",
        tenant,
        name,
        secret.value.as_uuid(),
        secret.sealed,
        now
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, DOING)?;
    let mut events = Events::new(now);
    let fact = Fact::SecretSet {
        name: secret.name.clone(),
        value: secret.value,
        by,
    };
    events.add(secret.tenant, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(SecretRecord {
        name: secret.name,
        value: secret.value,
        set_at: now,
    })
}

async fn remove(
    database: &Database,
    tenant: TenantId,
    name: &SecretName,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(tenant, now).await?;
    let removed = sqlx::query_scalar!(
        "/* remove_secret */ DELETE FROM tenant_secrets WHERE tenant_id = $1 AND name = $2 RETURNING value_id",
        tenant.as_uuid(),
        name.as_str()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("remove the secret"))?;
    let Some(value) = removed else {
        return Ok(false);
    };
    let mut events = Events::new(now);
    let fact = Fact::SecretRemoved {
        name: name.clone(),
        value: SecretId::from_uuid(value),
        by,
    };
    events.add(tenant, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(true)
}

async fn list(database: &Database, tenant: TenantId) -> Result<Vec<SecretRecord>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let rows = sqlx::query!(
        "/* list_secrets */
         SELECT name, value_id, set_at FROM tenant_secrets WHERE tenant_id = $1 ORDER BY name COLLATE \"C\" LIMIT $2",
        tenant.as_uuid(),
        i64::from(MAX_SECRETS)
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("list the secrets"))?;
    let record = |name: String, value: Uuid, set_at| {
        Ok(SecretRecord {
            name: name_of(&name)?,
            value: SecretId::from_uuid(value),
            set_at,
        })
    };
    rows.into_iter()
        .map(|row| record(row.name, row.value_id, row.set_at))
        .collect()
}

async fn give(
    database: &Database,
    owner: BlobOwner,
    names: &[SecretName],
    now: DateTime<Utc>,
) -> Result<Option<Vec<SealedSecret>>, StoreError> {
    const DOING: &str = "give out secrets";
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(owner.tenant, now).await?;
    let is_on = sqlx::query_scalar!(
        r#"/* give_secrets */
         SELECT EXISTS (SELECT 1 FROM attempts
                         WHERE attempt_id = $1 AND tenant_id = $2 AND job_id = $3 AND state <> 'ended') AS "is_on!""#,
        owner.attempt.as_uuid(),
        owner.tenant.as_uuid(),
        owner.job.as_uuid()
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if !is_on {
        return Ok(None);
    }
    let mut wanted: Vec<String> = names.iter().map(|name| name.as_str().to_owned()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let rows = sqlx::query!(
        "/* give_secrets */
         SELECT name, value_id, sealed FROM tenant_secrets WHERE tenant_id = $1 AND name = ANY($2)
          ORDER BY name COLLATE \"C\"",
        owner.tenant.as_uuid(),
        &wanted
    )
    .fetch_all(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if rows.len() != wanted.len() {
        return Ok(None);
    }
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.push(SealedSecret {
            name: name_of(&row.name)?,
            value: SecretId::from_uuid(row.value_id),
            sealed: row.sealed,
        });
    }
    let mut events = Events::new(now);
    let given = found.iter().map(|secret| (secret.name.clone(), secret.value));
    let fact = Fact::SecretsGiven {
        secrets: given.collect(),
    };
    events.add(owner.tenant, Some(owner.job), Some(owner.attempt), fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(Some(found))
}

#[async_trait]
impl SecretStore for PostgresStore {
    async fn set_secret(
        &self,
        secret: NewSecret,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<SecretRecord, StoreError> {
        let call = set(&self.database, secret, by, now);
        self.database.call("keep the secret", call).await
    }

    async fn remove_secret(
        &self,
        tenant: TenantId,
        name: &SecretName,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let call = remove(&self.database, tenant, name, by, now);
        self.database.call("remove the secret", call).await
    }

    async fn list_secrets(&self, tenant: TenantId) -> Result<Vec<SecretRecord>, StoreError> {
        let call = list(&self.database, tenant);
        self.database.call("list the secrets", call).await
    }

    async fn give_secrets(
        &self,
        owner: BlobOwner,
        names: &[SecretName],
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<SealedSecret>>, StoreError> {
        let call = give(&self.database, owner, names, now);
        self.database.call("give out secrets", call).await
    }
}
