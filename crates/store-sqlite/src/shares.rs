//! Whose job is next in a pool: what its tenants have had and want, loaded for `mayfly-dispatch` to pick from.

use std::collections::{BTreeMap, VecDeque};

use mayfly_core::id::{JobId, TenantId};
use mayfly_dispatch::{
    fairness::{Accounts, Picker, PoolShares, TenantLoad, USUAL_WEIGHT},
    time::ServerTime,
    waiting::{PoolSession, PoolSessions},
};
use mayfly_store::error::StoreError;
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    columns::{Column, json},
    database::query,
};

/// Most lanes (a tenant's jobs of one image) that are looked at in one transaction.
pub(crate) const MOST_LANES: i64 = 1000;
/// Jobs whose time has come that one transaction makes ready.
const MOST_READY: i64 = 1000;
/// Runs that one transaction brings to the accounts.
const MOST_ENDED: i64 = 10_000;
/// Jobs of a lane that are read at once.
const CHUNK: usize = 16;

/// Jobs whose turn it is, and what is to be kept when they are dispatched.
pub(crate) struct Turn {
    pub(crate) jobs: Vec<JobId>,
    pub(crate) accounts: Accounts,
    pub(crate) look_from: Vec<u8>,
}

/// Makes jobs ready whose time has come.
pub(crate) async fn whose_time_has_come(
    connection: &mut SqliteConnection,
    pool: &str,
    now: ServerTime,
) -> Result<(), StoreError> {
    let now = now.as_micros();
    sqlx::query!(
        "/* whose_time_has_come */
         UPDATE jobs SET ready = 1
          WHERE job_id IN (SELECT job_id FROM jobs
                            WHERE pool = ?1 AND state = 'queued' AND ready = 0 AND ready_at <= ?2
                            ORDER BY ready_at LIMIT ?3)",
        pool,
        now,
        MOST_READY
    )
    .execute(connection)
    .await
    .map_err(query("make jobs ready"))?;
    Ok(())
}

/// Picks at most so many jobs.
pub(crate) async fn pick(
    connection: &mut SqliteConnection,
    pool: &str,
    most: i64,
    now: ServerTime,
) -> Result<Turn, StoreError> {
    let (shares, look_from) = pool_shares(connection, pool, now).await?;
    let sessions = sessions(connection, pool).await?;
    let (lanes, look_from) = lanes_from(connection, pool, &look_from).await?;
    let mut waiting: BTreeMap<TenantId, Lanes> = BTreeMap::new();
    for lane in lanes {
        if sessions.have(&Column("jobs", "image_digest").parse(&lane.image)?) {
            waiting.entry(lane.tenant).or_default().0.push(lane);
        }
    }
    let mut loads: BTreeMap<TenantId, TenantLoad> = BTreeMap::new();
    for tenant in waiting.keys() {
        load(&mut loads, *tenant).wants = true;
    }
    let counted_to = add_ended(connection, pool, shares.counted_to, &mut loads).await?;
    add_in_flight(connection, pool, now, &mut loads).await?;
    add_accounts(connection, pool, &mut loads).await?;
    let mut picker = Picker::new(shares, counted_to, loads.into_values());
    let most = usize::try_from(most).unwrap_or(0);
    let mut jobs = Vec::new();
    while jobs.len() < most {
        let Some(tenant) = picker.pick() else { break };
        let lanes = waiting.entry(tenant).or_default();
        match lanes.next(connection, pool).await? {
            Some(job) => jobs.push(job),
            None => picker.has_none(tenant),
        }
        if lanes.are_over() {
            picker.has_no_more(tenant);
        }
    }
    Ok(Turn {
        jobs,
        accounts: picker.finish(),
        look_from,
    })
}

