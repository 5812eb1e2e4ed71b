//! One process and many jobs, or jobs that print without end: promise P10 (bounded). `MAYFLY_TEST_LEAK_JOBS` says how many.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    PATIENCE,
    batch::Batch,
    process::{await_until, pause},
    record::{Record, assert_whole},
    result,
    rounds::number,
    second_engine,
    support::Mayfly,
};

const JOBS: u64 = 100;
/// Descriptors that an engine and its containerd may have more after the first container of their life than before it: they
/// open logs, plugins and databases then.
const ENGINE_ROOM: usize = 16;
/// Results at the beginning that belong to warming up, and results that a look at either end goes over.
const WARM_UP: usize = 10;
const WINDOW: usize = 30;

/// What one process had open, after so many results.
#[derive(Debug, Clone, Copy)]
struct Look {
    results: usize,
    descriptors: usize,
    threads: usize,
}

/// Mounts below a folder.
fn mounts_below(folder: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
    let folder = folder.to_str().expect("a plain path");
    mounts.lines().filter(|line| line.contains(folder)).count()
}

fn descriptors_of(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

#[test]
fn after_many_jobs_a_process_and_its_engine_have_no_more_open_than_after_few() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(engine) = second_engine::plain(&mayfly, &[]) else {
        return;
    };
    let jobs = usize::try_from(number("MAYFLY_TEST_LEAK_JOBS").unwrap_or(JOBS)).expect("a count");
    let program = "import os; os.write(1, b'x')";
    let batch = Batch::new(&mayfly, engine.host(), jobs, 4, program, &json!({}));
    let mounts = mounts_below(engine.folder());
    let of_engine = [engine.process(), engine.containerd()];
    let before = of_engine.map(descriptors_of);
    let begun = Instant::now();
    let mut process = batch.run();
    let mut looks = Vec::new();
    while !process.has_ended() {
        // Before the results are counted, which takes a while: one that has ended meanwhile has nothing open, and says nothing.
        let (descriptors, threads) = (process.descriptors(), process.threads());
        let look = Look {
            results: batch.count_results(),
            descriptors,
            threads,
        };
        if look.descriptors == 0 {
            continue;
        }
        looks.push(look);
        pause();
    }
    assert!(process.ended(PATIENCE).success());
    assert_whole(&mayfly, &batch);
    let bytes: u64 = batch
        .results()
        .values()
        .flatten()
        .map(|line| line["stdout"]["bytes"].as_u64().expect("a count of bytes"))
        .sum();
    assert_eq!(bytes, jobs as u64, "one byte of each job");
    assert_eq!(mounts_below(engine.folder()), mounts, "mounts are left");
    // Connections to the engine that have just been closed may be there for a moment.
    let after = || of_engine.map(descriptors_of);
    await_until(
        "descriptors of the engine and containerd as before",
        PATIENCE,
        || {
            after()
                .iter()
                .zip(before)
                .all(|(after, before)| *after <= before + ENGINE_ROOM)
        },
    );
    assert_eq!(
        batch.census.list_all(),
        BTreeSet::new(),
        "containers are left, whoever's"
    );

    let seconds = begun.elapsed().as_secs_f64();
    let of_executor = [0, 1].map(|end| {
        let window = if end == 0 {
            WARM_UP..WARM_UP + WINDOW
        } else {
            jobs - WINDOW..jobs
        };
        let looks = looks.iter().filter(|look| window.contains(&look.results));
        looks
            .map(|look| look.descriptors)
            .min()
            .expect("it was looked at")
    });
    result::record(
        "instant",
        &json!({"found": format!(
            "**Jobs that end at once** ({} build, `MAYFLY_TEST_LEAK_JOBS={jobs} cargo test -p mayfly-cli --test faults after_many_jobs`): {jobs} jobs of \
             one byte of output each in {seconds:.0} s, 4 at a time; {bytes} bytes seen. Left when all was over: 0 containers, 0 of their \
             mounts and control groups. Descriptors of the executor after the first jobs and after the last: {} and {}; of the engine \
             before and after: {} and {}; of its containerd: {} and {}.",
            result::build(), of_executor[0], of_executor[1], before[0], after()[0], before[1], after()[1],
        )}),
    );

    let few = |look: &&Look| (WARM_UP..WARM_UP + WINDOW).contains(&look.results);
    let many = |look: &&Look| (jobs - WINDOW..jobs).contains(&look.results);
    for (what, of) in [
        ("descriptors", (|look| look.descriptors) as fn(&Look) -> usize),
        ("threads", |look| look.threads),
    ] {
        let most = looks.iter().filter(few).map(of).max().expect("it was looked at");
        let least = looks.iter().filter(many).map(of).min().expect("it was looked at");
        eprintln!(
            "{}",
            json!({"what": what, "jobs": jobs, "most_after_few": most, "least_after_many": least})
        );
        assert!(
            least <= most,
            "{what}: {least} at the least after {jobs} jobs, and {most} at the most after few"
        );
    }
}

