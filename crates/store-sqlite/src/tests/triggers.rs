//! What the schema itself refuses, whoever writes: this program with a fault, or a person with a shell.

use mayfly_core::{account::Role, digest::Digest, id::ExecutorId};
use mayfly_store::{
    contract::{
        accounts,
        bench::{Bench, Plan, success},
    },
    executors::NewExecutor,
};
use sqlx::{AssertSqlSafe, Executor as _, SqliteConnection};

use super::{File, raw};

/// What is tried, and why it is refused.
const REFUSED: &[(&str, &str)] = &[
        ("UPDATE audit_events SET body = x'7b7d'", "append-only"),
        ("UPDATE audit_events SET at = at + 1 WHERE position = 1", "append-only"),
        ("DELETE FROM audit_events", "append-only"),
        ("DELETE FROM audit_events WHERE position = (SELECT max(position) FROM audit_events)", "append-only"),
        (
            "INSERT OR REPLACE INTO audit_events (event_id, at, tenant_id, kind, body)
             SELECT event_id, at, tenant_id, kind, x'7b7d' FROM audit_events LIMIT 1",
            "append-only",
        ),
        (
            "INSERT OR REPLACE INTO audit_events (position, event_id, at, tenant_id, kind, body)
             SELECT position, x'00', at, tenant_id, kind, body FROM audit_events LIMIT 1",
            "append-only",
        ),
        ("UPDATE OR REPLACE audit_events SET position = 1 WHERE position = 2", "append-only"),
        ("UPDATE jobs SET outcome = '{}' WHERE state = 'ended'", "an end is final"),
        ("UPDATE jobs SET end_state = 'failed' WHERE state = 'ended'", "an end is final"),
        (
            "UPDATE jobs SET state = 'queued', end_state = NULL, outcome = NULL, ended_at = NULL
              WHERE state = 'ended'",
            "an end is final",
        ),
        ("DELETE FROM jobs WHERE state = 'ended'", "is kept"),
        ("DELETE FROM jobs WHERE state = 'queued'", "is kept"),
        (
            "INSERT OR REPLACE INTO jobs
             SELECT job_id, tenant_id, pool, 'queued', priority, 0, NULL, retry, asked, labels, image, image_digest,
                    policy_version, submitted_at, ready_at, expires_at, NULL, NULL, NULL, NULL, NULL, 1, 0
               FROM jobs WHERE state = 'ended'",
            "accepted once",
        ),
        ("UPDATE job_contents SET resolved = '{}'", "never changes"),
        (
            "INSERT OR REPLACE INTO job_contents SELECT job_id, salt, '{}' FROM job_contents",
            "never changes",
        ),
        ("UPDATE attempts SET session_id = x'00' WHERE state = 'started'", "starts at most once"),
        ("UPDATE attempts SET executor_id = x'00' WHERE state = 'started'", "starts at most once"),
        ("UPDATE attempts SET started_at = 0 WHERE state = 'started'", "starts at most once"),
        (
            "UPDATE attempts SET state = 'dispatched', session_id = NULL, executor_id = NULL, started_at = NULL
              WHERE state = 'started'",
            "starts at most once",
        ),
        ("UPDATE attempts SET state = 'dispatched' WHERE state = 'started'", "CHECK constraint failed"),
        ("UPDATE attempts SET state = 'started' WHERE state = 'dispatched'", "CHECK constraint failed"),
        ("UPDATE attempts SET state = 'dispatched' WHERE state = 'ended'", "an end is final"),
        ("UPDATE attempts SET cause = 'signaled' WHERE state = 'ended'", "an end is final"),
        ("DELETE FROM attempts", "is kept"),
        (
            "INSERT OR REPLACE INTO attempts
             SELECT attempt_id, job_id, number, pool, 'dispatched', 1, 1, 0, 0, NULL, NULL, NULL, NULL, NULL
               FROM attempts WHERE state = 'started'",
            "made once",
        ),
        (
            "INSERT OR REPLACE INTO attempts
             SELECT x'00', job_id, number, pool, 'dispatched', 1, 1, 0, 0, NULL, NULL, NULL, NULL, NULL
               FROM attempts WHERE state = 'started'",
            "made once",
        ),
        ("UPDATE tenants SET name = 'another'", "stays who it is"),
        ("UPDATE tenants SET tenant_id = x'00'", "stays who it is"),
        ("DELETE FROM tenants", "is kept"),
        ("INSERT OR REPLACE INTO tenants (tenant_id, name, weight, created_at) SELECT tenant_id, name, 2, created_at FROM tenants", "made once"),
        ("INSERT OR REPLACE INTO tenants (tenant_id, name, weight, created_at) SELECT x'00', name, 2, created_at FROM tenants", "made once"),
        ("UPDATE api_keys SET role = 'admin'", "stays what it was made as"),
        ("UPDATE api_keys SET tenant_id = NULL, role = 'operator'", "stays what it was made as"),
        ("UPDATE api_keys SET secret = 'sha256:00'", "stays what it was made as"),
        ("UPDATE api_keys SET expires_at = 1", "stays what it was made as"),
        ("UPDATE api_keys SET revoked_at = NULL WHERE revoked_at IS NOT NULL", "that is final"),
        ("DELETE FROM api_keys", "is kept"),
        (
            "INSERT OR REPLACE INTO api_keys
             SELECT key_id, tenant_id, 'viewer', name, secret, created_at, NULL, NULL, NULL FROM api_keys",
            "made once",
        ),
        (
            "INSERT INTO api_keys (key_id, tenant_id, role, name, secret, created_at)
             SELECT x'00', NULL, 'submitter', name, secret, created_at FROM api_keys",
            "CHECK constraint failed",
        ),
        (
            "INSERT INTO api_keys (key_id, tenant_id, role, name, secret, created_at)
             SELECT x'00', tenant_id, 'operator', name, secret, created_at FROM api_keys",
            "CHECK constraint failed",
        ),
        ("UPDATE sessions SET ended = NULL WHERE ended IS NOT NULL", "a lease that has ended is final"),
        ("UPDATE sessions SET ended = 'lease_ended' WHERE ended = 'closed'", "a lease that has ended is final"),
        ("UPDATE batches SET items = 2 WHERE items IS NOT NULL", "is completed once"),
        ("UPDATE batches SET items = NULL WHERE items IS NOT NULL", "is completed once"),
        ("UPDATE batches SET input = 'another'", "never changes"),
        ("UPDATE batches SET tenant_id = x'00'", "never changes"),
        ("UPDATE batches SET created_at = 0", "never changes"),
        ("DELETE FROM batches", "is kept"),
        ("INSERT OR REPLACE INTO batches SELECT batch_id, tenant_id, input, created_at, NULL FROM batches", "begins once"),
        ("UPDATE jobs SET batch_id = NULL, batch_position = NULL WHERE state = 'queued' AND batch_id IS NOT NULL", "stays what"),
        ("UPDATE jobs SET batch_position = 7 WHERE state = 'queued' AND batch_id IS NOT NULL", "stays what"),
        ("UPDATE jobs SET tenant_id = x'00' WHERE state = 'queued'", "stays what"),
        (
            "INSERT INTO jobs (job_id, tenant_id, pool, state, priority, retry, asked, labels, image, image_digest,
                               policy_version, submitted_at, ready_at, batch_id, batch_position)
             SELECT x'00', tenant_id, pool, 'queued', priority, retry, asked, labels, image, image_digest,
                    policy_version, submitted_at, ready_at, batch_id, 7
               FROM jobs WHERE batch_id IS NOT NULL",
            "takes further jobs",
        ),
        ("UPDATE executors SET name = 'another'", "stays who it is"),
        ("UPDATE executors SET pool = 'another'", "stays who it is"),
        ("DELETE FROM executors", "is kept"),
        ("INSERT OR REPLACE INTO executors SELECT executor_id, 'another', pool, enrolled_at, 0 FROM executors", "enrolls once"),
        ("INSERT OR REPLACE INTO executors SELECT x'00', name, pool, enrolled_at, 0 FROM executors", "enrolls once"),
        ("UPDATE jobs SET retain_source = 0 WHERE state = 'queued'", "stays what"),
        ("UPDATE batch_items SET item = 'another'", "never changes"),
        ("INSERT OR REPLACE INTO batch_items SELECT batch_id, item, x'00' FROM batch_items", "accepted once"),
        (
            "INSERT OR REPLACE INTO batch_items SELECT batch_id, 'another', job_id FROM batch_items",
            "accepted once",
        ),
        ("UPDATE artifact_pieces SET content = x'00'", "never changes"),
        (
            "INSERT OR REPLACE INTO artifact_pieces SELECT attempt_id, file, piece, digest, 1, x'00' FROM artifact_pieces",
            "never changes",
        ),
        ("UPDATE uploads SET digest = zeroblob(32)", "stays what it is"),
        ("UPDATE uploads SET kept_at = NULL", "stays what it is"),
        ("UPDATE upload_pieces SET content = x'00', bytes = 1", "never changes"),
        ("UPDATE job_fetches SET file = 7", "never changes"),
        ("DELETE FROM uploads", "FOREIGN KEY constraint failed"),
        ("UPDATE tenant_secrets SET sealed = x''", "has another id"),
        ("UPDATE tenant_secrets SET name = 'OTHER', value_id = x'00'", "has another id"),
        ("UPDATE tenant_secrets SET tenant_id = x'00', value_id = x'00'", "has another id"),
        ("UPDATE output_blobs SET content = x'00'", "never changes"),
        ("INSERT OR REPLACE INTO output_blobs SELECT attempt_id, digest, x'00' FROM output_blobs", "never changes"),
        ("UPDATE results SET report = '{}'", "a result is final"),
        ("UPDATE results SET stdout_head = x'00'", "a result is final"),
        (
            "INSERT OR REPLACE INTO results SELECT attempt_id, '{}', x'', x'', x'', x'' FROM results",
            "a result is final",
        ),
];

