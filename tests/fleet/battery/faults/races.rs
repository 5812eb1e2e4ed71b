//! Two things at once of which one may win, and a job that takes its executors with it.

use std::time::Duration;

use mayfly_core::id::ExecutorId;
use serde_json::Value;

use crate::{
    battery::{ground::Ground, run::Jobs},
    history::Start,
    support::{SOON, wait_for},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Jobs are canceled at the moment in which their programs say that they are over.
    CancelAgainstFinish,
    /// Jobs are canceled while they wait, are dispatched, and start.
    CancelAgainstStart,
    /// Whoever runs this job dies of it.
    Poison,
}

/// Fewer than the jobs that nobody cancels: a kind of which few jobs are done shows nothing.
const RACES: usize = 6;
const POISON_ATTEMPTS: u32 = 2;

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        match self {
            Self::CancelAgainstFinish => {
                for _ in 0..RACES {
                    let job = jobs.submit(&ground.recorder, 300).await;
                    jobs.excuse(&job, &["canceled"]);
                    let token = jobs.token(&job);
                    wait_for(SOON, "the program to be over", async || {
                        let over = |start: &Start| start.token == token && start.over;
                        ground.recorder.heard().iter().any(over).then_some(())
                    })
                    .await;
                    ground.strikes("a job is canceled as it ends", None);
                    ground.client.cancel(&job).await;
                }
            }
            Self::CancelAgainstStart => {
                for number in 0..RACES {
                    let job = jobs.submit(&ground.recorder, 300).await;
                    jobs.excuse(&job, &["canceled"]);
                    // Anywhere from its acceptance on, to about when its program begins.
                    tokio::time::sleep(Duration::from_millis(40) * u32::try_from(number).expect("a few"))
                        .await;
                    ground.strikes("a job is canceled as it starts", None);
                    ground.client.cancel(&job).await;
                }
            }
            Self::Poison => poison(ground, jobs).await,
        }
    }
}

async fn poison(ground: &mut Ground, jobs: &mut Jobs) {
    let job = jobs.submit_with(&ground.recorder, 60_000, POISON_ATTEMPTS).await;
    let token = jobs.token(&job);
    jobs.excuse(&job, &["error", "lost"]);
    let mut seen = Vec::new();
    for _ in 0..POISON_ATTEMPTS {
        let start = wait_for(SOON, "the poison to run", async || {
            let mut running = ground.recorder.under_way();
            running.retain(|start| start.token == token && !seen.contains(&start.number));
            running.pop()
        })
        .await;
        seen.push(start.number);
        ground.strikes("a job kills its executor", None);
        let id: ExecutorId = start.executor.parse().expect("it is an id");
        let executor = ground.fleet.executor(id);
        executor.kill();
        executor.restart();
    }
    let ended = wait_for(SOON, "the end of the poison", async || {
        let document = ground.client.job(&job).await;
        let state = document["state"].as_str().map(ToOwned::to_owned);
        state
            .filter(|state| !["queued", "dispatched", "started"].contains(&&**state))
            .map(|_| document)
    })
    .await;
    assert!(
        ended
            .pointer("/state")
            .and_then(Value::as_str)
            .is_some_and(|state| state != "succeeded"),
        "{ended:#}"
    );
}
