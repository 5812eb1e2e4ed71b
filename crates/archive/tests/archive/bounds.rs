//! Each bound reached, from both sides.

use std::time::{Duration, Instant};

use mayfly_archive::{FREE_BYTES, Format, Limits, MAX_PROBLEMS, Tree, expand, most_expanded};
use proptest::prelude::*;

use crate::{
    USUAL,
    build::{ZipEntry, deflated, file, gzip, pax, special, stored, tar, zip},
    message, problems, read,
};

fn zeros(bytes: u64) -> Vec<u8> {
    vec![0; usize::try_from(bytes).unwrap()]
}

/// Bytes that don't get shorter by compression.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn codes(archive: &[u8], format: Format) -> Vec<&'static str> {
    problems(archive, format)
        .into_iter()
        .map(|(_, code)| code)
        .collect()
}

#[test]
fn a_bomb_is_refused_by_its_ratio() {
    let (small, large) = (zeros(FREE_BYTES), zeros(FREE_BYTES + 1));
    assert_eq!(codes(&zip(&[deflated("a", &small)]), Format::Zip), [""; 0]);
    assert_eq!(
        problems(&zip(&[deflated("a", &large)]), Format::Zip)[0],
        (Some("a".to_owned()), "ratio")
    );
    // Small enough each, and not together.
    let many = [deflated("a", &small), deflated("b", b"x")];
    assert_eq!(problems(&zip(&many), Format::Zip), [(None, "ratio")]);
    let small = tar(&[file("a", &zeros(FREE_BYTES - 4096))]);
    assert_eq!(codes(&gzip(&small), Format::TarGz), [""; 0]);
    assert_eq!(codes(&gzip(&tar(&[file("a", &large)])), Format::TarGz), ["ratio"]);
    // Content like that of programs is far from it.
    let dense = noise(20_000);
    let content: Vec<u8> = dense.iter().flat_map(|byte| [*byte; 100]).collect();
    for (archive, format) in [
        (zip(&[deflated("a", &content)]), Format::Zip),
        (gzip(&tar(&[file("a", &content)])), Format::TarGz),
    ] {
        assert!(
            content.len() > archive.len() * 20,
            "{} of {}",
            archive.len(),
            content.len()
        );
        assert_eq!(codes(&archive, format), [""; 0]);
    }
}

#[test]
fn content_has_a_bound_in_all() {
    let limits = Limits { bytes: 3000, ..USUAL };
    for (size, code) in [(1000, None), (1001, Some("too_large"))] {
        let content = noise(size);
        let entries = |make: fn(&str, &[u8]) -> ZipEntry| {
            zip(&[
                make("a", &noise(1000)),
                make("b", &noise(1000)),
                make("c", &content),
            ])
        };
        let tarred = tar(&[
            file("a", &noise(1000)),
            file("b", &noise(1000)),
            file("c", &content),
        ]);
        for (archive, format) in [
            (entries(stored), Format::Zip),
            (entries(deflated), Format::Zip),
            (gzip(&tarred), Format::TarGz),
            (tarred, Format::Tar),
        ] {
            let expanded = expand(&archive, format, "", &limits, &mut Tree::default());
            let problem = expanded.problems.first().map(|problem| problem.code);
            assert_eq!(problem, code, "{format:?} {size}");
        }
    }
}

#[test]
fn files_and_folders_have_a_bound_each() {
    let limits = Limits { files: 3, ..USUAL };
    let code = |archive: &[u8], format| {
        let expanded = expand(archive, format, "", &limits, &mut Tree::default());
        expanded.problems.first().map(|problem| problem.code)
    };
    for (count, expected) in [(3, None), (4, Some("too_many"))] {
        let names = |what: &'static str| (0..count).map(move |n| format!("{what}{n}"));
        let files: Vec<_> = names("file").map(|name| stored(&name, b"")).collect();
        assert_eq!(code(&zip(&files), Format::Zip), expected);
        let files: Vec<_> = names("file").map(|name| file(&name, b"")).collect();
        assert_eq!(code(&tar(&files), Format::Tar), expected);
        let mut folders: Vec<_> = names("folder").map(|name| special(b'5', &name, "")).collect();
        folders.push(file("file", b""));
        assert_eq!(code(&tar(&folders), Format::Tar), expected);
        // What is refused for another reason is counted too.
        let links: Vec<_> = names("link").map(|name| special(b'2', &name, "a")).collect();
        let expanded = expand(&tar(&links), Format::Tar, "", &limits, &mut Tree::default());
        assert_eq!(expanded.problems.len(), count, "3 links, and one too many");
    }
}

#[test]
fn a_path_is_counted_with_its_folder() {
    let limits = Limits {
        path_bytes: 10,
        ..USUAL
    };
    for (name, is_right) in [("abcdef", true), ("abcdefg", false)] {
        let expanded = expand(
            &tar(&[file(name, b"")]),
            Format::Tar,
            "in1",
            &limits,
            &mut Tree::default(),
        );
        assert_eq!(expanded.problems.is_empty(), is_right);
        assert!(!is_right || expanded.files[0].path == format!("in1/{name}"));
    }
}

