//! Uploads of tenants, as the API's role sees them, and what is swept of them, as the engine's does.

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
    seam::MAX_PAGE,
    uploads::{Begun, NewUpload, Removal, SWEPT_AT_ONCE, UploadBounds, UploadRecord, UploadStore},
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    PostgresStore,
    audit::Events,
    blobs::column,
    columns::{Column, bigint},
    database::{Database, Write, expect_rows, query},
    fetches,
};

const DOING: &str = "keep the upload";

/// A whole upload's row.
struct Row {
    upload_id: Uuid,
    digest: Vec<u8>,
    bytes: i64,
    kept_at: DateTime<Utc>,
    used_at: DateTime<Utc>,
}

impl TryFrom<Row> for UploadRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: UploadId::from_uuid(row.upload_id),
            digest: Column("uploads", "digest").digest(row.digest)?,
            bytes: Column("uploads", "bytes").number(row.bytes)?,
            kept_at: row.kept_at,
            used_at: row.used_at,
        })
    }
}

/// Of two beginnings or ends of one tenant that come at once, one waits here for the other.
async fn turn(write: &mut Write<'_>, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query!(
        r#"/* upload */
         WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS taken)
         SELECT count(*) AS "turn!" FROM turn"#,
        format!("uploads of {tenant}")
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    Ok(())
}

/// The whole upload of this digest, which is used now.
async fn use_existing(
    connection: &mut PgConnection,
    tenant: TenantId,
    digest: &Digest,
    now: DateTime<Utc>,
) -> Result<Option<UploadRecord>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"/* upload */
         UPDATE uploads SET used_at = greatest(used_at, $3)
          WHERE tenant_id = $1 AND digest = $2 AND kept_at IS NOT NULL
         RETURNING upload_id, digest, bytes, kept_at AS "kept_at!", used_at"#,
        tenant.as_uuid(),
        digest.as_bytes().as_slice(),
        now
    )
    .fetch_optional(connection)
    .await
    .map_err(query(DOING))?;
    row.map(UploadRecord::try_from).transpose()
}

