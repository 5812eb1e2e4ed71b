//! Whose job is next in a pool: what its tenants have had and want, loaded for `mayfly-dispatch` to pick from.
//!
//! The scheduler has tables of its own, which nobody else writes (`lanes`, `pool_shares`, `tenant_shares`), and brings them
//! up to date from the news that others write ([`news`](crate::news)): so a look costs what has happened since the last
//! one, and neither the number of jobs that wait nor the number of rows that are gone and not swept yet.
//!
//! ```text
//! News (others' transactions)  ->  fold  ->  pick  ->  jobs are dispatched  ->  keep, in the same transaction
//! ```

use std::collections::{BTreeMap, BTreeSet};

use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::{
    fairness::{Accounts, Picker, PoolShares, TenantLoad, USUAL_WEIGHT},
    time::ServerTime,
    waiting::{PoolSession, PoolSessions},
};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{columns::Column, database::query, news::Counts};

mod fold;
mod keep;
mod lanes;

use lanes::Lane;

/// Most news that one transaction reads, so that none holds its locks for long.
pub(crate) const MOST_NEWS: i64 = 5000;
/// So many are read also where there is no room for a job.
pub(crate) const MANY_NEWS: i64 = 256;
/// Most tenants that want slots that are looked at in one transaction; the next one goes on with the others.
const MOST_TENANTS: i64 = 1000;
/// Most lanes of each of them, those of the highest priorities.
const MOST_LANES: i64 = 64;

/// Jobs whose turn it is, and what is to be kept of the look at them.
pub(crate) struct Turn {
    jobs: Vec<JobId>,
    lanes: Vec<Lane>,
    accounts: Accounts,
    /// By how much the counts of tenants have changed, and what their accounts were.
    counts: BTreeMap<TenantId, Counts>,
    were: BTreeMap<TenantId, f64>,
    read_to: i64,
    look_from: Uuid,
}

impl Turn {
    /// In their order.
    pub(crate) fn jobs(&self) -> &[JobId] {
        &self.jobs
    }
}

/// Picks at most so many jobs.
pub(crate) async fn pick(
    connection: &mut PgConnection,
    pool: &str,
    most: i64,
    now: ServerTime,
) -> Result<Turn, StoreError> {
    let folded = fold::fold(connection, pool, now).await?;
    let images = sessions(connection, pool).await?.everywhere();
    let images = images.map(|images| images.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (lanes, look_from) = lanes::wanted(connection, pool, folded.look_from, images.as_deref()).await?;
    let wanting: BTreeSet<TenantId> = lanes.iter().map(|lane| lane.tenant).collect();
    let loads = loads(connection, pool, &wanting, &folded.counts, now).await?;
    let were = loads.iter().map(|load| (load.tenant, load.account)).collect();
    let pool_shares = PoolShares {
        level: folded.level,
        mean_run: folded.mean_run,
        counted_to: now,
    };
    let mut picker = Picker::new(pool_shares, now, loads);
    let most = usize::try_from(most).unwrap_or(0);
    let mut waiting = lanes::Waiting::new(lanes);
    waiting
        .read_ahead(connection, pool, &planned(picker.clone(), most))
        .await?;
    let mut jobs = Vec::new();
    while jobs.len() < most {
        let Some(tenant) = picker.pick() else { break };
        match waiting.next(connection, pool, tenant, most - jobs.len()).await? {
            Some(job) => jobs.push(job),
            None => picker.has_none(tenant),
        }
        if waiting.has_no_more(tenant) {
            picker.has_no_more(tenant);
        }
    }
    Ok(Turn {
        jobs,
        lanes: waiting.into_lanes(),
        accounts: picker.finish(),
        counts: folded.counts,
        were,
        read_to: folded.read_to,
        look_from,
    })
}

/// Keeps what has become of the accounts and lanes. `gone`: what stands among the jobs that are ready no longer.
pub(crate) async fn keep(
    connection: &mut PgConnection,
    pool: &str,
    turn: &Turn,
    gone: &BTreeSet<JobId>,
    now: ServerTime,
) -> Result<(), StoreError> {
    keep::lanes(connection, pool, &turn.lanes, gone, now).await?;
    keep::pool(connection, pool, turn).await?;
    keep::tenants(connection, pool, turn).await
}

/// Takes from those that are ready what is of no queued job, so that it does not stand before others for ever.
pub(crate) async fn forget(
    connection: &mut PgConnection,
    pool: &str,
    turn: &Turn,
    jobs: &[JobId],
) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ranks, mut images, mut ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for lane in &turn.lanes {
        for job in lane.taken.iter().filter(|job| jobs.contains(job)) {
            tenants.push(lane.tenant.as_uuid());
            ranks.push(lane.rank);
            images.push(lane.image.clone());
            ids.push(job.as_uuid());
        }
    }
    sqlx::query!(
        "/* forget */
         DELETE FROM ready_jobs r
          USING unnest($2::uuid[], $3::integer[], $4::text[], $5::uuid[]) AS u (tenant_id, rank, image_digest, job_id)
          WHERE r.pool = $1 AND r.tenant_id = u.tenant_id AND r.rank = u.rank AND r.image_digest = u.image_digest
            AND r.job_id = u.job_id",
        pool,
        &tenants,
        &ranks,
        &images,
        &ids
    )
    .execute(connection)
    .await
    .map_err(query("forget what is ready and of no job"))?;
    Ok(())
}

