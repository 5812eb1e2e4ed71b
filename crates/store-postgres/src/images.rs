//! The image catalog.

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    id::{KeyId, TenantId},
    image::ImagePin,
};
use mayfly_store::{error::StoreError, records::ImageEntry};

use crate::{
    audit::Events,
    columns::Column,
    database::{Database, query},
};

struct Row {
    name: String,
    reference: String,
    digest: String,
    config_digest: String,
    platform: String,
    pinned_at: DateTime<Utc>,
}

impl TryFrom<Row> for ImageEntry {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            name: row.name,
            pin: ImagePin {
                reference: row.reference,
                digest: Column("images", "digest").parse(&row.digest)?,
                config_digest: Column("images", "config_digest").parse(&row.config_digest)?,
                platform: row.platform,
            },
            pinned_at: row.pinned_at,
        })
    }
}

pub(crate) async fn pin(
    database: &Database,
    name: &str,
    pin: &ImagePin,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut write = database.begin_for_tenants().await?;
    // The catalog is the operator's, and so is what is on record of it.
    let now = write.act_for(TenantId::LOCAL, now).await?;
    let done = sqlx::query!(
        "/* pin */
         INSERT INTO images (name, reference, digest, config_digest, platform, pinned_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (name) DO UPDATE
            SET reference = excluded.reference, digest = excluded.digest, config_digest = excluded.config_digest,
                platform = excluded.platform, pinned_at = excluded.pinned_at
          WHERE images.digest <> excluded.digest OR images.config_digest <> excluded.config_digest
             OR images.reference <> excluded.reference OR images.platform <> excluded.platform",
        name,
        pin.reference,
        pin.digest.to_string(),
        pin.config_digest.to_string(),
        pin.platform,
        now
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("pin the image"))?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    let mut events = Events::new(now);
    let fact = Fact::ImagePinned {
        name: name.to_owned(),
        reference: pin.reference.clone(),
        digest: pin.digest,
        config_digest: pin.config_digest,
        platform: pin.platform.clone(),
        by,
    };
    events.add(TenantId::LOCAL, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await
}

pub(crate) async fn find(database: &Database, name: &str) -> Result<Option<ImageEntry>, StoreError> {
    sqlx::query_as!(
        Row,
        "/* find */
         SELECT name, reference, digest, config_digest, platform, pinned_at FROM images WHERE name = $1",
        name
    )
    .fetch_optional(database.catalog())
    .await
    .map_err(query("find the image"))?
    .map(ImageEntry::try_from)
    .transpose()
}

pub(crate) async fn list(database: &Database) -> Result<Vec<ImageEntry>, StoreError> {
    sqlx::query_as!(
        Row,
        r#"/* list */
         SELECT name, reference, digest, config_digest, platform, pinned_at FROM images ORDER BY name COLLATE "C""#
    )
    .fetch_all(database.catalog())
    .await
    .map_err(query("list the images"))?
    .into_iter()
    .map(ImageEntry::try_from)
    .collect()
}
