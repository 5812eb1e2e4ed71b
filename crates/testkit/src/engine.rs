//! A container engine of a test's own, by `scripts/second-engine`: one that it may kill, freeze and begin again.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// An engine beside the machine's, which ends with this value, also when the test fails.
pub struct SecondEngine {
    folder: tempfile::TempDir,
    host: String,
}

impl SecondEngine {
    /// Starts one, with these options of the script, or says why this machine can't have one.
    ///
    /// # Errors
    /// The reason, for whoever counts what was skipped.
    ///
    /// # Panics
    /// It can be had, and does not start.
    pub fn start(options: &[&str]) -> Result<Self, String> {
        if !is_root() {
            return Err("a second engine needs root".to_owned());
        }
        for program in ["dockerd", "containerd", "docker"] {
            if find(program).is_none() {
                return Err(format!("{program} is not installed (apt install docker.io)"));
            }
        }
        // Short: sockets lie deep in it, and their paths are bounded.
        let folder = tempfile::Builder::new()
            .prefix("mayfly-")
            .tempdir_in("/tmp")
            .expect("a folder for the engine");
        // From here on the value's end stops it, however far it came.
        let mut engine = Self {
            folder,
            host: String::new(),
        };
        let started = engine.tell("start", options);
        engine.host = format!("unix://{}", String::from_utf8_lossy(&started.stdout).trim());
        Ok(engine)
    }

    /// Where it listens, as `DOCKER_HOST` has it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where everything of it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The id of its dockerd.
    ///
    /// # Panics
    /// It was never started.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.id_in("dockerd.pid")
    }

    /// The id of its containerd.
    ///
    /// # Panics
    /// It was never started.
    #[must_use]
    pub fn containerd(&self) -> u32 {
        self.id_in("containerd.pid")
    }

    fn id_in(&self, file: &str) -> u32 {
        let id = std::fs::read_to_string(self.folder().join(file)).expect("the engine was started");
        id.trim().parse().expect("an id of a process")
    }

    /// Kills its dockerd with SIGKILL; containerd and containers are left to themselves.
    ///
    /// # Panics
    /// It can't be killed.
    pub fn kill(&self) {
        self.tell("kill", &[]);
    }

    /// Starts its dockerd again, on the same data.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&self) {
        self.tell("restart", &[]);
    }

    /// Sends its dockerd a signal, by its name.
    ///
    /// # Panics
    /// It is not there.
    pub fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(
            sent.expect("sh starts").success(),
            "the engine is there to be sent {signal}"
        );
    }

    /// Gives it an image of the engine that `DOCKER_HOST` names, by its id.
    ///
    /// # Panics
    /// That one does not have it, or this one does not take it.
    pub fn load(&self, image: &str) {
        let mut save = Command::new("docker")
            .args(["save", image])
            .stdout(Stdio::piped())
            .spawn()
            .expect("docker starts");
        let saved = save.stdout.take().expect("a pipe was asked for");
        let loaded = Command::new("docker")
            .args(["--host", &self.host, "load", "--quiet"])
            .stdin(saved)
            .output()
            .expect("docker starts");
        assert!(
            save.wait().expect("docker ends").success(),
            "docker save could not give the image"
        );
        assert!(
            loaded.status.success(),
            "{}",
            String::from_utf8_lossy(&loaded.stderr)
        );
    }

    fn tell(&self, action: &str, options: &[&str]) -> Output {
        let output = script()
            .arg(action)
            .arg(self.folder())
            .args(options)
            .stdin(Stdio::null())
            .output()
            .expect("the script starts");
        assert!(
            output.status.success(),
            "{action}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }
}

impl Drop for SecondEngine {
    #[expect(clippy::print_stderr, reason = "the output of a test is where this belongs")]
    fn drop(&mut self) {
        match script().arg("stop").arg(self.folder()).output() {
            Ok(output) if output.status.success() => {}
            // A panic here would hide why the test failed.
            trouble => eprintln!("the second engine was not stopped: {trouble:?}"),
        }
    }
}

fn script() -> Command {
    Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scripts/second-engine"
    ))
}

/// Whether this process is root, which mounts and engines need.
#[must_use]
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// Where a program is, in the folders that root has.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .chain([Path::new("/usr/sbin").to_owned()])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}
