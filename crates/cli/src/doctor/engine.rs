//! The engine: reached, its versions, and what of isolation its host has.

#[cfg(test)]
pub(super) mod tests;

use std::{io::ErrorKind, os::unix::fs::FileTypeExt as _, path::Path};

use mayfly_core::chain::Chain;
use mayfly_sandbox::{
    engine::{CgroupVersion, Engine, EngineFacts},
    error::EngineError,
};
use mayfly_settings::Settings;

use super::{
    address,
    finding::{Finding, Status},
    floors::{Floor, Measured, measure},
};
use crate::context;

/// Connects, as a run would.
pub(crate) async fn reach(settings: &Settings) -> (Option<Engine>, Vec<Finding>) {
    match Engine::connect(context::address(&settings.sandbox)).await {
        Ok(engine) => {
            let facts = engine.facts();
            let found = format!(
                "{} at {}, API {}, on {} ({}, {} CPUs, {} MiB)",
                facts.engine(),
                address(settings),
                facts.api,
                facts.details.host_name,
                facts.operating_system,
                facts.cpus,
                facts.memory_bytes >> 20,
            );
            (
                Some(engine),
                vec![Finding::ok("engine.reached", found).means("sandboxes can be asked for")],
            )
        }
        Err(error) => (None, vec![unreachable(address(settings), &error)]),
    }
}

fn unreachable(address: &str, error: &EngineError) -> Finding {
    let finding = Finding::problem("engine.reached", Chain(error))
        .means("no job can run; what needs an engine was not looked at");
    if let EngineError::Address { .. } = error {
        return finding.mend("correct the setting `sandbox.engine`, or DOCKER_HOST");
    }
    finding.mend(match address.strip_prefix("unix://") {
        Some(path) => of_a_socket(Path::new(path)),
        None => format!("see that an engine listens at {address} and a firewall lets this host reach it"),
    })
}

/// Why a socket does not answer, as far as the file shows it.
fn of_a_socket(path: &Path) -> String {
    let shown = path.display();
    let is_socket = std::fs::metadata(path).map(|found| found.file_type().is_socket());
    match is_socket {
        Err(error) if error.kind() == ErrorKind::NotFound => format!(
            "{shown} is not there: start the engine (systemctl start docker), or say where it listens \
             (MAYFLY_SANDBOX__ENGINE)"
        ),
        Ok(false) => format!("{shown} is no socket: say where the engine listens (MAYFLY_SANDBOX__ENGINE)"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => not_allowed(path),
        Err(error) => format!("{shown} can't be looked at: {error}"),
        Ok(true) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => not_allowed(path),
            _ => "nothing answers behind the socket: start the engine again (systemctl restart docker)"
                .to_owned(),
        },
    }
}

fn not_allowed(path: &Path) -> String {
    format!(
        "this user may not use {}: add it to the group that owns the socket (usermod -aG docker NAME, then log in \
         again), which is as good as making it root",
        path.display()
    )
}

pub(super) fn floors(facts: &EngineFacts) -> Vec<Finding> {
    vec![
        versions(facts),
        kernel(facts),
        cgroup(facts),
        limits(facts),
        lsm(facts),
        seccomp(facts),
    ]
}

/// What the engine says of itself, judged.
pub(crate) fn check(facts: &EngineFacts) -> Vec<Finding> {
    let mut findings = floors(facts);
    findings.extend([users(facts), live_restore(facts), storage(facts)]);
    findings.push(registries(facts));
    findings.extend(facts.details.warnings.iter().map(|warning| {
        Finding::note("engine.warning", warning.trim()).means("the engine itself complains of this")
    }));
    findings
}

/// The parts that the engine tells the version of.
fn parts(facts: &EngineFacts) -> impl Iterator<Item = (&str, &str)> {
    let details = &facts.details;
    let runtime = details.runtime.as_ref();
    let containerd = details.containerd.as_deref();
    [(facts.name.as_str(), facts.version.as_str())]
        .into_iter()
        .chain(runtime.map(|(name, version)| (name.as_str(), version.as_str())))
        .chain(containerd.map(|version| ("containerd", version)))
}

