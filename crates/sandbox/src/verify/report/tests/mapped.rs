//! An engine that maps the users of its containers.

use mayfly_core::run::UserNamespace;
use serde_json::{Value, json};

use super::*;

/// What the engine of these reports maps to.
const MAPPED: UserNamespace = UserNamespace {
    first_uid: 100_000,
    first_gid: 200_000,
    count: 65_536,
    others: None,
};

/// What is bound from the host's `/dev`.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// An engine that maps users and keeps its data in this folder.
fn mapping(data_folder: &str) -> EngineFacts {
    let mut engine = EngineFacts {
        security_options: vec![
            "name=seccomp,profile=default".to_owned(),
            "name=userns".to_owned(),
        ],
        ..engine()
    };
    engine.details.data_folder = data_folder.to_owned();
    engine
}

/// One that says in that folder's name whom root of a container is.
fn telling() -> EngineFacts {
    mapping("/var/lib/docker/100000.200000")
}

pub(super) fn range(inside: u64, outside: u64, count: u64) -> Value {
    json!([{"inside": inside, "outside": outside, "count": count}])
}

pub(super) fn mount<'a>(report: &'a mut Value, point: &str) -> &'a mut Value {
    let mut mounts = report["mounts"].as_array_mut().unwrap().iter_mut();
    mounts.find(|mount| mount["mount_point"] == point).unwrap()
}

/// The report as Docker 20.10 with runc 1.1 gives it on the same host with `userns-remap`.
pub(super) fn of_mapped_users() -> Value {
    let mut report = honest();
    report["uid_map"] = range(0, 100_000, 65_536);
    report["gid_map"] = range(0, 200_000, 65_536);
    let of_root = ["uid=100000", "gid=200000"];
    for mount in report["mounts"].as_array_mut().unwrap() {
        let point = mount["mount_point"].as_str().unwrap().to_owned();
        let is_hidden_file = MASKED_PATHS.contains(&point.as_str()) && mount["root"] == "/null";
        if is_hidden_file {
            mount["fstype"] = "devtmpfs".into();
            mount["options"] = json!(["rw", "relatime"]);
            mount["super_options"] = json!(["rw", "mode=755"]);
        } else if point.starts_with("/sys/fs/cgroup") {
            mount["options"] = json!(["rw", "nosuid", "nodev", "noexec", "relatime"]);
        }
        let is_in_memory = mount["fstype"] == "tmpfs";
        let super_options = mount["super_options"].as_array_mut().unwrap();
        if point == "/work" {
            super_options.retain(|option| !option.as_str().unwrap().contains("id="));
            super_options.extend(["uid=120001", "gid=220001"].map(Value::from));
        } else if is_in_memory {
            super_options.extend(of_root.map(Value::from));
        }
    }
    for name in DEVICES {
        report["mounts"].as_array_mut().unwrap().push(json!({
            "mount_point": format!("/dev/{name}"), "root": format!("/{name}"), "fstype": "devtmpfs",
            "source": "devtmpfs", "options": ["rw", "relatime"], "super_options": ["rw", "mode=755"],
        }));
    }
    report
}

/// What a report differs in, on this engine.
pub(super) fn fields(engine: &EngineFacts, report: &Value) -> Vec<String> {
    let found = checked_on(engine, "runc", report).unwrap().mismatches;
    found.into_iter().map(|mismatch| mismatch.field).collect()
}

#[test]
fn an_honest_report_of_mapped_users_is_accepted_and_tells_who_they_are() {
    for engine in [telling(), mapping("/var/lib/docker")] {
        assert_eq!(fields(&engine, &of_mapped_users()), Vec::<String>::new());
        let found = on_record(&engine, "runc", &of_mapped_users());
        assert_eq!(found, Some(MAPPED));
    }
    assert_eq!(on_record(&engine(), "runc", &honest()), None);
}

#[test]
fn a_report_of_mapped_users_that_lies_in_any_one_field_is_refused_with_that_field_named() {
    let lies = lies::about(&of_mapped_users());
    let mut caught = 0;
    for lie in &lies {
        let Some(findings) = checked_on(&telling(), "runc", &lie.document) else {
            continue;
        };
        // How many there are beside those that the sandbox uses.
        let more = ["uid_map.count", "gid_map.count"].contains(&lie.place.as_str());
        // Who owns a folder that anybody may write to.
        let owner = ["mounts[/tmp].super_options", "mounts[/dev/shm].super_options"]
            .contains(&lie.place.as_str())
            && (lie.what == "without \"uid=100000\"" || lie.what == "without \"gid=200000\"");
        if !more && !owner && !proves_nothing(lie) {
            assert_named(&findings, lie);
            caught += 1;
        }
    }
    assert!(caught > 450, "{caught}");
}

#[test]
fn users_are_mapped_just_where_the_engine_says_so() {
    let mapped = fields(&engine(), &of_mapped_users());
    assert!(mapped.contains(&"uid_map".to_owned()), "{mapped:?}");
    assert!(mapped.contains(&"gid_map".to_owned()), "{mapped:?}");
    let identity = fields(&telling(), &honest());
    assert_eq!(identity, ["uid_map", "gid_map"]);
    // The rest of the report proves it too, where one of the maps alone is told otherwise.
    let mut half = of_mapped_users();
    half["gid_map"] = range(0, 0, 4_294_967_295);
    assert!(fields(&telling(), &half).contains(&"gid_map".to_owned()));
    assert_eq!(on_record(&telling(), "runc", &half), None);
}

