//! The properties of the fuzz target, on its seeds and on changes of these.

use std::{fs, path::PathBuf};

use mayfly_archive::Format;

use crate::{
    fuzzed,
    mutate::{Chance, mutated},
};

fn seeds() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/archive");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn each_seed_holds() {
    let mut met = Vec::new();
    for (path, bytes) in seeds() {
        let accepted = fuzzed::check(&bytes);
        let is_refused = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("refused-");
        assert_eq!(accepted.is_empty(), is_refused, "{}", path.display());
        met.extend(accepted);
    }
    for format in [Format::Zip, Format::Tar, Format::TarGz] {
        assert!(met.contains(&format), "{format:?}");
    }
}

#[test]
fn what_changed_archives_are_taken_for() {
    let mut chance = Chance(0x5eed);
    for (_, bytes) in seeds() {
        let format = Format::of(&bytes).unwrap();
        for _ in 0..2000 {
            fuzzed::check(&mutated(&bytes, format, &mut chance));
        }
    }
}
