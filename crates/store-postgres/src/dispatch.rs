//! The side of scheduler, recorder and reconciler: load under locks, let `mayfly-dispatch` decide, write, all in one
//! transaction.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use mayfly_core::id::{AttemptId, JobId, TenantId};
use mayfly_dispatch::{
    ledger::{Context, Ledger},
    message::{DispatchMessage, EventBatch, Inbound, Reply, Tick},
    reconciler,
    record::{AttemptState, Change, QueueRecord},
    recorder,
    scheduler::{self, Cancel},
    time::ServerTime,
};
use mayfly_store::{error::StoreError, records::CancelAnswer};
use sqlx::types::Uuid;

use crate::{
    changes::Decided,
    database::{Database, Turn, Write, query},
    ledger::{self, Loaded, Wanted},
    schedule::{MOST_AT_ONCE, messages},
};

pub(crate) async fn process(
    database: &Database,
    queue: &str,
    inbound: &[Inbound],
    context: &Context,
) -> Result<Vec<Option<Reply>>, StoreError> {
    let mut wanted = Wanted::default();
    for message in inbound {
        let needs = recorder::needs(message);
        wanted.sessions.extend(needs.sessions);
        wanted.holders.extend(needs.holders);
        wanted.executors.extend(needs.executors);
        wanted.attempts.extend(needs.attempts);
        wanted.uploads.extend(needs.uploads);
        wanted.files.extend(needs.files);
        if needs.all_live_sessions {
            wanted.pool = Some(queue.to_owned());
        }
    }
    let mut write = database.begin().await?;
    let context = write.turn(Turn::Recorder(queue), context).await?;
    let record = ledger::queue(&mut write.tx, queue, context.now).await?;
    let loaded = ledger::load(&mut write.tx, record, wanted).await?;
    let mut ledger = loaded.ledger.clone();
    let mut replies = Vec::with_capacity(inbound.len());
    let mut changes = Vec::new();
    for message in inbound {
        match message {
            Inbound::Batch(batch) => {
                let processed = recorder::process(batch, &mut ledger, &context);
                changes.extend(processed.changes);
                replies.push(Some(processed.reply));
            }
            Inbound::Tick(tick) => {
                changes.extend(reconciler::process_tick(tick, &mut ledger, &context));
                replies.push(None);
            }
        }
    }
    save(write, queue, (&loaded, &ledger), &changes, &context).await?;
    Ok(replies)
}

pub(crate) async fn quarantine(
    database: &Database,
    queue: &str,
    batch: &EventBatch,
    context: &Context,
) -> Result<(), StoreError> {
    let mut write = database.begin().await?;
    let context = write.turn(Turn::Recorder(queue), context).await?;
    let wanted = Wanted {
        sessions: [batch.session].into(),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let mut ledger = loaded.ledger.clone();
    let changes = recorder::quarantine(batch, &mut ledger);
    save(write, queue, (&loaded, &ledger), &changes, &context).await
}

pub(crate) async fn next_tick(
    database: &Database,
    queue: &str,
    context: &Context,
) -> Result<Tick, StoreError> {
    let (write, loaded, context) = reconcile(database, queue, context).await?;
    let mut ledger = loaded.ledger.clone();
    let (tick, changes) = reconciler::tick(&mut ledger, &context);
    save(write, queue, (&loaded, &ledger), &changes, &context).await?;
    Ok(tick)
}

pub(crate) async fn queue_is_gone(
    database: &Database,
    queue: &str,
    context: &Context,
) -> Result<u64, StoreError> {
    let (write, loaded, context) = reconcile(database, queue, context).await?;
    let mut ledger = loaded.ledger.clone();
    let changes = reconciler::queue_is_gone(&mut ledger, &context);
    save(write, queue, (&loaded, &ledger), &changes, &context).await?;
    Ok(ledger.queue().epoch)
}

/// What the reconciler looks at: the queue and every live session, but not what they hold.
async fn reconcile<'a>(
    database: &'a Database,
    queue: &str,
    context: &Context,
) -> Result<(Write<'a>, Loaded, Context), StoreError> {
    let mut write = database.begin().await?;
    let context = write.turn(Turn::Recorder(queue), context).await?;
    let record = ledger::queue(&mut write.tx, queue, context.now).await?;
    let wanted = Wanted {
        pool: Some(queue.to_owned()),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, record, wanted).await?;
    Ok((write, loaded, context))
}

