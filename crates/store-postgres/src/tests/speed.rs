//! What the path costs here: run by hand, and nothing is asserted of time.
//!
//! `MAYFLY_TEST_POSTGRES=… cargo nextest run -p mayfly-store-postgres --run-ignored only --no-capture speed`

use std::{sync::Arc, time::Instant};

use mayfly_dispatch::message::Inbound;
use mayfly_store::contract::bench::{Bench, Client, POOL, Plan, success};
use sqlx::{AssertSqlSafe, Executor as _};

use super::Server;

/// Submit, dispatch, start and finish, in batches of so many.
async fn jobs_per_second(bench: &Bench, batch: usize, jobs: usize) -> f64 {
    let mut client = Client::new();
    let opened = client.opened(10_000);
    bench.send(&opened).await;
    let begin = Instant::now();
    let mut done = 0;
    while done < jobs {
        let new = (0..batch).map(|_| Plan::once().job(bench.date())).collect();
        bench.submit_many(new).await;
        let messages = bench.dispatch().await;
        done += messages.len();
        for chunk in messages.chunks(64) {
            let asks = chunk.iter().map(|message| client.ask(message));
            let asks: Vec<_> = asks.map(|ask| Inbound::Batch(Box::new(ask))).collect();
            bench.store.process(POOL, &asks, &bench.context()).await.unwrap();
            let ends = chunk
                .iter()
                .map(|message| client.finish(message.attempt, success()));
            let ends: Vec<_> = ends.map(|end| Inbound::Batch(Box::new(end))).collect();
            bench.store.process(POOL, &ends, &bench.context()).await.unwrap();
        }
    }
    done as f64 / begin.elapsed().as_secs_f64()
}

#[tokio::test]
#[ignore = "it measures, and asserts nothing"]
async fn jobs_per_second_by_size_of_batch() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    for (batch, jobs) in [(1, 200), (20, 2_000), (200, 10_000)] {
        let rate = jobs_per_second(&bench, batch, jobs).await;
        println!("batches of {batch}: {rate:.0} jobs/s");
    }
}

/// A look of the scheduler and a submission, with few and with many jobs stored, and under a snapshot that stays open.
#[tokio::test]
#[ignore = "it stores a million jobs"]
async fn what_a_look_costs_with_a_million_jobs() {
    for (jobs, held) in [(10_000_u32, false), (1_000_000, false), (1_000_000, true)] {
        let Some(server) = Server::new().await else { return };
        let mut superuser = server.superuser().await;
        superuser
            .execute(AssertSqlSafe(super::plans::stored(jobs)))
            .await
            .unwrap();
        let bench = Bench::new(Arc::new(server.clone())).await;
        let mut snapshot = server.superuser().await;
        if held {
            snapshot
                .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ready_jobs")
                .await
                .unwrap();
            jobs_per_second(&bench, 200, 5_000).await;
        }
        let (mut looks, mut submissions) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let begin = Instant::now();
            bench.store.dispatch(POOL, &bench.context()).await.unwrap();
            looks.push(begin.elapsed());
            let begin = Instant::now();
            bench.submit(&Plan::once()).await;
            submissions.push(begin.elapsed());
        }
        looks.sort_unstable();
        submissions.sort_unstable();
        println!(
            "{jobs} jobs, snapshot held: {held}: look p50 {:?}, submission p50 {:?}",
            looks[100], submissions[100]
        );
    }
}