/// Those of them that are below their floors, each with the words for it.
pub(super) fn below(facts: &EngineFacts) -> impl Iterator<Item = (&'static Floor, String)> {
    parts(facts).filter_map(|(name, version)| match measure(name, version) {
        Measured::Below(floor) => Some((
            floor,
            format!("{name} {version} is below {} ({})", floor.text(), floor.because),
        )),
        Measured::Above | Measured::Unknown => None,
    })
}

/// One finding for all of them: a number that is too low proves nothing where a distribution backports fixes.
fn versions(facts: &EngineFacts) -> Finding {
    let below: Vec<String> = below(facts).map(|(_, words)| words).collect();
    let fine: Vec<String> = parts(facts)
        .filter_map(|(name, version)| match measure(name, version) {
            Measured::Below(_) => None,
            Measured::Above => Some(format!("{name} {version}")),
            Measured::Unknown => Some(format!("{name} {version} (no floor is known)")),
        })
        .collect();
    if below.is_empty() {
        return Finding::ok("engine.versions", fine.join(", ")).means("all are at their floors or above");
    }
    Finding::warning("engine.versions", [below, fine].concat().join("; "))
        .means(
            "these versions have known faults by which containers were left, unless the distribution has put the fixes \
             into them: many do, and keep the number",
        )
        .mend("bring the packages up to date, and see the distribution's security tracker for the faults named")
}

fn kernel(facts: &EngineFacts) -> Finding {
    match measure("kernel", &facts.kernel) {
        Measured::Below(floor) => Finding::warning(
            "engine.kernel",
            format!("{} is below {} ({})", facts.kernel, floor.text(), floor.because),
        )
        .means("all sandboxes but gVisor's share this kernel with the host, and its faults are the way out of them")
        .mend("use a kernel that the distribution still fixes"),
        Measured::Above => Finding::ok("engine.kernel", &facts.kernel)
            .means("its series still gets fixes; whether this host has them its number does not show"),
        Measured::Unknown => Finding::note("engine.kernel", format!("`{}`", facts.kernel))
            .means("the engine does not say which kernel its containers share"),
    }
}

fn cgroup(facts: &EngineFacts) -> Finding {
    let driver = &facts.details.cgroup_driver;
    match facts.cgroup {
        CgroupVersion::V2 => Finding::ok("engine.cgroup", format!("version 2, driver {driver}"))
            .means("memory, socket buffers and swap are counted in one place, and kills for memory are on record"),
        CgroupVersion::V1 => Finding::warning("engine.cgroup", format!("version 1, driver {driver}"))
            .means(
                "memory of sockets is not counted, so that jobs get no sockets but between their own processes; a peak \
                 of memory and kills for it may not be readable",
            )
            .mend("boot the host with systemd.unified_cgroup_hierarchy=1 (the kernel and Docker 20.10 or newer have it)"),
    }
}

fn limits(facts: &EngineFacts) -> Finding {
    let details = &facts.details;
    let missing: Vec<&str> = [
        (details.memory_limit, "memory"),
        (details.pids_limit, "processes"),
        (facts.swap_limit, "swap"),
    ]
    .into_iter()
    .filter_map(|(has, name)| (!has).then_some(name))
    .collect();
    // Podman doesn't say, and has them with the hierarchy; the test start reads them back from inside.
    if missing.is_empty() || (facts.podman && missing == ["processes"]) {
        return Finding::ok("engine.limits", "memory, swap and processes can be limited")
            .means("a job can't take what others need");
    }
    let finding = |status| {
        Finding::new(
            "engine.limits",
            status,
            format!("can't be limited: {}", missing.join(", ")),
        )
    };
    if missing == ["swap"] {
        return finding(Status::Warning)
            .means("a job's memory is limited, and what it swaps out is not; the record says so")
            .mend("boot with swapaccount=1, or turn swap off (swapoff -a)");
    }
    finding(Status::Problem)
        .means("a sandbox without them is refused before its job starts")
        .mend("boot with cgroup_enable=memory, and see that the engine's user may use the controllers")
}

fn lsm(facts: &EngineFacts) -> Finding {
    let modules = facts.lsm();
    if !modules.is_empty() {
        return Finding::ok("engine.lsm", modules.join(", "))
            .means("one more layer between a job and the host's files");
    }
    Finding::warning("engine.lsm", "neither AppArmor nor SELinux")
        .means("one layer less: what stops a job at the host's files is its user, its mounts and our filter alone")
        .mend("turn AppArmor on (apt install apparmor; boot with lsm=apparmor) or SELinux, then restart the engine")
}

