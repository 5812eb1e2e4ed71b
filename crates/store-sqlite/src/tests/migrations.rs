//! Each migration on the rows that the ones before it have left.

use std::path::{Path, PathBuf};

use mayfly_core::{chain::Chain, id::TenantId};
use mayfly_store::{
    contract::bench::POOL,
    records::{AuditFilter, JobFilter},
    seam::{JobStore as _, MAX_PAGE},
};
use sqlx::{AssertSqlSafe, Executor as _};

use super::{File, everything, raw};
use crate::{SqliteStore, database::MIGRATIONS};

fn sample(version: i64) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/sqlite/samples");
    folder.join(format!("{version}.sql"))
}

#[tokio::test]
async fn each_migration_keeps_the_rows_that_are_there() {
    let file = File::new();
    std::fs::create_dir(file.path().parent().unwrap()).unwrap();
    std::fs::write(file.path(), "").unwrap();
    let mut connection = raw(&file.path()).await;
    for migration in MIGRATIONS.iter() {
        MIGRATIONS
            .run_to(migration.version, &mut connection)
            .await
            .unwrap();
        let rows = std::fs::read_to_string(sample(migration.version));
        let rows = rows
            .unwrap_or_else(|error| panic!("migration {} has no sample rows: {error}", migration.version));
        connection.execute(AssertSqlSafe(rows)).await.unwrap();
    }
    let store = file.store().await;
    let ledger = everything(&store, POOL).await;
    assert!(ledger.jobs().count() >= 4 && ledger.attempts().count() >= 3 && ledger.sessions().count() >= 2);
    let jobs = store
        .list_jobs(TenantId::LOCAL, &JobFilter::default(), None, MAX_PAGE)
        .await
        .unwrap()
        .jobs;
    assert_eq!(jobs.len(), ledger.jobs().count());
    let mut reports = 0;
    for job in jobs {
        let details = store.find_job(TenantId::LOCAL, job.id).await.unwrap().unwrap();
        reports += usize::from(details.report().is_some());
    }
    assert!(reports > 0);
    let events = store
        .list_audit(TenantId::LOCAL, AuditFilter::default(), MAX_PAGE)
        .await
        .unwrap();
    assert!(events.len() >= 12);
    assert_eq!(store.list_images().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_migration_that_is_not_the_one_that_was_applied_is_refused() {
    let file = File::new();
    drop(file.store().await);
    let mut connection = raw(&file.path()).await;
    connection
        .execute("UPDATE _sqlx_migrations SET checksum = x'00'")
        .await
        .unwrap();
    let error = SqliteStore::open(&file.path()).await.err().unwrap();
    let text = Chain(&error).to_string();
    assert!(text.contains("migration"), "{text}");
}
