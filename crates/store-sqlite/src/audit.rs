//! Audit events: written in the transaction that makes them true, never changed.

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::{AuditEvent, Fact},
    id::{AttemptId, AuditEventId, JobId, TenantId},
};
use mayfly_store::{
    error::StoreError,
    records::{AuditFilter, AuditRow},
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, SqlitePool, types::Uuid};

use crate::{
    columns::{Column, micros},
    database::query,
};

/// What an event is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) tenant: TenantId,
    pub(crate) job: Option<JobId>,
    pub(crate) attempt: Option<AttemptId>,
}

/// Writes one event as part of a transaction.
pub(crate) async fn record(
    connection: &mut SqliteConnection,
    about: About,
    fact: Fact,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let kind = fact.kind().as_str();
    let event = AuditEvent {
        id: AuditEventId::new(),
        at: now,
        tenant: about.tenant,
        job: about.job,
        attempt: about.attempt,
        fact,
    };
    let body = event.canonical_bytes();
    let (id, tenant) = (event.id.as_uuid(), about.tenant.as_uuid());
    let (job, attempt) = (
        about.job.map(|id| id.as_uuid()),
        about.attempt.map(|id| id.as_uuid()),
    );
    let at = micros(now);
    sqlx::query!(
        "/* record */
         INSERT INTO audit_events (event_id, at, tenant_id, job_id, attempt_id, kind, body)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        id,
        at,
        tenant,
        job,
        attempt,
        kind,
        body
    )
    .execute(connection)
    .await
    .map_err(query("record an audit event"))?;
    Ok(())
}

/// The position of the newest event; 0 where there is none.
pub(crate) async fn last_position(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let last =
        sqlx::query_scalar!(r#"/* last_position */ SELECT max(position) AS "last: i64" FROM audit_events"#);
    let last = last.fetch_one(connection).await;
    Ok(last.map_err(query("find the newest audit event"))?.unwrap_or(0))
}

struct Row {
    event_id: Uuid,
    at: i64,
    job_id: Option<Uuid>,
    attempt_id: Option<Uuid>,
    kind: String,
    body: Vec<u8>,
}

impl TryFrom<Row> for AuditRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: AuditEventId::from_uuid(row.event_id),
            at: Column("audit_events", "at").time(row.at)?,
            job: row.job_id.map(JobId::from_uuid),
            attempt: row.attempt_id.map(AttemptId::from_uuid),
            kind: row.kind,
            body: row.body,
        })
    }
}

/// The newest events, in the order of their commits. One statement for each filter, so that each has its index.
pub(crate) async fn list(
    pool: &SqlitePool,
    tenant: TenantId,
    filter: AuditFilter,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let (tenant, limit) = (tenant.as_uuid(), limit.min(MAX_PAGE));
    let (job, attempt) = (
        filter.job.map(|id| id.as_uuid()),
        filter.attempt.map(|id| id.as_uuid()),
    );
    let rows = match (job, attempt) {
        (_, Some(attempt)) => {
            sqlx::query_as!(
                Row,
                r#"/* list */
                 SELECT event_id AS "event_id!: Uuid", at, job_id AS "job_id: Uuid",
                        attempt_id AS "attempt_id: Uuid", kind, body
                   FROM audit_events
                  WHERE attempt_id = ?2 AND tenant_id = ?1 AND (?3 IS NULL OR job_id = ?3)
                  ORDER BY position DESC LIMIT ?4"#,
                tenant,
                attempt,
                job,
                limit
            )
            .fetch_all(pool)
            .await
        }
        (Some(job), None) => {
            sqlx::query_as!(
                Row,
                r#"/* list */
                 SELECT event_id AS "event_id!: Uuid", at, job_id AS "job_id: Uuid",
                        attempt_id AS "attempt_id: Uuid", kind, body
                   FROM audit_events
                  WHERE job_id = ?2 AND tenant_id = ?1
                  ORDER BY position DESC LIMIT ?3"#,
                tenant,
                job,
                limit
            )
            .fetch_all(pool)
            .await
        }
        (None, None) => {
            sqlx::query_as!(
                Row,
                r#"/* list */
                 SELECT event_id AS "event_id!: Uuid", at, job_id AS "job_id: Uuid",
                        attempt_id AS "attempt_id: Uuid", kind, body
                   FROM audit_events
                  WHERE tenant_id = ?1
                  ORDER BY position DESC LIMIT ?2"#,
                tenant,
                limit
            )
            .fetch_all(pool)
            .await
        }
    };
    let rows = rows.map_err(query("list audit events"))?;
    rows.into_iter().rev().map(AuditRow::try_from).collect()
}

/// The newest events of the fleet's log that are about no job.
pub(crate) async fn list_of_fleet(
    pool: &SqlitePool,
    before: Option<AuditEventId>,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let (tenant, limit) = (TenantId::LOCAL.as_uuid(), limit.min(MAX_PAGE));
    let before = before.map(|id| id.as_uuid());
    let rows = sqlx::query_as!(
        Row,
        r#"/* list_of_fleet */
         SELECT event_id AS "event_id!: Uuid", at, job_id AS "job_id: Uuid",
                attempt_id AS "attempt_id: Uuid", kind, body
           FROM audit_events
          WHERE tenant_id = ?1 AND job_id IS NULL
            AND (?2 IS NULL OR position < (SELECT position FROM audit_events WHERE event_id = ?2))
          ORDER BY position DESC LIMIT ?3"#,
        tenant,
        before,
        limit
    )
    .fetch_all(pool)
    .await
    .map_err(query("list the fleet's audit events"))?;
    rows.into_iter().rev().map(AuditRow::try_from).collect()
}
