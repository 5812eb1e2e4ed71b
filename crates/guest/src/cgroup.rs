//! The sandbox's cgroup: its limits, and what it counts. Versions 1, 2 and mixed.

use std::fs;
use std::path::{Path, PathBuf};

use mayfly_protocol::{CgroupCounts, CgroupLimits, Mount};

/// Where the files of each controller are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cgroup {
    memory: Option<Controller>,
    pids: Option<Controller>,
    cpu: Option<Controller>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Controller {
    version: u8,
    folder: PathBuf,
}

impl Cgroup {
    /// Finds the folders; a controller that isn't mounted here is left out.
    pub(crate) fn find(mounts: &[Mount]) -> Self {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let find = |controller| Controller::find(controller, mounts, &membership);
        Self {
            memory: find("memory"),
            pids: find("pids"),
            cpu: find("cpu"),
        }
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> CgroupLimits {
        let mut limits = CgroupLimits::default();
        if let Some(memory) = &self.memory {
            limits.version = Some(memory.version);
            if memory.version == 1 {
                limits.memory_bytes = memory.v1_bytes("memory.limit_in_bytes");
                limits.memory_swap_bytes = memory.v1_bytes("memory.memsw.limit_in_bytes");
            } else {
                limits.memory_bytes = memory.number("memory.max");
                limits.memory_swap_bytes = limits
                    .memory_bytes
                    .zip(memory.number("memory.swap.max"))
                    .map(|(memory, swap)| memory.saturating_add(swap));
            }
        }
        limits.pids = self.pids.as_ref().and_then(|pids| pids.number("pids.max"));
        if let Some(cpu) = &self.cpu {
            (limits.cpu_quota_us, limits.cpu_period_us) = if cpu.version == 1 {
                (cpu.number("cpu.cfs_quota_us"), cpu.number("cpu.cfs_period_us"))
            } else {
                let text = cpu.text("cpu.max").unwrap_or_default();
                let mut numbers = text.split_whitespace().map(number);
                (numbers.next().flatten(), numbers.next().flatten())
            };
        }
        limits
    }

    /// The counts since the cgroup's creation.
    pub(crate) fn counts(&self) -> CgroupCounts {
        let mut counts = CgroupCounts::default();
        if let Some(memory) = &self.memory {
            let (events, peak) = if memory.version == 1 {
                ("memory.oom_control", "memory.max_usage_in_bytes")
            } else {
                ("memory.events", "memory.peak")
            };
            counts.oom_kills = memory.keyed(events, "oom_kill");
            counts.memory_peak_bytes = memory.number(peak);
        }
        counts.pids_max_events = self
            .pids
            .as_ref()
            .and_then(|pids| pids.keyed("pids.events", "max"));
        counts.cpu_throttled_us = self.cpu.as_ref().and_then(|cpu| {
            if cpu.version == 1 {
                Some(cpu.keyed("cpu.stat", "throttled_time")? / 1000)
            } else {
                cpu.keyed("cpu.stat", "throttled_usec")
            }
        });
        counts
    }
}

/// What was counted between two readings; the peak is the later one's.
pub(crate) fn since(before: &CgroupCounts, after: &CgroupCounts) -> CgroupCounts {
    let difference = |before: Option<u64>, after: Option<u64>| {
        before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before))
    };
    CgroupCounts {
        oom_kills: difference(before.oom_kills, after.oom_kills),
        pids_max_events: difference(before.pids_max_events, after.pids_max_events),
        cpu_throttled_us: difference(before.cpu_throttled_us, after.cpu_throttled_us),
        memory_peak_bytes: after.memory_peak_bytes,
    }
}

impl Controller {
    fn find(controller: &str, mounts: &[Mount], membership: &str) -> Option<Self> {
        let path_where = |wanted: &dyn Fn(&str) -> bool| {
            membership.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                let path = parts.next()?;
                wanted(controllers).then_some(path)
            })
        };
        let v1 = path_where(&|list| list.split(',').any(|name| name == controller)).and_then(|path| {
            let mount = mounts.iter().find(|mount| {
                mount.fstype == "cgroup" && mount.super_options.iter().any(|o| o == controller)
            })?;
            Some(Self {
                version: 1,
                folder: folder(mount, path),
            })
        });
        v1.or_else(|| {
            let path = path_where(&str::is_empty)?;
            let mount = mounts.iter().find(|mount| mount.fstype == "cgroup2")?;
            let folder = folder(mount, path);
            let enabled = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
            enabled
                .split_whitespace()
                .any(|name| name == controller)
                .then_some(Self { version: 2, folder })
        })
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    fn number(&self, file: &str) -> Option<u64> {
        number(&self.text(file)?)
    }

    /// A limit in bytes of version 1, which shows "none" as the largest multiple of a page.
    fn v1_bytes(&self, file: &str) -> Option<u64> {
        const UNLIMITED_FROM: u64 = i64::MAX.cast_unsigned() - 0xffff;
        self.number(file)
            .map(|bytes| if bytes >= UNLIMITED_FROM { u64::MAX } else { bytes })
    }

    /// The value after `key` in a file of lines `key value`.
    fn keyed(&self, file: &str, key: &str) -> Option<u64> {
        self.text(file)?.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == key).then(|| number(value)).flatten()
        })
    }
}

/// Where a cgroup is below a mount of its hierarchy.
fn folder(mount: &Mount, path: &str) -> PathBuf {
    let mount_point = Path::new(&mount.mount_point);
    Path::new(path)
        .strip_prefix(&mount.root)
        .map(|below| mount_point.join(below))
        .ok()
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(|| mount_point.to_owned())
}

