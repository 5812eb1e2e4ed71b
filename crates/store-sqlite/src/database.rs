//! The file: opened, migrated, with one connection that writes and some that read.
//!
//! SQLite has one writer at a time. Ours is one connection of this process, taken in turn, so that a transaction never
//! waits for another of the same process by way of the file's lock; other processes wait for that lock up to a bound.

use std::{path::Path, time::Duration};

use mayfly_store::error::{Source, StoreError};
use sqlx::{
    ConnectOptions as _, Connection as _, Sqlite, SqliteConnection, SqlitePool, Transaction,
    migrate::{MigrateError, Migrator},
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{
    sync::{Mutex, MutexGuard, watch},
    time::Instant,
};

pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// The schema that this program reads and writes; a database whose `min_reader` is above it is refused.
const SCHEMA: i64 = 3;
/// How long a statement waits for the lock of another process. Their transactions take milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(20);
/// Between two tries where SQLite does not wait by itself.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Another connection has the lock (sqlite.org, "Result and Error Codes").
const SQLITE_BUSY: u32 = 5;
/// Readers of this process.
const READERS: u32 = 4;

pub(crate) struct Database {
    pub(crate) write: SqlitePool,
    /// Held by whoever writes. The pool alone would do, but a waiter would then be bound by its time for a connection.
    turn: Mutex<()>,
    pub(crate) read: SqlitePool,
    /// Counts the transactions that were committed.
    pub(crate) commits: watch::Sender<u64>,
}

/// A transaction that holds the write lock from its first statement on.
pub(crate) struct Write<'a> {
    pub(crate) tx: Transaction<'a, Sqlite>,
    commits: &'a watch::Sender<u64>,
    _turn: MutexGuard<'a, ()>,
}

impl Database {
    /// Opens the file, or makes it. Where several processes turn a new one to WAL at once, SQLite refuses some of them
    /// without a wait, whatever their busy timeout is, since each might wait for the other (sqlite.org, "Register A
    /// Callback To Handle SQLITE_BUSY Errors"); those try again.
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
        let give_up_at = Instant::now() + LOCK_WAIT;
        loop {
            match Self::open_once(path).await {
                Err(error) if is_busy(&error) && Instant::now() < give_up_at => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    async fn open_once(path: &Path) -> Result<Self, StoreError> {
        let place = || path.display().to_string();
        let failed = |source: sqlx::Error| StoreError::Open {
            place: place(),
            source: source.into(),
        };
        make_private(path).await.map_err(|source| StoreError::Open {
            place: place(),
            source: source.into(),
        })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .busy_timeout(LOCK_WAIT);
        refuse_foreign(&options, &place()).await?;
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            // What is committed is on the disk: an accepted job outlives a power cut.
            .synchronous(SqliteSynchronous::Full);
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await
            .map_err(failed)?;
        migrate(&write, &place()).await?;
        let read = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.read_only(true))
            .await
            .map_err(failed)?;
        Ok(Self {
            write,
            turn: Mutex::new(()),
            read,
            commits: watch::Sender::new(0),
        })
    }

    /// A connection that reads.
    pub(crate) async fn reader(&self) -> Result<PoolConnection<Sqlite>, StoreError> {
        self.read.acquire().await.map_err(query("begin to read"))
    }

    /// Begins a transaction that reads what is there at one moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "SQLite's worker rolls back a begin that nobody waits for"
    )]
    pub(crate) async fn moment(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.read.begin().await.map_err(query("begin to read"))
    }

    /// Begins a transaction that writes.
    #[expect(
        clippy::disallowed_methods,
        reason = "SQLite's worker rolls back a begin that nobody waits for"
    )]
    pub(crate) async fn begin(&self) -> Result<Write<'_>, StoreError> {
        let turn = self.turn.lock().await;
        // Immediate: a transaction that reads first and writes later would fail at once where another process wrote
        // in between (SQLite, "Transactions", 2.2).
        let begun = match self.write.begin_with("BEGIN IMMEDIATE").await {
            // Not the database's word but the client's: it takes this connection for one inside a transaction. That is
            // so after a commit that failed, as on a full disk, which has rolled back by itself. It is given up.
            Err(error) if error.as_database_error().is_none() => {
                if let Ok(connection) = self.write.acquire().await {
                    connection.close().await.map_err(query("close a connection"))?;
                }
                self.write.begin_with("BEGIN IMMEDIATE").await
            }
            begun => begun,
        };
        let tx = begun.map_err(query("begin a transaction"))?;
        Ok(Write {
            tx,
            commits: &self.commits,
            _turn: turn,
        })
    }
}

