//! What a job writes, and what it is called, never acts: not on a terminal, not in JSON, not in our log. The real binary on
//! the real engine.

mod support;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use mayfly_testkit::engine::find;
use serde_json::{Value, json};
use support::{ACTING, Mayfly, assert_nothing_acts, skip};

/// The same as a name: without controls, which names can't have.
const HIDING: &str = "\u{202e}fdp\u{e0041}\u{ad}\u{3164}\u{2028}x";

/// Writes its first argument to both outputs.
const ECHO: &[u8] = b"import os, sys\nfor to in (1, 2): os.write(to, sys.argv[1].encode())\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what we print is text")
}

/// What a command prints, of which nothing acts.
fn printed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("mayfly starts");
    let what = format!("{command:?}");
    assert_nothing_acts(&what, &text(&output.stderr));
    let stdout = text(&output.stdout);
    assert_nothing_acts(&what, &stdout);
    assert!(!stdout.is_empty(), "{what}: {}", text(&output.stderr));
    stdout
}

/// One value for each line.
fn lines(text: &str) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(line).collect()
}

/// Jobs whose text and names act, in a file with such a name: one that writes it, one whose program is not there.
fn items(mayfly: &Mayfly) -> String {
    let labels = json!({ format!("acting{HIDING}\n"): ACTING });
    let name = format!("items{HIDING}.jsonl");
    let items = [
        json!({ "id": format!("a{HIDING}"), "source": text(ECHO), "args": [ACTING], "labels": labels,
                "env": { "TEXT": ACTING }, "files": [{ "path": format!("b{HIDING}"), "content": ACTING }] }),
        json!({ "id": format!("c{HIDING}"), "command": [format!("/no/such{ACTING}")], "labels": labels }),
    ];
    mayfly.file(&name, items.map(|item| format!("{item}\n")).concat().as_bytes());
    name
}

#[test]
fn nothing_of_a_job_acts_in_what_a_command_prints_and_json_says_what_it_wrote() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    mayfly.file("echo.py", ECHO);
    let label = format!("acting={ACTING}");
    let run = printed(&mut mayfly.command(["run", "--json", "--label", &label, "echo.py", "--", ACTING]));
    let [run] = &lines(&run)[..] else {
        panic!("one line: {run}")
    };
    assert_eq!(
        (&run["stdout"]["text"], &run["stderr"]["text"]),
        (&json!(ACTING), &json!(ACTING))
    );
    let job = run["job"].as_str().expect("it has an id");
    for list in [&["job", "show", "--json", job][..], &["job", "list", "--json"]] {
        let found = lines(&printed(&mut mayfly.command(list)));
        assert_eq!(found[0]["labels"]["acting"], ACTING, "{list:?}");
    }

    let results = printed(&mut mayfly.command(["batch", "run", &items(&mayfly), "--no-progress"]));
    let results = lines(&results);
    let wrote: Vec<_> = results
        .iter()
        .filter(|item| item["stdout"]["text"] == ACTING)
        .collect();
    assert_eq!(wrote.len(), 1, "{results:#?}");
    assert_eq!(wrote[0]["item"], format!("a{HIDING}"));
    let batch = lines(&printed(&mut mayfly.command(["batch", "list", "--json"])));
    assert!(
        batch[0]["input"]
            .as_str()
            .is_some_and(|input| input.contains(HIDING)),
        "{batch:?}"
    );
    let batch = batch[0]["batch"].as_str().expect("it has an id");
    printed(
        mayfly
            .command(["batch", "resume", batch, "--json", "--out", "results.jsonl"])
            .stderr(Stdio::null()),
    );
    let file = std::fs::read_to_string(mayfly.file("x", b"").with_file_name("results.jsonl"));
    assert_nothing_acts("the file of results", &file.expect("the results are there"));

    let audit = printed(&mut mayfly.command(["audit", "list", "--json"]));
    assert!(lines(&audit).len() > 10, "{audit}");
    for rest in [
        &["job", "show", job][..],
        &["job", "list"],
        &["audit", "list"],
        &["image", "list", "--json"],
        &["batch", "list"],
        &["batch", "show", batch],
        &["batch", "show", batch, "--json"],
    ] {
        printed(&mut mayfly.command(rest));
    }
    let missing = mayfly
        .command(["run", &format!("no{}{HIDING}.py", &ACTING[..9])])
        .output();
    let missing = missing.expect("mayfly starts");
    assert_eq!(missing.status.code(), Some(66));
    assert_nothing_acts("an error", &text(&missing.stderr));
    let wrong = mayfly.command(["job", "show", ACTING]).output();
    let wrong = wrong.expect("mayfly starts");
    assert_eq!(wrong.status.code(), Some(64));
    assert_nothing_acts("a wrong command line", &text(&wrong.stderr));
}

