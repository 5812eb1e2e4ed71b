//! Whose turn it is: attempts made for jobs that are ready, as many as there is room for, and published again where the
//! broker has lost them. One scheduler of a pool at a time; a second one waits for its turn and finds nothing left.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{AttemptId, JobId},
    job::ResolvedJob,
    state::JobState,
};
use mayfly_dispatch::{
    ledger::{Context, Ledger},
    message::{DispatchMessage, VERSION},
    record::{AttemptRecord, AttemptState, QueueRecord},
    scheduler::{self, LowSince},
    time::ServerTime,
};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, PgExecutor, types::Uuid};

use crate::{
    columns::Column,
    database::{Database, Turn, query},
    dispatch::{ids, load_jobs, save},
    ledger::{self, Wanted},
    news::News,
    shares,
};

/// Over which time the rate of ends is taken.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Most jobs that one transaction dispatches, expires or moves, so that none holds its locks for long.
pub(crate) const MOST_AT_ONCE: i64 = 256;

/// A call makes no further message once its messages have this many bytes of content: each may have 16 MiB, and the
/// next call goes on.
const MOST_BYTES_AT_ONCE: i64 = 64 * 1024 * 1024;

/// What a look at a pool shows.
struct Look {
    now: DateTime<Utc>,
    /// Whether a job is ready.
    ready: bool,
    /// Whether much has happened since the scheduler last looked.
    much: bool,
    /// When the first of those becomes ready that wait for their time.
    delayed: Option<DateTime<Utc>>,
    slots: i64,
    started: i64,
    unstarted: i64,
    ended: i64,
}

impl Look {
    /// How many more attempts there is room for.
    fn room(&self) -> i64 {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let free = count(self.slots.saturating_sub(self.started));
        let room = scheduler::room(free, count(self.unstarted), count(self.ended));
        i64::try_from(room).unwrap_or(i64::MAX)
    }
}

/// `caller`: the caller's time, for a store that goes by it.
async fn look<'c>(
    database: &Database,
    connection: impl PgExecutor<'c>,
    pool: &str,
    caller: ServerTime,
) -> Result<Look, StoreError> {
    let window = i64::try_from(RATE_WINDOW.as_micros()).unwrap_or(i64::MAX);
    let by_caller = database.goes_by_caller().then(|| DateTime::<Utc>::from(caller));
    sqlx::query_as!(
        Look,
        r#"/* look */
         WITH clock AS MATERIALIZED (SELECT coalesce($2, clock_timestamp()) AS now, mayfly_news_from($1) AS news)
         SELECT c.now AS "now!",
                EXISTS (SELECT 1 FROM lanes WHERE pool = $1 AND active)
                    OR EXISTS (SELECT 1 FROM pool_news WHERE pool = $1 AND made_by >= c.news AND rank IS NOT NULL)
                    AS "ready!",
                EXISTS (SELECT 1 FROM pool_news WHERE pool = $1 AND made_by >= c.news OFFSET $4) AS "much!",
                (SELECT min(ready_at) FROM delayed_jobs WHERE pool = $1) AS "delayed",
                coalesce(s.slots, 0) AS "slots!", coalesce(s.started, 0) AS "started!",
                coalesce((SELECT count FROM pool_dispatches WHERE pool = $1), 0)
                    - coalesce((SELECT count FROM pool_departures WHERE pool = $1), 0) AS "unstarted!",
                coalesce((SELECT sum(count)::bigint FROM pool_ends
                           WHERE pool = $1 AND second > c.now - $3::bigint * interval '1 microsecond'), 0) AS "ended!"
           FROM clock c,
                (SELECT sum(slots)::bigint AS slots, sum(cardinality(held))::bigint AS started
                   FROM sessions l
                  WHERE pool = $1 AND ended IS NULL
                    -- One that is cordoned or not fit has no room, and what it runs takes no slot of the others.
                    AND fit
                    AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = l.executor_id AND e.cordoned)) s"#,
        pool,
        by_caller,
        window,
        shares::MANY_NEWS
    )
    .fetch_one(connection)
    .await
    .map_err(query("look at the pool"))
}

