//! The table of docs/outcomes.md as a test: each line is a program, run by the real binary on the real engine.

mod support;

use std::{collections::BTreeMap, process::Output};

use serde_json::Value;
use support::Mayfly;

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    state: String,
    cause: String,
    exit_code: i32,
}

/// The lines of the table "Which program ends how", by program.
fn table() -> BTreeMap<String, Row> {
    let text = include_str!("../../docs/outcomes.md");
    let section = text
        .split("## Which program ends how")
        .nth(1)
        .expect("the section is there");
    let section = section.split("\n## ").next().expect("a section has an end");
    section
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<_> = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect();
            let [program, state, cause, exit_code] = cells.try_into().expect("four columns");
            (
                program,
                Row {
                    state,
                    cause,
                    exit_code: exit_code.parse().expect("an exit code"),
                },
            )
        })
        .collect()
}

/// The programs of the table that become a job: their text, and flags.
fn programs() -> Vec<(&'static str, &'static [u8], &'static [&'static str])> {
    vec![
        (
            "the 30th Fibonacci number",
            include_bytes!("../../examples/fibonacci.py"),
            &[],
        ),
        (
            "prints 1 GB",
            b"import os\nblock = b'x' * (1 << 20)\nfor _ in range(1000):\n    view = memoryview(block)\n    \
              while view:\n        view = view[os.write(1, view):]\n",
            &["--timeout", "60s"],
        ),
        (
            "never ends",
            b"print('begun', flush=True)\nwhile True: pass\n",
            &["--timeout", "1s"],
        ),
        ("forks without end", b"import os\nwhile True: os.fork()\n", &[]),
        (
            "allocates without end",
            b"kept = []\nwhile True: kept.append(bytearray(1 << 20))\n",
            &["--memory", "64MiB"],
        ),
        (
            "writes invalid UTF-8 and NUL",
            b"import os\nos.write(1, b'a\\0b\\xff\\xfec')\nos.write(2, b'\\0\\x80')\n",
            &[],
        ),
        ("exits 137 by itself", b"import sys\nsys.exit(137)\n", &[]),
        (
            "killed by a signal",
            b"import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            &[],
        ),
        (
            "a child killed for memory, the parent exits 0",
            CHILD_KILLED,
            &["--memory", "64MiB"],
        ),
        (
            "a child killed for memory, the parent exits 1",
            CHILD_KILLED,
            &["--memory", "64MiB", "--env", "CODE=1"],
        ),
        (
            "writes more to stdout than is kept, policy `kill`",
            b"while True: print('x' * 1000)\n",
            &["--stdout", "4KiB"],
        ),
        (
            "writes more to stderr than is kept, policy `kill`",
            b"import sys\nprint('kept', flush=True)\nwhile True: print('x' * 1000, file=sys.stderr)\n",
            &["--stderr", "4KiB"],
        ),
        ("a syntax error", b"def f(:\n", &[]),
        ("an empty file", b"", &[]),
    ]
}

const CHILD_KILLED: &[u8] = b"import os, sys\nchild = os.fork()\nif child == 0:\n    kept = []\n    while True: \
                              kept.append(bytearray(1 << 20))\n_, status = os.waitpid(child, 0)\n\
                              assert os.WTERMSIG(status) == 9, status\nsys.exit(int(os.environ.get('CODE', '0')))\n";

/// Flags and engines for which there is no job, and a word that the error must have.
fn refusals() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    vec![
        (
            "a missing file",
            vec!["run", "nothing-of-this-name.py"],
            "nothing-of-this-name.py",
        ),
        ("unknown image", vec!["run", "--image", "cobol", "ok.py"], "cobol"),
        (
            "a tag without a digest",
            vec!["run", "--image", "python:3.13", "ok.py"],
            "tag",
        ),
        ("`--memory 1`", vec!["run", "--memory", "1", "ok.py"], "`1MiB`"),
        ("no engine", vec!["run", "ok.py"], "no container engine answers"),
    ]
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("stdout is not one JSON object: {error}\n{stderr}")
    })
}

