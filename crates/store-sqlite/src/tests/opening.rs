//! Files that are not there, not ours, or not for us.

use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt as _},
    path::Path,
    process::Command,
    sync::Arc,
};

use chrono::DateTime;
use mayfly_store::{
    contract::bench::{Bench, Plan},
    error::StoreError,
    seam::JobStore as _,
};
use sqlx::Executor as _;

use super::{File, close, raw};
use crate::SqliteStore;

async fn refusal(path: &Path) -> StoreError {
    match SqliteStore::open(path).await {
        Ok(_) => panic!("{} is refused", path.display()),
        Err(error) => error,
    }
}

/// Every file of a folder with its bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_database_for_newer_programs_is_refused_and_untouched() {
    let file = File::new();
    let store = file.store().await;
    let job = Plan::once().job(DateTime::UNIX_EPOCH);
    store.submit(job, DateTime::UNIX_EPOCH).await.unwrap();
    close(store).await;
    let mut connection = raw(&file.path()).await;
    connection
        .execute("UPDATE schema_reader SET min_reader = 4; PRAGMA journal_mode = DELETE;")
        .await
        .unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let folder = file.path().parent().unwrap().to_owned();
    let before = files(&folder);
    let error = refusal(&file.path()).await;
    assert!(
        matches!(
            error,
            StoreError::NewerSchema {
                needed: 4,
                ours: 3,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_temporary());
    let text = error.to_string();
    assert!(
        text.contains("jobs.db") && text.contains("schema 4 or newer"),
        "{text}"
    );
    assert!(files(&folder) == before, "nothing of it has changed");
}

#[tokio::test]
async fn a_database_that_older_programs_may_read_is_opened() {
    let file = File::new();
    close(file.store().await).await;
    let mut connection = raw(&file.path()).await;
    connection
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (99990101000000, 'of a newer program', 1, x'00', 0);
             ALTER TABLE jobs ADD COLUMN newer TEXT;",
        )
        .await
        .unwrap();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    bench.dispatched(&Plan::once()).await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_untouched() {
    let file = File::new();
    let folder = file.path().parent().unwrap().to_owned();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(file.path(), "name,age\n".repeat(500)).unwrap();
    let before = files(&folder);
    let error = refusal(&file.path()).await;
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    let text = mayfly_core::chain::Chain(&error).to_string();
    assert!(
        text.contains("jobs.db") && text.contains("not a database"),
        "{text}"
    );
    assert!(files(&folder) == before, "nothing of it has changed");
}

#[tokio::test]
async fn another_programs_database_is_refused_and_untouched() {
    let file = File::new();
    let folder = file.path().parent().unwrap().to_owned();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(file.path(), "").unwrap();
    let mut connection = raw(&file.path()).await;
    connection
        .execute("CREATE TABLE bookmarks (url TEXT)")
        .await
        .unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    let before = files(&folder);
    let error = refusal(&file.path()).await;
    let text = mayfly_core::chain::Chain(&error).to_string();
    assert!(text.contains("another program"), "{text}");
    assert!(files(&folder) == before, "nothing of it has changed");
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let file = File::new();
    std::fs::create_dir(file.path().parent().unwrap()).unwrap();
    std::fs::write(file.path(), "").unwrap();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    bench.dispatched(&Plan::once()).await;
}

#[tokio::test]
async fn a_place_that_is_a_folder_or_below_a_file_is_refused() {
    let file = File::new();
    std::fs::create_dir_all(file.path()).unwrap();
    assert!(matches!(refusal(&file.path()).await, StoreError::Open { .. }));
    let text = refusal(Path::new("/dev/null/jobs.db")).await.to_string();
    assert!(text.contains("/dev/null/jobs.db"), "{text}");
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let file = File::new();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    bench.submit(&Plan::once()).await;
    let folder = file.path().parent().unwrap().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let names: Vec<_> = files(&folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
    for name in names {
        assert_eq!(mode(&folder.join(&name)), 0o600, "{name}");
    }
}

/// What the test below runs as another user; by itself it does nothing.
#[tokio::test]
async fn as_somebody_who_may_not_write() {
    let Some(folder) = std::env::var_os("MAYFLY_TEST_UNWRITABLE") else {
        return;
    };
    let folder = Path::new(&folder);
    for name in ["new.db", "deeper/new.db", "readonly.db"] {
        let error = refusal(&folder.join(name)).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_folder_or_a_file_that_may_not_be_written_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = folder.path().join("readonly.db");
    runtime.block_on(async { close(SqliteStore::open(&database).await.unwrap()).await });
    std::fs::set_permissions(&database, PermissionsExt::from_mode(0o444)).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let before = files(folder.path());
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "tests::opening::as_somebody_who_may_not_write"])
        .env("MAYFLY_TEST_UNWRITABLE", folder.path());
    // Whoever may do everything is stopped by no mode.
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(files(folder.path()) == before, "nothing has changed");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
}
