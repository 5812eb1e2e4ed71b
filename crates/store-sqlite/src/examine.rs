//! A look at a database without changing anything of it.

use std::{path::Path, time::Duration};

use mayfly_store::error::{Source, StoreError};
use sqlx::{ConnectOptions as _, Connection as _, migrate::Migrate as _, sqlite::SqliteConnectOptions};

use crate::database::{MIGRATIONS, refuse_newer};

/// How long a look waits for the lock of a process that writes.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Most faults that are listed.
const FAULTS: usize = 10;

/// What a database looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Steps of the schema that it has.
    pub migrations: u64,
    /// Steps of the schema that this program knows.
    pub known_migrations: u64,
    /// What SQLite finds damaged; empty where it finds nothing.
    pub faults: Vec<String>,
}

/// Looks at the database in a file: whether it is one of ours, of which schema, and whether SQLite finds it intact. The
/// check reads the whole file; the caller bounds it.
///
/// # Errors
/// A file that can't be opened or is no database of ours, or one that needs a newer program.
pub async fn examine(path: &Path) -> Result<Examined, StoreError> {
    let place = path.display().to_string();
    let failed = |source: Source| StoreError::Open {
        place: place.clone(),
        source,
    };
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(LOCK_WAIT)
        .connect()
        .await
        .map_err(|error| failed(error.into()))?;
    refuse_newer(&mut connection, &place).await?;
    let faults = sqlx::query_scalar!(
        r#"/* examine */ SELECT quick_check || '' AS "found!: String" FROM pragma_quick_check"#
    )
    .fetch_all(&mut connection)
    .await
    .map_err(|error| failed(error.into()))?;
    let migrations = connection
        .list_applied_migrations(&MIGRATIONS.table_name)
        .await
        .map_err(|error| failed(error.into()))?;
    connection.close().await.map_err(|error| failed(error.into()))?;
    Ok(Examined {
        migrations: migrations.len() as u64,
        known_migrations: MIGRATIONS.iter().count() as u64,
        faults: faults
            .into_iter()
            .filter(|found| found != "ok")
            .take(FAULTS)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    /// The last one that closes a database brings all into the one file, and a reader can't.
    async fn close(store: SqliteStore) {
        store.database.read.close().await;
        store.database.write.close().await;
    }

    #[tokio::test]
    async fn a_database_of_ours_is_intact_and_a_look_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        close(SqliteStore::open(&path).await.unwrap()).await;
        let before = std::fs::read(&path).unwrap();
        let found = examine(&path).await.unwrap();
        assert_eq!(found.faults, Vec::<String>::new());
        assert!(found.migrations > 0);
        assert_eq!(found.migrations, found.known_migrations);
        assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
    }

    #[tokio::test]
    async fn what_is_no_database_is_refused_and_a_damaged_one_has_faults() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        assert!(examine(&path).await.is_err(), "nothing is made");
        assert!(!path.exists());
        std::fs::write(&path, "not a database, whatever it is called").unwrap();
        assert!(examine(&path).await.is_err());
        std::fs::remove_file(&path).unwrap();
        close(SqliteStore::open(&path).await.unwrap()).await;
        // All pages but the first, which says that it is a database at all.
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len();
        assert!(length > 8192, "{length}");
        for page in bytes[4096..].chunks_mut(4096) {
            page[..64].fill(0xee);
        }
        std::fs::write(&path, bytes).unwrap();
        match examine(&path).await {
            Ok(found) => assert!(!found.faults.is_empty()),
            Err(StoreError::Open { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
