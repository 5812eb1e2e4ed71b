//! What the schema itself refuses, whoever writes: this program with a fault, or a person with a shell.

use std::sync::Arc;

use mayfly_core::{
    account::Role,
    digest::Digest,
    id::{ExecutorId, KeyId, TenantId},
};
use mayfly_dispatch::message::SessionEvent;
use mayfly_store::{
    accounts::{NewKey, NewTenant, Quotas},
    contract::bench::{Bench, Client, POOL, Plan, success},
    executors::NewExecutor,
};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::{Server, texts};

/// What is tried, and why it is refused.
const REFUSED: &[(&str, &str)] = &[
    ("UPDATE audit_events SET body = '{}'", "append-only"),
    ("UPDATE audit_events SET at = at + interval '1 second'", "append-only"),
    ("DELETE FROM audit_events", "append-only"),
    (
        "DELETE FROM audit_events WHERE event_id = (SELECT max(event_id::text)::uuid FROM audit_events)",
        "append-only",
    ),
    (
        "INSERT INTO audit_events SELECT * FROM audit_events LIMIT 1
         ON CONFLICT (tenant_id, event_id) DO UPDATE SET body = '{}'",
        "append-only",
    ),
    ("TRUNCATE audit_events", "append-only"),
    ("TRUNCATE audit_events_else", "append-only"),
    ("UPDATE jobs SET outcome = '{}' WHERE state = 'ended'", "an end is final"),
    ("UPDATE jobs SET end_state = 'failed' WHERE state = 'ended'", "an end is final"),
    (
        "UPDATE jobs SET state = 'queued', end_state = NULL, outcome = NULL, ended_at = NULL WHERE state = 'ended'",
        "an end is final",
    ),
    ("DELETE FROM jobs WHERE state = 'ended'", "is kept"),
    ("DELETE FROM jobs WHERE state = 'queued'", "is kept"),
    ("TRUNCATE jobs CASCADE", "an accepted job is kept"),
    ("UPDATE jobs SET tenant_id = gen_random_uuid() WHERE state = 'queued'", "stays what"),
    ("UPDATE jobs SET job_id = gen_random_uuid() WHERE state = 'queued'", "stays what"),
    ("UPDATE jobs SET submitted_at = now() WHERE state = 'queued'", "stays what"),
    (
        "UPDATE jobs SET batch_id = NULL, batch_position = NULL WHERE state = 'queued' AND batch_id IS NOT NULL",
        "stays what",
    ),
    (
        "UPDATE jobs SET batch_position = 7 WHERE state = 'queued' AND batch_id IS NOT NULL",
        "stays what",
    ),
    (
        "UPDATE jobs SET retain_source = NOT retain_source WHERE state = 'queued'",
        "stays what it was accepted as",
    ),
    (
        "INSERT INTO jobs (tenant_id, job_id, pool, state, priority, retry, asked, labels, image, image_digest,
                           policy_version, submitted_at, ready_at, batch_id, batch_position)
         SELECT tenant_id, gen_random_uuid(), pool, 'queued', priority, retry, asked, labels, image, image_digest,
                policy_version, submitted_at, ready_at, batch_id, 7
           FROM jobs WHERE batch_id IS NOT NULL",
        "takes further jobs",
    ),
    ("UPDATE output_blobs SET digest = decode(repeat('00', 32), 'hex')", "never changes"),
    ("UPDATE artifact_pieces SET digest = decode(repeat('00', 32), 'hex')", "never changes"),
    ("UPDATE output_blobs SET content = 'x', bytes = 1", "never changes"),
    ("INSERT INTO output_blobs SELECT tenant_id, attempt_id, digest, 7, content FROM output_blobs", "violates check constraint"),
    ("UPDATE uploads SET digest = decode(repeat('00', 32), 'hex')", "stays what it is"),
    ("UPDATE uploads SET bytes = 1", "stays what it is"),
    ("UPDATE uploads SET begun_at = begun_at + interval '1 second'", "stays what it is"),
    ("UPDATE uploads SET tenant_id = gen_random_uuid()", "stays what it is"),
    ("UPDATE uploads SET upload_id = gen_random_uuid()", "stays what it is"),
    ("UPDATE uploads SET kept_at = NULL", "stays what it is"),
    ("UPDATE upload_pieces SET content = 'x', bytes = 1", "never changes"),
    ("UPDATE job_fetches SET file = 7", "never changes"),
    ("DELETE FROM uploads", "foreign key"),
    ("UPDATE tenant_secrets SET sealed = ''", "has another id"),
    ("UPDATE tenant_secrets SET name = 'OTHER', value_id = gen_random_uuid()", "has another id"),
    ("UPDATE tenant_secrets SET tenant_id = gen_random_uuid(), value_id = gen_random_uuid()", "has another id"),
    ("UPDATE job_contents SET resolved = '{}'", "never changes"),
    (
        "INSERT INTO job_contents SELECT * FROM job_contents ON CONFLICT (tenant_id, job_id) DO UPDATE SET resolved = '{}'",
        "never changes",
    ),
    (
        "UPDATE attempts SET session_id = gen_random_uuid() WHERE state = 'started'",
        "starts at most once",
    ),
    (
        "UPDATE attempts SET executor_id = gen_random_uuid() WHERE state = 'started'",
        "starts at most once",
    ),
    ("UPDATE attempts SET started_at = now() WHERE state = 'started'", "starts at most once"),
    (
        "UPDATE attempts SET state = 'dispatched', session_id = NULL, executor_id = NULL, started_at = NULL
          WHERE state = 'started'",
        "starts at most once",
    ),
    ("UPDATE attempts SET number = 7 WHERE state = 'started'", "stays one at its job"),
    (
        "UPDATE attempts SET attempt_id = gen_random_uuid() WHERE state = 'dispatched'",
        "stays one at its job",
    ),
    ("UPDATE attempts SET state = 'dispatched' WHERE state = 'ended'", "an end is final"),
    ("UPDATE attempts SET cause = 'signaled' WHERE state = 'ended'", "an end is final"),
    ("DELETE FROM attempts WHERE state = 'dispatched'", "is kept"),
    ("TRUNCATE attempts CASCADE", "an attempt is kept"),
    (
        "UPDATE sessions SET ended = NULL WHERE ended IS NOT NULL",
        "a lease that has ended is final",
    ),
    (
        "UPDATE sessions SET ended = 'lease_ended' WHERE ended = 'closed'",
        "a lease that has ended is final",
    ),
    ("UPDATE batches SET items = 2 WHERE items IS NOT NULL", "is completed once"),
    ("UPDATE batches SET items = NULL WHERE items IS NOT NULL", "is completed once"),
    ("UPDATE batches SET accepted = 0", "never changes"),
    ("UPDATE batches SET input = 'another'", "never changes"),
    ("UPDATE batches SET tenant_id = gen_random_uuid()", "never changes"),
    ("UPDATE batches SET created_at = now()", "never changes"),
    ("DELETE FROM batches", "is kept"),
    ("TRUNCATE batches CASCADE", "a batch is kept"),
    ("UPDATE batch_items SET item = 'another'", "never changes"),
    ("UPDATE results SET report = '{}'", "a result is final"),
    ("UPDATE results SET stdout_head = '\\x00'", "a result is final"),
    (
        "INSERT INTO results SELECT * FROM results ON CONFLICT (tenant_id, attempt_id) DO UPDATE SET report = '{}'",
        "a result is final",
    ),
    ("UPDATE tenants SET name = 'another'", "stays who it is"),
    ("DELETE FROM tenants", "a tenant is kept"),
    ("UPDATE api_keys SET role = 'auditor'", "stays what it was made as"),
    ("UPDATE api_keys SET expires_at = NULL", "stays what it was made as"),
    (
        "UPDATE api_keys SET revoked_at = NULL WHERE revoked_at IS NOT NULL",
        "and that is final",
    ),
    ("DELETE FROM api_keys", "a key is kept"),
    ("UPDATE executors SET name = 'another'", "an executor stays who it is"),
    ("UPDATE executors SET pool = 'another'", "an executor stays who it is"),
    ("DELETE FROM executors", "an executor is kept"),
];

