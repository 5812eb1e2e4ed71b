//! Lists of jobs: found by the index of one part of a filter, looked at for the rest of it.

use mayfly_core::{
    id::{JobId, TenantId},
    state::JobState,
};
use mayfly_store::{
    error::StoreError,
    records::{JobFilter, JobPage, JobRecord, Lead},
    seam::{MAX_PAGE, MOST_LOOKED_AT},
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    columns::{micros, state_words},
    database::{Database, query},
    jobs::Row,
};

/// Jobs that are looked at with one statement.
const CHUNK: u32 = 500;

/// The place of a job in the list. Lists go down from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    submitted_at: i64,
    job: Uuid,
}

/// The next jobs below a position, by what they are found by.
struct Chunk<'a> {
    tenant: TenantId,
    lead: Lead<'a>,
    from: i64,
    below: Position,
    limit: u32,
}

pub(crate) async fn list(
    database: &Database,
    tenant: TenantId,
    filter: &JobFilter,
    before: Option<JobId>,
    limit: u32,
) -> Result<JobPage, StoreError> {
    let limit = usize::try_from(limit.min(MAX_PAGE)).unwrap_or(usize::MAX);
    let mut tx = database.moment().await?;
    let mut below = begin(&mut tx, tenant, filter, before).await?;
    let (mut jobs, mut left) = (Vec::new(), MOST_LOOKED_AT);
    let mut next = None;
    while left > 0 && jobs.len() < limit {
        // Where every job counts, those that are wanted are read, and one to see whether there are others.
        let wanted = match u32::try_from(limit - jobs.len()) {
            Ok(wanted) if !filter.has_more_than_lead() => wanted + 1,
            _ => CHUNK,
        };
        let chunk = Chunk {
            tenant,
            lead: filter.lead(),
            from: filter.submitted_from.map_or(i64::MIN, micros),
            below,
            limit: wanted.clamp(1, CHUNK).min(left),
        };
        let rows = chunk.read(&mut tx).await?;
        let (count, is_all) = (
            rows.len(),
            rows.len() < usize::try_from(chunk.limit).unwrap_or(usize::MAX),
        );
        left -= u32::try_from(count).unwrap_or(left).min(left);
        let mut is_full = false;
        for row in rows {
            let job = JobRecord::try_from(row)?;
            if jobs.len() == limit {
                is_full = true;
                break;
            }
            below = Position {
                submitted_at: micros(job.submitted_at),
                job: job.id.as_uuid(),
            };
            next = Some(job.id);
            if filter.lets_through(&job) {
                jobs.push(job);
            }
        }
        if is_all && !is_full {
            next = None;
            break;
        }
    }
    Ok(JobPage { jobs, next })
}

