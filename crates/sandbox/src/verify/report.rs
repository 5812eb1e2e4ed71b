//! The kernel's word: the guest's report, field by field against the request and the runtime's table.
//!
//! Every struct of the report is taken apart without `..`, so that a field that is added to it does not compile until
//! it is compared here, or named as one that proves nothing.

use std::{collections::BTreeSet, fmt::Display};

use mayfly_core::{limits::Limits, outcome::MismatchSource, run::UserNamespace, units::ByteSize};
use mayfly_protocol::{Filesystem, Kernel, ReadyReport, Resource, Rlimit};

use super::{
    Findings, cgroup, identity, mounts, probes,
    tables::{GVISOR_RELEASES, Table, reason},
    users,
};
use crate::{
    baseline::{HOST_NAME, WORK, counts_no_sockets, process_limits},
    engine::EngineFacts,
    seam::SandboxRequest,
    uids::UidPair,
};

/// What a sandbox's report is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) request: &'a SandboxRequest,
    pub(crate) engine: &'a EngineFacts,
    pub(crate) uids: UidPair,
    /// The guest's build; `None` for a guest from a file, which is known by its digest alone.
    pub(crate) build: Option<&'a str>,
}

impl Expected<'_> {
    pub(crate) fn table(&self) -> Table {
        Table::of(&self.request.runtime)
    }
}

/// The page size that file systems in memory are rounded up to, and memory limits down.
pub(super) const PAGE: u64 = 4096;

/// Names in `/dev` of a container without devices: what runtimes make for each (OCI runtime specification, "Default
/// Devices").
const DEVICES: [&str; 14] = [
    "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
    "urandom", "zero",
];
/// `core` is a link to `/proc/kcore`, which is hidden; some runtimes make it.
const OPTIONAL_DEVICES: &[&str] = &["core"];
/// gVisor has some of its own kernel's, none of which is a device of the host.
const OPTIONAL_DEVICES_GVISOR: &[&str] = &["core", "fuse", "mqueue", "net"];

/// Compares a report with what was asked for.
pub(crate) fn check(expected: &Expected<'_>, report: &ReadyReport) -> Findings {
    let mut findings = Findings::new(MismatchSource::Guest);
    let ReadyReport {
        version: _, // The conversation refuses another one before this is asked.
        build,
        pid,
        guest,
        job,
        uid_map,
        gid_map,
        marker,
        probes,
        mounts,
        present,
        root_read_only,
        filesystems,
        interfaces,
        devices,
        rlimits,
        cgroup,
        lsm_label,
        kernel,
        truncated,
    } = report;
    let f = &mut findings;
    f.equal("truncated", &false, truncated);
    if let Some(asked) = expected.build {
        f.equal("build", &asked, &build.as_str());
    }
    f.equal("pid", &1, pid);
    identity::check_guest(f, expected, guest);
    identity::check_job(f, expected, job);
    users::check(f, expected, uid_map, gid_map);
    probes::check(f, expected, *marker, probes);
    mounts::check(f, expected, user_namespace(expected, report), mounts, present);
    // gVisor says in the mount's options alone that the root is read-only.
    if expected.table() == Table::HostKernel {
        f.equal("root_read_only", &Some(true), root_read_only);
    }
    check_filesystems(f, expected, filesystems);
    f.equal("interfaces", &Some(vec!["lo".to_owned()]), interfaces);
    if counts_no_sockets(expected.engine, expected.request) {
        let (what, why) = reason::SOCKET_MEMORY;
        f.not_enforceable(what, why);
    }
    check_devices(f, expected.table(), devices.as_deref());
    check_rlimits(f, expected.request, rlimits);
    cgroup::check(f, expected, cgroup);
    check_lsm(f, expected.engine, lsm_label.as_deref());
    check_kernel(f, expected, kernel);
    findings
}

/// Which users of the host the sandbox's are, where they are others and the maps are as they have to be.
pub(crate) fn user_namespace(expected: &Expected<'_>, report: &ReadyReport) -> Option<UserNamespace> {
    users::found(expected, &report.uid_map, &report.gid_map)
}

/// A second entry of one name would hide behind the first.
pub(super) fn check_once<T: Ord + Display>(f: &mut Findings, list: &str, names: impl Iterator<Item = T>) {
    let mut seen = BTreeSet::new();
    for name in names {
        let field = format!("{list}[{name}]");
        let first = seen.insert(name);
        f.expect(first, &field, || "one entry".to_owned(), || "two".to_owned());
    }
}