/// Triggers that guard nothing but do something, and what they do.
const DOERS: &[&str] = &["job_contents_go_where_asked"];

/// A database with a job that is over, one that has started, one that is dispatched and one that waits; batches, accounts.
async fn sample() -> Option<(Server, PgConnection)> {
    let server = Server::new().await?;
    let bench = Bench::new(Arc::new(server.clone())).await;
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
    let secret = mayfly_store::secrets::NewSecret {
        tenant: running.tenant,
        name: "KEY".parse().unwrap(),
        value: mayfly_core::id::SecretId::new(),
        sealed: b"sealed".to_vec(),
    };
    bench.store.set_secret(secret, None, bench.date()).await.unwrap();
    mayfly_store::contract::uploads::in_use(&bench, TenantId::LOCAL, b"content").await;
    bench.dispatched(&Plan::once()).await;
    bench.submit(&Plan::once()).await;
    let batch = bench.batch().await;
    bench.submit_items(batch, ["one"]).await;
    bench.complete(batch, 1).await;
    let mut next = Client::new();
    let opened = next.opened(1);
    bench.send(&opened).await;
    let closed = next.batch(vec![SessionEvent::Closed]);
    bench.send(&closed).await;
    let tenant = NewTenant {
        id: TenantId::new(),
        name: "team-a".to_owned(),
        weight: 1,
        quotas: Quotas::default(),
    };
    let (id, key) = (tenant.id, KeyId::new());
    bench
        .store
        .create_tenant(tenant, None, bench.date())
        .await
        .unwrap();
    let new = NewKey {
        id: key,
        tenant: Some(id),
        role: Role::Viewer,
        name: "board".to_owned(),
        secret: Digest::of(b"secret"),
        expires_at: Some(bench.date()),
    };
    bench.store.create_key(new, None, bench.date()).await.unwrap();
    bench.store.revoke_key(key, None, bench.date()).await.unwrap();
    let executor = NewExecutor {
        id: ExecutorId::new(),
        name: "host-a".to_owned(),
        pool: POOL.to_owned(),
    };
    let enrolled = bench.store.enroll_executor(executor, None, bench.date()).await;
    enrolled.unwrap();
    let connection = server.superuser().await;
    Some((server, connection))
}

