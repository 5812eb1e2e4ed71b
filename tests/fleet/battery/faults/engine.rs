//! The container engine of the executors.

use super::{A_WHILE, PAST_A_LEASE, lasts};
use crate::battery::{ground::Ground, run::Jobs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Killed,
    FrozenShortly,
    FrozenPastALease,
}

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        ground.strikes(&format!("engine: {self:?}"), None);
        let engine = ground
            .engine
            .as_ref()
            .expect("such kinds are left out without one");
        let time = match self {
            Self::Killed => {
                engine.kill();
                engine.restart();
                return;
            }
            Self::FrozenShortly => A_WHILE,
            Self::FrozenPastALease => PAST_A_LEASE,
        };
        engine.signal("STOP");
        jobs.submit_meanwhile(2);
        lasts(time).await;
        engine.signal("CONT");
    }
}
