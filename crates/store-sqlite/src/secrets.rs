//! Secrets of tenants.

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
    SqliteStore,
    audit::{self, About},
    batches::refused,
    columns::{Column, micros},
    database::query,
};

fn name_of(text: &str) -> Result<SecretName, StoreError> {
    Column("tenant_secrets", "name").parse(text)
}

const fn about(tenant: TenantId) -> About {
    About {
        tenant,
        job: None,
        attempt: None,
    }
}

#[async_trait]
impl SecretStore for SqliteStore {
    async fn set_secret(
        &self,
        secret: NewSecret,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<SecretRecord, StoreError> {
        const DOING: &str = "keep the secret";
        if secret.sealed.len() > MAX_SEALED_BYTES {
            return Err(refused(DOING, "the value is too long".to_owned()));
        }
        let (tenant, name) = (secret.tenant.as_uuid(), secret.name.as_str());
        let (value, at) = (secret.value.as_uuid(), micros(now));
        let mut write = self.database.begin().await?;
        let others = sqlx::query_scalar!(
            r#"/* set_secret */
             SELECT count(*) AS "count!: i64" FROM tenant_secrets WHERE tenant_id = ? AND name <> ?"#,
            tenant,
            name
        )
        .fetch_one(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        if others >= i64::from(MAX_SECRETS) {
            return Err(refused(DOING, format!("a tenant has at most {MAX_SECRETS}")));
        }
        sqlx::query!(
            "/* set_secret */
             INSERT INTO tenant_secrets (tenant_id, name, value_id, sealed, set_at) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (tenant_id, name) DO UPDATE
                SET value_id = excluded.value_id, sealed = excluded.sealed, set_at = excluded.set_at",
            tenant,
            name,
            value,
            secret.sealed,
            at
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let fact = Fact::SecretSet {
            name: secret.name.clone(),
            value: secret.value,
            by,
        };
        audit::record(&mut write.tx, about(secret.tenant), fact, now).await?;
        write.commit().await?;
        Ok(SecretRecord {
            name: secret.name,
            value: secret.value,
            set_at: Column("tenant_secrets", "set_at").time(at)?,
        })
    }

    async fn remove_secret(
        &self,
        tenant: TenantId,
        name: &SecretName,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let (id, text) = (tenant.as_uuid(), name.as_str());
        let mut write = self.database.begin().await?;
        let removed = sqlx::query_scalar!(
            r#"/* remove_secret */
             DELETE FROM tenant_secrets WHERE tenant_id = ? AND name = ? RETURNING value_id AS "value_id: Uuid""#,
            id,
            text
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("remove the secret"))?;
        let Some(value) = removed else {
            return Ok(false);
        };
        let fact = Fact::SecretRemoved {
            name: name.clone(),
            value: SecretId::from_uuid(value),
            by,
        };
        audit::record(&mut write.tx, about(tenant), fact, now).await?;
        write.commit().await?;
        Ok(true)
    }

    async fn list_secrets(&self, tenant: TenantId) -> Result<Vec<SecretRecord>, StoreError> {
        let (id, most) = (tenant.as_uuid(), i64::from(MAX_SECRETS));
        let rows = sqlx::query!(
            r#"/* list_secrets */
             SELECT name, value_id AS "value_id: Uuid", set_at FROM tenant_secrets
              WHERE tenant_id = ? ORDER BY name LIMIT ?"#,
            id,
            most
        )
        .fetch_all(&self.database.read)
        .await
        .map_err(query("list the secrets"))?;
        let record = |name: String, value: Uuid, set_at| {
            Ok(SecretRecord {
                name: name_of(&name)?,
                value: SecretId::from_uuid(value),
                set_at: Column("tenant_secrets", "set_at").time(set_at)?,
            })
        };
        rows.into_iter()
            .map(|row| record(row.name, row.value_id, row.set_at))
            .collect()
    }

    async fn give_secrets(
        &self,
        owner: BlobOwner,
        names: &[SecretName],
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<SealedSecret>>, StoreError> {
        const DOING: &str = "give out secrets";
        let (tenant, job) = (owner.tenant.as_uuid(), owner.job.as_uuid());
        let attempt = owner.attempt.as_uuid();
        let mut write = self.database.begin().await?;
        let is_on = sqlx::query_scalar!(
            r#"/* give_secrets */
             SELECT EXISTS (SELECT 1 FROM attempts a JOIN jobs j ON j.job_id = a.job_id
                             WHERE a.attempt_id = ? AND j.tenant_id = ? AND a.job_id = ? AND a.state <> 'ended')
                 AS "is_on!: bool""#,
            attempt,
            tenant,
            job
        )
        .fetch_one(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        if !is_on {
            return Ok(None);
        }
        let mut wanted: Vec<&SecretName> = names.iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Vec::with_capacity(wanted.len());
        for name in wanted {
            let text = name.as_str();
            let row = sqlx::query!(
                r#"/* give_secrets */
                 SELECT value_id AS "value_id: Uuid", sealed FROM tenant_secrets WHERE tenant_id = ? AND name = ?"#,
                tenant,
                text
            )
            .fetch_optional(&mut *write.tx)
            .await
            .map_err(query(DOING))?;
            let Some(row) = row else {
                return Ok(None);
            };
            found.push(SealedSecret {
                name: name.clone(),
                value: SecretId::from_uuid(row.value_id),
                sealed: row.sealed,
            });
        }
        let given = found.iter().map(|secret| (secret.name.clone(), secret.value));
        let fact = Fact::SecretsGiven {
            secrets: given.collect(),
        };
        let about = About {
            tenant: owner.tenant,
            job: Some(owner.job),
            attempt: Some(owner.attempt),
        };
        audit::record(&mut write.tx, about, fact, now).await?;
        write.commit().await?;
        Ok(Some(found))
    }
}
