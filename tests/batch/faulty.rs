//! What is refused is refused before anything is accepted.

use std::{fs, os::unix::ffi::OsStrExt as _};

use serde_json::json;

use crate::{
    place::{has_no_job, lines, newest, output, results, text},
    support::Mayfly,
};

#[test]
fn a_faulty_input_is_refused_whole_with_its_faults() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let home = mayfly.file("x", b"").parent().unwrap().to_owned();
    let good = json!({"id": "good", "source": ""}).to_string();
    let bad = json!({"id": "bad", "source": "", "limits": {"memory": "1TiB"}}).to_string();
    let mut input = vec![good.clone(), good];
    input.extend(std::iter::repeat_n(bad, 23));
    mayfly.file("faulty.jsonl", format!("{}\n{{", input.join("\n")).as_bytes());
    let run = output(&mut mayfly.command(["batch", "run", "faulty.jsonl", "--out", "out.jsonl"]));
    let stderr = text(&run.stderr);
    assert_eq!(run.status.code(), Some(64), "{stderr}");
    // One name twice, 23 limits, 22 further names twice, one line that is no JSON.
    assert!(
        stderr.contains("has 47 faults, 27 of them not shown; nothing was accepted"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 21, "{stderr}");
    assert!(
        stderr.contains("item 2 (good): item 1 has this name already"),
        "{stderr}"
    );
    assert!(
        stderr.contains("item 3 (bad): limits.memory: 1TiB is over"),
        "{stderr}"
    );

    fs::create_dir_all(home.join("empty/.hidden")).unwrap();
    fs::write(home.join("empty/notes.txt"), "").unwrap();
    fs::write(home.join("empty/.hidden/x.py"), "").unwrap();
    mayfly.file("empty.jsonl", b"\n\n");
    fs::create_dir(home.join("odd")).unwrap();
    fs::write(home.join("odd").join(std::ffi::OsStr::from_bytes(b"\xff.py")), "").unwrap();
    mayfly.file("one.py", b"");
    for (input, code, word) in [
        ("empty", 64, "no .py or .sh file"),
        ("empty.jsonl", 64, "no item"),
        ("odd", 64, "not UTF-8"),
        ("one.py", 64, "`mayfly run one.py`"),
        ("nothing", 66, "nothing can't be read"),
    ] {
        let run = output(&mut mayfly.command(["batch", "run", input, "--out", "out.jsonl"]));
        let stderr = text(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{input}: {stderr}");
        assert!(stderr.contains(word), "{input}: {stderr}");
    }
    assert!(!home.join("out.jsonl").exists(), "and no file of results");
    assert!(has_no_job(&mayfly) && newest(&mayfly).is_null());
}

#[test]
fn what_is_missing_for_a_run_is_said_before_anything_is_accepted() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let images =
        ["cobol", "python", "fortran"].map(|image| json!({"id": image, "source": "", "image": image}));
    mayfly.file(
        "images.jsonl",
        images.map(|job| format!("{job}\n")).concat().as_bytes(),
    );
    lines(&mayfly, ["a".to_owned()], "");
    let notes = mayfly.file("notes.txt", b"mine, and not of a batch");
    let cases = [
        (&["images.jsonl"][..], 68, "image `cobol`"),
        (&["images.jsonl"], 68, "image `fortran`"),
        (
            &["jobs.jsonl", "--out", "no/such/folder"],
            73,
            "results can't go to no/such/folder",
        ),
        (
            &["jobs.jsonl", "--out", "notes.txt"],
            64,
            "line 1 is no result of batch",
        ),
        (&["jobs.jsonl", "--slots", "33"], 64, "--slots"),
        (&["jobs.jsonl", "--batch", "x"], 64, "no batch id"),
    ];
    for (args, code, word) in cases {
        let run = output(mayfly.command(["batch", "run"]).args(args));
        let stderr = text(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
    }
    let mut without_engine = mayfly.command(["batch", "run", "jobs.jsonl"]);
    without_engine.env("DOCKER_HOST", "unix:///nowhere/engine.sock");
    assert_eq!(output(&mut without_engine).status.code(), Some(69));
    assert_eq!(fs::read(notes).unwrap(), b"mine, and not of a batch");
    assert!(has_no_job(&mayfly) && newest(&mayfly).is_null());
}

#[test]
fn results_that_can_not_be_written_stop_the_batch_and_are_not_lost() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    lines(
        &mayfly,
        (0..8).map(|n| n.to_string()),
        "import time\ntime.sleep(1)\nprint(1)",
    );
    let run =
        output(&mut mayfly.command(["batch", "run", "jobs.jsonl", "--slots", "1", "--out", "/dev/full"]));
    let stderr = text(&run.stderr);
    assert_eq!(run.status.code(), Some(73), "{stderr}");
    let batch = newest(&mayfly);
    assert_eq!(batch["running"], 0);
    let over = batch["ended"]["succeeded"].as_u64().unwrap();
    assert!(
        (1..8).contains(&over),
        "what ran was finished, and nothing new started: {batch}"
    );
    let id = batch["batch"].as_str().unwrap();
    assert!(
        stderr.contains(&format!("mayfly batch resume {id} --out FILE")),
        "{stderr}"
    );
    let resume = output(&mut mayfly.command(["batch", "resume", id, "--slots", "2"]));
    assert_eq!(resume.status.code(), Some(0), "{}", text(&resume.stderr));
    assert_eq!(results(&text(&resume.stdout)).len(), 8);
}
