//! The side of scheduler, recorder and reconciler: load, let `mayfly-dispatch` decide, write, all in one transaction.

use std::time::Duration;

use chrono::{DateTime, Utc};
use mayfly_core::id::{AttemptId, JobId, TenantId};
use mayfly_dispatch::{
    ledger::{Context, Ledger},
    message::{DispatchMessage, EventBatch, Inbound, Reply, Tick, VERSION},
    reconciler,
    record::{AttemptRecord, AttemptState, Change},
    recorder,
    scheduler::{self, Cancel, LowSince},
    time::ServerTime,
};
use mayfly_store::{error::StoreError, records::CancelAnswer};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    changes::Writer,
    database::{Database, Write, query},
    jobs,
    ledger::Loader,
    shares,
};

/// Over which time the rate of ends is taken.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Most jobs that one transaction dispatches or expires, so that none holds the lock for long.
pub(crate) const MOST_AT_ONCE: i64 = 256;

/// A call makes no further message once its messages have this many bytes of content: each may have 16 MiB, and the
/// next call goes on.
const MOST_BYTES_AT_ONCE: usize = 64 * 1024 * 1024;

pub(crate) async fn process(
    database: &Database,
    queue: &str,
    inbound: &[Inbound],
    context: &Context,
) -> Result<Vec<Option<Reply>>, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, queue, context.now).await?;
    for message in inbound {
        let needs = recorder::needs(message);
        for session in needs.sessions {
            loader.session(session).await?;
        }
        for executor in needs.executors {
            loader.live_sessions_of(executor).await?;
        }
        for attempt in needs.attempts {
            loader.attempt(attempt).await?;
        }
        for attempt in needs.uploads {
            loader.upload(attempt).await?;
        }
        for attempt in needs.files {
            loader.files(attempt).await?;
        }
        if needs.all_live_sessions {
            loader.live_sessions_in(queue).await?;
        }
    }
    let mut ledger = loader.into_ledger();
    let mut replies = Vec::with_capacity(inbound.len());
    let mut changes = Vec::new();
    for message in inbound {
        match message {
            Inbound::Batch(batch) => {
                let processed = recorder::process(batch, &mut ledger, context);
                changes.extend(processed.changes);
                replies.push(Some(processed.reply));
            }
            Inbound::Tick(tick) => {
                changes.extend(reconciler::process_tick(tick, &mut ledger, context));
                replies.push(None);
            }
        }
    }
    save(write, queue, &changes, context).await?;
    Ok(replies)
}

pub(crate) async fn quarantine(
    database: &Database,
    queue: &str,
    batch: &EventBatch,
    context: &Context,
) -> Result<(), StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, queue, context.now).await?;
    loader.session(batch.session).await?;
    let changes = recorder::quarantine(batch, &mut loader.into_ledger());
    save(write, queue, &changes, context).await
}

pub(crate) async fn next_tick(
    database: &Database,
    queue: &str,
    context: &Context,
) -> Result<Tick, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, queue, context.now).await?;
    loader.live_sessions_in(queue).await?;
    let (tick, changes) = reconciler::tick(&mut loader.into_ledger(), context);
    save(write, queue, &changes, context).await?;
    Ok(tick)
}

pub(crate) async fn queue_is_gone(
    database: &Database,
    queue: &str,
    context: &Context,
) -> Result<u64, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, queue, context.now).await?;
    loader.live_sessions_in(queue).await?;
    let mut ledger = loader.into_ledger();
    let changes = reconciler::queue_is_gone(&mut ledger, context);
    save(write, queue, &changes, context).await?;
    Ok(ledger.queue().epoch)
}

