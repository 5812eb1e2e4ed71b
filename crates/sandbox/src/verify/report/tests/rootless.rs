//! A rootless engine: root of a container is the engine's own user, and all others are apart from it.

use mayfly_core::run::{OtherIds, UserNamespace};
use serde_json::{Value, json};

use super::{
    mapped::{fields, mount, of_mapped_users},
    *,
};
use crate::engine::CgroupVersion;

/// What the engine of these reports maps to: its user 999 in group 995, and the range of that user in `/etc/subuid`.
const ROOTLESS: UserNamespace = UserNamespace {
    first_uid: 999,
    first_gid: 995,
    count: 65_537,
    others: Some(OtherIds {
        first_uid: 1_900_000_000,
        first_gid: 1_800_000_000,
    }),
};

fn rootless(cgroup: CgroupVersion) -> EngineFacts {
    EngineFacts {
        security_options: vec![
            "name=seccomp,profile=default".to_owned(),
            "name=rootless".to_owned(),
        ],
        cgroup,
        ..engine()
    }
}

fn ranges(root: u32, others: u32) -> Value {
    json!([
        {"inside": 0, "outside": root, "count": 1},
        {"inside": 1, "outside": others, "count": 65_536},
    ])
}

/// The mounts, devices and users of a container of Docker 20.10.24 under rootlesskit 1.1.0 with runc 1.1.5, in a report of limits
/// that are in force: those are not measured, since that host had control groups of version 1.
fn of_a_rootless_engine() -> Value {
    let mut report = of_mapped_users();
    report["uid_map"] = ranges(999, 1_900_000_000);
    report["gid_map"] = ranges(995, 1_800_000_000);
    for mount in report["mounts"].as_array_mut().unwrap() {
        let is_hierarchy = mount["fstype"] == "cgroup";
        if is_hierarchy {
            mount["options"] = json!(["ro", "nosuid", "nodev", "noexec", "relatime"]);
        }
        for option in mount["super_options"].as_array_mut().unwrap() {
            let owner = match option.as_str().unwrap() {
                "uid=100000" => "uid=999",
                "gid=200000" => "gid=995",
                // The sandbox's 20001: the others begin with 1.
                "uid=120001" => "uid=1900020000",
                "gid=220001" => "gid=1800020000",
                _ => continue,
            };
            *option = owner.into();
        }
    }
    report
}

/// The same where control groups are of version 2.
fn with_version_2() -> Value {
    let mut report = of_a_rootless_engine();
    report["cgroup"]["version"] = 2.into();
    let mounts = report["mounts"].as_array_mut().unwrap();
    mounts.retain(|mount| {
        !mount["mount_point"]
            .as_str()
            .unwrap()
            .starts_with("/sys/fs/cgroup")
    });
    mounts.push(json!({
        "mount_point": "/sys/fs/cgroup", "root": "/", "fstype": "cgroup2", "source": "cgroup",
        "options": ["ro", "nosuid", "nodev", "noexec", "relatime"], "super_options": ["rw"],
    }));
    report
}

#[test]
fn an_honest_report_of_a_rootless_engine_is_accepted_and_tells_who_its_users_are() {
    for (cgroup, report) in [
        (CgroupVersion::V1, of_a_rootless_engine()),
        (CgroupVersion::V2, with_version_2()),
    ] {
        let engine = rootless(cgroup);
        assert_eq!(fields(&engine, &report), Vec::<String>::new(), "{cgroup:?}");
        assert_eq!(on_record(&engine, "runc", &report), Some(ROOTLESS));
    }
    assert_eq!(ROOTLESS.outside(0), Some((999, 995)));
    assert_eq!(ROOTLESS.outside(1), Some((1_900_000_000, 1_800_000_000)));
    assert_eq!(ROOTLESS.outside(65_536), Some((1_900_065_535, 1_800_065_535)));
    assert_eq!(ROOTLESS.outside(65_537), None);
}

