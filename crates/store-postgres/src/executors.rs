//! Executors: enrolled, listed, cordoned. They serve all tenants, so that the engine's role sees them.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    digest::Digest,
    id::{ExecutorId, KeyId, SessionId, TenantId},
    self_test::SelfTest,
};
use mayfly_dispatch::message::ExecutorFacts;
use mayfly_store::{
    accounts::is_name,
    error::StoreError,
    executors::{ExecutorRecord, ExecutorStore, NewExecutor, SessionView},
    seam::MAX_PAGE,
};
use sqlx::types::Uuid;

use crate::{
    PostgresStore,
    audit::Events,
    columns::Column,
    database::{Database, query, refused},
    ledger::session_state,
};

/// Executors with their newest sessions, those that the rest of the statement leaves.
macro_rules! executors {
    ($rest:literal, $($argument:expr),*) => {
        sqlx::query_as!(
            Row,
            r#"/* executors */
             SELECT e.executor_id, e.name, e.pool, e.enrolled_at, e.cordoned, s.session_id AS "session_id?",
                    s.pool AS "session_pool?", s.ended AS "ended?", s.slots AS "slots?", s.free_slots AS "free_slots?",
                    s.lease_end AS "lease_end?", s.opened_at AS "opened_at?", s.ended_at AS "ended_at?", s.facts AS "facts?",
                    s.images AS "images?", s.self_test AS "self_test?", cardinality(s.held) AS "running?"
               FROM executors e LEFT JOIN LATERAL
                    (SELECT * FROM sessions WHERE executor_id = e.executor_id
                      ORDER BY opened_at DESC, session_id DESC LIMIT 1) s ON true
              "# + $rest,
            $($argument),*
        )
    };
}

struct Row {
    executor_id: Uuid,
    name: String,
    pool: String,
    enrolled_at: DateTime<Utc>,
    cordoned: bool,
    session_id: Option<Uuid>,
    session_pool: Option<String>,
    ended: Option<String>,
    slots: Option<i64>,
    free_slots: Option<i64>,
    lease_end: Option<DateTime<Utc>>,
    opened_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    facts: Option<String>,
    images: Option<String>,
    self_test: Option<String>,
    running: Option<i32>,
}

impl TryFrom<Row> for ExecutorRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: ExecutorId::from_uuid(row.executor_id),
            name: row.name.clone(),
            pool: row.pool.clone(),
            enrolled_at: row.enrolled_at,
            cordoned: row.cordoned,
            session: row.session_id.map(|id| row.session(id)).transpose()?,
        })
    }
}

impl Row {
    fn session(&self, id: Uuid) -> Result<SessionView, StoreError> {
        let column = |name| Column("sessions", name);
        let facts = column("facts").json::<ExecutorFacts>(self.facts.as_deref().unwrap_or_default())?;
        let images = self.images.as_deref();
        let images = images.map(|text| column("images").json::<Vec<Digest>>(text));
        let self_test = self.self_test.as_deref();
        let self_test = self_test.map(|text| column("self_test").json::<SelfTest>(text));
        Ok(SessionView {
            session: SessionId::from_uuid(id),
            state: session_state(self.ended.as_deref())?,
            pool: self.session_pool.clone().unwrap_or_default(),
            slots: column("slots").count(self.slots.unwrap_or_default())?,
            free_slots: column("free_slots").count(self.free_slots.unwrap_or_default())?,
            running: column("held").number(self.running.unwrap_or_default().into())?,
            lease_end: self.lease_end.unwrap_or_default(),
            opened_at: self.opened_at.unwrap_or_default(),
            ended_at: self.ended_at,
            facts: ExecutorFacts {
                images: images.transpose()?,
                ..facts
            },
            self_test: self_test.transpose()?,
        })
    }
}