pub(crate) async fn dispatch(
    database: &Database,
    pool: &str,
    context: &Context,
) -> Result<Vec<DispatchMessage>, StoreError> {
    // Every commit asks for this, and most make no job ready or no room: then nobody who writes is held up.
    let mut reader = database
        .read
        .acquire()
        .await
        .map_err(query("take a connection"))?;
    let now = context.now.as_micros();
    let any = sqlx::query_scalar!(
        r#"/* dispatch */
         SELECT EXISTS (SELECT 1 FROM jobs WHERE pool = ?1 AND state = 'queued' AND ready = 1)
             OR EXISTS (SELECT 1 FROM jobs WHERE pool = ?1 AND state = 'queued' AND ready = 0 AND ready_at <= ?2)
                AS "any!: bool""#,
        pool,
        now
    )
    .fetch_one(&mut *reader)
    .await
    .map_err(query("look for jobs that are ready"))?;
    if !any || room(&mut reader, pool, context.now).await? == 0 {
        return Ok(Vec::new());
    }
    drop(reader);
    let mut write = database.begin().await?;
    let most = room(&mut write.tx, pool, context.now).await?.min(MOST_AT_ONCE);
    shares::whose_time_has_come(&mut write.tx, pool, context.now).await?;
    let turn = shares::pick(&mut write.tx, pool, most, context.now).await?;
    let mut loader = Loader::new(&mut write.tx, pool, context.now).await?;
    for job in &turn.jobs {
        loader.job(*job).await?;
    }
    let mut ledger = loader.into_ledger();
    let (mut changes, mut messages) = (Vec::new(), Messages::default());
    for job in turn.jobs {
        if messages.are_enough() {
            break;
        }
        let attempt = AttemptId::new();
        if let Some(made) = scheduler::dispatch(job, attempt, &mut ledger, context) {
            changes.extend(made);
            messages.add(&mut write.tx, attempt, &ledger, context).await?;
        }
    }
    if !changes.is_empty() {
        shares::keep(&mut write.tx, pool, &turn.accounts, &turn.look_from).await?;
    }
    save(write, pool, &changes, context).await?;
    Ok(messages.made)
}

pub(crate) async fn publish_again(
    database: &Database,
    pool: &str,
    ready: u64,
    low: &mut LowSince,
    context: &Context,
) -> Result<Vec<DispatchMessage>, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, pool, context.now).await?;
    loader.unstarted_in(pool).await?;
    let mut ledger = loader.into_ledger();
    let mut unstarted: Vec<AttemptRecord> = ledger
        .attempts()
        .filter(|attempt| attempt.state == AttemptState::Dispatched)
        .cloned()
        .collect();
    unstarted.sort_by_key(|attempt| (attempt.published_at, attempt.attempt));
    let (mut changes, mut messages) = (Vec::new(), Messages::default());
    for attempt in scheduler::due_for_publication(&unstarted, ready, low, context) {
        if messages.are_enough() {
            break;
        }
        if let Some(taken) = scheduler::publish_again(attempt, &mut ledger, context) {
            changes.extend(taken);
            messages.add(&mut write.tx, attempt, &ledger, context).await?;
        }
    }
    save(write, pool, &changes, context).await?;
    Ok(messages.made)
}

pub(crate) async fn publications_confirmed(
    database: &Database,
    confirmed: &[(AttemptId, u32)],
    context: &Context,
) -> Result<(), StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, "", context.now).await?;
    for (attempt, _) in confirmed {
        loader.attempt(*attempt).await?;
    }
    let mut ledger = loader.into_ledger();
    let mut changes = Vec::new();
    for (attempt, publication) in confirmed {
        changes.extend(scheduler::confirmed(*attempt, *publication, &mut ledger));
    }
    save(write, "", &changes, context).await
}

pub(crate) async fn dead_lettered(
    database: &Database,
    (attempt, publication): (AttemptId, u32),
    context: &Context,
) -> Result<Option<DispatchMessage>, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, "", context.now).await?;
    loader.attempt(attempt).await?;
    let mut ledger = loader.into_ledger();
    let changes = scheduler::dead_lettered(attempt, publication, &mut ledger, context);
    let mut messages = Messages::default();
    if !changes.is_empty()
        && ledger
            .attempt(attempt)
            .is_some_and(|record| record.state == AttemptState::Dispatched)
    {
        messages.add(&mut write.tx, attempt, &ledger, context).await?;
    }
    save(write, "", &changes, context).await?;
    Ok(messages.made.pop())
}

