//! A runtime that was asked for is the one that runs, or nothing does.

mod engine;
#[path = "../newcomer/support.rs"]
mod support;

use serde_json::Value;
use support::{Mayfly, skip};

/// A run for gVisor, of a program that would be seen to have run.
fn run_on_gvisor(mayfly: &Mayfly, engine: Option<&str>) -> (Option<i32>, Value) {
    let file = mayfly.file("program.py", b"print('it ran')\n");
    let mut command = mayfly.command(["run", "--json", "--runtime", "runsc", "--max-attempts", "1"]);
    command.arg(file);
    if let Some(engine) = engine {
        command.env("DOCKER_HOST", engine);
    }
    let output = command.output().expect("mayfly starts");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        panic!("stdout is not one JSON object: {error}\n{stderr}")
    });
    (output.status.code(), report)
}

fn assert_rejected(code: Option<i32>, report: &Value, cause: &str) {
    assert_eq!(report["state"], "rejected", "{report:#}");
    assert_eq!(report["cause"], cause, "{report:#}");
    assert_eq!(code, Some(123), "{report:#}");
    assert_eq!(report["evidence"]["started"], false, "{report:#}");
    assert_eq!(report["stdout"]["bytes"], 0, "{report:#}");
}

#[test]
fn a_runtime_that_the_engine_has_not_got_is_refused() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    if engine::machines_engine_has_gvisor() {
        skip("the machine's engine has gVisor: nothing is missing there");
        return;
    }
    let (code, report) = run_on_gvisor(&mayfly, None);
    assert_rejected(code, &report, "runtime_unavailable");
}

#[test]
fn the_hosts_kernel_under_the_name_of_gvisor_is_refused_by_what_is_seen_from_inside() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(runc) = engine::find("runc") else {
        skip("runc is not installed");
        return;
    };
    let impostor = format!("runsc={}", runc.display());
    let Some(engine) = engine::with_gvisor(&mayfly, &["--runtime", &impostor]) else {
        return;
    };
    let (code, report) = run_on_gvisor(&mayfly, Some(engine.host()));
    assert_rejected(code, &report, "sandbox_mismatch");
    let mismatches = report["evidence"]["mismatches"].as_array().expect("differences");
    let kernel = mismatches
        .iter()
        .find(|mismatch| mismatch["field"] == "kernel.release")
        .unwrap_or_else(|| panic!("the kernel's release is not named: {report:#}"));
    assert_eq!(kernel["source"], "guest", "{report:#}");
    assert!(
        mismatches.iter().all(|mismatch| mismatch["source"] != "inspect"),
        "the engine's own word gives nothing away: {report:#}"
    );
}
