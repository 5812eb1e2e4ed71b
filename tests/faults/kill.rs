//! The process is killed, or stands still, while its jobs run: promises P1 (accepted is kept), P2 (one result) and P3
//! (nothing outlives its executor).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    PATIENCE,
    batch::Batch,
    process::{Process, Signal, await_until},
    record::assert_whole,
    support::Mayfly,
};

/// Jobs at a time.
const SLOTS: u32 = 8;
/// Runs for long enough for all to run at once.
const PROGRAM: &str = "import os, time\nprint(os.urandom(8).hex(), flush=True)\ntime.sleep(30)\n";

/// Eight jobs, and the process that runs them, once all of their programs run.
fn eight_that_run(mayfly: &Mayfly) -> (Batch<'_>, Process) {
    let batch = Batch::new(
        mayfly,
        "",
        SLOTS as usize,
        SLOTS,
        PROGRAM,
        &json!({"limits": {"wall": "120s", "cpu": "0.5"}}),
    );
    let process = batch.run();
    await_until("all eight programs run", PATIENCE, || {
        batch.census.programs() == SLOTS as usize
    });
    (batch, process)
}

#[test]
fn a_killed_process_takes_its_containers_with_it_and_the_next_one_gives_each_job_its_one_result() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let (batch, mut process) = eight_that_run(&mayfly);
    let containers = batch.census.running();
    process.signal(Signal::KILL);
    let killed = Instant::now();
    batch.census.none_runs_within(Duration::from_secs(5));
    eprintln!(
        "{}",
        json!({"containers": containers.len(), "gone_after_ms": killed.elapsed().as_millis()})
    );
    process.ended(PATIENCE);

    let status = batch.go_on().ended(PATIENCE);
    assert!(status.success(), "{status}");
    let record = assert_whole(&mayfly, &batch);
    batch.census.assert_no_orphans(&containers);
    for job in &record.jobs {
        assert_eq!(
            job.details.attempts.len(),
            2,
            "{}: one attempt was killed, one ended",
            job.item
        );
    }
}

#[test]
fn a_process_that_stands_still_keeps_no_job_and_goes_on_with_one_result_each() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let (batch, mut process) = eight_that_run(&mayfly);
    let containers = batch.census.running();
    process.signal(Signal::STOP);
    let stopped = Instant::now();
    batch.census.none_runs_within(Duration::from_secs(15));
    eprintln!(
        "{}",
        json!({"containers": containers.len(), "gone_after_ms": stopped.elapsed().as_millis()})
    );
    process.signal(Signal::CONT);
    let status = process.ended(PATIENCE);
    assert!(status.success(), "{status}");
    let record = assert_whole(&mayfly, &batch);
    batch.census.assert_no_orphans(&containers);
    for job in &record.jobs {
        assert_eq!(job.details.attempts.len(), 2, "{}: {:?}", job.item, job.causes());
    }
}

#[test]
#[ignore = "stands still for longer than a lease, a minute"]
fn a_process_that_stands_still_for_longer_than_its_lease_reports_over_nobodys_result() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let (batch, mut process) = eight_that_run(&mayfly);
    process.signal(Signal::STOP);
    batch.census.none_runs_within(Duration::from_secs(15));
    // The lease is 45 s of the clock that counts on; nothing shows its end while the process stands still.
    std::thread::sleep(Duration::from_secs(50));
    process.signal(Signal::CONT);
    let status = process.ended(PATIENCE);
    assert!(status.success(), "{status}");
    assert_whole(&mayfly, &batch);
}
