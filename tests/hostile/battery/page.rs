//! The page that is made of the result file.

use std::fmt::Write as _;

use serde_json::Value;

use super::figures::OfRuntime;

mod mutants;

/// Numbers of the battery that no program stands for: where they are tested, or why they are not.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "H-12, H-128",
        "tested elsewhere",
        "honest programs under the filter: `crates/sandbox/tests/filter.rs`, `tests/newcomer`; official images of other languages are not here",
    ),
    (
        "H-17, H-113",
        "tested elsewhere",
        "limits beyond every bound, and fields that no job has: refused when a job is submitted (`crates/core/src/limits.rs`, `docs/batch.md`)",
    ),
    (
        "H-78",
        "tested elsewhere",
        "names of input files, and names and links in archives, that lead out: refused when a job is submitted (`crates/core/src/job/validate/files.rs`, `crates/archive`)",
    ),
    (
        "H-61, H-62, H-66",
        "tested elsewhere",
        "images made to harm (`crates/sandbox/tests/engine/harmful.rs`): folders of the sandbox that are links, files or pipes in the image make no sandbox, or change nothing in it; every field of an image's configuration is overridden and read back (`lies.rs`); set-user-id files, devices and open folders give no rights; an image with `VOLUME` can't be pinned (`images.rs`), one with 200 layers not loaded",
    ),
    (
        "H-106",
        "in part",
        "cancels at each phase: `tests/faults`, `tests/fleet`; here a program that ignores every signal until its deadline",
    ),
    (
        "H-124",
        "tested elsewhere",
        "no filter, the engine's, or another one: `crates/sandbox/tests/filter.rs` (the marker), `lies.rs`",
    ),
    (
        "H-126",
        "tested elsewhere",
        "an engine that changes or drops each field: `crates/sandbox/tests/engine/lies.rs`",
    ),
    (
        "H-123",
        "this page",
        "gVisor has its own expectations, side by side with runc's in `tests/hostile/programs`",
    ),
    (
        "H-52",
        "after all programs",
        "every byte of every file of the image is read again on the host and compared (`tests/hostile/battery/ground.rs`)",
    ),
    (
        "H-56",
        "tested elsewhere",
        "a program that ignores every signal that can be ignored ends with its deadline: program H-106a, and `crates/sandbox/tests/engine/outcomes.rs`",
    ),
    (
        "H-59",
        "tested elsewhere",
        "programs that end at once, by the thousand: what is open, mounted and counted before and after: `tests/faults/leaks.rs`",
    ),
    (
        "H-121",
        "this page",
        "one setting weakened at a time: the mutants above",
    ),
    (
        "H-49",
        "not a case here",
        "there is no class of job with a writable root",
    ),
    (
        "H-53",
        "skipped",
        "there is no sweep over cached pages of images yet; here every byte of the image is compared after all programs",
    ),
    (
        "H-69, H-111 (artifacts)",
        "not a case here",
        "no archive ever leaves a sandbox: files do, one by one, and the executor writes none of them to a disk",
    ),
    (
        "H-72",
        "not a case here",
        "nothing is removed by its name: file systems of jobs are memory and go with the container",
    ),
    ("H-94", "not a case here", "a job is given no token"),
    (
        "H-95",
        "not a case here",
        "output is bytes to us, and shown escaped; what an agent makes of it is the agent's",
    ),
    (
        "H-120",
        "not a case here",
        "a job can't name an image that was not pinned before",
    ),
    (
        "H-27 (far calls), H-23 (rdpmc)",
        "skipped",
        "need a 32-bit code segment or a processor that tells its counters to programs",
    ),
    (
        "H-43, H-57 on control groups v2",
        "skipped",
        "this machine has control groups v1: no limits of input and output, socket memory is not counted",
    ),
    (
        "H-125",
        "tested elsewhere",
        "a `production` executor does not begin on a host without AppArmor or SELinux, and where that is accepted it is on record: `tests/fleet/fitness.rs`",
    ),
    (
        "H-129",
        "skipped",
        "a thousand programs of a language model: none is at hand here",
    ),
    (
        "H-130",
        "skipped",
        "one version of each engine and runtime is here",
    ),
];

