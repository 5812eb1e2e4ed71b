//! The engine dies under its jobs, or stands still: promises P2 (one result) and P3 (nothing outlives its run), and that
//! a job whose sandbox could not even be made waits for the engine and is not ended (P1).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    PATIENCE,
    batch::Batch,
    census::processes_with,
    process::{Process, Signal, await_until, send},
    record::assert_whole,
    second_engine::{self, SecondEngine},
    support::Mayfly,
};

const SLOTS: u32 = 8;

/// Longer than a guest lives without its executor.
const ALIVE_LIMIT: Duration = Duration::from_secs(10);

/// Eight programs that run, and a mark that stands in their command lines.
fn eight_that_run<'a>(mayfly: &'a Mayfly, engine: &SecondEngine) -> (Batch<'a>, Process, String) {
    let mark = format!("mark-{}", engine.process());
    let program = "import time\nprint('here', flush=True)\ntime.sleep(30)\n";
    let more = json!({"args": [mark], "limits": {"wall": "120s", "cpu": "0.5"}});
    let batch = Batch::new(mayfly, engine.host(), SLOTS as usize, SLOTS, program, &more);
    let process = batch.run();
    await_until("all eight programs run", PATIENCE, || {
        processes_with(&mark) == SLOTS as usize
    });
    (batch, process, mark)
}

fn a_killed_engine(options: &[&str]) {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(engine) = second_engine::plain(&mayfly, options) else {
        return;
    };
    let (batch, mut process, mark) = eight_that_run(&mayfly, &engine);
    let containers = batch.census.running();
    engine.kill();
    let killed = Instant::now();
    // Whoever holds their stdin is gone, or no `alive` frame comes: the guests end without the engine.
    await_until("no program runs", Duration::from_secs(15), || {
        processes_with(&mark) == 0
    });
    eprintln!(
        "{}",
        json!({"options": options, "programs_gone_after_ms": killed.elapsed().as_millis()})
    );
    // More than all tries of a job would take if each were spent on an engine that is not there.
    std::thread::sleep(ALIVE_LIMIT);
    assert!(!process.has_ended(), "the jobs wait for their engine");
    engine.restart();
    let status = process.ended(PATIENCE);
    assert!(status.success(), "{status}");
    let record = assert_whole(&mayfly, &batch);
    batch.census.assert_no_orphans(&containers);
    for job in &record.jobs {
        assert_eq!(job.details.attempts.len(), 2, "{}: {:?}", job.item, job.causes());
    }
}

#[test]
fn jobs_of_an_engine_that_is_killed_end_with_one_result_each() {
    a_killed_engine(&[]);
}

#[test]
fn no_container_outlives_its_job_on_an_engine_with_live_restore_that_is_killed() {
    a_killed_engine(&["--live-restore"]);
}

#[test]
fn jobs_of_an_engine_that_stands_still_end_with_one_result_each() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let Some(engine) = second_engine::plain(&mayfly, &[]) else {
        return;
    };
    let (batch, mut process, mark) = eight_that_run(&mayfly, &engine);
    let containers = batch.census.running();
    send(engine.process(), Signal::STOP);
    let stopped = Instant::now();
    await_until("no program runs", Duration::from_secs(15), || {
        processes_with(&mark) == 0
    });
    eprintln!(
        "{}",
        json!({"programs_gone_after_ms": stopped.elapsed().as_millis()})
    );
    send(engine.process(), Signal::CONT);
    let status = process.ended(PATIENCE);
    assert!(status.success(), "{status}");
    let record = assert_whole(&mayfly, &batch);
    batch.census.assert_no_orphans(&containers);
    for job in &record.jobs {
        assert_eq!(job.details.attempts.len(), 2, "{}: {:?}", job.item, job.causes());
    }
}