async fn enroll(
    database: &Database,
    executor: NewExecutor,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    const DOING: &str = "enroll the executor";
    if !is_name(&executor.name) {
        return Err(refused(DOING, "no executor may have that name".to_owned()));
    }
    let mut write = database.begin().await?;
    let now = write.now(now).await?;
    let done = sqlx::query!(
        "/* enroll */
         INSERT INTO executors (executor_id, name, pool, enrolled_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        executor.id.as_uuid(),
        executor.name,
        executor.pool,
        now
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query(DOING))?;
    if done.rows_affected() == 0 {
        return Err(StoreError::ExecutorExists(executor.name));
    }
    let mut events = Events::new(now);
    let fact = Fact::ExecutorEnrolled {
        executor: executor.id,
        name: executor.name,
        pool: executor.pool,
        by,
    };
    events.add(TenantId::LOCAL, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await
}

async fn find(database: &Database, id: ExecutorId) -> Result<Option<ExecutorRecord>, StoreError> {
    let found = executors!("WHERE e.executor_id = $1", id.as_uuid());
    let found = found.fetch_optional(&database.engine).await;
    let found = found.map_err(query("find the executor"))?;
    found.map(ExecutorRecord::try_from).transpose()
}

async fn find_by_name(database: &Database, name: &str) -> Result<Option<ExecutorRecord>, StoreError> {
    let found = executors!("WHERE e.name = $1", name);
    let found = found.fetch_optional(&database.engine).await;
    let found = found.map_err(query("find the executor"))?;
    found.map(ExecutorRecord::try_from).transpose()
}

async fn list(
    database: &Database,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<ExecutorRecord>, StoreError> {
    // No name is empty.
    let (after, limit) = (after.unwrap_or_default(), i64::from(limit.min(MAX_PAGE)));
    let listed = executors!("WHERE e.name > $1 ORDER BY e.name LIMIT $2", after, limit);
    let listed = listed.fetch_all(&database.engine).await;
    let listed = listed.map_err(query("list the executors"))?;
    listed.into_iter().map(ExecutorRecord::try_from).collect()
}

async fn cordon(
    database: &Database,
    (id, cordoned): (ExecutorId, bool),
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let mut write = database.begin().await?;
    let known = sqlx::query_scalar!(
        "/* cordon */ SELECT cordoned FROM executors WHERE executor_id = $1 FOR UPDATE",
        id.as_uuid()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("find the executor"))?
    .ok_or(StoreError::NoSuchExecutor(id))?;
    if known == cordoned {
        return Ok(false);
    }
    let now = write.now(now).await?;
    sqlx::query!(
        "/* cordon */ UPDATE executors SET cordoned = $2 WHERE executor_id = $1",
        id.as_uuid(),
        cordoned
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("cordon the executor"))?;
    let fact = if cordoned {
        Fact::ExecutorCordoned { executor: id, by }
    } else {
        Fact::ExecutorUncordoned { executor: id, by }
    };
    let mut events = Events::new(now);
    events.add(TenantId::LOCAL, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit().await?;
    Ok(true)
}

#[async_trait]
impl ExecutorStore for PostgresStore {
    async fn enroll_executor(
        &self,
        executor: NewExecutor,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let call = enroll(&self.database, executor, by, now);
        self.database.call("enroll the executor", call).await
    }

    async fn find_executor(&self, id: ExecutorId) -> Result<Option<ExecutorRecord>, StoreError> {
        self.database
            .call("find the executor", find(&self.database, id))
            .await
    }

    async fn find_executor_by_name(&self, name: &str) -> Result<Option<ExecutorRecord>, StoreError> {
        let call = find_by_name(&self.database, name);
        self.database.call("find the executor", call).await
    }

    async fn list_executors(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ExecutorRecord>, StoreError> {
        let call = list(&self.database, after, limit);
        self.database.call("list the executors", call).await
    }

    async fn cordon(
        &self,
        id: ExecutorId,
        cordoned: bool,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let call = cordon(&self.database, (id, cordoned), by, now);
        self.database.call("cordon the executor", call).await
    }
}
