//! The statements that move rows: one for each table, each with what has to be true of its rows before, counted.

use chrono::{DateTime, Utc};
use mayfly_core::{id::JobId, state::JobState};
use mayfly_dispatch::{
    message::ExecutorFacts,
    record::{AttemptState, QueueRecord, SessionState},
};
use mayfly_store::error::StoreError;
use sqlx::{PgConnection, types::Uuid};

use crate::{
    changes::{Decided, Moves, at, has_never_started, missing, waits},
    columns::{bigint, json, word},
    counts,
    database::expect_rows,
    ledger::session_end_word,
    results, waiting,
};

pub(crate) async fn write(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    if let Some(record) = &moves.queue {
        queue(connection, decided.queue, record).await?;
    }
    // First of all each session's number, so that a batch that was processed before changes nothing.
    sessions(connection, decided, moves).await?;
    sessions_opened(connection, decided, moves).await?;
    images(connection, moves).await?;
    self_tests(connection, moves).await?;
    jobs(connection, decided, moves).await?;
    attempts_made(connection, decided, moves).await?;
    attempts(connection, decided, moves).await?;
    ended_jobs(connection, decided, moves).await?;
    results::results(connection, moves).await?;
    // What no report has named goes too: nobody can name it any more.
    results::outputs_gone(connection, decided, moves).await?;
    moves.events.write(connection).await?;
    let counted = waiting::write(connection, decided, moves).await?;
    counts::batch_ends(connection, &moves.batch_ends).await?;
    // Last, since their rows are everybody's.
    counts::of_pools(connection, decided.now, &counted, &moves.ends).await
}

async fn queue(connection: &mut PgConnection, queue: &str, record: &QueueRecord) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "/* queue */
         INSERT INTO queues (queue, epoch, ticks_sent, last_tick_at, ticks_processed)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (queue) DO UPDATE
            SET epoch = excluded.epoch, ticks_sent = excluded.ticks_sent, last_tick_at = excluded.last_tick_at,
                ticks_processed = excluded.ticks_processed",
        queue,
        bigint(record.epoch),
        bigint(record.ticks_sent),
        at(record.last_tick_at),
        bigint(record.ticks_processed)
    );
    expect_rows(done.execute(connection).await, 1, "note the queue's ticks")
}

/// How what sessions hold changes: pairs of a session and an attempt that it holds now, and of those that it holds no more.
/// What else they hold stays, read or not.
#[derive(Debug, Default)]
struct Held {
    takers: Vec<Uuid>,
    taken: Vec<Uuid>,
    givers: Vec<Uuid>,
    given_up: Vec<Uuid>,
}

impl Held {
    fn of(decided: &Decided<'_>) -> Self {
        let mut held = Self::default();
        for record in decided.after.attempts() {
            let before = decided.before.ledger.attempt(record.attempt);
            let before = before.and_then(|before| before.state.holder());
            let after = record.state.holder();
            if before == after {
                continue;
            }
            if let Some(session) = before {
                held.givers.push(session.as_uuid());
                held.given_up.push(record.attempt.as_uuid());
            }
            if let Some(session) = after {
                held.takers.push(session.as_uuid());
                held.taken.push(record.attempt.as_uuid());
            }
        }
        held
    }
}