/// Where a list begins: below everything that its filter and its cursor leave out at the newer end.
async fn begin(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    filter: &JobFilter,
    before: Option<JobId>,
) -> Result<Position, StoreError> {
    let newest = Position {
        submitted_at: filter.submitted_before.map_or(i64::MAX, micros),
        job: Uuid::nil(),
    };
    let Some(job) = before else { return Ok(newest) };
    let (id, tenant) = (job.as_uuid(), tenant.as_uuid());
    let at = sqlx::query_scalar!(
        "/* begin */ SELECT submitted_at FROM jobs WHERE job_id = ? AND tenant_id = ?",
        id,
        tenant
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find where the list goes on"))?
    .ok_or(StoreError::NoSuchJob(job))?;
    Ok(newest.min(Position {
        submitted_at: at,
        job: id,
    }))
}

impl Chunk<'_> {
    async fn read(&self, connection: &mut SqliteConnection) -> Result<Vec<Row>, StoreError> {
        let (tenant, from, limit) = (self.tenant.as_uuid(), self.from, self.limit);
        let Position {
            submitted_at: at,
            job,
        } = self.below;
        let rows = match self.lead {
            Lead::Tenant => {
                sqlx::query_as!(
                    Row,
                    r#"/* read */
             SELECT job_id AS "job_id!: Uuid", tenant_id AS "tenant_id!: Uuid", state, image, image_digest,
                    policy_version, labels, attempts, batch_id AS "batch_id: Uuid", submitted_at, ended_at, end_state,
                    outcome
               FROM jobs INDEXED BY jobs_newest
              WHERE tenant_id = ?1 AND submitted_at >= ?2 AND (submitted_at, job_id) < (?3, ?4)
              ORDER BY submitted_at DESC, job_id DESC LIMIT ?5"#,
                    tenant,
                    from,
                    at,
                    job,
                    limit
                )
                .fetch_all(connection)
                .await
            }
            Lead::Batch(batch) => {
                let batch = batch.as_uuid();
                sqlx::query_as!(
                    Row,
                    r#"/* read */
             SELECT job_id AS "job_id!: Uuid", tenant_id AS "tenant_id!: Uuid", state, image, image_digest,
                    policy_version, labels, attempts, batch_id AS "batch_id: Uuid", submitted_at, ended_at, end_state,
                    outcome
               FROM jobs INDEXED BY jobs_newest_of_batch
              WHERE tenant_id = ?1 AND batch_id = ?6 AND submitted_at >= ?2 AND (submitted_at, job_id) < (?3, ?4)
              ORDER BY submitted_at DESC, job_id DESC LIMIT ?5"#,
                    tenant,
                    from,
                    at,
                    job,
                    limit,
                    batch
                )
                .fetch_all(connection)
                .await
            }
            Lead::Image(image) => {
                let image = image.to_string();
                sqlx::query_as!(
                    Row,
                    r#"/* read */
             SELECT job_id AS "job_id!: Uuid", tenant_id AS "tenant_id!: Uuid", state, image, image_digest,
                    policy_version, labels, attempts, batch_id AS "batch_id: Uuid", submitted_at, ended_at, end_state,
                    outcome
               FROM jobs INDEXED BY jobs_newest_of_image
              WHERE tenant_id = ?1 AND image = ?6 AND submitted_at >= ?2 AND (submitted_at, job_id) < (?3, ?4)
              ORDER BY submitted_at DESC, job_id DESC LIMIT ?5"#,
                    tenant,
                    from,
                    at,
                    job,
                    limit,
                    image
                )
                .fetch_all(connection)
                .await
            }
            Lead::State(state) => return self.in_state(state, connection).await,
            Lead::Label(name, value) => return self.with_label((name, value), connection).await,
        };
        rows.map_err(query("list the jobs"))
    }

    async fn in_state(
        &self,
        state: JobState,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<Row>, StoreError> {
        let (tenant, from, limit) = (self.tenant.as_uuid(), self.from, self.limit);
        let Position {
            submitted_at: at,
            job,
        } = self.below;
        let (state, end) = state_words(state);
        sqlx::query_as!(
            Row,
            r#"/* in_state */
             SELECT job_id AS "job_id!: Uuid", tenant_id AS "tenant_id!: Uuid", state, image, image_digest,
                    policy_version, labels, attempts, batch_id AS "batch_id: Uuid", submitted_at, ended_at, end_state,
                    outcome
               FROM jobs INDEXED BY jobs_newest_in_state
              WHERE tenant_id = ?1 AND state = ?6 AND end_state IS ?7 AND submitted_at >= ?2
                AND (submitted_at, job_id) < (?3, ?4)
              ORDER BY submitted_at DESC, job_id DESC LIMIT ?5"#,
            tenant,
            from,
            at,
            job,
            limit,
            state,
            end
        )
        .fetch_all(connection)
        .await
        .map_err(query("list the jobs"))
    }

    async fn with_label(
        &self,
        (name, value): (&str, &str),
        connection: &mut SqliteConnection,
    ) -> Result<Vec<Row>, StoreError> {
        let (tenant, from, limit) = (self.tenant.as_uuid(), self.from, self.limit);
        let Position {
            submitted_at: at,
            job,
        } = self.below;
        sqlx::query_as!(
            Row,
            r#"/* with_label */
             SELECT j.job_id AS "job_id!: Uuid", j.tenant_id AS "tenant_id!: Uuid", j.state, j.image, j.image_digest,
                    j.policy_version, j.labels, j.attempts, j.batch_id AS "batch_id: Uuid", j.submitted_at, j.ended_at,
                    j.end_state, j.outcome
               -- CROSS keeps this order: the labels are what jobs are found by.
               FROM job_labels l CROSS JOIN jobs j ON j.job_id = l.job_id
              WHERE l.tenant_id = ?1 AND l.name = ?6 AND l.value = ?7 AND l.submitted_at >= ?2
                AND (l.submitted_at, l.job_id) < (?3, ?4)
              ORDER BY l.submitted_at DESC, l.job_id DESC LIMIT ?5"#,
            tenant,
            from,
            at,
            job,
            limit,
            name,
            value
        )
        .fetch_all(connection)
        .await
        .map_err(query("list the jobs"))
    }
}