const TABLES: &[&str] = &[
    "jobs",
    "job_contents",
    "attempts",
    "sessions",
    "results",
    "audit_events",
    "batches",
    "batch_items",
    "tenants",
    "api_keys",
    "executors",
];

async fn dump(connection: &mut PgConnection) -> Vec<String> {
    let mut all = Vec::new();
    for table in TABLES {
        let rows = texts(connection, &format!("SELECT t::text FROM {table} t ORDER BY 1")).await;
        assert!(!rows.is_empty(), "{table} has rows");
        all.extend(rows);
    }
    all
}

/// Tries everything, also as a superuser, and says what was not refused for its reason.
async fn tried(connection: &mut PgConnection) -> Vec<String> {
    let mut open = Vec::new();
    for (statement, why) in REFUSED {
        connection.execute("SAVEPOINT attempt").await.unwrap();
        let tried = connection.execute(AssertSqlSafe(*statement)).await;
        match tried {
            Err(error) if error.to_string().contains(why) => {}
            Err(error) => open.push(format!("{statement}: {error}")),
            Ok(_) => open.push((*statement).to_owned()),
        }
        connection.execute("ROLLBACK TO attempt").await.unwrap();
    }
    open
}

#[tokio::test]
async fn what_is_final_can_be_neither_changed_nor_removed_nor_written_over() {
    let Some((_server, mut connection)) = sample().await else {
        return;
    };
    let before = dump(&mut connection).await;
    connection.execute("BEGIN").await.unwrap();
    assert_eq!(tried(&mut connection).await, Vec::<String>::new());
    connection.execute("COMMIT").await.unwrap();
    assert_eq!(dump(&mut connection).await, before);
}

