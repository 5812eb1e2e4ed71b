//! How many messages a second go through a quorum queue: published, confirmed, consumed and acked, by this code.

use std::{num::NonZeroU16, time::Instant};

use futures_util::{StreamExt, stream};
use mayfly_core::id::ExecutorId;
use mayfly_queue::seam::{LinkEvent, Queue};
use tokio_util::task::TaskTracker;

use crate::broker::{Broker, Place};

const POOL: &str = "speed";
const MESSAGES: usize = 5_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures; its figure means something on an idle machine only"]
async fn messages_a_second() {
    let Some(broker) = Broker::of_environment() else {
        return;
    };
    let place = Place::new(broker).await;
    let server = place.server_of_a_fleet();
    server.declare(POOL).await.expect("a pool can be declared");
    server
        .declare_events(POOL, 1)
        .await
        .expect("a pool can be declared");
    let executor = ExecutorId::new();
    place.enroll(POOL, executor).await;
    let queue = place.executor_direct(POOL, executor);
    let tasks = TaskTracker::new();
    for under_way in [1, 64, 256] {
        let messages = if under_way == 1 { MESSAGES / 5 } else { MESSAGES };
        let prefetch = NonZeroU16::new(512).expect("512 is not zero");
        let mut link = queue
            .join(POOL, executor, prefetch)
            .await
            .expect("an executor can join");
        link.set_consuming(true).await.expect("the link stands");
        let began = Instant::now();
        let consumer = tasks.spawn(async move {
            for _ in 0..messages {
                let LinkEvent::Delivery(delivery) = link.next().await else {
                    panic!("the link is lost");
                };
                link.ack(delivery.tag).await.expect("the delivery is outstanding");
            }
        });
        stream::iter(0..messages)
            .map(|_| async {
                let message = mayfly_queue::contract::sample_attempt();
                server.publish_attempt(POOL, &message).await.expect("a confirm");
            })
            .buffer_unordered(under_way)
            .collect::<Vec<()>>()
            .await;
        consumer.await.expect("the consumer ends");
        let rate = messages as f64 / began.elapsed().as_secs_f64();
        eprintln!(
            "{under_way} under way: {rate:.0} messages a second published, confirmed, consumed and acked"
        );
    }
}
