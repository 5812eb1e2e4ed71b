//! Jobs as clients see them: found, listed.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    outcome::{CapturedStream, Outcome},
    run::RunReport,
};
use mayfly_store::{
    error::StoreError,
    records::{AttemptSummary, JobDetails, JobRecord, JobStanding},
    seam::MAX_PAGE,
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    columns::{Column, job_state},
    database::{Database, query, refused, text},
};

/// The columns of a job in a row that has more of them: each checked statement has a type of row of its own.
macro_rules! job_of {
    ($row:ident) => {
        Row {
            job_id: $row.job_id,
            tenant_id: $row.tenant_id,
            state: $row.state,
            image: $row.image,
            image_digest: $row.image_digest,
            policy_version: $row.policy_version,
            labels: $row.labels,
            attempts: $row.attempts,
            batch_id: $row.batch_id,
            submitted_at: $row.submitted_at,
            ended_at: $row.ended_at,
            end_state: $row.end_state,
            outcome: $row.outcome,
        }
    };
}

pub(crate) struct Row {
    pub(crate) job_id: Uuid,
    pub(crate) tenant_id: Uuid,
    pub(crate) state: String,
    pub(crate) image: String,
    pub(crate) image_digest: String,
    pub(crate) policy_version: String,
    pub(crate) labels: String,
    pub(crate) attempts: i64,
    pub(crate) batch_id: Option<Uuid>,
    pub(crate) submitted_at: DateTime<Utc>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) end_state: Option<String>,
    pub(crate) outcome: Option<String>,
}

impl TryFrom<Row> for JobRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let column = |name| Column("jobs", name);
        Ok(Self {
            id: JobId::from_uuid(row.job_id),
            tenant: TenantId::from_uuid(row.tenant_id),
            state: job_state(&row.state, row.end_state.as_deref())?,
            image: column("image").parse(&row.image)?,
            image_digest: column("image_digest").parse(&row.image_digest)?,
            policy_version: column("policy_version").parse(&row.policy_version)?,
            labels: column("labels").json(&row.labels)?,
            attempts: column("attempts").count(row.attempts)?,
            batch: row.batch_id.map(BatchId::from_uuid),
            submitted_at: row.submitted_at,
            ended_at: row.ended_at,
            outcome: row
                .outcome
                .map(|text| column("outcome").json::<Outcome>(&text))
                .transpose()?,
        })
    }
}