/// How many jobs of which tenants would be picked, if all of them had enough.
fn planned(mut picker: Picker, most: usize) -> BTreeMap<TenantId, usize> {
    let mut planned = BTreeMap::new();
    for _ in 0..most {
        let Some(tenant) = picker.pick() else { break };
        *planned.entry(tenant).or_default() += 1;
    }
    planned
}

/// The live sessions of a pool, with the images of their hosts.
pub(crate) async fn sessions(connection: &mut PgConnection, pool: &str) -> Result<PoolSessions, StoreError> {
    let rows = sqlx::query!(
        r#"/* sessions */
         SELECT images, fit, EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = s.executor_id AND e.cordoned)
                    AS "cordoned!"
           FROM sessions s WHERE pool = $1 AND ended IS NULL"#,
        pool
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the pool's sessions"))?;
    rows.into_iter()
        .map(|row| {
            let images = row.images.map(|text| Column("sessions", "images").json(&text));
            Ok(PoolSession {
                cordoned: row.cordoned,
                fit: row.fit,
                images: images.transpose()?,
            })
        })
        .collect()
}

/// What tenants have of the pool that want slots of it, have something in flight in it, or of which there are news.
async fn loads(
    connection: &mut PgConnection,
    pool: &str,
    wanting: &BTreeSet<TenantId>,
    counts: &BTreeMap<TenantId, Counts>,
    now: ServerTime,
) -> Result<Vec<TenantLoad>, StoreError> {
    let asked: BTreeSet<_> = wanting.iter().chain(counts.keys()).collect();
    let asked: Vec<_> = asked.into_iter().map(|tenant| tenant.as_uuid()).collect();
    let rows = sqlx::query!(
        r#"/* loads */
         SELECT w.tenant_id AS "tenant_id!", s.account AS "account?", s.in_flight AS "in_flight?", s.started AS "started?",
                s.started_ms AS "started_ms?", t.weight AS "weight?", t.most_in_flight
           FROM (SELECT tenant_id FROM tenant_shares WHERE pool = $1 AND busy
                 UNION SELECT u.tenant_id FROM unnest($2::uuid[]) AS u (tenant_id)) w
                LEFT JOIN tenant_shares s ON s.pool = $1 AND s.tenant_id = w.tenant_id
                LEFT JOIN tenants t ON t.tenant_id = w.tenant_id"#,
        pool,
        &asked
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the tenants' shares"))?;
    let now_ms = now.as_micros() / 1000;
    rows.into_iter()
        .map(|row| {
            let tenant = TenantId::from_uuid(row.tenant_id);
            let mut sums = counts.get(&tenant).copied().unwrap_or_default();
            sums.in_flight += row.in_flight.unwrap_or(0);
            sums.started += row.started.unwrap_or(0);
            sums.started_ms += row.started_ms.unwrap_or(0);
            let weight = row.weight.map(|weight| Column("tenants", "weight").count(weight));
            let running_ms = now_ms
                .saturating_mul(sums.started)
                .saturating_sub(sums.started_ms);
            Ok(TenantLoad {
                tenant,
                weight: weight.transpose()?.unwrap_or(USUAL_WEIGHT),
                account: row.account.unwrap_or(0.0),
                ended: u64::try_from(sums.ended).unwrap_or(0),
                ended_seconds: seconds(sums.ended_us),
                // An end may be read a look before its beginning, where there were too many news for one.
                in_flight: u64::try_from(sums.in_flight).unwrap_or(0),
                running_seconds: seconds(running_ms.saturating_mul(1000)),
                wants: wanting.contains(&tenant),
                most_in_flight: row.most_in_flight.map(|most| u64::try_from(most).unwrap_or(0)),
            })
        })
        .collect()
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn seconds(micros: i64) -> f64 {
    micros.max(0) as f64 / 1e6
}