pub(crate) async fn expire(database: &Database, pool: &str, context: &Context) -> Result<(), StoreError> {
    // Every commit asks for this, and hardly ever is there one: then nobody who writes is held up.
    let mut reader = database
        .read
        .acquire()
        .await
        .map_err(query("take a connection"))?;
    if waited_too_long(&mut reader, pool, context).await?.is_empty() {
        return Ok(());
    }
    drop(reader);
    let mut write = database.begin().await?;
    let due = waited_too_long(&mut write.tx, pool, context).await?;
    let mut loader = Loader::new(&mut write.tx, pool, context.now).await?;
    for job in &due {
        loader.job(JobId::from_uuid(*job)).await?;
    }
    let mut ledger = loader.into_ledger();
    let changes: Vec<Change> = due
        .into_iter()
        .flat_map(|job| scheduler::expire(JobId::from_uuid(job), &mut ledger, context))
        .collect();
    save(write, pool, &changes, context).await
}

/// Jobs that have waited too long for their start, some of them where they are many.
async fn waited_too_long(
    connection: &mut SqliteConnection,
    pool: &str,
    context: &Context,
) -> Result<Vec<Uuid>, StoreError> {
    let now = context.now.as_micros();
    sqlx::query_scalar!(
        r#"/* waited_too_long */
         SELECT job_id AS "job_id!: Uuid" FROM jobs
          WHERE pool = ?1 AND expires_at IS NOT NULL AND state IN ('queued', 'dispatched')
            -- Those that have started once would stand in the way of others for ever.
            AND attempts <= (state = 'dispatched') AND expires_at <= ?2
          ORDER BY expires_at, job_id
          LIMIT ?3"#,
        pool,
        now,
        MOST_AT_ONCE
    )
    .fetch_all(connection)
    .await
    .map_err(query("find jobs that have waited too long"))
}

pub(crate) async fn next_due(
    database: &Database,
    pool: &str,
    after: ServerTime,
) -> Result<Option<ServerTime>, StoreError> {
    let after = after.as_micros();
    let due = sqlx::query_scalar!(
        r#"/* next_due */
         SELECT min(at) AS "at: i64"
           FROM (SELECT min(ready_at) AS at FROM jobs
                  WHERE pool = ?1 AND state = 'queued' AND ready = 0 AND ready_at > ?2
                 UNION ALL
                 SELECT min(expires_at) FROM jobs
                  WHERE pool = ?1 AND expires_at IS NOT NULL AND state IN ('queued', 'dispatched')
                    AND attempts <= (state = 'dispatched') AND expires_at > ?2)"#,
        pool,
        after
    )
    .fetch_one(&database.read)
    .await
    .map_err(query("find what is due next"))?;
    Ok(due.map(ServerTime::from_micros))
}

pub(crate) async fn cancel(
    database: &Database,
    tenant: TenantId,
    job: JobId,
    context: &Context,
) -> Result<CancelAnswer, StoreError> {
    let mut write = database.begin().await?;
    let mut loader = Loader::new(&mut write.tx, "", context.now).await?;
    loader.job(job).await?;
    let mut ledger = loader.into_ledger();
    // Another tenant's job is not there.
    if ledger.job(job).is_none_or(|record| record.tenant != tenant) {
        return Err(StoreError::NoSuchJob(job));
    }
    let (answer, changes) = match scheduler::cancel(job, &mut ledger, context) {
        Cancel::Ended(changes) => (CancelAnswer::Canceled, changes),
        Cancel::Requested(changes) => (CancelAnswer::Requested, changes),
        Cancel::AlreadyRequested => (CancelAnswer::Requested, Vec::new()),
        Cancel::AlreadyOver(_) => (CancelAnswer::Over, Vec::new()),
        Cancel::Unknown => return Err(StoreError::NoSuchJob(job)),
    };
    save(write, "", &changes, context).await?;
    Ok(answer)
}

