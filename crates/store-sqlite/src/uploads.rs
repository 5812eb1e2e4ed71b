//! Uploads of tenants.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    digest::Digest,
    id::{KeyId, TenantId, UploadId},
};
use mayfly_store::{
    blobs::{BlobOwner, PieceAt},
    error::StoreError,
    records::NewJob,
    seam::MAX_PAGE,
    uploads::{Begun, NewUpload, Removal, SWEPT_AT_ONCE, UploadBounds, UploadRecord, UploadStore},
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    SqliteStore,
    audit::{self, About},
    columns::{Column, bigint, micros},
    database::query,
};

const DOING: &str = "keep the upload";

/// A whole upload's row.
struct Row {
    upload_id: Uuid,
    digest: Vec<u8>,
    bytes: i64,
    kept_at: i64,
    used_at: i64,
}

impl TryFrom<Row> for UploadRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let column = |name| Column("uploads", name);
        Ok(Self {
            id: UploadId::from_uuid(row.upload_id),
            digest: column("digest").digest(row.digest)?,
            bytes: column("bytes").number(row.bytes)?,
            kept_at: column("kept_at").time(row.kept_at)?,
            used_at: column("used_at").time(row.used_at)?,
        })
    }
}

const fn about(tenant: TenantId) -> About {
    About {
        tenant,
        job: None,
        attempt: None,
    }
}

/// The whole upload of this digest, which is used now.
async fn use_existing(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    digest: &Digest,
    now: DateTime<Utc>,
) -> Result<Option<UploadRecord>, StoreError> {
    let (tenant, at) = (tenant.as_uuid(), micros(now));
    let digest = digest.as_bytes().as_slice();
    let row = sqlx::query_as!(
        Row,
        r#"/* upload */
         UPDATE uploads SET used_at = max(used_at, ?3)
          WHERE tenant_id = ?1 AND digest = ?2 AND kept_at IS NOT NULL
         RETURNING upload_id AS "upload_id!: Uuid", digest, bytes, kept_at AS "kept_at!", used_at"#,
        tenant,
        digest,
        at
    )
    .fetch_optional(connection)
    .await
    .map_err(query(DOING))?;
    row.map(UploadRecord::try_from).transpose()
}

/// Removes an upload with all that hangs on it. A job that is not over and has it makes this fail.
async fn delete(connection: &mut SqliteConnection, id: Uuid) -> Result<(), StoreError> {
    const DOING: &str = "remove the upload";
    sqlx::query!(
        "/* delete_upload */
         DELETE FROM job_fetches
          WHERE upload_id = ?
            AND EXISTS (SELECT 1 FROM jobs j WHERE j.job_id = job_fetches.job_id AND j.state = 'ended')",
        id
    )
    .execute(&mut *connection)
    .await
    .map_err(query(DOING))?;
    sqlx::query!(
        "/* delete_upload */ DELETE FROM upload_pieces WHERE upload_id = ?",
        id
    )
    .execute(&mut *connection)
    .await
    .map_err(query(DOING))?;
    sqlx::query!("/* delete_upload */ DELETE FROM uploads WHERE upload_id = ?", id)
        .execute(connection)
        .await
        .map_err(query(DOING))?;
    Ok(())
}

/// What a job that is accepted has of uploads, which are used now.
pub(crate) async fn fetch_for(
    connection: &mut SqliteConnection,
    job: &NewJob,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let id = job.id.as_uuid();
    for (number, file) in (0_u32..).zip(&job.resolved.fetched) {
        let Some(upload) = use_existing(connection, job.tenant, &file.digest, now).await? else {
            return Err(StoreError::NoSuchUpload(file.digest));
        };
        let upload = upload.id.as_uuid();
        sqlx::query!(
            "/* fetch_for */ INSERT INTO job_fetches (job_id, file, upload_id) VALUES (?, ?, ?)",
            id,
            number,
            upload
        )
        .execute(&mut *connection)
        .await
        .map_err(query("note which uploads the job has"))?;
    }
    Ok(())
}