pub(crate) async fn publications_confirmed(
    database: &Database,
    confirmed: &[(AttemptId, u32)],
    context: &Context,
) -> Result<(), StoreError> {
    let unstarted = still_unstarted(database, confirmed).await?;
    if unstarted.is_empty() {
        return Ok(());
    }
    let mut write = database.begin().await?;
    let wanted = Wanted {
        attempts: unstarted,
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let context = write.context(context).await?;
    let mut ledger = loaded.ledger.clone();
    let mut changes = Vec::new();
    for (attempt, publication) in confirmed {
        changes.extend(scheduler::confirmed(*attempt, *publication, &mut ledger));
    }
    save(write, "", (&loaded, &ledger), &changes, &context).await
}

/// Those of the attempts that wait for their start, as they are without a lock. Most have begun by the time their confirms
/// are noted, and their jobs are locked for nothing then.
async fn still_unstarted(
    database: &Database,
    attempts: &[(AttemptId, u32)],
) -> Result<BTreeSet<AttemptId>, StoreError> {
    let ids: Vec<_> = attempts.iter().map(|(attempt, _)| attempt.as_uuid()).collect();
    let found = sqlx::query_scalar!(
        "/* still_unstarted */
         SELECT attempt_id FROM attempts WHERE attempt_id = ANY ($1) AND state = 'dispatched'",
        &ids
    )
    .fetch_all(&database.engine)
    .await
    .map_err(query("find the attempts that wait"))?;
    Ok(found.into_iter().map(AttemptId::from_uuid).collect())
}

pub(crate) async fn dead_lettered(
    database: &Database,
    (attempt, publication): (AttemptId, u32),
    context: &Context,
) -> Result<Option<DispatchMessage>, StoreError> {
    let mut write = database.begin().await?;
    let wanted = Wanted {
        attempts: [attempt].into(),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let context = write.context(context).await?;
    let mut ledger = loaded.ledger.clone();
    let changes = scheduler::dead_lettered(attempt, publication, &mut ledger, &context);
    let waits = ledger
        .attempt(attempt)
        .is_some_and(|record| record.state == AttemptState::Dispatched);
    let mut next = None;
    if waits && !changes.is_empty() {
        next = messages(&mut write.tx, &[attempt], &ledger, &context)
            .await?
            .pop();
    }
    save(write, "", (&loaded, &ledger), &changes, &context).await?;
    Ok(next)
}

pub(crate) async fn cancel(
    database: &Database,
    tenant: TenantId,
    job: JobId,
    context: &Context,
) -> Result<CancelAnswer, StoreError> {
    let mut write = database.begin().await?;
    let (loaded, context) = load_jobs(&mut write, [job], context).await?;
    let mut ledger = loaded.ledger.clone();
    // Another tenant's job is not there.
    if ledger.job(job).is_none_or(|record| record.tenant != tenant) {
        return Err(StoreError::NoSuchJob(job));
    }
    let (answer, changes) = match scheduler::cancel(job, &mut ledger, &context) {
        Cancel::Ended(changes) => (CancelAnswer::Canceled, changes),
        Cancel::Requested(changes) => (CancelAnswer::Requested, changes),
        Cancel::AlreadyRequested => (CancelAnswer::Requested, Vec::new()),
        Cancel::AlreadyOver(_) => (CancelAnswer::Over, Vec::new()),
        Cancel::Unknown => return Err(StoreError::NoSuchJob(job)),
    };
    save(write, "", (&loaded, &ledger), &changes, &context).await?;
    Ok(answer)
}

pub(crate) async fn expire(database: &Database, pool: &str, context: &Context) -> Result<(), StoreError> {
    let late = sqlx::query!(
        r#"/* expire */
         SELECT clock_timestamp() AS "now!", (SELECT min(expires_at) FROM expiring_jobs WHERE pool = $1) AS "first""#,
        pool
    )
    .fetch_one(&database.engine)
    .await
    .map_err(query("look for jobs that have waited too long"))?;
    // Every commit asks for this, and hardly ever is there one.
    let now = database.at(context, late.now).now;
    if late.first.is_none_or(|first| ServerTime::from(first) > now) {
        return Ok(());
    }
    let mut write = database.begin().await?;
    let due = waited_too_long(&mut write, pool, now.into()).await?;
    let (loaded, context) = load_jobs(&mut write, due.iter().copied(), context).await?;
    let mut ledger = loaded.ledger.clone();
    let changes: Vec<Change> = due
        .into_iter()
        .flat_map(|job| scheduler::expire(job, &mut ledger, &context))
        .collect();
    save(write, "", (&loaded, &ledger), &changes, &context).await
}

/// Jobs that have waited too long for their start, some of them where they are many.
async fn waited_too_long(
    write: &mut Write<'_>,
    pool: &str,
    now: DateTime<Utc>,
) -> Result<Vec<JobId>, StoreError> {
    let due = sqlx::query_scalar!(
        "/* waited_too_long */
         SELECT job_id FROM expiring_jobs WHERE pool = $1 AND expires_at <= $2
          ORDER BY expires_at, job_id LIMIT $3",
        pool,
        now,
        MOST_AT_ONCE
    )
    .fetch_all(&mut *write.tx)
    .await
    .map_err(query("find jobs that have waited too long"))?;
    Ok(due.into_iter().map(JobId::from_uuid).collect())
}

/// Loads jobs and the attempts that stand, and says what time it is once they are locked.
pub(crate) async fn load_jobs(
    write: &mut Write<'_>,
    jobs: impl IntoIterator<Item = JobId>,
    context: &Context,
) -> Result<(Loaded, Context), StoreError> {
    let wanted = Wanted {
        jobs: jobs.into_iter().collect(),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let context = write.context(context).await?;
    Ok((loaded, context))
}

pub(crate) async fn save(
    mut write: Write<'_>,
    queue: &str,
    (before, after): (&Loaded, &Ledger),
    changes: &[Change],
    context: &Context,
) -> Result<(), StoreError> {
    if changes.is_empty() {
        // Nothing to wake anybody for.
        return Ok(());
    }
    let decided = Decided {
        before,
        after,
        changes,
        queue,
        now: context.now.into(),
    };
    decided.write(&mut write.tx).await?;
    write.commit().await
}

pub(crate) fn ids(jobs: &[Uuid]) -> impl Iterator<Item = JobId> + '_ {
    jobs.iter().copied().map(JobId::from_uuid)
}
