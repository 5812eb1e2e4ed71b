//! The real binary, with a home of its own, on the machine's engine. Each test file uses a part of this.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test file is a crate of its own, and uses a part of this"
)]

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

/// `mayfly` as a person has it: settings, database and files in a folder of the test's own.
pub struct Mayfly {
    home: tempfile::TempDir,
}

impl Mayfly {
    /// One whose catalog has the image `python`, or nothing where there is no engine; that is printed and counted.
    pub fn with_python() -> Option<Self> {
        let mayfly = Self::alone();
        let output = mayfly.ensure("python", None)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "the image python could not be had: {stderr}"
        );
        Some(mayfly)
    }

    /// One whose catalog has this image of ours, as its recipe has built it, or nothing where that was not done; that is
    /// printed and counted.
    pub fn with_built(image: &str) -> Option<Self> {
        let mayfly = Self::alone();
        let output = mayfly.ensure(image, Some("present"))?;
        if output.status.code() == Some(68) {
            skip(&format!(
                "the engine has no image {image}: deploy/images/{image}/build --engine-load builds it"
            ));
            return None;
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the image {image}: {stderr}");
        Some(mayfly)
    }

    /// What `mayfly image ensure` says, or nothing where no engine answers.
    fn ensure(&self, image: &str, source: Option<&str>) -> Option<Output> {
        let mut command = self.command(["image", "ensure", image]);
        if let Some(source) = source {
            command.env("MAYFLY_IMAGE__SOURCE", source);
        }
        let output = command.stdin(Stdio::null()).output().expect("mayfly starts");
        if output.status.code() == Some(69) {
            // An engine that hangs would otherwise turn every test into one that was left out.
            assert!(
                std::env::var_os("MAYFLY_TEST_ENGINE").is_none(),
                "the engine answered when the tests began, and does no more"
            );
            skip("no container engine answers");
            return None;
        }
        Some(output)
    }

    /// One with nothing: no catalog, no database.
    pub fn alone() -> Self {
        Self {
            home: tempfile::tempdir().expect("a folder for the test"),
        }
    }

    /// A command, run in the test's folder.
    pub fn command<Arg: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = Arg>) -> Command {
        // What is measured and promised of a release build is measured with one: `MAYFLY_TEST_PROGRAM` names it.
        let program = std::env::var_os("MAYFLY_TEST_PROGRAM");
        let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_mayfly").into()));
        command
            .args(args)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env(
                "MAYFLY_IMAGE__RECIPES",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/images"),
            )
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command
    }

    /// The database of that home.
    pub fn database(&self) -> PathBuf {
        self.home.path().join(".local/share/mayfly/mayfly.db")
    }

    /// A file in the test's folder.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, content).expect("a file for the test");
        path
    }
}

/// Text of a job that would act on a terminal, hide or reorder what stands beside it, or stand in a log as a line of ours.
pub const ACTING: &str = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{e0041}\u{ad}\u{3164}\u{34f}\u{fff9}\u{2028}\u{85}é😀\r\n\
    {\"timestamp\":\"2026-01-01T00:00:00Z\",\"level\":\"ERROR\",\"fields\":{\"message\":\"FORGED\"}}\n\
    2026-01-01T00:00:00.000000Z ERROR FORGED\n";

/// Finds a character by which a job's text would act on a terminal.
///
/// # Panics
/// There is one.
pub fn assert_nothing_acts(what: &str, text: &str) {
    let acting = r"[[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]--[\n\t]]";
    let acting = regex::Regex::new(acting).expect("a pattern of ours");
    assert_eq!(
        acting.find(text).map(|found| found.as_str()),
        None,
        "{what}: {text:?}"
    );
}

/// Says that a case can't run here, and why; `make test` counts these.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(log) = std::env::var_os("MAYFLY_SKIP_LOG") {
        let mut log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .expect("the log of skipped cases");
        writeln!(log, "{}: {why}", env!("CARGO_CRATE_NAME")).expect("the log of skipped cases");
    }
}
