//! What jobs have of uploads: noted by the API's role, fetched for executors by the engine's.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{digest::Digest, id::TenantId};
use mayfly_store::{
    blobs::{BlobOwner, PieceAt},
    error::StoreError,
    records::NewJob,
};
use sqlx::PgConnection;

use crate::{
    blobs::column,
    database::{Database, query},
};

pub(crate) async fn find(
    database: &Database,
    owner: BlobOwner,
    at: PieceAt,
) -> Result<Option<Vec<u8>>, StoreError> {
    sqlx::query_scalar!(
        "/* find_fetched */
         SELECT p.content
           FROM attempts a
           JOIN job_fetches f ON f.tenant_id = a.tenant_id AND f.job_id = a.job_id
           JOIN upload_pieces p ON p.upload_id = f.upload_id AND p.tenant_id = f.tenant_id
          WHERE a.attempt_id = $1 AND a.tenant_id = $2 AND a.job_id = $3 AND a.state <> 'ended'
            AND f.file = $4 AND p.piece = $5",
        owner.attempt.as_uuid(),
        owner.tenant.as_uuid(),
        owner.job.as_uuid(),
        column(at.file),
        column(at.piece)
    )
    .fetch_optional(&database.engine)
    .await
    .map_err(query("find a piece of a file that a job fetches"))
}

/// What jobs that are accepted have of uploads, which are used now.
pub(crate) async fn fetch_for(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: impl Iterator<Item = &NewJob>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    const DOING: &str = "note which uploads the jobs have";
    let (mut ids, mut files, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        for (number, file) in (0..).zip(&job.resolved.fetched) {
            ids.push(job.id.as_uuid());
            files.push(column(number));
            digests.push(file.digest);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    let bytes: Vec<_> = digests
        .iter()
        .map(|digest| digest.as_bytes().as_slice())
        .collect();
    let rows = sqlx::query_scalar!(
        "/* fetch_for */
         INSERT INTO job_fetches (tenant_id, job_id, file, upload_id)
         SELECT $1, n.job_id, n.file, u.upload_id
           FROM unnest($2::uuid[], $3::integer[], $4::bytea[]) AS n (job_id, file, digest)
           JOIN uploads u ON u.tenant_id = $1 AND u.digest = n.digest AND u.kept_at IS NOT NULL
         RETURNING upload_id",
        tenant.as_uuid(),
        &ids,
        &files,
        &bytes as &[&[u8]]
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(query(DOING))?;
    if rows.len() != ids.len() {
        return Err(StoreError::NoSuchUpload(
            missing(connection, tenant, &digests).await?,
        ));
    }
    // To the minute, and never after waiting for another who says the same: many jobs may have one upload.
    sqlx::query!(
        "/* fetch_for */
         WITH due AS (SELECT upload_id FROM uploads
                       WHERE upload_id = ANY ($1) AND used_at < $2::timestamptz - interval '1 minute'
                         FOR NO KEY UPDATE SKIP LOCKED)
         UPDATE uploads SET used_at = $2 WHERE upload_id IN (SELECT upload_id FROM due)",
        &rows,
        now
    )
    .execute(connection)
    .await
    .map_err(query(DOING))?;
    Ok(())
}

/// The first of these that is not there.
async fn missing(
    connection: &mut PgConnection,
    tenant: TenantId,
    digests: &[Digest],
) -> Result<Digest, StoreError> {
    let all: BTreeMap<&[u8], Digest> = digests
        .iter()
        .map(|digest| (digest.as_bytes().as_slice(), *digest))
        .collect();
    let asked: Vec<_> = all.keys().copied().collect();
    let there = sqlx::query_scalar!(
        "/* fetch_for */ SELECT digest FROM uploads WHERE tenant_id = $1 AND digest = ANY ($2) AND kept_at IS NOT NULL",
        tenant.as_uuid(),
        &asked as &[&[u8]]
    )
    .fetch_all(connection)
    .await
    .map_err(query("look which upload is gone"))?;
    let gone = all
        .iter()
        .find(|(bytes, _)| !there.iter().any(|one| one == *bytes));
    // One that has come meanwhile was not there when it was asked for.
    Ok(gone.map_or_else(|| digests[0], |(_, digest)| *digest))
}
