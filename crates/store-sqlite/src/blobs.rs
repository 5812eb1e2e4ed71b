//! What travels beside the messages.

use async_trait::async_trait;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, TenantId},
    job::ResolvedJob,
};
use mayfly_dispatch::ledger::Pieces;
use mayfly_store::{
    blobs::{BlobOwner, BlobStore, PieceAt},
    error::StoreError,
};

use sqlx::SqliteConnection;

use crate::{
    SqliteStore,
    columns::{Column, bigint, json},
    database::{Database, query},
};

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
        Ok((Column("output_blobs", "digest").digest(row.digest)?, bytes))
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
        let attempt = owner.attempt.as_uuid();
        let mut write = self.database.begin().await?;
        if !started(&mut write.tx, owner).await? {
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

    async fn keep_piece(
        &self,
        owner: BlobOwner,
        at: PieceAt,
        digest: Digest,
        content: &[u8],
        most: u64,
    ) -> Result<bool, StoreError> {
        let mut write = self.database.begin().await?;
        if !started(&mut write.tx, owner).await? {
            return Ok(false);
        }
        let attempt = owner.attempt.as_uuid();
        let first = sqlx::query_scalar!(
            "/* keep_piece */ SELECT digest FROM artifact_pieces WHERE attempt_id = ? AND file = ? AND piece = ?",
            attempt,
            at.file,
            at.piece
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("find the piece"))?;
        let digest = digest.as_bytes().as_slice();
        if let Some(first) = first {
            return Ok(first == digest);
        }
        let (bytes, most) = (bigint(content.len() as u64), bigint(most));
        let kept = sqlx::query!(
            "/* keep_piece */
             INSERT INTO artifact_pieces (attempt_id, file, piece, digest, bytes, content)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6
              WHERE (SELECT coalesce(sum(bytes), 0) FROM artifact_pieces WHERE attempt_id = ?1) + ?5 <= ?7",
            attempt,
            at.file,
            at.piece,
            digest,
            bytes,
            content,
            most
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("keep the piece"))?;
        if kept.rows_affected() == 0 {
            return Ok(false);
        }
        write.commit_unnoticed().await?;
        Ok(true)
    }
}

/// Whether there is such an attempt, and it has started and is not over.
async fn started(connection: &mut SqliteConnection, owner: BlobOwner) -> Result<bool, StoreError> {
    let (tenant, job) = (owner.tenant.as_uuid(), owner.job.as_uuid());
    let attempt = owner.attempt.as_uuid();
    let started = sqlx::query_scalar!(
        r#"/* started */
         SELECT 1 AS "started!: i64" FROM attempts a JOIN jobs j ON j.job_id = a.job_id
          WHERE a.attempt_id = ? AND j.tenant_id = ? AND a.job_id = ? AND a.state = 'started'"#,
        attempt,
        tenant,
        job
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the attempt"))?;
    Ok(started.is_some())
}

/// What is kept of an attempt's files, by their numbers. One with a piece missing between others is no file.
pub(crate) async fn files(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
) -> Result<Vec<(u32, Pieces)>, StoreError> {
    let id = attempt.as_uuid();
    let rows = sqlx::query!(
        r#"/* files */
         SELECT file AS "file!: i64", count(*) AS "count!: i64", sum(bytes) AS "bytes!: i64", max(piece) AS "last!: i64"
           FROM artifact_pieces WHERE attempt_id = ? GROUP BY file"#,
        id
    )
    .fetch_all(connection)
    .await
    .map_err(query("find what the run has left of its files"))?;
    let whole = rows.into_iter().filter(|row| row.last + 1 == row.count);
    whole
        .map(|row| {
            let stored = |name, number| Column("artifact_pieces", name).number(number);
            let pieces = Pieces {
                count: stored("piece", row.count)?,
                bytes: stored("bytes", row.bytes)?,
            };
            Ok((Column("artifact_pieces", "file").count(row.file)?, pieces))
        })
        .collect()
}

/// Of an attempt that is over now, every piece goes that is of none of these files.
pub(crate) async fn keep_alone(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
    files: &[u32],
) -> Result<(), StoreError> {
    let (id, files) = (attempt.as_uuid(), json(&files));
    sqlx::query!(
        "/* keep_alone */
         DELETE FROM artifact_pieces WHERE attempt_id = ? AND file NOT IN (SELECT value FROM json_each(?))",
        id,
        files
    )
    .execute(connection)
    .await
    .map_err(query("remove what the run has left of its files"))?;
    Ok(())
}

pub(crate) async fn find_piece(
    database: &Database,
    tenant: TenantId,
    attempt: AttemptId,
    at: PieceAt,
) -> Result<Option<Vec<u8>>, StoreError> {
    let (tenant, attempt) = (tenant.as_uuid(), attempt.as_uuid());
    sqlx::query_scalar!(
        "/* find_piece */
         SELECT p.content
           FROM artifact_pieces p JOIN attempts a ON a.attempt_id = p.attempt_id JOIN jobs j ON j.job_id = a.job_id
          WHERE p.attempt_id = ? AND j.tenant_id = ? AND p.file = ? AND p.piece = ?",
        attempt,
        tenant,
        at.file,
        at.piece
    )
    .fetch_optional(&database.read)
    .await
    .map_err(query("find the piece"))
}