#[test]
fn a_map_to_the_hosts_root_to_others_than_the_engines_or_of_too_few_is_refused() {
    let silent = mapping("/var/lib/docker");
    for (engine, map) in [
        (&silent, range(0, 0, 65_536)),
        (&silent, range(1, 100_000, 65_536)),
        // Up to the guest's uid, and not the job's.
        (&silent, range(0, 100_000, 20_001)),
        (&silent, range(0, 4_294_967_000, 65_536)),
        (&silent, json!([])),
        (
            &silent,
            json!([{"inside": 0, "outside": 100_000, "count": 65_536}, {"inside": 65_536, "outside": 300_000, "count": 1}]),
        ),
        (&telling(), range(0, 100_001, 65_536)),
    ] {
        for name in ["uid_map", "gid_map"] {
            let mut report = of_mapped_users();
            report[name] = map.clone();
            let found = fields(engine, &report);
            assert!(found.contains(&name.to_owned()), "{name} {map}: {found:?}");
        }
    }
    let mut report = of_mapped_users();
    report["uid_map"] = range(0, 100_000, 20_002);
    assert_eq!(fields(&telling(), &report), Vec::<String>::new());
    assert_eq!(on_record(&telling(), "runc", &report).unwrap().count, 20_002);
    // Another map than the mounts have, of which the engine does not say whether it is its own.
    report["uid_map"] = range(0, 100_001, 65_536);
    assert!(fields(&silent, &report).contains(&"mounts[/work].super_options".to_owned()));
}

#[test]
fn each_device_is_the_hosts_own_and_there() {
    for name in DEVICES {
        let point = format!("/dev/{name}");
        let field = |what: &str| vec![format!("mounts[{point}]{what}")];
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut report = of_mapped_users();
            change(mount(&mut report, &point));
            fields(&telling(), &report)
        };
        assert_eq!(changed(&|mount| mount["root"] = "/sda".into()), field(".root"));
        assert_eq!(
            changed(&|mount| mount["fstype"] = "tmpfs".into()),
            field(".fstype")
        );
        // What the host's /dev has may stand there; what makes a device useless may not.
        let with = |option: &str| changed(&|mount| mount["options"] = json!(["rw", option, "relatime"]));
        assert_eq!(with("nosuid"), Vec::<String>::new());
        assert_eq!(with("noexec"), Vec::<String>::new());
        assert_eq!(with("nodev"), field(".options"));
        let mut without = of_mapped_users();
        let mounts = without["mounts"].as_array_mut().unwrap();
        mounts.retain(|mount| mount["mount_point"] != point.as_str());
        assert_eq!(fields(&telling(), &without), field(""));
        // Where users are not mapped it is a device and no mount.
        let mut bound = honest();
        let extra = mount(&mut of_mapped_users(), &point).clone();
        bound["mounts"].as_array_mut().unwrap().push(extra);
        assert_eq!(fields(&engine(), &bound), field(""));
    }
}

#[test]
fn folders_of_the_sandboxes_root_are_nobody_elses() {
    for point in ["/dev", "/sys/fs/cgroup"] {
        let mut report = of_mapped_users();
        let options = &mut mount(&mut report, point)["super_options"];
        let options = options.as_array_mut().unwrap();
        options.retain(|option| option != "uid=100000");
        options.push("uid=120001".into());
        assert_eq!(
            fields(&telling(), &report),
            [format!("mounts[{point}].super_options")]
        );
        // Nobody else may write to them.
        let mut open = of_mapped_users();
        let options = mount(&mut open, point)["super_options"].as_array_mut().unwrap();
        options.retain(|option| option != "mode=755");
        assert_eq!(
            fields(&telling(), &open),
            [format!("mounts[{point}].super_options")]
        );
    }
}

#[test]
fn control_groups_may_be_mounted_for_writing_where_users_are_mapped_and_the_job_can_still_not_write_to_them()
{
    let mut report = of_mapped_users();
    mount(&mut report, "/sys/fs/cgroup/memory")["options"] =
        json!(["ro", "nosuid", "nodev", "noexec", "relatime"]);
    assert_eq!(fields(&telling(), &report), Vec::<String>::new());
    mount(&mut report, "/sys/fs/cgroup/memory")["options"] = json!(["rw", "relatime"]);
    assert_eq!(
        fields(&telling(), &report),
        ["mounts[/sys/fs/cgroup/memory].options"]
    );
    for (answer, accepted) in [
        (json!({"errno": 13}), true),
        (json!({"errno": 30}), true),
        (json!({"errno": 1}), false),
        (json!({"returned": 1}), false),
        (json!("not_tried"), false),
    ] {
        let mut report = of_mapped_users();
        let mut probes = report["probes"].as_array_mut().unwrap().iter_mut();
        let probe = probes.find(|probe| probe["probe"] == "open_cgroups").unwrap();
        probe["answer"] = answer.clone();
        assert_eq!(fields(&telling(), &report).is_empty(), accepted, "{answer}");
    }
}

#[test]
fn gvisor_shows_its_own_users_and_the_record_says_that_the_mapping_is_the_engines_word() {
    let honest: Value = serde_json::from_str(GVISOR_REPORT).unwrap();
    let findings = checked_on(&telling(), "runsc", &honest).unwrap();
    assert_eq!(findings.mismatches, []);
    assert!(
        findings
            .not_enforceable
            .contains_key("user_namespace_from_inside")
    );
    assert_eq!(on_record(&telling(), "runsc", &honest), None);
    let mut other = honest;
    other["uid_map"] = range(0, 100_000, 65_536);
    let [mismatch] = &checked_on(&telling(), "runsc", &other).unwrap().mismatches[..] else {
        panic!("one difference");
    };
    assert_eq!(mismatch.field, "uid_map");
}
