//! Idempotency keys: what a submission is known by, for a time.

use chrono::{DateTime, Utc};
use mayfly_core::id::{JobId, TenantId};
use mayfly_store::{
    error::StoreError,
    records::{IDEMPOTENCY_KEPT, Idempotency, NewJob},
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    columns::{Column, micros},
    database::query,
};

/// The job that a submission has made before, where its key is known.
pub(crate) async fn find(
    connection: &mut SqliteConnection,
    job: &NewJob,
    now: DateTime<Utc>,
) -> Result<Option<JobId>, StoreError> {
    let Some(key) = &job.idempotency else {
        return Ok(None);
    };
    let (tenant, name, now) = (job.tenant.as_uuid(), key.name().to_string(), micros(now));
    let found = sqlx::query!(
        r#"/* find */
         SELECT body, job_id AS "job_id!: Uuid" FROM idempotency_keys
          WHERE tenant_id = ? AND key = ? AND expires_at > ?"#,
        tenant,
        name,
        now
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the idempotency key"))?;
    let Some(row) = found else { return Ok(None) };
    let body = Column("idempotency_keys", "body").parse(&row.body)?;
    let job = JobId::from_uuid(row.job_id);
    if key.commitment() == body {
        Ok(Some(job))
    } else {
        Err(StoreError::KeyConflict(job))
    }
}

/// Keeps the key of a job that is accepted, in place of what it stood for a long time ago. Each that is kept removes up
/// to two that are of no use any more, so that there are never many of those.
pub(crate) async fn keep(
    connection: &mut SqliteConnection,
    (tenant, job): (TenantId, JobId),
    key: &Idempotency,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (tenant, job) = (tenant.as_uuid(), job.as_uuid());
    let (name, body) = (key.name().to_string(), key.commitment().to_string());
    let (at, expires_at) = (micros(now), micros(now + IDEMPOTENCY_KEPT));
    sqlx::query!(
        "/* keep */
         DELETE FROM idempotency_keys
          WHERE (tenant_id, key) IN (SELECT tenant_id, key FROM idempotency_keys
                                      WHERE expires_at <= ? ORDER BY expires_at LIMIT 2)",
        at
    )
    .execute(&mut *connection)
    .await
    .map_err(query("remove idempotency keys of old"))?;
    sqlx::query!(
        "/* keep */
         INSERT INTO idempotency_keys (tenant_id, key, body, job_id, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (tenant_id, key) DO UPDATE
            SET body = excluded.body, job_id = excluded.job_id, expires_at = excluded.expires_at",
        tenant,
        name,
        body,
        job,
        expires_at
    )
    .execute(connection)
    .await
    .map_err(query("keep the idempotency key"))?;
    Ok(())
}