async fn sessions(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    if moves.sessions.is_empty() {
        return Ok(());
    }
    let count = moves.sessions.len();
    let (mut ids, mut processed, mut were_processed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lease_ends, mut were_lease_ends) = (Vec::new(), Vec::new());
    let (mut free_slots, mut ended, mut ended_at, mut were_live) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for session in &moves.sessions {
        let record = decided.after.session(*session);
        let before = decided.before.ledger.session(*session);
        let (Some(record), Some(before)) = (record, before) else {
            return Err(missing(format!("session {session}")));
        };
        ids.push(session.as_uuid());
        processed.push(bigint(record.processed));
        were_processed.push(bigint(before.processed));
        lease_ends.push(at(record.lease_end));
        were_lease_ends.push(at(before.lease_end));
        free_slots.push(i64::from(record.free_slots));
        were_live.push(before.is_live());
        let ends = match (before.state, record.state) {
            (SessionState::Live, SessionState::Ended(end)) => Some(session_end_word(end).to_owned()),
            _ => None,
        };
        ended_at.push(ends.is_some().then_some(decided.now));
        ended.push(ends);
    }
    let held = Held::of(decided);
    let done = sqlx::query!(
        "/* sessions */
         UPDATE sessions s
            SET processed = u.processed, lease_end = u.lease_end, free_slots = u.free_slots,
                ended = coalesce(s.ended, u.ended), ended_at = coalesce(s.ended_at, u.ended_at),
                held = array(SELECT a FROM unnest(s.held) AS a WHERE a <> ALL (coalesce(g.given_up, '{}')))
                       || coalesce(t.taken, '{}')
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::bigint[],
                       $7::text[], $8::timestamptz[], $9::boolean[])
                AS u (session_id, processed, was_processed, lease_end, was_lease_end, free_slots, ended, ended_at, was_live)
                LEFT JOIN (SELECT p.session_id, array_agg(p.attempt_id) AS taken
                             FROM unnest($10::uuid[], $11::uuid[]) AS p (session_id, attempt_id)
                            GROUP BY p.session_id) t ON t.session_id = u.session_id
                LEFT JOIN (SELECT p.session_id, array_agg(p.attempt_id) AS given_up
                             FROM unnest($12::uuid[], $13::uuid[]) AS p (session_id, attempt_id)
                            GROUP BY p.session_id) g ON g.session_id = u.session_id
          WHERE s.session_id = u.session_id AND s.processed = u.was_processed AND s.lease_end = u.was_lease_end
            AND (s.ended IS NULL) = u.was_live",
        &ids,
        &processed,
        &were_processed,
        &lease_ends,
        &were_lease_ends,
        &free_slots,
        &ended as &[Option<String>],
        &ended_at as &[Option<DateTime<Utc>>],
        &were_live,
        &held.takers,
        &held.taken,
        &held.givers,
        &held.given_up
    );
    expect_rows(done.execute(connection).await, count, "move the sessions")
}

async fn sessions_opened(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    for (session, opened) in &moves.opened {
        let record = decided
            .after
            .session(*session)
            .ok_or_else(|| missing(format!("session {session}")))?;
        let ended = match record.state {
            SessionState::Live => None,
            SessionState::Ended(end) => Some(session_end_word(end)),
        };
        let held = decided.after.held_by(*session);
        let held: Vec<_> = held.map(|attempt| attempt.attempt.as_uuid()).collect();
        let facts = ExecutorFacts {
            images: None,
            ..opened.facts.clone()
        };
        let done = sqlx::query!(
            "/* sessions_opened */
             INSERT INTO sessions (session_id, executor_id, pool, ended, processed, lease_end, slots, free_slots, held, facts,
                                   opened_at, ended_at, reads, images)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
            session.as_uuid(),
            record.executor.as_uuid(),
            record.pool,
            ended,
            bigint(record.processed),
            at(record.lease_end),
            i64::from(record.slots),
            i64::from(record.free_slots),
            &held,
            json(&facts),
            decided.now,
            ended.map(|_| decided.now),
            i64::from(record.reads),
            opened.facts.images.as_ref().map(json)
        );
        expect_rows(done.execute(&mut *connection).await, 1, "open the session")?;
    }
    Ok(())
}

async fn images(connection: &mut PgConnection, moves: &Moves<'_>) -> Result<(), StoreError> {
    for (session, images) in &moves.images {
        let done = sqlx::query!(
            "/* images */ UPDATE sessions SET images = $2 WHERE session_id = $1",
            session.as_uuid(),
            json(images)
        );
        let done = done.execute(&mut *connection).await;
        expect_rows(done, 1, "note the session's images")?;
    }
    Ok(())
}

async fn self_tests(connection: &mut PgConnection, moves: &Moves<'_>) -> Result<(), StoreError> {
    for (session, test) in &moves.self_tests {
        let done = sqlx::query!(
            "/* self_tests */ UPDATE sessions SET self_test = $2, fit = $3 WHERE session_id = $1",
            session.as_uuid(),
            json(test),
            test.is_fit()
        );
        let done = done.execute(&mut *connection).await;
        expect_rows(done, 1, "note the session's self-test")?;
    }
    Ok(())
}

const fn job_word(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Dispatched => "dispatched",
        JobState::Started => "started",
        JobState::CancelRequested => "cancel_requested",
        JobState::Ended(_) => "ended",
    }
}

