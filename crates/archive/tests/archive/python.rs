//! Against Python's `zipfile` and `tarfile`: whatever is accepted here, they see the same in it.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

use mayfly_archive::{Expanded, Format};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    build::gzip,
    mutate::{Chance, mutated},
    read,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/archive/samples.py");
/// Changed archives for each sample.
const CHANGES: usize = 400;

/// Python with the script in one of its modes.
fn python(mode: &str) -> Option<Child> {
    let started = Command::new("python3")
        .args([SCRIPT, mode])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    match started {
        Ok(child) => Some(child),
        Err(error) => {
            skipped(&format!("python3 can't be started: {error}"));
            None
        }
    }
}

pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        writeln!(log, "archives against Python's: {why}").unwrap();
    }
}

struct Sample {
    name: String,
    format: Format,
    bytes: Vec<u8>,
}

fn word(format: Format) -> &'static str {
    match format {
        Format::Zip => "zip",
        Format::Tar => "tar",
        Format::TarGz => "tar.gz",
    }
}

fn samples() -> Option<Vec<Sample>> {
    let made = python("make")?.wait_with_output().unwrap();
    assert!(made.status.success());
    let lines = made
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let sample = |line: Value| Sample {
        name: line["name"].as_str().unwrap().to_owned(),
        format: match line["format"].as_str().unwrap() {
            "zip" => Format::Zip,
            "tar" => Format::Tar,
            _ => Format::TarGz,
        },
        bytes: hex::decode(line["hex"].as_str().unwrap()).unwrap(),
    };
    Some(lines.map(sample).collect())
}

fn ask(mut to: ChildStdin, samples: &[Sample]) {
    for sample in samples {
        let line = json!({"format": word(sample.format), "hex": hex::encode(&sample.bytes)});
        writeln!(to, "{line}").unwrap();
    }
}

/// What was seen by us, in the words of the script; where Python's mode is of no system with permissions it is left out.
fn ours(expanded: Expanded, theirs: &Value) -> BTreeMap<String, Value> {
    let file = |file: mayfly_archive::File| {
        let theirs = &theirs[&file.path][0];
        let mode = file.mode.map_or_else(|| theirs.clone(), Value::from);
        (
            file.path,
            json!([mode, hex::encode(Sha256::digest(&file.content))]),
        )
    };
    expanded.files.into_iter().map(file).collect()
}

#[test]
fn what_is_accepted_is_what_python_sees() {
    let Some(mut samples) = samples() else {
        return;
    };
    let whole = samples.len();
    let mut chance = Chance(0xa2c4_17e5);
    for at in 0..whole {
        for _ in 0..CHANGES {
            let Sample { name, format, bytes } = &samples[at];
            let bytes = match format {
                // Its bytes are changed before they are compressed, else its checksum says so and nothing more.
                Format::Zip | Format::Tar => mutated(bytes, *format, &mut chance),
                Format::TarGz if chance.below(2) == 0 => mutated(bytes, *format, &mut chance),
                Format::TarGz => {
                    let tar = samples[at - 3].bytes.clone();
                    gzip(&mutated(&tar, Format::Tar, &mut chance))
                }
            };
            samples.push(Sample {
                name: format!("{name}, changed"),
                format: *format,
                bytes,
            });
        }
    }
    let mut python = python("read").expect("it was there a moment ago");
    let (stdin, stdout) = (python.stdin.take().unwrap(), python.stdout.take().unwrap());
    let (mut accepted, mut changed) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| ask(stdin, &samples));
        for (sample, line) in samples.iter().zip(BufReader::new(stdout).lines()) {
            let theirs: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let expanded = read(&sample.bytes, sample.format);
            let is_whole = !sample.name.ends_with("changed");
            if !expanded.problems.is_empty() {
                assert!(!is_whole, "{} is refused: {:?}", sample.name, expanded.problems);
                continue;
            }
            accepted += 1;
            changed += usize::from(!is_whole);
            let files = ours(expanded, &theirs["files"]);
            assert_eq!(
                theirs["files"],
                json!(files),
                "{}: {theirs} in {}",
                sample.name,
                hex::encode(&sample.bytes)
            );
        }
    });
    assert!(python.wait().unwrap().success());
    eprintln!(
        "{} archives, {accepted} accepted, {changed} of these changed",
        samples.len()
    );
    assert!(
        accepted >= whole + 100,
        "changes that change nothing of meaning are accepted: {accepted}"
    );
}
