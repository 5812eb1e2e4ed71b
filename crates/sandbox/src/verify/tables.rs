//! What each runtime can show from inside.

use crate::{baseline::is_gvisor, engine::EngineFacts};

/// The runtimes that differ in what they show of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// runc, crun: the host's kernel.
    HostKernel,
    /// gVisor: a kernel of its own, in which some of what the host enforces can't be seen.
    Gvisor,
}

impl Table {
    pub(crate) fn of(runtime: &str) -> Self {
        if is_gvisor(runtime) {
            Self::Gvisor
        } else {
            Self::HostKernel
        }
    }
}

/// gVisor's own kernel release and version, which it gives whatever the host's is (gVisor's `pkg/sentry/syscalls/linux/
/// linux64.go`, "LinuxRelease"). The program that asks can't tell the two apart otherwise.
pub(crate) const GVISOR_RELEASES: [&str; 1] = ["4.4.0"];

/// Names and reasons of what can't be enforced, for the record.
pub(crate) mod reason {
    pub(crate) const SHM_INODES: (&str, &str) = (
        "shm_inodes",
        "engines can't bound the number of files in /dev/shm; they count against the memory limit",
    );
    pub(crate) const SOCKET_MEMORY: (&str, &str) = (
        "socket_memory",
        "control groups of version 1 do not count the buffers of TCP and UDP sockets; they are kept small, and bounded by the number of descriptors",
    );
    pub(crate) const LSM: (&str, &str) = ("lsm", "the engine's host has neither AppArmor nor SELinux");
    pub(crate) const SWAP: (&str, &str) = (
        "swap",
        "the engine's host does not count swap, so that memory alone is bounded",
    );
    pub(crate) const SECCOMP_GVISOR: (&str, &str) = (
        "syscall_filter",
        "gVisor serves the job's system calls itself and does not apply the filter to them",
    );
    pub(crate) const NO_NEW_PRIVS_GVISOR: (&str, &str) = (
        "no_new_privs_from_inside",
        "gVisor does not show it in /proc/self/status; the engine's word is the only one",
    );
    pub(crate) const MOUNT_OPTIONS_GVISOR: (&str, &str) = (
        "nosuid_nodev_from_inside",
        "gVisor does not show nosuid and nodev of a mount; devices inside are its own",
    );
    pub(crate) const HIDDEN_PATHS_GVISOR: (&str, &str) = (
        "hidden_paths",
        "gVisor hides none of the paths in /proc and /sys and makes none read-only; what is at them is its own kernel's",
    );
    pub(crate) const INODES_GVISOR: (&str, &str) = (
        "tmpfs_inodes",
        "gVisor does not bound the number of files in /work and /tmp; they count against the memory limit",
    );
    pub(crate) const CGROUP_GVISOR: (&str, &str) = (
        "cgroup_from_inside",
        "gVisor does not show the host's control group inside; the engine's word is the only one",
    );
    pub(crate) const OOM_GVISOR: (&str, &str) = (
        "oom_score_adj",
        "gVisor is one process to the host's memory limit: at the limit the guest ends together with the job",
    );
    pub(crate) const USERS_GVISOR: (&str, &str) = (
        "user_namespace_from_inside",
        "gVisor shows the users of its own kernel; that the engine maps those of its containers is the engine's word alone",
    );
    pub(crate) const USER_LIMITS_GVISOR: (&str, &str) = (
        "msgqueue_sigpending",
        "gVisor shows these limits and does not apply them; queues and timers count against the memory limit",
    );
}

/// Whether memory and swap together can be bound on this engine's host.
pub(crate) fn counts_swap(engine: &EngineFacts) -> bool {
    engine.swap_limit
}
