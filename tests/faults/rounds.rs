//! Many faults at random moments, one after the other, in the course of one batch: at its end each item has exactly one
//! result and nothing is left (P1, P2, P3, P6). The seed is printed; `MAYFLY_TEST_FAULT_SEED` repeats it, as far as the
//! machine's own timing lets it, and `MAYFLY_TEST_FAULT_ROUNDS` says how many.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use serde_json::json;

use crate::{
    PATIENCE,
    batch::Batch,
    census::Census,
    cut::Cut,
    process::{Process, Signal},
    record::assert_whole,
    second_engine,
    support::Mayfly,
};

const SLOTS: u32 = 4;
const ROUNDS: usize = 6;
/// More than a round gets done.
const ITEMS_OF_A_ROUND: usize = 14;

/// What is done to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    /// It stands still for so long.
    Stop(Duration),
    /// Its connections to the engine are cut, and can't be made, for so long.
    Cut(Duration),
}

/// Numbers that a seed decides (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.below(most_ms - least_ms))
    }

    fn fault(&mut self) -> Fault {
        match self.below(10) {
            0..6 => Fault::Kill,
            6..8 => Fault::Stop(self.between(100, 2_000)),
            _ => Fault::Cut(self.between(100, 2_000)),
        }
    }
}

/// What was done, and how often a program was seen to run just before.
#[derive(Default, serde::Serialize)]
struct Done {
    rounds: usize,
    kills: usize,
    stops: usize,
    cuts: usize,
    hits: usize,
}

/// A number that the environment gives a test.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = env::var_os(name)?;
    Some(
        text.to_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{name} is no number")),
    )
}

#[test]
fn whatever_is_killed_frozen_and_cut_each_item_has_one_result_and_nothing_is_left() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    // Of the test's own: clients that are cut off in the middle of a start have been seen to wedge an old engine.
    let Some(engine) = second_engine::plain(&mayfly, &[]) else {
        return;
    };
    let socket = engine.host().trim_start_matches("unix://");
    let rounds =
        number("MAYFLY_TEST_FAULT_ROUNDS").map_or(ROUNDS, |rounds| usize::try_from(rounds).expect("a few"));
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    let seed = number("MAYFLY_TEST_FAULT_SEED").unwrap_or(u64::from(since.subsec_nanos()));
    eprintln!("{}", json!({"seed": seed, "rounds": rounds}));

    let folder = tempfile::tempdir().expect("a folder for a socket");
    let cut = Cut::new(folder.path(), Path::new(socket));
    let program = "import os, time\nprint(os.urandom(16).hex(), flush=True)\ntime.sleep(1)\n";
    let items = rounds * ITEMS_OF_A_ROUND;
    let batch = Batch::new(
        &mayfly,
        &cut.host(),
        items,
        SLOTS,
        program,
        &json!({"limits": {"cpu": "0.5"}}),
    );
    // Counted on the engine's own socket, which is never cut.
    let census = Census {
        host: engine.host().to_owned(),
        ..batch.census.clone()
    };
    let (done, met) = strike(&batch, &census, &cut, rounds, &mut Random(seed));
    let status = batch.go_on().ended(PATIENCE);
    assert!(status.success(), "{status}");
    let record = assert_whole(&mayfly, &batch);
    census.assert_no_orphans(&met);
    let printed: BTreeSet<String> = batch
        .results()
        .into_values()
        .flatten()
        .map(|line| line["stdout"]["text"].to_string())
        .collect();
    assert_eq!(printed.len(), items, "each result is of a run of its own");
    let figures = record.assert_each_job_has_one_result(items);
    eprintln!(
        "{}",
        json!({"seed": seed, "done": done, "figures": figures, "containers_met": met.len()})
    );
}

/// One fault after the other. Returns what was done, and the containers that were met on the way.
fn strike(
    batch: &Batch<'_>,
    census: &Census,
    cut: &Cut,
    rounds: usize,
    random: &mut Random,
) -> (Done, BTreeSet<String>) {
    let (mut done, mut met) = (Done::default(), BTreeSet::new());
    let mut process: Option<Process> = None;
    while done.rounds < rounds {
        let running = process.get_or_insert_with(|| batch.go_on());
        thread::sleep(random.between(200, 2_000));
        // In most rounds a program runs, and else whatever comes before one does. How often chance alone hits one is up to the
        // machine: between two of them may be a start that takes longer than either.
        if done.rounds % 3 != 0 {
            census.some_program_runs_within(PATIENCE);
            done.hits += 1;
        } else {
            done.hits += usize::from(census.programs() > 0);
        }
        assert!(
            !running.has_ended(),
            "the batch lasts for all rounds: {}",
            json!(done)
        );
        met.append(&mut census.containers());
        done.rounds += 1;
        match random.fault() {
            Fault::Kill => {
                running.signal(Signal::KILL);
                running.ended(PATIENCE);
                process = None;
                done.kills += 1;
            }
            Fault::Stop(time) => {
                running.signal(Signal::STOP);
                done.stops += 1;
                thread::sleep(time);
                running.signal(Signal::CONT);
            }
            Fault::Cut(time) => {
                cut.cut();
                done.cuts += 1;
                thread::sleep(time);
                cut.heal();
            }
        }
    }
    if let Some(mut running) = process {
        running.signal(Signal::KILL);
        running.ended(PATIENCE);
    }
    (done, met)
}

/// Each process holds a file for as long as it lives; whoever finds one of a dead process sees to it and removes it.
#[test]
fn a_process_that_was_killed_leaves_no_lock_that_the_next_one_does_not_clear_away() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let program = "import time\ntime.sleep(30)\n";
    let batch = Batch::new(&mayfly, "", 2, 2, program, &json!({"limits": {"wall": "60s"}}));
    let mut process = batch.run();
    crate::process::await_until("both programs run", PATIENCE, || batch.census.programs() == 2);
    process.signal(Signal::KILL);
    process.ended(PATIENCE);
    let folder = mayfly.database().with_file_name("processes");
    let files = || fs::read_dir(&folder).map_or(0, Iterator::count);
    assert!(files() > 0, "a process holds a file in {}", folder.display());
    let quick = mayfly.file("quick.py", b"print(1)");
    let status = batch
        .command(&["run", "--quiet"])
        .arg(quick)
        .status()
        .expect("mayfly starts");
    assert!(status.success(), "{status}");
    assert_eq!(
        files(),
        0,
        "files of dead processes are left in {}",
        folder.display()
    );
    batch.census.none_runs_within(PATIENCE);
    assert_eq!(batch.census.containers(), BTreeSet::new());
}
