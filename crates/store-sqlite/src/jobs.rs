//! Jobs as clients see them: accepted, found, listed.

use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::{Fact, Submitted as SubmittedFact, SubmittedIn},
    digest::Digest,
    id::{AttemptId, BatchId, ExecutorId, JobId, SessionId, TenantId},
    job::ResolvedJob,
    outcome::{CapturedStream, Outcome},
    run::RunReport,
};
use mayfly_store::{
    error::StoreError,
    records::{AttemptSummary, JobDetails, JobRecord, JobStanding, NewJob, Submitted},
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    audit::{self, About},
    batches,
    columns::{Column, job_state, json, micros},
    database::{Database, query},
    keys, uploads,
};

pub(crate) async fn submit(
    database: &Database,
    job: NewJob,
    now: DateTime<Utc>,
) -> Result<Submitted, StoreError> {
    let answers = batches::submit_many(database, vec![job], now).await?;
    Ok(answers.first().copied().unwrap_or(Submitted::Accepted))
}

/// Accepts one job as part of a transaction. `position`: its place in its batch, where it has one.
pub(crate) async fn accept(
    connection: &mut SqliteConnection,
    job: &NewJob,
    position: Option<i64>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (id, tenant) = (job.id.as_uuid(), job.tenant.as_uuid());
    let (retry, asked, labels) = (
        json(&job.resolved.retry),
        json(&job.resolved.asked),
        json(&job.labels),
    );
    let image = job.resolved.image.to_string();
    let (image_digest, policy_version) = (
        job.resolved.pin.digest.to_string(),
        job.resolved.policy_version.to_string(),
    );
    let (at, expires_at) = (micros(now), job.expires_at.map(micros));
    let ready_at = job.not_before.map_or(at, |start| micros(start).max(at));
    let batch = job.batch.as_ref().map(|place| place.batch.as_uuid());
    sqlx::query!(
        "/* accept */
         INSERT INTO jobs (job_id, tenant_id, pool, state, priority, retry, asked, labels, image, image_digest,
                           policy_version, submitted_at, ready_at, expires_at, batch_id, batch_position,
                           retain_source, ready)
         VALUES (?1, ?2, ?3, 'queued', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?12 <= ?11)",
        id,
        tenant,
        job.pool,
        job.priority,
        retry,
        asked,
        labels,
        image,
        image_digest,
        policy_version,
        at,
        ready_at,
        expires_at,
        batch,
        position,
        job.retain_source
    )
    .execute(&mut *connection)
    .await
    .map_err(query("accept the job"))?;
    let (resolved, salt) = (json(&*job.resolved), job.salt.as_bytes().as_slice());
    sqlx::query!(
        "/* accept */ INSERT INTO job_contents (job_id, salt, resolved) VALUES (?, ?, ?)",
        id,
        salt,
        resolved
    )
    .execute(&mut *connection)
    .await
    .map_err(query("keep the job's content"))?;
    uploads::fetch_for(connection, job, now).await?;
    if let Some(place) = &job.batch {
        sqlx::query!(
            "/* accept */ INSERT INTO batch_items (batch_id, item, job_id) VALUES (?, ?, ?)",
            batch,
            place.item,
            id
        )
        .execute(&mut *connection)
        .await
        .map_err(query("keep the name of the item"))?;
    }
    for (name, value) in &job.labels {
        sqlx::query!(
            "/* accept */ INSERT INTO job_labels (tenant_id, name, value, submitted_at, job_id) VALUES (?, ?, ?, ?, ?)",
            tenant,
            name,
            value,
            at,
            id
        )
        .execute(&mut *connection)
        .await
        .map_err(query("keep the job's labels"))?;
    }
    if let Some(key) = &job.idempotency {
        keys::keep(connection, (job.tenant, job.id), key, now).await?;
    }
    let about = About {
        tenant: job.tenant,
        job: Some(job.id),
        attempt: None,
    };
    audit::record(connection, about, submitted(job), now).await
}

