//! What is wrong with an input, all of it at once, each fault with the path of the field that it is about.

use std::fmt;

use serde::Serialize;

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The field, as `limits.memory` or `files[2].path`.
    pub path: String,
    /// A stable word for programs.
    pub code: &'static str,
    /// What is wrong and what would be right, for people.
    pub message: String,
}

/// All that is wrong with an input, in the order of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Faults(Vec<Fault>);

impl Fault {
    /// A fault of one field.
    #[must_use]
    pub fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            code,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl Faults {
    /// Adds one more.
    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Adds those of another part.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each fault.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// The value, if nothing is wrong with it.
    ///
    /// # Errors
    /// The faults, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Text of a tenant, short enough for an error.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
