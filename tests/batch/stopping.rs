//! Ctrl-C, once and twice, a reader that goes away, and a cancel from elsewhere.

use std::{io::Read as _, process::Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    place::{Running, lines, newest, output, results, results_in, show, starts, text, wait_until},
    support::Mayfly,
};

/// Runs for long enough to be stopped, and not for ever.
const A_WHILE: &str = "import time\ntime.sleep(3)\nprint('done')\n";
const FOR_EVER: &str = "while True: pass\n";

/// The id of the newest batch, once so many of its jobs run.
fn once_running(mayfly: &Mayfly, count: u64) -> String {
    wait_until("jobs run", || newest(mayfly)["running"] == count);
    newest(mayfly)["batch"].as_str().unwrap().to_owned()
}

#[test]
fn ctrl_c_once_lets_what_runs_finish_and_a_resume_does_the_rest() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let out = lines(&mayfly, (0..6).map(|n| n.to_string()), A_WHILE).with_file_name("results.jsonl");
    let mut command = mayfly.command([
        "batch",
        "run",
        "jobs.jsonl",
        "--slots",
        "2",
        "--out",
        "results.jsonl",
    ]);
    let mut running = Running::start(&mut command);
    let id = once_running(&mayfly, 2);

    // Meanwhile nobody else may run it, and nobody else writes into its file.
    let refused = output(&mut mayfly.command(["batch", "resume", &id]));
    assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains(&format!("runs batch {id}")));
    let refused = output(&mut mayfly.command(["batch", "run", "jobs.jsonl", "--out", "results.jsonl"]));
    assert_eq!(refused.status.code(), Some(75), "{}", text(&refused.stderr));
    assert_eq!(show(&mayfly, &id).0["stands"], "running");

    running.signal(Signal::INT);
    running.until_it_says("nothing new starts");
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    assert!(
        said.contains(&format!("`mayfly batch resume {id} --out results.jsonl` goes on")),
        "{said}"
    );
    let (batch, items) = show(&mayfly, &id);
    assert_eq!(
        (&batch["stands"], &batch["running"]),
        (&json!("stopped"), &json!(0))
    );
    let done = batch["ended"]["succeeded"].as_u64().unwrap();
    assert!((2..6).contains(&done), "{batch}");
    let ended = items.iter().filter(|item| item["state"] == "succeeded").count() as u64;
    assert_eq!(
        (ended, results_in(&out).len() as u64),
        (done, done),
        "what ran has its result"
    );

    let resume =
        output(&mut mayfly.command(["batch", "resume", &id, "--slots", "3", "--out", "results.jsonl"]));
    assert_eq!(resume.status.code(), Some(0), "{}", text(&resume.stderr));
    let found = results_in(&out);
    assert_eq!(found.len(), 6);
    assert!(
        found
            .values()
            .all(|line| line["stdout"]["text"] == "done\n" && line["attempts"] == 1)
    );
    assert!(
        starts(&mayfly, &id).values().all(|count| *count == 1),
        "none has run twice"
    );
}

#[test]
fn ctrl_c_twice_gives_up_what_runs_and_a_cancel_ends_the_rest() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let out = lines(&mayfly, (0..4).map(|n| n.to_string()), FOR_EVER).with_file_name("results.jsonl");
    let mut command = mayfly.command(["batch", "run", "jobs.jsonl", "--slots", "2", "--timeout", "10m"]);
    let mut running = Running::start(command.args(["--out", "results.jsonl"]));
    let id = once_running(&mayfly, 2);
    running.signal(Signal::INT);
    running.until_it_says("nothing new starts");
    assert!(!running.has_ended(), "what runs goes on");
    running.signal(Signal::TERM);
    running.until_it_says("given up");
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    let (batch, items) = show(&mayfly, &id);
    assert_eq!(
        (&batch["running"], &batch["waiting"]),
        (&json!(0), &json!(4)),
        "{batch}"
    );
    let tried = items
        .iter()
        .filter(|item| item["attempts"] == 1 && item["state"] == "queued")
        .count();
    assert_eq!(tried, 2, "they may be tried again: {items:?}");
    assert!(results_in(&out).is_empty());

    let cancel = output(&mut mayfly.command(["batch", "cancel", &id]));
    assert!(
        text(&cancel.stdout).contains("4 canceled, 0 running"),
        "{}",
        text(&cancel.stdout)
    );
    let again = output(&mut mayfly.command(["batch", "cancel", &id]));
    assert!(text(&again.stdout).contains("0 canceled, 0 running and asked to end, 4 had ended"));
    let resume = output(&mut mayfly.command(["batch", "resume", &id, "--out", "results.jsonl"]));
    assert_eq!(resume.status.code(), Some(1));
    assert!(results_in(&out).values().all(|line| line["state"] == "canceled"));
    assert_eq!(results_in(&out).len(), 4);
}