/// What is on record of a job that is accepted.
fn submitted(job: &NewJob) -> Fact {
    let digests = job.resolved.content_digests();
    let batch = job.batch.as_ref().map(|place| SubmittedIn {
        id: place.batch,
        item: job.salt.commit(&Digest::of(place.item.as_bytes())),
    });
    Fact::JobSubmitted(Box::new(SubmittedFact {
        image_digest: job.resolved.pin.digest,
        policy_version: job.resolved.policy_version,
        code: job.salt.commit(&digests.code),
        files: job.salt.commit(&digests.files),
        stdin: job.salt.commit(&digests.stdin),
        asked: job.resolved.asked,
        limits: job.resolved.limits,
        runtime: job.resolved.runtime.clone(),
        max_attempts: job.resolved.retry.max_attempts,
        batch,
    }))
}

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
    pub(crate) submitted_at: i64,
    pub(crate) ended_at: Option<i64>,
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
            submitted_at: column("submitted_at").time(row.submitted_at)?,
            ended_at: row.ended_at.map(|at| column("ended_at").time(at)).transpose()?,
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
    let (job_id, tenant_id) = (id.as_uuid(), tenant.as_uuid());
    // One transaction, so that job and attempts are of one moment.
    let mut tx = database.moment().await?;
    let found = sqlx::query_as!(
        Row,
        r#"/* find */
         SELECT job_id AS "job_id!: Uuid", tenant_id AS "tenant_id!: Uuid", state, image, image_digest, policy_version,
                labels, attempts, batch_id AS "batch_id: Uuid", submitted_at, ended_at, end_state, outcome
           FROM jobs WHERE job_id = ? AND tenant_id = ?"#,
        job_id,
        tenant_id
    )
    .fetch_optional(&mut *tx)
    .await
    .map_err(query("find the job"))?;
    let Some(row) = found else { return Ok(None) };
    let content = find_content(&mut tx, id).await?;
    let attempts = attempts_of(&mut tx, id).await?;
    Ok(Some(JobDetails {
        job: row.try_into()?,
        resolved: content.map(|content| content.resolved),
        attempts,
    }))
}

/// All that a job is, and how long it is as it is stored.
pub(crate) struct Content {
    pub(crate) resolved: ResolvedJob,
    pub(crate) bytes: usize,
}

/// What a job that is not over must have.
pub(crate) async fn content(connection: &mut SqliteConnection, job: JobId) -> Result<Content, StoreError> {
    let found = find_content(connection, job).await?;
    found.ok_or_else(|| Column("job_contents", "resolved").corrupt(format!("job {job} has none")))
}

async fn find_content(connection: &mut SqliteConnection, job: JobId) -> Result<Option<Content>, StoreError> {
    let id = job.as_uuid();
    let text = sqlx::query_scalar!(
        "/* find_content */ SELECT resolved FROM job_contents WHERE job_id = ?",
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("read the job's content"))?;
    let read = |text: String| {
        Ok(Content {
            resolved: Column("job_contents", "resolved").json(&text)?,
            bytes: text.len(),
        })
    };
    text.map(read).transpose()
}

