//! What the kernel says of a sandbox, collected by its guest before it takes a job.
//!
//! The executor compares this with what it asked the engine for. Nothing here is an opinion: each
//! field is what a call or a file of the kernel answered, and what could not be read is `None`.

use serde::{Deserialize, Serialize};

use crate::{Answer, MAX_PAYLOAD, ProbeResult, Resource, bounded};

/// Most mounts of a report.
const MAX_MOUNTS: usize = 128;
/// Most items of any other list of names, numbers or options.
const MAX_ITEMS: usize = 64;
/// Most file systems of a report.
const MAX_FILESYSTEMS: usize = 8;
/// Most ranges of a map of ids. The kernel takes 340, and what is to be found is one.
const MAX_RANGES: usize = 16;

/// The guest's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyReport {
    /// [`crate::VERSION`] of the guest.
    pub version: u16,
    /// Which build of the guest this is; empty where the build didn't say.
    pub build: String,
    /// The guest's pid in its namespace, which is 1.
    pub pid: i32,
    /// The guest as it will be while the job runs.
    pub guest: Identity,
    /// A child that became the job's user exactly as the job will, before its `execve(2)`.
    pub job: Identity,
    /// `/proc/self/uid_map`; empty where it can't be read.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_RANGES>")]
    pub uid_map: Vec<IdRange>,
    /// `/proc/self/gid_map`; empty where it can't be read.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_RANGES>")]
    pub gid_map: Vec<IdRange>,
    /// What `personality(MARKER_PERSONA)` answered, in that child.
    pub marker: Answer,
    /// Live probes, made in that child.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ITEMS>")]
    pub probes: Vec<ProbeResult>,
    /// `/proc/self/mountinfo`.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_MOUNTS>")]
    pub mounts: Vec<Mount>,
    /// Those of [`crate::guarded_paths`] that there are in the sandbox, or that could not be shown to be absent.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ITEMS>")]
    pub present: Vec<String>,
    /// Whether `/` is read-only, from `statvfs(3)`.
    pub root_read_only: Option<bool>,
    /// Sizes of the writable file systems, from `statvfs(3)`; those that exist.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_FILESYSTEMS>")]
    pub filesystems: Vec<Filesystem>,
    /// Network interfaces, from `/proc/net/dev`; `None` where it can't be read.
    #[serde(deserialize_with = "bounded::optional_list::<_, _, MAX_ITEMS>")]
    pub interfaces: Option<Vec<String>>,
    /// Names in `/dev`; `None` where it can't be read.
    #[serde(deserialize_with = "bounded::optional_list::<_, _, MAX_ITEMS>")]
    pub devices: Option<Vec<String>>,
    /// The guest's limits, which the job inherits unless its `Job` frame names others.
    #[serde(deserialize_with = "bounded::list::<_, _, 16>")]
    pub rlimits: Vec<Rlimit>,
    /// Limits of the sandbox's cgroup, where readable.
    pub cgroup: CgroupLimits,
    /// `/proc/self/attr/current`; `None` without a security module that labels.
    pub lsm_label: Option<String>,
    /// `uname(2)`.
    pub kernel: Kernel,
    /// Whether lists or texts were cut to fit the frame. The executor refuses such a sandbox.
    pub truncated: bool,
}

/// Who a process is and what it may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// User ids.
    pub uid: Ids,
    /// Group ids.
    pub gid: Ids,
    /// Supplementary groups.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ITEMS>")]
    pub groups: Vec<u32>,
    /// Capability sets.
    pub caps: Capabilities,
    /// `NoNewPrivs` of `/proc/self/status`.
    pub no_new_privs: Option<bool>,
    /// `Seccomp` of `/proc/self/status`: 0 off, 1 strict, 2 filter.
    pub seccomp_mode: Option<u32>,
    /// `Seccomp_filters` of `/proc/self/status`; `None` before Linux 5.9 and on gVisor.
    pub seccomp_filters: Option<u32>,
    /// `prctl(PR_GET_DUMPABLE)`: 0 means that other processes of the same user can't look inside.
    /// The job's says nothing: it depends on the host, and a program that is started is dumpable.
    pub dumpable: i32,
    /// `/proc/self/oom_score_adj`.
    pub oom_score_adj: Option<i32>,
}

/// The four ids of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// Real.
    pub real: u32,
    /// Effective.
    pub effective: u32,
    /// Saved.
    pub saved: u32,
    /// For file access; the effective one where the kernel doesn't say.
    pub fs: u32,
}

/// One line of a map of ids (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdRange {
    /// The first id in the sandbox.
    pub inside: u32,
    /// What that one is outside of it.
    pub outside: u32,
    /// How many ids there are.
    pub count: u32,
}

