//! Connections to the broker that are cut, or that are half-open: nothing passes, and nobody says so.

use super::{PAST_A_LEASE, PAST_HEARTBEATS, lasts};
use crate::{
    battery::{ground::Ground, run::Jobs},
    support::{SOON, wait_for},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Cut(Which),
    HalfOpen(Which),
    /// Each side hears nothing of the broker for longer than a lease.
    ExecutorCutOff,
    ServerCutOff,
}

/// Which connection, by the name that its client gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    ServerPublishes,
    ServerConsumes,
    ExecutorPublishes,
    ExecutorConsumes,
}

impl Which {
    /// The last word of the name, with what stands around it on the wire: short strings have their length before them, and
    /// the version of mayfly before this.
    fn words(self) -> String {
        let word = match self {
            Self::ServerPublishes => "publish",
            Self::ServerConsumes => "consume",
            Self::ExecutorPublishes => "events",
            Self::ExecutorConsumes => "jobs",
        };
        format!("{} {word}", env!("CARGO_PKG_VERSION"))
    }
}

impl Fault {
    pub async fn strike(self, ground: &mut Ground, jobs: &mut Jobs) {
        ground.strikes(&format!("connection: {self:?}"), None);
        match self {
            Self::Cut(which) => {
                let proxy = proxy(ground, which);
                let cut = proxy.cut_those_of(&which.words());
                assert_eq!(cut, 1, "{which:?}: there is one such connection");
                jobs.submit_meanwhile(2);
            }
            Self::HalfOpen(which) => {
                let words = which.words();
                let stopped = proxy(ground, which).stop_those_of(&words);
                assert_eq!(stopped, 1, "{which:?}: there is one such connection");
                jobs.submit_meanwhile(2);
                let proxy = proxy(ground, which);
                // Whoever had it has another one, beside the one of which nobody hears.
                wait_for(SOON, "another connection in its place", async || {
                    (proxy.connections_of(&words) > 1).then_some(())
                })
                .await;
                proxy.open_all();
            }
            Self::ExecutorCutOff => {
                ground.ways.executor.stop_all();
                lasts(PAST_A_LEASE).await;
                ground.ways.executor.open_all();
            }
            Self::ServerCutOff => {
                ground.ways.server.stop_all();
                jobs.submit_meanwhile(2);
                lasts(PAST_HEARTBEATS).await;
                ground.ways.server.open_all();
            }
        }
    }
}

const fn proxy(ground: &Ground, which: Which) -> &mayfly_testkit::proxy::FaultProxy {
    match which {
        Which::ServerPublishes | Which::ServerConsumes => &ground.ways.server,
        Which::ExecutorPublishes | Which::ExecutorConsumes => &ground.ways.executor,
    }
}
