//! The contract of the seam, and what is PostgreSQL's own: roles, triggers, locks, plans, several processes.

mod leaks;
mod opening;
mod plans;
mod roles;
mod several;
mod speed;
mod triggers;
mod walked;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_core::id::{AttemptId, JobId, SessionId};
use mayfly_dispatch::{ledger::Ledger, record::AttemptState, time::ServerTime};
use mayfly_store::{contract::Place, seam::Store};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, types::Uuid};
use tokio::sync::{Mutex, OnceCell};

use crate::{
    PostgresStore,
    database::Clock,
    ledger::{self, Wanted},
    testing::TestDatabase,
};

mod contract {
    // Each of its random cases makes a database.
    mayfly_store::contract_tests!(crate::tests::place, 6);
}

/// A database of its own; it is removed with the last of its owners.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) database: Arc<TestDatabase>,
    /// What reads everything back, opened once.
    reader: Arc<OnceCell<PostgresStore>>,
    /// What looks at everything, opened once.
    looker: Arc<Mutex<Option<PgConnection>>>,
}

impl Server {
    pub(crate) async fn new() -> Option<Self> {
        Some(Self {
            database: Arc::new(TestDatabase::create().await?),
            reader: Arc::new(OnceCell::new()),
            looker: Arc::new(Mutex::new(None)),
        })
    }

    /// A store that goes by its caller's clock.
    pub(crate) async fn store(&self) -> PostgresStore {
        PostgresStore::open_by(&self.database.settings(), Clock::Caller)
            .await
            .unwrap()
    }

    /// A connection that may do anything.
    pub(crate) async fn superuser(&self) -> PgConnection {
        self.database.superuser().connect().await.unwrap()
    }
}

#[async_trait]
impl Place for Server {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store().await)
    }

    async fn ledger(&self, queue: &str) -> Ledger {
        let mut looker = self.looker.lock().await;
        if looker.is_none() {
            *looker = Some(self.superuser().await);
        }
        let superuser = looker.as_mut().unwrap();
        quiet(superuser).await;
        counts_are_right(superuser).await;
        everything(self.reader.get_or_init(|| self.store()).await, queue).await
    }

    async fn outputs(&self) -> usize {
        let mut superuser = self.superuser().await;
        texts(&mut superuser, "SELECT attempt_id::text FROM output_blobs")
            .await
            .len()
    }

    async fn pieces(&self) -> usize {
        let mut superuser = self.superuser().await;
        texts(&mut superuser, "SELECT attempt_id::text FROM artifact_pieces")
            .await
            .len()
    }
}

pub(crate) async fn place() -> Option<Arc<dyn Place>> {
    Some(Arc::new(Server::new().await?))
}

