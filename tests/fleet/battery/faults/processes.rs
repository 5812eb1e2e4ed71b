//! Processes that are killed, frozen, drained, and doubled.

use mayfly_failpoints::Point;

use super::{A_WHILE, PAST_A_LEASE, lasts};
use crate::{
    battery::{
        ground::{Ground, Who},
        run::Jobs,
    },
    support::{Role, SOON, wait_for},
};

/// Longer than an executor's grace.
const PAST_THE_GRACE_MS: u64 = 9_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    ServerKilled,
    ExecutorKilled,
    BothExecutorsKilled,
    EverybodyKilled,
    ExecutorKilledAgainAndAgain,
    ServerFrozenPastALease,
    ExecutorFrozenPastALease,
    ExecutorFrozenShortly,
    Drained,
    DrainedPastTheGrace,
    AskedToEndTwice,
    ServerStopped,
    SecondProcessOfAnExecutor,
    ReplicaTakesOver,
    RecorderFrozenWithItsEvents,
    SchedulerFrozenWithItsAttempts,
}

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        match self {
            Self::ServerKilled => killed(ground, Who::Server),
            Self::ExecutorKilled => killed(ground, Who::Executor),
            Self::BothExecutorsKilled => {
                ground.strikes("both executors are killed", None);
                ground.fleet.executors.iter_mut().for_each(Role::kill);
                ground.fleet.executors.iter_mut().for_each(Role::restart);
            }
            Self::EverybodyKilled => {
                ground.strikes("everybody is killed", None);
                ground.fleet.servers[0].kill();
                ground.fleet.executors.iter_mut().for_each(Role::kill);
                // Those that have nobody to report to first.
                ground.fleet.executors.iter_mut().for_each(Role::restart);
                ground.fleet.servers[0].restart();
            }
            Self::ExecutorKilledAgainAndAgain => {
                for point in [Point::AttemptGranted, Point::JobSent, Point::RunEnded] {
                    super::dies(ground, jobs, Who::Executor, point).await;
                }
            }
            Self::ServerFrozenPastALease => frozen(ground, Who::Server, PAST_A_LEASE).await,
            Self::ExecutorFrozenPastALease => frozen(ground, Who::Executor, PAST_A_LEASE).await,
            Self::ExecutorFrozenShortly => frozen(ground, Who::Executor, A_WHILE).await,
            Self::Drained => {
                ground.strikes("an executor is drained", Some(Who::Executor));
                ended(ground, &["TERM"], 0).await;
            }
            Self::DrainedPastTheGrace => {
                past_the_grace(ground, jobs).await;
                ended(ground, &["TERM"], 1).await;
            }
            Self::AskedToEndTwice => {
                past_the_grace(ground, jobs).await;
                ended(ground, &["TERM", "TERM"], 1).await;
            }
            Self::ServerStopped => {
                ground.strikes("the server is asked to end", None);
                let server = &mut ground.fleet.servers[0];
                server.signal("TERM");
                let status = server.ended(SOON).await;
                assert_eq!(status.code(), Some(0), "{}", server.log());
                server.restart();
            }
            Self::SecondProcessOfAnExecutor => {
                ground.strikes(
                    "a second process is begun as the same executor",
                    Some(Who::Executor),
                );
                let mut second = ground.fleet.second_of(0);
                let status = second.ended(SOON).await;
                assert_eq!(status.code(), Some(75), "{}", second.log());
            }
            Self::ReplicaTakesOver => {
                replica(ground).await;
                jobs.get_under_way(ground).await;
                ground.strikes("one of two servers is killed", None);
                ground.fleet.servers[0].kill();
                jobs.submit_meanwhile(2);
                // The other one alone, for whatever runs.
                lasts(A_WHILE).await;
                ground.fleet.servers[0].restart();
                end_replica(ground).await;
            }
            Self::RecorderFrozenWithItsEvents => frozen_at(ground, jobs, Point::EventsTaken).await,
            Self::SchedulerFrozenWithItsAttempts => frozen_at(ground, jobs, Point::AttemptsCommitted).await,
        }
    }
}

fn killed(ground: &mut Ground, who: Who) {
    ground.strikes("it is killed", Some(who));
    ground.role(who).kill();
    ground.role(who).restart();
}

async fn frozen(ground: &mut Ground, who: Who, time: std::time::Duration) {
    ground.strikes("it is frozen", Some(who));
    ground.role(who).signal("STOP");
    lasts(time).await;
    ground.role(who).signal("CONT");
}

/// Has the first executor run what does not end within its grace.
async fn past_the_grace(ground: &Ground, jobs: &mut Jobs) {
    // One that may not start again, whose end is then no guess.
    let once = jobs.submit_with(&ground.recorder, PAST_THE_GRACE_MS, 1).await;
    jobs.excuse(&once, &["lost", "error"]);
    for _ in 0..3 {
        jobs.submit(&ground.recorder, PAST_THE_GRACE_MS).await;
    }
    let first = ground.first_executor();
    wait_for(SOON, "a long program of the first executor", async || {
        let long = |start: &crate::history::Start| start.executor == first && jobs.is_long(&start.token);
        ground.recorder.under_way().iter().any(long).then_some(())
    })
    .await;
    ground.strikes("an executor is to end now", Some(Who::Executor));
}

/// Has the first executor end, and starts it again.
async fn ended(ground: &mut Ground, signals: &[&str], code: i32) {
    let executor = &mut ground.fleet.executors[0];
    let heard = executor.log().matches("asked to stop").count();
    for (number, signal) in signals.iter().enumerate() {
        executor.signal(signal);
        if number + 1 < signals.len() {
            wait_for(SOON, "the first request to be heard", async || {
                (executor.log().matches("asked to stop").count() > heard).then_some(())
            })
            .await;
        }
    }
    let status = executor.ended(SOON).await;
    assert_eq!(status.code(), Some(code), "{}", executor.log());
    executor.restart();
}

/// A second server, which serves.
async fn replica(ground: &mut Ground) {
    ground.fleet.add_replica();
    let replica = &ground.fleet.servers[1];
    wait_for(SOON, "the replica to serve", async || {
        crate::support::served_at(&replica.log())
    })
    .await;
}

async fn end_replica(ground: &mut Ground) {
    let mut replica = ground.fleet.servers.pop().expect("there is one");
    replica.signal("TERM");
    let status = replica.ended(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", replica.log());
}

/// One of two servers freezes with something in its hands, the other takes over, and then the first goes on with that.
async fn frozen_at(ground: &mut Ground, jobs: &mut Jobs, point: Point) {
    replica(ground).await;
    ground.set_trap(Who::Server, point, "stop");
    jobs.submit_meanwhile(2);
    let servers = &ground.fleet.servers;
    let frozen = wait_for(SOON, "a server to freeze", async || {
        servers.iter().position(Role::is_frozen)
    })
    .await;
    ground.strikes("one of two servers freezes", None);
    lasts(PAST_A_LEASE).await;
    ground.fleet.servers[frozen].signal("CONT");
    end_replica(ground).await;
}
