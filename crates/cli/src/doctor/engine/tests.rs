use std::collections::BTreeMap;

use mayfly_sandbox::engine::EngineDetails;

use super::*;
use crate::doctor::preflight;

/// A host that misses nothing.
pub(crate) fn good() -> EngineFacts {
    EngineFacts {
        id: "an engine".to_owned(),
        name: "Docker Engine".to_owned(),
        version: "29.9.0".to_owned(),
        api: "1.53".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: "6.18.44".to_owned(),
        operating_system: "Debian".to_owned(),
        cgroup: CgroupVersion::V2,
        swap_limit: true,
        security_options: vec![
            "name=seccomp,profile=builtin".to_owned(),
            "name=apparmor".to_owned(),
        ],
        runtimes: ["runc".to_owned()].into(),
        podman: false,
        cpus: 2,
        memory_bytes: 1 << 30,
        storage_driver: "overlay2".to_owned(),
        details: EngineDetails {
            containerd: Some("2.4.0".to_owned()),
            runtime: Some(("runc".to_owned(), "1.5.0".to_owned())),
            memory_limit: true,
            cpu_quota: true,
            pids_limit: true,
            cgroup_driver: "systemd".to_owned(),
            ..EngineDetails::default()
        },
    }
}

fn statuses(facts: &EngineFacts) -> BTreeMap<String, Status> {
    check(facts)
        .into_iter()
        .map(|finding| (finding.id, finding.status))
        .collect()
}

fn with(change: impl FnOnce(&mut EngineFacts)) -> EngineFacts {
    let mut facts = good();
    change(&mut facts);
    facts
}

#[test]
fn a_good_host_has_nothing_to_mend_but_its_root() {
    let found = statuses(&good());
    let rest: Vec<_> = found
        .iter()
        .filter(|(_, status)| **status != Status::Ok)
        .collect();
    assert_eq!(rest, [(&"engine.users".to_owned(), &Status::Note)]);
}

#[test]
fn each_lack_has_its_finding_and_the_posture_names_it() {
    for (facts, id, status, in_posture) in [
        (
            with(|f| f.version = "20.10.24+dfsg1".to_owned()),
            "engine.versions",
            Status::Warning,
            true,
        ),
        (
            with(|f| f.details.runtime = Some(("runc".to_owned(), "1.1.5".to_owned()))),
            "engine.versions",
            Status::Warning,
            true,
        ),
        (
            with(|f| f.kernel = "4.19.0".to_owned()),
            "engine.kernel",
            Status::Warning,
            true,
        ),
        (
            with(|f| f.cgroup = CgroupVersion::V1),
            "engine.cgroup",
            Status::Warning,
            true,
        ),
        (
            with(|f| f.swap_limit = false),
            "engine.limits",
            Status::Warning,
            true,
        ),
        (
            with(|f| f.details.memory_limit = false),
            "engine.limits",
            Status::Problem,
            true,
        ),
        (
            with(|f| f.details.pids_limit = false),
            "engine.limits",
            Status::Problem,
            true,
        ),
        (
            with(|f| drop(f.security_options.pop())),
            "engine.lsm",
            Status::Warning,
            true,
        ),
        (
            with(|f| drop(f.security_options.remove(0))),
            "engine.seccomp",
            Status::Problem,
            true,
        ),
        (
            with(|f| f.details.live_restore = true),
            "engine.live_restore",
            Status::Note,
            false,
        ),
        (
            with(|f| f.storage_driver = "vfs".to_owned()),
            "engine.storage",
            Status::Warning,
            false,
        ),
        (
            with(|f| f.details.insecure_registries = vec!["10.0.0.0/8".to_owned()]),
            "engine.registries",
            Status::Warning,
            false,
        ),
        (
            with(|f| f.details.warnings = vec!["WARNING: x".to_owned()]),
            "engine.warning",
            Status::Note,
            false,
        ),
    ] {
        assert_eq!(statuses(&facts)[id], status, "{id}");
        let findings = check(&facts);
        let posture = preflight::posture(&facts, &findings);
        assert_eq!(posture.found.contains(id), in_posture, "{id}: {}", posture.found);
        let finding = findings.iter().find(|finding| finding.id == id).unwrap();
        assert!(!finding.means.is_empty(), "{id}");
        assert!(!finding.mend.is_empty() || id == "engine.warning", "{id}");
    }
}

#[test]
fn a_missed_floor_says_that_distributions_backport() {
    let found = versions(&with(|f| f.details.containerd = Some("1.6.20~ds1".to_owned())));
    assert!(
        found.found.contains("containerd 1.6.20~ds1 is below 1.7.33"),
        "{}",
        found.found
    );
    assert!(found.means.contains("distribution"), "{}", found.means);
}

#[test]
fn users_of_the_engine_are_told_apart() {
    let of = |option: &str, folder: &str| {
        users(&with(|f| {
            f.security_options.push(option.to_owned());
            f.details.data_folder = folder.to_owned();
        }))
    };
    let rootless = of("name=rootless", "/home/ann/.local/share/docker");
    assert_eq!(
        (rootless.status, rootless.found.as_str()),
        (Status::Note, "rootless, and by its word it can enforce limits")
    );
    let mapped = of("name=userns", "/var/lib/docker/100000.200000");
    assert_eq!(mapped.status, Status::Ok);
    assert_eq!(
        mapped.found,
        "userns-remap: root of a container is user 100000 and group 200000 of the host"
    );
    let elsewhere = of("name=userns", "/var/lib/docker");
    assert_eq!(
        (elsewhere.status, elsewhere.found.as_str()),
        (Status::Ok, "userns-remap")
    );
    assert_eq!(users(&with(|_| {})).status, Status::Note);
}

#[test]
fn a_rootless_engine_that_can_enforce_no_limits_is_a_problem_that_names_each() {
    let found = users(&with(|f| {
        f.security_options.push("name=rootless".to_owned());
        f.cgroup = CgroupVersion::V1;
        f.details.cgroup_driver = "none".to_owned();
        f.details.pids_limit = false;
    }));
    assert_eq!(found.status, Status::Problem);
    assert_eq!(
        found.found,
        "rootless, without control groups of version 2 (CgroupVersion 1), a driver of control groups (CgroupDriver none), \
         a limit of processes (PidsLimit false)"
    );
    assert!(found.mend.contains("Delegate="), "{}", found.mend);
}

#[test]
fn a_socket_that_does_not_answer_is_explained_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    assert!(of_a_socket(&path).contains("is not there"));
    std::fs::write(&path, "").unwrap();
    assert!(of_a_socket(&path).contains("is no socket"));
    std::fs::remove_file(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(of_a_socket(&path).contains("nothing answers"));
}