/// A file with a job that is over, one that has started, one that is dispatched and one that waits.
async fn sample() -> (File, SqliteConnection) {
    let file = File::new();
    let bench = Bench::new(std::sync::Arc::new(File::at(&file))).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    bench.send(&client.finish(message.attempt, success())).await;
    let running = bench.started(&Plan::once(), &mut client).await;
    let owner = mayfly_store::blobs::BlobOwner {
        tenant: running.tenant,
        job: running.job,
        attempt: running.attempt,
    };
    let left = bench
        .store
        .keep_output(owner, Digest::of(b"output"), b"output")
        .await;
    assert!(left.unwrap());
    let at = mayfly_store::blobs::PieceAt { file: 0, piece: 0 };
    let left = bench
        .store
        .keep_piece(owner, at, Digest::of(b"piece"), b"piece", 100)
        .await;
    assert!(left.unwrap());
    bench.dispatched(&Plan::once()).await;
    bench.submit(&Plan::once()).await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["one"]).await;
    bench.complete(batch, 1).await;
    let mut next = mayfly_store::contract::bench::Client::new();
    let opened = next.opened(1);
    bench.send(&opened).await;
    let closed = next.batch(vec![mayfly_dispatch::message::SessionEvent::Closed]);
    bench.send(&closed).await;
    let team = accounts::tenant(&bench, "team-a").await;
    let key = accounts::new_key(Some(team.id), Role::Viewer);
    let id = key.id;
    let made = bench.store.create_key(key, None, bench.date()).await;
    made.unwrap();
    bench.store.revoke_key(id, None, bench.date()).await.unwrap();
    let executor = NewExecutor {
        id: ExecutorId::new(),
        name: "one".to_owned(),
        pool: "python".to_owned(),
    };
    let enrolled = bench.store.enroll_executor(executor, None, bench.date()).await;
    enrolled.unwrap();
    let secret = mayfly_store::secrets::NewSecret {
        tenant: mayfly_core::id::TenantId::LOCAL,
        name: "KEY".parse().unwrap(),
        value: mayfly_core::id::SecretId::new(),
        sealed: b"sealed".to_vec(),
    };
    bench.store.set_secret(secret, None, bench.date()).await.unwrap();
    mayfly_store::contract::uploads::in_use(&bench, mayfly_core::id::TenantId::LOCAL, b"content").await;
    let connection = raw(&file.path()).await;
    (file, connection)
}

