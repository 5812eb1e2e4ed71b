//! What there is of a deployment, counted outside of mayfly: by the engine's own client, and by the kernel.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use crate::process::await_until;

/// An engine, and one deployment on it.
#[derive(Clone)]
pub(crate) struct Census {
    /// As in `DOCKER_HOST`; empty for the machine's own.
    pub(crate) host: String,
    pub(crate) deployment: String,
}

impl Census {
    /// Ids of the deployment's containers that run.
    pub(crate) fn running(&self) -> BTreeSet<String> {
        self.list(&["ps", "--quiet", "--no-trunc"])
    }

    /// Ids of all of its containers, ended ones included.
    pub(crate) fn containers(&self) -> BTreeSet<String> {
        self.list(&["ps", "--all", "--quiet", "--no-trunc"])
    }

    /// Ids of all containers of the engine, whoever's they are.
    pub(crate) fn list_all(&self) -> BTreeSet<String> {
        lines(&mut self.docker(&["ps", "--all", "--quiet"]))
    }

    /// Names of its volumes.
    pub(crate) fn volumes(&self) -> BTreeSet<String> {
        self.list(&["volume", "ls", "--quiet"])
    }

    /// How many of its containers run a job's program, beside the guest.
    pub(crate) fn programs(&self) -> usize {
        let runs_one = |id: &String| {
            let listed = self.docker(&["top", id]).output().expect("docker starts");
            String::from_utf8_lossy(&listed.stdout).contains("/work/main.")
        };
        self.running().iter().filter(|id| runs_one(id)).count()
    }

    /// Waits until a program runs.
    pub(crate) fn some_program_runs_within(&self, limit: Duration) {
        await_until("a program runs", limit, || self.programs() > 0);
    }

    /// Waits until none of its containers runs.
    pub(crate) fn none_runs_within(&self, limit: Duration) {
        await_until("no container of the deployment runs", limit, || {
            self.running().is_empty()
        });
    }

    /// Asserts that nothing of these containers is left, to the engine or to the kernel, and no volume beside the one
    /// that holds the guest.
    pub(crate) fn assert_no_orphans(&self, once: &BTreeSet<String>) {
        assert_eq!(self.containers(), BTreeSet::new(), "containers are left");
        assert!(
            self.volumes().len() <= 1,
            "volumes are left: {:?}",
            self.volumes()
        );
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
        for id in once {
            assert!(!mounts.contains(id), "a mount of container {id} is left");
        }
        let groups: Vec<String> = control_groups()
            .into_iter()
            .filter(|name| once.contains(name))
            .collect();
        assert!(groups.is_empty(), "control groups are left: {groups:?}");
    }

    fn list(&self, args: &[&str]) -> BTreeSet<String> {
        let filter = format!("label=mayfly.deployment={}", self.deployment);
        lines(self.docker(args).args(["--filter", &filter]))
    }

    pub(crate) fn docker(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        if !self.host.is_empty() {
            command.env("DOCKER_HOST", &self.host);
        }
        command.args(args).stdin(Stdio::null());
        command
    }
}

/// What a command that succeeds writes.
fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = command.output().expect("docker starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let written = String::from_utf8_lossy(&output.stdout);
    written.lines().map(ToOwned::to_owned).collect()
}

/// Last parts of the paths of all control groups, which engines name after containers.
pub(crate) fn control_groups() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        // A group may be gone by the time it is looked at.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                let id = name.trim_start_matches("docker-").trim_end_matches(".scope");
                names.insert(id.to_owned());
                folders.push(entry.path());
            }
        }
    }
    names
}

/// Processes of this host whose command line has this text, by the kernel: also while the engine does not answer.
pub(crate) fn processes_with(text: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}