async fn jobs(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    if moves.jobs.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ids, mut were_states, mut were_attempts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut states, mut attempts, mut current, mut ready_at, mut pools) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut end_states, mut outcomes, mut ended_at) = (Vec::new(), Vec::new(), Vec::new());
    for (job, step) in &moves.jobs {
        let record = decided.job(*job)?;
        let before = decided
            .before
            .ledger
            .job(*job)
            .ok_or_else(|| missing(format!("job {job}")))?;
        tenants.push(record.tenant.as_uuid());
        ids.push(job.as_uuid());
        were_states.push(job_word(before.state).to_owned());
        were_attempts.push(i64::from(before.attempts));
        states.push(job_word(record.state).to_owned());
        attempts.push(i64::from(record.attempts));
        current.push(record.current.map(|attempt| attempt.as_uuid()));
        ready_at.push(at(record.ready_at));
        pools.push(step.pool.map(str::to_owned));
        end_states.push(step.outcome.map(|outcome| word(outcome.state)));
        outcomes.push(step.outcome.map(json));
        ended_at.push(step.outcome.map(|_| decided.now));
    }
    let done = sqlx::query!(
        "/* jobs */
         UPDATE jobs j
            SET state = u.state, attempts = u.attempts, current_attempt = u.current_attempt, ready_at = u.ready_at,
                pool = coalesce(u.pool, j.pool), end_state = u.end_state, outcome = u.outcome, ended_at = u.ended_at
           FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::uuid[],
                       $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::timestamptz[])
                AS u (tenant_id, job_id, was_state, was_attempts, state, attempts, current_attempt, ready_at, pool,
                      end_state, outcome, ended_at)
          WHERE j.tenant_id = u.tenant_id AND j.job_id = u.job_id AND j.state = u.was_state
            AND j.attempts = u.was_attempts",
        &tenants,
        &ids,
        &were_states,
        &were_attempts,
        &states,
        &attempts,
        &current as &[Option<Uuid>],
        &ready_at,
        &pools as &[Option<String>],
        &end_states as &[Option<String>],
        &outcomes as &[Option<String>],
        &ended_at as &[Option<DateTime<Utc>>]
    );
    expect_rows(done.execute(connection).await, ids.len(), "move the jobs")
}

/// What ended jobs are found by.
async fn ended_jobs(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    let (mut tenants, mut ids, mut ends, mut submitted_at) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (job, step) in &moves.jobs {
        let (Some(outcome), Some(row)) = (step.outcome, decided.before.jobs.get(job)) else {
            continue;
        };
        tenants.push(decided.job(*job)?.tenant.as_uuid());
        ids.push(job.as_uuid());
        ends.push(word(outcome.state));
        submitted_at.push(row.submitted_at);
    }
    if ids.is_empty() {
        return Ok(());
    }
    let done = sqlx::query!(
        "/* ended_jobs */
         INSERT INTO ended_jobs (tenant_id, end_state, submitted_at, job_id)
         SELECT u.tenant_id, u.end_state, u.submitted_at, u.job_id
           FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::uuid[])
                AS u (tenant_id, end_state, submitted_at, job_id)",
        &tenants,
        &ends,
        &submitted_at,
        &ids
    );
    expect_rows(
        done.execute(connection).await,
        ids.len(),
        "note how the jobs ended",
    )
}

async fn attempts_made(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    if moves.made.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ids, mut jobs, mut numbers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut pools, mut publications, mut published_at) = (Vec::new(), Vec::new(), Vec::new());
    for attempt in &moves.made {
        let record = decided
            .after
            .attempt(*attempt)
            .ok_or_else(|| missing(format!("attempt {attempt}")))?;
        tenants.push(decided.job(record.job)?.tenant.as_uuid());
        ids.push(attempt.as_uuid());
        jobs.push(record.job.as_uuid());
        numbers.push(i64::from(record.number));
        pools.push(decided.pool_of(*attempt, record.job)?.to_owned());
        publications.push(i64::from(record.publication));
        published_at.push(at(record.published_at));
    }
    let done = sqlx::query!(
        "/* attempts_made */
         INSERT INTO attempts (tenant_id, attempt_id, job_id, number, pool, state, publication, published_at)
         SELECT u.tenant_id, u.attempt_id, u.job_id, u.number, u.pool, 'dispatched', u.publication, u.published_at
           FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::bigint[], $7::timestamptz[])
                AS u (tenant_id, attempt_id, job_id, number, pool, publication, published_at)",
        &tenants,
        &ids,
        &jobs,
        &numbers,
        &pools,
        &publications,
        &published_at
    );
    expect_rows(done.execute(connection).await, ids.len(), "make the attempts")
}

