//! What a bench has found, as `--json` prints it and `render` reads it. docs/performance.md explains each field.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{machine::Machine, stats::Times};

/// The version of this shape. A field that is taken away, or that means something else, makes a new one.
pub(crate) const SCHEMA: u32 = 1;

/// One invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "bench", rename_all = "snake_case")]
pub(crate) enum Report {
    Latency(Latency),
    Throughput(Throughput),
    #[cfg(feature = "fleet")]
    ControlPlane(Box<super::control_plane::ControlPlane>),
}

/// What both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) schema: u32,
    /// The command that it was, without the program's path.
    pub(crate) command: String,
    /// When it ended.
    pub(crate) at: DateTime<Utc>,
    /// How long all of it took.
    pub(crate) seconds: f64,
    pub(crate) machine: Machine,
    pub(crate) subject: Subject,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// The program's file, or what the built-in one does.
    pub(crate) program: String,
    pub(crate) program_bytes: usize,
    /// SHA-256 of it.
    pub(crate) program_digest: String,
    pub(crate) image: String,
    pub(crate) image_digest: String,
    pub(crate) runtime: String,
    /// Sandboxes that the warm pool keeps ready.
    pub(crate) pool: u32,
}

/// The ways that a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// The engine's command line, with the flags of our sandboxes.
    DockerRun,
    /// The engine's API: create, attach, start, wait, remove.
    Engine,
    /// The whole way of a job, its sandbox made for it on demand.
    Cold,
    /// The whole way of a job, its sandbox taken from the pool.
    Warm,
    /// The same over HTTP: one request, which waits for the job's end.
    Http,
}

impl Way {
    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DockerRun => "docker run",
            Self::Engine => "engine API",
            Self::Cold => "mayfly cold",
            Self::Warm => "mayfly warm",
            Self::Http => "mayfly warm, over HTTP",
        }
    }
}

/// How long one run takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Asked for: runs of the warm ways, of each other way, and before the first that is counted.
    pub(crate) runs: u32,
    pub(crate) slow_runs: u32,
    pub(crate) warm_up: u32,
    /// The rest between two runs; none: until the pool was full and nothing was being removed.
    pub(crate) pause_ms: Option<u64>,
    pub(crate) ways: Vec<WayTimes>,
    pub(crate) ratios: Vec<Ratio>,
    /// Warm runs that found a sandbox ready, and that did not.
    pub(crate) pool_hits: usize,
    pub(crate) pool_misses: usize,
    /// Those of the hits whose program ran in an interpreter that was started before it was known.
    pub(crate) pool_booted: usize,
    /// Warm runs that did not, which `ways` does not count.
    pub(crate) missed: Option<Times>,
}

/// The times of one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WayTimes {
    pub(crate) way: Way,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ms: Option<Times>,
    /// What its program printed in each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_bytes: Option<u64>,
    /// Where the time goes: the median of each part. Medians need not add up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Part>,
}

/// A part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    pub(crate) n: usize,
    pub(crate) p50_ms: f64,
}

/// How many times faster one way is than another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) way: Way,
    pub(crate) than: Way,
    /// The other's median by this one's.
    pub(crate) times_faster: f64,
}

/// How many runs a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Asked for.
    pub(crate) jobs: u32,
    pub(crate) slots: u32,
    pub(crate) blocks: u32,
    pub(crate) limit_seconds: Option<u32>,
    pub(crate) ways: Vec<WayRate>,
    /// Rate of the cold way by the rate of the engine's API alone.
    pub(crate) cold_to_engine: f64,
}

/// The rate of one way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WayRate {
    pub(crate) way: Way,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// In the order in which they were done.
    pub(crate) blocks: Vec<Block>,
    /// All its jobs by all its seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jobs_per_second: Option<f64>,
    /// Time of the CPU that this process itself took for each job, the engine's not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_ms_per_job: Option<f64>,
    /// Jobs that found a sandbox ready; of the warm way alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pool_hits: Option<usize>,
}

/// A block of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) jobs: usize,
    pub(crate) seconds: f64,
}

impl Block {
    /// Jobs a second.
    #[expect(clippy::cast_precision_loss, reason = "no block has 2^52 jobs")]
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.jobs as f64 / self.seconds)
    }
}

impl Report {
    /// One report, or a list of them, as JSON.
    ///
    /// # Errors
    /// Something else, or reports of another schema.
    pub(crate) fn read(json: &[u8]) -> Result<Vec<Self>, String> {
        let json: serde_json::Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let list = match json {
            serde_json::Value::Array(list) => list,
            one => vec![one],
        };
        list.into_iter()
            .map(
                |report| match report.get("schema").and_then(serde_json::Value::as_u64) {
                    Some(schema) if schema == u64::from(SCHEMA) => {
                        serde_json::from_value(report).map_err(|error| error.to_string())
                    }
                    Some(other) => Err(format!(
                        "a report of schema {other}, and this mayfly reads {SCHEMA}"
                    )),
                    None => Err("no report of `mayfly bench`: it has no schema".to_owned()),
                },
            )
            .collect()
    }
}
