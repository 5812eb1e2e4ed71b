//! What an engine says of its configuration: nothing that a sandbox is made by, all that `mayfly doctor` judges.

use bollard::models::{SystemInfo, SystemVersion};

/// An engine's configuration and parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct EngineDetails {
    /// What its host is called.
    pub host_name: String,
    /// containerd's version, where the engine says it.
    pub containerd: Option<String>,
    /// The version of the engine's own runc or crun, where it says it, with the name.
    pub runtime: Option<(String, String)>,
    /// The runtime of a container that names none.
    pub default_runtime: String,
    /// `systemd` or `cgroupfs`; `none` where it has no control groups.
    pub cgroup_driver: String,
    /// Where the engine keeps images and containers.
    pub data_folder: String,
    /// Whether containers outlive a restart of the engine.
    pub live_restore: bool,
    /// Whether processes can be limited in number.
    pub pids_limit: bool,
    /// Whether memory can be limited.
    pub memory_limit: bool,
    /// Whether time on CPUs can be limited.
    pub cpu_quota: bool,
    /// Registries that are spoken to without TLS, but for this host's own.
    pub insecure_registries: Vec<String>,
    /// What the engine itself complains of.
    pub warnings: Vec<String>,
}

impl EngineDetails {
    pub(super) fn of(version: &SystemVersion, info: &SystemInfo) -> Self {
        let component = |wanted: &str| {
            let components = version.components.iter().flatten();
            let found = components.into_iter().find(|part| part.name == wanted)?;
            Some(found.version.clone()).filter(|version| !version.is_empty())
        };
        let registries = info.registry_config.as_ref();
        let cidrs = registries.and_then(|registries| registries.insecure_registry_cidrs.clone());
        let named = registries.and_then(|registries| registries.index_configs.clone());
        let mut insecure: Vec<String> = cidrs
            .unwrap_or_default()
            .into_iter()
            .filter(|network| !network.starts_with("127.") && network != "::1/128")
            .chain(
                named
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|(_, index)| index.secure == Some(false))
                    .map(|(name, _)| name),
            )
            .collect();
        insecure.sort();
        Self {
            host_name: info.name.clone().unwrap_or_default(),
            containerd: component("containerd"),
            runtime: ["runc", "crun"]
                .into_iter()
                .find_map(|name| Some((name.to_owned(), component(name)?))),
            default_runtime: info.default_runtime.clone().unwrap_or_default(),
            cgroup_driver: info
                .cgroup_driver
                .map(|driver| driver.to_string())
                .unwrap_or_default(),
            data_folder: info.docker_root_dir.clone().unwrap_or_default(),
            live_restore: info.live_restore_enabled.unwrap_or(false),
            pids_limit: info.pids_limit.unwrap_or(false),
            memory_limit: info.memory_limit.unwrap_or(false),
            cpu_quota: info.cpu_cfs_quota.unwrap_or(false),
            insecure_registries: insecure,
            warnings: info.warnings.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_says_is_found_in_it() {
        let version: SystemVersion = serde_json::from_value(serde_json::json!({"Components": [
            {"Name": "Engine", "Version": "20.10.24"}, {"Name": "containerd", "Version": "1.6.20~ds1"},
            {"Name": "runc", "Version": "1.1.5+ds1"}, {"Name": "docker-init", "Version": ""},
        ]}))
        .unwrap();
        let info: SystemInfo = serde_json::from_value(serde_json::json!({
            "Name": "vm", "CgroupDriver": "systemd", "DockerRootDir": "/var/lib/docker",
            "LiveRestoreEnabled": true, "PidsLimit": true, "MemoryLimit": true, "CpuCfsQuota": true, "DefaultRuntime": "runc",
            "Warnings": ["WARNING: no swap limit"],
            "RegistryConfig": {"InsecureRegistryCIDRs": ["127.0.0.0/8", "10.0.0.0/8"], "IndexConfigs": {
                "docker.io": {"Name": "docker.io", "Secure": true}, "a.example": {"Name": "a.example", "Secure": false}}},
        }))
        .unwrap();
        let details = EngineDetails::of(&version, &info);
        let expected = EngineDetails {
            host_name: "vm".to_owned(),
            containerd: Some("1.6.20~ds1".to_owned()),
            runtime: Some(("runc".to_owned(), "1.1.5+ds1".to_owned())),
            default_runtime: "runc".to_owned(),
            cgroup_driver: "systemd".to_owned(),
            data_folder: "/var/lib/docker".to_owned(),
            live_restore: true,
            pids_limit: true,
            memory_limit: true,
            cpu_quota: true,
            insecure_registries: vec!["10.0.0.0/8".to_owned(), "a.example".to_owned()],
            warnings: vec!["WARNING: no swap limit".to_owned()],
        };
        assert_eq!(details, expected);
    }

    #[test]
    fn an_engine_that_says_nothing_has_nothing() {
        let details = EngineDetails::of(&SystemVersion::default(), &SystemInfo::default());
        assert_eq!(details, EngineDetails::default());
    }
}
