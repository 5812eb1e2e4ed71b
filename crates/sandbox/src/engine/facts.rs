//! What an engine says of itself.

use std::{collections::BTreeSet, fmt};

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};

use super::details::EngineDetails;

/// Something that a sandbox needs of its engine and that it says not to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is needed, in words.
    pub needed: &'static str,
    /// What of the engine's `info` says so.
    pub field: &'static str,
    /// What it says.
    pub found: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.needed, self.field, self.found)
    }
}

/// What an engine says of itself and of the host that it runs containers on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EngineFacts {
    /// The engine's own id, which no other has and which it keeps; empty where it has none, as Podman.
    pub id: String,
    /// `Docker Engine` or `Podman Engine`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the API that we agreed on.
    pub api: String,
    /// The host's architecture as Rust and the kernel name it: `x86_64`, `aarch64`.
    pub architecture: String,
    /// The host's kernel release.
    pub kernel: String,
    /// The host's operating system, for people.
    pub operating_system: String,
    /// Which control group hierarchy the engine uses.
    pub cgroup: CgroupVersion,
    /// Whether the host can limit swap, so that memory and swap together can be bound.
    pub swap_limit: bool,
    /// What isolation the engine has: `name=seccomp,profile=default`, `name=apparmor`.
    pub security_options: Vec<String>,
    /// The OCI runtimes that it knows, by name.
    pub runtimes: BTreeSet<String>,
    /// Whether it is Podman, which wants some things otherwise.
    pub podman: bool,
    /// CPUs of its host.
    pub cpus: u32,
    /// Memory of its host, in bytes.
    pub memory_bytes: u64,
    /// How it stores images and root file systems: `overlay2`.
    pub storage_driver: String,
    /// Its configuration and parts.
    pub details: EngineDetails,
}

/// The two hierarchies of control groups (cgroups(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl EngineFacts {
    pub(super) fn of(version: SystemVersion, info: SystemInfo, api: String) -> Self {
        let details = EngineDetails::of(&version, &info);
        let components = version.components.unwrap_or_default();
        let podman = components
            .iter()
            .any(|component| component.name.starts_with("Podman"));
        let name = components
            .first()
            .map_or_else(|| "Docker Engine".to_owned(), |main| main.name.clone());
        Self {
            // Podman makes up another one for each call.
            id: if podman {
                String::new()
            } else {
                info.id.unwrap_or_default()
            },
            // Docker calls its own part `Engine`.
            name: if name == "Engine" {
                "Docker Engine".to_owned()
            } else {
                name
            },
            version: version.version.unwrap_or_default(),
            api,
            architecture: architecture(&info.architecture.or(version.arch).unwrap_or_default()),
            kernel: info.kernel_version.unwrap_or_default(),
            operating_system: info.operating_system.unwrap_or_default(),
            cgroup: match info.cgroup_version {
                Some(SystemInfoCgroupVersionEnum::_2) => CgroupVersion::V2,
                _ => CgroupVersion::V1,
            },
            swap_limit: info.swap_limit.unwrap_or(false),
            security_options: info.security_options.unwrap_or_default(),
            runtimes: info.runtimes.unwrap_or_default().into_keys().collect(),
            podman,
            cpus: u32::try_from(info.ncpu.unwrap_or(0)).unwrap_or(0),
            memory_bytes: u64::try_from(info.mem_total.unwrap_or(0)).unwrap_or(0),
            storage_driver: info.driver.unwrap_or_default(),
            details,
        }
    }

    /// The engine's name and version, for a record.
    #[must_use]
    pub fn engine(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// Whether the engine itself runs without root (`name=rootless`).
    #[must_use]
    pub fn is_rootless(&self) -> bool {
        self.has_option("rootless")
    }

    /// What a rootless engine can't enforce, by its own word; nothing for one that runs as root. Without root an engine has
    /// only what of control groups was delegated to it, and Docker then leaves out without a word whatever it can't set
    /// (moby `rootless/specconv/specconv_linux.go`, "ToRootless").
    #[must_use]
    pub fn rootless_lacks(&self) -> Vec<Lack> {
        if !self.is_rootless() {
            return Vec::new();
        }
        let details = &self.details;
        let driver = details.cgroup_driver.as_str();
        let version = match self.cgroup {
            CgroupVersion::V1 => "1",
            CgroupVersion::V2 => "2",
        };
        let limit = |has: bool| if has { "true" } else { "false" };
        [
            (
                self.cgroup == CgroupVersion::V2,
                "control groups of version 2",
                "CgroupVersion",
                version,
            ),
            (
                ["systemd", "cgroupfs"].contains(&driver),
                "a driver of control groups",
                "CgroupDriver",
                driver,
            ),
            (
                details.memory_limit,
                "a limit of memory",
                "MemoryLimit",
                limit(details.memory_limit),
            ),
            // Podman doesn't say; the kernel's word from inside decides there.
            (
                details.pids_limit || self.podman,
                "a limit of processes",
                "PidsLimit",
                limit(details.pids_limit),
            ),
            (
                details.cpu_quota,
                "a limit of CPU time",
                "CpuCfsQuota",
                limit(details.cpu_quota),
            ),
        ]
        .into_iter()
        .filter(|(has, ..)| !has)
        .map(|(_, needed, field, found)| Lack {
            needed,
            field,
            found: found.to_owned(),
        })
        .collect()
    }

    /// Whether the engine gives containers a user namespace (`name=userns`).
    #[must_use]
    pub fn remaps_users(&self) -> bool {
        self.has_option("userns")
    }

    /// The host's user and group that root of its containers is, where it maps them and says to which: Docker keeps such
    /// containers in a folder of that name (moby `daemon/daemon_unix.go`, "setupDaemonRoot").
    #[must_use]
    pub fn mapped_root(&self) -> Option<(u32, u32)> {
        let (_, folder) = self.details.data_folder.rsplit_once('/')?;
        let (uid, gid) = folder.split_once('.')?;
        let ids = (uid.parse().ok()?, gid.parse().ok()?);
        self.remaps_users().then_some(ids)
    }

    /// Whether the engine can put system calls under a filter.
    #[must_use]
    pub fn has_seccomp(&self) -> bool {
        self.has_option("seccomp")
    }

    /// Options are `name=seccomp,profile=default`; Podman leaves `name=` out.
    fn has_option(&self, name: &str) -> bool {
        self.security_options.iter().any(|option| {
            let first = option.split(',').next().unwrap_or_default();
            first.strip_prefix("name=").unwrap_or(first) == name
        })
    }

    /// Whether the engine puts containers under AppArmor or SELinux.
    #[must_use]
    pub fn has_lsm(&self) -> bool {
        !self.lsm().is_empty()
    }

    /// Which of AppArmor and SELinux the engine puts containers under.
    #[must_use]
    pub fn lsm(&self) -> Vec<String> {
        ["apparmor", "selinux"]
            .into_iter()
            .filter(|name| self.has_option(name))
            .map(ToOwned::to_owned)
            .collect()
    }
}