/// Keeps what has become of the accounts.
pub(crate) async fn keep(
    connection: &mut SqliteConnection,
    pool: &str,
    accounts: &Accounts,
    look_from: &[u8],
) -> Result<(), StoreError> {
    let PoolShares {
        level,
        mean_run,
        counted_to,
    } = accounts.pool;
    let counted_to = counted_to.as_micros();
    sqlx::query!(
        "/* keep */
         INSERT INTO pool_shares (pool, level, mean_run, counted_to, look_from) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (pool) DO UPDATE
            SET level = excluded.level, mean_run = excluded.mean_run, counted_to = excluded.counted_to,
                look_from = excluded.look_from",
        pool,
        level,
        mean_run,
        counted_to,
        look_from
    )
    .execute(&mut *connection)
    .await
    .map_err(query("keep the pool's shares"))?;
    for (tenant, account) in &accounts.tenants {
        let tenant = tenant.as_uuid();
        sqlx::query!(
            "/* keep */
             INSERT INTO tenant_shares (pool, tenant_id, account) VALUES (?1, ?2, ?3)
             ON CONFLICT (pool, tenant_id) DO UPDATE SET account = excluded.account",
            pool,
            tenant,
            account
        )
        .execute(&mut *connection)
        .await
        .map_err(query("keep the tenant's share"))?;
    }
    Ok(())
}

