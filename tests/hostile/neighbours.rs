//! A job beside one that uses up whatever the kernel counts by user: each has its own.
//!
//! Both run through the real binary, in processes of their own, as two users of one host would run them. That these
//! tests could fail is shown by a third, in which both jobs are made to have the same uid.

mod engine;
#[path = "../newcomer/support.rs"]
mod support;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use support::{Mayfly, skip};

/// Takes what there is, holds it, and tells how much it got of each; then waits for as long as it is let.
const TAKE: &str = include_str!("neighbours/take.py");

/// How much a job got of what is counted by user, by name.
type Taken = BTreeMap<String, u64>;

/// What an attacker can leave its neighbours without, where they share its uid.
const SHARED: [&str; 5] = ["inotify", "mqueue_bytes", "pipe_pages", "processes", "timers"];

#[test]
fn what_a_neighbour_has_used_up_is_there_for_the_next_job() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    assert_nothing_is_shared(&mayfly, || mayfly.command(RUN), &SHARED);
}

#[test]
fn what_a_neighbour_has_used_up_is_there_for_the_next_job_on_gvisor() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(engine) = engine::with_gvisor(&mayfly, &[]) else {
        return;
    };
    let command = || {
        let mut command = mayfly.command(RUN);
        command
            .args(["--runtime", "runsc"])
            .env("DOCKER_HOST", engine.host());
        command
    };
    assert_nothing_is_shared(&mayfly, command, &["inotify", "processes", "timers"]);
}

/// Runs a job alone, and then beside one that holds all it could get: the same is there, down to the number.
fn assert_nothing_is_shared(mayfly: &Mayfly, command: impl Fn() -> Command, names: &[&str]) {
    let alone = finished(command(), mayfly);
    let (attacker, held) = Attacker::start(command(), mayfly);
    let beside = finished(command(), mayfly);
    attacker.end();
    for name in names {
        assert!(held[*name] > 0, "the attacker got no {name}: {held:?}");
    }
    assert_eq!(beside, alone, "beside {held:?}");
    assert_eq!(
        held, alone,
        "the attacker took no less than all that one job gets"
    );
}

#[test]
fn with_one_uid_for_both_a_job_starves_beside_its_neighbour() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    if !can_hide_locks() {
        skip("to give two jobs one uid needs root and unshare(1)");
        return;
    }
    let (attacker, held) = Attacker::start(without_locks(&mayfly), &mayfly);
    let beside = finished(without_locks(&mayfly), &mayfly);
    attacker.end();
    for name in SHARED {
        assert!(
            beside[name] < held[name],
            "{name} is not shared by uid: {beside:?} beside {held:?}"
        );
    }
}

/// With as many processes as fit into the memory of a job whose kernel is charged to it.
const RUN: [&str; 8] = [
    "run",
    "--quiet",
    "--max-attempts",
    "1",
    "--timeout",
    "60s",
    "--pids",
    "32",
];

/// The binary where it sees no lock of any other process: two of them then take the same uids. These are far from
/// those that other tests run with.
fn without_locks(mayfly: &Mayfly) -> Command {
    let inner = mayfly.command(RUN);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c"])
        .arg("mount -t tmpfs none /run/lock && exec \"$@\"")
        .arg("sh")
        .arg(inner.get_program())
        .args(inner.get_args())
        .env("MAYFLY_SANDBOX__FIRST_UID", "50000");
    if let Some(folder) = inner.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn can_hide_locks() -> bool {
    Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "none", "/run/lock"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A job that holds all that it could get.
struct Attacker {
    mayfly: Child,
}

impl Attacker {
    /// Starts one, and waits until it can take no more.
    fn start(mut command: Command, mayfly: &Mayfly) -> (Self, Taken) {
        let program = mayfly.file("attacker.py", TAKE.as_bytes());
        command
            .args(["--env", "HOLD=1"])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut attacker = Self {
            mayfly: command.spawn().expect("mayfly starts"),
        };
        let stdout = attacker.mayfly.stdout.take().expect("a pipe was asked for");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a line of the attacker");
        (attacker, taken(line.as_bytes()))
    }

    /// Asks for its end, as a person does with Ctrl-C, and waits for it.
    fn end(mut self) {
        let pid = self.mayfly.id().to_string();
        let asked = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill starts");
        assert!(asked.success());
        let status = self.mayfly.wait().expect("mayfly ends");
        assert_eq!(
            status.code(),
            Some(120),
            "the attacker was still there to be canceled"
        );
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // After a failed assertion; without this process its container ends too.
        if matches!(self.mayfly.try_wait(), Ok(None)) {
            self.mayfly.kill().unwrap_or_default();
            self.mayfly.wait().map(drop).unwrap_or_default();
        }
    }
}

/// Runs a job that takes all it can get, to its end.
fn finished(mut command: Command, mayfly: &Mayfly) -> Taken {
    let program = mayfly.file("honest.py", TAKE.as_bytes());
    let output = command
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .expect("mayfly starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    taken(&output.stdout)
}

fn taken(text: &[u8]) -> Taken {
    let found: Value = serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(text)));
    serde_json::from_value(found).expect("a count for each name")
}
