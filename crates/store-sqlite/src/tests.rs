//! The contract of the seam, and what is SQLite's own: triggers, the file, several processes, indexes, migrations.

mod crash;
mod handles;
mod migrations;
mod opening;
mod plans;
mod stored;
mod triggers;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use async_trait::async_trait;
use mayfly_core::id::{AttemptId, JobId, SessionId};
use mayfly_dispatch::{ledger::Ledger, time::ServerTime};
use mayfly_store::{contract::Place, seam::Store};
use sqlx::{AssertSqlSafe, ConnectOptions as _, SqliteConnection, sqlite::SqliteConnectOptions, types::Uuid};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::{SqliteStore, ledger::Loader};

mod contract {
    mayfly_store::contract_tests!(crate::tests::place);
}

/// A file of its own, with all that is beside it; it is removed with the last of its owners.
pub(crate) struct File {
    path: PathBuf,
    /// None where somebody else removes it.
    folder: Option<Arc<TempDir>>,
    /// What reads everything back, opened once.
    reader: OnceCell<SqliteStore>,
}

impl File {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            path: folder.path().join("mayfly").join("jobs.db"),
            folder: Some(Arc::new(folder)),
            reader: OnceCell::new(),
        }
    }

    /// The same file.
    pub(crate) fn at(other: &Self) -> Self {
        Self {
            path: other.path.clone(),
            folder: other.folder.clone(),
            reader: OnceCell::new(),
        }
    }

    /// A file that somebody else removes.
    pub(crate) fn existing(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            folder: None,
            reader: OnceCell::new(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).await.unwrap()
    }
}

#[async_trait]
impl Place for File {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store().await)
    }

    async fn ledger(&self, queue: &str) -> Ledger {
        everything(self.reader.get_or_init(|| self.store()).await, queue).await
    }

    async fn outputs(&self) -> usize {
        let mut connection = raw(&self.path()).await;
        texts(&mut connection, "SELECT hex(attempt_id) FROM output_blobs")
            .await
            .len()
    }

    async fn pieces(&self) -> usize {
        let mut connection = raw(&self.path()).await;
        texts(&mut connection, "SELECT hex(attempt_id) FROM artifact_pieces")
            .await
            .len()
    }
}

pub(crate) async fn place() -> Option<Arc<dyn Place>> {
    Some(Arc::new(File::new()))
}

/// Closes every connection of a store.
pub(crate) async fn close(store: SqliteStore) {
    store.database.read.close().await;
    store.database.write.close().await;
}

/// A connection that is none of the store's.
pub(crate) async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .busy_timeout(std::time::Duration::from_secs(20))
        .connect()
        .await
        .unwrap()
}

/// Runs one test of this binary in a process of its own, with its output as it comes.
pub(crate) fn child(test: &str, file: &File) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "--nocapture", test])
        .env(CHILD, file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

/// The file that a child is to work on; none where it was not started as one.
pub(crate) fn as_child() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

const CHILD: &str = "MAYFLY_TEST_DATABASE";

/// The rows of a table, as text.
pub(crate) async fn rows(connection: &mut SqliteConnection, table: &str) -> Vec<String> {
    let columns = texts(
        connection,
        &format!("SELECT name FROM pragma_table_info('{table}')"),
    )
    .await;
    let quoted: Vec<_> = columns.iter().map(|column| format!("quote({column})")).collect();
    let all = quoted.join(" || ',' || ");
    texts(connection, &format!("SELECT {all} FROM {table}")).await
}

/// The first column of a statement that a test has built.
#[expect(
    clippy::disallowed_methods,
    reason = "statements about the schema itself can't be checked against it"
)]
pub(crate) async fn texts(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement.to_owned()))
        .fetch_all(connection)
        .await
        .unwrap()
}

/// Every row that dispatching looks at.
pub(crate) async fn everything(store: &SqliteStore, queue: &str) -> Ledger {
    let mut write = store.database.begin().await.unwrap();
    let ids = sqlx::query!(
        r#"SELECT 'job' AS "kind!: String", job_id AS "id!: Uuid" FROM jobs
           UNION ALL SELECT 'attempt', attempt_id FROM attempts
           UNION ALL SELECT 'session', session_id FROM sessions"#
    )
    .fetch_all(&mut *write.tx)
    .await
    .unwrap();
    let mut loader = Loader::new(&mut write.tx, queue, ServerTime::from_micros(0))
        .await
        .unwrap();
    for row in ids {
        match row.kind.as_str() {
            "job" => loader.job(JobId::from_uuid(row.id)).await,
            "attempt" => loader.attempt(AttemptId::from_uuid(row.id)).await,
            _ => loader.session(SessionId::from_uuid(row.id)).await,
        }
        .unwrap();
    }
    loader.into_ledger()
}
