//! Rules for what is put into `/work`.

use std::collections::BTreeSet;

use mayfly_archive::Tree;

use crate::{
    fault::{Fault, Faults, excerpt},
    job::{InputFile, JobSpec, archive},
    policy::ContentRules,
};

/// Longest name of one file or directory, in bytes (`NAME_MAX`, limits.h).
const NAME_MAX: usize = 255;

/// Checks all that is put into `/work`, and gives the files of archives.
pub(super) fn check_files(spec: &JobSpec, rules: &ContentRules, faults: &mut Faults) -> Vec<InputFile> {
    let count = spec.files.len() + spec.uploads.len();
    if count > rules.files as usize {
        let message = format!("{count} files are over the policy's ceiling, {}", rules.files);
        faults.push(Fault::new("files", "too_many", message));
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    taken.extend(spec.source.as_ref().map(|source| source.language.interpreter().1));
    for Listed {
        place,
        path,
        twice_moded,
    } in listed(spec)
    {
        if let Some(message) = wrong_path(path, rules) {
            let message = format!("{:?}: {message}", excerpt(path));
            faults.push(Fault::new(format!("{place}.path"), "bad_path", message));
        } else if !taken.insert(path) {
            let message = format!("{path:?} is there twice");
            faults.push(Fault::new(format!("{place}.path"), "duplicate", message));
        }
        if twice_moded {
            let message = "give `mode` or `executable`, not both";
            faults.push(Fault::new(format!("{place}.mode"), "ambiguous", message));
        }
    }
    let secret = |path: &str| format!("secret_files[{:?}]", excerpt(path));
    for path in spec.secret_files.keys() {
        if let Some(message) = wrong_path(path, rules) {
            faults.push(Fault::new(secret(path), "bad_path", message));
        } else if !taken.insert(path.as_str()) {
            faults.push(Fault::new(
                secret(path),
                "duplicate",
                "another file has this path",
            ));
        }
    }
    let files = listed(spec).map(|file| (format!("{}.path", file.place), file.path));
    let secrets = spec.secret_files.keys().map(|path| (secret(path), path.as_str()));
    for (field, path) in files.chain(secrets) {
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        if let Some(parent) = parents.find(|parent| taken.contains(parent)) {
            let message = format!("{:?} can't be below {parent:?}, which is a file", excerpt(path));
            faults.push(Fault::new(field, "below_a_file", message));
        }
    }
    let total = spec.content_bytes();
    if total > rules.total.as_bytes() {
        let message = format!(
            "source, files and stdin are {total} bytes together, over the policy's ceiling, {}",
            rules.total
        );
        faults.push(Fault::new("files", "too_large", message));
    }
    let mut tree = Tree::default();
    taken.into_iter().for_each(|path| tree.insert_file(path));
    archive::files(spec, rules, tree, faults)
}

/// A file that the spec lists by its path.
struct Listed<'a> {
    /// As `files[2]`.
    place: String,
    path: &'a str,
    /// Whether it says its mode in two ways.
    twice_moded: bool,
}

fn listed(spec: &JobSpec) -> impl Iterator<Item = Listed<'_>> {
    let files = spec.files.iter().enumerate().map(|(index, file)| Listed {
        place: format!("files[{index}]"),
        path: &file.path,
        twice_moded: file.executable && file.mode.is_some(),
    });
    let uploads = spec.uploads.iter().enumerate().map(|(index, file)| Listed {
        place: format!("uploads[{index}]"),
        path: &file.path,
        twice_moded: file.executable && file.mode.is_some(),
    });
    files.chain(uploads)
}

/// What is wrong with a file's path, if anything.
pub(in crate::job) fn wrong_path(path: &str, rules: &ContentRules) -> Option<&'static str> {
    if path.len() > rules.path_bytes as usize {
        Some("longer than the policy's ceiling")
    } else if path.starts_with('/') {
        Some("must be relative to /work")
    } else if path.chars().any(char::is_control) {
        Some("control characters are not allowed")
    } else if path
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        Some("empty parts, `.` and `..` are not allowed")
    } else if path.split('/').any(|part| part.len() > NAME_MAX) {
        Some("a part of it is longer than 255 bytes")
    } else {
        None
    }
}
