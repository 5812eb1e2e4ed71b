//! What of `/proc` and `/sys` no sandbox sees or changes. The guest tells which of these paths there are in its sandbox, since
//! each kernel has others, and the executor expects a mount over each of those.

/// Hidden: what engines hide by default, and beyond it what tells a sandbox about its host or its neighbours.
pub const MASKED_PATHS: [&str; 20] = [
    // Docker's default.
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    // Beyond it.
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/kallsyms",
    "/proc/loadavg",
    "/proc/modules",
    "/proc/pressure",
    "/proc/version",
];

/// Not to be changed: Docker's default.
pub const READ_ONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Both lists, each path once.
pub fn guarded_paths() -> impl Iterator<Item = &'static str> {
    MASKED_PATHS.into_iter().chain(READ_ONLY_PATHS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_path_is_hidden_and_read_only_at_once() {
        let paths: BTreeSet<_> = guarded_paths().collect();
        assert_eq!(paths.len(), guarded_paths().count());
    }
}
