//! The fleet that lives through a round, and everything that faults are done by.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::{Duration, Instant},
};

use mayfly_core::account::Role as KeyRole;
use mayfly_failpoints::Point;
use mayfly_testkit::{engine::SecondEngine, proxy::FaultProxy};

use super::{client::Client, faults::broker::Broker, kinds::Kind};
use crate::{
    history::Recorder,
    support::{Fleet, Plan, Role, SOON, Services, python, skip},
};

/// The lease of a session here.
pub const LEASE: Duration = Duration::from_secs(9);
/// By what it is a part of the standard one.
pub const DIVISOR: u32 = 5;
pub const EXECUTORS: usize = 2;

/// Which role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Server,
    /// The first executor.
    Executor,
}

/// Ways to the services that can be cut.
pub struct Ways {
    pub server: FaultProxy,
    /// The first executor's; the second one has one that nobody touches.
    pub executor: FaultProxy,
    pub database: FaultProxy,
}

pub struct Ground {
    pub fleet: Fleet,
    pub ways: Ways,
    pub broker: Broker,
    pub recorder: Recorder,
    pub client: Client,
    pub engine: Option<SecondEngine>,
    traps: [PathBuf; 2],
    _folder: tempfile::TempDir,
}

fn place(url: &str) -> SocketAddr {
    let (_, rest) = url.rsplit_once('@').expect("an address has credentials");
    let host = rest.split('/').next().expect("an address has a host");
    let found = host.to_socket_addrs().expect("a host and a port").next();
    found.expect("a place")
}

impl Ground {
    /// Everything, running and answering; nothing, with the reason, where that can't be had.
    pub async fn make() -> Option<Self> {
        let pin = python()?;
        let services = Services::start()?;
        let engine = SecondEngine::start(&["--no-gvisor"])
            .map_err(|why| skip(&why))
            .ok();
        if let Some(engine) = &engine {
            engine.load(&pin.config_digest.to_string());
        }
        let folder = tempfile::tempdir().expect("a folder for the test");
        let traps = ["server", "executor"].map(|who| folder.path().join(who));
        let [server_trap, executor_trap] = traps.each_ref().map(|trap| format!("@{}", trap.display()));
        let to = async |url: &str| FaultProxy::to(place(url)).await.expect("a port of loopback");
        let ways = Ways {
            server: to(services.amqp()).await,
            executor: to(services.amqp()).await,
            database: to(services.postgres()).await,
        };
        let divisor = DIVISOR.to_string();
        let divided = ("MAYFLY_TEST_TIMES_DIVIDED_BY", &*divisor);
        let broker = Broker::new(services.amqp(), services.management());
        let plan = Plan {
            executors: EXECUTORS,
            of_executors: &[
                divided,
                ("MAYFLY_TEST_FAILPOINT", &executor_trap),
                ("MAYFLY_EXECUTOR__GRACE", "6s"),
                ("MAYFLY_LOG__FILTER", "info"),
            ],
            of_servers: &[
                divided,
                ("MAYFLY_TEST_FAILPOINT", &server_trap),
                ("MAYFLY_LOG__FILTER", "info"),
            ],
            broker_of_servers: Some(ways.server.address()),
            broker_of_executors: &[ways.executor.address()],
            database: Some(ways.database.address()),
            engine: engine.as_ref().map(SecondEngine::host),
        };
        let fleet = Fleet::on(services, pin, plan).await;
        let recorder = Recorder::begin_on(engine.as_ref().map(SecondEngine::host), &fleet.deployment);
        let client = Client::new(fleet.key(KeyRole::Submitter).await, &fleet.servers[0]);
        Some(Self {
            fleet,
            ways,
            broker,
            recorder,
            client,
            engine,
            traps,
            _folder: folder,
        })
    }

    /// Whether a kind can be had here; if not, the reason is printed and counted.
    pub fn can(&self, kind: &Kind) -> bool {
        let can = self.engine.is_some() || !kind.needs_engine();
        if !can {
            skip(&format!("{}: there is no engine that it may harm", kind.name));
        }
        can
    }

    pub fn role(&mut self, who: Who) -> &mut Role {
        match who {
            Who::Server => &mut self.fleet.servers[0],
            Who::Executor => &mut self.fleet.executors[0],
        }
    }

    /// The id that the history knows the first executor by.
    pub fn first_executor(&self) -> String {
        self.fleet.executors[0].settings()["MAYFLY_EXECUTOR__ID"].clone()
    }

    /// Says that a fault is about to be done, to whom.
    pub fn strikes(&self, what: &str, who: Option<Who>) {
        let executor = (who == Some(Who::Executor)).then(|| self.first_executor());
        self.recorder.fault(what, executor.as_deref());
    }

    /// Lets the next process of a role that comes to a point die or freeze there.
    pub fn set_trap(&self, who: Who, point: Point, action: &str) {
        let file = match who {
            Who::Server => &self.traps[0],
            Who::Executor => &self.traps[1],
        };
        // At once or not at all: it is looked for all the time.
        let new = file.with_extension("new");
        std::fs::write(&new, format!("{}:1:{action}", point.name())).expect("a folder of the test");
        std::fs::rename(&new, file).expect("a folder of the test");
    }

    /// The names of the executors in whose sandboxes a program runs.
    pub fn busy(&self) -> usize {
        let mut executors: Vec<String> = self.under_way().collect();
        executors.sort();
        executors.dedup();
        executors.len()
    }

    /// The executor of each program that runs.
    fn under_way(&self) -> impl Iterator<Item = String> {
        self.recorder.under_way().into_iter().map(|start| start.executor)
    }

    /// Waits until every role stands and no sandbox runs any more; says how many do nevertheless.
    pub async fn comes_to_rest(&mut self) -> usize {
        for role in self.fleet.servers.iter_mut().chain(&mut self.fleet.executors) {
            assert!(role.is_running(), "a role has ended by itself:\n{}", role.log());
        }
        let begun = Instant::now();
        loop {
            let running = self.fleet.running_containers();
            if running == 0 || begun.elapsed() > SOON {
                return running;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asserts what is promised of a whole round.
    pub async fn leaves_nothing(&self) {
        self.fleet.every_job_has_one_result();
        self.fleet.no_container_is_left().await;
    }
}
