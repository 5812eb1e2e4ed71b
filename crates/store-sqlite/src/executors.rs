//! Executors: enrolled, listed, cordoned.

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
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    SqliteStore,
    audit::{self, About},
    changes::one,
    columns::{Column, json, micros},
    database::query,
    ledger::session_state,
};

/// Executors with their newest sessions, those that the rest of the statement leaves.
macro_rules! executors {
    ($rest:literal, $($argument:expr),*) => {
        sqlx::query_as!(
            Row,
            r#"/* executors */
             SELECT e.executor_id AS "executor_id!: Uuid", e.name, e.pool, e.enrolled_at, e.cordoned AS "cordoned: bool",
                    s.session_id AS "session_id?: Uuid", s.pool AS "session_pool?", s.ended,
                    s.slots AS "slots?", s.free_slots AS "free_slots?", s.lease_end AS "lease_end?",
                    s.opened_at AS "opened_at?", s.ended_at, s.facts AS "facts?", s.images, s.self_test,
                    (SELECT count(*) FROM attempts a WHERE a.session_id = s.session_id AND a.state = 'started')
                        AS "running!: i64"
               FROM executors e LEFT JOIN sessions s ON s.session_id =
                    (SELECT session_id FROM sessions WHERE executor_id = e.executor_id
                      ORDER BY opened_at DESC, session_id DESC LIMIT 1)
              "# + $rest,
            $($argument),*
        )
    };
}

struct Row {
    executor_id: Uuid,
    name: String,
    pool: String,
    enrolled_at: i64,
    cordoned: bool,
    session_id: Option<Uuid>,
    session_pool: Option<String>,
    ended: Option<String>,
    slots: Option<i64>,
    free_slots: Option<i64>,
    lease_end: Option<i64>,
    opened_at: Option<i64>,
    ended_at: Option<i64>,
    facts: Option<String>,
    images: Option<String>,
    self_test: Option<String>,
    running: i64,
}

impl TryFrom<Row> for ExecutorRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: ExecutorId::from_uuid(row.executor_id),
            name: row.name.clone(),
            pool: row.pool.clone(),
            enrolled_at: Column("executors", "enrolled_at").time(row.enrolled_at)?,
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
            running: column("running").number(self.running)?,
            lease_end: column("lease_end").time(self.lease_end.unwrap_or_default())?,
            opened_at: column("opened_at").time(self.opened_at.unwrap_or_default())?,
            ended_at: self.ended_at.map(|at| column("ended_at").time(at)).transpose()?,
            facts: ExecutorFacts {
                images: images.transpose()?,
                ..facts
            },
            self_test: self_test.transpose()?,
        })
    }
}

/// Keeps a session's newest self-test, as part of a transaction.
pub(crate) async fn note_self_test(
    connection: &mut SqliteConnection,
    session: SessionId,
    test: &SelfTest,
) -> Result<(), StoreError> {
    let (id, text, fit) = (session.as_uuid(), json(test), test.is_fit());
    let done = sqlx::query!(
        "/* note_self_test */
         UPDATE sessions SET self_test = ?2, fit = ?3 WHERE session_id = ?1 AND ended IS NULL",
        id,
        text,
        fit
    );
    let done = done.execute(&mut *connection).await;
    one(done, "note the session's self-test")
}

/// In whose log it stands what becomes of executors.
const ABOUT: About = About {
    tenant: TenantId::LOCAL,
    job: None,
    attempt: None,
};

#[async_trait]
impl ExecutorStore for SqliteStore {
    async fn enroll_executor(
        &self,
        executor: NewExecutor,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        const DOING: &str = "enroll the executor";
        if !is_name(&executor.name) {
            return Err(StoreError::Refused {
                doing: DOING,
                source: "no executor may have that name".into(),
            });
        }
        let mut write = self.database.begin().await?;
        let (id, at) = (executor.id.as_uuid(), micros(now));
        let taken = sqlx::query_scalar!(
            r#"/* enroll_executor */
             SELECT EXISTS (SELECT 1 FROM executors WHERE executor_id = ? OR name = ?) AS "taken!: bool""#,
            id,
            executor.name
        )
        .fetch_one(&mut *write.tx)
        .await
        .map_err(query("look for the executor"))?;
        if taken {
            return Err(StoreError::ExecutorExists(executor.name));
        }
        sqlx::query!(
            "/* enroll_executor */ INSERT INTO executors (executor_id, name, pool, enrolled_at) VALUES (?, ?, ?, ?)",
            id,
            executor.name,
            executor.pool,
            at
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query(DOING))?;
        let fact = Fact::ExecutorEnrolled {
            executor: executor.id,
            name: executor.name,
            pool: executor.pool,
            by,
        };
        audit::record(&mut write.tx, ABOUT, fact, now).await?;
        write.commit().await
    }

    async fn find_executor(&self, id: ExecutorId) -> Result<Option<ExecutorRecord>, StoreError> {
        let id = id.as_uuid();
        let found = executors!("WHERE e.executor_id = ?", id);
        let found = found.fetch_optional(&self.database.read).await;
        found
            .map_err(query("find the executor"))?
            .map(ExecutorRecord::try_from)
            .transpose()
    }

    async fn find_executor_by_name(&self, name: &str) -> Result<Option<ExecutorRecord>, StoreError> {
        let found = executors!("WHERE e.name = ?", name);
        let found = found.fetch_optional(&self.database.read).await;
        found
            .map_err(query("find the executor"))?
            .map(ExecutorRecord::try_from)
            .transpose()
    }

    async fn list_executors(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ExecutorRecord>, StoreError> {
        // No name is empty.
        let (after, limit) = (after.unwrap_or_default(), limit.min(MAX_PAGE));
        let listed = executors!("WHERE e.name > ? ORDER BY e.name LIMIT ?", after, limit);
        let listed = listed.fetch_all(&self.database.read).await;
        listed
            .map_err(query("list the executors"))?
            .into_iter()
            .map(ExecutorRecord::try_from)
            .collect()
    }

    async fn cordon(
        &self,
        id: ExecutorId,
        cordoned: bool,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let mut write = self.database.begin().await?;
        let executor = id.as_uuid();
        let known = sqlx::query_scalar!(
            r#"/* cordon */ SELECT cordoned AS "cordoned: bool" FROM executors WHERE executor_id = ?"#,
            executor
        )
        .fetch_optional(&mut *write.tx)
        .await
        .map_err(query("find the executor"))?
        .ok_or(StoreError::NoSuchExecutor(id))?;
        if known == cordoned {
            return Ok(false);
        }
        let done = sqlx::query!(
            "/* cordon */ UPDATE executors SET cordoned = ?2 WHERE executor_id = ?1 AND cordoned <> ?2",
            executor,
            cordoned
        );
        one(done.execute(&mut *write.tx).await, "cordon the executor")?;
        let fact = if cordoned {
            Fact::ExecutorCordoned { executor: id, by }
        } else {
            Fact::ExecutorUncordoned { executor: id, by }
        };
        audit::record(&mut write.tx, ABOUT, fact, now).await?;
        write.commit().await?;
        Ok(true)
    }
}
