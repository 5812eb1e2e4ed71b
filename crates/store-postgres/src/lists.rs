//! Lists of jobs: found by the index of one part of a filter, looked at for the rest of it.

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{JobId, TenantId},
    state::JobState,
};
use mayfly_store::{
    error::StoreError,
    records::{JobFilter, JobPage, JobRecord, Lead},
    seam::{MAX_PAGE, MOST_LOOKED_AT},
};
use sqlx::{PgConnection, types::Uuid};

use crate::{
    columns::word,
    database::{Database, query},
    jobs::Row,
};

/// Jobs that are looked at with one statement.
const CHUNK: u32 = 500;

/// Before the first year and after the last one that a filter need name: PostgreSQL has fewer years than the calendar.
const FIRST: DateTime<Utc> = DateTime::from_timestamp_nanos(i64::MIN);
const LAST: DateTime<Utc> = DateTime::from_timestamp_nanos(i64::MAX);

/// The place of a job in the list. Lists go down from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    submitted_at: DateTime<Utc>,
    job: Uuid,
}

/// The next jobs below a position, by what they are found by.
struct Chunk<'a> {
    tenant: TenantId,
    lead: Lead<'a>,
    from: DateTime<Utc>,
    below: Position,
    limit: u32,
}

/// What a label is found by.
pub(crate) fn label(name: &str, value: &str) -> [u8; 32] {
    // The length keeps a name's end apart from a value's beginning.
    let text = [
        &(name.len() as u64).to_be_bytes(),
        name.as_bytes(),
        value.as_bytes(),
    ]
    .concat();
    *Digest::of(&text).as_bytes()
}

