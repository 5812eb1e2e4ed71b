//! `mayfly bench` by the real binary on the machine's engine: what it prints, what it counts, that nothing is left of
//! it. No figure is judged here.

mod support;

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use support::{Mayfly, skip};

/// A home, and a deployment that no other test has.
struct Bench {
    mayfly: Mayfly,
    deployment: String,
    /// What the user's database holds before.
    before: String,
}

impl Bench {
    fn set_up() -> Option<Self> {
        let mayfly = Mayfly::with_python()?;
        let deployment = format!("bench-{}", uuid::Uuid::new_v4());
        let mut bench = Self {
            mayfly,
            deployment,
            before: String::new(),
        };
        bench.before = bench.held();
        Some(bench)
    }

    /// Jobs and audit events of the user's database.
    fn held(&self) -> String {
        let lists = ["job", "audit"].map(|list| {
            let output = self.run(&[list, "list", "--json"]);
            assert!(output.status.success());
            String::from_utf8(output.stdout).expect("JSON is UTF-8")
        });
        lists.concat()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.mayfly.command(args);
        command
            .env("MAYFLY_SANDBOX__DEPLOYMENT", &self.deployment)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("mayfly starts")
    }

    /// The report of a bench that went well.
    fn report(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    /// No container, no folder, and nothing in the user's database is left of a bench.
    fn assert_nothing_is_left(&self) {
        let database = self.mayfly.database();
        let folder = database.parent().expect("a database is in a folder");
        let left: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the folder is there")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .filter(|name| name.starts_with("bench-"))
            .collect();
        assert_eq!(left, BTreeSet::new());
        assert_eq!(self.held(), self.before);
        if has_docker() {
            let label = format!("label=mayfly.deployment={}", self.deployment);
            let output = Command::new("docker")
                .args(["ps", "--all", "--quiet", "--filter", &label])
                .output()
                .expect("docker starts");
            assert!(output.status.success());
            assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        }
    }
}

fn has_docker() -> bool {
    let version = Command::new("docker").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// The way of this name in a report.
fn way<'a>(report: &'a Value, name: &str) -> &'a Value {
    let ways = report["ways"].as_array().expect("a list of ways");
    ways.iter()
        .find(|way| way["way"] == name)
        .unwrap_or_else(|| panic!("{name} is not in {report}"))
}

/// The shape of a report: numbers and texts by their kind, lists by their first element, and of the machine the names
/// alone, since not every machine tells all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Bool(_) | Value::Null => value.clone(),
        Value::Array(list) => list.iter().take(1).map(shape).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                ("machine", Value::Object(machine)) => (name.clone(), machine.keys().cloned().collect()),
                _ => (name.clone(), shape(value)),
            })
            .collect(),
    }
}

#[test]
fn latency_runs_the_same_program_by_each_way_and_counts_each_run() {
    let Some(bench) = Bench::set_up() else { return };
    let report = bench.report(&[
        "bench",
        "latency",
        "--runs",
        "3",
        "--slow-runs",
        "2",
        "--warm-up",
        "1",
        "--pool",
        "1",
        "--json",
    ]);
    bench.assert_nothing_is_left();
    assert_eq!(
        (&report["bench"], &report["schema"]),
        (&"latency".into(), &1.into())
    );
    let names = ["engine", "cold", "warm", "http", "docker_run"];
    let names = &names[..if has_docker() {
        5
    } else {
        skip("docker run: no client");
        4
    }];
    for name in names {
        let way = way(&report, name);
        let missed = if *name == "warm" {
            &report["pool_misses"]
        } else {
            &Value::from(0)
        };
        let asked = if ["warm", "http"].contains(name) { 3 } else { 2 };
        assert_eq!(
            way["ms"]["n"]
                .as_u64()
                .zip(missed.as_u64())
                .map(|(n, missed)| n + missed),
            Some(asked),
            "{way}"
        );
        // `42` and a line feed: the program has run, whole.
        assert_eq!(way["stdout_bytes"], 3, "{way}");
        let (min, p50, max) = (&way["ms"]["min"], &way["ms"]["p50"], &way["ms"]["max"]);
        assert!(min.as_f64() > Some(0.0) && min.as_f64() <= p50.as_f64() && p50.as_f64() <= max.as_f64());
    }
    assert_eq!(way(&report, "warm")["ms"]["n"], report["pool_hits"]);
    assert_eq!(report["pool_booted"], report["pool_hits"]);
    // Nothing else was going on, so that the pool was full before each.
    assert_eq!(report["pool_misses"], 0);
    let ratios = report["ratios"].as_array().expect("a list of ratios");
    assert_eq!(ratios.len(), if has_docker() { 9 } else { 5 });
    if has_docker() {
        let shape = serde_json::to_string_pretty(&shape(&report)).expect("JSON");
        insta::assert_snapshot!("latency", shape);
    }
}

/// One run of each of our own ways, without a pool.
const WITHOUT_DOCKER: [&str; 11] = [
    "bench",
    "latency",
    "--runs",
    "1",
    "--warm-up",
    "1",
    "--pool",
    "0",
    "--docker",
    "/not/there",
    "--json",
];

#[test]
fn a_way_that_can_not_be_had_is_skipped_with_the_reason() {
    let Some(bench) = Bench::set_up() else { return };
    let report = bench.report(&WITHOUT_DOCKER);
    bench.assert_nothing_is_left();
    let reason = way(&report, "docker_run")["skipped"].as_str().expect("a reason");
    assert!(reason.contains("/not/there"), "{reason}");
    assert_eq!(way(&report, "warm")["skipped"], "--pool 0");
    assert_eq!(way(&report, "http")["skipped"], "--pool 0");
    assert_eq!(way(&report, "engine")["ms"]["n"], 1);
    assert_eq!(report["ratios"].as_array().map(Vec::len), Some(1));
}

