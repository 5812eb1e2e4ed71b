//! Completion scripts and manual pages, as the programs that read them see them.

use std::process::{Command, Stdio};

mod support;

use support::skip;

fn mayfly(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    // Neither a home nor settings: these commands need none.
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

fn text(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn bash_completes_commands_options_and_words_from_the_script() {
    if !is_there("bash") {
        skip("bash is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("mayfly.bash");
    std::fs::write(&script, text(&mut mayfly(&["completions", "bash"]))).unwrap();
    let complete = |words: &[&str]| {
        let program = "source \"$1\"; shift
            function=$(complete -p mayfly | sed 's/.*-F \\([^ ]*\\).*/\\1/')
            COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
            \"$function\" mayfly \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-eu", "-c", program, "bash"])
            .arg(&script)
            .args(words);
        let answers = text(&mut bash);
        answers.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["mayfly", "im"]), ["image"]);
    assert_eq!(complete(&["mayfly", "job", "sh"]), ["show"]);
    assert_eq!(complete(&["mayfly", "run", "--max-at"]), ["--max-attempts"]);
    assert_eq!(complete(&["mayfly", "completions", "f"]), ["fish"]);
}

#[test]
fn every_manual_page_is_read_without_a_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man/man1");
    text(&mut mayfly(&["man", "--dir", pages.to_str().unwrap()]));
    let names: Vec<_> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(
        names.iter().any(|path| path.ends_with("mayfly-image-pin.1")),
        "{names:?}"
    );
    if !is_there("groff") {
        skip("groff is not installed");
        return;
    }
    for page in &names {
        let output = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(page)
            .output()
            .expect("groff starts");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "{}: {complaints}",
            page.display()
        );
    }
}

#[test]
fn the_manual_page_is_printed_and_a_folder_that_can_not_be_made_is_named() {
    let page = text(&mut mayfly(&["man"]));
    for section in [
        "NAME",
        "SYNOPSIS",
        "OPTIONS",
        "SUBCOMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
    ] {
        assert!(
            page.contains(&format!(".SH {section}")) || page.contains(&format!(".SH \"{section}\"")),
            "{section}"
        );
    }
    let output = mayfly(&["man", "--dir", "/dev/null/x"])
        .output()
        .expect("mayfly starts");
    assert_eq!(output.status.code(), Some(73));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null/x"));
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}
