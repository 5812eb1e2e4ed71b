//! What is walked over by a look of the scheduler, where somebody's snapshot keeps rows that are gone from being swept.

use std::sync::Arc;

use mayfly_core::id::TenantId;
use mayfly_dispatch::message::Inbound;
use mayfly_store::contract::bench::{Bench, Client, POOL, Plan, success};
use sqlx::{Executor as _, PgConnection, types::Uuid};

use super::{Server, texts};

/// How many pages a statement reads, with what it walks over.
async fn pages(connection: &mut PgConnection, statement: &str) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) {statement}");
    let steps = texts(connection, &explain).await;
    // The first step's number is that of all.
    let line = steps
        .iter()
        .find(|line| line.contains("Buffers: shared"))
        .unwrap();
    let number = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    number("hit=").unwrap_or(0) + number("read=").unwrap_or(0)
}

/// What was dispatched is not walked over again, be it swept or not; from the beginning of the lane it would be.
#[tokio::test]
async fn rows_that_are_gone_are_not_walked_over_again() {
    let Some(server) = Server::new().await else { return };
    let bench = Bench::new(Arc::new(server.clone())).await;
    let mut client = Client::new();
    let opened = client.opened(256);
    bench.send(&opened).await;
    let mut snapshot = server.superuser().await;
    snapshot
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ready_jobs")
        .await
        .unwrap();
    for _ in 0..15 {
        let new = (0..200).map(|_| Plan::once().job(bench.date())).collect();
        bench.submit_many(new).await;
        let messages = bench.dispatch().await;
        assert_eq!(messages.len(), 200);
        let asks = messages.iter().map(|message| client.ask(message));
        let asks: Vec<_> = asks.map(|ask| Inbound::Batch(Box::new(ask))).collect();
        bench.store.process(POOL, &asks, &bench.context()).await.unwrap();
        let ends = messages
            .iter()
            .map(|message| client.finish(message.attempt, success()));
        let ends: Vec<_> = ends.map(|end| Inbound::Batch(Box::new(end))).collect();
        bench.store.process(POOL, &ends, &bench.context()).await.unwrap();
    }
    let mut looker = server.superuser().await;
    looker
        .execute("SET enable_seqscan = off; SET jit = off")
        .await
        .unwrap();
    let tenant = TenantId::LOCAL;
    let lane = |from: &str| {
        format!(
            "SELECT r.job_id FROM lanes l CROSS JOIN LATERAL
                    (SELECT job_id FROM ready_jobs
                      WHERE pool = l.pool AND tenant_id = l.tenant_id AND rank = l.rank AND image_digest = l.image_digest
                        AND job_id >= {from} ORDER BY job_id LIMIT 2) r
              WHERE l.tenant_id = '{tenant}'"
        )
    };
    let walked = pages(&mut looker, &lane("l.first_job")).await;
    let all = pages(&mut looker, &lane(&format!("'{}'", Uuid::nil()))).await;
    assert!(
        all > 5 * walked,
        "{walked} pages from the cursor on, {all} from the beginning"
    );
}