/// `docs/hostile-battery.md`.
pub(crate) fn page(all: &Value) -> String {
    let mut page = HEAD.to_owned();
    let runtimes: Vec<OfRuntime> = ["runc", "runsc"]
        .iter()
        .filter_map(|name| serde_json::from_value(all[name].clone()).ok())
        .collect();
    machine(&mut page, &all["machine"]);
    for of in &runtimes {
        totals(&mut page, of);
    }
    longer(&mut page, all);
    mutants::add(&mut page, &all["mutants"]);
    page += NOT_STOPPED;
    page += "## The programs\n\n| id | what it does | runc | ends there | runsc | ends there |\n| --- | --- | --- | --- | --- | --- |\n";
    let [runc, runsc] = ["runc", "runsc"].map(|name| runtimes.iter().find(|of| of.runtime == name));
    let rows = runc
        .or(runsc)
        .map(|of| of.programs.as_slice())
        .unwrap_or_default();
    for row in rows {
        let cell = |of: Option<&OfRuntime>| {
            let found = of.and_then(|of| of.programs.iter().find(|found| found.id == row.id));
            found.map_or_else(
                || "not run | ".to_owned(),
                |found| format!("{} | {}", found.verdict(), found.ended),
            )
        };
        line(&mut page, &[&row.id, &row.tries, &cell(runc), &cell(runsc)]);
    }
    page += "\n## Numbers of the battery that are no program\n\n| number | | |\n| --- | --- | --- |\n";
    for (id, what, why) in ELSEWHERE {
        line(&mut page, &[id, what, why]);
    }
    page
}

fn line(page: &mut String, cells: &[&str]) {
    writeln!(page, "| {} |", cells.join(" | ")).expect("a text takes what is written");
}