impl Write<'_> {
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(query("commit"))?;
        self.commits.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Commits what nobody waits for.
    pub(crate) async fn commit_unnoticed(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(query("commit"))
    }
}

/// Makes the file where it is not there, for its owner alone: it holds what tenants submit, and the salts of what the
/// record says of it. SQLite gives the files beside it the same mode.
async fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        tokio::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .await?;
    }
    let made = tokio::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .await;
    match made {
        Ok(_) => Ok(()),
        // SQLite opens a device or a pipe too, and then says that it is locked.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if tokio::fs::metadata(path).await?.is_file() {
                Ok(())
            } else {
                Err(std::io::Error::other("it is there, and it is no file"))
            }
        }
        Err(error) => Err(error),
    }
}

/// Refuses a database that is not for this program, before anything of it is changed.
async fn refuse_foreign(options: &SqliteConnectOptions, place: &str) -> Result<(), StoreError> {
    let failed = |source: sqlx::Error| StoreError::Open {
        place: place.to_owned(),
        source: source.into(),
    };
    let mut connection = options.connect().await.map_err(failed)?;
    let refused = refuse_newer(&mut connection, place).await;
    connection.close().await.map_err(failed)?;
    refused
}

pub(crate) async fn refuse_newer(connection: &mut SqliteConnection, place: &str) -> Result<(), StoreError> {
    let failed = |source: Source| StoreError::Open {
        place: place.to_owned(),
        source,
    };
    let known = sqlx::query!(
        r#"/* refuse_newer */
         SELECT count(*) AS "tables!: i64", count(*) FILTER (WHERE name = 'schema_reader') AS "ours!: i64",
                count(*) FILTER (WHERE name = '_sqlx_migrations') AS "begun!: i64"
           FROM sqlite_schema"#
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(|error| failed(error.into()))?;
    if known.ours == 0 {
        // New, or a first start that was interrupted; anything else is somebody else's.
        return if known.tables == 0 || known.begun > 0 {
            Ok(())
        } else {
            Err(failed("it is a database of another program".into()))
        };
    }
    let needed = sqlx::query_scalar!("/* refuse_newer */ SELECT min_reader FROM schema_reader")
        .fetch_one(connection)
        .await
        .map_err(|error| failed(error.into()))?;
    if needed > SCHEMA {
        return Err(StoreError::NewerSchema {
            place: place.to_owned(),
            needed,
            ours: SCHEMA,
        });
    }
    Ok(())
}

/// Brings the schema up to date, in one transaction that holds the write lock: processes that start together wait for
/// each other.
#[expect(
    clippy::disallowed_methods,
    reason = "SQLite's worker rolls back a begin that nobody waits for"
)]
async fn migrate(pool: &SqlitePool, place: &str) -> Result<(), StoreError> {
    let failed = |source: Source| StoreError::Open {
        place: place.to_owned(),
        source,
    };
    let mut tx = pool
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(|error| failed(error.into()))?;
    // Another process may have been quicker.
    refuse_newer(&mut tx, place).await?;
    match MIGRATIONS.run_direct(None, &mut *tx, false).await {
        Ok(()) => tx.commit().await.map_err(|error| failed(error.into())),
        // The file has migrations of a newer program; `min_reader` allows us to go on.
        Err(MigrateError::VersionMissing(_)) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}

/// Names what a failed statement was for, and whether it was the statement that is at fault.
pub(crate) fn query(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| {
        if is_refusal(&source) {
            StoreError::Refused {
                doing,
                source: source.into(),
            }
        } else {
            StoreError::Query {
                doing,
                source: source.into(),
            }
        }
    }
}

/// Whether the database refuses these very values, so that trying again is of no use: `SQLITE_CONSTRAINT`, a trigger's
/// refusal among them, `SQLITE_TOOBIG` and `SQLITE_MISMATCH` (SQLite, "Result and Error Codes").
fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(18..=20))
}

/// Whether a file could not be opened since another connection has its lock.
fn is_busy(error: &StoreError) -> bool {
    let StoreError::Open { source, .. } = error else {
        return false;
    };
    source.downcast_ref().and_then(primary_code) == Some(SQLITE_BUSY)
}

/// SQLite's result code, without what it is refined by.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<u32>().ok()? & 0xff)
}
