//! The jobs of tenants that wait for their turn, read as far as they are needed.

use std::collections::{BTreeMap, VecDeque};

use mayfly_core::id::{JobId, TenantId};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use super::{MOST_LANES, MOST_TENANTS};
use crate::database::query;

/// Most jobs that are read of a lane at once.
const MOST_READ: usize = 256;

/// A tenant's ready jobs of one priority and one image.
pub(crate) struct Lane {
    pub(crate) tenant: TenantId,
    pub(crate) rank: i32,
    pub(crate) image: String,
    /// Where reading goes on.
    pub(crate) from: Uuid,
    /// Whether it was read to its end.
    pub(crate) is_over: bool,
    /// Whether it was read at all.
    pub(crate) was_read: bool,
    /// What was read and not taken.
    pub(crate) front: VecDeque<Uuid>,
    /// What was taken, in the order of ids.
    pub(crate) taken: Vec<JobId>,
}

/// Lanes with jobs of which all executors have the image, by tenant and rank; and where the next look begins, where there
/// are more tenants than one transaction looks at.
pub(super) async fn wanted(
    connection: &mut PgConnection,
    pool: &str,
    from: Uuid,
    images: Option<&[String]>,
) -> Result<(Vec<Lane>, Uuid), StoreError> {
    let mut found = from_tenant(connection, pool, from, images).await?;
    let most = usize::try_from(MOST_TENANTS).unwrap_or(usize::MAX);
    if found.tenants < most && !from.is_nil() {
        let rest = most - found.tenants;
        let before = from_tenant(connection, pool, Uuid::nil(), images).await?;
        let mut seen = Vec::new();
        for lane in before
            .lanes
            .into_iter()
            .filter(|lane| lane.tenant.as_uuid() < from)
        {
            if seen.last() != Some(&lane.tenant) {
                if seen.len() == rest {
                    let next = seen.last().map_or(from, TenantId::as_uuid);
                    return Ok((found.lanes, next));
                }
                seen.push(lane.tenant);
            }
            found.lanes.push(lane);
        }
        return Ok((found.lanes, Uuid::nil()));
    }
    Ok((found.lanes, found.next))
}

struct Found {
    lanes: Vec<Lane>,
    tenants: usize,
    next: Uuid,
}

/// Tenants from one on, one step of the index for each, and then their lanes.
async fn from_tenant(
    connection: &mut PgConnection,
    pool: &str,
    from: Uuid,
    images: Option<&[String]>,
) -> Result<Found, StoreError> {
    let rows = sqlx::query!(
        r#"/* wanted */
         WITH RECURSIVE tenants (tenant_id) AS (
             (SELECT tenant_id FROM lanes WHERE pool = $1 AND tenant_id >= $2 AND active ORDER BY tenant_id LIMIT 1)
             UNION ALL
             SELECT (SELECT n.tenant_id FROM lanes n WHERE n.pool = $1 AND n.tenant_id > t.tenant_id AND n.active
                      ORDER BY n.tenant_id LIMIT 1)
               FROM tenants t WHERE t.tenant_id IS NOT NULL)
         SELECT t.tenant_id AS "tenant_id!", l.rank AS "rank?", l.image_digest AS "image?", l.first_job AS "first_job?"
           FROM (SELECT tenant_id FROM tenants WHERE tenant_id IS NOT NULL LIMIT $3) t
                LEFT JOIN LATERAL
                (SELECT rank, image_digest, first_job FROM lanes
                  WHERE pool = $1 AND tenant_id = t.tenant_id AND active
                    AND ($4::text[] IS NULL OR image_digest = ANY ($4))
                  ORDER BY rank, image_digest LIMIT $5) l ON true"#,
        pool,
        from,
        MOST_TENANTS,
        images as Option<&[String]>,
        MOST_LANES
    )
    .fetch_all(connection)
    .await
    .map_err(query("find whose jobs are ready"))?;
    let mut found = Found {
        lanes: Vec::new(),
        tenants: 0,
        next: Uuid::nil(),
    };
    let mut last = None;
    for row in rows {
        if last != Some(row.tenant_id) {
            last = Some(row.tenant_id);
            found.tenants += 1;
        }
        if let (Some(rank), Some(image), Some(from)) = (row.rank, row.image, row.first_job) {
            found.lanes.push(Lane {
                tenant: TenantId::from_uuid(row.tenant_id),
                rank,
                image,
                from,
                is_over: false,
                was_read: false,
                front: VecDeque::new(),
                taken: Vec::new(),
            });
        }
    }
    if usize::try_from(MOST_TENANTS) == Ok(found.tenants) {
        found.next = last.unwrap_or_default();
    }
    Ok(found)
}