pub(crate) async fn dispatch(
    database: &Database,
    pool: &str,
    context: &Context,
) -> Result<Vec<DispatchMessage>, StoreError> {
    // Every commit asks for this, and most make no job ready or no room: then nobody is held up.
    let seen = look(database, &database.engine, pool, context.now).await?;
    if seen.delayed.is_some_and(|first| first <= seen.now) {
        begin_to_be_ready(database, pool, context).await?;
    } else if !seen.ready && !seen.much {
        return Ok(Vec::new());
    }
    if seen.room() == 0 && !seen.much {
        return Ok(Vec::new());
    }
    let mut write = database.begin().await?;
    let context = write.turn(Turn::Scheduler(pool), context).await?;
    let most = look(database, &mut *write.tx, pool, context.now).await?.room();
    let turn = shares::pick(&mut write.tx, pool, most.min(MOST_AT_ONCE), context.now).await?;
    let (loaded, context) = load_jobs(&mut write, turn.jobs().iter().copied(), &context).await?;
    let mut ledger = loaded.ledger.clone();
    let waiting: Vec<_> = turn
        .jobs()
        .iter()
        .copied()
        .filter(|job| scheduler::dispatch(*job, AttemptId::new(), &mut ledger.clone(), &context).is_some())
        .collect();
    let fit = within_memory(&mut write.tx, &ledger, waiting).await?;
    let (mut changes, mut made, mut gone) = (Vec::new(), Vec::new(), BTreeSet::new());
    for job in fit {
        let attempt = AttemptId::new();
        if let Some(decided) = scheduler::dispatch(job, attempt, &mut ledger, &context) {
            changes.extend(decided);
            made.push(attempt);
            gone.insert(job);
        }
    }
    let messages = messages(&mut write.tx, &made, &ledger, &context).await?;
    let strays = turn.jobs().iter().filter(|job| !is_queued(&loaded.ledger, **job));
    let strays: Vec<_> = strays.copied().collect();
    shares::forget(&mut write.tx, pool, &turn, &strays).await?;
    gone.extend(strays);
    shares::keep(&mut write.tx, pool, &turn, &gone, context.now).await?;
    if changes.is_empty() {
        write.commit_quietly().await?;
    } else {
        save(write, pool, (&loaded, &ledger), &changes, &context).await?;
    }
    Ok(messages)
}

fn is_queued(ledger: &Ledger, job: JobId) -> bool {
    ledger
        .job(job)
        .is_some_and(|record| record.state == JobState::Queued)
}

/// Puts the jobs whose time has come among those that are ready. A transaction of its own: the next one locks other jobs.
async fn begin_to_be_ready(database: &Database, pool: &str, context: &Context) -> Result<(), StoreError> {
    loop {
        let mut write = database.begin().await?;
        let context = write.turn(Turn::Scheduler(pool), context).await?;
        let now = DateTime::<Utc>::from(context.now);
        let due = sqlx::query!(
            "/* begin_to_be_ready */
             SELECT job_id, ready_at FROM delayed_jobs WHERE pool = $1 AND ready_at <= $2 ORDER BY ready_at, job_id LIMIT $3",
            pool,
            now,
            MOST_AT_ONCE
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("find jobs whose time has come"))?;
        // Whoever ends one of them holds it, and then takes it from where it waits.
        let (due, ready_at): (Vec<_>, Vec<_>) = due.into_iter().map(|row| (row.job_id, row.ready_at)).unzip();
        load_jobs(&mut write, ids(&due), &context).await?;
        let ready = sqlx::query!(
            "/* begin_to_be_ready */
             WITH due AS (DELETE FROM delayed_jobs d USING unnest($2::timestamptz[], $3::uuid[]) AS u (ready_at, job_id)
                           WHERE d.pool = $1 AND d.ready_at = u.ready_at AND d.job_id = u.job_id
                           RETURNING d.pool, d.tenant_id, d.rank, d.image_digest, d.job_id)
             INSERT INTO ready_jobs (pool, tenant_id, rank, image_digest, job_id)
             SELECT pool, tenant_id, rank, image_digest, job_id FROM due
             RETURNING tenant_id, rank, image_digest, job_id",
            pool,
            &ready_at,
            &due
        )
        .fetch_all(&mut *write.tx)
        .await
        .map_err(query("make jobs ready whose time has come"))?;
        let mut news = News::default();
        for row in ready {
            news.ready((pool, row.tenant_id, row.rank, &row.image_digest), row.job_id);
        }
        news.write(&mut write.tx).await?;
        write.commit_quietly().await?;
        if i64::try_from(due.len()).is_ok_and(|count| count < MOST_AT_ONCE) {
            return Ok(());
        }
    }
}