/// Waits until nobody is in the middle of anything: a call that was dropped may have sent its commit.
async fn quiet(connection: &mut PgConnection) {
    let busy = "SELECT concat_ws(' ', backend_type, usename, state, wait_event, query) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
    let mut found = Vec::new();
    for _ in 0..2000 {
        found = texts(connection, busy).await;
        if found.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("somebody is busy all the time: {found:?}");
}

/// What is counted, and what stands in the small tables, is what the rows say.
async fn counts_are_right(connection: &mut PgConnection) {
    let wrong = texts(
        connection,
        "WITH waiting AS (SELECT pool, count(*) AS n FROM attempts WHERE state = 'dispatched' GROUP BY pool),
              counted AS (SELECT pool, d.count - coalesce(l.count, 0) AS n
                            FROM pool_dispatches d LEFT JOIN pool_departures l USING (pool))
         SELECT format('pool %s has %s waiting attempts, and %s are counted', pool, w.n, c.n)
           FROM waiting w FULL JOIN counted c USING (pool) WHERE coalesce(w.n, 0) <> coalesce(c.n, 0)
         UNION ALL
         SELECT format('attempt %s waits in %s and stands in %s', attempt_id, a.pool, u.pool)
           FROM (SELECT * FROM attempts WHERE state = 'dispatched') a FULL JOIN unstarted_attempts u USING (attempt_id)
          WHERE a.pool IS DISTINCT FROM u.pool
         UNION ALL
         SELECT format('job %s is queued in %s and waits in %s', job_id, j.pool, w.pool)
           FROM (SELECT * FROM jobs WHERE state = 'queued') j
                FULL JOIN (SELECT job_id, pool, rank, tenant_id, image_digest FROM ready_jobs
                           UNION ALL SELECT job_id, pool, rank, tenant_id, image_digest FROM delayed_jobs) w
                     USING (job_id)
          WHERE (j.pool, -j.priority, j.tenant_id, j.image_digest)
                IS DISTINCT FROM (w.pool, w.rank, w.tenant_id, w.image_digest)
         UNION ALL
         SELECT format('job %s is ready, and no scheduler will look there', job_id)
           FROM ready_jobs r
          WHERE NOT EXISTS (SELECT 1 FROM lanes l
                             WHERE (l.pool, l.tenant_id, l.rank, l.image_digest)
                                   = (r.pool, r.tenant_id, r.rank, r.image_digest) AND l.active AND l.first_job <= r.job_id)
            AND NOT EXISTS (SELECT 1 FROM pool_news n
                             WHERE (n.pool, n.tenant_id, n.rank, n.image_digest)
                                   = (r.pool, r.tenant_id, r.rank, r.image_digest)
                               AND n.first_job <= r.job_id AND n.made_by >= mayfly_news_from(r.pool))
         UNION ALL
         SELECT format('tenant %s has %s in pool %s, and %s are counted', tenant_id, w.n, pool, c.n)
           FROM (SELECT pool, tenant_id, ARRAY[count(*) FILTER (WHERE what = 'queued'), count(*) FILTER (WHERE what <> 'queued'),
                                               count(*) FILTER (WHERE what = 'started')] AS n
                   FROM (SELECT pool, tenant_id, state AS what FROM jobs WHERE state = 'queued'
                         UNION ALL SELECT pool, tenant_id, state FROM attempts WHERE state <> 'ended') o
                  GROUP BY 1, 2) w
                FULL JOIN (SELECT pool, tenant_id, ARRAY[sum(queued), sum(in_flight), sum(started)]::bigint[] AS n
                             FROM (SELECT pool, tenant_id, queued, in_flight, started FROM tenant_shares
                                   UNION ALL SELECT pool, tenant_id, queued, in_flight, started FROM pool_news
                                              WHERE made_by >= mayfly_news_from(pool)) o
                            GROUP BY 1, 2) c USING (pool, tenant_id)
          WHERE coalesce(w.n, '{0,0,0}') <> coalesce(c.n, '{0,0,0}')
         UNION ALL
         SELECT format('job %s expires in %s, and is noted to in %s', job_id, j.pool, e.pool)
           FROM (SELECT * FROM jobs WHERE expires_at IS NOT NULL AND state IN ('queued', 'dispatched')
                    AND attempts <= (state = 'dispatched')::int) j
                FULL JOIN expiring_jobs e USING (job_id)
          WHERE (j.pool, j.expires_at) IS DISTINCT FROM (e.pool, e.expires_at)
         UNION ALL
         SELECT format('attempt %s is held by %s, and %s holds it', attempt_id, a.session_id, h.session_id)
           FROM (SELECT * FROM attempts WHERE state = 'started') a
                FULL JOIN (SELECT s.session_id, unnest(s.held) AS attempt_id FROM sessions s) h USING (attempt_id)
          WHERE a.session_id IS DISTINCT FROM h.session_id
         UNION ALL
         SELECT format('batch %s has %s ended jobs, and %s are counted', batch_id, e.n, c.ended)
           FROM (SELECT batch_id, count(*) AS n FROM jobs WHERE batch_id IS NOT NULL AND state = 'ended' GROUP BY 1) e
                FULL JOIN batch_counts c USING (batch_id)
          WHERE e.n IS DISTINCT FROM c.ended",
    )
    .await;
    assert_eq!(wrong, Vec::<String>::new());
}

/// The first column of a statement that a test has built, as text.
#[expect(
    clippy::disallowed_methods,
    reason = "statements about the schema itself can't be checked against it"
)]
pub(crate) async fn texts(connection: &mut PgConnection, statement: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement.to_owned()))
        .fetch_all(connection)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// Every row that dispatching looks at.
pub(crate) async fn everything(store: &PostgresStore, queue: &str) -> Ledger {
    let mut write = store.database.begin().await.unwrap();
    let ids = sqlx::query!(
        r#"SELECT 'job' AS "kind!", job_id AS "id!: Uuid" FROM jobs
           UNION ALL SELECT 'attempt', attempt_id FROM attempts
           UNION ALL SELECT 'session', session_id FROM sessions"#
    )
    .fetch_all(&mut *write.tx)
    .await
    .unwrap();
    let mut wanted = Wanted::default();
    for row in ids {
        match row.kind.as_str() {
            "job" => drop(wanted.jobs.insert(JobId::from_uuid(row.id))),
            "attempt" => drop(wanted.attempts.insert(AttemptId::from_uuid(row.id))),
            _ => drop(wanted.sessions.insert(SessionId::from_uuid(row.id))),
        }
    }
    let record = ledger::queue(&mut write.tx, queue, ServerTime::from_micros(0))
        .await
        .unwrap();
    let ledger = ledger::load(&mut write.tx, record, wanted).await.unwrap().ledger;
    assert!(ledger.attempts().all(|attempt| {
        attempt.state != AttemptState::Dispatched
            || ledger
                .job(attempt.job)
                .is_some_and(|job| job.current == Some(attempt.attempt))
    }));
    ledger
}
