//! Batches that run to their end.

use std::{fs, io::Write as _, process::Stdio};

use serde_json::json;

use crate::{
    place::{lines, newest, output, results, results_in, show, text},
    support::Mayfly,
};

#[test]
fn a_folder_is_run_and_each_program_has_its_line() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let home = mayfly.file("plain.txt", b"").parent().unwrap().to_owned();
    fs::create_dir_all(home.join("programs/deep")).unwrap();
    fs::write(home.join("programs/good.py"), "print('good')").unwrap();
    fs::write(
        home.join("programs/deep/shell.sh"),
        "echo \"$GREETING\"; cat shared.txt",
    )
    .unwrap();
    fs::write(
        home.join("programs/bad.py"),
        "import os\nos.write(1, b'\\xff')\nraise SystemExit(3)",
    )
    .unwrap();
    std::os::unix::fs::symlink("good.py", home.join("programs/link.py")).unwrap();
    mayfly.file("shared.txt", b"shared");
    let out = home.join("results.jsonl");
    let run = output(
        mayfly
            .command(["batch", "run", "programs", "--env", "GREETING=hello"])
            .args([
                "--file",
                "shared.txt",
                "--timeout",
                "20s",
                "--label",
                "of=test",
                "--out",
                "results.jsonl",
                "--json",
            ]),
    );
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let found = results_in(&out);
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        ["bad.py", "deep/shell.sh", "good.py"]
    );
    let bad = &found["bad.py"];
    assert_eq!((&bad["state"], &bad["exit_code"]), (&json!("failed"), &json!(3)));
    assert_eq!(bad["stdout"]["base64"], "/w==");
    assert_eq!(found["deep/shell.sh"]["stdout"]["text"], "hello\nshared");
    assert_eq!(found["good.py"]["stdout"]["text"], "good\n");
    assert_eq!(found["good.py"]["limits"]["asked"]["wall"], "20s");
    assert_eq!(found["good.py"]["labels"]["of"], "test");
    let stderr = text(&run.stderr);
    assert!(
        stderr.contains("left out, since it is a link: link.py"),
        "{stderr}"
    );

    // With a file for the results the summary is all that stdout has.
    let summary: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(summary["ended"], json!({"succeeded": 2, "failed": 1}));
    assert_eq!((&summary["items"], &summary["next"]), (&json!(3), &json!(null)));
    let id = summary["batch"].as_str().unwrap();
    assert!(found.values().all(|line| line["batch"] == id));

    // What can be asked afterwards.
    let (batch, items) = show(&mayfly, id);
    assert_eq!(
        (&batch["stands"], &batch["input"]),
        (&json!("over"), &json!("programs"))
    );
    assert_eq!(items.len(), 3);
    for item in &items {
        assert_eq!(item["job"], found[item["item"].as_str().unwrap()]["job"]);
    }
    let failed = output(&mut mayfly.command(["batch", "show", id, "--failed"]));
    let failed = text(&failed.stdout);
    assert!(
        failed.contains("failed (exited)  bad.py") && !failed.contains("good.py"),
        "{failed}"
    );
    assert_eq!(newest(&mayfly)["batch"], id);
    let unknown = output(&mut mayfly.command(["batch", "show", "01a228a5-1529-76fd-bdc8-39675287802d"]));
    assert_eq!(unknown.status.code(), Some(72));

    // It is over, so that a resume writes what is missing, and needs no engine for it.
    fs::remove_file(&out).unwrap();
    let resume = || {
        let mut command = mayfly.command(["batch", "resume", id, "--out", "results.jsonl"]);
        output(command.env("DOCKER_HOST", "unix:///nowhere/engine.sock"))
    };
    assert_eq!(resume().status.code(), Some(1));
    let whole = fs::read(&out).unwrap();
    assert_eq!(results_in(&out), found);
    // Cut in the middle of a line it is made whole, and whole it stays.
    for cut in [whole.len() - 1, whole.len() / 2, 10, 0, whole.len()] {
        fs::write(&out, &whole[..cut]).unwrap();
        assert_eq!(resume().status.code(), Some(1));
        assert_eq!(results_in(&out), found, "cut at {cut}");
    }
    // A power cut may leave a hole that is longer than what comes into its place.
    fs::write(&out, [&whole[..], &[0; 100_000]].concat()).unwrap();
    assert_eq!(resume().status.code(), Some(1));
    assert_eq!(fs::read(&out).unwrap(), whole);
}

