//! One file, several processes.

use std::{collections::BTreeSet, io::Read as _, sync::Arc, time::Duration};

use chrono::DateTime;
use mayfly_core::id::TenantId;
use mayfly_store::{
    contract::bench::{Bench, POOL, Plan},
    records::{AuditFilter, JobFilter},
    seam::{DispatchStore as _, JobStore as _, MAX_PAGE},
};
use sqlx::{ConnectOptions as _, Executor as _, sqlite::SqliteConnectOptions};
use tokio::task::JoinSet;

use super::{File, as_child, child, raw};
use crate::SqliteStore;

const PROCESSES: usize = 8;
const JOBS_EACH: usize = 40;

/// What the test below runs in each process; by itself it does nothing.
#[tokio::test]
async fn as_one_of_several_processes() {
    let Some(path) = as_child() else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    for _ in 0..JOBS_EACH {
        let job = Plan::once().job(DateTime::UNIX_EPOCH);
        let id = job.id;
        store.submit(job, DateTime::UNIX_EPOCH).await.unwrap();
        println!("accepted {id}");
    }
}

#[tokio::test]
async fn eight_processes_that_begin_with_no_file_and_write_at_once_lose_nothing() {
    let file = File::new();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            child("tests::handles::as_one_of_several_processes", &file)
                .spawn()
                .unwrap()
        })
        .collect();
    let mut accepted = BTreeSet::new();
    for mut child in children {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        accepted.extend(
            text.lines()
                .filter_map(|line| line.split_once("accepted "))
                .map(|(_, id)| id.to_owned()),
        );
    }
    assert_eq!(accepted.len(), PROCESSES * JOBS_EACH);
    let store = file.store().await;
    let jobs = store
        .list_jobs(TenantId::LOCAL, &JobFilter::default(), None, MAX_PAGE)
        .await
        .unwrap()
        .jobs;
    assert_eq!(
        jobs.iter().map(|job| job.id.to_string()).collect::<BTreeSet<_>>(),
        accepted
    );
    let events = store
        .list_audit(TenantId::LOCAL, AuditFilter::default(), MAX_PAGE)
        .await
        .unwrap();
    let submitted: BTreeSet<_> = events
        .iter()
        .filter_map(|event| event.job)
        .map(|job| job.to_string())
        .collect();
    assert_eq!((events.len(), submitted), (accepted.len(), accepted));
}

#[tokio::test]
async fn handles_that_open_a_fresh_file_together_all_get_it() {
    for _ in 0..10 {
        let file = File::new();
        let mut opening = JoinSet::new();
        for _ in 0..PROCESSES {
            let path = file.path();
            opening.spawn(async move { SqliteStore::open(&path).await });
        }
        for opened in opening.join_all().await {
            opened.unwrap();
        }
    }
}

#[tokio::test]
async fn a_new_file_that_another_process_has_begun_to_write_is_waited_for() {
    let file = File::new();
    let folder = file.path().parent().unwrap().to_owned();
    std::fs::create_dir_all(folder).unwrap();
    let options = SqliteConnectOptions::new().filename(file.path());
    let mut other = options.create_if_missing(true).connect().await.unwrap();
    // As long as it is no WAL file yet, whoever makes it one is refused by this at once.
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    let path = file.path();
    let mut opening = std::pin::pin!(SqliteStore::open(&path));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut opening).await;
    assert!(early.is_err(), "{:?}", early.unwrap().map(drop));
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    opening.await.unwrap();
}

#[tokio::test]
async fn no_job_is_dispatched_twice_by_schedulers_at_once() {
    let file = File::new();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    bench.session().await;
    for _ in 0..90 {
        bench.submit(&Plan::once()).await;
    }
    let mut schedulers = JoinSet::new();
    for _ in 0..4 {
        let (store, context) = (file.store().await, bench.context());
        schedulers.spawn(async move { store.dispatch(POOL, &context).await });
    }
    let mut jobs: Vec<_> = schedulers
        .join_all()
        .await
        .into_iter()
        .flat_map(|messages| messages.unwrap())
        .map(|message| message.job)
        .collect();
    jobs.sort_unstable();
    assert_eq!(jobs.len(), 90);
    jobs.dedup();
    assert_eq!(jobs.len(), 90);
}

#[tokio::test]
async fn a_writer_waits_for_another_process_and_readers_do_not() {
    let file = File::new();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    let job = bench.submit(&Plan::once()).await;
    let mut other = raw(&file.path()).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let context = bench.context();
    let release = async {
        // A reader is served while the lock is held, so that it was held when the writer below began.
        assert_eq!(bench.job(job).await.job.id, job);
        other.execute("COMMIT").await.unwrap();
    };
    let (messages, ()) = tokio::join!(biased; bench.store.dispatch(POOL, &context), release);
    assert_eq!(messages.unwrap().len(), 1);
}