pub(crate) async fn list(
    database: &Database,
    tenant: TenantId,
    filter: &JobFilter,
    before: Option<JobId>,
    limit: u32,
) -> Result<JobPage, StoreError> {
    let limit = usize::try_from(limit.min(MAX_PAGE)).unwrap_or(usize::MAX);
    let mut tx = database.read_as(tenant).await?;
    let mut below = begin(&mut tx, tenant, filter, before).await?;
    let (mut jobs, mut left) = (Vec::new(), MOST_LOOKED_AT);
    let mut next = None;
    while left > 0 && jobs.len() < limit {
        // Where every job counts, those that are wanted are read, and one to see whether there are others.
        let wanted = match u32::try_from(limit - jobs.len()) {
            Ok(wanted) if !filter.has_more_than_lead() && !is_open(filter.lead()) => wanted + 1,
            _ => CHUNK,
        };
        let chunk = Chunk {
            tenant,
            lead: filter.lead(),
            from: filter
                .submitted_from
                .map_or(FIRST, |from| from.clamp(FIRST, LAST)),
            below,
            limit: wanted.clamp(1, CHUNK).min(left),
        };
        let rows = chunk.read(&mut tx).await?;
        let count = rows.len();
        let is_all = count < usize::try_from(chunk.limit).unwrap_or(usize::MAX);
        left -= u32::try_from(count).unwrap_or(left).min(left);
        let mut is_full = false;
        for row in rows {
            let job = JobRecord::try_from(row)?;
            if jobs.len() == limit {
                is_full = true;
                break;
            }
            below = Position {
                submitted_at: job.submitted_at,
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

/// Whether jobs are wanted that stand where no index has them: those that are not over are looked for among all.
const fn is_open(lead: Lead<'_>) -> bool {
    matches!(
        lead,
        Lead::State(JobState::Queued | JobState::Dispatched | JobState::Started | JobState::CancelRequested)
    )
}

/// Where a list begins: below everything that its filter and its cursor leave out at the newer end.
async fn begin(
    connection: &mut PgConnection,
    tenant: TenantId,
    filter: &JobFilter,
    before: Option<JobId>,
) -> Result<Position, StoreError> {
    let newest = Position {
        submitted_at: filter.submitted_before.map_or(LAST, |end| end.clamp(FIRST, LAST)),
        job: Uuid::nil(),
    };
    let Some(job) = before else { return Ok(newest) };
    let at = sqlx::query_scalar!(
        "/* begin */ SELECT submitted_at FROM jobs WHERE tenant_id = $1 AND job_id = $2",
        tenant.as_uuid(),
        job.as_uuid()
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find where the list goes on"))?
    .ok_or(StoreError::NoSuchJob(job))?;
    Ok(newest.min(Position {
        submitted_at: at,
        job: job.as_uuid(),
    }))
}

impl Chunk<'_> {
    async fn read(&self, connection: &mut PgConnection) -> Result<Vec<Row>, StoreError> {
        let (tenant, limit) = (self.tenant.as_uuid(), i64::from(self.limit));
        let Position {
            submitted_at: at,
            job,
        } = self.below;
        let rows = match self.lead {
            Lead::State(JobState::Ended(end)) => {
                let end = word(end);
                sqlx::query_as!(
                    Row,
                    "/* read: ended */
                     SELECT j.job_id, j.tenant_id, j.state, j.image, j.image_digest, j.policy_version, j.labels, j.attempts,
                            j.batch_id, j.submitted_at, j.ended_at, j.end_state, j.outcome
                       FROM ended_jobs e JOIN jobs j ON j.tenant_id = e.tenant_id AND j.job_id = e.job_id
                      WHERE e.tenant_id = $1 AND e.end_state = $6 AND e.submitted_at >= $2
                        AND (e.submitted_at, e.job_id) < ($3, $4)
                      ORDER BY e.submitted_at DESC, e.job_id DESC LIMIT $5",
                    tenant,
                    self.from,
                    at,
                    job,
                    limit,
                    end
                )
                .fetch_all(connection)
                .await
            }
            Lead::Tenant | Lead::State(_) => {
                sqlx::query_as!(
                    Row,
                    "/* read: tenant */
                     SELECT job_id, tenant_id, state, image, image_digest, policy_version, labels, attempts, batch_id,
                            submitted_at, ended_at, end_state, outcome
                       FROM jobs
                      WHERE tenant_id = $1 AND submitted_at >= $2 AND (submitted_at, job_id) < ($3, $4)
                      ORDER BY submitted_at DESC, job_id DESC LIMIT $5",
                    tenant,
                    self.from,
                    at,
                    job,
                    limit
                )
                .fetch_all(connection)
                .await
            }
            Lead::Batch(batch) => {
                sqlx::query_as!(
                    Row,
                    "/* read: batch */
                     SELECT job_id, tenant_id, state, image, image_digest, policy_version, labels, attempts, batch_id,
                            submitted_at, ended_at, end_state, outcome
                       FROM jobs
                      WHERE tenant_id = $1 AND batch_id = $6 AND submitted_at >= $2
                        AND (submitted_at, job_id) < ($3, $4)
                      ORDER BY submitted_at DESC, job_id DESC LIMIT $5",
                    tenant,
                    self.from,
                    at,
                    job,
                    limit,
                    batch.as_uuid()
                )
                .fetch_all(connection)
                .await
            }
            Lead::Image(image) => {
                sqlx::query_as!(
                    Row,
                    "/* read: image */
                     SELECT job_id, tenant_id, state, image, image_digest, policy_version, labels, attempts, batch_id,
                            submitted_at, ended_at, end_state, outcome
                       FROM jobs
                      WHERE tenant_id = $1 AND image = $6 AND submitted_at >= $2
                        AND (submitted_at, job_id) < ($3, $4)
                      ORDER BY submitted_at DESC, job_id DESC LIMIT $5",
                    tenant,
                    self.from,
                    at,
                    job,
                    limit,
                    image.to_string()
                )
                .fetch_all(connection)
                .await
            }
            Lead::Label(name, value) => {
                let label = label(name, value);
                sqlx::query_as!(
                    Row,
                    "/* read: label */
                     SELECT j.job_id, j.tenant_id, j.state, j.image, j.image_digest, j.policy_version, j.labels, j.attempts,
                            j.batch_id, j.submitted_at, j.ended_at, j.end_state, j.outcome
                       FROM job_labels l JOIN jobs j ON j.tenant_id = l.tenant_id AND j.job_id = l.job_id
                      WHERE l.tenant_id = $1 AND l.label = $6 AND l.submitted_at >= $2
                        AND (l.submitted_at, l.job_id) < ($3, $4)
                      ORDER BY l.submitted_at DESC, l.job_id DESC LIMIT $5",
                    tenant,
                    self.from,
                    at,
                    job,
                    limit,
                    label.as_slice()
                )
                .fetch_all(connection)
                .await
            }
        };
        rows.map_err(query("list the jobs"))
    }
}
