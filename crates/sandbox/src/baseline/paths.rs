//! What of `/proc` and `/sys` no sandbox sees or changes.

pub(crate) use mayfly_protocol::{MASKED_PATHS, READ_ONLY_PATHS};

/// Those of the hidden ones that each Linux has: they are missed whatever a guest says.
pub(crate) const ALWAYS_MASKED: [&str; 3] = ["/proc/cmdline", "/proc/loadavg", "/proc/version"];

/// Those of the read-only ones that each Linux has.
pub(crate) const ALWAYS_READ_ONLY: [&str; 2] = ["/proc/fs", "/proc/sys"];
