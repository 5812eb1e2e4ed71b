//! Idempotency keys: what a submission is known by, for a time.

use std::collections::{BTreeMap, btree_map::Entry};

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{JobId, TenantId},
};
use mayfly_store::{
    error::StoreError,
    records::{IDEMPOTENCY_KEPT, NewJob},
};
use sqlx::PgConnection;

use crate::{
    columns::Column,
    database::{expect_rows, query},
};

/// What keys stand for.
#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<Digest, JobId>);

impl Keys {
    /// The job that a submission has made before, where its key is known.
    pub(crate) fn find(&self, job: &NewJob) -> Option<JobId> {
        let known = self.0.get(&job.idempotency.as_ref()?.name())?;
        (*known != job.id).then_some(*known)
    }
}

/// Keeps the keys of a tenant's jobs for as long as the transaction lasts at least, in place of what they stood for a long
/// time ago. Whoever submits under one of them meanwhile waits until this has ended.
pub(crate) async fn keep(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[&NewJob],
    now: DateTime<Utc>,
) -> Result<Keys, StoreError> {
    // In their order, so that two calls never wait for each other; of two in one call the first stands.
    let mut wanted: BTreeMap<Digest, (Digest, JobId)> = BTreeMap::new();
    for (job, key) in jobs
        .iter()
        .filter_map(|job| Some((job, job.idempotency.as_ref()?)))
    {
        match wanted.entry(key.name()) {
            Entry::Vacant(free) => {
                free.insert((key.commitment(), job.id));
            }
            Entry::Occupied(taken) if taken.get().0 == key.commitment() => {}
            Entry::Occupied(taken) => return Err(StoreError::KeyConflict(taken.get().1)),
        }
    }
    if wanted.is_empty() {
        return Ok(Keys::default());
    }
    forget_old(connection, tenant, now, wanted.len()).await?;
    let names: Vec<_> = wanted.keys().map(Digest::to_string).collect();
    let bodies: Vec<_> = wanted.values().map(|(body, _)| body.to_string()).collect();
    let ids: Vec<_> = wanted.values().map(|(_, job)| job.as_uuid()).collect();
    sqlx::query!(
        "/* keep */
         INSERT INTO idempotency_keys (tenant_id, key, body, job_id, expires_at)
         SELECT $1, u.key, u.body, u.job_id, $2
           FROM unnest($3::text[], $4::text[], $5::uuid[]) AS u (key, body, job_id)
         ON CONFLICT (tenant_id, key) DO UPDATE
            SET body = excluded.body, job_id = excluded.job_id, expires_at = excluded.expires_at
          WHERE idempotency_keys.expires_at <= $6",
        tenant.as_uuid(),
        now + IDEMPOTENCY_KEPT,
        &names,
        &bodies,
        &ids,
        now
    )
    .execute(&mut *connection)
    .await
    .map_err(query("keep the idempotency keys"))?;
    let rows = sqlx::query!(
        "/* keep */
         SELECT k.key, k.body, k.job_id
           FROM unnest($2::text[]) AS u (key) JOIN idempotency_keys k ON k.tenant_id = $1 AND k.key = u.key",
        tenant.as_uuid(),
        &names
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the idempotency keys"))?;
    let column = |name| Column("idempotency_keys", name);
    let mut known = BTreeMap::new();
    for row in rows {
        let (name, job) = (column("key").parse(&row.key)?, JobId::from_uuid(row.job_id));
        let body: Digest = column("body").parse(&row.body)?;
        if wanted.get(&name).is_some_and(|(wanted, _)| *wanted != body) {
            return Err(StoreError::KeyConflict(job));
        }
        known.insert(name, job);
    }
    Ok(Keys(known))
}

/// Each key that is kept removes up to two that are of no use any more, so that there are never many of those. What
/// somebody else holds is left to him.
async fn forget_old(
    connection: &mut PgConnection,
    tenant: TenantId,
    now: DateTime<Utc>,
    kept: usize,
) -> Result<(), StoreError> {
    sqlx::query!(
        "/* forget_old */
         DELETE FROM idempotency_keys k
          USING unnest(ARRAY(SELECT o.key FROM idempotency_keys o WHERE o.tenant_id = $1 AND o.expires_at <= $2
                              ORDER BY o.expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)) AS old (key)
          WHERE k.tenant_id = $1 AND k.key = old.key",
        tenant.as_uuid(),
        now,
        i64::try_from(kept).unwrap_or(i64::MAX).saturating_mul(2)
    )
    .execute(connection)
    .await
    .map_err(query("remove idempotency keys of old"))?;
    Ok(())
}

/// Gives back the keys of jobs that turn out not to be accepted.
pub(crate) async fn give_back(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: &[&NewJob],
) -> Result<(), StoreError> {
    let names: Vec<_> = jobs
        .iter()
        .filter_map(|job| job.idempotency.as_ref())
        .map(|key| key.name().to_string())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* give_back */
         DELETE FROM idempotency_keys k USING unnest($2::text[]) AS u (key) WHERE k.tenant_id = $1 AND k.key = u.key",
        tenant.as_uuid(),
        &names
    );
    let done = done.execute(connection).await;
    expect_rows(done, names.len(), "give back the idempotency keys")
}