async fn start(
    database: &Database,
    upload: NewUpload,
    bounds: UploadBounds,
    now: DateTime<Utc>,
) -> Result<Begun, StoreError> {
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(upload.tenant, now).await?;
    turn(&mut write, upload.tenant).await?;
    if let Some(existing) = use_existing(&mut write.tx, upload.tenant, &upload.digest, now).await? {
        write.commit_quietly().await?;
        return Ok(Begun::Existing(existing));
    }
    let all = sqlx::query!(
        r#"/* begin_upload */
         SELECT count(*) AS "count!", count(*) FILTER (WHERE kept_at IS NULL) AS "under_way!",
                coalesce(sum(bytes), 0)::bigint AS "bytes!"
           FROM uploads WHERE tenant_id = $1"#,
        upload.tenant.as_uuid()
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    let stored = |name, number| Column("uploads", name).number(number);
    let (count, under_way) = (stored("upload_id", all.count)?, stored("kept_at", all.under_way)?);
    if let Some(why) = bounds.refusal(count, under_way, stored("bytes", all.bytes)?, upload.bytes) {
        return Ok(Begun::NoRoom(why));
    }
    let done = sqlx::query!(
        "/* begin_upload */
         INSERT INTO uploads (tenant_id, upload_id, digest, bytes, begun_at, used_at) VALUES ($1, $2, $3, $4, $5, $5)",
        upload.tenant.as_uuid(),
        upload.id.as_uuid(),
        upload.digest.as_bytes().as_slice(),
        bigint(upload.bytes),
        now
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, DOING)?;
    write.commit_quietly().await?;
    Ok(Begun::Begun)
}

async fn keep_piece(
    database: &Database,
    tenant: TenantId,
    id: UploadId,
    piece: u32,
    content: &[u8],
) -> Result<bool, StoreError> {
    let mut write = database.begin_for_tenants().await?;
    // What is said of the time is in no row of this.
    write.act_for(tenant, DateTime::UNIX_EPOCH).await?;
    let kept = sqlx::query!(
        "/* keep_upload_piece */
         INSERT INTO upload_pieces (tenant_id, upload_id, piece, bytes, content)
         SELECT $1, $2, $3, $4, $5 FROM uploads WHERE tenant_id = $1 AND upload_id = $2 AND kept_at IS NULL
         ON CONFLICT (upload_id, tenant_id, piece) DO NOTHING",
        tenant.as_uuid(),
        id.as_uuid(),
        column(piece),
        column(u32::try_from(content.len()).unwrap_or(u32::MAX)),
        content
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if kept.rows_affected() == 0 {
        return Ok(false);
    }
    write.commit_quietly().await?;
    Ok(true)
}

async fn finish(
    database: &Database,
    tenant: TenantId,
    id: UploadId,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<Option<UploadRecord>, StoreError> {
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(tenant, now).await?;
    turn(&mut write, tenant).await?;
    let found = sqlx::query!(
        r#"/* finish_upload */
         SELECT u.digest, u.bytes,
                (SELECT coalesce(sum(p.bytes), 0)::bigint FROM upload_pieces p
                  WHERE p.upload_id = u.upload_id AND p.tenant_id = u.tenant_id) AS "there!"
           FROM uploads u WHERE u.tenant_id = $1 AND u.upload_id = $2 AND u.kept_at IS NULL"#,
        tenant.as_uuid(),
        id.as_uuid()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    let Some(found) = found.filter(|found| found.there == found.bytes) else {
        return Ok(None);
    };
    let digest = Column("uploads", "digest").digest(found.digest)?;
    if let Some(existing) = use_existing(&mut write.tx, tenant, &digest, now).await? {
        delete(&mut write.tx, &[id.as_uuid()]).await?;
        write.commit_quietly().await?;
        return Ok(Some(existing));
    }
    let done = sqlx::query!(
        "/* finish_upload */ UPDATE uploads SET kept_at = $3, used_at = $3 WHERE tenant_id = $1 AND upload_id = $2",
        tenant.as_uuid(),
        id.as_uuid(),
        now
    );
    expect_rows(done.execute(&mut *write.tx).await, 1, DOING)?;
    let bytes = Column("uploads", "bytes").number(found.bytes)?;
    let mut events = Events::new(now);
    let fact = Fact::UploadKept {
        upload: id,
        bytes,
        by,
    };
    events.add(tenant, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(Some(UploadRecord {
        id,
        digest,
        bytes,
        kept_at: now,
        used_at: now,
    }))
}

/// Removes uploads with all that hangs on them. A job that is not over and has one makes this fail.
async fn delete(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), StoreError> {
    const DOING: &str = "remove the uploads";
    sqlx::query!(
        "/* delete_uploads */
         DELETE FROM job_fetches f USING jobs j
          WHERE f.upload_id = ANY ($1) AND j.tenant_id = f.tenant_id AND j.job_id = f.job_id AND j.state = 'ended'",
        ids
    )
    .execute(&mut *connection)
    .await
    .map_err(query(DOING))?;
    sqlx::query!(
        "/* delete_uploads */ DELETE FROM upload_pieces WHERE upload_id = ANY ($1)",
        ids
    )
    .execute(&mut *connection)
    .await
    .map_err(query(DOING))?;
    let done = sqlx::query!(
        "/* delete_uploads */ DELETE FROM uploads WHERE upload_id = ANY ($1)",
        ids
    );
    expect_rows(done.execute(connection).await, ids.len(), DOING)
}

async fn give_up(database: &Database, tenant: TenantId, id: UploadId) -> Result<(), StoreError> {
    const DOING: &str = "give up the upload";
    let mut write = database.begin_for_tenants().await?;
    write.act_for(tenant, DateTime::UNIX_EPOCH).await?;
    let found = sqlx::query_scalar!(
        "/* give_up_upload */
         SELECT upload_id FROM uploads WHERE tenant_id = $1 AND upload_id = $2 AND kept_at IS NULL FOR UPDATE",
        tenant.as_uuid(),
        id.as_uuid()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if let Some(id) = found {
        delete(&mut write.tx, &[id]).await?;
        write.commit_quietly().await?;
    }
    Ok(())
}

async fn find(
    database: &Database,
    tenant: TenantId,
    digests: &[Digest],
) -> Result<Vec<UploadRecord>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let digests: Vec<_> = digests
        .iter()
        .map(|digest| digest.as_bytes().as_slice())
        .collect();
    let rows = sqlx::query_as!(
        Row,
        r#"/* find_uploads */
         SELECT upload_id, digest, bytes, kept_at AS "kept_at!", used_at FROM uploads
          WHERE tenant_id = $1 AND digest = ANY ($2) AND kept_at IS NOT NULL ORDER BY digest"#,
        tenant.as_uuid(),
        &digests as &[&[u8]]
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("find the uploads"))?;
    rows.into_iter().map(UploadRecord::try_from).collect()
}

async fn list(
    database: &Database,
    tenant: TenantId,
    after: Option<UploadId>,
    limit: u32,
) -> Result<Vec<UploadRecord>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let after = after.map_or(Uuid::nil(), |id| id.as_uuid());
    let rows = sqlx::query_as!(
        Row,
        r#"/* list_uploads */
         SELECT upload_id, digest, bytes, kept_at AS "kept_at!", used_at FROM uploads
          WHERE tenant_id = $1 AND upload_id > $2 AND kept_at IS NOT NULL ORDER BY upload_id LIMIT $3"#,
        tenant.as_uuid(),
        after,
        i64::from(limit.min(MAX_PAGE))
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("list the uploads"))?;
    rows.into_iter().map(UploadRecord::try_from).collect()
}

async fn remove(
    database: &Database,
    tenant: TenantId,
    digest: &Digest,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<Removal, StoreError> {
    const DOING: &str = "remove the upload";
    let mut write = database.begin_for_tenants().await?;
    let now = write.act_for(tenant, now).await?;
    // A submission that names it waits for this, or is waited for.
    let found = sqlx::query!(
        "/* remove_upload */
         SELECT upload_id, bytes FROM uploads WHERE tenant_id = $1 AND digest = $2 AND kept_at IS NOT NULL FOR UPDATE",
        tenant.as_uuid(),
        digest.as_bytes().as_slice()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    let Some(found) = found else {
        return Ok(Removal::Unknown);
    };
    let in_use = sqlx::query_scalar!(
        r#"/* remove_upload */
         SELECT EXISTS (SELECT 1 FROM job_fetches f JOIN jobs j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
                         WHERE f.upload_id = $1 AND j.state <> 'ended') AS "in_use!""#,
        found.upload_id
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if in_use {
        return Ok(Removal::InUse);
    }
    delete(&mut write.tx, &[found.upload_id]).await?;
    let mut events = Events::new(now);
    let fact = Fact::UploadRemoved {
        upload: UploadId::from_uuid(found.upload_id),
        bytes: Column("uploads", "bytes").number(found.bytes)?,
        by,
    };
    events.add(tenant, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(Removal::Removed)
}

async fn sweep(
    database: &Database,
    unused_since: DateTime<Utc>,
    begun_before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    const DOING: &str = "sweep uploads";
    let mut write = database.begin().await?;
    let now = write.now(now).await?;
    // One that somebody has a hand on is not unused.
    let rows = sqlx::query!(
        r#"/* sweep_uploads */
         SELECT u.tenant_id, u.upload_id, u.bytes, u.kept_at IS NOT NULL AS "whole!"
           FROM uploads u
          WHERE ((u.kept_at IS NOT NULL AND u.used_at < $1) OR (u.kept_at IS NULL AND u.begun_at < $2))
            AND NOT EXISTS (SELECT 1 FROM job_fetches f
                              JOIN jobs j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
                             WHERE f.upload_id = u.upload_id AND j.state <> 'ended')
          ORDER BY u.used_at LIMIT $3 FOR UPDATE OF u SKIP LOCKED"#,
        unused_since,
        begun_before,
        i64::from(SWEPT_AT_ONCE)
    )
    .fetch_all(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if rows.is_empty() {
        return Ok(0);
    }
    let ids: Vec<_> = rows.iter().map(|row| row.upload_id).collect();
    delete(&mut write.tx, &ids).await?;
    let mut events = Events::new(now);
    for row in rows.iter().filter(|row| row.whole) {
        let fact = Fact::UploadRemoved {
            upload: UploadId::from_uuid(row.upload_id),
            bytes: Column("uploads", "bytes").number(row.bytes)?,
            by: None,
        };
        events.add(TenantId::from_uuid(row.tenant_id), None, None, fact);
    }
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(ids.len() as u64)
}

#[async_trait]
impl UploadStore for PostgresStore {
    async fn begin_upload(
        &self,
        upload: NewUpload,
        bounds: UploadBounds,
        now: DateTime<Utc>,
    ) -> Result<Begun, StoreError> {
        let call = start(&self.database, upload, bounds, now);
        self.database.call(DOING, call).await
    }

    async fn keep_upload_piece(
        &self,
        tenant: TenantId,
        id: UploadId,
        piece: u32,
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let call = keep_piece(&self.database, tenant, id, piece, content);
        self.database.call(DOING, call).await
    }

    async fn finish_upload(
        &self,
        tenant: TenantId,
        id: UploadId,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Option<UploadRecord>, StoreError> {
        let call = finish(&self.database, tenant, id, by, now);
        self.database.call(DOING, call).await
    }

    async fn give_up_upload(&self, tenant: TenantId, id: UploadId) -> Result<(), StoreError> {
        let call = give_up(&self.database, tenant, id);
        self.database.call("give up the upload", call).await
    }

    async fn find_uploads(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<UploadRecord>, StoreError> {
        let call = find(&self.database, tenant, digests);
        self.database.call("find the uploads", call).await
    }

    async fn list_uploads(
        &self,
        tenant: TenantId,
        after: Option<UploadId>,
        limit: u32,
    ) -> Result<Vec<UploadRecord>, StoreError> {
        let call = list(&self.database, tenant, after, limit);
        self.database.call("list the uploads", call).await
    }

    async fn remove_upload(
        &self,
        tenant: TenantId,
        digest: &Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<Removal, StoreError> {
        let call = remove(&self.database, tenant, digest, by, now);
        self.database.call("remove the upload", call).await
    }

    async fn find_fetched(&self, owner: BlobOwner, at: PieceAt) -> Result<Option<Vec<u8>>, StoreError> {
        let call = fetches::find(&self.database, owner, at);
        self.database
            .call("find a piece of a file that a job fetches", call)
            .await
    }

    async fn sweep_uploads(
        &self,
        unused_since: DateTime<Utc>,
        begun_before: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let call = sweep(&self.database, unused_since, begun_before, now);
        self.database.call("sweep uploads", call).await
    }
}
