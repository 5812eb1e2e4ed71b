//! `mayfly doctor` on real hosts: a good one, and ones that miss something each.

#[path = "../hostile/engine.rs"]
mod engine;
mod support;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Mayfly, skip};

/// `problem`, of no container engine at all.
const UNFIT: i32 = 78;

fn examined(command: &mut Command) -> (Option<i32>, Value) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().expect("mayfly starts");
    let report = serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        let stderr = String::from_utf8_lossy(&stderr);
        panic!("stdout is not one JSON object: {error}\n{stderr}")
    });
    (status.code(), report)
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("findings");
    findings
        .iter()
        .find(|finding| finding["id"] == id)
        .unwrap_or_else(|| panic!("no finding `{id}`: {report:#}"))
}

#[track_caller]
fn assert_finding(report: &Value, id: &str, status: &str, found: &str) {
    let finding = finding(report, id);
    assert_eq!(finding["status"], status, "{finding:#}");
    let text = finding["found"].as_str().expect("text");
    assert!(text.contains(found), "{id}: {text}");
}

/// Every finding that is no praise explains itself, and counts are true.
fn assert_well_formed(report: &Value) {
    assert_eq!(report["schema"], 1);
    let findings = report["findings"].as_array().expect("findings");
    for finding in findings {
        let text = |name: &str| finding[name].as_str().expect("text").to_owned();
        assert!(!text("found").is_empty(), "{finding:#}");
        if matches!(text("status").as_str(), "warning" | "problem") {
            assert!(!text("means").is_empty(), "{finding:#}");
            assert!(!text("mend").is_empty(), "{finding:#}");
        }
    }
    for (status, count) in report["counts"].as_object().expect("counts") {
        let found = findings
            .iter()
            .filter(|finding| finding["status"] == status.as_str());
        assert_eq!(count, &Value::from(found.count()), "{status}");
    }
    assert_eq!(report["healthy"], report["counts"]["problem"] == 0);
}

#[test]
fn a_host_on_which_jobs_run_has_no_problem() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let (code, report) = examined(&mut mayfly.command(["doctor", "--json"]));
    assert_well_formed(&report);
    assert_eq!(code, Some(0), "{report:#}");
    for id in [
        "engine.reached",
        "database.intact",
        "image.python",
        "guest.binary",
    ] {
        assert_eq!(finding(&report, id)["status"], "ok", "{report:#}");
    }
    assert_finding(&report, "runtime.runc", "ok", "a sandbox was ready in");
    assert_eq!(report["probes"], Value::Array(Vec::new()));
    let text = mayfly.command(["doctor"]).output().expect("mayfly starts");
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.contains("engine.reached: "), "{text}");
    assert!(text.contains(" 0 problem"), "{text}");
}

#[test]
fn without_an_engine_the_rest_is_looked_at() {
    let mayfly = Mayfly::alone();
    let mut command = mayfly.command(["doctor", "--json"]);
    let (code, report) = examined(command.env("DOCKER_HOST", "unix:///nowhere/engine.sock"));
    assert_well_formed(&report);
    assert_eq!(code, Some(UNFIT), "{report:#}");
    assert_finding(&report, "engine.reached", "problem", "/nowhere/engine.sock");
    assert!(
        finding(&report, "engine.reached")["mend"]
            .as_str()
            .unwrap()
            .contains("is not there")
    );
    assert_finding(&report, "database.file", "note", "is not there");
    assert_finding(&report, "host", "skipped", "no engine answers");
    assert_finding(&report, "runtime", "skipped", "no engine answers");
    assert!(!mayfly.database().exists(), "nothing was made");
}

#[test]
fn settings_that_are_wrong_or_without_effect_are_named_and_the_rest_is_looked_at() {
    let mayfly = Mayfly::alone();
    let mut command = mayfly.command(["doctor", "--json"]);
    command
        .env("DOCKER_HOST", "http://127.0.0.1:1")
        .env("MAYFLY_IMAGE__SOURCE", "anywhere")
        .env("MAYFLY_SANDBOX_ENGINE", "unix:///x");
    let (code, report) = examined(&mut command);
    assert_well_formed(&report);
    assert_eq!(code, Some(UNFIT));
    assert_finding(
        &report,
        "settings.read",
        "problem",
        "`auto`, `present`, `pull`, `build`",
    );
    assert_finding(&report, "settings.ignored", "warning", "MAYFLY_SANDBOX_ENGINE");
    let mend = finding(&report, "settings.ignored")["mend"].as_str().unwrap();
    assert!(mend.contains("MAYFLY_SANDBOX__ENGINE"), "{mend}");
    // Any command says the same of such a variable, and goes on.
    let list = mayfly
        .command(["job", "list"])
        .env("MAYFLY_SANDBOX_ENGINE", "unix:///x")
        .output()
        .expect("mayfly starts");
    assert!(list.status.success());
    let stderr = String::from_utf8_lossy(&list.stderr);
    assert!(
        stderr.contains("MAYFLY_SANDBOX_ENGINE") && stderr.contains("MAYFLY_SANDBOX__ENGINE"),
        "{stderr}"
    );
}

#[test]
fn an_address_that_is_none_is_refused_with_what_would_be_one() {
    let mayfly = Mayfly::alone();
    for address in ["http://127.0.0.1:1", "ssh://host", "engine", "unix://"] {
        let run = mayfly
            .command(["image", "ensure", "python"])
            .env("DOCKER_HOST", address)
            .output()
            .expect("mayfly starts");
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(64), "{address}: {stderr}");
        assert!(stderr.contains("unix:///path"), "{address}: {stderr}");
    }
}

