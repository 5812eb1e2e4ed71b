//! How statements find their rows: by an index, so that what a statement costs does not grow with what is stored.

use std::path::Path;

use sqlx::{AssertSqlSafe, Executor as _, SqliteConnection};

use super::{File, close, raw, texts};

/// Statements that read a whole table, and why that is all right.
const READ_ALL: &[(&str, &str)] = &[
    (
        "FROM images ORDER BY name",
        "the catalog is what an operator has pinned",
    ),
    (
        "/* lanes */",
        "what it has found so far is what it goes on from, one step of the index for each lane",
    ),
    (
        "/* add_accounts */",
        "the list is what is asked for, and each of it has its row by its key",
    ),
    ("FROM schema_reader", "it has one row"),
    (
        "FROM dead_letters ORDER BY at",
        "the oldest are what is asked for, and the index goes on where the list ends",
    ),
    (
        "DELETE FROM dead_letters WHERE letter_id IN",
        "it passes over those that stay, of which ten thousand do",
    ),
    (
        "/* has_room */",
        "it looks at the dead letters, of which eleven thousand are kept at most",
    ),
    ("FROM sqlite_schema", "it has a row for each table and index"),
    (
        "/* open_pools: sessions */",
        "live sessions are as many as processes that live, or have died since the last start",
    ),
    (
        "/* open_pools: jobs */",
        "so are jobs of no batch that are not over, and the index has no others",
    ),
    (
        "FROM pragma_quick_check",
        "a look at the whole file is what it is asked for, by a person and once",
    ),
    ("SELECT 'job' AS", "tests look at everything"),
];

/// Every statement that is compiled into this crate.
fn statements() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let described: serde_json::Value = serde_json::from_str(&text).unwrap();
            described["query"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "a plan is not described in advance")]
async fn plan(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    use sqlx::Row as _;
    sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")))
        .fetch_all(connection)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.get("detail"))
        .collect()
}

async fn check(connection: &mut SqliteConnection) {
    let statements = statements();
    assert!(statements.len() > 40);
    let mut read_all = 0;
    for statement in &statements {
        if READ_ALL.iter().any(|(text, _)| statement.contains(text)) {
            read_all += 1;
            continue;
        }
        for step in plan(connection, statement).await {
            let scans = step.starts_with("SCAN")
                && step != "SCAN CONSTANT ROW"
                // A list that the statement is given.
                && !step.contains("VIRTUAL TABLE")
                && !step.starts_with("SCAN (subquery");
            assert!(!scans, "{step}\n{statement}");
            assert!(!step.contains("TEMP B-TREE"), "{step}\n{statement}");
        }
    }
    assert!(read_all >= READ_ALL.len());
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_or_sorts_one() {
    let file = File::new();
    close(file.store().await).await;
    let mut connection = raw(&file.path()).await;
    check(&mut connection).await;
    // Also where the planner knows that there is much, and of what.
    connection
        .execute(
            "BEGIN;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
             INSERT INTO jobs (job_id, tenant_id, pool, state, priority, attempts, retry, asked, labels, image,
                               image_digest, policy_version, submitted_at, ready_at, expires_at, end_state, outcome,
                               ended_at)
             SELECT randomblob(16), zeroblob(16), 'python', iif(i % 100 = 0, 'queued', 'ended'), i % 3, 1, '{}', '{}',
                    '{}', 'python', '', '', i, i, iif(i % 2 = 0, i, NULL), iif(i % 100 = 0, NULL, 'succeeded'),
                    iif(i % 100 = 0, NULL, '{}'), iif(i % 100 = 0, NULL, i)
               FROM n;
             INSERT INTO attempts (attempt_id, job_id, number, pool, state, publication, published_at, session_id,
                                   executor_id, started_at, ended_at, cause)
             SELECT randomblob(16), job_id, 1, pool, iif(state = 'ended', 'ended', 'dispatched'), 1, 1,
                    iif(state = 'ended', zeroblob(16), NULL), iif(state = 'ended', zeroblob(16), NULL),
                    iif(state = 'ended', 1, NULL), ended_at, iif(state = 'ended', 'exited', NULL)
               FROM jobs;
             INSERT INTO sessions (session_id, executor_id, pool, ended, processed, lease_end, slots, free_slots, facts,
                                   opened_at)
             SELECT randomblob(16), randomblob(16), 'python', iif(ready_at % 1000 = 0, NULL, 'closed'), 1, 1, 1, 1, '{}', 1
               FROM jobs LIMIT 20000;
             INSERT INTO audit_events (event_id, at, tenant_id, job_id, kind, body)
             SELECT randomblob(16), 1, tenant_id, job_id, 'job_submitted', zeroblob(100) FROM jobs;
             COMMIT;
             ANALYZE;",
        )
        .await
        .unwrap();
    let count = texts(&mut connection, "SELECT CAST(count(*) AS TEXT) FROM audit_events").await;
    assert_eq!(count, ["100000"]);
    check(&mut connection).await;
}

#[tokio::test]
async fn every_index_is_what_some_statement_finds_its_rows_by() {
    let file = File::new();
    close(file.store().await).await;
    let mut connection = raw(&file.path()).await;
    let statement = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
    let indexes = texts(&mut connection, statement).await;
    assert!(indexes.len() >= 12);
    let mut plans = String::new();
    for statement in statements() {
        plans += &plan(&mut connection, &statement).await.join("\n");
        plans += "\n";
    }
    for index in indexes {
        let used = plans.contains(&format!("INDEX {index} ")) || plans.contains(&format!("INDEX {index}\n"));
        assert!(used, "{index} is used by no statement");
    }
}

#[tokio::test]
async fn a_statement_without_its_index_is_noticed() {
    let file = File::new();
    close(file.store().await).await;
    let mut connection = raw(&file.path()).await;
    connection
        .execute("DROP INDEX audit_events_of_job")
        .await
        .unwrap();
    let statement = "SELECT body FROM audit_events WHERE job_id = ? ORDER BY position DESC LIMIT 1";
    let steps = plan(&mut connection, statement).await;
    assert_eq!(steps, ["SCAN audit_events"]);
}
