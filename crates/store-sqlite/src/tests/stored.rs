//! Values that can't be read or written: which column it is, whether to try again, and what is left behind.

use std::sync::Arc;

use mayfly_core::{
    id::{AttemptId, TenantId},
    outcome::{Cause, EndState, Outcome},
};
use mayfly_dispatch::{
    message::{ExecutorFacts, Inbound, Opened},
    record::{AttemptEnd, AttemptRecord, Change, JobNext, SessionEnd},
    time::ServerTime,
};
use mayfly_store::{
    contract::bench::{Bench, POOL, Plan, success},
    error::StoreError,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::{File, everything, raw};
use crate::{changes::Writer, database::query};

#[tokio::test]
async fn a_value_that_cant_be_read_names_its_table_and_column() {
    let cases = [
        ("UPDATE jobs SET labels = '['", "jobs.labels"),
        ("UPDATE jobs SET image = 'python:3'", "jobs.image"),
        ("UPDATE jobs SET image_digest = 'md5:00'", "jobs.image_digest"),
        ("UPDATE jobs SET policy_version = ''", "jobs.policy_version"),
        (
            "UPDATE jobs SET submitted_at = 9223372036854775807",
            "jobs.submitted_at",
        ),
        ("UPDATE jobs SET attempts = -1", "jobs.attempts"),
        ("UPDATE jobs SET retry = '{\"max_attempts\": -1}'", "jobs.retry"),
        ("UPDATE job_contents SET resolved = '{}'", "job_contents.resolved"),
        ("DELETE FROM job_contents", "job_contents.salt"),
        ("UPDATE attempts SET number = -1", "attempts.number"),
        (
            "UPDATE attempts SET publication = 4294967296",
            "attempts.publication",
        ),
        ("UPDATE sessions SET processed = -1", "sessions.processed"),
        ("UPDATE sessions SET slots = -1", "sessions.slots"),
        ("UPDATE queues SET epoch = -1", "queues.epoch"),
    ];
    for (statement, column) in cases {
        let file = File::new();
        let bench = Bench::new(Arc::new(File::at(&file))).await;
        let mut client = bench.session().await;
        bench.tick().await;
        let message = bench.started(&Plan::once(), &mut client).await;
        let mut connection = raw(&file.path()).await;
        connection
            .execute("DROP TRIGGER job_contents_never_change")
            .await
            .unwrap();
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
        let seen = bench.store.find_job(TenantId::LOCAL, message.job).await.err();
        let sent = bench
            .try_send(&client.finish(message.attempt, success()))
            .await
            .err();
        let error = seen
            .or(sent)
            .unwrap_or_else(|| panic!("{statement} is not noticed"));
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{statement}: {error:?}"
        );
        assert!(!error.is_temporary());
        assert!(error.to_string().contains(column), "{statement}: {error}");
    }
}

