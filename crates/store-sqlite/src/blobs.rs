//! What travels beside the messages.

use async_trait::async_trait;
use mayfly_core::{digest::Digest, id::AttemptId, job::ResolvedJob};
use mayfly_store::{
    blobs::{BlobOwner, BlobStore},
    error::StoreError,
};

use sqlx::SqliteConnection;

use crate::{SqliteStore, columns::Column, database::query};

fn digest_of(bytes: Vec<u8>) -> Result<Digest, StoreError> {
    let bytes: [u8; 32] = bytes
        .try_into()
        .map_err(|_| Column("output_blobs", "digest").corrupt("it has not 32 bytes"))?;
    Ok(Digest::from_bytes(bytes))
}

/// What is kept of an attempt: its digest and its length.
pub(crate) async fn upload(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
) -> Result<Option<(Digest, u64)>, StoreError> {
    let id = attempt.as_uuid();
    let row = sqlx::query!(
        r#"/* upload */ SELECT digest, length(content) AS "bytes!: i64" FROM output_blobs WHERE attempt_id = ?"#,
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find what the run has left"))?;
    row.map(|row| {
        let bytes = Column("output_blobs", "content").number(row.bytes)?;
        Ok((digest_of(row.digest)?, bytes))
    })
    .transpose()
}

/// What is kept of an attempt, which is over now, is taken out.
pub(crate) async fn take(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
) -> Result<Option<Vec<u8>>, StoreError> {
    let id = attempt.as_uuid();
    sqlx::query_scalar!(
        "/* take */ DELETE FROM output_blobs WHERE attempt_id = ? RETURNING content",
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("remove what the run has left"))
}

#[async_trait]
impl BlobStore for SqliteStore {
    async fn oldest_reader(&self, pool: &str) -> Result<Option<u32>, StoreError> {
        let reads = sqlx::query_scalar!(
            r#"/* oldest_reader */
             SELECT min(reads) AS "reads: i64" FROM sessions WHERE pool = ? AND ended IS NULL"#,
            pool
        )
        .fetch_one(&self.database.read)
        .await
        .map_err(query("look what the pool's sessions read"))?;
        reads
            .map(|reads| Column("sessions", "reads").count(reads))
            .transpose()
    }

    async fn find_input(&self, owner: BlobOwner) -> Result<Option<ResolvedJob>, StoreError> {
        let (tenant, job) = (owner.tenant.as_uuid(), owner.job.as_uuid());
        let attempt = owner.attempt.as_uuid();
        let resolved = sqlx::query_scalar!(
            "/* find_input */
             SELECT c.resolved
               FROM attempts a JOIN jobs j ON j.job_id = a.job_id JOIN job_contents c ON c.job_id = a.job_id
              WHERE a.attempt_id = ? AND j.tenant_id = ? AND a.job_id = ? AND a.state <> 'ended'",
            attempt,
            tenant,
            job
        )
        .fetch_optional(&self.database.read)
        .await
        .map_err(query("find what the job brings"))?;
        resolved
            .map(|text| Column("job_contents", "resolved").json(&text))
            .transpose()
    }
    async fn keep_output(
        &self,
        owner: BlobOwner,
        digest: Digest,
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let (tenant, job) = (owner.tenant.as_uuid(), owner.job.as_uuid());
        let attempt = owner.attempt.as_uuid();
        let mut write = self.database.begin().await?;
        let started = sqlx::query_scalar!(
            r#"/* keep_output */
             SELECT 1 AS "started!: i64" FROM attempts a JOIN jobs j ON j.job_id = a.job_id
              WHERE a.attempt_id = ? AND j.tenant_id = ? AND a.job_id = ? AND a.state = 'started'"#,
            attempt,
            tenant,
            job
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("find the attempt"))?;
        if started.is_none() {
            return Ok(false);
        }
        if let Some((first, _)) = upload(&mut write.tx, owner.attempt).await? {
            return Ok(first == digest);
        }
        let digest = digest.as_bytes().as_slice();
        sqlx::query!(
            "/* keep_output */ INSERT INTO output_blobs (attempt_id, digest, content) VALUES (?, ?, ?)",
            attempt,
            digest,
            content
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("keep the output"))?;
        write.commit_unnoticed().await?;
        Ok(true)
    }
}