#[async_trait]
impl UploadStore for SqliteStore {
    async fn begin_upload(
        &self,
        upload: NewUpload,
        bounds: UploadBounds,
        now: DateTime<Utc>,
    ) -> Result<Begun, StoreError> {
        let mut write = self.database.begin().await?;
        if let Some(existing) = use_existing(&mut write.tx, upload.tenant, &upload.digest, now).await? {
            write.commit_unnoticed().await?;
            return Ok(Begun::Existing(existing));
        }
        let (tenant, id, at) = (upload.tenant.as_uuid(), upload.id.as_uuid(), micros(now));
        let all = sqlx::query!(
            r#"/* begin_upload */
             SELECT count(*) AS "count!: i64", count(*) FILTER (WHERE kept_at IS NULL) AS "under_way!: i64",
                    coalesce(sum(bytes), 0) AS "bytes!: i64"
               FROM uploads WHERE tenant_id = ?"#,
            tenant
        )
        .fetch_one(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let stored = |name, number| Column("uploads", name).number(number);
        let (count, under_way) = (stored("upload_id", all.count)?, stored("kept_at", all.under_way)?);
        if let Some(why) = bounds.refusal(count, under_way, stored("bytes", all.bytes)?, upload.bytes) {
            return Ok(Begun::NoRoom(why));
        }
        let (digest, bytes) = (upload.digest.as_bytes().as_slice(), bigint(upload.bytes));
        sqlx::query!(
            "/* begin_upload */
             INSERT INTO uploads (upload_id, tenant_id, digest, bytes, begun_at, used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
            id,
            tenant,
            digest,
            bytes,
            at
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        write.commit_unnoticed().await?;
        Ok(Begun::Begun)
    }

    async fn keep_upload_piece(
        &self,
        tenant: TenantId,
        id: UploadId,
        piece: u32,
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let (tenant, id, bytes) = (tenant.as_uuid(), id.as_uuid(), bigint(content.len() as u64));
        let mut write = self.database.begin().await?;
        let kept = sqlx::query!(
            "/* keep_upload_piece */
             INSERT INTO upload_pieces (upload_id, piece, bytes, content)
             SELECT ?2, ?3, ?4, ?5 FROM uploads WHERE tenant_id = ?1 AND upload_id = ?2 AND kept_at IS NULL
             ON CONFLICT (upload_id, piece) DO NOTHING",
            tenant,
            id,
            piece,
            bytes,
            content
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        if kept.rows_affected() == 0 {
            return Ok(false);
        }
        write.commit_unnoticed().await?;
        Ok(true)
    }

    async fn finish_upload(
        &self,
        tenant: TenantId,
        id: UploadId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Option<UploadRecord>, StoreError> {
        let (tenant_id, upload, at) = (tenant.as_uuid(), id.as_uuid(), micros(now));
        let mut write = self.database.begin().await?;
        let found = sqlx::query!(
            r#"/* finish_upload */
             SELECT u.digest, u.bytes,
                    (SELECT coalesce(sum(p.bytes), 0) FROM upload_pieces p WHERE p.upload_id = u.upload_id)
                        AS "there!: i64"
               FROM uploads u WHERE u.tenant_id = ? AND u.upload_id = ? AND u.kept_at IS NULL"#,
            tenant_id,
            upload
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let Some(found) = found.filter(|found| found.there == found.bytes) else {
            return Ok(None);
        };
        let digest = Column("uploads", "digest").digest(found.digest)?;
        if let Some(existing) = use_existing(&mut write.tx, tenant, &digest, now).await? {
            delete(&mut write.tx, upload).await?;
            write.commit_unnoticed().await?;
            return Ok(Some(existing));
        }
        sqlx::query!(
            "/* finish_upload */ UPDATE uploads SET kept_at = ?2, used_at = ?2 WHERE upload_id = ?1",
            upload,
            at
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let bytes = Column("uploads", "bytes").number(found.bytes)?;
        let fact = Fact::UploadKept {
            upload: id,
            bytes,
            by,
        };
        audit::record(&mut write.tx, about(tenant), fact, now).await?;
        write.commit().await?;
        let at = Column("uploads", "kept_at").time(at)?;
        Ok(Some(UploadRecord {
            id,
            digest,
            bytes,
            kept_at: at,
            used_at: at,
        }))
    }

    async fn give_up_upload(&self, tenant: TenantId, id: UploadId) -> Result<(), StoreError> {
        let (tenant, id) = (tenant.as_uuid(), id.as_uuid());
        let mut write = self.database.begin().await?;
        let found = sqlx::query_scalar!(
            r#"/* give_up_upload */
             SELECT upload_id AS "upload_id!: Uuid" FROM uploads
              WHERE tenant_id = ? AND upload_id = ? AND kept_at IS NULL"#,
            tenant,
            id
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("give up the upload"))?;
        if let Some(id) = found {
            delete(&mut write.tx, id).await?;
            write.commit_unnoticed().await?;
        }
        Ok(())
    }

    async fn find_uploads(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<UploadRecord>, StoreError> {
        let tenant = tenant.as_uuid();
        let mut wanted = digests.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Vec::new();
        for digest in &wanted {
            let digest = digest.as_bytes().as_slice();
            let row = sqlx::query_as!(
                Row,
                r#"/* find_uploads */
                 SELECT upload_id AS "upload_id!: Uuid", digest, bytes, kept_at AS "kept_at!", used_at FROM uploads
                  WHERE tenant_id = ? AND digest = ? AND kept_at IS NOT NULL"#,
                tenant,
                digest
            )
            .fetch_optional(&self.database.read)
            .await
            .map_err(query("find the uploads"))?;
            found.extend(row.map(UploadRecord::try_from).transpose()?);
        }
        Ok(found)
    }

    async fn list_uploads(
        &self,
        tenant: TenantId,
        after: Option<UploadId>,
        limit: u32,
    ) -> Result<Vec<UploadRecord>, StoreError> {
        let (tenant, limit) = (tenant.as_uuid(), limit.min(MAX_PAGE));
        let after = after.map_or(Uuid::nil(), |id| id.as_uuid());
        let rows = sqlx::query_as!(
            Row,
            r#"/* list_uploads */
             SELECT upload_id AS "upload_id!: Uuid", digest, bytes, kept_at AS "kept_at!", used_at FROM uploads
              WHERE tenant_id = ? AND upload_id > ? AND kept_at IS NOT NULL ORDER BY upload_id LIMIT ?"#,
            tenant,
            after,
            limit
        )
        .fetch_all(&self.database.read)
        .await
        .map_err(query("list the uploads"))?;
        rows.into_iter().map(UploadRecord::try_from).collect()
    }

    async fn remove_upload(
        &self,
        tenant: TenantId,
        digest: &Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Removal, StoreError> {
        const DOING: &str = "remove the upload";
        let (tenant_id, digest) = (tenant.as_uuid(), digest.as_bytes().as_slice());
        let mut write = self.database.begin().await?;
        let found = sqlx::query!(
            r#"/* remove_upload */
             SELECT u.upload_id AS "upload_id!: Uuid", u.bytes,
                    EXISTS (SELECT 1 FROM job_fetches f JOIN jobs j ON j.job_id = f.job_id
                             WHERE f.upload_id = u.upload_id AND j.state <> 'ended') AS "in_use!: bool"
               FROM uploads u WHERE u.tenant_id = ? AND u.digest = ? AND u.kept_at IS NOT NULL"#,
            tenant_id,
            digest
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let Some(found) = found else {
            return Ok(Removal::Unknown);
        };
        if found.in_use {
            return Ok(Removal::InUse);
        }
        delete(&mut write.tx, found.upload_id).await?;
        let fact = Fact::UploadRemoved {
            upload: UploadId::from_uuid(found.upload_id),
            bytes: Column("uploads", "bytes").number(found.bytes)?,
            by,
        };
        audit::record(&mut write.tx, about(tenant), fact, now).await?;
        write.commit().await?;
        Ok(Removal::Removed)
    }

    async fn find_fetched(&self, owner: BlobOwner, at: PieceAt) -> Result<Option<Vec<u8>>, StoreError> {
        let (tenant, job) = (owner.tenant.as_uuid(), owner.job.as_uuid());
        let attempt = owner.attempt.as_uuid();
        sqlx::query_scalar!(
            "/* find_fetched */
             SELECT p.content
               FROM attempts a JOIN jobs j ON j.job_id = a.job_id
               JOIN job_fetches f ON f.job_id = a.job_id
               JOIN upload_pieces p ON p.upload_id = f.upload_id
              WHERE a.attempt_id = ? AND j.tenant_id = ? AND a.job_id = ? AND a.state <> 'ended'
                AND f.file = ? AND p.piece = ?",
            attempt,
            tenant,
            job,
            at.file,
            at.piece
        )
        .fetch_optional(&self.database.read)
        .await
        .map_err(query("find a piece of a file that a job fetches"))
    }

    async fn sweep_uploads(
        &self,
        unused_since: DateTime<Utc>,
        begun_before: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let (unused, begun) = (micros(unused_since), micros(begun_before));
        let mut write = self.database.begin().await?;
        let rows = sqlx::query!(
            r#"/* sweep_uploads */
             SELECT u.tenant_id AS "tenant_id!: Uuid", u.upload_id AS "upload_id!: Uuid", u.bytes,
                    u.kept_at IS NOT NULL AS "whole!: bool"
               FROM uploads u
              -- One that is under way was last used when it began.
              WHERE u.used_at < max(?1, ?2)
                AND ((u.kept_at IS NOT NULL AND u.used_at < ?1) OR (u.kept_at IS NULL AND u.begun_at < ?2))
                AND NOT EXISTS (SELECT 1 FROM job_fetches f JOIN jobs j ON j.job_id = f.job_id
                                 WHERE f.upload_id = u.upload_id AND j.state <> 'ended')
              ORDER BY u.used_at LIMIT ?3"#,
            unused,
            begun,
            SWEPT_AT_ONCE
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("sweep uploads"))?;
        if rows.is_empty() {
            return Ok(0);
        }
        for row in &rows {
            delete(&mut write.tx, row.upload_id).await?;
            if row.whole {
                let fact = Fact::UploadRemoved {
                    upload: UploadId::from_uuid(row.upload_id),
                    bytes: Column("uploads", "bytes").number(row.bytes)?,
                    by: None,
                };
                let tenant = TenantId::from_uuid(row.tenant_id);
                audit::record(&mut write.tx, about(tenant), fact, now).await?;
            }
        }
        write.commit().await?;
        Ok(rows.len() as u64)
    }
}