/// The guards are tested by leaving each of them out once.
#[tokio::test]
async fn without_any_one_of_the_triggers_something_final_could_be_changed() {
    let Some((_server, mut connection)) = sample().await else {
        return;
    };
    // Those of a month's partition are the same as those of the partition of everything else.
    let triggers = texts(
        &mut connection,
        "SELECT format('%I ON %I', tgname, relname) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
          WHERE NOT tgisinternal AND tgparentid = 0 AND relname !~ '^audit_events_[0-9]'",
    )
    .await;
    assert!(triggers.len() >= 27, "{triggers:?}");
    for trigger in triggers {
        if DOERS.iter().any(|doer| trigger.starts_with(doer)) {
            continue;
        }
        connection.execute("BEGIN").await.unwrap();
        connection
            .execute(AssertSqlSafe(format!("DROP TRIGGER {trigger}")))
            .await
            .unwrap();
        let open = tried(&mut connection).await;
        connection.execute("ROLLBACK").await.unwrap();
        assert!(!open.is_empty(), "{trigger} guards nothing that is tried here");
    }
}

#[tokio::test]
async fn words_that_no_row_may_have_are_refused() {
    let Some((_server, mut connection)) = sample().await else {
        return;
    };
    for statement in [
        "UPDATE jobs SET state = 'running' WHERE state = 'queued'",
        "UPDATE jobs SET state = 'ended' WHERE state = 'queued'",
        "UPDATE jobs SET outcome = '{}' WHERE state = 'queued'",
        "UPDATE attempts SET state = 'lost' WHERE state = 'dispatched'",
        "UPDATE attempts SET state = 'ended' WHERE state = 'dispatched'",
        "UPDATE attempts SET state = 'started' WHERE state = 'dispatched'",
        "UPDATE attempts SET session_id = gen_random_uuid() WHERE state = 'dispatched'",
        "UPDATE sessions SET ended = 'gone' WHERE ended IS NULL",
        "UPDATE sessions SET ended = 'closed' WHERE held <> '{}'",
        "INSERT INTO job_contents SELECT tenant_id, gen_random_uuid(), salt, resolved FROM job_contents LIMIT 1",
        "INSERT INTO job_contents SELECT tenant_id, job_id, 'short', '' FROM jobs WHERE state = 'queued'",
        "INSERT INTO batches VALUES (gen_random_uuid(), gen_random_uuid(), '', now(), 0, -1)",
        "INSERT INTO batch_items SELECT tenant_id, batch_id, '', job_id FROM batch_items",
        "INSERT INTO results SELECT tenant_id, gen_random_uuid(), report, '', '', '', '' FROM results",
        "UPDATE tenants SET weight = 0",
        "UPDATE tenants SET weight = 1001",
        "INSERT INTO api_keys (key_id, role, name, secret, created_at) VALUES (gen_random_uuid(), 'viewer', 'a', '', now())",
    ] {
        let tried = connection.execute(AssertSqlSafe(statement)).await;
        let error = tried.expect_err(statement);
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .unwrap_or_default();
        assert!(code.starts_with("23"), "{statement}: {error}");
    }
}

#[tokio::test]
async fn content_can_be_erased_and_the_record_stays() {
    let Some((_server, mut connection)) = sample().await else {
        return;
    };
    connection
        .execute(
            "DELETE FROM job_contents; DELETE FROM results; DELETE FROM batch_items; UPDATE batches SET input = '';",
        )
        .await
        .unwrap();
}