/// As many of the first of them as may be in memory together.
async fn within_memory(
    connection: &mut PgConnection,
    ledger: &Ledger,
    jobs: Vec<JobId>,
) -> Result<Vec<JobId>, StoreError> {
    let (tenants, wanted) = keys(ledger, &jobs);
    let sizes = sqlx::query!(
        r#"/* within_memory */
         SELECT c.job_id, octet_length(c.resolved) AS "bytes!"
           FROM unnest($1::uuid[], $2::uuid[]) AS u (tenant_id, job_id)
                JOIN job_contents c ON c.tenant_id = u.tenant_id AND c.job_id = u.job_id"#,
        &tenants,
        &wanted
    )
    .fetch_all(connection)
    .await
    .map_err(query("measure the jobs' contents"))?;
    let sizes: BTreeMap<Uuid, i32> = sizes.into_iter().map(|row| (row.job_id, row.bytes)).collect();
    let mut before = 0_i64;
    let fits = |job: &JobId| {
        let fits = before < MOST_BYTES_AT_ONCE;
        before += sizes.get(&job.as_uuid()).copied().map_or(0, i64::from);
        fits
    };
    Ok(jobs.into_iter().take_while(fits).collect())
}

fn keys(ledger: &Ledger, jobs: &[JobId]) -> (Vec<Uuid>, Vec<Uuid>) {
    jobs.iter()
        .filter_map(|job| ledger.job(*job))
        .map(|record| (record.tenant.as_uuid(), record.job.as_uuid()))
        .unzip()
}

/// The messages of the newest publications of attempts.
pub(crate) async fn messages(
    connection: &mut PgConnection,
    attempts: &[AttemptId],
    ledger: &Ledger,
    context: &Context,
) -> Result<Vec<DispatchMessage>, StoreError> {
    let records: Vec<_> = attempts.iter().filter_map(|id| ledger.attempt(*id)).collect();
    let jobs: Vec<_> = records.iter().map(|record| record.job).collect();
    let mut contents = contents(connection, ledger, &jobs).await?;
    let column = Column("job_contents", "resolved");
    records
        .into_iter()
        .map(|record| {
            let job = ledger.job(record.job).expect("an attempt is loaded with its job");
            let resolved = contents
                .remove(&record.job)
                .ok_or_else(|| column.corrupt(format!("job {} has none", record.job)))?;
            Ok(DispatchMessage {
                v: VERSION,
                tenant: job.tenant,
                job: record.job,
                attempt: record.attempt,
                number: record.number,
                publication: record.publication,
                token: context.key.token(record.attempt),
                resolved,
                input: None,
                output: None,
                artifacts: None,
                secrets: None,
                fetched: None,
            })
        })
        .collect()
}

async fn contents(
    connection: &mut PgConnection,
    ledger: &Ledger,
    jobs: &[JobId],
) -> Result<BTreeMap<JobId, ResolvedJob>, StoreError> {
    let (tenants, wanted) = keys(ledger, jobs);
    let rows = sqlx::query!(
        "/* contents */
         SELECT c.job_id, c.resolved
           FROM unnest($1::uuid[], $2::uuid[]) AS u (tenant_id, job_id)
                JOIN job_contents c ON c.tenant_id = u.tenant_id AND c.job_id = u.job_id",
        &tenants,
        &wanted
    )
    .fetch_all(connection)
    .await
    .map_err(query("read the jobs' contents"))?;
    rows.into_iter()
        .map(|row| {
            let resolved = Column("job_contents", "resolved").json(&row.resolved)?;
            Ok((JobId::from_uuid(row.job_id), resolved))
        })
        .collect()
}