async fn dump(connection: &mut SqliteConnection) -> Vec<String> {
    let mut all = Vec::new();
    for table in [
        "jobs",
        "job_contents",
        "attempts",
        "output_blobs",
        "artifact_pieces",
        "sessions",
        "results",
        "audit_events",
        "batches",
        "batch_items",
        "tenants",
        "tenant_secrets",
        "uploads",
        "upload_pieces",
        "job_fetches",
        "api_keys",
        "executors",
    ] {
        let text = super::rows(connection, table).await;
        assert!(!text.is_empty(), "{table} has rows");
        all.extend(text);
    }
    all
}

#[tokio::test]
async fn what_is_final_can_be_neither_changed_nor_removed_nor_written_over() {
    let (_file, mut connection) = sample().await;
    let before = dump(&mut connection).await;
    for (statement, why) in REFUSED {
        let error = connection.execute(AssertSqlSafe(*statement)).await.unwrap_err();
        assert!(error.to_string().contains(why), "{statement}: {error}");
    }
    assert_eq!(dump(&mut connection).await, before);
}

/// The guards are tested by leaving each of them out once.
#[tokio::test]
async fn without_any_one_of_the_triggers_something_final_could_be_changed() {
    let (_file, mut connection) = sample().await;
    let triggers = super::texts(
        &mut connection,
        // What this one does, and does not forbid, the contract's cases on content look at.
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name <> 'job_contents_go_where_asked'",
    )
    .await;
    assert_eq!(triggers.len(), 41);
    for trigger in triggers {
        connection.execute("BEGIN").await.unwrap();
        connection
            .execute(AssertSqlSafe(format!("DROP TRIGGER {trigger}")))
            .await
            .unwrap();
        let mut open = 0;
        for (statement, why) in REFUSED {
            connection.execute("SAVEPOINT attempt").await.unwrap();
            let tried = connection.execute(AssertSqlSafe(*statement)).await;
            open += usize::from(!tried.is_err_and(|error| error.to_string().contains(why)));
            connection.execute("ROLLBACK TO attempt").await.unwrap();
        }
        connection.execute("ROLLBACK").await.unwrap();
        assert!(open > 0, "{trigger} guards nothing that is tried here");
    }
}

