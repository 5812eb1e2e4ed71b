//! What travels beside the messages, as the engine's role sees it. Whose it is stands in each statement that a request asks
//! for; what the recorder asks for is of attempts that it has loaded.

use std::collections::BTreeSet;

use async_trait::async_trait;
use mayfly_core::{
    digest::Digest,
    id::{AttemptId, TenantId},
    job::ResolvedJob,
};
use mayfly_dispatch::ledger::{Ledger, Pieces};
use mayfly_store::{
    blobs::{BlobOwner, BlobStore, PieceAt},
    error::StoreError,
};
use sqlx::PgConnection;

use crate::{
    PostgresStore,
    columns::{Column, bigint},
    database::{Database, query},
};

async fn oldest_reader(database: &Database, pool: &str) -> Result<Option<u32>, StoreError> {
    let reads = sqlx::query_scalar!(
        "/* oldest_reader */ SELECT min(reads) FROM sessions WHERE ended IS NULL AND pool = $1",
        pool
    )
    .fetch_one(&database.engine)
    .await
    .map_err(query("look what the pool's sessions read"))?;
    reads
        .map(|reads| Column("sessions", "reads").count(reads))
        .transpose()
}

async fn find_input(database: &Database, owner: BlobOwner) -> Result<Option<ResolvedJob>, StoreError> {
    let resolved = sqlx::query_scalar!(
        "/* find_input */
         SELECT c.resolved
           FROM attempts a JOIN job_contents c ON c.tenant_id = a.tenant_id AND c.job_id = a.job_id
          WHERE a.attempt_id = $1 AND a.tenant_id = $2 AND a.job_id = $3 AND a.state <> 'ended'",
        owner.attempt.as_uuid(),
        owner.tenant.as_uuid(),
        owner.job.as_uuid()
    )
    .fetch_optional(&database.engine)
    .await
    .map_err(query("find what the job brings"))?;
    resolved
        .map(|text| Column("job_contents", "resolved").json(&text))
        .transpose()
}

async fn keep_output(
    database: &Database,
    owner: BlobOwner,
    digest: Digest,
    content: &[u8],
) -> Result<bool, StoreError> {
    let mut write = database.begin().await?;
    // Whoever ends the attempt waits for this, or is waited for: what is kept of it goes with its end.
    if !started(&mut write.tx, owner).await? {
        return Ok(false);
    }
    let kept = sqlx::query!(
        "/* keep_output */
         INSERT INTO output_blobs (tenant_id, attempt_id, digest, bytes, content) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (attempt_id, tenant_id) DO NOTHING",
        owner.tenant.as_uuid(),
        owner.attempt.as_uuid(),
        digest.as_bytes().as_slice(),
        bigint(content.len() as u64),
        content
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("keep the output"))?;
    if kept.rows_affected() == 0 {
        let first = sqlx::query_scalar!(
            "/* keep_output */ SELECT digest FROM output_blobs WHERE attempt_id = $1 AND tenant_id = $2",
            owner.attempt.as_uuid(),
            owner.tenant.as_uuid()
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("find the output"))?;
        return Ok(first.is_some_and(|first| first == digest.as_bytes().as_slice()));
    }
    write.commit_quietly().await?;
    Ok(true)
}

async fn keep_piece(
    database: &Database,
    owner: BlobOwner,
    at: PieceAt,
    digest: Digest,
    content: &[u8],
    most: u64,
) -> Result<bool, StoreError> {
    let mut write = database.begin().await?;
    // Whoever ends the attempt waits for this, or is waited for: what no report names goes with its end.
    if !started(&mut write.tx, owner).await? {
        return Ok(false);
    }
    let (file, piece) = (column(at.file), column(at.piece));
    let bytes = bigint(content.len() as u64);
    let kept = sqlx::query!(
        "/* keep_piece */
         INSERT INTO artifact_pieces (tenant_id, attempt_id, file, piece, digest, bytes, content)
         SELECT $1, $2, $3, $4, $5, $6::bigint, $7
          WHERE (SELECT coalesce(sum(bytes), 0) FROM artifact_pieces WHERE attempt_id = $2 AND tenant_id = $1) + $6
                <= $8::bigint
         ON CONFLICT (attempt_id, tenant_id, file, piece) DO NOTHING",
        owner.tenant.as_uuid(),
        owner.attempt.as_uuid(),
        file,
        piece,
        digest.as_bytes().as_slice(),
        bytes,
        content,
        bigint(most)
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("keep the piece"))?;
    if kept.rows_affected() == 0 {
        let first = sqlx::query_scalar!(
            "/* keep_piece */
             SELECT digest FROM artifact_pieces WHERE attempt_id = $1 AND tenant_id = $2 AND file = $3 AND piece = $4",
            owner.attempt.as_uuid(),
            owner.tenant.as_uuid(),
            file,
            piece
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("find the piece"))?;
        return Ok(first.is_some_and(|first| first == digest.as_bytes().as_slice()));
    }
    write.commit_quietly().await?;
    Ok(true)
}

