//! What a bench asks of the database beside the store, as its owner: what stands there in the end, a database that holds
//! many jobs already, and what the bare server does with as many rows. No role uses any of it.

#![expect(
    clippy::disallowed_methods,
    reason = "tables of the bench's own, and rows copied whatever columns they have: no description of these can be kept"
)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use mayfly_core::id::TenantId;
use mayfly_store::error::StoreError;
use sqlx::{PgPool, Postgres, Transaction, postgres::PgPoolOptions, types::Uuid};

use crate::database::{ONE_MOMENT, begin, query, refused};

/// Connections: one that holds a snapshot, one that looks, and the workers of [`BenchDatabase::bare`].
const CONNECTIONS: u32 = 8;
/// Transactions of the bare server that are under way at once.
const WORKERS: u32 = 4;
/// Rows that one transaction copies.
const COPIES_AT_ONCE: i64 = 20_000;

/// A database, by its owner, who must pass row-level security by.
pub struct BenchDatabase {
    pool: PgPool,
}

/// What stands in the database of a tenant's jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Jobs that were accepted.
    pub jobs: u64,
    /// Those that have an end.
    pub ended: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Results of runs.
    pub results: u64,
    /// Jobs that have not exactly one result, or not the events of a job that was run once.
    pub wrong: u64,
    /// Audit events by their kinds.
    pub events: BTreeMap<String, u64>,
}

/// What the server has done since it counts (pg_stat_database).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Transactions, those that only read among them.
    pub commits: i64,
    /// Rows inserted, updated and deleted.
    pub rows: i64,
}

/// A snapshot that is held open until this is dropped.
pub struct Snapshot {
    _transaction: Transaction<'static, Postgres>,
    since: Instant,
}

impl Snapshot {
    /// How long it has been held.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

impl BenchDatabase {
    /// Opens it.
    ///
    /// # Errors
    /// It can't be reached, or its owner is bound by row-level security and would see nothing.
    pub async fn open(owner_url: &str) -> Result<Self, StoreError> {
        let place = || "of `database.owner_url`".to_owned();
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect(owner_url);
        let pool = pool.await.map_err(|error| StoreError::Open {
            place: place(),
            source: error.into(),
        })?;
        let above: bool = sqlx::query_scalar(
            "/* open */ SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user",
        )
        .fetch_one(&pool)
        .await
        .map_err(query("look who the owner is"))?;
        if !above {
            return Err(StoreError::Open {
                place: place(),
                source: "a bench needs a superuser, or a role with BYPASSRLS: it looks at all rows".into(),
            });
        }
        Ok(Self { pool })
    }

    /// What time it is there.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        sqlx::query_scalar("/* now */ SELECT clock_timestamp()")
            .fetch_one(&self.pool)
            .await
            .map_err(query("ask for the time"))
    }

