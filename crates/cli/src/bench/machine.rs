//! The machine line: what figures are worth nothing without.

use std::{fmt::Write as _, fs, path::Path};

use mayfly_sandbox::engine::{CgroupVersion, EngineFacts};
use serde::{Deserialize, Serialize};

/// Where figures come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The CPU's model, where the system tells.
    pub(crate) cpu: Option<String>,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    /// Memory of the engine's host.
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) operating_system: String,
    /// The engine and its version.
    pub(crate) engine: String,
    /// Version of the API that was spoken.
    pub(crate) api: String,
    pub(crate) storage_driver: String,
    pub(crate) cgroup: CgroupVersion,
    /// Version of the engine's command line, where it was used.
    pub(crate) docker_client: Option<String>,
    /// Kind of the file system that the bench's database was on, the same as the user's.
    pub(crate) database_file_system: Option<String>,
    /// This program.
    pub(crate) version: String,
    pub(crate) build: Build,
    /// The commit that it was built from, where the build was told.
    pub(crate) commit: Option<String>,
    /// Load averages over 1, 5 and 15 minutes, at the start and at the end, this bench's own work included.
    pub(crate) load_before: Option<[f64; 3]>,
    pub(crate) load_after: Option<[f64; 3]>,
}

/// The machine of a bench that needs no engine.
#[cfg(feature = "fleet")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// The CPU's model, where the system tells.
    pub(crate) cpu: Option<String>,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// This program.
    pub(crate) version: String,
    pub(crate) build: Build,
    /// The commit that it was built from, where the build was told.
    pub(crate) commit: Option<String>,
    /// Load averages over 1, 5 and 15 minutes, at the start and at the end, this bench's own work included.
    pub(crate) load_before: Option<[f64; 3]>,
    pub(crate) load_after: Option<[f64; 3]>,
}

#[cfg(feature = "fleet")]
impl Host {
    /// This one, before anything is done.
    pub(crate) fn look() -> Self {
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Build::ours(),
            commit: option_env!("MAYFLY_COMMIT").map(ToOwned::to_owned),
            load_before: load(),
            load_after: None,
        }
    }

    /// After all of it.
    pub(crate) fn ended(&mut self) {
        self.load_after = load();
    }

    /// For people.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{} · {} cores · Linux {} · mayfly {} ({} build",
            self.cpu.as_deref().unwrap_or("unknown CPU"),
            self.cores,
            self.kernel,
            self.version,
            self.build.name()
        );
        if let Some(commit) = &self.commit {
            write!(line, ", commit {commit}").unwrap_or_default();
        }
        line.push(')');
        for (when, load) in [("before", self.load_before), ("after", self.load_after)] {
            if let Some([one, five, fifteen]) = load {
                write!(line, " · load {when} {one:.2} {five:.2} {fifteen:.2}").unwrap_or_default();
            }
        }
        line
    }
}

/// How this program was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Build {
    Debug,
    Release,
}

impl Build {
    /// Of this program.
    pub(crate) const fn ours() -> Self {
        if cfg!(debug_assertions) {
            Self::Debug
        } else {
            Self::Release
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

impl Machine {
    /// This one, before the first run.
    pub(crate) fn look(engine: &EngineFacts, database: &Path) -> Self {
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_bytes: engine.memory_bytes,
            kernel: engine.kernel.clone(),
            operating_system: engine.operating_system.clone(),
            engine: engine.engine(),
            api: engine.api.clone(),
            storage_driver: engine.storage_driver.clone(),
            cgroup: engine.cgroup,
            docker_client: None,
            database_file_system: file_system(database),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Build::ours(),
            commit: option_env!("MAYFLY_COMMIT").map(ToOwned::to_owned),
            load_before: load(),
            load_after: None,
        }
    }

    /// After the last run.
    pub(crate) fn ended(&mut self) {
        self.load_after = load();
    }

    /// For people: two lines, of the machine and of this program.
    pub(crate) fn lines(&self) -> [String; 2] {
        let cgroup = match self.cgroup {
            CgroupVersion::V1 => "v1",
            CgroupVersion::V2 => "v2",
        };
        let machine = format!(
            "{} · {} cores · {:.1} GiB · Linux {} · {} · {} (API {}, {}, cgroup {cgroup})",
            self.cpu.as_deref().unwrap_or("unknown CPU"),
            self.cores,
            gib(self.memory_bytes),
            self.kernel,
            self.operating_system,
            self.engine,
            self.api,
            self.storage_driver,
        );
        let mut program = format!("mayfly {} ({} build", self.version, self.build.name());
        if let Some(commit) = &self.commit {
            write!(program, ", commit {commit}").unwrap_or_default();
        }
        program.push(')');
        if let Some(client) = &self.docker_client {
            write!(program, " · docker client {client}").unwrap_or_default();
        }
        if let Some(kind) = &self.database_file_system {
            write!(program, " · database on {kind}").unwrap_or_default();
        }
        for (when, load) in [("before", self.load_before), ("after", self.load_after)] {
            if let Some([one, five, fifteen]) = load {
                write!(program, " · load {when} {one:.2} {five:.2} {fifteen:.2}").unwrap_or_default();
            }
        }
        [machine, program]
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people, to a tenth")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// proc_cpuinfo(5); not every architecture names a model.
fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// proc_loadavg(5).
fn load() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// The kind of the file system that a folder is on, by the last of the mounts that hold it (proc_pid_mounts(5)).
fn file_system(folder: &Path) -> Option<String> {
    kind_in(
        &fs::read_to_string("/proc/self/mounts").ok()?,
        &folder.canonicalize().ok()?,
    )
}

fn kind_in(mounts: &str, folder: &Path) -> Option<String> {
    let holding = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (at, kind) = (fields.next()?, fields.next()?);
        // A space in a path stands as \040; no other character of a path that matters here is written otherwise.
        let at = at.replace("\\040", " ");
        folder.starts_with(&at).then(|| (at.len(), kind.to_owned()))
    });
    // Of two mounts at one place the later one is seen.
    holding.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_deepest_mount_that_holds_it_and_the_last_of_those() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /home/x\\040y tmpfs rw 0 0\n/dev/b /home xfs rw 0 0\n\
                      /dev/c /home btrfs rw 0 0\n";
        let kind = |folder| kind_in(mounts, Path::new(folder));
        assert_eq!(kind("/var").as_deref(), Some("ext4"));
        assert_eq!(kind("/home/z").as_deref(), Some("btrfs"));
        assert_eq!(kind("/home/x y/z").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/homeless").as_deref(), Some("ext4"));
    }
}
