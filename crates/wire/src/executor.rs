//! Executors.

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Digest,
    id::{ExecutorId, SessionId},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An executor, and the newest session that it has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Executor {
    /// Its id.
    pub executor: ExecutorId,
    /// What it is called.
    pub name: String,
    /// The pool that it takes jobs of.
    pub pool: String,
    /// How it stands.
    pub state: ExecutorState,
    /// Whether it is to take nothing new.
    pub cordoned: bool,
    /// Since when it may take part.
    pub enrolled_at: DateTime<Utc>,
    /// Its newest session, where it has had one.
    pub session: Option<ExecutorSession>,
}

/// One life of an executor's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutorSession {
    /// Its id.
    pub session: SessionId,
    /// When it began.
    pub opened_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// The end of its lease.
    pub lease_end: DateTime<Utc>,
    /// Attempts that it runs at a time.
    pub slots: u32,
    /// Slots that were free by its newest heartbeat.
    pub free_slots: u32,
    /// Attempts that it has started and that are not over.
    pub running: u64,
    /// Version of its program.
    pub build: String,
    /// The host's name.
    pub host: String,
    /// Its container engine.
    pub engine: String,
    /// Its kernel.
    pub kernel: String,
    /// The images that the host has; none where the executor makes sure of each before a run.
    pub images: Option<Vec<Digest>>,
    /// The newest self-test of its host; none where it makes none.
    pub self_test: Option<SelfTest>,
}

/// Whether sandboxes on a host have held against hostile programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelfTest {
    /// When it ended, by the executor's clock.
    pub at: DateTime<Utc>,
    /// Whether the host may run jobs by it.
    pub result: SelfTestResult,
    /// The runtimes that it was made on.
    pub runtimes: Vec<String>,
    /// Hostile programs that were tried.
    pub programs: u32,
    /// What did not hold, or could not be tried.
    pub failures: Vec<SelfTestFailure>,
    /// Floors that the host misses and that are accepted, by the names of `mayfly doctor`.
    pub accepted: Vec<String>,
}

/// Whether a host may run jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestResult {
    /// Every program was held.
    Passed,
    /// Something did not hold, or could not be tried: the executor takes no jobs.
    Failed,
    /// It was not made, by the word of whoever runs the executor.
    LeftOut,
}

/// A program that was not held, or could not be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelfTestFailure {
    /// On which runtime.
    pub runtime: String,
    /// Which program.
    pub probe: String,
    /// What it got, or why it could not be tried.
    pub why: String,
}

/// How an executor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorState {
    /// It has had no session.
    NeverSeen,
    /// It takes jobs.
    Live,
    /// It is there, and takes nothing new.
    Cordoned,
    /// It is there, and takes nothing new: it has failed its self-test.
    Unfit,
    /// Its newest session is over.
    Gone,
}

/// Executors, by their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutorList {
    /// The executors.
    pub executors: Vec<Executor>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}