    /// The folder of its files, on its host.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn folder(&self) -> Result<String, StoreError> {
        sqlx::query_scalar("/* folder */ SELECT current_setting('data_directory')")
            .fetch_one(&self.pool)
            .await
            .map_err(query("ask for the folder"))
    }

    /// Jobs of a pool that have had their turn, those that had it again among them.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn dispatched(&self, pool: &str) -> Result<u64, StoreError> {
        let statement =
            "/* dispatched */ SELECT coalesce((SELECT count FROM pool_dispatches WHERE pool = $1), 0)";
        self.count(statement, pool).await
    }

    /// Jobs of a pool that have no end.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn open_jobs(&self, pool: &str) -> Result<u64, StoreError> {
        // By the small tables of what is on its way, so that it costs the same however many jobs there are.
        let statement = "/* open_jobs */
             SELECT (SELECT count(*) FROM ready_jobs WHERE pool = $1) + (SELECT count(*) FROM delayed_jobs WHERE pool = $1)
                    + (SELECT count(*) FROM unstarted_attempts WHERE pool = $1)
                    + (SELECT coalesce(sum(cardinality(held)), 0)::bigint FROM sessions WHERE pool = $1 AND ended IS NULL)";
        self.count(statement, pool).await
    }

    /// All jobs.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn stored(&self) -> Result<u64, StoreError> {
        self.count("/* stored */ SELECT count(*) FROM jobs WHERE pool <> $1", "")
            .await
    }

    async fn count(&self, statement: &'static str, of: &str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(statement)
            .bind(of)
            .fetch_one(&self.pool)
            .await
            .map_err(query("count"))?;
        Ok(number(count))
    }

    /// Jobs of a tenant that ended from one moment on and before another.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn ended_between(
        &self,
        tenant: TenantId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "/* ended_between */
             SELECT count(*) FROM jobs WHERE tenant_id = $1 AND ended_at >= $2 AND ended_at < $3",
        )
        .bind(tenant.as_uuid())
        .bind(from)
        .bind(to)
        .fetch_one(&self.pool)
        .await
        .map_err(query("count what has ended"))?;
        Ok(number(count))
    }

    /// What stands of a tenant's jobs, each of which ran once.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn found(&self, tenant: TenantId) -> Result<Found, StoreError> {
        let (jobs, ended, succeeded, results): (i64, i64, i64, i64) = sqlx::query_as(
            "/* found */
             SELECT count(*), count(*) FILTER (WHERE state = 'ended'), count(*) FILTER (WHERE end_state = 'succeeded'),
                    (SELECT count(*) FROM results WHERE tenant_id = $1)
               FROM jobs WHERE tenant_id = $1",
        )
        .bind(tenant.as_uuid())
        .fetch_one(&self.pool)
        .await
        .map_err(query("count the jobs"))?;
        let mut tx = begin(&self.pool, None, "begin to look at the jobs").await?;
        // What has come within the last minute the planner takes for next to nothing, and would look at row by row.
        sqlx::raw_sql("SET LOCAL enable_nestloop = off")
            .execute(&mut *tx)
            .await
            .map_err(query("prepare to look at the jobs"))?;
        let wrong: i64 = sqlx::query_scalar(
            "/* found */
             SELECT count(*)
               FROM jobs j
                    LEFT JOIN (SELECT a.job_id, count(r.attempt_id) AS results
                                 FROM attempts a JOIN results r ON r.attempt_id = a.attempt_id AND r.tenant_id = a.tenant_id
                                WHERE a.tenant_id = $1 GROUP BY a.job_id) r ON r.job_id = j.job_id
                    LEFT JOIN (SELECT job_id, array_agg(kind ORDER BY event_id) AS kinds
                                 FROM audit_events WHERE tenant_id = $1 GROUP BY job_id) e ON e.job_id = j.job_id
              WHERE j.tenant_id = $1
                AND (r.results IS DISTINCT FROM 1
                     OR e.kinds IS DISTINCT FROM ARRAY['job_submitted', 'attempt_dispatched', 'run_started', 'run_finished',
                                                       'job_ended'])",
        )
        .bind(tenant.as_uuid())
        .fetch_one(&mut *tx)
        .await
        .map_err(query("look for jobs whose record is not whole"))?;
        let kinds: Vec<(String, i64)> = sqlx::query_as(
            "/* found */ SELECT kind, count(*) FROM audit_events WHERE tenant_id = $1 AND job_id IS NOT NULL GROUP BY kind",
        )
        .bind(tenant.as_uuid())
        .fetch_all(&mut *tx)
        .await
        .map_err(query("count the audit events"))?;
        Ok(Found {
            jobs: number(jobs),
            ended: number(ended),
            succeeded: number(succeeded),
            results: number(results),
            wrong: number(wrong),
            events: kinds
                .into_iter()
                .map(|(kind, count)| (kind, number(count)))
                .collect(),
        })
    }

    /// What the server has done in this database so far. Its counters are some seconds old.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn activity(&self) -> Result<Activity, StoreError> {
        let (commits, rows): (i64, i64) = sqlx::query_as(
            "/* activity */
             SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database
              WHERE datname = current_database()",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(query("read the server's counters"))?;
        Ok(Activity { commits, rows })
    }

    /// Takes a snapshot and holds it.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut transaction = begin(&self.pool, Some(ONE_MOMENT), "begin to read").await?;
        sqlx::query("/* snapshot */ SELECT pg_current_snapshot()")
            .execute(&mut *transaction)
            .await
            .map_err(query("take a snapshot"))?;
        Ok(Snapshot {
            _transaction: transaction,
            since: Instant::now(),
        })
    }

    /// Copies one of a tenant's jobs that has ended, with all rows about it, until the database holds so many jobs. What
    /// guards rows is off for these transactions alone.
    ///
    /// # Errors
    /// Trouble with the database; no such job.
    pub async fn fill_up(&self, tenant: TenantId, jobs: u64) -> Result<(), StoreError> {
        loop {
            let missing = jobs.saturating_sub(self.stored().await?);
            let Some(count) = i64::try_from(missing).ok().filter(|count| *count > 0) else {
                break;
            };
            self.copy(tenant, count.min(COPIES_AT_ONCE)).await?;
        }
        sqlx::raw_sql("/* fill_up */ VACUUM ANALYZE")
            .execute(&self.pool)
            .await
            .map_err(query("gather what the planner needs"))?;
        Ok(())
    }

    async fn copy(&self, tenant: TenantId, count: i64) -> Result<(), StoreError> {
        let mut tx = begin(&self.pool, None, "begin a transaction").await?;
        sqlx::raw_sql(
            "SET LOCAL session_replication_role = replica; SET LOCAL synchronous_commit = off;
             CREATE TEMPORARY TABLE copies (job uuid, attempt uuid, number bigint) ON COMMIT DROP",
        )
        .execute(&mut *tx)
        .await
        .map_err(query("begin to copy"))?;
        // Ids of yesterday, each of a millisecond of its own.
        sqlx::query(
            "/* copy */
             INSERT INTO copies
             SELECT (prefix || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
                    (prefix || '7' || substr(md5(random()::text), 1, 3) || '9' || substr(md5(random()::text), 1, 15))::uuid, n
               FROM (SELECT n, lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint - 86400000 + n), 12, '0')
                            AS prefix
                       FROM generate_series(1, $1) AS n) s",
        )
        .bind(count)
        .execute(&mut *tx)
        .await
        .map_err(query("make ids"))?;
        let template: Option<Uuid> = sqlx::query_scalar(
            "/* copy */ SELECT job_id FROM jobs WHERE tenant_id = $1 AND state = 'ended' ORDER BY job_id LIMIT 1",
        )
        .bind(tenant.as_uuid())
        .fetch_optional(&mut *tx)
        .await
        .map_err(query("find a job to copy"))?;
        let template = template
            .ok_or_else(|| refused("copy jobs", "the tenant has no job that has ended".to_owned()))?;
        let copies = [
            "INSERT INTO jobs SELECT (jsonb_populate_record(t, jsonb_build_object('job_id', c.job, 'current_attempt', c.attempt))).*
               FROM jobs t, copies c WHERE t.tenant_id = $1 AND t.job_id = $2",
            "INSERT INTO job_contents SELECT (jsonb_populate_record(t, jsonb_build_object('job_id', c.job))).*
               FROM job_contents t, copies c WHERE t.tenant_id = $1 AND t.job_id = $2",
            "INSERT INTO attempts SELECT (jsonb_populate_record(t, jsonb_build_object('job_id', c.job, 'attempt_id', c.attempt))).*
               FROM attempts t, copies c WHERE t.tenant_id = $1 AND t.job_id = $2",
            "INSERT INTO results SELECT (jsonb_populate_record(t, jsonb_build_object('attempt_id', c.attempt))).*
               FROM results t JOIN attempts a ON a.attempt_id = t.attempt_id AND a.tenant_id = t.tenant_id, copies c
              WHERE t.tenant_id = $1 AND a.job_id = $2",
            "INSERT INTO audit_events (tenant_id, event_id, at, job_id, attempt_id, kind, body)
             SELECT t.tenant_id, overlay(c.job::text PLACING lpad(to_hex(t.place::integer), 3, '0') FROM 16 FOR 3)::uuid, t.at,
                    c.job, CASE WHEN t.attempt_id IS NOT NULL THEN c.attempt END, t.kind, t.body
               FROM (SELECT tenant_id, at, attempt_id, kind, body, row_number() OVER (ORDER BY event_id) AS place
                       FROM audit_events WHERE tenant_id = $1 AND job_id = $2) t, copies c",
        ];
        for statement in copies {
            sqlx::query(statement)
                .bind(tenant.as_uuid())
                .bind(template)
                .execute(&mut *tx)
                .await
                .map_err(query("copy a job's rows"))?;
        }
        tx.commit().await.map_err(query("commit the copies"))
    }

    /// How long the bare server takes for the rows of so many jobs, in transactions of a batch each: accepted, dispatched,
    /// started, ended, as the store writes them, without what decides and guards. Tables of its own, removed in the end.
    ///
    /// # Errors
    /// Trouble with the database.
    pub async fn bare(&self, jobs: u64, batch: u32, content_bytes: usize) -> Result<Duration, StoreError> {
        self.run(BARE_TABLES).await?;
        let begun = Instant::now();
        let each = jobs / u64::from(WORKERS);
        let workers = (0..WORKERS).map(|_| self.bare_worker(each, batch, content_bytes));
        let done = futures_util::future::try_join_all(workers).await;
        let took = begun.elapsed();
        self.run("DROP SCHEMA mayfly_bench CASCADE").await?;
        done.map(|_| took)
    }

    async fn run(&self, statements: &'static str) -> Result<(), StoreError> {
        sqlx::raw_sql(statements)
            .execute(&self.pool)
            .await
            .map_err(query("prepare the bare tables"))?;
        Ok(())
    }

    async fn bare_worker(&self, jobs: u64, batch: u32, content_bytes: usize) -> Result<(), StoreError> {
        let content = "x".repeat(content_bytes);
        let mut left = jobs;
        while left > 0 {
            let count = left.min(batch.max(1).into());
            left -= count;
            let ids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
            for step in BARE_STEPS {
                let mut tx = begin(&self.pool, None, "begin a transaction").await?;
                for statement in *step {
                    sqlx::query(*statement)
                        .bind(&ids)
                        .bind(&content)
                        .execute(&mut *tx)
                        .await
                        .map_err(query("write bare rows"))?;
                }
                tx.commit().await.map_err(query("commit"))?;
            }
        }
        Ok(())
    }
}

