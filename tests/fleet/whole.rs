//! Nothing goes wrong.

use mayfly_core::outcome::EndState;
use serde_json::json;

use crate::support::{Fleet, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_on_two_executors_and_their_results_and_audit_records_are_in_postgres() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let mut jobs = Vec::new();
    for number in 0..6 {
        let program = format!("import time; time.sleep(0.5); print({number} * 7)");
        jobs.push(fleet.submit(&program, json!({})).await);
    }
    let failing = fleet.submit("raise SystemExit(3)", json!({})).await;
    for (number, job) in jobs.iter().enumerate() {
        assert_eq!(fleet.end_of(*job, SOON).await, EndState::Succeeded);
        let details = fleet.details(*job).await;
        let report = details.report().expect("it has run");
        assert_eq!(report.stdout.head, format!("{}\n", number * 7).into_bytes());
    }
    assert_eq!(fleet.end_of(failing, SOON).await, EndState::Failed);
    let executors = fleet
        .services
        .count("SELECT count(DISTINCT executor_id) FROM attempts");
    assert_eq!(
        executors, 2,
        "nothing waits at one executor while another is idle"
    );
    let kinds = fleet.services.ask(&format!(
        "SELECT kind FROM audit_events WHERE job_id = '{}' ORDER BY event_id",
        jobs[0]
    ));
    assert_eq!(
        kinds,
        [
            "job_submitted",
            "attempt_dispatched",
            "run_started",
            "run_finished",
            "job_ended"
        ]
    );
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_share_the_work_and_no_job_gets_two_results() {
    let Some(mut fleet) = Fleet::start(2).await else {
        return;
    };
    fleet.add_replica();
    let mut jobs = Vec::new();
    for _ in 0..12 {
        jobs.push(fleet.submit("print('done')", json!({})).await);
    }
    // The one that holds everything may be either: what the other takes over goes on.
    fleet.end_of(jobs[0], SOON).await;
    fleet.servers[0].kill();
    for job in jobs {
        assert_eq!(fleet.end_of(job, SOON).await, EndState::Succeeded);
    }
    fleet.servers[0].restart();
    let last = fleet.submit("print('still')", json!({})).await;
    assert_eq!(fleet.end_of(last, SOON).await, EndState::Succeeded);
    fleet.every_job_has_one_result();
    fleet.no_container_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_comes_by_http_is_heard_while_it_runs_and_answered_when_it_ends() {
    let Some(fleet) = Fleet::start(1).await else {
        return;
    };
    let api = fleet.api().await;
    let program = "import time\nprint('be' + 'gun', flush=True)\ntime.sleep(3600)\n";
    let body = json!({ "image": "python", "source": { "language": "python", "text": program } });
    let (status, submitted) = api.post("/v1/jobs", &body).await;
    assert_eq!(status, 202, "{submitted}");
    let job = submitted["job"].as_str().expect("a job has an id");
    // It never ends by itself: what is heard, is heard while it runs.
    api.hear(job, "begun").await;
    let (status, answer) = api.post(&format!("/v1/jobs/{job}/cancel"), &json!({})).await;
    assert!((200..300).contains(&status), "{answer}");
    let id = job.parse().expect("it is an id");
    assert_eq!(fleet.end_of(id, SOON).await, EndState::Canceled);
    let body = json!({ "image": "python", "source": { "language": "python", "text": "print(6 * 7)" } });
    let (status, ended) = api.post("/v1/jobs?wait=60s", &body).await;
    assert_eq!((status, &ended["state"]), (200, &json!("succeeded")), "{ended}");
    assert_eq!(api.get("/v1/health/ready").await.status(), 200);
    fleet.every_job_has_one_result();
}