#[test]
fn lines_are_read_from_standard_input_and_results_go_to_standard_output() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    mayfly.file("program.sh", b"cat; echo \"$1\"");
    let jobs = [
        json!({"id": "args", "file": "program.sh", "stdin": "in,", "args": ["out"]}),
        json!({"id": "files", "command": ["cat", "a/b.txt"], "files": [{"path": "a/b.txt", "content": {"base64": "/w=="}}]}),
        json!({"id": "print", "source": "import os; print(os.environ['X'])", "env": {"X": "x"}}),
    ];
    let input: String = jobs.iter().map(|job| format!("{job}\n")).collect();
    let mut child = mayfly
        .command(["batch", "run", "-", "--slots", "2", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let run = child.wait_with_output().unwrap();
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
    let found = results(&text(&run.stdout));
    assert_eq!(found.len(), 3);
    assert_eq!(found["args"]["stdout"]["text"], "in,out\n");
    assert_eq!(found["files"]["stdout"]["base64"], "/w==");
    assert_eq!(found["print"]["stdout"]["text"], "x\n");
}

#[test]
fn the_examples_run_and_are_what_the_page_shows() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/batch");
    let jobs = fs::read_to_string(format!("{examples}/jobs.jsonl")).unwrap();
    let page = include_str!("../../docs/batch.md");
    let shown = page
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert!(
        jobs.starts_with(shown),
        "docs/batch.md shows the first lines of the example"
    );
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    for (input, expected) in [
        (examples.to_owned(), &["primes.py", "where.sh"][..]),
        (
            format!("{examples}/jobs.jsonl"),
            &["count", "greet", "primes", "sum"],
        ),
    ] {
        let run = output(&mut mayfly.command(["batch", "run", &input]));
        assert_eq!(run.status.code(), Some(0), "{input}: {}", text(&run.stderr));
        assert_eq!(
            results(&text(&run.stdout)).into_keys().collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn a_pool_of_warm_sandboxes_serves_a_batch_and_is_said() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    lines(&mayfly, (0..6).map(|n| n.to_string()), "print(1)");
    let run = output(&mut mayfly.command([
        "batch",
        "run",
        "jobs.jsonl",
        "--slots",
        "1",
        "--pool",
        "2",
        "--json",
    ]));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let stderr = text(&run.stderr);
    let summary: serde_json::Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
    let (warm, cold) = (
        summary["warm"].as_u64().unwrap(),
        summary["cold"].as_u64().unwrap(),
    );
    assert_eq!(warm + cold, 6, "{summary}");
    assert!(
        warm > 0,
        "the first of them brought the pool to make some: {summary}"
    );
    let too_many =
        output(&mut mayfly.command(["batch", "run", "jobs.jsonl", "--slots", "30", "--pool", "3"]));
    assert_eq!(too_many.status.code(), Some(64), "{}", text(&too_many.stderr));
}

#[test]
#[ignore = "200 containers take a while"]
fn two_hundred_tiny_items_have_a_result_each() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    lines(&mayfly, (0..200).map(|n| format!("item {n}")), "print(1)");
    let run = output(&mut mayfly.command([
        "batch",
        "run",
        "jobs.jsonl",
        "--slots",
        "4",
        "--out",
        "results.jsonl",
    ]));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let found = results_in(&mayfly.file("x", b"").with_file_name("results.jsonl"));
    assert_eq!(found.len(), 200);
    assert!(
        found
            .values()
            .all(|line| line["stdout"]["text"] == "1\n" && line["attempts"] == 1)
    );
}