#[test]
fn each_program_of_the_table_ends_as_the_table_says() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let table = table();
    let mut wrong = Vec::new();
    for (name, source, flags) in programs() {
        let expected = table
            .get(name)
            .unwrap_or_else(|| panic!("docs/outcomes.md has no line for {name:?}"));
        let file = mayfly.file("program.py", source);
        let mut command = mayfly.command(["run", "--json"]);
        if name.ends_with("policy `kill`") {
            command.env("MAYFLY_POLICY__ON_OUTPUT_LIMIT", "kill");
        }
        let output = command.args(flags).arg(&file).output().unwrap();
        let report = report(&output);
        let found = Row {
            state: report["state"].as_str().unwrap_or_default().to_owned(),
            cause: report["cause"].as_str().unwrap_or_default().to_owned(),
            exit_code: output.status.code().unwrap_or(-1),
        };
        if found != *expected {
            wrong.push(format!(
                "{name}: {expected:?} expected, {found:?} found: {report:#}"
            ));
        }
        match name {
            "the 30th Fibonacci number" => assert_eq!(report["stdout"]["text"], "832040\n"),
            "prints 1 GB" => {
                assert_eq!(report["stdout"]["bytes"], 1_048_576_000u64);
                assert_eq!(report["stdout"]["truncated"], true);
            }
            "never ends" => assert_eq!(
                report["stdout"]["text"], "begun\n",
                "what came before the end is kept"
            ),
            "writes invalid UTF-8 and NUL" => {
                assert_eq!(report["stdout"]["base64"], "YQBi//5j");
                assert_eq!(report["stderr"]["base64"], "AIA=");
            }
            "a child killed for memory, the parent exits 0" => {
                assert!(report["evidence"]["oom_kills"].as_u64() > Some(0), "{report:#}");
            }
            "writes more to stderr than is kept, policy `kill`" => {
                assert_eq!(report["stdout"]["text"], "kept\n");
                assert_eq!(report["stderr"]["truncated"], true);
            }
            "a syntax error" => assert!(report["stderr"]["text"].as_str().unwrap().contains("SyntaxError")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_fails_before_there_is_a_job_says_why_and_leaves_no_row() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    mayfly.file("ok.py", b"print('ok')\n");
    let table = table();
    for (name, args, word) in refusals() {
        let mut command = mayfly.command(args);
        if name == "no engine" {
            command.env("DOCKER_HOST", "unix:///nowhere/engine.sock");
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(table[name].exit_code),
            "{name}: {stderr}"
        );
        assert!(stderr.contains(word), "{name}: {stderr}");
        assert!(output.stdout.is_empty(), "{name}");
    }
    let list = mayfly.command(["job", "list", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&list.stdout), "", "no job was accepted");
}

#[test]
fn output_that_can_not_be_written_here_changes_nothing_about_the_job() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let file = mayfly.file("ok.py", b"print('ok')\n");
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let stdout = mayfly
        .command(["run"])
        .arg(&file)
        .stdout(full())
        .output()
        .unwrap();
    assert_eq!(
        stdout.status.code(),
        Some(73),
        "{}",
        String::from_utf8_lossy(&stdout.stderr)
    );
    let stderr = mayfly
        .command(["run"])
        .arg(&file)
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(
        (stderr.status.code(), &stderr.stdout[..]),
        (Some(0), &b"ok\n"[..])
    );
    let missing = mayfly
        .command(["run", "nothing.py"])
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(66));
    let list = mayfly.command(["job", "list", "--json"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert_eq!(list.matches("\"state\":\"succeeded\"").count(), 2, "{list}");
}

#[test]
fn every_line_of_the_table_is_run() {
    let mut run: Vec<_> = programs().iter().map(|(name, ..)| (*name).to_owned()).collect();
    run.extend(refusals().iter().map(|(name, ..)| (*name).to_owned()));
    run.sort();
    assert_eq!(run, table().into_keys().collect::<Vec<_>>());
}
