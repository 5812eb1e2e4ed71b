//! What was found, as it is written down.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What was found of one program. Empty lists are what must be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) tries: String,
    /// State and cause, as on record.
    pub(crate) ended: String,
    /// How long it ran.
    pub(crate) seconds: Option<f64>,
    /// What has changed on the host, was reached or read from there, or was left there.
    pub(crate) host: Vec<String>,
    /// What has happened to a neighbour.
    pub(crate) neighbour: Vec<String>,
    /// Where its outcome is another one than it truly was.
    pub(crate) outcome: Vec<String>,
    /// Where it says that it was answered something else than is expected.
    pub(crate) words: Vec<String>,
}

impl Found {
    pub(crate) fn into_faults(self) -> Vec<String> {
        let lists = [
            ("host", self.host),
            ("neighbour", self.neighbour),
            ("outcome", self.outcome),
            ("words", self.words),
        ];
        let id = self.id;
        lists
            .into_iter()
            .flat_map(|(kind, list)| list.into_iter().map(move |fault| (kind, fault)))
            .map(|(kind, fault)| format!("{id}: {kind}: {fault}"))
            .collect()
    }

    /// In a word.
    pub(crate) fn verdict(&self) -> &'static str {
        if !self.host.is_empty() {
            "**the host was reached**"
        } else if !self.neighbour.is_empty() {
            "**a neighbour was reached**"
        } else if !self.outcome.is_empty() {
            "**another outcome**"
        } else if !self.words.is_empty() {
            "**another answer**"
        } else {
            "held"
        }
    }
}

/// The executor, after the first honest jobs (at the most) and after the last (at the least).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Executor {
    pub(crate) descriptors: [u64; 2],
    pub(crate) threads: [u64; 2],
    /// Its own, without pages of files.
    pub(crate) memory_bytes: [u64; 2],
}

impl Executor {
    pub(crate) fn faults(&self, memory_room: u64) -> Vec<String> {
        [
            ("descriptors", self.descriptors, 0),
            ("threads", self.threads, 0),
            ("bytes of memory", self.memory_bytes, memory_room),
        ]
        .into_iter()
        .filter(|(_, [before, after], room)| *after > before + room)
        .map(|(what, [before, after], _)| format!("the executor had {before} {what}, and has {after}"))
        .collect()
    }
}

/// What was found on one runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OfRuntime {
    pub(crate) runtime: String,
    pub(crate) seconds: f64,
    pub(crate) programs: Vec<Found>,
    /// Honest jobs among them.
    pub(crate) honest: usize,
    pub(crate) honest_faults: Vec<String>,
    /// Of the neighbour.
    pub(crate) beats: u64,
    pub(crate) longest_without_a_beat_ms: u64,
    pub(crate) executor: Executor,
    /// What was wrong when all was over.
    pub(crate) at_the_end: Vec<String>,
}

impl OfRuntime {
    pub(crate) fn wrong(&self) -> Vec<String> {
        let programs = self.programs.iter().cloned().flat_map(Found::into_faults);
        programs
            .chain(self.honest_faults.iter().cloned())
            .chain(self.at_the_end.iter().cloned())
            .collect()
    }

    /// How many programs there are; some are run several times at once.
    pub(crate) fn distinct(&self) -> usize {
        let ids = self.programs.iter().map(|found| found.id.split('.').next());
        ids.collect::<std::collections::BTreeSet<_>>().len()
    }

    pub(crate) fn summary(&self) -> Value {
        json!({
            "runtime": self.runtime, "programs": self.programs.len(), "honest": self.honest, "wrong": self.wrong().len(),
            "seconds": self.seconds, "beats": self.beats, "longest_without_a_beat_ms": self.longest_without_a_beat_ms,
            "executor": self.executor,
        })
    }
}