pub(crate) async fn standings(
    database: &Database,
    tenant: TenantId,
    ids: &[JobId],
) -> Result<Vec<JobStanding>, StoreError> {
    const DOING: &str = "look how the jobs stand";
    if ids.len() > MAX_PAGE as usize {
        return Err(batches::refused(
            DOING,
            format!("{} at once are too many", ids.len()),
        ));
    }
    let tenant_id = tenant.as_uuid();
    let ids: Vec<_> = ids.iter().map(|id| id.as_uuid().simple().to_string()).collect();
    let ids = json(&ids);
    let rows = sqlx::query!(
        r#"/* standings */
         SELECT j.job_id AS "job_id!: Uuid", j.state, j.end_state, j.attempts
           -- CROSS keeps this order: the ids are few, and a tenant may have many jobs.
           FROM json_each(?2) asked CROSS JOIN jobs j ON j.job_id = unhex(asked.value)
          WHERE j.tenant_id = ?1"#,
        tenant_id,
        ids
    )
    .fetch_all(&database.read)
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

/// The jobs of a batch after a place, with their places and the names of their items.
pub(crate) async fn list_of_batch(
    database: &Database,
    tenant: TenantId,
    batch: BatchId,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Option<String>, JobRecord)>, StoreError> {
    let (tenant_id, batch_id) = (tenant.as_uuid(), batch.as_uuid());
    let rows = sqlx::query!(
        r#"/* list_of_batch */
         SELECT j.batch_position AS "batch_position!: i64", i.item AS "item?", j.job_id AS "job_id!: Uuid",
                j.tenant_id AS "tenant_id!: Uuid", j.state, j.image, j.image_digest, j.policy_version, j.labels,
                j.attempts, j.batch_id AS "batch_id: Uuid", j.submitted_at, j.ended_at, j.end_state, j.outcome
           FROM jobs j LEFT JOIN batch_items i ON i.job_id = j.job_id
          WHERE j.batch_id = ?2 AND j.tenant_id = ?1 AND j.batch_position > ?3
          ORDER BY j.batch_position
          LIMIT ?4"#,
        tenant_id,
        batch_id,
        after,
        limit
    )
    .fetch_all(&database.read)
    .await
    .map_err(query("list the batch's jobs"))?;
    rows.into_iter()
        .map(|row| {
            let job = job_of!(row);
            Ok((row.batch_position, row.item, job.try_into()?))
        })
        .collect()
}

/// The jobs of a batch whose ends stand behind a position of the audit log: that of each, then as above.
pub(crate) async fn list_ended_of_batch(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    batch: BatchId,
    since: i64,
    limit: u32,
) -> Result<Vec<(i64, i64, Option<String>, JobRecord)>, StoreError> {
    let (tenant_id, batch_id) = (tenant.as_uuid(), batch.as_uuid());
    let rows = sqlx::query!(
        r#"/* list_ended_of_batch */
         SELECT e.position, j.batch_position AS "batch_position!: i64", i.item AS "item?",
                j.job_id AS "job_id!: Uuid", j.tenant_id AS "tenant_id!: Uuid", j.state, j.image, j.image_digest,
                j.policy_version, j.labels, j.attempts, j.batch_id AS "batch_id: Uuid", j.submitted_at, j.ended_at,
                j.end_state, j.outcome
           -- CROSS keeps this order: what is behind the mark is little, and a batch may be large.
           FROM audit_events e CROSS JOIN jobs j ON j.job_id = e.job_id
                LEFT JOIN batch_items i ON i.job_id = j.job_id
          WHERE e.position > ?3 AND e.kind = 'job_ended' AND j.batch_id = ?2 AND j.tenant_id = ?1
          ORDER BY e.position
          LIMIT ?4"#,
        tenant_id,
        batch_id,
        since,
        limit
    )
    .fetch_all(connection)
    .await
    .map_err(query("list the batch's ended jobs"))?;
    rows.into_iter()
        .map(|row| {
            let job = job_of!(row);
            Ok((row.position, row.batch_position, row.item, job.try_into()?))
        })
        .collect()
}

async fn attempts_of(tx: &mut SqliteConnection, job: JobId) -> Result<Vec<AttemptSummary>, StoreError> {
    let job_id = job.as_uuid();
    let rows = sqlx::query!(
        r#"/* attempts_of */
         SELECT a.attempt_id AS "attempt_id!: Uuid", a.number, a.executor_id AS "executor_id: Uuid",
                a.session_id AS "session_id: Uuid", a.started_at, a.ended_at, a.cause,
                r.report AS "report?", r.stdout_head AS "stdout_head?", r.stdout_tail AS "stdout_tail?",
                r.stderr_head AS "stderr_head?", r.stderr_tail AS "stderr_tail?"
           FROM attempts a LEFT JOIN results r ON r.attempt_id = a.attempt_id
          WHERE a.job_id = ?
          ORDER BY a.number"#,
        job_id
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
                started_at: row
                    .started_at
                    .map(|at| column("started_at").time(at))
                    .transpose()?,
                ended_at: row.ended_at.map(|at| column("ended_at").time(at)).transpose()?,
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
