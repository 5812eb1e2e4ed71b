//! Archives by hand, by Python and by chance, and what becomes of them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what is not there ends a test; a test that is left out says so"
)]

mod bounds;
mod build;
#[path = "../../../../fuzz/properties/archive.rs"]
mod fuzzed;
mod mutate;
mod python;
mod seeds;
mod tar;
mod tools;
mod zip;

use mayfly_archive::{Expanded, Format, Limits, Tree, expand};

/// As much as the usual policy lets a job have.
const USUAL: Limits = Limits {
    bytes: 16 << 20,
    files: 1000,
    path_bytes: 1024,
};

fn read(archive: &[u8], format: Format) -> Expanded {
    expand(archive, format, "", &USUAL, &mut Tree::default())
}

/// The names and words of all that is wrong.
fn problems(archive: &[u8], format: Format) -> Vec<(Option<String>, &'static str)> {
    let expanded = read(archive, format);
    assert!(
        expanded.problems.is_empty() || expanded.files.is_empty(),
        "a refused archive has no file"
    );
    expanded
        .problems
        .into_iter()
        .map(|problem| (problem.name, problem.code))
        .collect()
}

/// What is wrong with all of it, in words.
fn message(archive: &[u8], format: Format) -> String {
    let expanded = read(archive, format);
    let messages: Vec<_> = expanded
        .problems
        .into_iter()
        .map(|problem| problem.message)
        .collect();
    messages.join("; ")
}
