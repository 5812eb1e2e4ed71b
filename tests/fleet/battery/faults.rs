//! How each fault is done and undone. Each waits for a state before it goes on; a time is waited for only where the fault is
//! that time itself, such as an outage that is longer than a lease.

pub mod broker;
pub mod connections;
pub mod database;
pub mod engine;
pub mod messages;
pub mod processes;
pub mod races;

use std::time::Duration;

use mayfly_failpoints::Point;

use super::{
    ground::{Ground, LEASE, Who},
    run::Jobs,
};
use crate::support::{SOON, wait_for};

/// Longer than any lease of this fleet.
const PAST_A_LEASE: Duration = LEASE.saturating_add(Duration::from_secs(2));
/// Longer than two heartbeats of a connection, of which one that is half-open is found out by.
const PAST_HEARTBEATS: Duration = Duration::from_secs(5);
/// As long as a short outage takes.
const A_WHILE: Duration = Duration::from_secs(2);

/// What is done to the fleet.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// A process of this role dies at a point.
    Dies(Who, Point),
    Process(processes::Fault),
    Broker(broker::Fault),
    Connection(connections::Fault),
    Database(database::Fault),
    Engine(engine::Fault),
    Message(messages::Fault),
    Race(races::Fault),
}

impl Fault {
    /// Does it, and undoes it.
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        match self {
            Self::Dies(who, point) => dies(ground, jobs, who, point).await,
            Self::Process(fault) => fault.strike(ground, jobs).await,
            Self::Broker(fault) => fault.strike(ground, jobs).await,
            Self::Connection(fault) => fault.strike(ground, jobs).await,
            Self::Database(fault) => fault.strike(ground, jobs).await,
            Self::Engine(fault) => fault.strike(ground, jobs).await,
            Self::Message(fault) => fault.strike(ground, jobs).await,
            Self::Race(fault) => fault.strike(ground, jobs).await,
        }
    }
}

async fn dies(ground: &mut Ground, jobs: &mut Jobs, who: Who, point: Point) {
    ground.set_trap(who, point, "kill");
    // Some points are come to only by further jobs.
    jobs.submit_meanwhile(2);
    let what = format!("{who:?} dies at {}", point.name());
    let roles = match who {
        Who::Server => &mut ground.fleet.servers,
        Who::Executor => &mut ground.fleet.executors,
    };
    let dead = wait_for(SOON, &what, async || {
        roles.iter_mut().position(|role| !role.is_running())
    })
    .await;
    ground.strikes(&what, None);
    let role = match who {
        Who::Server => &mut ground.fleet.servers[dead],
        Who::Executor => &mut ground.fleet.executors[dead],
    };
    role.restart();
}

/// Lets a fault last.
async fn lasts(time: Duration) {
    tokio::time::sleep(time).await;
}