pub(crate) async fn save(
    mut write: Write<'_>,
    queue: &str,
    changes: &[Change],
    context: &Context,
) -> Result<(), StoreError> {
    if changes.is_empty() {
        // Nothing to wake anybody for.
        return Ok(());
    }
    write_changes(&mut write, queue, changes, context).await?;
    write.commit().await
}

/// Writes what was decided, as part of a transaction.
pub(crate) async fn write_changes(
    write: &mut Write<'_>,
    queue: &str,
    changes: &[Change],
    context: &Context,
) -> Result<(), StoreError> {
    let now: DateTime<Utc> = context.now.into();
    Writer {
        connection: &mut write.tx,
        queue,
        now,
    }
    .write(changes)
    .await
}

/// How many more attempts a pool has room for.
async fn room(connection: &mut SqliteConnection, pool: &str, now: ServerTime) -> Result<i64, StoreError> {
    let since = now
        .as_micros()
        .saturating_sub(i64::try_from(RATE_WINDOW.as_micros()).unwrap_or(i64::MAX));
    let load = sqlx::query!(
        r#"/* room */
         SELECT (SELECT coalesce(sum(slots), 0) FROM sessions s
                  WHERE pool = ?1 AND ended IS NULL AND fit = 1
                    AND NOT EXISTS (SELECT 1 FROM executors e
                                     WHERE e.executor_id = s.executor_id AND e.cordoned = 1)) AS "slots!: i64",
                -- What one that is cordoned or not fit runs takes no slot of the others.
                (SELECT count(*) FROM attempts a
                  WHERE pool = ?1 AND state = 'started'
                    AND NOT EXISTS (SELECT 1 FROM executors e
                                     WHERE e.executor_id = a.executor_id AND e.cordoned = 1)
                    AND NOT EXISTS (SELECT 1 FROM sessions f WHERE f.session_id = a.session_id AND f.fit = 0))
                    AS "started!: i64",
                (SELECT count(*) FROM attempts WHERE pool = ?1 AND state = 'dispatched') AS "unstarted!: i64",
                (SELECT count(*) FROM attempts WHERE pool = ?1 AND state = 'ended' AND ended_at > ?2)
                    AS "ended!: i64""#,
        pool,
        since
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the pool's slots"))?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let free = count(load.slots.saturating_sub(load.started));
    Ok(i64::try_from(scheduler::room(free, count(load.unstarted), count(load.ended))).unwrap_or(i64::MAX))
}

/// What goes out in one call.
#[derive(Default)]
pub(crate) struct Messages {
    pub(crate) made: Vec<DispatchMessage>,
    bytes: usize,
}

impl Messages {
    const fn are_enough(&self) -> bool {
        self.bytes >= MOST_BYTES_AT_ONCE
    }

    /// Adds the message of an attempt's newest publication.
    pub(crate) async fn add(
        &mut self,
        connection: &mut SqliteConnection,
        attempt: AttemptId,
        ledger: &Ledger,
        context: &Context,
    ) -> Result<(), StoreError> {
        let record = ledger
            .attempt(attempt)
            .expect("the attempt was decided on this ledger");
        let job = ledger.job(record.job).expect("an attempt is loaded with its job");
        let content = jobs::content(connection, record.job).await?;
        self.bytes += content.bytes;
        self.made.push(DispatchMessage {
            v: VERSION,
            tenant: job.tenant,
            job: record.job,
            attempt,
            number: record.number,
            publication: record.publication,
            token: context.key.token(attempt),
            resolved: content.resolved,
            input: None,
            output: None,
            artifacts: None,
            secrets: None,
            fetched: None,
        });
        Ok(())
    }
}
