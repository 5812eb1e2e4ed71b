//! One runtime's programs through one process, and what the host's side saw of each.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    figures::{Executor, Found, OfRuntime},
    ground::Ground,
    judge,
    neighbour::Neighbour,
    table::{self, Program, Runtime},
};
use crate::{
    batch::Batch,
    census::{control_groups, processes_with},
    process::{Process, pause},
    record::Record,
    result,
    support::{Mayfly, skip},
};

/// An honest job, what it prints, and after how many programs one comes.
const HONEST: &str = include_str!("../programs/honest.py");
const HONEST_SAYS: &str = "5c65b25ab52b3cb1 [0, 1, 4, 9] 1048576 42 ['main.py']\n";
const HONEST_EACH: usize = 8;
/// Honest jobs before the first program and after the last: between them the executor is compared with itself.
const HONEST_AT_AN_END: usize = 5;
/// How many run at a time, beside the neighbour.
const SLOTS: u32 = 4;
/// How long all of them may take on a busy machine, and a container's rest after its job's result.
const PATIENCE: Duration = Duration::from_secs(1500);
const REST: Duration = Duration::from_secs(60);
/// By how much an executor's own memory may be larger after all programs than after the first honest jobs, in bytes:
/// what is kept of the longest outputs, and its database's cache.
const MEMORY_ROOM: u64 = 16 << 20;

/// A look at the executor, after so many results.
struct Look {
    results: usize,
    descriptors: usize,
    threads: usize,
    memory: u64,
}

