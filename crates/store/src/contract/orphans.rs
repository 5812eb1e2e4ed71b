//! What a process leaves behind that dies.

use std::sync::Arc;

use mayfly_core::{
    id::{BatchId, ExecutorId, JobId, TenantId},
    outcome::{Cause, EndState},
    state::JobState,
};
use mayfly_dispatch::message::{DispatchMessage, EventBatch, Inbound, SessionEvent, Verdict};

use super::{
    Place,
    bench::{Bench, Client, POOL, Plan, dropped_after, success, verdict},
    jobs::tenant,
};
use crate::{
    error::StoreError,
    records::{BatchPlace, NewJob, OpenPool, OpenSession},
    seam::MAX_PAGE,
};

const DEAD: &str = "local-dead";
const OTHER: &str = "local-other";

async fn process(bench: &Bench, pool: &str, batch: &EventBatch) -> Vec<Verdict> {
    let inbound = [Inbound::Batch(Box::new(batch.clone()))];
    let replies = bench.store.process(pool, &inbound, &bench.context()).await;
    let reply = replies.expect("processing works").remove(0);
    let answers = reply.expect("a batch has a reply").answers;
    answers.into_iter().map(|answer| answer.verdict).collect()
}

async fn session(bench: &Bench, pool: &str) -> Client {
    let mut client = Client::new();
    let opened = client.opened_in(pool, 100);
    process(bench, pool, &opened).await;
    client
}

/// Ends the session of a process that is dead, as whoever has proven that does.
async fn succeed(bench: &Bench, pool: &str, executor: ExecutorId) {
    let mut successor = Client::of(executor);
    let opened = successor.opened_in(pool, 1);
    let closed = successor.batch(vec![SessionEvent::Closed]);
    for batch in [opened, closed] {
        process(bench, pool, &batch).await;
    }
}

fn plan(pool: &str, max_attempts: u32) -> Plan {
    let mut plan = Plan {
        pool: pool.to_owned(),
        ..Plan::once()
    };
    plan.retry.max_attempts = max_attempts;
    plan
}

async fn dispatch(bench: &Bench, pool: &str) -> Vec<DispatchMessage> {
    let messages = bench.store.dispatch(pool, &bench.context()).await;
    messages.expect("dispatching works")
}

/// Submits jobs of a batch to a pool.
async fn items(bench: &Bench, batch: BatchId, pool: &str, names: &[&str]) -> Vec<JobId> {
    let job = |name: &&str| NewJob {
        batch: Some(BatchPlace {
            batch,
            item: (*name).to_owned(),
        }),
        ..plan(pool, 3).job(bench.date())
    };
    let jobs: Vec<_> = names.iter().map(job).collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    bench.submit_many(jobs).await;
    ids
}

async fn orphans(bench: &Bench, pool: &str) -> Result<u64, StoreError> {
    bench.store.end_orphans(pool, &bench.context()).await
}

async fn adopt(bench: &Bench, batch: BatchId, from: &str, to: &str) -> Result<u64, StoreError> {
    let context = bench.context();
    bench
        .store
        .adopt(TenantId::LOCAL, batch, from, to, &context)
        .await
}

async fn open_pools(bench: &Bench) -> Vec<OpenPool> {
    bench.store.open_pools().await.expect("looking works")
}

/// Sessions and jobs that nobody else will end; jobs of a batch wait for whoever resumes it.
pub async fn what_is_left_in_a_pool_is_found(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    assert_eq!(open_pools(&bench).await, []);
    let batch = bench.batch().await;
    items(&bench, batch, DEAD, &["a"]).await;
    assert_eq!(open_pools(&bench).await, []);
    let job = bench.submit(&plan(OTHER, 1)).await;
    let client = session(&bench, DEAD).await;
    let dead = OpenPool {
        pool: DEAD.to_owned(),
        sessions: vec![OpenSession {
            session: client.session,
            executor: client.executor,
            lease_end: bench.now.after(bench.timing.lease).into(),
        }],
        has_jobs: false,
    };
    let other = OpenPool {
        pool: OTHER.to_owned(),
        sessions: Vec::new(),
        has_jobs: true,
    };
    assert_eq!(open_pools(&bench).await, [dead, other]);
    succeed(&bench, DEAD, client.executor).await;
    bench
        .store
        .cancel(TenantId::LOCAL, job, &bench.context())
        .await
        .expect("cancelling works");
    assert_eq!(open_pools(&bench).await, []);
}