#[test]
fn throughput_does_all_jobs_in_blocks_and_compares_with_the_engine() {
    let Some(bench) = Bench::set_up() else { return };
    let report = bench.report(&[
        "bench",
        "throughput",
        "--jobs",
        "5",
        "--slots",
        "2",
        "--blocks",
        "2",
        "--pool",
        "2",
        "--json",
    ]);
    bench.assert_nothing_is_left();
    for name in ["engine", "cold", "warm"] {
        let way = way(&report, name);
        let blocks = way["blocks"].as_array().expect("a list of blocks");
        let jobs: Vec<_> = blocks.iter().filter_map(|block| block["jobs"].as_u64()).collect();
        assert_eq!(jobs, [2, 3], "{way}");
        assert!(way["jobs_per_second"].as_f64() > Some(0.0), "{way}");
    }
    assert!(report["cold_to_engine"].as_f64() > Some(0.0));
    let shape = serde_json::to_string_pretty(&shape(&report)).expect("JSON");
    insta::assert_snapshot!("throughput", shape);
}

#[test]
fn the_tables_name_each_way_and_a_debug_build() {
    let Some(bench) = Bench::set_up() else { return };
    let program = bench.mayfly.file("two.sh", b"echo one; echo two\n");
    let program = program.to_str().expect("a path in UTF-8");
    let output = bench.run(&[
        "bench",
        "latency",
        "--runs",
        "1",
        "--warm-up",
        "1",
        "--pool",
        "1",
        "--program",
        program,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in [
        "engine API",
        "mayfly cold",
        "mayfly warm",
        "P99",
        "two.sh (19 B)",
        "pool of 1: 1 runs",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(
        text.contains("WARNING: a debug build"),
        cfg!(debug_assertions),
        "{text}"
    );
    bench.assert_nothing_is_left();
}

#[test]
fn what_can_not_be_measured_is_said_and_leaves_nothing() {
    let Some(bench) = Bench::set_up() else { return };
    let failing = bench.mayfly.file("failing.py", b"raise SystemExit(3)\n");
    let large = bench.mayfly.file("large.py", &vec![b'#'; (96 << 10) + 1]);
    let (failing, large) = (failing.to_str().expect("UTF-8"), large.to_str().expect("UTF-8"));
    let cases: [(&[&str], i32, &str); 7] = [
        (&["latency", "--runs", "0"], 64, "--runs"),
        (&["throughput", "--slots", "17"], 64, "--slots"),
        (&["latency", "--program", "/not/there.py"], 66, "/not/there.py"),
        (&["latency", "--program", large], 64, "96 KiB"),
        (&["latency", "--image", "nameless"], 68, "nameless"),
        (&["latency", "--runs", "1", "--program", failing], 70, "3"),
        (
            &["throughput", "--jobs", "2", "--program", failing],
            70,
            "exit code 3",
        ),
    ];
    for (args, code, says) in cases {
        let output = bench.run(&[&["bench"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    }
    bench.assert_nothing_is_left();
    let output = bench
        .command(&["bench", "latency"])
        .env("MAYFLY_SANDBOX__ENGINE", "unix:///not/there.sock")
        .output()
        .expect("mayfly starts");
    assert_eq!(output.status.code(), Some(69));
}

#[test]
fn an_interrupt_ends_it_and_everything_is_removed() {
    let Some(bench) = Bench::set_up() else { return };
    let mut child = bench
        .command(&[
            "bench",
            "latency",
            "--runs",
            "100000",
            "--warm-up",
            "1",
            "--pool",
            "1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mayfly starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe was asked for")).lines();
    let begun = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("the ways in turn")));
    assert!(begun.is_some(), "it ended before it was measuring");
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("kill starts").success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{rest:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    bench.assert_nothing_is_left();
}

#[test]
fn a_page_is_made_of_reports_and_of_nothing_else() {
    let Some(bench) = Bench::set_up() else { return };
    let report = bench.report(&WITHOUT_DOCKER);
    let render = |name: &str, content: &str| {
        let file = bench.mayfly.file(name, content.as_bytes());
        bench.run(&["bench", "render", file.to_str().expect("UTF-8")])
    };
    let one = render("one.json", &report.to_string());
    let listed = render("list.json", &format!("[{report}]"));
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    assert_eq!(one.stdout, listed.stdout);
    let page = String::from_utf8_lossy(&one.stdout);
    assert!(
        page.contains("| engine API | 1 |") && page.contains("docker run: skipped, /not/there"),
        "{page}"
    );
    let file = bench.mayfly.file("one.json", report.to_string().as_bytes());
    let short = bench.run(&["bench", "render", "--short", file.to_str().expect("UTF-8")]);
    let short = String::from_utf8_lossy(&short.stdout);
    assert!(
        short.contains("| engine API | 1 |") && short.len() < page.len(),
        "{short}"
    );
    let mut newer = report;
    newer["schema"] = 2.into();
    for (name, content, says) in [
        ("newer.json", newer.to_string().as_str(), "schema 2"),
        ("other.json", "{\"a\": 1}", "no schema"),
        ("broken.json", "[", "EOF"),
    ] {
        let output = render(name, content);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{name}: {stderr}");
        assert!(stderr.contains(says), "{name}: {stderr}");
    }
}