/// Runs them, judges them, writes the figures down where they are wanted, and fails where anything was found.
pub(crate) fn all(mayfly: &Mayfly, runtime: Runtime, engine: &str) {
    let whole = result::is_whole();
    let programs: Vec<Program> = table::all()
        .into_iter()
        .filter(|program| whole || program.always)
        .collect();
    let mut battery = Battery::begin(mayfly, runtime, engine, programs);
    battery.watch();
    let figures = battery.end(mayfly);
    let wrong: Vec<String> = figures.wrong();
    eprintln!("{}", figures.summary());
    if whole {
        result::record(runtime.name(), &figures);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

struct Battery<'a> {
    runtime: Runtime,
    programs: BTreeMap<String, Program>,
    order: Vec<String>,
    ground: Ground,
    neighbour: Neighbour,
    batch: Batch<'a>,
    process: Process,
    looks: Vec<Look>,
    found: BTreeMap<String, Found>,
    begun: Instant,
}

impl<'a> Battery<'a> {
    fn begin(mayfly: &'a Mayfly, runtime: Runtime, engine: &str, programs: Vec<Program>) -> Self {
        let begun = Instant::now();
        let layers = layers(mayfly, engine);
        if layers.is_empty() {
            skip("the image's files after the battery: the engine keeps them on another host");
        }
        let ground = Ground::lay(layers);
        let neighbour = Neighbour::start(mayfly, runtime, engine);
        let env = ground.env();
        let honest = |name: String| {
            json!({
                "id": name, "image": "python", "source": HONEST, "runtime": runtime.name(), "retry": {"max_attempts": 1},
            })
        };
        let mut lines: Vec<Value> = (0..HONEST_AT_AN_END)
            .map(|n| honest(format!("honest-before-{n}")))
            .collect();
        let (mut named, mut order) = (BTreeMap::new(), Vec::new());
        for (at, program) in programs.into_iter().enumerate() {
            if at % HONEST_EACH == HONEST_EACH - 1 {
                lines.push(honest(format!("honest-{at}")));
            }
            let mut env = env.clone();
            env.extend(program.env.clone());
            let files: Vec<Value> = program
                .files
                .iter()
                .map(|(path, content)| json!({"path": path, "content": content}))
                .collect();
            for copy in 1..=program.copies {
                let name = match program.copies {
                    1 => program.id.clone(),
                    _ => format!("{}.{copy}", program.id),
                };
                lines.push(json!({
                    "id": name, "image": "python", "source": program.text(), "runtime": runtime.name(),
                    "retry": {"max_attempts": 1}, "limits": program.limits, "env": env, "files": files,
                }));
                order.push(name.clone());
                named.insert(name, program.clone());
            }
        }
        lines.extend((0..HONEST_AT_AN_END).map(|n| honest(format!("honest-after-{n}"))));
        let count = lines.len();
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let batch = Batch::of_lines(mayfly, engine, count, SLOTS, &lines);
        let process = batch.run();
        Self {
            runtime,
            programs: named,
            order,
            ground,
            neighbour,
            batch,
            process,
            looks: Vec::new(),
            found: BTreeMap::new(),
            begun,
        }
    }

    /// Looks at each result as it comes, at what is left of its container, and at the executor all the while.
    fn watch(&mut self) {
        loop {
            let over = self.process.has_ended();
            let count = self.batch.count_results();
            if let Some((_, memory)) = self.process.memory() {
                self.looks.push(Look {
                    results: count,
                    descriptors: self.process.descriptors(),
                    threads: self.process.threads(),
                    memory,
                });
            }
            if count > self.found.len() {
                for (name, lines) in &self.batch.results() {
                    if !self.found.contains_key(name) {
                        let found = self.judge(name, lines);
                        self.found.insert(name.clone(), found);
                    }
                }
            }
            if over && self.batch.count_results() == self.found.len() {
                return;
            }
            assert!(
                self.begun.elapsed() < PATIENCE,
                "{count} of {} have ended within {PATIENCE:?}",
                self.batch.items
            );
            pause();
        }
    }

    fn judge(&mut self, name: &str, lines: &[Value]) -> Found {
        let report = &lines[0];
        let mut found = Found {
            id: name.to_owned(),
            ended: format!("{} ({})", text(&report["state"]), text(&report["cause"])),
            seconds: report["usage"]["wall_us"].as_f64().map(|us| us / 1e6),
            ..Found::default()
        };
        if lines.len() != 1 {
            found.outcome.push(format!("{} results", lines.len()));
        }
        if let Some(program) = self.programs.get(name) {
            found.tries.clone_from(&program.tries);
            found
                .outcome
                .extend(judge::outcome(program, self.runtime, report));
            found.words = judge::words(program, self.runtime, report);
        } else {
            found.tries = "An honest job: it does what it does alone.".to_owned();
            let says = String::from_utf8_lossy(&judge::bytes(&report["stdout"])).into_owned();
            if report["state"] != "succeeded" || says != HONEST_SAYS {
                found
                    .neighbour
                    .push(format!("an honest job ended so: {report:#}"));
            }
        }
        let written = [judge::bytes(&report["stdout"]), judge::bytes(&report["stderr"])].concat();
        for secret in [self.ground.secret(), self.neighbour.secret()] {
            if written
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
            {
                found.host.push(format!("it has printed {secret}"));
            }
        }
        found.host.extend(self.ground.faults());
        found.host.extend(left_of(report));
        found.neighbour.extend(self.neighbour.effects());
        found
    }

    fn end(mut self, mayfly: &Mayfly) -> OfRuntime {
        let status = self.process.ended(PATIENCE);
        let record = Record::read(&mayfly.database(), self.batch.id).expect("the batch is there");
        // Each has one result, one start, one end, and an audit log that says so.
        record.assert_each_job_has_one_result(self.batch.items);
        self.batch.census.assert_no_orphans(&record.containers());
        let mut at_the_end = self.ground.image_faults();
        let (beats, longest_without_a_beat) = self.neighbour.beats();
        at_the_end.extend(self.neighbour.end());
        if status.code() != Some(1) {
            at_the_end.push(format!("the executor ended with {status}"));
        }
        let executor = executor(&self.looks, self.batch.items);
        at_the_end.extend(executor.faults(MEMORY_ROOM));
        let (hostile, honest): (Vec<Found>, Vec<Found>) = self
            .found
            .into_values()
            .partition(|found| self.programs.contains_key(&found.id));
        let mut hostile = hostile;
        hostile.sort_by_key(|found| self.order.iter().position(|name| *name == found.id));
        OfRuntime {
            runtime: self.runtime.name().to_owned(),
            seconds: self.begun.elapsed().as_secs_f64(),
            programs: hostile,
            honest: honest.len(),
            honest_faults: honest.into_iter().flat_map(Found::into_faults).collect(),
            beats,
            longest_without_a_beat_ms: u64::try_from(longest_without_a_beat.as_millis()).unwrap_or(u64::MAX),
            executor,
            at_the_end,
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("nothing")
}

/// What of a job's container is still on the host a while after its result, by the kernel alone.
fn left_of(report: &Value) -> Vec<String> {
    let Some(container) = report["sandbox"]["container_id"].as_str() else {
        return vec!["no container is on record".to_owned()];
    };
    let begun = Instant::now();
    loop {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let left: Vec<&str> = [
            ("a mount", mounts.contains(container)),
            ("a control group", control_groups().contains(container)),
            ("a process", processes_with(container) > 0),
        ]
        .into_iter()
        .filter_map(|(what, there)| there.then_some(what))
        .collect();
        if left.is_empty() {
            return Vec::new();
        }
        if begun.elapsed() > REST {
            return left
                .iter()
                .map(|what| format!("{what} of container {container} is left"))
                .collect();
        }
        pause();
    }
}

/// The most that the executor had after the first honest jobs, and the least after the last.
fn executor(looks: &[Look], items: usize) -> Executor {
    let few = |look: &&Look| (2..HONEST_AT_AN_END).contains(&look.results);
    let many = |look: &&Look| (items - HONEST_AT_AN_END + 2..items).contains(&look.results);
    let most = |of: fn(&Look) -> u64| looks.iter().filter(few).map(of).max().unwrap_or(0);
    let least = |of: fn(&Look) -> u64| looks.iter().filter(many).map(of).min().unwrap_or(u64::MAX);
    let descriptors = |look: &Look| look.descriptors as u64;
    let threads = |look: &Look| look.threads as u64;
    let memory = |look: &Look| look.memory;
    Executor {
        descriptors: [most(descriptors), least(descriptors)],
        threads: [most(threads), least(threads)],
        memory_bytes: [most(memory), least(memory)],
    }
}

/// The folders in which the engine keeps the image, where they are on this host.
fn layers(mayfly: &Mayfly, engine: &str) -> Vec<PathBuf> {
    let list = mayfly
        .command(["image", "list", "--json"])
        .output()
        .expect("mayfly starts");
    let python: Value = serde_json::from_slice(&list.stdout).expect("a catalog of one image");
    let id = python["pin"]["config_digest"]
        .as_str()
        .expect("a pinned image has an id");
    let mut docker = Command::new("docker");
    docker.args(["image", "inspect", "--format", "{{json .GraphDriver.Data}}", id]);
    if !engine.is_empty() {
        docker.env("DOCKER_HOST", engine);
    }
    let output = docker.output().expect("docker starts").stdout;
    let data: Value = serde_json::from_slice(&output).unwrap_or_default();
    let folders = ["LowerDir", "UpperDir"]
        .iter()
        .filter_map(|name| data[name].as_str());
    let folders = folders.flat_map(|folders| folders.split(':')).map(PathBuf::from);
    folders.filter(|folder| folder.is_dir()).collect()
}
