//! What `mayfly bench control-plane` has found, as `--json` prints it. docs/performance.md explains each field.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{null::Seen, processes::Used};
use crate::bench::{machine::Host, stats::Times};

/// One invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ControlPlane {
    pub(crate) schema: u32,
    /// The command that it was, without the program's path.
    pub(crate) command: String,
    /// When it ended.
    pub(crate) at: DateTime<Utc>,
    /// How long all of it took.
    pub(crate) seconds: f64,
    pub(crate) host: Host,
    /// Time for which jobs were submitted, and for which those that ended are counted.
    pub(crate) load_seconds: f64,
    /// Jobs that ended in that time.
    pub(crate) jobs: u64,
    pub(crate) jobs_per_second: f64,
    /// Requests that submitted many jobs.
    pub(crate) submit_many_ms: Option<Times>,
    /// Requests that submitted one job each, every 50 ms, at the same time.
    pub(crate) submit_ms: Option<Times>,
    pub(crate) used: Vec<Used>,
    /// All executors together, over the whole run.
    pub(crate) messages: Seen,
    /// Of the database's own counters.
    pub(crate) commits_per_job: f64,
    pub(crate) rows_per_job: f64,
    pub(crate) record: Record,
    /// Without load, by how much the database holds.
    pub(crate) sizes: Vec<Size>,
    /// The bare broker and the bare database, both at the same time.
    pub(crate) bare: Option<Bare>,
}

/// What stands in the record in the end, and what the API shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) accepted: u64,
    pub(crate) ended: u64,
    pub(crate) succeeded: u64,
    pub(crate) results: u64,
    /// Jobs without exactly one result and the five events of a job that ran once.
    pub(crate) wrong: u64,
    pub(crate) events: BTreeMap<String, u64>,
    /// Jobs that were fetched back over HTTP, and those of them that are shown as succeeded.
    pub(crate) fetched: u64,
    pub(crate) fetched_succeeded: u64,
}

/// Without load, with so many jobs in the database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) stored_jobs: u64,
    /// How old the oldest snapshot was that was held open meanwhile.
    pub(crate) snapshot_seconds: Option<f64>,
    /// One job over HTTP.
    pub(crate) submit_ms: Option<Times>,
    /// One call that makes two attempts, in the store.
    pub(crate) dispatch_ms: Option<Times>,
}

/// The ceiling: messages of the same number and length through queues of the same kind, and as many rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) jobs: u64,
    /// Jobs of one transaction of the bare database.
    pub(crate) batch: u32,
    pub(crate) broker_seconds: f64,
    pub(crate) database_seconds: f64,
    /// By the slower of both.
    pub(crate) jobs_per_second: f64,
    /// Our rate by that.
    pub(crate) ratio: f64,
}

impl Record {
    /// Whether every accepted job has one end, one result, its events, and is shown.
    pub(crate) fn is_whole(&self) -> bool {
        let all = [
            self.ended,
            self.succeeded,
            self.results,
            self.fetched,
            self.fetched_succeeded,
        ];
        self.wrong == 0 && all.iter().all(|count| *count == self.accepted)
    }
}
