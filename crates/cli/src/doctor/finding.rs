//! One finding: what was found, what it means, how to mend it.

use std::fmt::Display;

use serde::Serialize;

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing to be done.
    Note,
    /// Weaker than it could be; jobs run.
    Warning,
    /// Jobs don't run, or not safely.
    Problem,
    /// Not looked at, for the reason given.
    Skipped,
}

impl Status {
    pub(crate) const ALL: [Self; 5] = [Self::Ok, Self::Note, Self::Warning, Self::Problem, Self::Skipped];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Skipped => "skipped",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// `area.what`; stays the same from version to version.
    pub(crate) id: String,
    pub(crate) status: Status,
    /// What was found.
    pub(crate) found: String,
    /// What it means, in a sentence.
    pub(crate) means: String,
    /// How to mend it, in a sentence or a command; empty where there is nothing to be done.
    pub(crate) mend: String,
}

impl Finding {
    pub(crate) fn new(id: impl Display, status: Status, found: impl Display) -> Self {
        Self {
            id: id.to_string(),
            status,
            found: found.to_string(),
            means: String::new(),
            mend: String::new(),
        }
    }

    pub(crate) fn ok(id: impl Display, found: impl Display) -> Self {
        Self::new(id, Status::Ok, found)
    }

    pub(crate) fn note(id: impl Display, found: impl Display) -> Self {
        Self::new(id, Status::Note, found)
    }

    pub(crate) fn warning(id: impl Display, found: impl Display) -> Self {
        Self::new(id, Status::Warning, found)
    }

    pub(crate) fn problem(id: impl Display, found: impl Display) -> Self {
        Self::new(id, Status::Problem, found)
    }

    pub(crate) fn skipped(id: impl Display, why: impl Display) -> Self {
        Self::new(id, Status::Skipped, why)
    }

    pub(crate) fn means(mut self, means: impl Display) -> Self {
        self.means = means.to_string();
        self
    }

    pub(crate) fn mend(mut self, mend: impl Display) -> Self {
        self.mend = mend.to_string();
        self
    }

    /// The part of the id before the first dot.
    pub(crate) fn area(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }
}