#[test]
fn a_report_of_a_rootless_engine_that_lies_in_any_one_field_is_refused() {
    let engine = rootless(CgroupVersion::V2);
    let mut caught = 0;
    for lie in &lies::about(&with_version_2()) {
        let Some(findings) = checked_on(&engine, "runc", &lie.document) else {
            continue;
        };
        if ["uid_map", "gid_map"]
            .iter()
            .any(|map| lie.place.starts_with(map))
        {
            // How many others there are beside those that the sandbox uses.
            let more = ["uid_map", "gid_map"]
                .iter()
                .any(|map| lie.document[map][1]["count"] == 65_537);
            assert_eq!(findings.mismatches.is_empty(), more, "{} {}", lie.place, lie.what);
            caught += 1;
            continue;
        }
        let owner = ["mounts[/tmp].super_options", "mounts[/dev/shm].super_options"]
            .contains(&lie.place.as_str())
            && (lie.what == "without \"uid=999\"" || lie.what == "without \"gid=995\"");
        if !owner && !proves_nothing(lie) {
            assert_named(&findings, lie);
            caught += 1;
        }
    }
    assert!(caught > 400, "{caught}");
}

#[test]
fn a_map_of_a_rootless_engine_is_root_alone_and_others_and_none_of_them_the_hosts_root() {
    let engine = rootless(CgroupVersion::V2);
    let map = |root: [u32; 3], others: [u32; 3]| {
        let range = |[inside, outside, count]: [u32; 3]| json!({"inside": inside, "outside": outside, "count": count});
        json!([range(root), range(others)])
    };
    let others = [1, 1_900_000_000, 65_536];
    for wrong in [
        json!([]),
        json!([{"inside": 0, "outside": 0, "count": u32::MAX}]),
        // An engine that runs as root with users mapped has one range.
        json!([{"inside": 0, "outside": 100_000, "count": 65_536}]),
        map([0, 0, 1], others),
        map([0, 999, 2], others),
        map([1, 999, 1], others),
        map([0, 999, 1], [2, 1_900_000_000, 65_536]),
        map([0, 999, 1], [1, 0, 65_536]),
        map([0, 100_000, 1], [1, 0, 65_536]),
        // Up to the guest's user, and not the job's.
        map([0, 999, 1], [1, 1_900_000_000, 20_000]),
        map([0, 999, 1], [1, u32::MAX - 10, 65_536]),
        // The engine's own user is also one of the others.
        map([0, 1_900_000_001, 1], others),
        json!([
            {"inside": 0, "outside": 999, "count": 1}, {"inside": 1, "outside": 1_900_000_000, "count": 65_536},
            {"inside": 65_537, "outside": 0, "count": 1},
        ]),
    ] {
        for name in ["uid_map", "gid_map"] {
            let mut report = with_version_2();
            report[name] = wrong.clone();
            let found = fields(&engine, &report);
            assert!(found.contains(&name.to_owned()), "{name} {wrong}: {found:?}");
            assert_eq!(on_record(&engine, "runc", &report), None);
        }
    }
    // Just enough.
    let mut report = with_version_2();
    report["uid_map"] = map([0, 999, 1], [1, 1_900_000_000, 20_001]);
    assert_eq!(fields(&engine, &report), Vec::<String>::new());
}

#[test]
fn two_ranges_are_taken_of_a_rootless_engine_alone() {
    let found = fields(&engine(), &of_a_rootless_engine());
    assert!(
        found.contains(&"uid_map".to_owned()) && found.contains(&"gid_map".to_owned()),
        "{found:?}"
    );
    let engine = rootless(CgroupVersion::V1);
    let found = fields(&engine, &honest());
    assert_eq!(found, ["uid_map", "gid_map"]);
}

#[test]
fn what_belongs_to_the_job_and_to_root_is_theirs_as_the_host_counts() {
    let engine = rootless(CgroupVersion::V2);
    for (point, right, wrong) in [
        ("/work", "uid=1900020000", "uid=1900020001"),
        ("/work", "gid=1800020000", "gid=1800020001"),
        ("/dev", "uid=999", "uid=1900020000"),
        ("/dev", "gid=995", "gid=0"),
    ] {
        let mut report = with_version_2();
        let options = mount(&mut report, point)["super_options"].as_array_mut().unwrap();
        options.retain(|option| option != right);
        options.push(wrong.into());
        assert_eq!(
            fields(&engine, &report),
            [format!("mounts[{point}].super_options")]
        );
    }
}

#[test]
fn a_limit_that_such_an_engine_left_out_is_found_from_inside() {
    let engine = rootless(CgroupVersion::V2);
    for name in ["memory_bytes", "pids", "cpu_quota_us"] {
        let mut report = with_version_2();
        report["cgroup"][name] = Value::Null;
        assert_eq!(fields(&engine, &report), [format!("cgroup.{name}")]);
    }
}
