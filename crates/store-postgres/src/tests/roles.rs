//! What the two roles may do, tried with their own connections; and that no table is without its policy.

use std::sync::Arc;

use mayfly_core::id::{JobId, TenantId};
use mayfly_store::{
    contract::bench::{Bench, Plan, success},
    records::{AuditFilter, NewJob},
    seam::JobStore as _,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::{Server, texts};

fn tenant(number: u8) -> TenantId {
    format!("00000000-0000-7000-8000-0000000000{number:02x}")
        .parse()
        .unwrap()
}

/// Tables that are nobody's, and why.
const NOBODYS: &[(&str, &str)] = &[
    ("schema_reader", "it has one row, about the schema"),
    ("_sqlx_migrations", "the owner's, and granted to nobody"),
    ("sessions", "of executors, which serve all tenants"),
    ("executors", "they serve all tenants"),
    ("queues", "of recorders"),
    ("images", "the catalog is the operator's"),
    ("pool_dispatches", "counts of a pool"),
    ("pool_departures", "counts of a pool"),
    ("pool_ends", "counts of a pool"),
    ("pool_shares", "of the scheduler's"),
];

/// Two tenants with a job each that is over, started and waiting, and a batch.
async fn sample() -> Option<(Server, Bench, [Vec<JobId>; 2])> {
    let server = Server::new().await?;
    let bench = Bench::new(Arc::new(server.clone())).await;
    let mut client = bench.session().await;
    let mut jobs = [Vec::new(), Vec::new()];
    // First what is dispatched, one job after the other.
    for (number, list) in (1_u8..).zip(&mut jobs) {
        let plan = Plan {
            tenant: tenant(number),
            ..Plan::once()
        };
        let over = bench.started(&plan, &mut client).await;
        bench.send(&client.finish(over.attempt, success())).await;
        let running = bench.started(&plan, &mut client).await;
        let owner = mayfly_store::blobs::BlobOwner {
            tenant: running.tenant,
            job: running.job,
            attempt: running.attempt,
        };
        let at = mayfly_store::blobs::PieceAt { file: 0, piece: 0 };
        let digest = mayfly_core::digest::Digest::of(b"piece");
        let left = bench.store.keep_piece(owner, at, digest, b"piece", 100).await;
        assert!(left.unwrap());
        let secret = mayfly_store::secrets::NewSecret {
            tenant: running.tenant,
            name: "KEY".parse().unwrap(),
            value: mayfly_core::id::SecretId::new(),
            sealed: b"sealed".to_vec(),
        };
        bench.store.set_secret(secret, None, bench.date()).await.unwrap();
        mayfly_store::contract::uploads::in_use(&bench, running.tenant, b"content").await;
        list.extend([over.job, running.job]);
    }
    for (number, list) in (1_u8..).zip(&mut jobs) {
        let plan = Plan {
            tenant: tenant(number),
            ..Plan::once()
        };
        let batch = mayfly_core::id::BatchId::new();
        let new = mayfly_store::records::NewBatch {
            id: batch,
            tenant: tenant(number),
            input: "canary".to_owned(),
        };
        bench.store.begin_batch(new, bench.date()).await.unwrap();
        let job = NewJob {
            batch: Some(mayfly_store::records::BatchPlace {
                batch,
                item: "one".to_owned(),
            }),
            ..plan.job(bench.date())
        };
        list.push(job.id);
        let far = Plan {
            not_before: Some(std::time::Duration::from_secs(3600)),
            expires_after: Some(std::time::Duration::from_secs(7200)),
            ..plan
        }
        .job(bench.date());
        list.push(far.id);
        let of_batch = job.id;
        bench
            .store
            .submit_many(vec![job, far], bench.date())
            .await
            .unwrap();
        let canceled = Plan {
            tenant: tenant(number),
            ..Plan::once()
        };
        let canceled = bench.submit(&canceled).await;
        list.push(canceled);
        for job in [canceled, of_batch] {
            let context = bench.context();
            bench.store.cancel(tenant(number), job, &context).await.unwrap();
        }
    }
    Some((server, bench, jobs))
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn act_for(connection: &mut PgConnection, tenant: TenantId) {
    let statement = format!("SELECT set_config('app.tenant_id', '{tenant}', true)");
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
}

/// Tables with a tenant, by the catalog.
async fn with_tenant(connection: &mut PgConnection) -> Vec<String> {
    texts(
        connection,
        "SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
          WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1",
    )
    .await
}

/// Of those, the ones that the API reads.
async fn readable(connection: &mut PgConnection) -> Vec<String> {
    let mut tables = Vec::new();
    for table in with_tenant(connection).await {
        let may = format!("SELECT has_table_privilege('mayfly_api', '{table}', 'SELECT')::text");
        if texts(connection, &may).await == ["true"] {
            tables.push(table);
        }
    }
    tables
}

#[tokio::test]
async fn every_table_with_a_tenant_has_its_policies_forced_and_every_other_one_is_known() {
    let Some(server) = Server::new().await else { return };
    let mut superuser = server.superuser().await;
    let tables = texts(
        &mut superuser,
        "SELECT relname::text FROM pg_class
          WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT relispartition",
    )
    .await;
    let with_tenant = with_tenant(&mut superuser).await;
    assert!(with_tenant.len() >= 15, "{with_tenant:?}");
    for table in &tables {
        let nobodys = NOBODYS.iter().any(|(name, _)| name == table);
        assert_ne!(
            nobodys,
            with_tenant.contains(table),
            "{table} is either a tenant's or known to be nobody's"
        );
    }
    let bare = texts(
        &mut superuser,
        "SELECT c.relname::text FROM pg_class c
          WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
            AND (c.relispartition OR EXISTS (SELECT 1 FROM pg_attribute a
                                              WHERE a.attrelid = c.oid AND a.attname = 'tenant_id'))
            AND NOT (c.relrowsecurity AND c.relforcerowsecurity)",
    )
    .await;
    assert_eq!(bare, Vec::<String>::new(), "row-level security is on and forced");
    let open = texts(
        &mut superuser,
        "SELECT format('%s of %s', polname, polrelid::regclass) FROM pg_policy
          WHERE polroles = '{0}' OR (polcmd IN ('*', 'r') AND polqual IS NULL) OR (polcmd IN ('*', 'a', 'w') AND polwithcheck IS NULL)",
    )
    .await;
    assert_eq!(
        open,
        Vec::<String>::new(),
        "a policy names its roles, what is seen and what is written"
    );
    for table in with_tenant {
        let statement = format!(
            "SELECT count(*)::text FROM pg_policy WHERE polrelid = '{table}'::regclass AND polpermissive
                AND 'mayfly_api'::regrole = ANY (polroles) AND polqual IS NOT NULL AND polwithcheck IS NOT NULL
                AND pg_get_expr(polqual, polrelid) ~ 'app\\.(tenant_id|accounts)'
                AND pg_get_expr(polwithcheck, polrelid) ~ 'app\\.(tenant_id|accounts)'"
        );
        assert_eq!(texts(&mut superuser, &statement).await, ["1"], "{table}");
    }
}

#[tokio::test]
async fn the_roles_are_neither_superusers_nor_owners_and_have_no_more_than_their_part() {
    let Some(server) = Server::new().await else { return };
    let mut superuser = server.superuser().await;
    let strong = texts(
        &mut superuser,
        "SELECT rolname::text FROM pg_roles
          WHERE rolname IN ('mayfly_api', 'mayfly_engine')
            AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication
                 OR EXISTS (SELECT 1 FROM pg_class WHERE relowner = pg_roles.oid)
                 OR EXISTS (SELECT 1 FROM pg_auth_members WHERE member = pg_roles.oid))",
    )
    .await;
    assert_eq!(strong, Vec::<String>::new());
    let grants = texts(
        &mut superuser,
        "SELECT format('%s: %s on %s', grantee, privilege_type, table_name) FROM information_schema.role_table_grants
          WHERE table_schema = 'public' AND grantee IN ('mayfly_api', 'mayfly_engine', 'PUBLIC')
            AND (grantee = 'PUBLIC' OR privilege_type IN ('TRUNCATE', 'TRIGGER', 'REFERENCES')
                 OR table_name ~ '^audit_events_'
                 OR (table_name = 'audit_events' AND privilege_type NOT IN ('SELECT', 'INSERT'))
                 OR (table_name = 'audit_events' AND grantee = 'mayfly_engine' AND privilege_type <> 'INSERT')
                 OR (grantee = 'mayfly_engine'
                     AND table_name IN ('batches', 'batch_items', 'images', 'tenants', 'api_keys', 'idempotency_keys')))",
    )
    .await;
    assert_eq!(grants, Vec::<String>::new());
    let callable = texts(
        &mut superuser,
        "SELECT p.proname::text FROM pg_proc p
          WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef AND has_function_privilege('mayfly_api', p.oid, 'EXECUTE')",
    )
    .await;
    assert_eq!(
        callable,
        Vec::<String>::new(),
        "nothing lends the API the owner's rights"
    );
}

#[tokio::test]
async fn without_a_tenant_nothing_is_seen_and_nothing_written() {
    let Some((server, _bench, _)) = sample().await else {
        return;
    };
    let mut superuser = server.superuser().await;
    let readable = readable(&mut superuser).await;
    assert!(readable.len() >= 11, "{readable:?}");
    let mut api = connect(&server.database.api_url()).await;
    let mut owner = connect(&server.database.owner_url()).await;
    // Never named; named in a transaction before, after which the setting reads '' and not NULL.
    for round in 0..2 {
        for table in &readable {
            let statement = format!("SELECT count(*)::text FROM {table}");
            assert_eq!(texts(&mut api, &statement).await, ["0"], "{table}, round {round}");
            assert_eq!(
                texts(&mut owner, &statement).await,
                ["0"],
                "{table} binds its owner too"
            );
        }
        let written = api
            .execute("INSERT INTO audit_events (tenant_id, event_id, at, kind, body) VALUES (gen_random_uuid(), gen_random_uuid(), now(), 'x', '')")
            .await
            .unwrap_err();
        assert!(written.to_string().contains("row-level security"), "{written}");
        api.execute("BEGIN").await.unwrap();
        act_for(&mut api, tenant(1)).await;
        assert_ne!(texts(&mut api, "SELECT count(*)::text FROM jobs").await, ["0"]);
        api.execute("COMMIT").await.unwrap();
    }
}

#[tokio::test]
async fn a_tenant_sees_and_moves_its_own_rows_alone() {
    let Some((server, _bench, _)) = sample().await else {
        return;
    };
    let mut superuser = server.superuser().await;
    let readable = readable(&mut superuser).await;
    let mut api = connect(&server.database.api_url()).await;
    for number in [1, 2] {
        api.execute("BEGIN").await.unwrap();
        act_for(&mut api, tenant(number)).await;
        for table in &readable {
            if ["tenants", "api_keys", "idempotency_keys"].contains(&table.as_str()) {
                continue;
            }
            let whose = format!("SELECT DISTINCT tenant_id::text FROM {table}");
            assert_eq!(
                texts(&mut api, &whose).await,
                [tenant(number).to_string()],
                "{table}"
            );
        }
        let (own, other) = (tenant(number), tenant(3 - number));
        // Another's id in a new row, a row moved to another, another's row, and a job that begins elsewhere than waiting.
        for statement in [
            format!("INSERT INTO audit_events (tenant_id, event_id, at, kind, body) VALUES ('{other}', gen_random_uuid(), now(), 'x', '')"),
            format!("INSERT INTO batches (tenant_id, batch_id, input, created_at) VALUES ('{other}', gen_random_uuid(), '', now())"),
            format!("INSERT INTO ready_jobs (pool, tenant_id, rank, image_digest, job_id) VALUES ('python', '{other}', 0, '', gen_random_uuid())"),
            format!(
                "INSERT INTO pool_news (pool, tenant_id, queued, in_flight, started, started_ms, ended, ended_us)
                 VALUES ('python', '{other}', 1, 0, 0, 0, 0, 0)"
            ),
            format!(
                "INSERT INTO pool_news (pool, made_by, tenant_id, queued, in_flight, started, started_ms, ended, ended_us)
                 VALUES ('python', 0, '{own}', 1, 0, 0, 0, 0, 0)"
            ),
            "SELECT 1 FROM lanes".to_owned(),
            "SELECT level FROM pool_shares".to_owned(),
            "UPDATE tenant_shares SET queued = 0".to_owned(),
            "DELETE FROM pool_news".to_owned(),
            format!("UPDATE batches SET tenant_id = '{other}'"),
            "UPDATE jobs SET state = 'started'".to_owned(),
            "DELETE FROM jobs".to_owned(),
            "UPDATE audit_events SET body = ''".to_owned(),
            "DELETE FROM audit_events".to_owned(),
            "TRUNCATE audit_events".to_owned(),
            "SELECT 1 FROM audit_events_else".to_owned(),
            "SELECT 1 FROM sessions".to_owned(),
            "SELECT content FROM output_blobs".to_owned(),
            "DELETE FROM artifact_pieces".to_owned(),
            "UPDATE artifact_pieces SET content = ''".to_owned(),
            format!("INSERT INTO uploads VALUES ('{other}', gen_random_uuid(), decode(repeat('00', 32), 'hex'), 0, now(), NULL, now())"),
            format!("INSERT INTO upload_pieces SELECT '{other}', upload_id, 7, 1, 'x' FROM uploads"),
            format!("INSERT INTO job_fetches SELECT '{other}', job_id, 7, upload_id FROM job_fetches"),
            "UPDATE uploads SET bytes = 0".to_owned(),
            "UPDATE upload_pieces SET content = ''".to_owned(),
            "UPDATE job_fetches SET file = 7".to_owned(),
            format!("INSERT INTO tenant_secrets VALUES ('{other}', 'X', gen_random_uuid(), '', now())"),
            "SELECT 1 FROM ready_jobs".to_owned(),
            "SELECT mayfly_make_partitions(1)".to_owned(),
            "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY".to_owned(),
            "SET ROLE mayfly_engine".to_owned(),
            format!(
                "INSERT INTO jobs (tenant_id, job_id, pool, state, priority, attempts, retry, asked, labels, image,
                                   image_digest, policy_version, submitted_at, ready_at)
                 VALUES ('{own}', gen_random_uuid(), 'python', 'dispatched', 0, 1, '', '', '', '', '', '', now(), now())"
            ),
        ] {
            api.execute("SAVEPOINT attempt").await.unwrap();
            let error = api.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
            let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
            assert_eq!(code, "42501", "{statement}: {error}");
            api.execute("ROLLBACK TO attempt").await.unwrap();
        }
        // What another has is not there, and is as if it never were.
        for statement in [
            format!("UPDATE batches SET accepted = accepted + 1 WHERE tenant_id = '{other}'"),
            "UPDATE api_keys SET revoked_at = now()".to_owned(),
            "UPDATE tenants SET most_queued = NULL".to_owned(),
        ] {
            let done = api.execute(AssertSqlSafe(statement.clone())).await.unwrap();
            assert_eq!(done.rows_affected(), 0, "{statement}");
        }
        api.execute("COMMIT").await.unwrap();
    }
}