/// The lanes of each tenant, by rank and image.
pub(super) struct Waiting(BTreeMap<TenantId, Vec<Lane>>);

impl Waiting {
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        let mut waiting: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for lane in lanes {
            waiting.entry(lane.tenant).or_default().push(lane);
        }
        Self(waiting)
    }

    /// Reads what will probably be needed at once.
    pub(super) async fn read_ahead(
        &mut self,
        connection: &mut PgConnection,
        pool: &str,
        planned: &BTreeMap<TenantId, usize>,
    ) -> Result<(), StoreError> {
        let mut wanted = Vec::new();
        for (tenant, lanes) in &mut self.0 {
            let Some(count) = planned.get(tenant) else {
                continue;
            };
            let mut first = None;
            for lane in lanes {
                if *first.get_or_insert(lane.rank) == lane.rank {
                    wanted.push((lane, *count));
                }
            }
        }
        read(connection, pool, wanted).await
    }

    /// A tenant's next job: by priority, and then by age.
    pub(super) async fn next(
        &mut self,
        connection: &mut PgConnection,
        pool: &str,
        tenant: TenantId,
        wanted: usize,
    ) -> Result<Option<JobId>, StoreError> {
        let Some(lanes) = self.0.get_mut(&tenant) else {
            return Ok(None);
        };
        let mut first: Option<(i32, Uuid, usize)> = None;
        for (index, lane) in lanes.iter_mut().enumerate() {
            if first.is_some_and(|(rank, ..)| rank < lane.rank) {
                break;
            }
            if lane.front.is_empty() && !lane.is_over {
                read(connection, pool, vec![(&mut *lane, wanted)]).await?;
            }
            if let Some(job) = lane.front.front()
                && first.is_none_or(|(_, other, _)| *job < other)
            {
                first = Some((lane.rank, *job, index));
            }
        }
        let Some((_, job, index)) = first else {
            return Ok(None);
        };
        let job = JobId::from_uuid(job);
        lanes[index].front.pop_front();
        lanes[index].taken.push(job);
        Ok(Some(job))
    }

    /// Whether a tenant is known to have no further job that is ready.
    pub(super) fn has_no_more(&self, tenant: TenantId) -> bool {
        let lanes = self.0.get(&tenant).map_or(&[][..], Vec::as_slice);
        lanes.iter().all(|lane| lane.is_over && lane.front.is_empty())
    }

    pub(super) fn into_lanes(self) -> Vec<Lane> {
        self.0.into_values().flatten().collect()
    }
}

/// Reads lanes on, each by so many jobs at most.
async fn read(
    connection: &mut PgConnection,
    pool: &str,
    mut wanted: Vec<(&mut Lane, usize)>,
) -> Result<(), StoreError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ranks, mut images) = (Vec::new(), Vec::new(), Vec::new());
    let (mut from, mut most) = (Vec::new(), Vec::new());
    for (lane, count) in &mut wanted {
        // One more, so that the end is seen as well.
        *count = (*count).min(MOST_READ) + 1;
        tenants.push(lane.tenant.as_uuid());
        ranks.push(lane.rank);
        images.push(lane.image.clone());
        from.push(lane.from);
        most.push(i64::try_from(*count).unwrap_or(i64::MAX));
    }
    let rows = sqlx::query!(
        r#"/* read */
         SELECT u.number AS "number!", r.job_id
           FROM unnest($2::uuid[], $3::integer[], $4::text[], $5::uuid[], $6::bigint[])
                WITH ORDINALITY AS u (tenant_id, rank, image_digest, from_job, most, number)
                CROSS JOIN LATERAL
                (SELECT job_id FROM ready_jobs
                  WHERE pool = $1 AND tenant_id = u.tenant_id AND rank = u.rank AND image_digest = u.image_digest
                    AND job_id >= u.from_job
                  ORDER BY job_id LIMIT u.most) r"#,
        pool,
        &tenants,
        &ranks,
        &images,
        &from,
        &most
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the tenants' next jobs"))?;
    let mut read = vec![0; wanted.len()];
    for row in rows {
        let number = usize::try_from(row.number - 1).unwrap_or(usize::MAX);
        let (Some((lane, _)), Some(read)) = (wanted.get_mut(number), read.get_mut(number)) else {
            continue;
        };
        lane.front.push_back(row.job_id);
        *read += 1;
    }
    for ((lane, most), read) in wanted.into_iter().zip(read) {
        lane.was_read = true;
        lane.is_over = read < most;
        if let Some(last) = lane.front.back() {
            lane.from = Uuid::from_u128(last.as_u128().saturating_add(1));
        }
    }
    Ok(())
}
