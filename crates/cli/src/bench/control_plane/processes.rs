//! The processes that are measured, ours and others': what they have used, by proc_pid_stat(5) and proc_pid_status(5).

use std::{collections::BTreeSet, fs, path::Path, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::{args::Common, bench::stats::rounded, exit, failure::Failure};

/// What one process, or those of one service, have used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// `server`, `executor 1`, `postgres`, `rabbitmq`, `bench`.
    pub(crate) process: String,
    /// Seconds of CPU time during the load.
    pub(crate) cpu_seconds: f64,
    /// The same by the jobs that ended in that time, in microseconds.
    pub(crate) cpu_us_per_job: f64,
    /// Most memory that was resident at once since its start, in bytes; of several processes the sum, what they share
    /// counted with each.
    pub(crate) peak_bytes: u64,
}

/// Which processes are one entry.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) name: String,
    /// The first of them; its children belong to it.
    pub(crate) pid: u32,
}

/// A role as a child process.
pub(crate) struct Role {
    child: Child,
}

impl Role {
    /// Starts `mayfly ARGS` with the settings of this process and further ones. It ends with this process.
    pub(crate) fn start(
        common: &Common,
        args: &[&str],
        settings: &[(&str, String)],
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(exit::INTERNAL, error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        if let Some(config) = &common.config {
            command.arg("--config").arg(config);
        }
        if let Some(log) = &common.log {
            command.arg("--log").arg(log);
        }
        command
            .args(args)
            .envs(settings.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        Ok(Self {
            child: command.spawn().map_err(failed)?,
        })
    }

    pub(crate) fn pid(&self) -> Result<u32, Failure> {
        self.child.id().ok_or_else(|| {
            Failure::new(
                exit::INTERNAL,
                anyhow::anyhow!("a process of the bench has ended"),
            )
        })
    }

    /// Whether it has ended, which nobody asked it to.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end in order, and returns what it has printed.
    pub(crate) async fn stop(self, limit: Duration) -> Result<Vec<u8>, Failure> {
        let failed = |error: std::io::Error| Failure::new(exit::INTERNAL, error);
        if let Some(pid) = self
            .child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .map_err(|error| failed(error.into()))?;
        }
        let output = tokio::time::timeout(limit, self.child.wait_with_output()).await;
        let output = output
            .map_err(|_| {
                Failure::new(
                    exit::INTERNAL,
                    anyhow::anyhow!("a process of the bench does not end"),
                )
            })?
            .map_err(failed)?;
        if !output.status.success() {
            let error = anyhow::anyhow!("a process of the bench has failed: {}", output.status);
            return Err(Failure::new(exit::INTERNAL, error));
        }
        Ok(output.stdout)
    }
}

/// CPU time and most resident memory of a process and its children.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    ticks: u64,
    peak_bytes: u64,
}

/// The unit of the CPU times in /proc (`USER_HZ`), a second's part on every Linux that mayfly runs on.
const TICKS_A_SECOND: f64 = 100.0;

impl Reading {
    /// Of a process, its children that live, and those that it has waited for.
    pub(crate) fn of(pid: u32) -> Self {
        let mut reading = Self::default();
        for pid in family(pid) {
            let folder = Path::new("/proc").join(pid.to_string());
            let Ok(stat) = fs::read_to_string(folder.join("stat")) else {
                continue;
            };
            reading.ticks += ticks(&stat).unwrap_or(0);
            let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
            reading.peak_bytes += peak(&status).unwrap_or(0);
        }
        reading
    }

    /// What was used since an earlier one.
    #[expect(clippy::cast_precision_loss, reason = "no process lives for 2^52 ticks")]
    pub(crate) fn since(self, before: Self, process: &str, jobs: u64) -> Used {
        let seconds = self.ticks.saturating_sub(before.ticks) as f64 / TICKS_A_SECOND;
        Used {
            process: process.to_owned(),
            cpu_seconds: rounded(seconds),
            cpu_us_per_job: rounded(seconds * 1e6 / jobs.max(1) as f64),
            peak_bytes: self.peak_bytes,
        }
    }
}

/// user, system, and of the children that were waited for: fields 14 to 17, counted from behind the name, which may hold
/// anything.
fn ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1;
    let times = fields.split_whitespace().skip(11).take(4);
    times.map(|time| time.parse::<u64>().ok()).sum()
}

fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn family(first: u32) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([first]);
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for pid in pids() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    while let Some(at) = parents.iter().position(|(_, parent)| family.contains(parent)) {
        family.insert(parents.swap_remove(at).0);
    }
    family
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The process on this host that listens on a TCP port; none where that can't be known, as without the right to look.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let mut sockets = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        sockets.extend(text.lines().skip(1).filter_map(|line| listening(line, port)));
    }
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| {
                sockets
                    .iter()
                    .any(|inode| link.as_os_str() == format!("socket:[{inode}]").as_str())
            })
    };
    pids().into_iter().filter(holds).min()
}

/// The inode of a line of proc_net_tcp(5) that is about a socket which listens on this port.
fn listening(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    (local == port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_strange_name_has_its_times() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("7 (short) S 1"), Some(0));
    }

    #[test]
    fn a_line_of_the_table_is_about_its_own_port_alone() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listening(line, 8080), Some(4711));
        assert_eq!(listening(line, 8081), None);
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), 8080), None);
    }

    #[test]
    fn this_process_listens_and_uses_memory() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let own = std::process::id();
        assert_eq!(listener(port), Some(own));
        assert!(Reading::of(own).peak_bytes > 1 << 20);
    }
}