/// The key of a reference has the tenant in it, so that none leads to another's row: tried as one who may write anything.
#[tokio::test]
async fn no_reference_leads_to_another_tenants_row() {
    let Some((server, _bench, jobs)) = sample().await else {
        return;
    };
    let mut superuser = server.superuser().await;
    let (one, job) = (tenant(1), jobs[1][0]);
    for statement in [
        format!("INSERT INTO job_contents VALUES ('{one}', '{job}', decode(repeat('00', 32), 'hex'), '')"),
        format!(
            "INSERT INTO attempts (tenant_id, attempt_id, job_id, number, pool, state, publication, published_at)
             VALUES ('{one}', gen_random_uuid(), '{job}', 9, 'python', 'dispatched', 1, now())"
        ),
        format!(
            "INSERT INTO results SELECT '{one}', attempt_id, '', '', '', '', '' FROM attempts WHERE job_id = '{job}'"
        ),
        format!(
            "INSERT INTO output_blobs SELECT '{one}', attempt_id, decode(repeat('00', 32), 'hex'), 0, '' FROM attempts
              WHERE job_id = '{job}'"
        ),
        format!(
            "INSERT INTO artifact_pieces SELECT '{one}', attempt_id, 0, 0, decode(repeat('00', 32), 'hex'), 1, 'x'
               FROM attempts WHERE job_id = '{job}'"
        ),
        format!("INSERT INTO upload_pieces SELECT '{one}', upload_id, 7, 1, 'x' FROM uploads WHERE tenant_id <> '{one}'"),
        format!(
            "INSERT INTO job_fetches SELECT f.tenant_id, f.job_id, 7, u.upload_id FROM job_fetches f, uploads u
              WHERE f.tenant_id = '{one}' AND u.tenant_id <> '{one}'"
        ),
        format!("INSERT INTO batch_counts SELECT '{one}', batch_id, 1 FROM batches WHERE tenant_id <> '{one}'"),
        format!("INSERT INTO batch_ends SELECT '{one}', gen_random_uuid(), 1, '{job}'"),
    ] {
        let error = superuser.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
        assert!(error.to_string().contains("foreign key"), "{statement}: {error}");
    }
}