/// A number, with "max" and -1 for unlimited.
fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" | "-1" => Some(u64::MAX),
        digits => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_the_largest_number_in_every_spelling() {
        assert_eq!(number("max\n"), Some(u64::MAX));
        assert_eq!(number("-1\n"), Some(u64::MAX));
        assert_eq!(number("100000\n"), Some(100_000));
        assert_eq!(number("what"), None);
    }

    #[test]
    fn counts_are_those_of_the_job_alone() {
        let before = CgroupCounts {
            oom_kills: Some(2),
            pids_max_events: None,
            cpu_throttled_us: Some(40),
            memory_peak_bytes: Some(5),
        };
        let after = CgroupCounts {
            oom_kills: Some(3),
            pids_max_events: Some(9),
            cpu_throttled_us: Some(100),
            memory_peak_bytes: Some(7),
        };
        let counted = CgroupCounts {
            oom_kills: Some(1),
            pids_max_events: None,
            cpu_throttled_us: Some(60),
            memory_peak_bytes: Some(7),
        };
        assert_eq!(since(&before, &after), counted);
    }

    /// One cgroup with all controllers, whose files have these lines.
    fn cgroup(version: u8, files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let controller = || {
            Some(Controller {
                version,
                folder: folder.path().to_owned(),
            })
        };
        let cgroup = Cgroup {
            memory: controller(),
            pids: controller(),
            cpu: controller(),
        };
        (folder, cgroup)
    }

    /// As kernel 6 shows them: <https://docs.kernel.org/admin-guide/cgroup-v2.html>, and cgroup-v1/memory.html.
    #[test]
    fn both_versions_tell_the_same_by_their_own_files() {
        let (_one, v1) = cgroup(
            1,
            &[
                ("memory.limit_in_bytes", "268435456\n"),
                ("memory.memsw.limit_in_bytes", "268435456\n"),
                (
                    "memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
                ("memory.max_usage_in_bytes", "1048576\n"),
                ("pids.max", "129\n"),
                ("pids.events", "max 4\n"),
                ("cpu.cfs_quota_us", "50000\n"),
                ("cpu.cfs_period_us", "100000\n"),
                (
                    "cpu.stat",
                    "nr_periods 9\nnr_throttled 7\nthrottled_time 2000999\n",
                ),
            ],
        );
        let (_two, v2) = cgroup(
            2,
            &[
                ("memory.max", "268435456\n"),
                ("memory.swap.max", "0\n"),
                (
                    "memory.events",
                    "low 0\nhigh 0\nmax 8\noom 3\noom_kill 3\noom_group_kill 0\n",
                ),
                ("memory.peak", "1048576\n"),
                ("pids.max", "129\n"),
                ("pids.events", "max 4\n"),
                ("cpu.max", "50000 100000\n"),
                (
                    "cpu.stat",
                    "usage_usec 90\nuser_usec 60\nsystem_usec 30\nnr_periods 9\nnr_throttled 7\nthrottled_usec 2000\n",
                ),
            ],
        );
        for (version, cgroup) in [(1, v1), (2, v2)] {
            let limits = CgroupLimits {
                version: Some(version),
                memory_bytes: Some(268_435_456),
                memory_swap_bytes: Some(268_435_456),
                pids: Some(129),
                cpu_quota_us: Some(50_000),
                cpu_period_us: Some(100_000),
            };
            assert_eq!(cgroup.limits(), limits);
            let counts = CgroupCounts {
                oom_kills: Some(3),
                pids_max_events: Some(4),
                cpu_throttled_us: Some(2000),
                memory_peak_bytes: Some(1_048_576),
            };
            assert_eq!(cgroup.counts(), counts, "version {version}");
        }
        let (_folder, unlimited) = cgroup(2, &[("memory.max", "max\n"), ("cpu.max", "max 100000\n")]);
        let limits = unlimited.limits();
        assert_eq!(
            (limits.memory_bytes, limits.cpu_quota_us, limits.cpu_period_us),
            (Some(u64::MAX), Some(u64::MAX), Some(100_000))
        );
        assert_eq!(
            unlimited.counts(),
            CgroupCounts::default(),
            "what can't be read is not known"
        );
    }

    #[test]
    fn a_controller_of_version_2_is_found_where_it_is_enabled() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let mounts = [Mount {
            mount_point: folder.path().to_str().unwrap().to_owned(),
            root: "/".into(),
            fstype: "cgroup2".into(),
            source: "cgroup".into(),
            options: vec![],
            super_options: vec!["rw".into()],
        }];
        let found = |controller| Controller::find(controller, &mounts, "0::/\n");
        let expected = Controller {
            version: 2,
            folder: folder.path().to_owned(),
        };
        assert_eq!(found("memory"), Some(expected));
        assert_eq!(found("pids"), None);
    }

    #[test]
    fn a_controller_is_found_by_its_own_hierarchy() {
        let mount = |mount_point: &str, super_option: &str| Mount {
            mount_point: mount_point.into(),
            root: "/docker/abc".into(),
            fstype: "cgroup".into(),
            source: "cgroup".into(),
            options: vec![],
            super_options: vec!["rw".into(), super_option.into()],
        };
        let mounts = [mount("/c/cpu", "cpu"), mount("/c/memory", "memory")];
        let membership = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n";
        let found = Controller::find("memory", &mounts, membership).unwrap();
        assert_eq!(
            found,
            Controller {
                version: 1,
                folder: "/c/memory".into()
            }
        );
        assert_eq!(Controller::find("pids", &mounts, membership), None);
    }
}