/// Runs a command of the shell on a terminal of its own, and gives what came there.
fn on_a_terminal(mayfly: &Mayfly, script: &Path, arguments: &str) -> (Output, String) {
    let like = mayfly.command([""; 0]);
    let line = format!("\"$MAYFLY\" {arguments}");
    let mut on = Command::new(script);
    on.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => on.env(name, value),
            None => on.env_remove(name),
        };
    }
    on.env("MAYFLY", like.get_program()).env("TEXT", ACTING);
    on.current_dir(like.get_current_dir().expect("the test's folder"));
    let output = on.stdin(Stdio::null()).output().expect("script starts");
    // A terminal makes two characters of each line feed.
    let came = text(&output.stdout).replace("\r\n", "\n");
    (output, came)
}

#[test]
fn on_a_terminal_output_is_shown_and_does_not_act() {
    let Some(script) = find("script") else {
        skip("script (util-linux) is not installed");
        return;
    };
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    mayfly.file("echo.py", ECHO);
    let (output, came) = on_a_terminal(&mayfly, &script, "run --quiet echo.py -- \"$TEXT\"");
    assert!(output.status.success(), "{came}");
    assert_nothing_acts("run", &came);
    assert_eq!(
        came.matches(r"\x1b[2J\x9b31m\x7f\u{202e}\u{e0041}\u{ad}\u{3164}")
            .count(),
        2,
        "{came}"
    );
    let (_, came) = on_a_terminal(&mayfly, &script, "run --json echo.py -- \"$TEXT\" 2>/dev/null");
    assert_nothing_acts("run --json", &came);
    assert_eq!(lines(&came)[0]["stdout"]["text"], ACTING);
}

#[test]
fn nothing_that_a_job_writes_or_is_called_makes_a_line_in_the_log() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let items = items(&mayfly);
    for format in ["json", "text"] {
        let output = mayfly
            .command(["batch", "run", &items, "--quiet", "--out"])
            .arg(format!("{format}.jsonl"))
            .env("MAYFLY_LOG__FILTER", "trace")
            .env("MAYFLY_LOG__FORMAT", format)
            .output()
            .expect("mayfly starts");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let log = text(&output.stderr);
        assert!(log.lines().count() > 10, "it logs: {log}");
        for line in log.lines() {
            match format {
                "json" => {
                    let line: Value =
                        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                    assert!(line["target"].is_string(), "a line of ours: {line}");
                }
                _ => assert!(
                    line.starts_with("20"),
                    "a line of ours begins with its time: {line:?}"
                ),
            }
            assert!(!line.contains("FORGED"), "{line}");
        }
    }
}

#[test]
fn each_test_that_the_page_names_is_there() {
    let page = include_str!("../../docs/output.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named: Vec<_> = page
        .split('`')
        .filter_map(|word| word.split_once(".rs::"))
        .map(|(file, name)| (format!("{file}.rs"), name))
        .collect();
    assert!(named.len() > 30, "{named:?}");
    for (file, name) in named {
        let text =
            std::fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {name}(")), "{file} has no {name}");
    }
}
