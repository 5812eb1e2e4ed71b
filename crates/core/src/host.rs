//! The host that a sandbox was on, as far as its containers depend on it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What is demanded of an executor's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Posture {
    /// What is missed is said once.
    Development,
    /// What is missed refuses all work, unless it is accepted by name.
    Production,
}

/// What a host was when a sandbox was made on it: by its engine's word, and by the files of its kernel where those could be
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostFacts {
    /// What was demanded of it.
    pub posture: Posture,
    /// Version of the OCI runtime that the sandbox has. Engines tell that of their own runtime alone (`runc`, `crun`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_version: Option<String>,
    /// Version of containerd, where the engine has one and tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// Release of the host's kernel, which a sandbox on gVisor does not see.
    pub kernel: String,
    /// Version of the hierarchy of control groups: 1 or 2.
    pub cgroup_version: u8,
    /// The security modules that containers are put under: `apparmor`, `selinux`; none, where there are none.
    pub lsm: Vec<String>,
    /// What the host missed and was used in spite of, by the names that `mayfly doctor` gives it. Under `production` each was
    /// accepted by name (`executor.accept`).
    pub missed: Vec<String>,
    /// What could not be looked at, by the same names; `host` is all that is read of its kernel's files.
    pub not_checked: Vec<String>,
    /// When that was looked at, by the executor's clock, to the millisecond: at its start, with each self-test, and when the
    /// engine is back after it was away.
    #[serde(serialize_with = "crate::audit::timestamp")]
    pub checked_at: DateTime<Utc>,
}