fn check_filesystems(f: &mut Findings, expected: &Expected<'_>, found: &[Filesystem]) {
    let limits = &expected.request.limits;
    check_once(f, "filesystems", found.iter().map(|found| &found.path));
    let sized = [
        (WORK, limits.work, Some(Limits::inodes_of(limits.work))),
        ("/tmp", limits.tmp, Some(Limits::inodes_of(limits.tmp))),
        ("/dev/shm", limits.shm, None),
    ];
    for (path, size, inodes) in sized {
        let Some(found) = found.iter().find(|found| found.path == path) else {
            let field = format!("filesystems[{path}]");
            f.expect(false, &field, || size.to_string(), || "absent".to_owned());
            continue;
        };
        let Filesystem {
            path: _,
            bytes,
            free_bytes,
            inodes: found_inodes,
            free_inodes,
            read_only,
        } = found;
        let asked = ByteSize::bytes(size.as_bytes().next_multiple_of(PAGE)).as_bytes();
        let field = |name: &str| format!("filesystems[{path}].{name}");
        f.equal(&field("bytes"), &asked, bytes);
        f.equal(&field("read_only"), &false, read_only);
        // Nothing of anybody's is in it yet.
        f.equal(&field("free_bytes"), &asked, free_bytes);
        let bounded = match expected.table() {
            Table::HostKernel => true,
            Table::Gvisor => *found_inodes != 0,
        };
        if let Some(inodes) = inodes.filter(|_| bounded) {
            f.equal(&field("inodes"), &inodes, found_inodes);
            // The root folder is one.
            f.equal(&field("free_inodes"), &(inodes - 1), free_inodes);
        }
    }
    if expected.table() == Table::Gvisor {
        let (what, why) = reason::INODES_GVISOR;
        f.not_enforceable(what, why);
    }
    let (what, why) = reason::SHM_INODES;
    f.not_enforceable(what, why);
}

fn check_devices(f: &mut Findings, table: Table, found: Option<&[String]>) {
    let optional = match table {
        Table::HostKernel => OPTIONAL_DEVICES,
        Table::Gvisor => OPTIONAL_DEVICES_GVISOR,
    };
    let names: Option<BTreeSet<_>> = found.map(|names| {
        let names = names.iter().map(String::as_str);
        names.filter(|name| !optional.contains(name)).collect()
    });
    let asked = DEVICES.into_iter().filter(|name| !optional.contains(name));
    f.equal("devices", &Some(asked.collect()), &names);
}

fn check_rlimits(f: &mut Findings, request: &SandboxRequest, found: &[Rlimit]) {
    check_once(
        f,
        "rlimits",
        found
            .iter()
            .map(|limit| limit_name(limit.resource))
            .filter(|name| !name.is_empty()),
    );
    for (name, asked) in process_limits(request) {
        let field = format!("rlimits[{name}]");
        let rlimit = found.iter().find(|limit| limit_name(limit.resource) == name);
        let Some(Rlimit {
            resource: _,
            soft,
            hard,
        }) = rlimit
        else {
            f.expect(false, &field, || asked.to_string(), || "absent".to_owned());
            continue;
        };
        f.equal(&format!("{field}.soft"), &Some(asked), soft);
        f.equal(&format!("{field}.hard"), &Some(asked), hard);
    }
    if Table::of(&request.runtime) == Table::Gvisor {
        // Measured: 5,000 timers and 20 MB of queues under limits of 4,096 and 800 KB.
        let (what, why) = reason::USER_LIMITS_GVISOR;
        f.not_enforceable(what, why);
    }
}

/// The engine's name of a resource, where we set it.
fn limit_name(resource: Resource) -> &'static str {
    match resource {
        Resource::Core => "core",
        Resource::Fsize => "fsize",
        Resource::Memlock => "memlock",
        Resource::Msgqueue => "msgqueue",
        Resource::Nofile => "nofile",
        Resource::Nproc => "nproc",
        Resource::Sigpending => "sigpending",
        // Not ours: the kernel's defaults, under the limits of the control group.
        Resource::Cpu
        | Resource::Data
        | Resource::Stack
        | Resource::Rss
        | Resource::As
        | Resource::Locks
        | Resource::Nice
        | Resource::Rtprio
        | Resource::Rttime => "",
    }
}

fn check_lsm(f: &mut Findings, engine: &EngineFacts, label: Option<&str>) {
    if engine.has_lsm() {
        let confined = label.is_some_and(|label| {
            // SELinux: container_t and its like; AppArmor: the profile and its mode.
            label.contains(":container") || label.trim_end().ends_with("(enforce)")
        });
        f.expect(
            confined,
            "lsm_label",
            || "confined".to_owned(),
            || format!("{label:?}"),
        );
    } else {
        // A label where the engine says that there is none means that one of the two accounts is wrong.
        let none = label.is_none_or(|label| matches!(label.trim(), "" | "unconfined" | "kernel"));
        f.expect(none, "lsm_label", || "none".to_owned(), || format!("{label:?}"));
        let (what, why) = reason::LSM;
        f.not_enforceable(what, why);
    }
}

fn check_kernel(f: &mut Findings, expected: &Expected<'_>, found: &Kernel) {
    let Kernel {
        sysname,
        release,
        version: _, // The build's own text: the release is what is compared.
        machine,
        nodename,
    } = found;
    f.equal("kernel.sysname", &"Linux", &sysname.as_str());
    f.equal("kernel.nodename", &HOST_NAME, &nodename.as_str());
    f.equal(
        "kernel.machine",
        &expected.engine.architecture.as_str(),
        &machine.as_str(),
    );
    match expected.table() {
        Table::HostKernel => f.equal(
            "kernel.release",
            &expected.engine.kernel.as_str(),
            &release.as_str(),
        ),
        // A runtime that is named runsc and is runc shows the host's kernel.
        Table::Gvisor => f.expect(
            GVISOR_RELEASES.contains(&release.as_str()) && *release != expected.engine.kernel,
            "kernel.release",
            || GVISOR_RELEASES.join(" or "),
            || release.clone(),
        ),
    }
}

#[cfg(test)]
mod tests;
