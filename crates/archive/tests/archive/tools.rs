//! Archives as the tools of this machine write them are taken. Those that are not here are left out, and said.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use mayfly_archive::Format;
use tempfile::TempDir;

use crate::{python::skipped, read};

/// What is in the project, and the mode of each file.
fn project(folder: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
    let long = format!("{}/{}/{}", "a".repeat(120), "b".repeat(120), "c".repeat(120));
    let files: [(&str, Vec<u8>, u32); 5] = [
        ("main.py", b"print(1)\n".repeat(500), 0o644),
        ("pkg/__init__.py", Vec::new(), 0o644),
        ("bin/tool", b"#!/bin/sh\n".to_vec(), 0o755),
        ("pkg/data.bin", (0..=255).collect(), 0o644),
        (&long, b"far away".to_vec(), 0o644),
    ];
    for (path, content, mode) in &files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
    }
    let entry = |(path, content, mode): (&str, Vec<u8>, u32)| (path.to_owned(), (content, mode));
    files.into_iter().map(entry).collect()
}

/// What a command writes to its standard output; nothing where there is no such program.
fn output(folder: &Path, script: &str) -> Option<Vec<u8>> {
    let program = script.split(' ').next().unwrap();
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .unwrap();
    if !found.status.success() {
        skipped(&format!("{program} is not here"));
        return None;
    }
    let run = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    Some(run.stdout)
}

#[test]
fn what_the_usual_tools_write_is_taken() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("project");
    let expected = project(&place);
    let git = "git init -q && git add -A && git -c user.name=a -c user.email=a@example.com commit -q -m a";
    let has_git = output(&place, git).is_some();
    let mut scripts = vec![
        ("zip -q -r ../a.zip * && cat ../a.zip", Format::Zip),
        ("zip -q -r - * | cat", Format::Zip),
        ("jar cfM ../a.jar main.py pkg bin a* && cat ../a.jar", Format::Zip),
        ("tar -c --format=gnu --exclude=.git .", Format::Tar),
        ("tar -c --format=posix --exclude=.git .", Format::Tar),
        ("tar -c --format=oldgnu main.py pkg bin a*", Format::Tar),
        ("tar -cz main.py pkg bin a*", Format::TarGz),
    ];
    if has_git {
        scripts.extend([
            ("git archive --format=zip HEAD", Format::Zip),
            ("git archive --format=tar HEAD", Format::Tar),
            ("git archive --format=tar.gz HEAD", Format::TarGz),
        ]);
    }
    for (script, format) in scripts {
        let Some(archive) = output(&place, script) else {
            continue;
        };
        assert_eq!(Format::of(&archive), Some(format), "{script}");
        let expanded = read(&archive, format);
        assert_eq!(expanded.problems, [], "{script}");
        let found: BTreeMap<_, _> = expanded
            .files
            .into_iter()
            .map(|file| {
                let mode = file.mode.unwrap_or_else(|| expected[&file.path].1);
                // git knows of its files whether they may be executed, and writes 0664 and 0775.
                let mode = if script.starts_with("git") {
                    mode & !0o020
                } else {
                    mode
                };
                (file.path, (file.content, mode))
            })
            .collect();
        assert_eq!(found, expected, "{script}");
    }
}
