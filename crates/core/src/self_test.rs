//! What a self-test of an executor's host has found: whether sandboxes held against hostile programs.

use std::fmt;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde::{Deserialize, Serialize};

/// Most runtimes, accepted floors or failures that are named.
pub const MAX_NAMED: usize = 64;

/// Longest text of one of them, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;

/// The outcome of one self-test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfTest {
    /// When it ended, by the clock of the executor, to the millisecond.
    #[serde(serialize_with = "crate::audit::timestamp")]
    pub at: DateTime<Utc>,
    /// Whether the host may run jobs by it.
    pub result: SelfTestResult,
    /// The runtimes that it was made on; none where it was left out. At most [`MAX_NAMED`].
    pub runtimes: Vec<String>,
    /// Hostile programs that were tried, on all runtimes together.
    pub programs: u32,
    /// What did not hold, or could not be tried. At most [`MAX_NAMED`].
    pub failures: Vec<SelfTestFailure>,
    /// What the host misses, by the names of `mayfly doctor`: where it has not failed for that, it is accepted, by name or by
    /// a posture that asks for nothing. At most [`MAX_NAMED`].
    pub accepted: Vec<String>,
}

/// Whether a host may run jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestResult {
    /// Every program was held.
    Passed,
    /// Something did not hold, or could not be tried.
    Failed,
    /// It was not made, by the word of whoever runs the executor: whether sandboxes hold is not known.
    LeftOut,
}

/// A program that was not held, or could not be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelfTestFailure {
    /// On which runtime; `host`, where it is about the host.
    pub runtime: String,
    /// Which program, or what the host misses.
    pub probe: String,
    /// What it got, or why it could not be tried.
    pub why: String,
}

impl fmt::Display for SelfTestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.probe, self.runtime, self.why)
    }
}

impl SelfTest {
    /// The same within its bounds: what is over them is cut off.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.at = self.at.trunc_subsecs(3);
        for list in [&mut self.runtimes, &mut self.accepted] {
            list.truncate(MAX_NAMED);
            list.iter_mut().for_each(cut);
        }
        self.failures.truncate(MAX_NAMED);
        for failure in &mut self.failures {
            cut(&mut failure.runtime);
            cut(&mut failure.probe);
            cut(&mut failure.why);
        }
        self
    }

    /// Whether the host may run jobs.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        match self.result {
            SelfTestResult::Passed | SelfTestResult::LeftOut => true,
            SelfTestResult::Failed => false,
        }
    }

    /// The longest of its lists.
    #[must_use]
    pub fn most_named(&self) -> usize {
        self.runtimes
            .len()
            .max(self.accepted.len())
            .max(self.failures.len())
    }

    /// The longest of its texts, in bytes.
    #[must_use]
    pub fn longest_text(&self) -> usize {
        let of_failures = self
            .failures
            .iter()
            .flat_map(|failure| [&failure.runtime, &failure.probe, &failure.why]);
        let texts = self.runtimes.iter().chain(&self.accepted).chain(of_failures);
        texts.map(String::len).max().unwrap_or(0)
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_bounds_is_cut_off_between_letters() {
        let long = "ä".repeat(MAX_TEXT_BYTES);
        let failure = SelfTestFailure {
            runtime: "runc".to_owned(),
            probe: "memory".to_owned(),
            why: format!("-{long}"),
        };
        let test = SelfTest {
            at: DateTime::from_timestamp_nanos(1_790_000_000_456_789_012),
            result: SelfTestResult::Failed,
            runtimes: vec!["runc".to_owned(); MAX_NAMED + 1],
            programs: 20,
            failures: vec![failure; MAX_NAMED + 1],
            accepted: vec![long],
        };
        assert_eq!(test.most_named(), MAX_NAMED + 1);
        let test = test.bounded();
        assert_eq!(test.most_named(), MAX_NAMED);
        assert_eq!(test.longest_text(), MAX_TEXT_BYTES);
        assert_eq!(test.failures[0].why.len(), MAX_TEXT_BYTES - 1);
        let text = serde_json::to_string(&test).unwrap();
        assert!(text.contains("\"2026-09-21T14:13:20.456Z\""), "{text}");
        assert_eq!(
            serde_json::from_str::<SelfTest>(&text).unwrap(),
            test,
            "it reads back as it was"
        );
    }

    #[test]
    fn only_a_failure_makes_a_host_unfit() {
        let fit = |result| {
            let test = SelfTest {
                at: DateTime::UNIX_EPOCH,
                result,
                runtimes: Vec::new(),
                programs: 0,
                failures: Vec::new(),
                accepted: Vec::new(),
            };
            test.is_fit()
        };
        assert!(fit(SelfTestResult::Passed) && fit(SelfTestResult::LeftOut));
        assert!(!fit(SelfTestResult::Failed));
    }
}