#[tokio::test]
async fn words_that_no_row_may_have_are_refused() {
    let (_file, mut connection) = sample().await;
    for statement in [
        "UPDATE jobs SET state = 'running' WHERE state = 'queued'",
        "UPDATE jobs SET state = 'ended' WHERE state = 'queued'",
        "UPDATE jobs SET outcome = '{}' WHERE state = 'queued'",
        "UPDATE attempts SET state = 'lost' WHERE state = 'dispatched'",
        "UPDATE attempts SET state = 'ended' WHERE state = 'dispatched'",
        "UPDATE attempts SET session_id = x'00' WHERE state = 'dispatched'",
        "UPDATE attempts SET confirmed = 2 WHERE state = 'dispatched'",
        "UPDATE sessions SET ended = 'gone' WHERE ended IS NULL",
        "UPDATE jobs SET priority = 'high' WHERE state = 'queued'",
        "INSERT INTO job_contents SELECT job_id, x'00', '' FROM jobs WHERE state = 'queued'",
        "INSERT INTO batches VALUES (x'01', x'00', '', 0, -1)",
        "INSERT INTO batch_items SELECT batch_id, '', x'00' FROM batches",
        "INSERT INTO results VALUES (x'00', '', x'', x'', x'', x'')",
    ] {
        assert!(
            connection.execute(AssertSqlSafe(statement)).await.is_err(),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn content_can_be_erased_and_the_record_stays() {
    let (_file, mut connection) = sample().await;
    connection.execute("DELETE FROM job_contents").await.unwrap();
    connection.execute("DELETE FROM results").await.unwrap();
    connection.execute("DELETE FROM batch_items").await.unwrap();
    connection.execute("UPDATE batches SET input = ''").await.unwrap();
}
