//! The result file, one JSON object with a list of the kinds.

mod page;

use mayfly_core::clock::Clock as _;
use mayfly_telemetry::SystemClock;
use serde::{Deserialize, Serialize};

use super::{
    kinds::{self, Kind},
    run::Ran,
    variable,
};

/// What came of all rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub schema: u32,
    /// When the last kind had been gone through.
    pub at: String,
    /// What was built.
    pub commit: String,
    pub machine: String,
    /// By what leases and all other times of the protocol were divided.
    pub times_divided_by: u32,
    /// In the order of the table.
    pub kinds: Vec<OfKind>,
}

/// What came of the rounds of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OfKind {
    pub kind: String,
    pub promise: String,
    pub rounds: usize,
    pub jobs: usize,
    /// Programs that ran to their end.
    pub done: usize,
    pub faults: usize,
    /// Those that came while a job ran.
    pub faults_that_hit_a_running_job: usize,
    pub lost: usize,
    pub double: usize,
    pub resurrected: usize,
    pub phantom: usize,
    pub orphan: usize,
    /// Jobs that did not end as their programs did.
    pub wrong: usize,
    /// Of all rounds together.
    pub seconds: f64,
}

const SCHEMA: u32 = 1;

impl Figures {
    pub fn new(times_divided_by: u32) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            schema: SCHEMA,
            commit: variable("MAYFLY_TEST_COMMIT").unwrap_or_else(|| "unknown".to_owned()),
            machine: format!("{cores} cores, Linux {}", kernel.trim()),
            times_divided_by,
            ..Self::default()
        }
    }

    pub fn add(&mut self, kind: &Kind, ran: &Ran) {
        self.at = SystemClock.now().format("%Y-%m-%d %H:%M UTC").to_string();
        let at = self.kinds.iter().position(|of| of.kind == kind.name);
        let at = at.unwrap_or_else(|| {
            self.kinds.push(OfKind {
                kind: kind.name.clone(),
                promise: kind.promise.to_owned(),
                ..OfKind::default()
            });
            self.kinds.len() - 1
        });
        let (of, counts) = (&mut self.kinds[at], &ran.counts);
        let (faults, hits) = ran.faults();
        of.rounds += 1;
        of.jobs += counts.jobs;
        of.done += counts.done;
        of.faults += faults;
        of.faults_that_hit_a_running_job += hits;
        of.lost += counts.lost;
        of.double += counts.double;
        of.resurrected += counts.resurrected;
        of.phantom += counts.phantom;
        of.orphan += counts.orphan;
        of.wrong += ran.wrong.len();
        of.seconds += ran.seconds;
        let table = kinds::all();
        self.kinds
            .sort_by_key(|of| table.iter().position(|kind| kind.name == of.kind));
    }

    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("figures are JSON");
        format!("{text}\n")
    }
}