const fn attempt_word(state: AttemptState) -> &'static str {
    match state {
        AttemptState::Dispatched => "dispatched",
        AttemptState::Started { .. } => "started",
        AttemptState::Over { .. } => "ended",
    }
}

async fn attempts(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    if moves.attempts.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ids, mut were_states, mut were_publications, mut were_sessions) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut states, mut publications, mut published_at, mut confirmed, mut dead_letters) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut pools, mut sessions, mut executors, mut started_at) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut ended_at, mut causes) = (Vec::new(), Vec::new());
    for (attempt, step) in &moves.attempts {
        let (record, before) = (
            decided.after.attempt(*attempt),
            decided.before.ledger.attempt(*attempt),
        );
        let (Some(record), Some(before)) = (record, before) else {
            return Err(missing(format!("attempt {attempt}")));
        };
        tenants.push(decided.job(record.job)?.tenant.as_uuid());
        ids.push(attempt.as_uuid());
        were_states.push(attempt_word(before.state).to_owned());
        were_publications.push(i64::from(before.publication));
        were_sessions.push(before.state.holder().map(|session| session.as_uuid()));
        states.push(attempt_word(record.state).to_owned());
        publications.push(i64::from(record.publication));
        published_at.push(at(record.published_at));
        confirmed.push(record.confirmed);
        dead_letters.push(i64::from(record.dead_letters));
        pools.push(step.pool.map(str::to_owned));
        sessions.push(step.starter.map(|(session, _)| session.as_uuid()));
        executors.push(step.starter.map(|(_, executor)| executor.as_uuid()));
        started_at.push(step.starter.map(|_| decided.now));
        let cause = match record.state {
            AttemptState::Over { cause } => Some(word(cause)),
            AttemptState::Dispatched | AttemptState::Started { .. } => None,
        };
        ended_at.push(cause.is_some().then_some(decided.now));
        causes.push(cause);
    }
    let done = sqlx::query!(
        "/* attempts */
         UPDATE attempts a
            SET state = u.state, publication = u.publication, published_at = u.published_at, confirmed = u.confirmed,
                dead_letters = u.dead_letters, pool = coalesce(u.pool, a.pool),
                session_id = coalesce(a.session_id, u.session_id), executor_id = coalesce(a.executor_id, u.executor_id),
                started_at = coalesce(a.started_at, u.started_at), ended_at = u.ended_at, cause = u.cause
           FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::uuid[], $6::text[], $7::bigint[],
                       $8::timestamptz[], $9::boolean[], $10::bigint[], $11::text[], $12::uuid[], $13::uuid[],
                       $14::timestamptz[], $15::timestamptz[], $16::text[])
                AS u (tenant_id, attempt_id, was_state, was_publication, was_session_id, state, publication, published_at,
                      confirmed, dead_letters, pool, session_id, executor_id, started_at, ended_at, cause)
          WHERE a.attempt_id = u.attempt_id AND a.tenant_id = u.tenant_id AND a.state = u.was_state
            AND a.publication = u.was_publication AND a.session_id IS NOT DISTINCT FROM u.was_session_id",
        &tenants,
        &ids,
        &were_states,
        &were_publications,
        &were_sessions as &[Option<Uuid>],
        &states,
        &publications,
        &published_at,
        &confirmed,
        &dead_letters,
        &pools as &[Option<String>],
        &sessions as &[Option<Uuid>],
        &executors as &[Option<Uuid>],
        &started_at as &[Option<DateTime<Utc>>],
        &ended_at as &[Option<DateTime<Utc>>],
        &causes as &[Option<String>]
    );
    expect_rows(done.execute(connection).await, ids.len(), "move the attempts")
}

/// Whether a job may expire before and not after.
pub(crate) fn expires_no_more(decided: &Decided<'_>, job: JobId) -> bool {
    let before = decided.before.ledger.job(job).is_some_and(has_never_started);
    let after = decided.after.job(job).is_some_and(has_never_started);
    before && !after
}

/// Whether an attempt waited for its start before.
pub(crate) fn waited(decided: &Decided<'_>, attempt: mayfly_core::id::AttemptId) -> bool {
    decided
        .before
        .ledger
        .attempt(attempt)
        .is_some_and(|record| waits(record.state))
}