#[tokio::test]
async fn the_engine_reads_no_accounts_and_changes_no_record() {
    let Some((server, _bench, _)) = sample().await else {
        return;
    };
    let mut engine = connect(&server.database.engine_url()).await;
    for statement in [
        "SELECT 1 FROM api_keys",
        "SELECT name FROM tenants",
        "UPDATE tenants SET weight = 1000",
        "SELECT 1 FROM audit_events",
        "UPDATE audit_events SET body = ''",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "INSERT INTO jobs SELECT * FROM jobs",
        "DELETE FROM jobs",
        "UPDATE jobs SET labels = '{}'",
        "UPDATE jobs SET tenant_id = gen_random_uuid()",
        "UPDATE jobs SET retain_source = true",
        "UPDATE attempts SET job_id = gen_random_uuid()",
        "DELETE FROM attempts",
        "SELECT 1 FROM results",
        "SELECT 1 FROM tenant_secrets",
        "DELETE FROM tenant_secrets",
        "INSERT INTO uploads SELECT * FROM uploads",
        "UPDATE uploads SET kept_at = NULL",
        "UPDATE upload_pieces SET content = ''",
        "INSERT INTO job_fetches SELECT * FROM job_fetches",
        "UPDATE results SET report = ''",
        "UPDATE job_contents SET resolved = ''",
        "UPDATE output_blobs SET bytes = 0",
        "UPDATE artifact_pieces SET content = ''",
        "UPDATE batch_ends SET position = 0",
        "DELETE FROM sessions",
        "SELECT 1 FROM batches",
        "UPDATE schema_reader SET min_reader = 0",
        "SET ROLE mayfly_api",
    ] {
        let error = engine
            .execute(AssertSqlSafe(statement))
            .await
            .expect_err(statement);
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .unwrap_or_default();
        assert_eq!(code, "42501", "{statement}: {error}");
    }
}

