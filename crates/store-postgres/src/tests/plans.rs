//! How statements find their rows: by an index, so that what a statement costs does not grow with what is stored.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::Server;

/// Statements that read a whole table, and why that is all right.
const READ_ALL: &[(&str, &str)] = &[
    (
        "/* open_pools: sessions */",
        "live sessions are as many as processes that live",
    ),
    (
        "/* open_pools: jobs */",
        "asked for by a person, when a process starts that runs everything by itself",
    ),
    (
        "FROM images ORDER BY name",
        "the catalog is what an operator has pinned",
    ),
    ("FROM schema_reader", "it has one row"),
    (
        "/* has_room */",
        "it looks at the dead letters, of which eleven thousand are kept at most",
    ),
    ("pg_class", "the catalogue of tables"),
    ("pg_roles", "the catalogue of roles"),
    ("pg_database", "the catalogue of databases"),
    ("SELECT 'job' AS", "tests look at everything"),
];

/// Every statement that is compiled into this crate, with the types of its parameters.
fn statements() -> Vec<(String, usize)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let described: serde_json::Value = serde_json::from_str(&text).unwrap();
            let count = described["describe"]["parameters"]["Left"]
                .as_array()
                .map_or(0, Vec::len);
            (described["query"].as_str().unwrap().to_owned(), count)
        })
        .collect()
}

/// The plan that is made once and kept, whatever the parameters are; none where the role may not do it.
async fn plan(connection: &mut PgConnection, number: usize, statement: &(String, usize)) -> Option<String> {
    use sqlx::Row as _;
    let nulls = vec!["NULL"; statement.1].join(", ");
    let arguments = if statement.1 == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    let prepare = format!("PREPARE looked_at_{number} AS {}", statement.0);
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE looked_at_{number}{arguments}");
    let explained = async {
        connection.execute(AssertSqlSafe(prepare)).await?;
        connection.fetch_all(AssertSqlSafe(explain)).await
    };
    match explained.await {
        Ok(rows) => Some(rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()),
        Err(error) => {
            let code = error.as_database_error().and_then(|error| error.code());
            assert_eq!(code.as_deref(), Some("42501"), "{error}: {}", statement.0);
            None
        }
    }
}

async fn check(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    for (name, value) in crate::database::SESSION {
        connection
            .execute(AssertSqlSafe(format!("SET {name} = '{value}'")))
            .await
            .unwrap();
    }
    let statements = statements();
    assert!(statements.len() > 90);
    let (mut read_all, mut planned) = (0, 0);
    for (number, statement) in statements.iter().enumerate() {
        if READ_ALL.iter().any(|(text, _)| statement.0.contains(text)) {
            read_all += 1;
            continue;
        }
        // What the other role alone may do is looked at with that.
        let Some(steps) = plan(&mut connection, number, statement).await else {
            continue;
        };
        planned += 1;
        // One job of a tenant is found by its key, and not by a walk through all that the tenant has.
        let is = |names: &[&str]| {
            let mut names = names.iter();
            names.any(|name| statement.0.starts_with(&format!("/* {name} */")))
        };
        if is(&["jobs", "find", "standings", "waiting_for"]) {
            assert!(!steps.contains("jobs_newest"), "{steps}\n{}", statement.0);
        }
        // So is a key, also one that is removed because it is old.
        if is(&["forget_old"]) {
            assert!(
                steps.contains("idempotency_keys_pkey"),
                "{steps}\n{}",
                statement.0
            );
        }
        if is(&["keep", "give_back"]) {
            assert!(
                !steps.contains("idempotency_keys_of_old"),
                "{steps}\n{}",
                statement.0
            );
        }
        // What a scheduler looks at is read in the order in which it is needed, and only so far.
        if is(&[
            "look",
            "fold",
            "wanted",
            "read",
            "own_lanes",
            "ahead",
            "begin_to_be_ready",
        ]) {
            assert!(!steps.contains("Sort"), "{steps}\n{}", statement.0);
        }
        // A row's place is no way to it where a policy goes first: then all that the policy lets through are looked at.
        for bad in ["Seq Scan", "Hash Join", "Merge Join", "Filter: (ctid"] {
            assert!(!steps.contains(bad), "{steps}\n{}", statement.0);
        }
    }
    assert!(read_all >= READ_ALL.len() && planned > 20, "{planned}");
}

/// So many ended jobs of many tenants, with all that belongs to them, and some that wait, of each.
pub(super) fn stored(jobs: u32) -> String {
    format!(
        "SET session_replication_role = replica;
         INSERT INTO jobs (tenant_id, job_id, pool, state, priority, attempts, retry, asked, labels, image, image_digest,
                           policy_version, submitted_at, ready_at, ended_at, end_state, outcome)
         SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i % 500 + 1), 12, '0'))::uuid,
                mayfly_first_id(now() - i * interval '1 second'), 'stored',
                CASE WHEN i / 500 % 20 = 0 THEN 'queued' ELSE 'ended' END, 0, 1, '{{}}', '{{}}',
                '{{}}', 'python', '', '', now(), now(),
                CASE WHEN i / 500 % 20 <> 0 THEN now() END, CASE WHEN i / 500 % 20 <> 0 THEN 'succeeded' END,
                CASE WHEN i / 500 % 20 <> 0 THEN '{{}}' END
           FROM generate_series(1, {jobs}) i;
         INSERT INTO attempts (tenant_id, attempt_id, job_id, number, pool, state, publication, published_at, session_id,
                               executor_id, started_at, ended_at, cause)
         SELECT tenant_id, job_id, job_id, 1, pool, 'ended', 1, now(), job_id, job_id, now(), now(), 'exited' FROM jobs
          WHERE state = 'ended';
         INSERT INTO job_contents SELECT tenant_id, job_id, decode(repeat('00', 32), 'hex'), '{{}}' FROM jobs;
         INSERT INTO ready_jobs SELECT pool, tenant_id, 0, image_digest, job_id FROM jobs WHERE state = 'queued';
         INSERT INTO lanes
         SELECT DISTINCT ON (pool, tenant_id, rank, image_digest) pool, tenant_id, rank, image_digest, job_id, true
           FROM ready_jobs ORDER BY pool, tenant_id, rank, image_digest, job_id;
         INSERT INTO audit_events (tenant_id, event_id, at, job_id, kind, body)
         SELECT tenant_id, job_id, now(), job_id, 'job_submitted', '' FROM jobs;
         SET session_replication_role = origin;
         ANALYZE;"
    )
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let Some(server) = Server::new().await else { return };
    // While there is nothing, as plans are made at first; and where the planner knows that there is much.
    for jobs in [0, 50_000] {
        let mut superuser = server.superuser().await;
        superuser.execute(AssertSqlSafe(stored(jobs))).await.unwrap();
        check(&server.database.engine_url()).await;
        check(&server.database.api_url()).await;
    }
}

#[tokio::test]
async fn a_statement_without_its_index_is_noticed() {
    let Some(server) = Server::new().await else { return };
    let mut superuser = server.superuser().await;
    superuser
        .execute("DROP INDEX jobs_newest; SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let statement =
        "SELECT job_id FROM jobs WHERE submitted_at >= $1 ORDER BY submitted_at DESC LIMIT 1".to_owned();
    let steps = plan(&mut superuser, 0, &(statement, 1)).await.unwrap();
    assert!(steps.contains("Seq Scan"), "{steps}");
}
