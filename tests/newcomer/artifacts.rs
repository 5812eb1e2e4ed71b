//! Files that a job leaves, from the real engine into a folder.

mod support;

use std::{fs, path::Path};

use serde_json::Value;
use support::Mayfly;

const PROGRAM: &[u8] = b"import os, sys
os.makedirs('out/deep')
open('out/data.csv', 'w').write('a,b\\n1,2\\n')
open('out/deep/large.bin', 'wb').write(bytes(range(256)) * 10_000)
open('out/empty', 'w')
open('out/told.txt', 'w').write('my token is ' + os.environ['TOKEN'])
os.symlink('/etc/passwd', 'out/link')
sys.exit(int(sys.argv[1]))
";

/// Every file below a folder with its bytes, by its path in it.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(folder)
                    .expect("it is below")
                    .display()
                    .to_string();
                files.push((name, fs::read(&path).expect("it can be read")));
            }
        }
    }
    files.sort();
    files
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn files_of_a_job_land_in_the_folder_that_was_named_as_the_record_has_them() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let program = mayfly.file("leaves.py", PROGRAM);
    let home = program.parent().expect("it has one").to_owned();
    let secret = "correct-horse-battery";
    let run = |args: &[&str]| {
        let mut command = mayfly.command(args);
        let output = command.env("TOKEN", secret).current_dir(&home).output();
        output.expect("mayfly can be started")
    };
    let output = run(&[
        "run",
        "--secret",
        "TOKEN",
        "--artifact",
        "out/**",
        "--out",
        "got",
        "leaves.py",
        "--",
        "0",
    ]);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("not kept: out/link: it is a symbolic link"),
        "{told}"
    );
    assert!(told.contains("4 of 4 files"), "{told}");
    let large: Vec<u8> = (0..=255).cycle().take(256 * 10_000).collect();
    let expected = [
        ("out/data.csv".to_owned(), b"a,b\n1,2\n".to_vec()),
        ("out/deep/large.bin".to_owned(), large),
        ("out/empty".to_owned(), Vec::new()),
        (
            "out/told.txt".to_owned(),
            b"my token is [redacted:secret]".to_vec(),
        ),
    ];
    assert!(
        files(&home.join("got")) == expected,
        "{:?}",
        fs::read_dir(home.join("got/out"))
    );
    // Again into the same folder: what is there stays, and is named.
    let shown: Value =
        serde_json::from_slice(&run(&["job", "show", "--last", "--json"]).stdout).expect("JSON");
    let job = shown["job"].as_str().expect("an id");
    assert_eq!(shown["artifacts"]["files"][0]["name"]["text"], "out/data.csv");
    fs::write(home.join("got/out/data.csv"), "mine").expect("it can be written");
    let again = run(&["job", "artifacts", "get", job, "--out", "got"]);
    assert_eq!(again.status.code(), Some(73), "{}", text(&again.stderr));
    assert_eq!(
        fs::read(home.join("got/out/data.csv")).expect("it is there"),
        b"mine"
    );
    let forced = run(&["job", "artifacts", "get", job, "0", "--force", "--out", "got"]);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert!(files(&home.join("got")) == expected);
    let absent = run(&["job", "artifacts", "get", job, "out/link", "--out", "got"]);
    assert_eq!(absent.status.code(), Some(72), "{}", text(&absent.stderr));
    let list = run(&["job", "artifacts", "list", job, "--json"]);
    let lines: Vec<Value> = text(&list.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(
        (&lines[3]["sha256"], &lines[4]["left_out"]),
        (
            &Value::from(mayfly_core::digest::Digest::of(&expected[3].1).to_hex()),
            &Value::from("link")
        )
    );
    let record = text(&run(&["audit", "list", "--json"]).stdout);
    assert!(
        record.contains("\\\"left_out\\\":1") || record.contains("\"left_out\":1"),
        "{record}"
    );
    assert!(
        !record.contains("data.csv") && !record.contains(secret),
        "{record}"
    );
}

#[test]
fn a_job_that_fails_leaves_files_where_that_is_asked() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let program = mayfly.file("leaves.py", PROGRAM);
    let home = program.parent().expect("it has one").to_owned();
    for (flag, expected) in [(None, 0), (Some("--artifacts-always"), 1)] {
        let mut args = vec![
            "run",
            "--secret",
            "TOKEN",
            "--artifact",
            "out/*.csv",
            "--out",
            "got",
        ];
        args.extend(flag);
        args.extend(["leaves.py", "--", "3"]);
        let mut command = mayfly.command(&args);
        let output = command.env("TOKEN", "12345678").current_dir(&home).output();
        let output = output.expect("mayfly can be started");
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let found = if home.join("got").exists() {
            files(&home.join("got")).len()
        } else {
            0
        };
        assert_eq!(found, expected, "{}", text(&output.stderr));
    }
}