#[test]
fn eight_jobs_that_print_without_end_take_a_bounded_memory_of_their_executor() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let program =
        "import os\nblock = b'x' * 65536\nwhile True:\n    os.write(1, block)\n    os.write(2, block)\n";
    let more = json!({"limits": {"wall": "10s"}});
    let batch = Batch::new(&mayfly, "", 8, 8, program, &more);
    let mut process = batch.run();
    let (mut peak, mut own) = (0, 0);
    while !process.has_ended() {
        if let Some((most, now)) = process.memory() {
            (peak, own) = (most, now.max(own));
        }
        pause();
    }
    assert_eq!(process.ended(Duration::ZERO).code(), Some(1), "no item succeeds");
    let record = Record::read(&mayfly.database(), batch.id).expect("the batch is there");
    record.assert_each_job_has_one_result(8);
    let results = batch.results();
    let printed: Vec<u64> = results
        .values()
        .flatten()
        .map(|line| {
            line["stdout"]["bytes"].as_u64().unwrap_or(0) + line["stderr"]["bytes"].as_u64().unwrap_or(0)
        })
        .collect();
    eprintln!(
        "{}",
        json!({"peak_bytes": peak, "own_peak_bytes": own, "printed_bytes": printed})
    );
    assert_eq!(printed.len(), 8);
    for (item, lines) in &results {
        assert_eq!(lines[0]["state"], "timed_out", "{item}");
    }
    assert!(
        printed.iter().all(|bytes| *bytes > 4 << 20),
        "more than is kept: {printed:?}"
    );
    // What is promised is promised of a release build, program included. A build for tests has larger futures and a
    // program that is several times as large: its own memory alone counts, with half as much again of room.
    let (counted, bound) = if cfg!(debug_assertions) {
        (own, 150_000_000)
    } else {
        (peak, 100_000_000)
    };
    assert!(
        counted > 0 && counted < bound,
        "{counted} bytes at the most, {bound} allowed"
    );
}

/// Bytes that one job prints where nobody says how many (`MAYFLY_TEST_FLOOD_BYTES`), and by how much an executor's own memory may
/// grow meanwhile.
const FLOOD: u64 = 512 << 20;
const FLOOD_ROOM: u64 = 8 << 20;

#[test]
fn what_one_job_prints_is_counted_to_the_byte_and_takes_no_more_memory_than_the_start_of_it() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let bytes = number("MAYFLY_TEST_FLOOD_BYTES").unwrap_or(FLOOD);
    let program = format!(
        "import os\nblock, left = b'x' * 65536, {bytes}\nwhile left:\n    left -= os.write(1, block[:min(left, 65536)])\n"
    );
    // The first fills what is kept of an output and the buffers on the way; what comes after may take no more.
    let first = "import os\nfor _ in range(256):\n    os.write(1, b'x' * 65536)\n";
    let line = |id: &str, program: &str| {
        let limits = json!({"wall": "10m"});
        json!({"id": id, "image": "python", "source": program, "limits": limits, "retry": {"max_attempts": 1}}).to_string() + "\n"
    };
    let lines = line("first", first) + &line("flood", &program);
    let batch = Batch::of_lines(&mayfly, "", 2, 1, &lines);
    let mut process = batch.run();
    let mut looks = Vec::new();
    while !process.has_ended() {
        if let Some((_, own)) = process.memory() {
            looks.push((batch.count_results(), own));
        }
        pause();
    }
    assert!(process.ended(Duration::ZERO).success(), "both succeed");
    let most = |results: usize| {
        looks
            .iter()
            .filter(|look| look.0 == results)
            .map(|look| look.1)
            .max()
    };
    let (before, during) = (most(0).expect("looks"), most(1).expect("looks"));
    let results = batch.results();
    let flood = &results["flood"][0];
    let seconds = flood["usage"]["wall_us"].as_f64().unwrap_or_default() / 1e6;
    result::record(
        "flood",
        &json!({"found": format!(
            "**Output without measure** ({} build, `MAYFLY_TEST_FLOOD_BYTES={bytes} cargo test -p mayfly-cli --test faults what_one_job_prints`): one job printed \
             {} bytes of {bytes} in {seconds:.0} s. The executor's own memory was {before} bytes at the most with a job of 16 MiB before it, and {during} at the most with \
             this one: {} more.",
            result::build(), flood["stdout"]["bytes"], during.saturating_sub(before),
        )}),
    );
    assert_eq!(flood["stdout"]["bytes"], bytes, "{flood:#}");
    assert_eq!(flood["stdout"]["truncated"], true);
    assert!(
        during <= before + FLOOD_ROOM,
        "{before} bytes before, {during} during: {} more",
        during - before
    );
}
