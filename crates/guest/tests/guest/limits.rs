use mayfly_protocol::{Ended, GuestExit};

use crate::guest;
use crate::harness::{Options, TestCgroup, obstacle, python};

/// A cgroup, or the reason for having none printed.
fn cgroup(controller: &str, v1: &[(&str, &str)], v2: &[(&str, &str)]) -> Option<TestCgroup> {
    let made = match obstacle() {
        Some(reason) => Err(reason),
        None => TestCgroup::make(controller, v1, v2)
            .ok_or_else(|| format!("no cgroup of {controller} can be made here")),
    };
    made.map_err(|reason| eprintln!("SKIPPED, nothing shown: {reason}"))
        .ok()
}

#[test]
fn a_fork_bomb_does_not_disable_the_guest() {
    let settings = [("pids.max", "40")];
    let Some(cgroup) = cgroup("pids", &settings, &settings) else {
        return;
    };
    let guest = guest!(Options {
        prelude: cgroup.prelude(),
        ..Options::plain()
    });
    assert_eq!(guest.report.cgroup.pids, Some(40));
    let mut job = python(
        "import os
while True:
    try: os.fork()
    except OSError: pass",
    );
    job.deadline_ms = 1000;
    let told = guest.run(job, &[]);
    assert_eq!(told.exit().how, Ended::Signal(9));
    assert!(told.exit().deadline_fired);
    assert!(told.exit().left_processes > 20, "{:?}", told.exit());
    assert!(
        told.exit()
            .cgroup
            .pids_max_events
            .is_some_and(|refused| refused > 0)
    );
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}

#[test]
fn a_full_tmpfs_and_no_memory_end_the_job_and_not_the_guest() {
    let limit = "33554432";
    let v1 = [("memory.limit_in_bytes", limit)];
    let v2 = [("memory.max", limit), ("memory.swap.max", "0")];
    let Some(cgroup) = cgroup("memory", &v1, &v2) else {
        return;
    };
    let options = Options {
        prelude: cgroup.prelude(),
        work_options: "size=512m,nr_inodes=64",
        ..Options::plain()
    };
    let guest = guest!(options);
    assert_eq!(guest.report.cgroup.memory_bytes, Some(33_554_432));
    let told = guest.run(
        python(
            "f = open('fill', 'wb')
while True: f.write(b'x' * 65536)",
        ),
        &[],
    );
    assert_eq!(told.exit().how, Ended::Signal(9));
    assert!(!told.exit().deadline_fired && !told.exit().killed_by_request);
    assert_eq!(told.exit().cgroup.oom_kills, Some(1));
    assert!(
        told.exit()
            .cgroup
            .memory_peak_bytes
            .is_some_and(|peak| peak > 30_000_000)
    );
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
}