/// Capability sets as bit masks, bit n for capability n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// `CapInh`.
    pub inheritable: u64,
    /// `CapPrm`.
    pub permitted: u64,
    /// `CapEff`.
    pub effective: u64,
    /// `CapBnd`.
    pub bounding: u64,
    /// `CapAmb`; `None` where the kernel doesn't show it.
    pub ambient: Option<u64>,
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where it is mounted, with the file's octal escapes undone.
    pub mount_point: String,
    /// Which part of the file system is mounted.
    pub root: String,
    /// Type of the file system.
    pub fstype: String,
    /// Source as the file shows it. Not for the record: it may name paths of the host.
    pub source: String,
    /// Options of this mount, such as `ro` and `nosuid`.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ITEMS>")]
    pub options: Vec<String>,
    /// Options of the file system, such as `size=65536k` and `nr_inodes=4096`. Those of overlay
    /// file systems are left out but for `ro` and `rw`: they name paths of the host.
    #[serde(deserialize_with = "bounded::list::<_, _, MAX_ITEMS>")]
    pub super_options: Vec<String>,
}

/// Size of a file system, from `statvfs(3)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    /// Where it is.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Its inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// A resource limit in force; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rlimit {
    /// What is limited.
    pub resource: Resource,
    /// The limit that counts.
    pub soft: Option<u64>,
    /// What the soft limit may be raised to.
    pub hard: Option<u64>,
}

/// Limits of the sandbox's cgroup. `None` where the file can't be read; [`u64::MAX`] is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupLimits {
    /// 1 or 2, by the memory controller; `None` when it can't be found.
    pub version: Option<u8>,
    /// `memory.max`, or `memory.limit_in_bytes`.
    pub memory_bytes: Option<u64>,
    /// Memory and swap together. On v2 the sum of `memory.max` and `memory.swap.max`.
    pub memory_swap_bytes: Option<u64>,
    /// `pids.max`.
    pub pids: Option<u64>,
    /// CPU time per period, of `cpu.max` or `cpu.cfs_quota_us`.
    pub cpu_quota_us: Option<u64>,
    /// That period.
    pub cpu_period_us: Option<u64>,
}

/// `uname(2)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// `sysname`.
    pub sysname: String,
    /// `release`.
    pub release: String,
    /// `version`.
    pub version: String,
    /// `machine`.
    pub machine: String,
    /// `nodename`, the host name of the sandbox.
    pub nodename: String,
}

impl ReadyReport {
    /// Cuts the report to what a reader takes and a frame holds, and says so in `truncated`.
    ///
    /// Texts are cut to 256 bytes and lists to their bounds; if that is still too large for a
    /// frame, both to half of it, and so on.
    pub fn fit(&mut self) {
        let (mut text_bytes, mut items) = (256, MAX_MOUNTS);
        loop {
            self.truncated |= self.cut(text_bytes, items);
            let fits = serde_json::to_vec(self).is_ok_and(|json| json.len() <= MAX_PAYLOAD);
            if fits || items == 0 {
                return;
            }
            (text_bytes, items) = (text_bytes / 2, items / 2);
        }
    }

    /// Cuts every text and every list of no fixed length; whether something was cut.
    fn cut(&mut self, text_bytes: usize, items: usize) -> bool {
        let mut cut = shorten(&mut self.mounts, items);
        let items = items.min(MAX_ITEMS);
        cut |= shorten(&mut self.present, items) | shorten(&mut self.filesystems, MAX_FILESYSTEMS);
        cut |= shorten(&mut self.uid_map, MAX_RANGES) | shorten(&mut self.gid_map, MAX_RANGES);
        cut |= shorten(&mut self.guest.groups, items) | shorten(&mut self.job.groups, items);
        for names in self.interfaces.iter_mut().chain(&mut self.devices) {
            cut |= shorten(names, items);
        }
        for mount in &mut self.mounts {
            cut |= shorten(&mut mount.options, items) | shorten(&mut mount.super_options, items);
        }
        for text in self.texts() {
            if text.len() > text_bytes {
                bounded::cut(text, text_bytes);
                cut = true;
            }
        }
        cut
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let kernel = &mut self.kernel;
        let kernel = [
            &mut kernel.sysname,
            &mut kernel.release,
            &mut kernel.version,
            &mut kernel.machine,
            &mut kernel.nodename,
        ];
        let mounts = self.mounts.iter_mut().flat_map(|mount| {
            let texts = [
                &mut mount.mount_point,
                &mut mount.root,
                &mut mount.fstype,
                &mut mount.source,
            ];
            texts
                .into_iter()
                .chain(&mut mount.options)
                .chain(&mut mount.super_options)
        });
        std::iter::once(&mut self.build)
            .chain(&mut self.lsm_label)
            .chain(kernel)
            .chain(mounts)
            .chain(&mut self.present)
            .chain(self.interfaces.iter_mut().chain(&mut self.devices).flatten())
            .chain(self.filesystems.iter_mut().map(|filesystem| &mut filesystem.path))
    }
}

fn shorten<T>(list: &mut Vec<T>, max: usize) -> bool {
    let long = list.len() > max;
    list.truncate(max);
    long
}

#[cfg(test)]
mod tests;