/// Whether another tenant is there at all makes no difference to what a tenant is told.
#[tokio::test]
async fn another_tenant_makes_no_difference_to_what_one_sees() {
    let Some((server, bench, jobs)) = sample().await else {
        return;
    };
    let store = server.store().await;
    for job in &jobs[1] {
        let (foreign, missing) = (
            store.find_job(tenant(1), *job).await.unwrap(),
            store.find_job(tenant(1), JobId::new()).await.unwrap(),
        );
        assert_eq!((foreign, missing), (None, None));
        let filter = AuditFilter {
            job: Some(*job),
            attempt: None,
        };
        assert_eq!(store.list_audit(tenant(1), filter, 10).await.unwrap(), []);
        let context = bench.context();
        let foreign = bench.store.cancel(tenant(1), *job, &context).await.unwrap_err();
        let unknown = JobId::new();
        let missing = bench
            .store
            .cancel(tenant(1), unknown, &context)
            .await
            .unwrap_err();
        let text = foreign.to_string().replace(&job.to_string(), "ID");
        assert_eq!(text, missing.to_string().replace(&unknown.to_string(), "ID"));
    }
    let seen = store.job_standings(tenant(1), &jobs.concat()).await.unwrap();
    assert_eq!(seen.len(), jobs[0].len());
}