pub(crate) async fn publish_again(
    database: &Database,
    pool: &str,
    ready: u64,
    low: &mut LowSince,
    context: &Context,
) -> Result<Vec<DispatchMessage>, StoreError> {
    let (mut unstarted, now) = unstarted_in(database, pool).await?;
    let context = database.at(context, now);
    unstarted.sort_by_key(|attempt| (attempt.published_at, attempt.attempt));
    let due = scheduler::due_for_publication(&unstarted, ready, low, &context);
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let mut write = database.begin().await?;
    let context = write.turn(Turn::Scheduler(pool), &context).await?;
    let wanted = Wanted {
        attempts: due.iter().copied().collect(),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let mut ledger = loaded.ledger.clone();
    // What another scheduler has published meanwhile is due no more.
    let seen: BTreeMap<_, _> = unstarted.iter().map(|record| (record.attempt, record)).collect();
    let still = due
        .into_iter()
        .filter(|attempt| ledger.attempt(*attempt) == seen.get(attempt).copied());
    let still: Vec<_> = still.filter_map(|attempt| ledger.attempt(attempt)).collect();
    let jobs: Vec<_> = still.iter().map(|record| record.job).collect();
    let attempts: BTreeMap<_, _> = still.iter().map(|record| (record.job, record.attempt)).collect();
    let (mut changes, mut taken) = (Vec::new(), Vec::new());
    for job in within_memory(&mut write.tx, &ledger, jobs).await? {
        let attempt = attempts[&job];
        if let Some(decided) = scheduler::publish_again(attempt, &mut ledger, &context) {
            changes.extend(decided);
            taken.push(attempt);
        }
    }
    let messages = messages(&mut write.tx, &taken, &ledger, &context).await?;
    save(write, pool, (&loaded, &ledger), &changes, &context).await?;
    Ok(messages)
}

/// The attempts of a pool that no session has started, as they are without a lock; and what time it is.
async fn unstarted_in(
    database: &Database,
    pool: &str,
) -> Result<(Vec<AttemptRecord>, DateTime<Utc>), StoreError> {
    let rows = sqlx::query!(
        r#"/* unstarted_in */
         SELECT a.attempt_id, a.job_id, a.number, a.publication, a.published_at, a.confirmed, a.dead_letters
           FROM unstarted_attempts u JOIN attempts a ON a.attempt_id = u.attempt_id AND a.tenant_id = u.tenant_id
          WHERE u.pool = $1 AND a.state = 'dispatched'"#,
        pool
    )
    .fetch_all(&database.engine)
    .await
    .map_err(query("find the attempts that wait"))?;
    let now = sqlx::query_scalar!(r#"/* unstarted_in */ SELECT clock_timestamp() AS "now!""#)
        .fetch_one(&database.engine)
        .await
        .map_err(query("ask for the time"))?;
    let column = |name| Column("attempts", name);
    let records = rows.into_iter().map(|row| {
        Ok(AttemptRecord {
            attempt: AttemptId::from_uuid(row.attempt_id),
            job: JobId::from_uuid(row.job_id),
            number: column("number").count(row.number)?,
            state: AttemptState::Dispatched,
            publication: column("publication").count(row.publication)?,
            published_at: row.published_at.into(),
            confirmed: row.confirmed,
            dead_letters: column("dead_letters").count(row.dead_letters)?,
        })
    });
    Ok((records.collect::<Result<_, StoreError>>()?, now))
}

/// What is due next, by the caller's clock: the two may differ, and the wait until then is what matters.
pub(crate) async fn next_due(
    database: &Database,
    pool: &str,
    after: ServerTime,
) -> Result<Option<ServerTime>, StoreError> {
    let by_caller = database.goes_by_caller().then(|| DateTime::<Utc>::from(after));
    let row = sqlx::query!(
        r#"/* next_due */
         WITH clock AS MATERIALIZED (SELECT coalesce($2, clock_timestamp()) AS now)
         SELECT c.now AS "now!",
                least((SELECT min(ready_at) FROM delayed_jobs WHERE pool = $1 AND ready_at > c.now),
                      (SELECT min(expires_at) FROM expiring_jobs WHERE pool = $1 AND expires_at > c.now)) AS "due"
           FROM clock c"#,
        pool,
        by_caller
    )
    .fetch_one(&database.engine)
    .await
    .map_err(query("find what is due next"))?;
    let now = ServerTime::from(row.now);
    Ok(row.due.map(|due| after.after(ServerTime::from(due).since(now))))
}
