//! What a look leaves for the next one.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::time::ServerTime;
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use super::{Lane, Turn};
use crate::{database::query, news::Counts};

/// Where the next look begins in a lane, and whether it has to look there at all.
struct Rest {
    first_job: Uuid,
    active: bool,
}

/// None where nothing has changed.
fn rest(lane: &Lane, gone: &BTreeSet<JobId>) -> Option<Rest> {
    if !lane.was_read {
        return None;
    }
    let left = lane.taken.iter().find(|job| !gone.contains(job));
    let left = left.map(JobId::as_uuid).or_else(|| lane.front.front().copied());
    if let Some(first_job) = left {
        return Some(Rest {
            first_job,
            active: true,
        });
    }
    Some(Rest {
        first_job: lane.from,
        active: !lane.is_over,
    })
}

pub(super) async fn lanes(
    connection: &mut PgConnection,
    pool: &str,
    lanes: &[Lane],
    gone: &BTreeSet<JobId>,
    now: ServerTime,
) -> Result<(), StoreError> {
    let (mut tenants, mut ranks, mut images) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first_jobs, mut active) = (Vec::new(), Vec::new());
    for lane in lanes {
        let Some(rest) = rest(lane, gone) else { continue };
        tenants.push(lane.tenant.as_uuid());
        ranks.push(lane.rank);
        images.push(lane.image.clone());
        first_jobs.push(rest.first_job);
        active.push(rest.active);
    }
    if tenants.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "/* keep: lanes */
         UPDATE lanes l
            SET first_job = u.first_job, active = u.active, emptied_at = CASE WHEN u.active THEN NULL ELSE $7::timestamptz END
           FROM unnest($2::uuid[], $3::integer[], $4::text[], $5::uuid[], $6::boolean[])
                AS u (tenant_id, rank, image_digest, first_job, active)
          WHERE l.pool = $1 AND l.tenant_id = u.tenant_id AND l.rank = u.rank AND l.image_digest = u.image_digest
            AND (l.first_job <> u.first_job OR l.active <> u.active)",
        pool,
        &tenants,
        &ranks,
        &images,
        &first_jobs,
        &active,
        DateTime::<Utc>::from(now)
    )
    .execute(connection)
    .await
    .map_err(query("keep where jobs are ready"))?;
    Ok(())
}

pub(super) async fn pool(connection: &mut PgConnection, pool: &str, turn: &Turn) -> Result<(), StoreError> {
    sqlx::query!(
        "/* keep: pool */
         INSERT INTO pool_shares (pool, level, mean_run, read_to, look_from) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (pool) DO UPDATE
            SET level = excluded.level, mean_run = excluded.mean_run, read_to = excluded.read_to,
                look_from = excluded.look_from",
        pool,
        turn.accounts.pool.level,
        turn.accounts.pool.mean_run,
        turn.read_to,
        turn.look_from
    )
    .execute(connection)
    .await
    .map_err(query("keep the pool's shares"))?;
    Ok(())
}

/// Tenants whose accounts or counts have changed.
pub(super) async fn tenants(
    connection: &mut PgConnection,
    pool: &str,
    turn: &Turn,
) -> Result<(), StoreError> {
    let mut accounts = turn.were.clone();
    accounts.extend(turn.accounts.tenants.iter().copied());
    let changed = turn.accounts.tenants.iter().map(|(tenant, _)| *tenant);
    let counted = turn
        .counts
        .iter()
        .filter(|(_, counts)| **counts != Counts::default());
    let changed: BTreeSet<TenantId> = changed.chain(counted.map(|(tenant, _)| *tenant)).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let counts: Vec<_> = changed
        .iter()
        .map(|tenant| turn.counts.get(tenant).copied().unwrap_or_default())
        .collect();
    let each = |of: fn(&Counts) -> i64| counts.iter().map(of).collect::<Vec<_>>();
    let accounts: Vec<_> = changed
        .iter()
        .map(|tenant| accounts.get(tenant).copied().unwrap_or(0.0))
        .collect();
    let tenants: Vec<_> = changed.iter().map(TenantId::as_uuid).collect();
    sqlx::query!(
        "/* keep: tenants */
         INSERT INTO tenant_shares AS s (pool, tenant_id, account, queued, in_flight, started, started_ms, busy)
         SELECT $1, u.tenant_id, u.account, u.queued, u.in_flight, u.started, u.started_ms, u.in_flight > 0
           FROM unnest($2::uuid[], $3::double precision[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
                AS u (tenant_id, account, queued, in_flight, started, started_ms)
         ON CONFLICT (pool, tenant_id) DO UPDATE
            SET account = excluded.account, queued = s.queued + excluded.queued,
                in_flight = s.in_flight + excluded.in_flight, started = s.started + excluded.started,
                started_ms = s.started_ms + excluded.started_ms, busy = s.in_flight + excluded.in_flight > 0",
        pool,
        &tenants,
        &accounts,
        &each(|count| count.queued),
        &each(|count| count.in_flight),
        &each(|count| count.started),
        &each(|count| count.started_ms)
    )
    .execute(connection)
    .await
    .map_err(query("keep the tenants' shares"))?;
    Ok(())
}