fn machine(page: &mut String, machine: &Value) {
    let fact = |name: &str| match &machine[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    writeln!(
        page,
        "{}, commit {}, {} build, {} cores, {} GiB, Linux {}, Docker {}, control groups {}, {}, {}, security modules and filters of \
         the engine {}.\n",
        fact("at"),
        fact("commit"),
        fact("build"),
        fact("cores"),
        fact("memory_gib"),
        fact("kernel"),
        fact("engine"),
        fact("control_groups"),
        fact("runc"),
        fact("runsc"),
        fact("security"),
    )
    .expect("a text takes what is written");
}

fn totals(page: &mut String, of: &OfRuntime) {
    let count =
        |what: fn(&super::figures::Found) -> bool| of.programs.iter().filter(|found| what(found)).count();
    let [descriptors, threads, memory] = [
        of.executor.descriptors,
        of.executor.threads,
        of.executor.memory_bytes,
    ]
    .map(|[before, after]| format!("{before} → {after}"));
    writeln!(
        page,
        "**{}**: {} runs of {} programs in {:.0} s, 4 at a time. The host reached: {}. Neighbours reached: {}. Another outcome than \
         the true one: {}. Another answer than expected: {}. Wrong when all was over: {}. Honest jobs among them: {}, of which {} \
         did not do what they do alone. The neighbour beat {} times, {} ms apart at the most. The executor, after the first honest jobs at \
         the most and after the last at the least: descriptors {descriptors}, threads {threads}, own memory in bytes {memory}.\n",
        of.runtime,
        of.programs.len(),
        of.distinct(),
        of.seconds,
        count(|found| !found.host.is_empty()),
        count(|found| !found.neighbour.is_empty()),
        count(|found| !found.outcome.is_empty()),
        count(|found| !found.words.is_empty()),
        of.at_the_end.len(),
        of.honest,
        of.honest_faults.len(),
        of.beats,
        of.longest_without_a_beat_ms,
    )
    .expect("a text takes what is written");
}

/// What the long runs found, each a sentence of its own, and when that was, where it was not with the rest.
fn longer(page: &mut String, all: &Value) {
    for name in ["instant", "flood"] {
        if let Some(found) = all[name]["found"].as_str() {
            let made = &all["made"][name];
            let earlier = match (made["at"].as_str(), made["commit"].as_str()) {
                (Some(at), Some(commit)) if all["machine"]["commit"] != commit => {
                    format!(" Measured {at}, commit {commit}.")
                }
                _ => String::new(),
            };
            writeln!(page, "{found}{earlier}\n").expect("a text takes what is written");
        }
    }
}

const HEAD: &str = "\
# The hostile battery

Made by `make test-hostile` out of [hostile-battery.json](hostile-battery.json), which `tests/hostile/battery.rs` and its like
have written; not written by hand. `make test` runs a part of the programs.

    make test-hostile                      # all programs on runc and gVisor, the mutants, the long runs, and this page
    scripts/hostile --render               # this page alone

The programs are in `tests/hostile/programs`, each with what is expected of it. All of a runtime go through one `mayfly batch run`,
four at a time, beside a neighbour in a process of its own that was there before them, and with an honest job after every
seventh. What a program says is compared with what it has to say, but no verdict rests on that alone. After each program the host
is asked:

- **the host**: a file that anybody may write, a process, listeners on TCP, on a path and on an abstract name, of all of which the programs
  are told where they are; settings of the kernel; objects of System V and POSIX; whether a secret of the host or of the neighbour
  is in any output; whether a mount, a control group or a process of the container is left. At the end every byte of the image.
- **a neighbour**: it beats five times a second, and says so if its files, memory, processes or ids are not as they were. Honest
  jobs must print what they print alone.
- **the outcome**: state, cause, exit code and evidence must be those that are true, and nothing may contradict them.
- **the record**, when all is over: each job has one result, one start, one end, and an audit log that says so.
- **the executor**: descriptors and threads after all programs are no more than after the first few jobs, and memory of its own no
  more than 16 MiB more: what it keeps of the longest outputs, and its database's cache.

";

const NOT_STOPPED: &str = "\
## What it does not stop

- **Faults of the kernel** in calls that are allowed, on runc: memory, files in memory, pipes, `futex`, `epoll`, Unix sockets. Containers
  share the host's kernel. gVisor serves these calls itself; a fault in gVisor is then what counts.
- **Time**: how long things take tells of caches, of the processor's speculation and of what else runs. `rdtsc` is not refused.
- **The page cache**: files of the image are shared by all jobs from it, and how long a first read takes tells whether another has
  read them. `mincore` and `cachestat` say nothing; a clock does. An executor for each tenant removes that.
- **Load**: a job can use all of the CPU, the memory bandwidth and the caches that it is given, in a pattern that a neighbour feels.
  Hammering of memory is bounded by its wall and CPU limits alone.
- **Locks on files of the image**: two jobs of one image can lock the same read-only file and see each other's locks.
- **Programs without a file** (`memfd_create`, `execveat`) run; a file system that is `noexec` is no boundary. They are confined like any other.
- **Scores**: a job starts with the worst score for the kernel's kill and may lower it to 0 (not below), which is what the host's
  own services have; the guest's is 500. On a host that runs out of memory as a whole a job is then no longer the first to go. In its own
  limit nothing changes but that its guest may be killed with it (H-46c): the outcome is `out_of_memory` all the same.
- **The host's audit subsystem**: on runc a job may set its own login id (`/proc/self/loginuid`), where the host has not made it
  immutable. Nothing of ours reads it.
- **Paths of the engine**: `/proc/self/mountinfo` shows in which folders of the host the image lies.
- **What gVisor allows inside itself**: namespaces, TCP and UDP to itself, tracing of its own children, its own io_uring. Nothing of that
  reaches the host: it has no card, and no process of the job is one of the host's.
- **A Debian runsc (20221219)** gives the host's `/dev/null` to the user nobody with each sandbox. That is the runtime's doing, on
  every start; the battery compares mode and kind of the file and not its owner.

";

/// `MAYFLY_TEST_HOSTILE_RENDER=1` makes the page anew.
#[test]
fn the_page_is_made_of_the_result() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hostile-battery");
    let found = std::fs::read_to_string(format!("{docs}.json")).expect("the result is there");
    let found: Value = serde_json::from_str(&found).expect("the result can be read");
    let page = page(&found);
    if std::env::var_os("MAYFLY_TEST_HOSTILE_RENDER").is_some() {
        std::fs::write(format!("{docs}.md"), &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(format!("{docs}.md")).expect("the page is there");
    assert!(
        there == page,
        "docs/hostile-battery.md is made anew by scripts/hostile --render"
    );
}
