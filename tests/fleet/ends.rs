//! Roles that are asked to end. Those that are killed, frozen, or asked twice: `battery`.

use mayfly_core::outcome::EndState;
use serde_json::json;

use crate::support::{Fleet, SOON};

const TAKES_A_WHILE: &str = "import time\ntime.sleep(4)\nprint('done')\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_executor_finishes_what_it_runs_and_takes_nothing_new() {
    let Some(mut fleet) = Fleet::start(1).await else {
        return;
    };
    let running = fleet
        .submit(TAKES_A_WHILE, json!({ "retry": { "max_attempts": 1 } }))
        .await;
    fleet.started(running).await;
    fleet.executors[0].signal("TERM");
    let waiting = fleet.submit("print('later')", json!({})).await;
    let ended = fleet.executors[0].ended(SOON).await;
    assert_eq!(ended.code(), Some(0));
    assert_eq!(fleet.end_of(running, SOON).await, EndState::Succeeded);
    assert_eq!(fleet.details(waiting).await.job.state.end(), None);
    fleet.no_container_is_left().await;
    fleet.executors[0].restart();
    assert_eq!(fleet.end_of(waiting, SOON).await, EndState::Succeeded);
    fleet.every_job_has_one_result();
}