/// Engines say `x86_64` or `amd64`, `aarch64` or `arm64`.
fn architecture(name: &str) -> String {
    match name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use bollard::models::SystemVersionComponents;

    use super::*;

    #[test]
    fn podman_is_known_by_its_components_and_docker_by_their_absence() {
        let version = |name: &str| SystemVersion {
            components: Some(vec![SystemVersionComponents {
                name: name.to_owned(),
                ..Default::default()
            }]),
            version: Some("1.2".to_owned()),
            ..Default::default()
        };
        let facts = |name| EngineFacts::of(version(name), SystemInfo::default(), "1.41".to_owned());
        assert!(facts("Podman Engine").podman);
        assert!(!facts("Engine").podman);
        assert_eq!(facts("Engine").engine(), "Docker Engine 1.2");
    }

    fn of_info(info: serde_json::Value) -> EngineFacts {
        let info: SystemInfo = serde_json::from_value(info).unwrap();
        EngineFacts::of(SystemVersion::default(), info, "1.41".to_owned())
    }

    fn lacks(info: serde_json::Value) -> Vec<&'static str> {
        let lacks = of_info(info).rootless_lacks();
        lacks.into_iter().map(|lack| lack.field).collect()
    }

    #[test]
    fn a_rootless_engine_is_judged_by_what_it_can_enforce() {
        // As Docker 20.10.24 under rootlesskit 1.1.0 says it on a host with control groups of version 1.
        let v1 = serde_json::json!({
            "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"], "CgroupDriver": "none", "CgroupVersion": "1",
            "MemoryLimit": false, "SwapLimit": false, "PidsLimit": false, "CpuCfsQuota": false, "CpuCfsPeriod": false,
        });
        let all = [
            "CgroupVersion",
            "CgroupDriver",
            "MemoryLimit",
            "PidsLimit",
            "CpuCfsQuota",
        ];
        assert_eq!(lacks(v1), all);
        let v2 = serde_json::json!({
            "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], "CgroupDriver": "systemd",
            "CgroupVersion": "2", "MemoryLimit": true, "SwapLimit": true, "PidsLimit": true, "CpuCfsQuota": true,
        });
        assert_eq!(lacks(v2.clone()), Vec::<&str>::new());
        for (field, without) in [
            ("CgroupVersion", "1".into()),
            ("CgroupDriver", "none".into()),
            ("CgroupDriver", serde_json::Value::Null),
            ("MemoryLimit", false.into()),
            ("PidsLimit", false.into()),
            ("CpuCfsQuota", serde_json::Value::Null),
        ] {
            let mut info = v2.clone();
            info[field] = without;
            assert_eq!(lacks(info.clone()), [field]);
            // One that runs as root is judged by what is read back alone.
            info["SecurityOptions"] = serde_json::json!(["name=seccomp,profile=builtin"]);
            assert_eq!(lacks(info), Vec::<&str>::new());
        }
    }

    #[test]
    fn who_root_of_a_container_is_stands_in_the_name_of_a_folder_where_users_are_mapped() {
        let root = |option: &str, folder: &str| {
            let info = SystemInfo {
                security_options: Some(vec![option.to_owned()]),
                docker_root_dir: Some(folder.to_owned()),
                ..Default::default()
            };
            EngineFacts::of(SystemVersion::default(), info, "1.41".to_owned()).mapped_root()
        };
        let mapped = "/var/lib/docker/100000.200000";
        assert_eq!(root("name=userns", mapped), Some((100_000, 200_000)));
        for (option, folder) in [
            ("name=seccomp,profile=default", mapped),
            ("name=userns", "/var/lib/docker"),
            ("name=userns", "/var/lib/docker/a.b"),
            ("name=userns", ""),
        ] {
            assert_eq!(root(option, folder), None, "{option} {folder}");
        }
    }
}