/// Wherever it stood, each job has one outcome and one event that says so, however often this is repeated.
pub async fn jobs_of_a_dead_process_end_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = session(&bench, DEAD).await;
    let started = [
        bench.submit(&plan(DEAD, 1)).await,
        bench.submit(&plan(DEAD, 3)).await,
    ];
    let messages = dispatch(&bench, DEAD).await;
    for message in &messages {
        let ask = client.ask(message);
        assert_eq!(process(&bench, DEAD, &ask).await, [Verdict::Grant]);
    }
    let dispatched = bench.submit(&plan(DEAD, 3)).await;
    dispatch(&bench, DEAD).await;
    let queued = bench.submit(&plan(DEAD, 3)).await;
    let batch = bench.batch().await;
    let kept = items(&bench, batch, DEAD, &["a", "b"]).await;
    let mut neighbour = session(&bench, OTHER).await;
    let others = [
        bench.submit(&plan(OTHER, 1)).await,
        bench.submit(&plan(OTHER, 1)).await,
    ];
    let running = dispatch(&bench, OTHER).await.remove(0);
    let ask = neighbour.ask(&running);
    process(&bench, OTHER, &ask).await;

    // As long as its session is live nothing ends: what it has started is not known to be over.
    let before = bench.everything().await;
    let refused = orphans(&bench, DEAD).await;
    assert!(
        matches!(&refused, Err(StoreError::PoolIsLive(pool)) if pool == DEAD),
        "{refused:?}"
    );
    assert_eq!(bench.everything().await, before);

    succeed(&bench, DEAD, client.executor).await;
    assert_eq!(orphans(&bench, DEAD).await.expect("ending works"), 3);
    let after = bench.everything().await;
    assert_eq!(orphans(&bench, DEAD).await.expect("ending works"), 0);
    assert_eq!(bench.everything().await, after, "once is enough");

    let gone = (EndState::Canceled, Cause::SubmitterGone);
    let expected = [
        (started[0], (EndState::Lost, Cause::ExecutorLost)),
        (started[1], gone),
        (dispatched, gone),
        (queued, gone),
    ];
    for (job, end) in expected {
        let outcome = bench.job(job).await.job.outcome.expect("it is over");
        assert_eq!((outcome.state, outcome.cause), end);
        let kinds = bench.kinds(job).await;
        assert_eq!(
            kinds.iter().filter(|kind| *kind == "job_ended").count(),
            1,
            "{kinds:?}"
        );
        assert_eq!(kinds.last().map(String::as_str), Some("job_ended"));
    }
    let trail = [
        "job_submitted",
        "attempt_dispatched",
        "run_started",
        "attempt_lost",
    ];
    assert_eq!(bench.kinds(started[0]).await[..4], trail);
    assert_eq!(bench.kinds(started[1]).await[..4], trail);
    assert_eq!(bench.kinds(queued).await, ["job_submitted", "job_ended"]);
    // A late word of the dead process counts for nothing, and nothing of it is dispatched any more.
    let late = client.finish(messages[0].attempt, success());
    process(&bench, DEAD, &late).await;
    assert_eq!(bench.state(started[0]).await, JobState::Ended(EndState::Lost));
    for job in kept {
        assert_eq!(bench.state(job).await, JobState::Queued);
    }
    // The neighbour's are as they were.
    assert_eq!(bench.state(others[0]).await, JobState::Started);
    let finish = neighbour.finish(running.attempt, success());
    process(&bench, OTHER, &finish).await;
    assert_eq!(bench.state(others[0]).await, JobState::Ended(EndState::Succeeded));
    assert_eq!(bench.state(others[1]).await, JobState::Dispatched);
}

/// The next one goes on.
pub async fn whoever_ends_them_may_die_halfway(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (mut finished, mut dropped) = (0, 0);
    for polls in 0..60 {
        let jobs = [
            bench.submit(&plan(DEAD, 3)).await,
            bench.submit(&plan(DEAD, 3)).await,
        ];
        let context = bench.context();
        let call = bench.store.end_orphans(DEAD, &context);
        match dropped_after(polls, call).await {
            Some(ended) => {
                finished += 1;
                assert_eq!(ended.expect("ending works"), 2);
            }
            None => dropped += 1,
        }
        orphans(&bench, DEAD).await.expect("ending works");
        for job in jobs {
            assert_eq!(bench.state(job).await, JobState::Ended(EndState::Canceled));
            assert_eq!(bench.kinds(job).await, ["job_submitted", "job_ended"]);
        }
    }
    assert!(
        finished > 0 && dropped > 0,
        "{finished} finished, {dropped} dropped"
    );
}

/// More than one transaction is made for.
pub async fn however_many_are_left_all_of_them_end(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let most = usize::try_from(MAX_PAGE).expect("a page fits into memory");
    let jobs = (0..most).map(|_| plan(DEAD, 3).job(bench.date())).collect();
    bench.submit_many(jobs).await;
    assert_eq!(
        orphans(&bench, DEAD).await.expect("ending works"),
        u64::from(MAX_PAGE)
    );
    assert_eq!(open_pools(&bench).await, []);
    let batch = bench.batch().await;
    let names: Vec<_> = (0..most).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    items(&bench, batch, DEAD, &names).await;
    let moved = adopt(&bench, batch, DEAD, OTHER).await.expect("moving works");
    assert_eq!(moved, u64::from(MAX_PAGE));
    let pools = bench.store.batch_pools(TenantId::LOCAL, batch).await;
    assert_eq!(pools.expect("looking works"), [OTHER]);
}