#[tokio::test]
async fn a_batch_that_the_database_refuses_is_at_fault_and_leaves_nothing_behind() {
    let file = File::new();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    let mut client = bench.session().await;
    let (one, two) = (
        bench.started(&Plan::once(), &mut client).await,
        bench.started(&Plan::once(), &mut client).await,
    );
    let mut connection = raw(&file.path()).await;
    // The second result can't be written.
    connection
        .execute(
            "CREATE TRIGGER fault BEFORE INSERT ON results WHEN EXISTS (SELECT 1 FROM results)
             BEGIN SELECT RAISE(ABORT, 'a fault'); END",
        )
        .await
        .unwrap();
    let before = bench.everything().await;
    let mut commits = bench.store.commits();
    commits.borrow_and_update();
    let batches =
        [one, two].map(|message| Inbound::Batch(Box::new(client.finish(message.attempt, success()))));
    let error = bench
        .store
        .process(POOL, &batches, &bench.context())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Refused {
                doing: "keep the result",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_temporary(), "trying again is of no use");
    assert_eq!(bench.everything().await, before);
    assert!(!commits.has_changed().unwrap());
    // Halved, the first goes through, and the second is found to be the one.
    bench
        .store
        .process(POOL, &batches[..1], &bench.context())
        .await
        .unwrap();
    let error = bench
        .store
        .process(POOL, &batches[1..], &bench.context())
        .await
        .unwrap_err();
    assert!(!error.is_temporary());
    connection.execute("DROP TRIGGER fault").await.unwrap();
    bench
        .store
        .process(POOL, &batches[1..], &bench.context())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_lock_that_another_holds_is_trouble_that_passes() {
    let file = File::new();
    drop(file.store().await);
    let mut holder = raw(&file.path()).await;
    holder.execute("BEGIN IMMEDIATE").await.unwrap();
    let mut other = raw(&file.path()).await;
    other.execute("PRAGMA busy_timeout = 0").await.unwrap();
    let error = other.execute("BEGIN IMMEDIATE").await.unwrap_err();
    let error = query("begin")(error);
    assert!(matches!(error, StoreError::Query { .. }), "{error:?}");
    assert!(error.is_temporary());
    holder.execute("ROLLBACK").await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    other.close().await.unwrap();
}

/// As on a disk that is full: the database rolls back by itself, the commit fails, and the client takes its connection
/// for one inside a transaction from then on.
#[tokio::test]
async fn a_commit_that_fails_ends_its_own_transaction_and_no_other() {
    let file = File::new();
    let store = file.store().await;
    let mut write = store.database.begin().await.unwrap();
    write.tx.execute("ROLLBACK").await.unwrap();
    let error = write.commit().await.unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    for _ in 0..3 {
        store.database.begin().await.unwrap().commit().await.unwrap();
    }
}

/// Each change has what has to be true of its row before; a decision that was made on other rows is not written.
#[tokio::test]
async fn a_change_that_does_not_fit_its_row_is_refused() {
    let file = File::new();
    let bench = Bench::new(Arc::new(File::at(&file))).await;
    let (mut client, other) = (bench.session().await, bench.session().await);
    let started = bench.started(&Plan::once(), &mut client).await;
    let dispatched = bench.dispatched(&Plan::once()).await;
    let over = bench.submit(&Plan::once()).await;
    bench
        .store
        .cancel(TenantId::LOCAL, over, &bench.context())
        .await
        .unwrap();
    let store = file.store().await;
    let ledger = everything(&store, POOL).await;
    let session = ledger.session(client.session).unwrap().clone();
    let record = ledger.attempt(dispatched.attempt).unwrap().clone();
    let canceled = Outcome::decided(EndState::Canceled, Cause::CanceledByRequest);
    let (attempt, job) = (dispatched.attempt, dispatched.job);
    let again = AttemptRecord {
        attempt: AttemptId::new(),
        ..record.clone()
    };
    let lost = |session, attempt, job| Change::AttemptEnded {
        attempt,
        job,
        how: AttemptEnd::Lost {
            session,
            cause: Cause::ExecutorLost,
            ran: true,
        },
        then: JobNext::Ended(canceled.clone()),
    };
    let start = |attempt, job| Change::Started {
        attempt,
        job,
        session: other.session,
        executor: other.executor,
        publication: 1,
    };
    let opened = Opened {
        slots: 1,
        pool: POOL.to_owned(),
        facts: ExecutorFacts::default(),
    };
    let ended = Change::SessionEnded {
        session: other.session,
        executor: other.executor,
        end: SessionEnd::Closed,
    };
    let cases = [
        vec![Change::Dispatched(record.clone())],
        vec![Change::Dispatched(again)],
        vec![Change::Published {
            attempt,
            publication: 1,
            at: bench.now,
        }],
        vec![Change::Published {
            attempt: started.attempt,
            publication: 2,
            at: bench.now,
        }],
        vec![Change::PublicationConfirmed {
            attempt,
            publication: 2,
        }],
        vec![Change::CancelRequested { job }],
        vec![Change::CancelRequested { job: over }],
        vec![Change::JobEnded {
            job: over,
            outcome: canceled.clone(),
        }],
        vec![Change::SessionOpened {
            record: session.clone(),
            opened,
        }],
        vec![Change::EventsProcessed {
            session: client.session,
            processed: session.processed,
        }],
        vec![Change::LeaseMoved {
            session: client.session,
            lease_end: ServerTime::from_micros(session.lease_end.as_micros() - 1),
            free_slots: None,
        }],
        vec![ended.clone(), ended.clone()],
        vec![
            ended,
            Change::LeaseMoved {
                session: other.session,
                lease_end: session.lease_end.after(bench.timing.lease),
                free_slots: None,
            },
        ],
        vec![start(started.attempt, started.job)],
        vec![start(attempt, started.job)],
        vec![lost(other.session, started.attempt, started.job)],
        vec![lost(other.session, attempt, job)],
        vec![Change::AttemptEnded {
            attempt: started.attempt,
            job: started.job,
            how: AttemptEnd::NeverStarted {
                cause: Cause::WaitedTooLong,
            },
            then: JobNext::Ended(canceled.clone()),
        }],
        vec![Change::AttemptEnded {
            attempt: started.attempt,
            job: over,
            how: AttemptEnd::Lost {
                session: client.session,
                cause: Cause::ExecutorLost,
                ran: true,
            },
            then: JobNext::Queued { ready_at: bench.now },
        }],
        vec![Change::DeadLettered {
            attempt: started.attempt,
            times: 1,
        }],
    ];
    let before = bench.everything().await;
    for changes in cases {
        let mut write = store.database.begin().await.unwrap();
        let mut writer = Writer {
            connection: &mut write.tx,
            queue: POOL,
            now: bench.date(),
        };
        let error = writer.write(&changes).await.expect_err(&format!("{changes:?}"));
        assert!(
            matches!(error, StoreError::Refused { .. }),
            "{changes:?}: {error:?}"
        );
        assert!(!error.is_temporary());
        drop(write);
        assert_eq!(bench.everything().await, before);
    }
}
