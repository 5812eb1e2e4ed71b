//! A broker closes the channel of a consumer that keeps a delivery for longer than `consumer_timeout`, half an hour by
//! default. A job may run for longer than that.

use std::{num::NonZeroU16, time::Duration};

use mayfly_core::outcome::EndState;
use mayfly_queue::{
    rabbitmq::{RabbitConfig, RabbitQueue},
    seam::{LinkEvent, Queue as _},
};
use serde_json::json;

use crate::support::{Fleet, SOON};

/// A minute, looked at every ten seconds; for channels that are opened from then on.
const SHORTENED: &str = "application:set_env(rabbit, consumer_timeout, 60000), \
                         application:set_env(rabbit, channel_tick_interval, 10000).";
/// Twice as long.
const RUNS_LONGER: &str = "import time\ntime.sleep(120)\nprint('done')\n";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute passes, and then another"]
async fn a_job_that_runs_for_longer_than_the_brokers_ack_timeout_ends_normally() {
    let Some(mut fleet) = Fleet::start(2).await else {
        return;
    };
    fleet.executors.iter_mut().for_each(|executor| executor.kill());
    fleet.servers[0].kill();
    fleet.services.ctl(&["eval", SHORTENED]);
    fleet.servers[0].restart();
    // One takes its delivery and says nothing: the timeout is in force.
    let held = fleet.submit("print('taken over')", json!({})).await;
    let settings = fleet.executors[1].settings().clone();
    let queue = RabbitQueue::connect(RabbitConfig::new(settings["MAYFLY_BROKER__URL"].clone()))
        .expect("it is an address");
    let executor = settings["MAYFLY_EXECUTOR__ID"].parse().expect("it is an id");
    let mut link = queue
        .join("default", executor, NonZeroU16::MIN)
        .await
        .expect("it is enrolled");
    link.set_consuming(true).await.expect("it may consume");
    let delivered = tokio::time::timeout(SOON, link.next()).await;
    let delivered = delivered.expect("an attempt is delivered");
    assert!(matches!(delivered, LinkEvent::Delivery(_)), "{delivered:?}");

    fleet.executors[0].restart();
    let long = json!({ "retry": { "max_attempts": 1 }, "limits": { "wall": "5m" } });
    let long = fleet.submit(RUNS_LONGER, long).await;
    fleet.started(long).await;
    let ended = tokio::time::timeout(2 * SOON, link.next()).await;
    let ended = ended.expect("the broker does not wait for an ack for ever");
    assert!(
        matches!(ended, LinkEvent::Cancelled | LinkEvent::Disconnected { .. }),
        "{ended:?}"
    );
    drop(link);
    assert_eq!(fleet.end_of(held, 2 * SOON).await, EndState::Succeeded);
    assert_eq!(
        fleet.end_of(long, Duration::from_secs(240)).await,
        EndState::Succeeded
    );
    assert_eq!(fleet.details(long).await.attempts.len(), 1);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}