#[test]
fn a_pin_without_a_reference_is_said_to_be_empty() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    for empty in ["", " "] {
        let pin = mayfly
            .command(["image", "pin", "tools", empty])
            .output()
            .expect("mayfly starts");
        let stderr = String::from_utf8_lossy(&pin.stderr);
        assert_eq!(pin.status.code(), Some(64), "{stderr}");
        assert!(stderr.contains("the reference is empty"), "{stderr}");
    }
}

#[test]
fn a_file_that_is_no_database_is_a_problem_and_stays_as_it_is() {
    let mayfly = Mayfly::alone();
    let file = mayfly.file("letter.txt", b"Dear reader, this is no database.");
    for place in [file.to_str().unwrap(), "/dev/null"] {
        let mut command = mayfly.command(["doctor", "--json"]);
        command
            .env("MAYFLY_STORE__PATH", place)
            .env("DOCKER_HOST", "unix:///nowhere/engine.sock");
        let (code, report) = examined(&mut command);
        assert_well_formed(&report);
        assert_eq!(code, Some(UNFIT));
        let findings = report["findings"].as_array().unwrap();
        let problem = |finding: &&Value| {
            finding["status"] == "problem"
                && finding["id"]
                    .as_str()
                    .is_some_and(|id| id.starts_with("database."))
        };
        assert!(
            findings.iter().any(|finding| problem(&finding)),
            "{place}: {report:#}"
        );
    }
    assert_eq!(std::fs::read(file).unwrap(), b"Dear reader, this is no database.");
    let list = mayfly
        .command(["job", "list"])
        .env("MAYFLY_STORE__PATH", "/dev/null")
        .output()
        .expect("mayfly starts");
    assert_eq!(list.status.code(), Some(74));
    let stderr = String::from_utf8_lossy(&list.stderr);
    assert!(stderr.contains("it is no file"), "{stderr}");
}

#[test]
fn a_user_who_may_not_use_the_socket_is_told_so() {
    use std::os::unix::process::CommandExt as _;
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    if !engine::is_root() {
        skip("only root can become another user");
        return;
    }
    if std::env::var_os("DOCKER_HOST").is_some() {
        skip("the engine is not at its usual socket");
        return;
    }
    // The test's own folders are root's alone, and so is the place of the binary on some machines.
    let binary = std::path::Path::new("/tmp").join(format!("mayfly-doctor-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_mayfly"), &binary).expect("a copy that anybody may run");
    let mut command = Command::new(&binary);
    command
        .args(["doctor", "--json"])
        .current_dir("/")
        .env_clear()
        .env("HOME", "/nonexistent")
        .uid(65_534)
        .gid(65_534);
    let (code, report) = examined(&mut command);
    std::fs::remove_file(&binary).expect("the copy is there");
    drop(mayfly);
    assert_well_formed(&report);
    assert_eq!(code, Some(UNFIT));
    let reached = finding(&report, "engine.reached");
    assert_eq!(reached["status"], "problem");
    assert!(
        reached["mend"]
            .as_str()
            .unwrap()
            .contains("this user may not use"),
        "{reached:#}"
    );
    assert_finding(&report, "database.file", "problem", "is not writable");
}

#[test]
fn hostile_programs_are_held_on_runc() {
    if let Some(mayfly) = Mayfly::with_python() {
        assert_all_held(&mayfly, "runc", None);
    }
}

#[test]
fn on_an_engine_with_gvisor_it_is_told_from_an_impostor_and_holds_the_hostile_programs() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let (Some(runc), Some(none)) = (engine::find("runc"), engine::find("false")) else {
        skip("runc or false is not installed");
        return;
    };
    let impostor = format!("runsc-impostor={}", runc.display());
    let broken = format!("broken={}", none.display());
    let options = ["--runtime", impostor.as_str(), "--runtime", broken.as_str()];
    let Some(engine) = engine::with_gvisor(&mayfly, &options) else {
        return;
    };
    let policy = mayfly.file(
        "policy.toml",
        b"[policy]\nruntimes = [\"runc\", \"runsc\", \"runsc-impostor\", \"broken\"]\n",
    );
    let mut command = mayfly.command(["doctor", "--json", "--config"]);
    let (code, report) = examined(command.arg(policy).env("DOCKER_HOST", engine.host()));
    assert_well_formed(&report);
    assert_eq!(code, Some(UNFIT), "{report:#}");
    assert_finding(&report, "runtime.runc", "ok", "a sandbox was ready");
    assert_finding(&report, "runtime.runsc", "ok", "its kernel says Linux 4.4.0");
    assert_finding(&report, "runtime.runsc-impostor", "problem", "kernel.release");
    assert_finding(&report, "runtime.broken", "problem", "engine");
    assert_all_held(&mayfly, "runsc", Some(engine.host()));
}

fn assert_all_held(mayfly: &Mayfly, runtime: &str, engine: Option<&str>) {
    let mut command = mayfly.command(["doctor", "--probe", "--json", "--runtime", runtime]);
    if let Some(engine) = engine {
        command.env("DOCKER_HOST", engine);
    }
    let (code, report) = examined(&mut command);
    assert_well_formed(&report);
    let verdicts = report["probes"][0]["verdicts"].as_array().expect("verdicts");
    let broken: Vec<_> = verdicts
        .iter()
        .filter(|verdict| verdict["result"] != "held")
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(verdicts.len() > 15, "{}", verdicts.len());
    assert_finding(&report, &format!("probe.{runtime}"), "ok", "all were held");
    assert_eq!(code, Some(0), "{report:#}");
}