pub(crate) async fn find(
    database: &Database,
    tenant: TenantId,
    id: JobId,
) -> Result<Option<JobDetails>, StoreError> {
    let mut tx = database.read_as(tenant).await?;
    let found = sqlx::query!(
        r#"/* find */
         SELECT j.job_id, j.tenant_id, j.state, j.image, j.image_digest, j.policy_version, j.labels, j.attempts, j.batch_id,
                j.submitted_at, j.ended_at, j.end_state, j.outcome, c.resolved AS "resolved?"
           FROM jobs j LEFT JOIN job_contents c ON c.tenant_id = j.tenant_id AND c.job_id = j.job_id
          WHERE j.tenant_id = $1 AND j.job_id = $2"#,
        tenant.as_uuid(),
        id.as_uuid()
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the job"))?;
    let Some(row) = found else { return Ok(None) };
    let attempts = if row.attempts > 0 {
        attempts_of(&mut tx, tenant, id).await?
    } else {
        Vec::new()
    };
    let column = Column("job_contents", "resolved");
    let resolved = row
        .resolved
        .as_deref()
        .map(|text| column.json(text))
        .transpose()?;
    Ok(Some(JobDetails {
        job: job_of!(row).try_into()?,
        resolved,
        attempts,
    }))
}

pub(crate) async fn standings(
    database: &Database,
    tenant: TenantId,
    ids: &[JobId],
) -> Result<Vec<JobStanding>, StoreError> {
    const DOING: &str = "look how the jobs stand";
    if u32::try_from(ids.len()).is_ok_and(|count| count > MAX_PAGE) {
        return Err(refused(DOING, format!("{} at once are too many", ids.len())));
    }
    let ids: BTreeSet<_> = ids.iter().map(JobId::as_uuid).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let mut tx = database.read_as(tenant).await?;
    let rows = sqlx::query!(
        "/* standings */
         SELECT j.job_id, j.state, j.end_state, j.attempts
           FROM unnest($2::uuid[]) AS u (job_id) JOIN jobs j ON j.tenant_id = $1 AND j.job_id = u.job_id",
        tenant.as_uuid(),
        &ids
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(query(DOING))?;
    rows.into_iter()
        .map(|row| {
            Ok(JobStanding {
                id: JobId::from_uuid(row.job_id),
                state: job_state(&row.state, row.end_state.as_deref())?,
                attempts: Column("jobs", "attempts").count(row.attempts)?,
            })
        })
        .collect()
}

/// A job of a batch: its number among those that are listed, its place, the name of its item, itself.
pub(crate) type OfBatch = (i64, i64, Option<String>, JobRecord);

/// The jobs of a batch after a place, by their places.
pub(crate) async fn list_of_batch(
    connection: &mut PgConnection,
    tenant: TenantId,
    batch: BatchId,
    after: i64,
    limit: u32,
) -> Result<Vec<OfBatch>, StoreError> {
    let rows = sqlx::query!(
        r#"/* list_of_batch */
         SELECT j.batch_position AS "batch_position!", i.item AS "item?", j.job_id, j.tenant_id, j.state, j.image,
                j.image_digest, j.policy_version, j.labels, j.attempts, j.batch_id, j.submitted_at, j.ended_at, j.end_state,
                j.outcome
           FROM jobs j LEFT JOIN batch_items i ON i.tenant_id = j.tenant_id AND i.job_id = j.job_id
          WHERE j.tenant_id = $1 AND j.batch_id = $2 AND j.batch_position > $3
          ORDER BY j.batch_position
          LIMIT $4"#,
        tenant.as_uuid(),
        batch.as_uuid(),
        after,
        i64::from(limit)
    )
    .fetch_all(connection)
    .await
    .map_err(query("list the batch's jobs"))?;
    rows.into_iter()
        .map(|row| {
            let job = job_of!(row);
            let item = row.item.map(item_of).transpose()?;
            Ok((row.batch_position, row.batch_position, item, job.try_into()?))
        })
        .collect()
}

/// The jobs of a batch whose ends have numbers behind one, by those.
pub(crate) async fn list_ended_of_batch(
    connection: &mut PgConnection,
    tenant: TenantId,
    batch: BatchId,
    since: i64,
    limit: u32,
) -> Result<Vec<OfBatch>, StoreError> {
    let rows = sqlx::query!(
        r#"/* list_ended_of_batch */
         SELECT e.position, j.batch_position AS "batch_position!", i.item AS "item?", j.job_id, j.tenant_id, j.state,
                j.image, j.image_digest, j.policy_version, j.labels, j.attempts, j.batch_id, j.submitted_at, j.ended_at,
                j.end_state, j.outcome
           FROM batch_ends e JOIN jobs j ON j.tenant_id = e.tenant_id AND j.job_id = e.job_id
                LEFT JOIN batch_items i ON i.tenant_id = j.tenant_id AND i.job_id = j.job_id
          WHERE e.tenant_id = $1 AND e.batch_id = $2 AND e.position > $3
          ORDER BY e.position
          LIMIT $4"#,
        tenant.as_uuid(),
        batch.as_uuid(),
        since,
        i64::from(limit)
    )
    .fetch_all(connection)
    .await
    .map_err(query("list the batch's ended jobs"))?;
    rows.into_iter()
        .map(|row| {
            let job = job_of!(row);
            let item = row.item.map(item_of).transpose()?;
            Ok((row.position, row.batch_position, item, job.try_into()?))
        })
        .collect()
}

fn item_of(bytes: Vec<u8>) -> Result<String, StoreError> {
    text(Column("batch_items", "item"), bytes)
}

async fn attempts_of(
    tx: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
) -> Result<Vec<AttemptSummary>, StoreError> {
    let rows = sqlx::query!(
        r#"/* attempts_of */
         SELECT a.attempt_id, a.number, a.executor_id, a.session_id, a.started_at, a.ended_at, a.cause,
                r.report AS "report?", r.stdout_head AS "stdout_head?", r.stdout_tail AS "stdout_tail?",
                r.stderr_head AS "stderr_head?", r.stderr_tail AS "stderr_tail?"
           FROM attempts a LEFT JOIN results r ON r.tenant_id = a.tenant_id AND r.attempt_id = a.attempt_id
          WHERE a.tenant_id = $1 AND a.job_id = $2
          ORDER BY a.number"#,
        tenant.as_uuid(),
        job.as_uuid()
    )
    .fetch_all(tx)
    .await
    .map_err(query("find the job's attempts"))?;
    let column = |name| Column("attempts", name);
    rows.into_iter()
        .map(|row| {
            let report = row
                .report
                .map(|text| Column("results", "report").json::<RunReport>(&text))
                .transpose()?;
            let report = report.map(|report| RunReport {
                stdout: with_bytes(report.stdout, row.stdout_head, row.stdout_tail),
                stderr: with_bytes(report.stderr, row.stderr_head, row.stderr_tail),
                ..report
            });
            Ok(AttemptSummary {
                id: AttemptId::from_uuid(row.attempt_id),
                number: column("number").count(row.number)?,
                executor: row.executor_id.map(ExecutorId::from_uuid),
                session: row.session_id.map(SessionId::from_uuid),
                started_at: row.started_at,
                ended_at: row.ended_at,
                cause: row.cause.map(|word| column("cause").word(&word)).transpose()?,
                report,
            })
        })
        .collect()
}

fn with_bytes(stream: CapturedStream, head: Option<Vec<u8>>, tail: Option<Vec<u8>>) -> CapturedStream {
    CapturedStream {
        head: head.unwrap_or_default(),
        tail: tail.unwrap_or_default(),
        ..stream
    }
}