pub(crate) async fn find_piece(
    database: &Database,
    tenant: TenantId,
    attempt: AttemptId,
    at: PieceAt,
) -> Result<Option<Vec<u8>>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    sqlx::query_scalar!(
        "/* find_piece */
         SELECT content FROM artifact_pieces WHERE attempt_id = $1 AND tenant_id = $2 AND file = $3 AND piece = $4",
        attempt.as_uuid(),
        tenant.as_uuid(),
        column(at.file),
        column(at.piece)
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the piece"))
}

/// Locks an attempt against its end, where it has started and is not over.
async fn started(connection: &mut PgConnection, owner: BlobOwner) -> Result<bool, StoreError> {
    let started = sqlx::query_scalar!(
        r#"/* started */
         SELECT 1 AS "started!" FROM attempts
          WHERE attempt_id = $1 AND tenant_id = $2 AND job_id = $3 AND state = 'started'
            FOR SHARE"#,
        owner.attempt.as_uuid(),
        owner.tenant.as_uuid(),
        owner.job.as_uuid()
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the attempt"))?;
    Ok(started.is_some())
}

/// A number that no column can hold is in none.
pub(crate) fn column(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// What is kept of these attempts' files.
pub(crate) async fn load_files(
    connection: &mut PgConnection,
    attempts: &BTreeSet<AttemptId>,
    ledger: &mut Ledger,
) -> Result<(), StoreError> {
    let ids: Vec<_> = attempts.iter().map(AttemptId::as_uuid).collect();
    let rows = sqlx::query!(
        r#"/* load_files */
         SELECT attempt_id, file, count(*) AS "count!", sum(bytes) AS "bytes!", max(piece) AS "last!"
           FROM artifact_pieces WHERE attempt_id = ANY ($1) GROUP BY attempt_id, file"#,
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find what runs have left of their files"))?;
    for row in rows {
        // With a piece missing between others it is no file.
        if i64::from(row.last) + 1 != row.count {
            continue;
        }
        let stored = |name, number| Column("artifact_pieces", name).number(number);
        let pieces = Pieces {
            count: stored("piece", row.count)?,
            bytes: stored("bytes", row.bytes)?,
        };
        let number = Column("artifact_pieces", "file").count(row.file.into())?;
        ledger.put_file(AttemptId::from_uuid(row.attempt_id), number, pieces);
    }
    Ok(())
}

/// What is kept of these attempts.
pub(crate) async fn load_uploads(
    connection: &mut PgConnection,
    attempts: &BTreeSet<AttemptId>,
    ledger: &mut Ledger,
) -> Result<(), StoreError> {
    let ids: Vec<_> = attempts.iter().map(AttemptId::as_uuid).collect();
    let rows = sqlx::query!(
        "/* load_uploads */ SELECT attempt_id, digest, bytes FROM output_blobs WHERE attempt_id = ANY ($1)",
        &ids
    )
    .fetch_all(connection)
    .await
    .map_err(query("find what runs have left"))?;
    for row in rows {
        let digest: [u8; 32] = row
            .digest
            .try_into()
            .map_err(|_| Column("output_blobs", "digest").corrupt("it has not 32 bytes"))?;
        let bytes = Column("output_blobs", "bytes").number(row.bytes)?;
        ledger.put_upload(
            AttemptId::from_uuid(row.attempt_id),
            Digest::from_bytes(digest),
            bytes,
        );
    }
    Ok(())
}

#[async_trait]
impl BlobStore for PostgresStore {
    async fn oldest_reader(&self, pool: &str) -> Result<Option<u32>, StoreError> {
        let call = oldest_reader(&self.database, pool);
        self.database
            .call("look what the pool's sessions read", call)
            .await
    }

    async fn find_input(&self, owner: BlobOwner) -> Result<Option<ResolvedJob>, StoreError> {
        let call = find_input(&self.database, owner);
        self.database.call("find what the job brings", call).await
    }

    async fn keep_output(
        &self,
        owner: BlobOwner,
        digest: Digest,
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let call = keep_output(&self.database, owner, digest, content);
        self.database.call("keep the output", call).await
    }

    async fn keep_piece(
        &self,
        owner: BlobOwner,
        at: PieceAt,
        digest: Digest,
        content: &[u8],
        most: u64,
    ) -> Result<bool, StoreError> {
        let call = keep_piece(&self.database, owner, at, digest, content, most);
        self.database.call("keep a piece of a file", call).await
    }
}
