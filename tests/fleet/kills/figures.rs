//! What a run came to, as a table.

use std::time::Duration;

use super::run::KILL;
use crate::history::{Counts, Struck};

/// What one trouble did to the programs that ran when it began.
#[derive(Debug)]
pub struct Trial {
    pub what: String,
    pub took: Duration,
    /// What runs is not harmed by a trouble that is no longer than this.
    pub promised: Duration,
    /// Programs that ran when it began.
    pub running: usize,
    /// Those that did not come to their own end, or whose result is not their job's.
    pub harmed: usize,
    /// Attempts that were called lost meanwhile.
    pub called_lost: usize,
}

impl Trial {
    /// Whether it was over soon enough to be held against what is promised. A broker takes its time on a busy machine.
    pub fn is_within_promise(&self) -> bool {
        self.took <= self.promised
    }
}

/// All of it.
#[derive(Debug)]
pub struct Figures {
    pub counts: Counts,
    pub denied_starts: usize,
    pub trials: Vec<Trial>,
    pub took: Duration,
}

impl Figures {
    /// Whether the run shows that nothing is lost or doubled.
    pub fn verdict(&self) -> Result<(), String> {
        for trial in &self.trials {
            if trial.running == 0 {
                return Err(format!("nothing ran when {}", trial.what));
            }
            if trial.is_within_promise() && trial.harmed + trial.called_lost > 0 {
                return Err(format!("running jobs were harmed: {trial:?}"));
            }
        }
        self.counts.verdict()
    }

    /// What the kills came to.
    pub fn kills(&self) -> Struck {
        self.counts.faults.get(KILL).copied().unwrap_or_default()
    }

    /// For people, and for the page that is made of it.
    pub fn table(&self) -> String {
        let (counts, kills) = (&self.counts, self.kills());
        let mut rows: Vec<(String, String)> = [
            ("jobs", counts.jobs),
            ("results", counts.results),
            ("lost", counts.lost),
            ("double", counts.double),
            ("resurrected", counts.resurrected),
            ("phantom", counts.phantom),
            ("orphans", counts.orphan),
            ("kills of an executor", kills.faults),
            ("kills that cut a running job", kills.cuts),
            ("starts that were heard", counts.starts),
            ("denied starts", self.denied_starts),
            ("superseded results", counts.superseded),
        ]
        .map(|(name, count)| (name.to_owned(), count.to_string()))
        .to_vec();
        for trial in &self.trials {
            rows.push((
                format!("{}, {} s: running jobs", trial.what, trial.took.as_secs()),
                format!(
                    "{}, harmed {}, called lost {}{}",
                    trial.running,
                    trial.harmed,
                    trial.called_lost,
                    if trial.is_within_promise() {
                        ""
                    } else {
                        "; it took longer than is promised, and is not judged"
                    }
                ),
            ));
        }
        rows.push(("seconds".to_owned(), self.took.as_secs().to_string()));
        rows.into_iter()
            .map(|(name, figure)| format!("| {name} | {figure} |\n"))
            .collect()
    }
}
