//! A batch of programs, run by the real binary, as often as it takes.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use mayfly_core::id::BatchId;
use serde_json::{Value, json};

use crate::{census::Census, process::Process, record::Record, support::Mayfly};

/// A batch that is begun once and resumed from then on.
pub(crate) struct Batch<'a> {
    mayfly: &'a Mayfly,
    pub(crate) census: Census,
    pub(crate) id: BatchId,
    input: PathBuf,
    out: PathBuf,
    slots: u32,
    pub(crate) items: usize,
}

impl<'a> Batch<'a> {
    /// So many items of one program, each tried as often as a job can be; `more` are further fields of each.
    pub(crate) fn new(
        mayfly: &'a Mayfly,
        host: &str,
        items: usize,
        slots: u32,
        program: &str,
        more: &Value,
    ) -> Self {
        let line = |number: usize| {
            let mut line = json!({
                "id": format!("item-{number}"), "image": "python", "source": {"text": program},
                "retry": {"max_attempts": 10},
            });
            let fields = line.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("an object").clone());
            line.to_string() + "\n"
        };
        let lines: String = (0..items).map(line).collect();
        Self::of_lines(mayfly, host, items, slots, &lines)
    }

    /// So many items, each a line of these.
    pub(crate) fn of_lines(mayfly: &'a Mayfly, host: &str, items: usize, slots: u32, lines: &str) -> Self {
        let id = BatchId::new();
        let input = mayfly.file(&format!("{id}.jsonl"), lines.as_bytes());
        Self {
            mayfly,
            census: Census {
                host: host.to_owned(),
                deployment: format!("test-{id}"),
            },
            out: input.with_extension("results"),
            id,
            input,
            slots,
            items,
        }
    }

    /// Begins it.
    pub(crate) fn run(&self) -> Process {
        let mut command = self.command(&["batch", "run"]);
        command.arg(&self.input).arg("--batch").arg(self.id.to_string());
        self.spawn(command)
    }

    /// Goes on with it, wherever it was stopped.
    pub(crate) fn go_on(&self) -> Process {
        // One that was killed while its items were being accepted is begun again, and takes none twice.
        let found = Record::read(&self.mayfly.database(), self.id);
        if found.is_none_or(|found| found.batch.items.is_none()) {
            return self.run();
        }
        let mut command = self.command(&["batch", "resume"]);
        command.arg(self.id.to_string());
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Process {
        let slots = self.slots.to_string();
        command
            .args(["--slots", &slots, "--no-progress", "--out"])
            .arg(&self.out);
        Process::new(
            command
                .stdout(Stdio::null())
                .stdin(Stdio::null())
                .spawn()
                .expect("mayfly starts"),
        )
    }

    /// A command of the same deployment on the same engine.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.mayfly.command(args);
        command.env("MAYFLY_SANDBOX__DEPLOYMENT", &self.census.deployment);
        if !self.census.host.is_empty() {
            command.env("DOCKER_HOST", &self.census.host);
        }
        command
    }

    /// How many lines of results are whole.
    pub(crate) fn count_results(&self) -> usize {
        let bytes = fs::read(&self.out).unwrap_or_default();
        bytes.iter().filter(|byte| **byte == b'\n').count()
    }

    /// The lines that were written so far and are whole: for each item all of its results.
    pub(crate) fn results(&self) -> BTreeMap<String, Vec<Value>> {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let mut results = BTreeMap::<String, Vec<Value>>::new();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value = serde_json::from_str(line).expect("a line of results is JSON");
            let item = line["item"].as_str().expect("each names its item").to_owned();
            results.entry(item).or_default().push(line);
        }
        results
    }
}