#[test]
fn names_of_others_are_taken() {
    let mut tree = Tree::default();
    tree.insert_file("main.py");
    let first = expand(&tar(&[file("a", b"")]), Format::Tar, "in", &USUAL, &mut tree);
    assert_eq!(first.problems, []);
    for (name, into, code) in [
        ("main.py", "", "duplicate"),
        ("x", "main.py", "below_a_file"),
        ("a", "in", "duplicate"),
        ("in", "", "duplicate"),
    ] {
        let second = expand(&tar(&[file(name, b"")]), Format::Tar, into, &USUAL, &mut tree);
        assert_eq!(second.problems.len(), 1);
        assert_eq!(second.problems[0].code, code, "{name}");
    }
}

#[test]
fn what_is_listed_has_a_bound_and_the_rest_is_counted() {
    let bad: Vec<_> = (0..500).map(|n| stored(&format!("../{n}"), b"")).collect();
    let expanded = read(&zip(&bad), Format::Zip);
    assert_eq!(
        (expanded.problems.len(), expanded.more_problems),
        (MAX_PROBLEMS, 500 - MAX_PROBLEMS)
    );
    // What ended it is among the listed.
    let bad: Vec<_> = (0..2000).map(|n| file(&format!("../{n}"), b"")).collect();
    let expanded = read(&tar(&bad), Format::Tar);
    assert_eq!(expanded.problems.len(), MAX_PROBLEMS);
    assert_eq!(expanded.problems.last().unwrap().code, "too_many");
    assert_eq!(expanded.more_problems, 1001 - MAX_PROBLEMS);
    let long = problems(
        &tar(&[
            pax(b'x', &[&format!("path=../{}", "n".repeat(5000))]),
            file("a", b""),
        ]),
        Format::Tar,
    );
    assert!(long[0].0.as_ref().unwrap().chars().count() <= 121);
}

/// What is hostile takes no longer than what is honest and as large.
#[test]
fn floods_end_soon() {
    let started = Instant::now();
    let header = tar(&[special(b'5', "d", "")])[..512].to_vec();
    let flood = gzip(&header.repeat(100_000));
    assert!(
        problems(&flood, Format::TarGz)
            .iter()
            .any(|(_, code)| ["ratio", "too_large"].contains(code))
    );
    assert!(message(&header.repeat(1_000_000 / 10), Format::Tar).contains("folders"));
    let deep = "a/".repeat(511) + "b";
    let deep: Vec<_> = (0..15_000).map(|n| stored(&format!("{n}{deep}"), b"")).collect();
    assert!(
        problems(&zip(&deep), Format::Zip)
            .iter()
            .any(|(_, code)| *code == "too_many")
    );
    let empty: Vec<_> = (0..65_000).map(|n| stored(&n.to_string(), b"")).collect();
    assert_eq!(problems(&zip(&empty), Format::Zip), [(None, "too_many")]);
    // Empty blocks of deflate: input without output.
    let blocks = [0, 0, 0, 0xff, 0xff].repeat(3 << 20);
    let idle = ZipEntry {
        data: blocks,
        ..deflated("a", b"")
    };
    assert_eq!(codes(&zip(&[idle]), Format::Zip), ["broken"]);
    // The largest that is allowed, as dense as is allowed.
    let largest = gzip(&zeros(most_expanded(130_000)));
    let _ = problems(&largest, Format::TarGz);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

proptest! {
    #[test]
    fn what_is_put_in_comes_out(
        files in prop::collection::btree_map("[a-c]{1,2}(/[a-c]{1,2}){0,2}", prop::collection::vec(any::<u8>(), 0..2000), 1..8),
    ) {
        let zipped: Vec<_> = files.iter().enumerate().map(|(n, (name, content))| {
            if n % 2 == 0 { stored(name, content) } else { deflated(name, content) }
        }).collect();
        let tarred: Vec<_> = files.iter().map(|(name, content)| file(name, content)).collect();
        let clash = files.keys().any(|name| files.keys().any(|other| other.starts_with(&format!("{name}/"))));
        for (archive, format) in [
            (zip(&zipped), Format::Zip),
            (tar(&tarred), Format::Tar),
            (gzip(&tar(&tarred)), Format::TarGz),
        ] {
            let expanded = read(&archive, format);
            prop_assert_eq!(expanded.problems.is_empty(), !clash);
            if !clash {
                let found: std::collections::BTreeMap<_, _> =
                    expanded.files.into_iter().map(|file| (file.path, file.content)).collect();
                prop_assert_eq!(&found, &files);
            }
        }
    }

    #[test]
    fn no_more_comes_out_than_the_limits_say(bytes in 0u64..4000, files in 0usize..5, sizes in prop::collection::vec(0usize..1500, 1..6)) {
        let limits = Limits { bytes, files, path_bytes: 20 };
        let total: usize = sizes.iter().sum();
        let fits = total as u64 <= bytes && sizes.len() <= files;
        let entries: Vec<_> = sizes.iter().enumerate().map(|(n, size)| (n.to_string(), vec![7; *size])).collect();
        let zipped: Vec<_> = entries.iter().map(|(name, content)| deflated(name, content)).collect();
        let tarred: Vec<_> = entries.iter().map(|(name, content)| file(name, content)).collect();
        for (archive, format) in [
            (zip(&zipped), Format::Zip),
            (tar(&tarred), Format::Tar),
            (gzip(&tar(&tarred)), Format::TarGz),
        ] {
            let expanded = expand(&archive, format, "", &limits, &mut Tree::default());
            prop_assert_eq!(expanded.problems.is_empty(), fits, "{:?} {:?}", format, expanded.problems);
        }
    }
}
