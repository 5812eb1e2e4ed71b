//! Both read-backs: what the engine says of the container, and what the kernel says from inside, each compared with the
//! request. A difference is a [`Mismatch`]; one is enough to refuse.
//!
//! The engine's word alone would not do: it echoes the request, also for what it did not apply. The guest's word alone
//! would not do either: some settings can't be seen from inside. What a runtime, an engine or a kernel can't enforce
//! is an explicit entry of [`tables`], and it goes on the record.

use std::collections::BTreeMap;

use mayfly_core::outcome::{Mismatch, MismatchSource};

mod cgroup;
mod identity;
pub(crate) mod inspect;
mod mounts;
mod probes;
pub(crate) mod report;
pub(crate) mod tables;
mod users;

/// Most differences that are kept; more of them say no more.
const MAX_MISMATCHES: usize = 64;
/// Most bytes of a value that is kept in a difference.
const MAX_VALUE: usize = 240;

/// Collects what differs and what can't be enforced.
#[derive(Debug)]
pub(crate) struct Findings {
    source: MismatchSource,
    pub(crate) mismatches: Vec<Mismatch>,
    pub(crate) not_enforceable: BTreeMap<String, String>,
}

impl Findings {
    pub(crate) fn new(source: MismatchSource) -> Self {
        Self {
            source,
            mismatches: Vec::new(),
            not_enforceable: BTreeMap::new(),
        }
    }

    /// Notes a difference unless `same`.
    pub(crate) fn expect(
        &mut self,
        same: bool,
        field: &str,
        asked: impl FnOnce() -> String,
        found: impl FnOnce() -> String,
    ) {
        if same || self.mismatches.len() >= MAX_MISMATCHES {
            return;
        }
        self.mismatches.push(Mismatch {
            source: self.source,
            field: short(field.to_owned()),
            asked: short(asked()),
            found: short(found()),
        });
    }

    /// Notes a difference unless the two are equal.
    pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(&mut self, field: &str, asked: &T, found: &T) {
        self.expect(
            asked == found,
            field,
            || format!("{asked:?}"),
            || format!("{found:?}"),
        );
    }

    /// Notes that something can't be enforced here, and why.
    pub(crate) fn not_enforceable(&mut self, what: &str, reason: &str) {
        self.not_enforceable.insert(what.to_owned(), reason.to_owned());
    }
}

/// A text that a record can hold: what is found comes from outside.
fn short(mut text: String) -> String {
    if text.len() > MAX_VALUE {
        text.truncate(text.floor_char_boundary(MAX_VALUE - '…'.len_utf8()));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod lies;
#[cfg(test)]
mod silence;
