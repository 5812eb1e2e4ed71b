//! Batches: jobs that were made from one thing.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use mayfly_core::{id::BatchId, job::JobSpec, outcome::EndState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::JobLine;

/// A batch to be begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBatch {
    /// What it is made from, for people.
    #[serde(default)]
    #[schema(max_length = 1024)]
    pub input: String,
}

/// Jobs for a batch: all of them are accepted, or none. Items that it has already stay as they are, so that a submission
/// may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitItems {
    /// The items, at least one and at most 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<NewItem>,
}

/// A job for a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    /// Its name in the batch: 1 to 255 bytes, and the only one of that name.
    #[schema(min_length = 1, max_length = 255)]
    pub item: String,
    /// The job.
    pub job: JobSpec,
}

/// That a batch has all of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteBatch {
    /// How many they are.
    pub items: u64,
}

/// A batch as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// Its id.
    pub batch: BatchId,
    /// What it was made from; empty once that is erased.
    pub input: String,
    /// When it began.
    pub created_at: DateTime<Utc>,
    /// How many jobs it has, once all of them are accepted.
    pub items: Option<u64>,
    /// Its jobs that have not started, or wait for a further attempt.
    pub waiting: u64,
    /// Its jobs that have started.
    pub running: u64,
    /// Its jobs that are over, by how they ended.
    pub ended: BTreeMap<EndState, u64>,
}

/// Batches, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchList {
    /// The batches.
    pub batches: Vec<Batch>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}

/// A job of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchJob {
    /// Its place, from 1.
    pub position: u64,
    /// The name of its item; empty once it is erased.
    pub item: String,
    /// The job.
    #[serde(flatten)]
    pub job: JobLine,
}

/// Jobs of a batch, by their places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchJobList {
    /// The jobs.
    pub jobs: Vec<BatchJob>,
    /// The `cursor` of the next request; none at the end.
    pub next: Option<String>,
}
