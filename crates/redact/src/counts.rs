//! How much was taken out, for the record.

use std::collections::BTreeMap;

/// How many redactions there were, by the name of the rule, and how many bytes they took.
///
/// Counted where they are made: a program that prints a marker of its own changes nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    by_rule: BTreeMap<&'static str, u64>,
    bytes: u64,
}

impl Counts {
    /// Redactions of one rule, or of [`SECRET`](crate::SECRET).
    pub fn of(&self, rule: &str) -> u64 {
        self.by_rule.get(rule).copied().unwrap_or(0)
    }

    /// Each rule that made a redaction, by name, and how many. A rule that made none is not among them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.by_rule.iter().map(|(name, count)| (*name, *count))
    }

    /// All redactions.
    pub fn total(&self) -> u64 {
        self.by_rule.values().sum()
    }

    /// Bytes that were taken out, the markers in their place not counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.by_rule.is_empty()
    }

    /// Adds those of another stream.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in other.iter() {
            *self.by_rule.entry(name).or_default() += count;
        }
        self.bytes += other.bytes;
    }

    pub(crate) fn add(&mut self, rule: &'static str) {
        *self.by_rule.entry(rule).or_default() += 1;
    }

    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}