#[test]
fn ctrl_c_while_items_are_accepted_leaves_a_part_and_says_how_to_go_on() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    // Accepted in many transactions, each with a few large items.
    let names = (0..40).map(|n| n.to_string());
    lines(&mayfly, names, &format!("print(1)\n#{}", "x".repeat(3 << 20)));
    let running = Running::start(&mut mayfly.command(["batch", "run", "jobs.jsonl", "--slots", "1"]));
    wait_until("a part is accepted", || {
        newest(&mayfly)["accepted"].as_u64() > Some(0)
    });
    running.signal(Signal::INT);
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    let batch = newest(&mayfly);
    assert_eq!(
        (&batch["stands"], &batch["running"]),
        (&json!("partly_accepted"), &json!(0))
    );
    let id = batch["batch"].as_str().unwrap();
    assert!(
        said.contains(&format!("`mayfly batch run jobs.jsonl --batch {id}` goes on")),
        "{said}"
    );
}

#[test]
fn with_one_attempt_what_is_given_up_is_over_and_has_its_result() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let out = lines(&mayfly, ["a".to_owned()], FOR_EVER).with_file_name("results.jsonl");
    let mut command = mayfly.command([
        "batch",
        "run",
        "jobs.jsonl",
        "--max-attempts",
        "1",
        "--timeout",
        "10m",
    ]);
    let mut running = Running::start(command.args(["--out", "results.jsonl"]));
    once_running(&mayfly, 1);
    running.signal(Signal::INT);
    running.until_it_says("nothing new starts");
    running.signal(Signal::INT);
    let (code, said) = running.ended();
    assert_eq!(code, Some(1), "it is over: {said}");
    let found = results_in(&out);
    let (state, cause) = (&found["a"]["state"], &found["a"]["cause"]);
    assert_eq!(cause, "abandoned");
    // Lost where the program had begun, and else no word about a program.
    assert!(state == "lost" || state == "error", "{state}");
}

#[test]
fn a_reader_that_reads_nothing_can_not_hold_the_process() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    // More than a pipe holds.
    lines(&mayfly, ["a".to_owned(), "b".to_owned()], "print('x' * 300_000)");
    let mut command = mayfly.command(["batch", "run", "jobs.jsonl"]);
    let mut running = Running::start_unread(&mut command);
    wait_until("both have ended", || newest(&mayfly)["ended"]["succeeded"] == 2);
    assert!(!running.has_ended(), "what they printed is not written yet");
    running.signal(Signal::INT);
    running.until_it_says("nothing new starts");
    running.signal(Signal::INT);
    running.until_it_says("given up");
    running.signal(Signal::INT);
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    let id = newest(&mayfly)["batch"].as_str().unwrap().to_owned();
    let resume = output(&mut mayfly.command(["batch", "resume", &id]));
    assert_eq!(resume.status.code(), Some(0), "{}", text(&resume.stderr));
    assert_eq!(results(&text(&resume.stdout)).len(), 2);
}

#[test]
fn a_cancel_from_another_process_ends_what_runs_there() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let out = lines(&mayfly, (0..3).map(|n| n.to_string()), FOR_EVER).with_file_name("results.jsonl");
    let mut command = mayfly.command(["batch", "run", "jobs.jsonl", "--slots", "1", "--timeout", "10m"]);
    let running = Running::start(command.args(["--out", "results.jsonl"]));
    let id = once_running(&mayfly, 1);
    let cancel = output(&mut mayfly.command(["batch", "cancel", &id]));
    assert!(
        text(&cancel.stdout).contains("2 canceled, 1 running and asked to end"),
        "{}",
        text(&cancel.stdout)
    );
    let (code, said) = running.ended();
    assert_eq!(code, Some(1), "{said}");
    let found = results_in(&out);
    assert_eq!(found.len(), 3);
    assert!(found.values().all(|line| line["state"] == "canceled"));
    assert_eq!(starts(&mayfly, &id).values().sum::<usize>(), 1);
}

#[test]
fn a_reader_that_goes_away_stops_the_batch() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    lines(&mayfly, (0..8).map(|n| n.to_string()), A_WHILE);
    let mut child = mayfly
        .command(["batch", "run", "jobs.jsonl", "--slots", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut byte).unwrap();
    drop(stdout);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(73), "{}", text(&ended.stderr));
    let batch = newest(&mayfly);
    assert!(batch["waiting"].as_u64() > Some(0), "the rest is kept: {batch}");
    assert_eq!(
        (&batch["stands"], &batch["running"]),
        (&json!("stopped"), &json!(0))
    );
}