fn load(loads: &mut BTreeMap<TenantId, TenantLoad>, tenant: TenantId) -> &mut TenantLoad {
    loads.entry(tenant).or_insert_with(|| TenantLoad::new(tenant))
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn seconds(micros: i64) -> f64 {
    micros.max(0) as f64 / 1e6
}

async fn pool_shares(
    connection: &mut SqliteConnection,
    pool: &str,
    now: ServerTime,
) -> Result<(PoolShares, Vec<u8>), StoreError> {
    let row = sqlx::query!(
        "/* pool_shares */ SELECT level, mean_run, counted_to, look_from FROM pool_shares WHERE pool = ?",
        pool
    )
    .fetch_optional(connection)
    .await
    .map_err(query("find the pool's shares"))?;
    Ok(row.map_or_else(
        || (PoolShares::new(now), Vec::new()),
        |row| {
            let shares = PoolShares {
                level: row.level,
                mean_run: row.mean_run,
                counted_to: ServerTime::from_micros(row.counted_to),
            };
            (shares, row.look_from)
        },
    ))
}

/// The live sessions of a pool, with the images of their hosts.
pub(crate) async fn sessions(
    connection: &mut SqliteConnection,
    pool: &str,
) -> Result<PoolSessions, StoreError> {
    let rows = sqlx::query!(
        r#"/* sessions */
         SELECT images, fit AS "fit!: bool", EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = s.executor_id AND e.cordoned = 1)
                    AS "cordoned!: bool"
           FROM sessions s WHERE pool = ? AND ended IS NULL"#,
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

/// A tenant's jobs of one image that are ready.
pub(crate) struct Lane {
    pub(crate) tenant: TenantId,
    pub(crate) image: String,
    read: usize,
    is_over: bool,
    front: VecDeque<(i64, Uuid)>,
}

/// Lanes of a pool from a tenant on, and where the next look begins where there are more than one transaction looks at.
async fn lanes_from(
    connection: &mut SqliteConnection,
    pool: &str,
    from: &[u8],
) -> Result<(Vec<Lane>, Vec<u8>), StoreError> {
    let most = usize::try_from(MOST_LANES).unwrap_or(usize::MAX);
    let mut found = lanes(connection, pool, from).await?;
    if found.len() < most && !from.is_empty() {
        let from = Uuid::from_slice(from).unwrap_or(Uuid::nil());
        let before = lanes(connection, pool, &[]).await?;
        found.extend(before.into_iter().filter(|lane| lane.tenant.as_uuid() < from));
        found.truncate(most);
    }
    let next = match found.last() {
        Some(last) if found.len() == most => last.tenant.as_uuid().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    Ok((found, next))
}

/// Lanes of a pool by tenant and image, from a tenant on: one step of an index each, however many jobs they have.
pub(crate) async fn lanes(
    connection: &mut SqliteConnection,
    pool: &str,
    from: &[u8],
) -> Result<Vec<Lane>, StoreError> {
    let rows = sqlx::query!(
        r#"/* lanes */
         WITH RECURSIVE lanes (tenant_id, image_digest) AS (
             SELECT * FROM (SELECT tenant_id, image_digest FROM jobs
                             WHERE pool = ?1 AND state = 'queued' AND ready = 1 AND tenant_id >= ?2
                             ORDER BY tenant_id, image_digest LIMIT 1)
             UNION ALL
             SELECT j.tenant_id, j.image_digest
               FROM lanes l CROSS JOIN jobs j
                 ON j.rowid = (SELECT n.rowid FROM jobs n
                                WHERE n.pool = ?1 AND n.state = 'queued' AND n.ready = 1
                                  AND (n.tenant_id, n.image_digest) > (l.tenant_id, l.image_digest)
                                ORDER BY n.tenant_id, n.image_digest LIMIT 1)
              LIMIT ?3)
         SELECT tenant_id AS "tenant_id!: Uuid", image_digest AS "image_digest!: String" FROM lanes"#,
        pool,
        from,
        MOST_LANES
    )
    .fetch_all(connection)
    .await
    .map_err(query("find whose jobs are ready"))?;
    let lane = |tenant, image| Lane {
        tenant: TenantId::from_uuid(tenant),
        image,
        read: 0,
        is_over: false,
        front: VecDeque::new(),
    };
    Ok(rows
        .into_iter()
        .map(|row| lane(row.tenant_id, row.image_digest))
        .collect())
}

/// The lanes of one tenant.
#[derive(Default)]
struct Lanes(Vec<Lane>);

impl Lanes {
    /// The tenant's next job: by priority, and then by age.
    async fn next(
        &mut self,
        connection: &mut SqliteConnection,
        pool: &str,
    ) -> Result<Option<JobId>, StoreError> {
        for lane in &mut self.0 {
            lane.refill(connection, pool).await?;
        }
        let first = self.0.iter_mut().filter(|lane| !lane.front.is_empty());
        let first = first.min_by_key(|lane| lane.front.front().map(|(priority, job)| (-priority, *job)));
        let Some(lane) = first else { return Ok(None) };
        let job = lane.front.pop_front();
        lane.refill(connection, pool).await?;
        Ok(job.map(|(_, job)| JobId::from_uuid(job)))
    }

    fn are_over(&self) -> bool {
        self.0.iter().all(|lane| lane.is_over && lane.front.is_empty())
    }
}

impl Lane {
    async fn refill(&mut self, connection: &mut SqliteConnection, pool: &str) -> Result<(), StoreError> {
        if self.is_over || !self.front.is_empty() {
            return Ok(());
        }
        let (tenant, image) = (self.tenant.as_uuid(), &self.image);
        let (limit, offset) = (
            i64::try_from(CHUNK).unwrap_or(i64::MAX),
            i64::try_from(self.read).unwrap_or(i64::MAX),
        );
        let rows = sqlx::query!(
            r#"/* refill */
             SELECT job_id AS "job_id!: Uuid", priority FROM jobs
              WHERE pool = ?1 AND tenant_id = ?2 AND image_digest = ?3 AND state = 'queued' AND ready = 1
              ORDER BY priority DESC, job_id LIMIT ?4 OFFSET ?5"#,
            pool,
            tenant,
            image,
            limit,
            offset
        )
        .fetch_all(connection)
        .await
        .map_err(query("find the tenant's next jobs"))?;
        self.read += rows.len();
        self.is_over = rows.len() < CHUNK;
        self.front
            .extend(rows.into_iter().map(|row| (row.priority, row.job_id)));
        Ok(())
    }
}

/// Adds the runs that have ended since, and says up to when.
async fn add_ended(
    connection: &mut SqliteConnection,
    pool: &str,
    since: ServerTime,
    loads: &mut BTreeMap<TenantId, TenantLoad>,
) -> Result<ServerTime, StoreError> {
    let after = since.as_micros();
    let rows = sqlx::query!(
        r#"/* add_ended */
         SELECT j.tenant_id AS "tenant_id!: Uuid", a.started_at, a.ended_at AS "ended_at!: i64"
           FROM attempts a CROSS JOIN jobs j ON j.job_id = a.job_id
          WHERE a.pool = ?1 AND a.state = 'ended' AND a.ended_at > ?2
          ORDER BY a.ended_at LIMIT ?3"#,
        pool,
        after,
        MOST_ENDED
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the runs that have ended"))?;
    let mut newest = after;
    for row in rows {
        newest = newest.max(row.ended_at);
        // One that never started took no slot.
        let Some(started_at) = row.started_at else {
            continue;
        };
        let load = load(loads, TenantId::from_uuid(row.tenant_id));
        load.ended += 1;
        load.ended_seconds += seconds(row.ended_at.saturating_sub(started_at));
    }
    Ok(ServerTime::from_micros(newest))
}

pub(crate) async fn add_in_flight(
    connection: &mut SqliteConnection,
    pool: &str,
    now: ServerTime,
    loads: &mut BTreeMap<TenantId, TenantLoad>,
) -> Result<(), StoreError> {
    let rows = sqlx::query!(
        r#"/* add_in_flight */
         SELECT j.tenant_id AS "tenant_id!: Uuid", a.started_at AS "started_at: i64"
           FROM attempts a CROSS JOIN jobs j ON j.job_id = a.job_id
          WHERE a.pool = ?1 AND a.state = 'started'
         UNION ALL
         SELECT j.tenant_id, NULL
           FROM attempts a CROSS JOIN jobs j ON j.job_id = a.job_id
          WHERE a.pool = ?1 AND a.state = 'dispatched'"#,
        pool
    )
    .fetch_all(connection)
    .await
    .map_err(query("find what is in flight"))?;
    for row in rows {
        let load = load(loads, TenantId::from_uuid(row.tenant_id));
        load.in_flight += 1;
        if let Some(started_at) = row.started_at {
            load.running_seconds += seconds(now.as_micros().saturating_sub(started_at));
        }
    }
    Ok(())
}

async fn add_accounts(
    connection: &mut SqliteConnection,
    pool: &str,
    loads: &mut BTreeMap<TenantId, TenantLoad>,
) -> Result<(), StoreError> {
    let tenants: Vec<_> = loads
        .keys()
        .map(|tenant| tenant.as_uuid().simple().to_string())
        .collect();
    let tenants = json(&tenants);
    let rows = sqlx::query!(
        r#"/* add_accounts */
         SELECT unhex(asked.value) AS "tenant_id!: Uuid", s.account AS "account?: f64", t.weight AS "weight?: i64",
                t.most_in_flight AS "most_in_flight?: i64"
           FROM json_each(?2) asked
                LEFT JOIN tenant_shares s ON s.pool = ?1 AND s.tenant_id = unhex(asked.value)
                LEFT JOIN tenants t ON t.tenant_id = unhex(asked.value)"#,
        pool,
        tenants
    )
    .fetch_all(connection)
    .await
    .map_err(query("find the tenants' shares"))?;
    for row in rows {
        let load = load(loads, TenantId::from_uuid(row.tenant_id));
        load.account = row.account.unwrap_or(0.0);
        let weight = row.weight.map(|weight| Column("tenants", "weight").count(weight));
        load.weight = weight.transpose()?.unwrap_or(USUAL_WEIGHT);
        load.most_in_flight = row.most_in_flight.map(|most| u64::try_from(most).unwrap_or(0));
    }
    Ok(())
}
