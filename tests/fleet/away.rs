//! The broker, away for a while, with the times of a real fleet. With shorter ones: `battery`, also for the database.

use mayfly_core::outcome::EndState;
use serde_json::json;

use crate::support::{Do, Fleet, SOON};

/// Longer than it is away, shorter than a lease.
const RUNS_ON: &str = "import time\ntime.sleep(15)\nprint('done')\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_restarted_harms_no_running_job() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let running = fleet
        .submit(RUNS_ON, json!({ "retry": { "max_attempts": 1 } }))
        .await;
    fleet.started(running).await;
    fleet.services.broker(Do::Stop);
    let meanwhile = fleet
        .submit("print('accepted while it was away')", json!({}))
        .await;
    fleet.services.broker(Do::Start);
    assert_eq!(fleet.end_of(meanwhile, 2 * SOON).await, EndState::Succeeded);
    assert_eq!(fleet.end_of(running, 2 * SOON).await, EndState::Succeeded);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}