fn seccomp(facts: &EngineFacts) -> Finding {
    if facts.has_seccomp() {
        return Finding::ok("engine.seccomp", "system calls can be filtered")
            .means("each sandbox gets our filter, and the guest proves from inside that it is on");
    }
    Finding::problem("engine.seccomp", "the engine has no seccomp")
        .means("our filter can't be put on, and a sandbox without it is refused before its job starts")
        .mend("use a kernel and an engine with seccomp: every distribution's has it")
}

fn users(facts: &EngineFacts) -> Finding {
    if facts.is_rootless() {
        return rootless(facts);
    }
    if facts.remaps_users() {
        let found = facts.mapped_root().map_or_else(
            || "userns-remap".to_owned(),
            |(uid, gid)| {
                format!("userns-remap: root of a container is user {uid} and group {gid} of the host")
            },
        );
        return Finding::ok("engine.users", found).means(
            "one more layer: who gets out of a sandbox is a user that nothing on the host belongs to. Each sandbox's kernel has \
             to say the same from inside, or its job is refused (gVisor's shows users of its own)",
        );
    }
    Finding::note(
        "engine.users",
        "the engine runs as root, and containers have the host's users",
    )
    .means("the guest of a sandbox is root for its first moments, then nobody is; a job never is")
    .mend("`userns-remap` in the engine's configuration would be one more layer (docs/runtimes.md, User namespaces)")
}

/// An engine without root has of control groups what was delegated to it, which is nothing by default.
fn rootless(facts: &EngineFacts) -> Finding {
    let lacks = facts.rootless_lacks();
    if lacks.is_empty() {
        return Finding::note("engine.users", "rootless, and by its word it can enforce limits")
            .means(
                "who gets out of a sandbox is a user without rights, and root of a container is no more than the user that the \
                 engine runs as. Each sandbox's kernel has to say from inside that limits and users are so, or its job is refused",
            )
            .mend("nothing; mayfly has run no jobs on such a host yet (docs/runtimes.md, Rootless engines)");
    }
    let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
    Finding::problem("engine.users", format!("rootless, without {}", lacks.join(", ")))
        .means("what a job takes can't be bounded: jobs are refused here before a container is made")
        .mend(
            "boot the host with control groups of version 2, and let systemd delegate them to the engine's user \
             (Delegate=cpu cpuset io memory pids for user@.service), or use an engine that runs as root",
        )
}

/// Guests end by themselves where nobody tells them to go on, so that neither choice leaves any behind.
fn live_restore(facts: &EngineFacts) -> Finding {
    if !facts.details.live_restore {
        return Finding::ok("engine.live_restore", "off").means("sandboxes end with the engine");
    }
    Finding::note("engine.live_restore", "on")
        .means(
            "containers outlive a restart of the engine; a sandbox does not, since its guest ends when it hears nothing \
             for some seconds, and what was in it is tried again",
        )
        .mend("nothing has to be done for mayfly; leave it off where nothing else on this host needs it")
}

fn storage(facts: &EngineFacts) -> Finding {
    let driver = facts.storage_driver.as_str();
    match driver {
        "overlay2" | "overlayfs" | "overlay" | "btrfs" | "zfs" | "stargz" => {
            Finding::ok("engine.storage", driver).means("a container's root costs no copy of its image")
        }
        "vfs" => Finding::warning("engine.storage", driver)
            .means("each container is a full copy of its image: starts take seconds, and disks fill")
            .mend("let the engine use overlay2, on a file system that has it (ext4, xfs with ftype=1)"),
        _ => Finding::note("engine.storage", driver)
            .means("it works, and starts are slower than with overlay2")
            .mend("let the engine use overlay2, on a file system that has it (ext4, xfs with ftype=1)"),
    }
}

fn registries(facts: &EngineFacts) -> Finding {
    let insecure = &facts.details.insecure_registries;
    if insecure.is_empty() {
        return Finding::ok("engine.registries", "no registry is used without TLS")
            .means("who is on the network can't change what is pulled");
    }
    Finding::warning("engine.registries", format!("used without TLS: {}", insecure.join(", ")))
        .means("who is on the network can see and change what is pulled by tag; by digest, which mayfly pins, it is refused")
        .mend("take them out of `insecure-registries` in the engine's configuration")
}
