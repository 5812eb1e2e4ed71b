//! A fleet whose executors are killed at random, again and again, while real jobs run: what came of them is judged by a
//! history that was recorded outside of it.

mod figures;
mod run;
mod services;

use std::time::Duration;

use self::{
    run::{Plan, Run},
    services::Trouble,
};

/// Each a process of its own.
const EXECUTORS: usize = 3;
/// Jobs that each runs at a time.
const SLOTS: &str = "4";

#[tokio::test(flavor = "multi_thread")]
async fn executors_that_are_killed_at_random_lose_no_job_and_run_none_twice() {
    let plan = Plan {
        jobs: 40,
        kill_every: Duration::from_millis(2_500),
        patient: true,
        run_ms: 500..=2_500,
        clients: 20,
        troubles: Vec::new(),
    };
    let Some(run) = Run::begin(EXECUTORS, SLOTS, plan).await else {
        return;
    };
    let figures = run.finish().await;
    figures.verdict().expect("nothing may be lost or doubled");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two thousand jobs, with the database away for three minutes"]
async fn two_thousand_jobs_outlive_kills_a_lost_broker_and_a_stopped_database() {
    let jobs = number("MAYFLY_TEST_KILLS_JOBS").unwrap_or(2_000);
    let away = number("MAYFLY_TEST_KILLS_OUTAGE_SECONDS").unwrap_or(180);
    let away = Duration::from_secs(away.try_into().expect("seconds fit"));
    let plan = Plan {
        jobs,
        kill_every: Duration::from_secs(5),
        patient: false,
        run_ms: 200..=3_000,
        clients: 32,
        troubles: vec![
            (jobs / 5, Trouble::DatabaseStopped(away)),
            (jobs * 2 / 5, Trouble::BrokerRestarted),
            (jobs * 3 / 5, Trouble::BrokerWiped),
        ],
    };
    let Some(run) = Run::begin(EXECUTORS, SLOTS, plan).await else {
        return;
    };
    let figures = run.finish().await;
    figures.verdict().expect("nothing may be lost or doubled");
    // A short run is for a look at the run itself.
    let enough = if jobs < 2_000 { 1 } else { 50 };
    let cuts = figures.kills().cuts;
    assert!(
        cuts >= enough,
        "{cuts} kills ended a running program: too few to show anything"
    );
}

/// A number of the environment.
fn number(name: &str) -> Option<usize> {
    let text = std::env::var_os(name)?;
    Some(text.to_string_lossy().parse().expect("it is a number"))
}