/// With the keys of the store's tables, and nothing else of them.
const BARE_TABLES: &str = "
    DROP SCHEMA IF EXISTS mayfly_bench CASCADE;
    CREATE SCHEMA mayfly_bench;
    CREATE TABLE mayfly_bench.jobs (id uuid PRIMARY KEY, state text NOT NULL, body text NOT NULL) WITH (fillfactor = 70);
    CREATE TABLE mayfly_bench.contents (id uuid PRIMARY KEY, body text NOT NULL);
    CREATE TABLE mayfly_bench.ready (id uuid PRIMARY KEY);
    CREATE TABLE mayfly_bench.attempts (id uuid PRIMARY KEY, state text NOT NULL, body text NOT NULL) WITH (fillfactor = 70);
    CREATE TABLE mayfly_bench.unstarted (id uuid PRIMARY KEY);
    CREATE TABLE mayfly_bench.results (id uuid PRIMARY KEY, body text NOT NULL);
    CREATE TABLE mayfly_bench.events (id uuid NOT NULL, kind text NOT NULL, body text NOT NULL, PRIMARY KEY (id, kind))";

/// The statements of each transaction: the ids of a batch are `$1`, the content of a job is `$2`.
const BARE_STEPS: &[&[&str]] = &[
    &[
        "INSERT INTO mayfly_bench.jobs SELECT u, 'queued', left($2, 300) FROM unnest($1::uuid[]) u",
        "INSERT INTO mayfly_bench.contents SELECT u, $2 FROM unnest($1::uuid[]) u",
        "INSERT INTO mayfly_bench.ready SELECT u FROM unnest($1::uuid[]) u WHERE $2::text IS NOT NULL",
        "INSERT INTO mayfly_bench.events SELECT u, 'job_submitted', left($2, 500) FROM unnest($1::uuid[]) u",
    ],
    &[
        "DELETE FROM mayfly_bench.ready WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "UPDATE mayfly_bench.jobs SET state = 'dispatched' WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "INSERT INTO mayfly_bench.attempts SELECT u, 'dispatched', left($2, 100) FROM unnest($1::uuid[]) u",
        "INSERT INTO mayfly_bench.unstarted SELECT u FROM unnest($1::uuid[]) u WHERE $2::text IS NOT NULL",
        "INSERT INTO mayfly_bench.events SELECT u, 'attempt_dispatched', left($2, 300) FROM unnest($1::uuid[]) u",
    ],
    &[
        "UPDATE mayfly_bench.jobs SET state = 'started' WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "UPDATE mayfly_bench.attempts SET state = 'started' WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "DELETE FROM mayfly_bench.unstarted WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "INSERT INTO mayfly_bench.events SELECT u, 'run_started', left($2, 400) FROM unnest($1::uuid[]) u",
    ],
    &[
        "UPDATE mayfly_bench.jobs SET state = 'ended' WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "UPDATE mayfly_bench.attempts SET state = 'ended' WHERE id = ANY ($1) AND $2::text IS NOT NULL",
        "INSERT INTO mayfly_bench.results SELECT u, $2 FROM unnest($1::uuid[]) u",
        "INSERT INTO mayfly_bench.events SELECT u, k, left($2, 600)
           FROM unnest($1::uuid[]) u, unnest(ARRAY['run_finished', 'job_ended']) k",
    ],
];

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
