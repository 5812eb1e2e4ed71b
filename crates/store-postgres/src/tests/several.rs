//! One database, several processes: schedulers and recorders at once, one that is frozen, and commits that are heard of.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mayfly_core::{id::TenantId, state::JobState};
use mayfly_dispatch::message::{Inbound, Verdict};
use mayfly_store::{
    contract::bench::{Bench, POOL, Plan, success, verdict},
    error::StoreError,
    seam::{DispatchStore as _, JobStore as _},
};
use sqlx::Executor as _;
use tokio::task::JoinSet;

use super::{Server, texts};
use crate::{PostgresStore, database::Turn};

#[tokio::test]
async fn no_job_is_dispatched_twice_by_schedulers_at_once() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    bench.session().await;
    let jobs = (0..90).map(|_| Plan::once().job(bench.date())).collect();
    bench.submit_many(jobs).await;
    let mut schedulers = JoinSet::new();
    for _ in 0..4 {
        let (store, context) = (server.store().await, bench.context());
        schedulers.spawn(async move { store.dispatch(POOL, &context).await });
    }
    let messages = schedulers.join_all().await.into_iter().flat_map(Result::unwrap);
    let jobs: Vec<_> = messages.map(|message| message.job).collect();
    assert_eq!(jobs.len(), 90);
    assert_eq!(jobs.into_iter().collect::<BTreeSet<_>>().len(), 90);
    bench.everything().await;
}

/// Cancel, expire, start, finish and dispatch from several processes: whatever the order, nothing is lost and no lock is
/// waited for in a circle.
#[tokio::test]
async fn whatever_several_processes_do_at_once_each_job_has_one_end() {
    let Some(server) = Server::new().await else { return };
    let bench = Arc::new(Bench::new(Arc::new(server.clone())).await);
    let mut client = bench.session().await;
    let jobs: Vec<_> = (0..60).map(|_| Plan::once().job(bench.date())).collect();
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    bench.submit_many(jobs).await;
    let mut others = JoinSet::new();
    for part in 0..3 {
        let (store, context, ids) = (server.store().await, bench.context(), ids.clone());
        others.spawn(async move {
            for job in ids.into_iter().skip(part).step_by(3).rev() {
                store.cancel(TenantId::LOCAL, job, &context).await.unwrap();
                store.expire(POOL, &context).await.unwrap();
            }
        });
    }
    for _ in 0..20 {
        let messages = bench.dispatch().await;
        let asks: Vec<_> = messages
            .iter()
            .map(|message| Inbound::Batch(Box::new(client.ask(message))))
            .collect();
        bench.store.process(POOL, &asks, &bench.context()).await.unwrap();
        let ends: Vec<_> = messages
            .iter()
            .map(|message| Inbound::Batch(Box::new(client.finish(message.attempt, success()))))
            .collect();
        bench.store.process(POOL, &ends, &bench.context()).await.unwrap();
    }
    others.join_all().await;
    bench.everything().await;
    for job in ids {
        let kinds = bench.kinds(job).await;
        let ends = kinds.iter().filter(|kind| *kind == "job_ended").count();
        assert_eq!(ends, 1, "{kinds:?}");
        assert!(matches!(bench.state(job).await, JobState::Ended(_)));
    }
}

/// It froze inside its transaction, the server ended that, another went on; what it says when it is back changes nothing.
#[tokio::test]
async fn a_recorder_that_was_frozen_changes_nothing_when_it_goes_on() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    let (mut client, mut rival) = (bench.session().await, bench.session().await);
    let message = bench.dispatched(&Plan::once()).await;
    let frozen = server.store().await;
    let mut write = frozen.database.begin().await.unwrap();
    write.turn(Turn::Recorder(POOL), &bench.context()).await.unwrap();
    write
        .tx
        .execute("SET LOCAL idle_in_transaction_session_timeout = '200ms'")
        .await
        .unwrap();
    // The other one waits for its turn, and has it once the server has given up the frozen one.
    let ask = rival.ask(&message);
    assert_eq!(verdict(&bench.send(&ask).await), Verdict::Grant);
    let error = write.context(&bench.context()).await.unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    drop(write);
    let before = bench.everything().await;
    let inbound = [Inbound::Batch(Box::new(ask))];
    frozen.process(POOL, &inbound, &bench.context()).await.unwrap();
    assert_eq!(bench.everything().await, before, "it was processed before");
    let late = [Inbound::Batch(Box::new(client.ask(&message)))];
    let replies = frozen.process(POOL, &late, &bench.context()).await.unwrap();
    assert!(matches!(verdict(replies[0].as_ref().unwrap()), Verdict::Deny(_)));
}

/// What was decided on rows that have changed since is refused, whoever changed them.
#[tokio::test]
async fn a_decision_on_rows_that_are_others_by_now_is_not_written() {
    use crate::{changes::Decided, ledger};
    use mayfly_dispatch::{record::QueueRecord, scheduler};
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    let mut client = bench.session().await;
    let message = bench.dispatched(&Plan::once()).await;
    let store = server.store().await;
    let wanted = || ledger::Wanted {
        jobs: [message.job].into(),
        sessions: [client.session].into(),
        ..ledger::Wanted::default()
    };
    let mut write = store.database.begin().await.unwrap();
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(bench.now), wanted())
        .await
        .unwrap();
    drop(write);
    let mut after = loaded.ledger.clone();
    let scheduler::Cancel::Ended(changes) = scheduler::cancel(message.job, &mut after, &bench.context())
    else {
        panic!("it has not started")
    };
    let ask = client.ask(&message);
    assert_eq!(verdict(&bench.send(&ask).await), Verdict::Grant);
    let before = bench.everything().await;
    let mut write = store.database.begin().await.unwrap();
    let decided = Decided {
        before: &loaded,
        after: &after,
        changes: &changes,
        queue: POOL,
        now: bench.date(),
    };
    let error = decided.write(&mut write.tx).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    drop(write);
    assert_eq!(bench.everything().await, before);
}

