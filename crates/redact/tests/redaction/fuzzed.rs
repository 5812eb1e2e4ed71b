//! The property of the fuzz target, on its seeds and on changes of these.

use std::fs;

use proptest::{collection::vec, prelude::*, sample::Index};

use crate::redact;

fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/redact");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn each_seed_holds() {
    let mut redactions = 0;
    for seed in seeds() {
        redactions += redact::check(&seed);
    }
    assert!(redactions > 4, "{redactions}");
}

proptest! {
    #[test]
    fn a_changed_seed_holds(
        mut seed in prop::sample::select(seeds()),
        edits in vec((any::<Index>(), 0usize..5, vec(any::<u8>(), 0..5)), 0..5),
    ) {
        for (at, cut, piece) in edits {
            let start = at.index(seed.len() + 1);
            let end = (start + cut).min(seed.len());
            seed.splice(start..end, piece);
        }
        redact::check(&seed);
    }
}
