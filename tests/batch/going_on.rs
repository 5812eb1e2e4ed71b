//! A process that is killed, and what goes on with its batch.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    place::{Running, lines, newest, output, results_in, show, starts, text, wait_until},
    support::Mayfly,
};

#[test]
fn a_killed_batch_is_resumed_with_one_result_each() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let source = "import time\ntime.sleep(1)\nprint('done')\n";
    let out = lines(&mayfly, (0..8).map(|n| n.to_string()), source).with_file_name("results.jsonl");
    let args = [
        "batch",
        "run",
        "jobs.jsonl",
        "--slots",
        "2",
        "--out",
        "results.jsonl",
    ];
    let running = Running::start(&mut mayfly.command(args));
    wait_until("some have ended and others run", || {
        let batch = newest(&mayfly);
        batch["ended"]["succeeded"].as_u64() >= Some(2) && batch["running"].as_u64() > Some(0)
    });
    running.signal(Signal::KILL);
    drop(running);
    let id = newest(&mayfly)["batch"].as_str().unwrap().to_owned();
    // Killed in the middle of a line, for certain.
    let written = std::fs::read(&out).unwrap();
    std::fs::write(&out, &written[..written.len() - 100]).unwrap();
    let before = starts(&mayfly, &id);

    let resume =
        output(&mut mayfly.command(["batch", "resume", &id, "--slots", "2", "--out", "results.jsonl"]));
    assert_eq!(resume.status.code(), Some(0), "{}", text(&resume.stderr));
    let found = results_in(&out);
    assert_eq!(found.len(), 8);
    assert!(found.values().all(|line| line["stdout"]["text"] == "done\n"));
    let (batch, items) = show(&mayfly, &id);
    assert_eq!(
        (&batch["stands"], &batch["ended"]),
        (&json!("over"), &json!({"succeeded": 8}))
    );
    for (item, count) in starts(&mayfly, &id) {
        let record = items
            .iter()
            .find(|record| record["item"] == item.as_str())
            .unwrap();
        assert_eq!(
            record["attempts"], count as u64,
            "every start is on record: {record}"
        );
        assert!(count <= 1 + before[&item], "{item} started {count} times");
    }
}

#[test]
fn a_batch_that_was_killed_while_it_was_accepted_goes_on_by_its_input() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    // Accepted in many transactions, each with a few large items.
    let names = (0..24).map(|n| format!("item {n}"));
    let input = lines(
        &mayfly,
        names,
        &format!("print('done')\n#{}", "x".repeat(3 << 20)),
    );
    let out = input.with_file_name("results.jsonl");
    let id = "01a228a5-1529-76fd-bdc8-39675287802d";
    let args = [
        "batch",
        "run",
        "jobs.jsonl",
        "--slots",
        "2",
        "--batch",
        id,
        "--out",
        "results.jsonl",
    ];
    let running = Running::start(&mut mayfly.command(args));
    wait_until("a part is accepted", || {
        newest(&mayfly)["accepted"].as_u64() > Some(0)
    });
    running.signal(Signal::KILL);
    drop(running);
    let batch = newest(&mayfly);
    assert_eq!(
        batch["stands"], "partly_accepted",
        "it was killed in time: {batch}"
    );
    let resume = output(&mut mayfly.command(["batch", "resume", id]));
    assert_eq!(resume.status.code(), Some(64));
    assert!(text(&resume.stderr).contains(&format!("`mayfly batch run jobs.jsonl --batch {id}`")));

    let run = output(&mut mayfly.command(args));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let found = results_in(&out);
    assert_eq!(found.len(), 24);
    assert!(found.values().all(|line| line["stdout"]["text"] == "done\n"));
    // The same once more: it is over, and nothing runs again.
    let before = starts(&mayfly, id);
    let run = output(&mut mayfly.command(args));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert_eq!((starts(&mayfly, id), results_in(&out)), (before, found));
    // Another input is not the batch, whether or not it has as many items.
    lines(&mayfly, (0..24).map(|n| format!("other-{n}")), "");
    let run = output(&mut mayfly.command(args));
    assert_eq!(run.status.code(), Some(64), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("it was begun from another input"));
    lines(&mayfly, ["another".to_owned()], "");
    let run = output(&mut mayfly.command(args));
    assert_eq!(run.status.code(), Some(64), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("is complete with 24 items"));
}