/// Many at once go together, and each has its own answer: also where one of them can't be accepted, and where the one that
/// submits for all is dropped in the middle of it.
#[tokio::test]
async fn submissions_at_once_each_have_their_own_answer() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    let store = Arc::new(server.store().await);
    let known = bench.submit(&Plan::once()).await;
    let mut calls = JoinSet::new();
    let mut ids = vec![known];
    for number in 0..100 {
        let mut job = Plan::once().job(bench.date());
        if number == 50 {
            job.id = known;
        } else {
            ids.push(job.id);
        }
        let (store, now) = (Arc::clone(&store), bench.date());
        calls.spawn(async move { (number, store.submit(job, now).await) });
    }
    for (number, answer) in calls.join_all().await {
        assert_eq!(answer.is_err(), number == 50, "{number}: {answer:?}");
    }
    let (mut dropped, now) = (0, bench.date());
    for polls in (0..60).step_by(3) {
        let (first, second) = (Plan::once().job(now), Plan::once().job(now));
        let (left, waits) = (first.id, second.id);
        let leads = mayfly_store::contract::bench::dropped_after(polls, store.submit(first, now));
        let (led, followed) = tokio::join!(biased; leads, store.submit(second, now));
        assert_eq!(followed.unwrap(), mayfly_store::records::Submitted::Accepted);
        ids.push(waits);
        match led {
            Some(answer) => drop((answer.unwrap(), ids.push(left))),
            None => dropped += 1,
        }
    }
    assert!(dropped > 0);
    for chunk in ids.chunks(100) {
        let found = store.job_standings(TenantId::LOCAL, chunk).await.unwrap();
        assert_eq!(found.len(), chunk.len());
    }
    for id in ids {
        assert_eq!(bench.kinds(id).await, ["job_submitted"]);
    }
}

async fn heard(commits: &mut tokio::sync::watch::Receiver<u64>) {
    tokio::time::timeout(Duration::from_secs(20), commits.changed())
        .await
        .expect("a commit is heard of")
        .unwrap();
}

#[tokio::test]
async fn commits_of_another_process_are_heard_also_after_the_connection_was_cut() {
    let Some(server) = Server::new().await else { return };
    let open = async || PostgresStore::open(&server.database.settings()).await.unwrap();
    let (one, other) = (Arc::new(open().await), Arc::new(open().await));
    let mut relays = JoinSet::new();
    for store in [Arc::clone(&one), Arc::clone(&other)] {
        relays.spawn(async move { store.relay_commits().await });
    }
    let mut commits = other.commits();
    // Said once it listens.
    heard(&mut commits).await;
    let now = chrono::DateTime::UNIX_EPOCH;
    for cut in [false, true] {
        if cut {
            let mut superuser = server.superuser().await;
            texts(
                &mut superuser,
                "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                  WHERE datname = current_database() AND query LIKE 'LISTEN%'",
            )
            .await;
            heard(&mut commits).await;
        }
        commits.borrow_and_update();
        one.submit(Plan::once().job(now), now).await.unwrap();
        heard(&mut commits).await;
    }
}

/// The context's time is not asked: an hour before or behind, the database's counts.
#[tokio::test]
async fn the_databases_clock_decides() {
    let Some(server) = Server::new().await else { return };
    let store = PostgresStore::open(&server.database.settings()).await.unwrap();
    let mut bench = Bench::new(Arc::new(server.clone())).await;
    let far = Duration::from_secs(3600);
    let (past, future) = (bench.now.before(far), bench.now.after(far));
    let plan = Plan::once();
    let early = plan.job(chrono::DateTime::from(past));
    store
        .submit(early.clone(), chrono::DateTime::from(past))
        .await
        .unwrap();
    bench.now = future;
    let made = store.dispatch(POOL, &bench.context()).await.unwrap();
    assert_eq!(made.len(), 1);
    let mut superuser = server.superuser().await;
    let off = texts(
        &mut superuser,
        "SELECT (abs(extract(epoch FROM now() - submitted_at)) < 60 AND abs(extract(epoch FROM now() - published_at)) < 60)::text
           FROM jobs JOIN attempts USING (job_id)",
    )
    .await;
    assert_eq!(off, ["true"]);
    // What is due is said by the caller's clock, so that the wait is right.
    let later = mayfly_store::records::NewJob {
        expires_at: texts(&mut superuser, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '10 minutes', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
            .await[0]
            .parse()
            .ok(),
        ..plan.job(chrono::DateTime::from(past))
    };
    store.submit(later, chrono::DateTime::from(past)).await.unwrap();
    let due = store.next_due(POOL, past).await.unwrap().unwrap();
    let wait = due.since(past);
    assert!(
        wait > Duration::from_secs(500) && wait <= Duration::from_secs(601),
        "{wait:?}"
    );
}
