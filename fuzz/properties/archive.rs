//! What holds of every sequence of bytes that somebody gives as an archive.

use std::collections::BTreeSet;

use mayfly_archive::{Expanded, Format, Limits, MAX_PROBLEMS, Tree, expand, most_expanded};

const LIMITS: Limits = Limits {
    bytes: 200_000,
    files: 20,
    path_bytes: 300,
};

/// Panics if it does not hold of these bytes. Says which formats take them for an archive.
pub(crate) fn check(archive: &[u8]) -> Vec<Format> {
    let mut accepted = Vec::new();
    for format in [Format::Zip, Format::Tar, Format::TarGz] {
        let mut tree = Tree::default();
        tree.insert_file("in/side/taken");
        let expanded = expand(archive, format, "in/side", &LIMITS, &mut tree);
        if expanded.problems.is_empty() {
            holds(&expanded, archive.len() as u64);
            assert_eq!(
                Format::of(archive),
                Some(format),
                "its first bytes say what it is"
            );
            accepted.push(format);
        } else {
            refused(&expanded);
        }
    }
    assert!(accepted.len() <= 1, "it is one thing only: {accepted:?}");
    accepted
}

fn holds(expanded: &Expanded, archive_bytes: u64) {
    let files = &expanded.files;
    assert!(!files.is_empty() && files.len() <= LIMITS.files && expanded.more_problems == 0);
    let total: u64 = files.iter().map(|file| file.content.len() as u64).sum();
    assert!(
        total <= LIMITS.bytes && total <= most_expanded(archive_bytes),
        "{total} bytes"
    );
    let paths: BTreeSet<&str> = files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths.len(), files.len(), "no file takes the place of another");
    assert!(
        !paths.contains("in/side/taken"),
        "nor of one that is there already"
    );
    for path in &paths {
        assert!(
            path.starts_with("in/side/") && path.len() <= LIMITS.path_bytes,
            "{path:?}"
        );
        assert!(!path.chars().any(char::is_control), "{path:?}");
        for part in path.split('/') {
            assert!(!["", ".", ".."].contains(&part) && part.len() <= 255, "{path:?}");
        }
        for (end, _) in path.match_indices('/') {
            assert!(!paths.contains(&path[..end]), "{path:?} is below a file");
        }
    }
    assert!(
        files
            .iter()
            .all(|file| file.mode.is_none_or(|mode| mode <= 0o777))
    );
}

fn refused(expanded: &Expanded) {
    assert!(expanded.files.is_empty(), "a refused archive has no file");
    assert!(expanded.problems.len() <= MAX_PROBLEMS);
    for problem in &expanded.problems {
        assert!(!problem.code.is_empty() && !problem.message.is_empty() && problem.message.len() <= 1000);
        if let Some(name) = &problem.name {
            assert!(
                name.len() <= 600 && !name.chars().any(char::is_control),
                "{name:?}"
            );
        }
    }
}