/// What waited goes on there, as what it was; what is over stays.
pub async fn a_batch_that_is_taken_over_goes_on_in_the_new_pool(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = session(&bench, DEAD).await;
    let batch = bench.batch().await;
    let jobs = items(&bench, batch, DEAD, &["done", "ran", "sent", "sent too"]).await;
    let messages = dispatch(&bench, DEAD).await;
    for message in &messages[..2] {
        let ask = client.ask(message);
        process(&bench, DEAD, &ask).await;
    }
    let finish = client.finish(messages[0].attempt, success());
    process(&bench, DEAD, &finish).await;
    for message in &messages {
        let confirmed = bench
            .store
            .publications_confirmed(&[(message.attempt, 1)], &bench.context())
            .await;
        confirmed.expect("noting works");
    }
    let waits = items(&bench, batch, DEAD, &["waits"]).await[0];
    let another = bench.batch().await;
    let stays = items(&bench, another, DEAD, &["waits"]).await[0];
    let pools = bench.store.batch_pools(TenantId::LOCAL, batch).await;
    assert_eq!(pools.expect("looking works"), [DEAD]);
    let refused = adopt(&bench, batch, DEAD, OTHER).await;
    assert!(
        matches!(&refused, Err(StoreError::PoolIsLive(pool)) if pool == DEAD),
        "{refused:?}"
    );

    succeed(&bench, DEAD, client.executor).await;
    let stranger = bench
        .store
        .adopt(tenant(2), batch, DEAD, OTHER, &bench.context())
        .await;
    assert_eq!(stranger.expect("there is nothing to move"), 0);
    let strange = bench.store.batch_pools(tenant(2), batch).await;
    assert_eq!(strange.expect("looking works"), [""; 0]);
    assert_eq!(adopt(&bench, batch, DEAD, OTHER).await.expect("moving works"), 4);
    let after = bench.everything().await;
    assert_eq!(adopt(&bench, batch, DEAD, OTHER).await.expect("moving works"), 0);
    assert_eq!(bench.everything().await, after, "once is enough");

    // The old pool has the other batch alone.
    let left: Vec<_> = dispatch(&bench, DEAD)
        .await
        .iter()
        .map(|message| message.job)
        .collect();
    assert_eq!(left, [stays]);
    // What had been sent is sent again as the same attempt, at once: the old pool's queue is gone.
    let mut heir = session(&bench, OTHER).await;
    let again = bench
        .store
        .publish_again(OTHER, 0, &mut Default::default(), &bench.context())
        .await
        .expect("publishing works");
    let found: Vec<_> = again
        .iter()
        .map(|message| (message.job, message.attempt, message.number, message.publication))
        .collect();
    let expected: Vec<_> = messages[2..]
        .iter()
        .map(|message| (message.job, message.attempt, 1, 2))
        .collect();
    assert_eq!(found, expected);
    let mut bench = bench;
    bench.pass(bench.timing.retry_most);
    let fresh = dispatch(&bench, OTHER).await;
    let numbers: Vec<_> = fresh
        .iter()
        .map(|message| (message.job, message.number))
        .collect();
    assert_eq!(numbers, [(jobs[1], 2), (waits, 1)]);
    for message in again.iter().chain(&fresh) {
        let ask = heir.ask(message);
        assert_eq!(process(&bench, OTHER, &ask).await, [Verdict::Grant]);
        let finish = heir.finish(message.attempt, success());
        process(&bench, OTHER, &finish).await;
    }
    let found = bench.find_batch(batch).await;
    assert_eq!(
        (found.waiting, found.running, found.ended[&EndState::Succeeded]),
        (0, 0, 5)
    );
    let pools = bench.store.batch_pools(TenantId::LOCAL, batch).await;
    assert_eq!(pools.expect("looking works"), [""; 0]);
    assert_eq!(bench.job(jobs[0]).await.attempts.len(), 1);
}

/// An ask with the message of the old pool comes too late where the same attempt was started in the new one.
pub async fn an_attempt_that_was_taken_over_starts_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let batch = bench.batch().await;
    items(&bench, batch, DEAD, &["a"]).await;
    let old = dispatch(&bench, DEAD).await.remove(0);
    assert_eq!(adopt(&bench, batch, DEAD, OTHER).await.expect("moving works"), 1);
    let again = bench
        .store
        .publish_again(OTHER, 0, &mut Default::default(), &bench.context())
        .await
        .expect("publishing works")
        .remove(0);
    let (mut heir, mut late) = (session(&bench, OTHER).await, session(&bench, DEAD).await);
    assert_eq!(verdict(&bench.send(&heir.ask(&again)).await), Verdict::Grant);
    let denied = verdict(&bench.send(&late.ask(&old)).await);
    assert!(matches!(denied, Verdict::Deny(_)), "{denied:?}");
    let kinds = bench.kinds(old.job).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "run_started").count(), 1);
    assert_eq!(
        bench
            .store
            .end_orphans(POOL, &bench.context())
            .await
            .expect("ending works"),
        0
    );
}
