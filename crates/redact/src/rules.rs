//! Which shapes are taken for tokens.

use sha2::{Digest as _, Sha256};

use crate::machine::Shape;

mod pattern;
mod table;

pub(crate) use table::Entry;

/// The name under which a job's own secrets are counted, and which stands in their marker.
pub const SECRET: &str = "secret";

/// A change of the table or of what a pattern means changes this number.
const VERSION: u32 = 1;

/// The rules in force: built once for a policy, used by any number of streams.
#[derive(Debug, Clone)]
pub struct Rules {
    names: Vec<&'static str>,
    shapes: Vec<Shape>,
    digest: String,
}

/// What a rule is called, what it looks for and who published that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo {
    /// Stands in the marker and in the record: lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Who says that tokens look so.
    pub source: &'static str,
    entry: &'static Entry,
}

impl RuleInfo {
    /// Each shape of the rule as a regular expression of bytes. What stands before `\K` stays in the text, and a word
    /// that ends in an escape is none to `(?<!\w)`: both as docs/redaction.md says.
    pub fn patterns(&self) -> Vec<String> {
        self.entry.shapes.iter().map(table::Source::pattern).collect()
    }
}

/// No rule has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no redaction rule {name:?}")]
pub struct UnknownRule {
    /// What was asked for.
    pub name: String,
}

impl Rules {
    /// Every rule there is, in their order.
    pub fn known() -> impl Iterator<Item = RuleInfo> {
        let info = |entry: &'static Entry| RuleInfo {
            name: entry.name,
            source: entry.source,
            entry,
        };
        table::ENTRIES.iter().flat_map(|entries| entries.iter()).map(info)
    }

    /// All rules.
    pub fn all() -> Self {
        Self::of(Self::known().collect())
    }

    /// No rule: a job's own secrets alone.
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// All rules but these.
    ///
    /// # Errors
    /// A name that no rule has: a misspelt exception must not pass for one.
    pub fn without(names: &[&str]) -> Result<Self, UnknownRule> {
        if let Some(name) = names
            .iter()
            .find(|name| Self::known().all(|rule| rule.name != **name))
        {
            return Err(UnknownRule {
                name: (*name).to_owned(),
            });
        }
        Ok(Self::of(
            Self::known().filter(|rule| !names.contains(&rule.name)).collect(),
        ))
    }

    fn of(rules: Vec<RuleInfo>) -> Self {
        let mut hash = Sha256::new();
        hash.update(format!("mayfly redaction rules {VERSION}\n"));
        let (mut names, mut shapes) = (Vec::new(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            names.push(rule.name);
            for source in rule.entry.shapes {
                hash.update(format!("{} {source:?}\n", rule.name));
                shapes.push(source.compile(index));
            }
        }
        Self {
            names,
            shapes,
            digest: format!("sha256:{}", hex::encode(hash.finalize())),
        }
    }

    /// The version of the whole set, from 1.
    pub fn version(&self) -> u32 {
        VERSION
    }

    /// `sha256:…` of version, names and patterns in force: what the record says that was looked for.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The names of the rules in force, in their order.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    pub(crate) fn shapes(&self) -> &[Shape] {
        &self.shapes
    }
}
