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
use sqlx::{PgConnection, types::Uuid};

use crate::database::{Database, expect_rows, query};

/// Events in their order, as columns. Their ids are made as they are added, so that they sort in this order too.
pub(crate) struct Events {
    now: DateTime<Utc>,
    tenants: Vec<Uuid>,
    ids: Vec<Uuid>,
    jobs: Vec<Option<Uuid>>,
    attempts: Vec<Option<Uuid>>,
    kinds: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl Events {
    pub(crate) const fn new(now: DateTime<Utc>) -> Self {
        Self {
            now,
            tenants: Vec::new(),
            ids: Vec::new(),
            jobs: Vec::new(),
            attempts: Vec::new(),
            kinds: Vec::new(),
            bodies: Vec::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        tenant: TenantId,
        job: Option<JobId>,
        attempt: Option<AttemptId>,
        fact: Fact,
    ) {
        let kind = fact.kind().as_str().to_owned();
        let event = AuditEvent {
            id: AuditEventId::new(),
            at: self.now,
            tenant,
            job,
            attempt,
            fact,
        };
        self.tenants.push(tenant.as_uuid());
        self.ids.push(event.id.as_uuid());
        self.jobs.push(job.map(|id| id.as_uuid()));
        self.attempts.push(attempt.map(|id| id.as_uuid()));
        self.kinds.push(kind);
        self.bodies.push(event.canonical_bytes());
    }

    /// Writes them as part of a transaction.
    pub(crate) async fn write(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let done = sqlx::query!(
            "/* events */
             INSERT INTO audit_events (tenant_id, event_id, at, job_id, attempt_id, kind, body)
             SELECT e.tenant_id, e.event_id, $1, e.job_id, e.attempt_id, e.kind, e.body
               FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::bytea[])
                    AS e (tenant_id, event_id, job_id, attempt_id, kind, body)",
            self.now,
            &self.tenants,
            &self.ids,
            &self.jobs as &[Option<Uuid>],
            &self.attempts as &[Option<Uuid>],
            &self.kinds,
            &self.bodies
        )
        .execute(connection)
        .await;
        expect_rows(done, self.ids.len(), "record the audit events")
    }
}

struct Row {
    event_id: Uuid,
    at: DateTime<Utc>,
    job_id: Option<Uuid>,
    attempt_id: Option<Uuid>,
    kind: String,
    body: Vec<u8>,
}

impl From<Row> for AuditRow {
    fn from(row: Row) -> Self {
        Self {
            id: AuditEventId::from_uuid(row.event_id),
            at: row.at,
            job: row.job_id.map(JobId::from_uuid),
            attempt: row.attempt_id.map(AttemptId::from_uuid),
            kind: row.kind,
            body: row.body,
        }
    }
}

/// The newest events, in the order of their ids: within one transaction that in which they came true, and across several
/// that of their writers' clocks. One statement for each filter, so that each has its index.
pub(crate) async fn list(
    database: &Database,
    tenant: TenantId,
    filter: AuditFilter,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let (tenant, limit) = (tenant.as_uuid(), i64::from(limit.min(MAX_PAGE)));
    let job = filter.job.map(|id| id.as_uuid());
    let rows = match (job, filter.attempt.map(|id| id.as_uuid())) {
        (job, Some(attempt)) => {
            let of = job_of(&mut tx, tenant, attempt).await?;
            if job.is_some() && of != job {
                return Ok(Vec::new());
            }
            match of {
                Some(of) => of_attempt(&mut tx, tenant, of, attempt, limit).await,
                None => of_unknown_attempt(&mut tx, tenant, attempt, limit).await,
            }
        }
        (Some(job), None) => {
            sqlx::query_as!(
                Row,
                "/* list */
                 SELECT event_id, at, job_id, attempt_id, kind, body FROM audit_events
                  WHERE tenant_id = $1 AND job_id = $2
                  ORDER BY event_id DESC LIMIT $3",
                tenant,
                job,
                limit
            )
            .fetch_all(&mut *tx)
            .await
        }
        (None, None) => {
            sqlx::query_as!(
                Row,
                "/* list */
                 SELECT event_id, at, job_id, attempt_id, kind, body FROM audit_events
                  WHERE tenant_id = $1
                  ORDER BY event_id DESC LIMIT $2",
                tenant,
                limit
            )
            .fetch_all(&mut *tx)
            .await
        }
    };
    let rows = rows.map_err(query("list audit events"))?;
    Ok(rows.into_iter().rev().map(AuditRow::from).collect())
}

/// The newest events of the fleet's log that are about no job. Each part of it has the index of the log.
pub(crate) async fn list_of_fleet(
    database: &Database,
    before: Option<AuditEventId>,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let mut tx = database.read_as(TenantId::LOCAL).await?;
    let before = before.map_or(Uuid::max(), |id| id.as_uuid());
    let rows = sqlx::query_as!(
        Row,
        "/* list_of_fleet */
         SELECT event_id, at, job_id, attempt_id, kind, body FROM audit_events
          WHERE tenant_id = $1 AND event_id < $2 AND job_id IS NULL
          ORDER BY event_id DESC LIMIT $3",
        TenantId::LOCAL.as_uuid(),
        before,
        i64::from(limit.min(MAX_PAGE))
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query("list the fleet's audit events"))?;
    Ok(rows.into_iter().rev().map(AuditRow::from).collect())
}

async fn job_of(
    connection: &mut PgConnection,
    tenant: Uuid,
    attempt: Uuid,
) -> Result<Option<Uuid>, StoreError> {
    sqlx::query_scalar!(
        "/* job_of */ SELECT job_id FROM attempts WHERE attempt_id = $1 AND tenant_id = $2",
        attempt,
        tenant
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the attempt"))
}

async fn of_attempt(
    connection: &mut PgConnection,
    tenant: Uuid,
    job: Uuid,
    attempt: Uuid,
    limit: i64,
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        "/* of_attempt */
         SELECT event_id, at, job_id, attempt_id, kind, body FROM audit_events
          WHERE tenant_id = $1 AND job_id = $2 AND attempt_id = $3
          ORDER BY event_id DESC LIMIT $4",
        tenant,
        job,
        attempt,
        limit
    )
    .fetch_all(connection)
    .await
}

async fn of_unknown_attempt(
    connection: &mut PgConnection,
    tenant: Uuid,
    attempt: Uuid,
    limit: i64,
) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        "/* of_unknown_attempt */
         SELECT event_id, at, job_id, attempt_id, kind, body FROM audit_events
          WHERE tenant_id = $1 AND job_id IS NULL AND attempt_id = $2
          ORDER BY event_id DESC LIMIT $3",
        tenant,
        attempt,
        limit
    )
    .fetch_all(connection)
    .await
}
