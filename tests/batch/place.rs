//! A batch of a test: its input, the process that runs it, and what came of it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::Mayfly;

/// Longest wait for anything; a machine with much else to do is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A process that runs a batch. It is killed where a test ends before it.
pub(crate) struct Running {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::with_stdout(command, Stdio::null())
    }

    /// One whose results nobody reads.
    pub(crate) fn start_unread(command: &mut Command) -> Self {
        Self::with_stdout(command, Stdio::piped())
    }

    fn with_stdout(command: &mut Command, stdout: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads what it says up to a line with these words.
    pub(crate) fn until_it_says(&mut self, words: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.said.read_line(&mut line).unwrap() > 0,
                "it ended without saying {words:?}"
            );
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Its exit code, and the rest of what it said.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.said, &mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails where the process has ended and been waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits for a state, with a bound.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// A file of lines, one for each name, all with this program.
pub(crate) fn lines(mayfly: &Mayfly, names: impl IntoIterator<Item = String>, source: &str) -> PathBuf {
    let lines: String = names
        .into_iter()
        .map(|name| format!("{}\n", json!({"id": name, "source": source})))
        .collect();
    mayfly.file("jobs.jsonl", lines.as_bytes())
}

/// The lines of results by item, each of which must be there once.
pub(crate) fn results(lines: &str) -> BTreeMap<String, Value> {
    let mut results = BTreeMap::new();
    assert!(
        lines.is_empty() || lines.ends_with('\n'),
        "the last line is whole"
    );
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line).expect("a line is one JSON object");
        let item = value["item"].as_str().unwrap().to_owned();
        assert!(results.insert(item, value).is_none(), "twice: {line}");
    }
    results
}

pub(crate) fn results_in(path: &Path) -> BTreeMap<String, Value> {
    results(&fs::read_to_string(path).unwrap())
}

/// The newest batch as `batch list` shows it.
pub(crate) fn newest(mayfly: &Mayfly) -> Value {
    let listed = output(&mut mayfly.command(["batch", "list", "--json", "--limit", "1"]));
    serde_json::from_slice(&listed.stdout).unwrap_or_default()
}

/// A batch and its items, as `batch show` shows them.
pub(crate) fn show(mayfly: &Mayfly, id: &str) -> (Value, Vec<Value>) {
    let shown = output(&mut mayfly.command(["batch", "show", id, "--json"]));
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let mut values = serde_json::Deserializer::from_slice(&shown.stdout).into_iter::<Value>();
    let batch = values.next().unwrap().unwrap();
    (batch, values.map(Result::unwrap).collect())
}

/// How often each job of a batch has started, by its item.
pub(crate) fn starts(mayfly: &Mayfly, id: &str) -> BTreeMap<String, usize> {
    let (_, items) = show(mayfly, id);
    let starts = |job: &str| {
        let events = output(&mut mayfly.command(["audit", "list", "--json", "--job", job]));
        text(&events.stdout).matches("\"run_started\"").count()
    };
    items
        .iter()
        .map(|item| {
            let name = item["item"].as_str().unwrap().to_owned();
            (name, starts(item["job"].as_str().unwrap()))
        })
        .collect()
}

/// Whether there is no job at all.
pub(crate) fn has_no_job(mayfly: &Mayfly) -> bool {
    output(&mut mayfly.command(["job", "list", "--json"]))
        .stdout
        .is_empty()
}
