//! What of `/proc` and `/sys` no sandbox sees or changes.

/// Hidden: what engines hide by default, and beyond it what tells a sandbox about its host or its neighbours.
pub(crate) const MASKED_PATHS: [&str; 20] = [
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

/// Those of them that each Linux has, so that a mask that is missing is seen from inside.
pub(crate) const ALWAYS_MASKED: [&str; 3] = ["/proc/cmdline", "/proc/loadavg", "/proc/version"];

/// Not to be changed: Docker's default.
pub(crate) const READ_ONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Those of them that each Linux has.
pub(crate) const ALWAYS_READ_ONLY: [&str; 2] = ["/proc/fs", "/proc/sys"];
