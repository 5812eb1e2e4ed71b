//! A role as a process of its own.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use super::wait_for;

/// `mayfly ROLE`, killed when this is dropped.
pub struct Role {
    name: String,
    command: String,
    folder: PathBuf,
    settings: BTreeMap<String, String>,
    child: Child,
}

impl Role {
    /// Starts it with these settings and nothing else of this process's.
    pub fn start(folder: &Path, name: &str, command: &str, settings: BTreeMap<String, String>) -> Self {
        let child = spawn(folder, name, command, &settings);
        Self {
            name: name.to_owned(),
            command: command.to_owned(),
            folder: folder.to_owned(),
            settings,
            child,
        }
    }

    /// What it was started with.
    pub const fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", self.pid())])
            .status()
            .expect("sh starts");
        assert!(sent.success(), "{} is there to be sent {signal}", self.name);
    }

    /// At once, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again, as what it was.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, &self.name, &self.command, &self.settings);
    }

    /// Waits for its end.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        let child = &mut self.child;
        wait_for(limit, &what, async || child.try_wait().expect("it is ours")).await
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Whether a signal has stopped it for the time being.
    pub fn is_frozen(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// All log lines so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Where they are.
    pub fn log_file(&self) -> PathBuf {
        log(&self.folder, &self.name)
    }
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn spawn(folder: &Path, name: &str, command: &str, settings: &BTreeMap<String, String>) -> Child {
    let lines = File::options()
        .create(true)
        .append(true)
        .open(log(folder, name))
        .expect("a file for the test");
    let mut mayfly = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    mayfly
        .args(command.split(' '))
        .current_dir(folder)
        .envs(settings)
        .env_remove("HOME")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(lines);
    mayfly.spawn().expect("mayfly starts")
}

impl Drop for Role {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
        if std::thread::panicking() {
            let lines = self.log();
            let last: Vec<&str> = lines.lines().rev().take(40).collect();
            eprintln!(
                "--- last words of {}, newest first\n{}",
                self.name,
                last.join("\n")
            );
        }
    }
}
