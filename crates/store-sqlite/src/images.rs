//! The image catalog.

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    id::{KeyId, TenantId},
    image::ImagePin,
};
use mayfly_store::{error::StoreError, records::ImageEntry};

use crate::{
    audit::{self, About},
    columns::{Column, micros},
    database::{Database, query},
};

struct Row {
    name: String,
    reference: String,
    digest: String,
    config_digest: String,
    platform: String,
    pinned_at: i64,
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
            pinned_at: Column("images", "pinned_at").time(row.pinned_at)?,
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
    let mut write = database.begin().await?;
    let (digest, config_digest, at) = (pin.digest.to_string(), pin.config_digest.to_string(), micros(now));
    let done = sqlx::query!(
        "/* pin */
         INSERT INTO images (name, reference, digest, config_digest, platform, pinned_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (name) DO UPDATE
            SET reference = excluded.reference, digest = excluded.digest, config_digest = excluded.config_digest,
                platform = excluded.platform, pinned_at = excluded.pinned_at
          WHERE images.digest <> excluded.digest OR images.config_digest <> excluded.config_digest
             OR images.reference <> excluded.reference OR images.platform <> excluded.platform",
        name,
        pin.reference,
        digest,
        config_digest,
        pin.platform,
        at
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("pin the image"))?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    let fact = Fact::ImagePinned {
        name: name.to_owned(),
        reference: pin.reference.clone(),
        digest: pin.digest,
        config_digest: pin.config_digest,
        platform: pin.platform.clone(),
        by,
    };
    let about = About {
        tenant: TenantId::LOCAL,
        job: None,
        attempt: None,
    };
    audit::record(&mut write.tx, about, fact, now).await?;
    write.commit().await
}

pub(crate) async fn find(database: &Database, name: &str) -> Result<Option<ImageEntry>, StoreError> {
    sqlx::query_as!(
        Row,
        "/* find */
         SELECT name, reference, digest, config_digest, platform, pinned_at FROM images WHERE name = ?",
        name
    )
    .fetch_optional(&database.read)
    .await
    .map_err(query("find the image"))?
    .map(ImageEntry::try_from)
    .transpose()
}

pub(crate) async fn list(database: &Database) -> Result<Vec<ImageEntry>, StoreError> {
    sqlx::query_as!(
        Row,
        "/* list */
         SELECT name, reference, digest, config_digest, platform, pinned_at FROM images ORDER BY name"
    )
    .fetch_all(&database.read)
    .await
    .map_err(query("list the images"))?
    .into_iter()
    .map(ImageEntry::try_from)
    .collect()
}
