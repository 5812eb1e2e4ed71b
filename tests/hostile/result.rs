//! The result file of the hostile battery: one JSON object, to which each test adds its part. Test files of several crates
//! use this.

use std::{fs, process::Command};

use serde::Serialize;
use serde_json::{Value, json};

/// Whether all of the battery is wanted, and not only what every `make test` runs.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("MAYFLY_TEST_HOSTILE").is_some_and(|which| which == "all")
}

/// Writes a part of the result file, where one is wanted.
pub(crate) fn record(part: &str, found: &impl Serialize) {
    let Some(path) = std::env::var_os("MAYFLY_TEST_HOSTILE_RESULT") else {
        return;
    };
    let before = fs::read(&path).unwrap_or_default();
    let mut all: Value = serde_json::from_slice(&before).unwrap_or_else(|_| json!({}));
    let machine = machine();
    // A run of some parts leaves the others as they were, which then are of another commit.
    all["made"][part] = json!({"at": machine["at"], "commit": machine["commit"]});
    all["machine"] = machine;
    all[part] = serde_json::to_value(found).expect("figures are JSON");
    let text = serde_json::to_string_pretty(&all).expect("figures are JSON");
    fs::write(path, text + "\n").expect("the result file");
}

/// The facts of the machine that a result belongs to.
fn machine() -> Value {
    let first_line = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        text.lines().next().unwrap_or("not here").to_owned()
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory = read("/proc/meminfo");
    let memory = memory
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok());
    let commit = std::env::var_os("MAYFLY_TEST_COMMIT").and_then(|commit| commit.into_string().ok());
    json!({
        "at": first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        "commit": commit.unwrap_or_else(|| "unknown".to_owned()),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_gib": memory.map_or(0, |kib| kib >> 20),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "engine": first_line("docker", &["version", "--format", "{{.Server.Version}}"]),
        "control_groups": first_line("docker", &["info", "--format", "v{{.CgroupVersion}}"]),
        "security": first_line("docker", &["info", "--format", "{{json .SecurityOptions}}"]),
        "runc": first_line("runc", &["--version"]),
        "runsc": first_line("runsc", &["--version"]),
        "build": build(),
    })
}

/// How the program was built that is tested.
pub(crate) fn build() -> &'static str {
    if cfg!(debug_assertions) && std::env::var_os("MAYFLY_TEST_PROGRAM").is_none() {
        "debug"
    } else {
        "release"
    }
}
