use mayfly_core::limits::LimitRules;

use super::*;
use crate::{
    baseline::{MASKED_PATHS, READ_ONLY_PATHS, sample_engine, sample_request},
    verify::{lies, silence},
};

mod mapped;
mod present;
mod rootless;

/// A guest's report on Docker 20.10 with runc 1.1 and cgroup v1, for the default limits.
const REPORT: &str = include_str!("../fixtures/report.json");

type Change = fn(&mut Limits);

fn honest() -> serde_json::Value {
    serde_json::from_str(REPORT).unwrap()
}

/// The same with gVisor (runsc 20221219, Debian 12).
const GVISOR_REPORT: &str = include_str!("../fixtures/report-gvisor.json");

/// The engine of these reports.
fn engine() -> EngineFacts {
    EngineFacts {
        kernel: "6.18.44-fc-v857".to_owned(),
        ..sample_engine()
    }
}

fn checked(runtime: &str, report: &serde_json::Value) -> Option<Findings> {
    checked_on(&engine(), runtime, report)
}

/// The same on this engine; nothing where it is no report.
fn checked_on(engine: &EngineFacts, runtime: &str, report: &serde_json::Value) -> Option<Findings> {
    let report: ReadyReport = serde_json::from_value(report.clone()).ok()?;
    Some(with_expected(engine, runtime, |expected| {
        check(expected, &report)
    }))
}

/// What the record says of the sandbox's users.
fn on_record(engine: &EngineFacts, runtime: &str, report: &serde_json::Value) -> Option<UserNamespace> {
    let report: ReadyReport = serde_json::from_value(report.clone()).unwrap();
    with_expected(engine, runtime, |expected| user_namespace(expected, &report))
}

fn with_expected<T>(engine: &EngineFacts, runtime: &str, look: impl FnOnce(&Expected<'_>) -> T) -> T {
    let mut request = sample_request();
    request.runtime = runtime.to_owned();
    assert_eq!(request.limits, LimitRules::default().defaults);
    look(&Expected {
        request: &request,
        engine,
        uids: UidPair {
            guest: 20_000,
            job: 20_001,
        },
        build: (runtime == "runc").then_some("0.1.0-build"),
    })
}

/// What proves nothing, each with the reason.
fn proves_nothing(lie: &lies::Lie) -> bool {
    let place = lie.place.as_str();
    let host_decides =
        |place: &str| place == "mounts[/]" || place == "mounts[/guest]" || place.starts_with("mounts[/etc/");
    let optional = |point: &str| point.starts_with("/sys/fs/cgroup/") || point.starts_with("/etc/");
    let of = |prefix: &str| place.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(']'));
    match place {
        // The conversation refuses another version before the report is looked at.
        "version" => true,
        // The build's own text of the kernel.
        "kernel.version" => true,
        // The host's fs.suid_dumpable, until the job's program decides.
        "job.dumpable" => true,
        // Not bounded by any engine, and on the record as such.
        "filesystems[/dev/shm].inodes" | "filesystems[/dev/shm].free_inodes" => true,
        // Bounded by a limit of the kernel's for each user.
        place if place.starts_with("filesystems[/dev/mqueue]") => true,
        // Which descriptor a probe got.
        "probes[socket_unix].answer.returned" | "probes[mknod_fifo].answer.returned" => true,
        // Limits that are not set: the kernel's defaults.
        place if place.starts_with("rlimits[") => {
            let name = place["rlimits[".len()..].split(']').next().unwrap();
            !process_limits(&sample_request())
                .iter()
                .any(|(ours, _)| *ours == name)
        }
        // The mounter's name, and options of file systems that the host chose.
        place if place.ends_with(".source") || place.ends_with(".super_options") => {
            let point = place["mounts[".len()..].split(']').next().unwrap();
            let ours = matches!(point, "/tmp" | "/work" | "/dev/shm");
            let matters = ["size=", "nr_inodes=", "mode=700", "uid=", "gid="];
            place.ends_with(".source")
                || !(ours
                    && matters
                        .iter()
                        .any(|option| lie.what.starts_with(&format!("without \"{option}"))))
        }
        // How times of access are kept.
        place if place.ends_with("].options") && lie.what.contains("atime\"") => true,
        place if place.ends_with(".fstype") || place.ends_with(".root") => {
            let mount = place.rsplit_once('.').unwrap().0;
            host_decides(mount) && place != "mounts[/].root"
        }
        // Hierarchies of cgroup v1 have the names that the host gave them.
        place if place.starts_with("mounts[/sys/fs/cgroup/") && place.ends_with(".mount_point") => true,
        // Not each kernel has each hierarchy, and not each engine mounts each file.
        _ if lie.what.starts_with("without {") => of("mounts[").is_some_and(optional),
        _ => false,
    }
}

/// Whether a difference says where the lie is. A mount at another place is named by that place.
fn names(field: &str, lie: &lies::Lie) -> bool {
    let moved = lie
        .place
        .strip_suffix("].mount_point")
        .map(|mount| format!("{mount}lie]"));
    lie.place.starts_with(field) || field.starts_with(&lie.place) || moved.as_deref() == Some(field)
}

fn assert_named(findings: &Findings, lie: &lies::Lie) {
    let mut fields = findings.mismatches.iter().map(|mismatch| &mismatch.field);
    let named = fields.any(|field| names(field, lie));
    assert!(named, "{} {}: {:?}", lie.place, lie.what, findings.mismatches);
}

#[test]
fn an_honest_report_is_accepted_and_what_can_not_be_enforced_is_named() {
    let findings = checked("runc", &honest()).unwrap();
    assert_eq!(findings.mismatches, []);
    let names: Vec<_> = findings.not_enforceable.keys().map(String::as_str).collect();
    assert_eq!(names, ["lsm", "shm_inodes"]);
}

#[test]
fn a_report_that_lies_in_any_one_field_is_refused_with_that_field_named() {
    let lies = lies::about(&honest());
    let (mut caught, mut unreadable, mut free) = (0, 0, 0);
    for lie in &lies {
        let Some(findings) = checked("runc", &lie.document) else {
            // No report at all: the decoder refuses it.
            unreadable += 1;
            continue;
        };
        if proves_nothing(lie) {
            free += 1;
            continue;
        }
        assert_named(&findings, lie);
        caught += 1;
    }
    eprintln!(
        "{} lies: {caught} named, {unreadable} unreadable, {free} about what proves nothing",
        lies.len()
    );
    assert!(caught > 400, "{caught}");
}

#[test]
fn a_folder_for_all_in_which_anybody_may_remove_anything_is_refused() {
    for point in ["/tmp", "/dev/shm"] {
        let mut report = honest();
        let mut mounts = report["mounts"].as_array_mut().unwrap().iter_mut();
        let mount = mounts.find(|mount| mount["mount_point"] == point).unwrap();
        mount["super_options"]
            .as_array_mut()
            .unwrap()
            .push("mode=777".into());
        let [mismatch] = &checked("runc", &report).unwrap().mismatches[..] else {
            panic!("{point}");
        };
        assert_eq!(mismatch.field, format!("mounts[{point}].super_options"));
    }
}

#[test]
fn a_report_that_is_silent_about_any_one_field_is_refused() {
    let lies = silence::withheld(&honest());
    let (mut caught, mut unreadable) = (0, 0);
    for lie in &lies {
        let Some(findings) = checked("runc", &lie.document) else {
            unreadable += 1;
            continue;
        };
        // What was silent before, and what proves nothing whatever it says.
        let told = serde_json::from_value::<ReadyReport>(lie.document.clone()).unwrap()
            != serde_json::from_value::<ReadyReport>(honest()).unwrap();
        if !told || proves_nothing(lie) {
            continue;
        }
        assert_named(&findings, lie);
        caught += 1;
    }
    eprintln!("{} silences: {caught} named, {unreadable} unreadable", lies.len());
    assert!(caught > 30 && unreadable > 400, "{caught} {unreadable}");
}

#[test]
fn a_report_for_other_limits_is_refused_for_each_of_them() {
    let honest: ReadyReport = serde_json::from_value(honest()).unwrap();
    let engine = engine();
    let changes: [(&str, Change); 7] = [
        ("cgroup.memory_bytes", |limits| limits.memory = ByteSize::mib(512)),
        ("cgroup.cpu_quota_us", |limits| {
            limits.cpu = mayfly_core::units::CpuShare::millis(500)
        }),
        ("cgroup.pids", |limits| limits.pids = 64),
        ("filesystems[/work].bytes", |limits| {
            limits.work = ByteSize::mib(32)
        }),
        ("filesystems[/tmp].bytes", |limits| limits.tmp = ByteSize::mib(32)),
        ("filesystems[/dev/shm].bytes", |limits| {
            limits.shm = ByteSize::mib(32)
        }),
        ("rlimits[nofile].soft", |limits| limits.open_files = 64),
    ];
    for (field, change) in changes {
        let mut request = sample_request();
        change(&mut request.limits);
        let expected = Expected {
            request: &request,
            engine: &engine,
            uids: UidPair {
                guest: 20_000,
                job: 20_001,
            },
            build: None,
        };
        let findings = check(&expected, &honest);
        assert!(
            findings.mismatches.iter().any(|mismatch| mismatch.field == field),
            "{field}: {:?}",
            findings.mismatches
        );
    }
}

#[test]
fn the_hosts_kernel_under_the_name_of_gvisor_is_refused() {
    let honest: ReadyReport = serde_json::from_value(honest()).unwrap();
    let mut request = sample_request();
    request.runtime = "runsc".to_owned();
    let engine = engine();
    let expected = Expected {
        request: &request,
        engine: &engine,
        uids: UidPair {
            guest: 20_000,
            job: 20_001,
        },
        build: None,
    };
    let findings = check(&expected, &honest);
    assert!(
        findings
            .mismatches
            .iter()
            .any(|mismatch| mismatch.field == "kernel.release"),
        "{:?}",
        findings.mismatches
    );
}

/// The report as crun (1.8.1) mounts things on the same host.
fn of_crun() -> serde_json::Value {
    let mut report = honest();
    for mount in report["mounts"].as_array_mut().unwrap() {
        let point = mount["mount_point"].as_str().unwrap();
        let hidden_file = MASKED_PATHS.contains(&point) && mount["root"] != "/";
        if hidden_file || READ_ONLY_PATHS.contains(&point) {
            mount["options"] = serde_json::json!(["ro", "relatime"]);
        } else if point == "/sys/fs/cgroup" {
            mount["super_options"] = serde_json::json!(["rw", "size=1024k"]);
        }
    }
    report
}

#[test]
fn what_crun_mounts_otherwise_is_accepted_of_crun_alone_and_a_folder_that_is_open_to_all_is_not() {
    let fields = |runtime: &str, report: &serde_json::Value| -> Vec<String> {
        let found = checked(runtime, report).unwrap().mismatches;
        found.into_iter().map(|mismatch| mismatch.field).collect()
    };
    let crun = of_crun();
    assert_eq!(fields("crun", &crun), ["mounts[/sys/fs/cgroup].super_options"]);
    let under_another_name = fields("runc", &crun);
    assert!(under_another_name.len() > 5, "{under_another_name:?}");
    assert!(
        !fields("crun", &honest()).is_empty(),
        "runc under its name is found too"
    );
}

#[test]
fn an_honest_report_of_gvisor_is_accepted_and_what_it_does_not_show_is_named() {
    let findings = checked("runsc", &serde_json::from_str(GVISOR_REPORT).unwrap()).unwrap();
    assert_eq!(findings.mismatches, []);
    let names: Vec<_> = findings.not_enforceable.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "cgroup_from_inside",
            "hidden_paths",
            "lsm",
            "msgqueue_sigpending",
            "no_new_privs_from_inside",
            "nosuid_nodev_from_inside",
            "oom_score_adj",
            "shm_inodes",
            "syscall_filter",
            "tmpfs_inodes",
        ]
    );
}

#[test]
fn a_report_of_gvisor_that_lies_about_what_it_can_show_is_refused() {
    let lies = lies::about(&serde_json::from_str(GVISOR_REPORT).unwrap());
    let shown = |place: &str| {
        [
            "guest.uid",
            "guest.gid",
            "guest.groups",
            "guest.caps",
            "job.uid",
            "job.gid",
            "job.groups",
            "job.caps",
        ]
        .iter()
        .any(|prefix| place.starts_with(prefix))
            || [
                "pid",
                "truncated",
                "interfaces",
                "guest.dumpable",
                "kernel.release",
                "kernel.nodename",
            ]
            .contains(&place)
            || place.starts_with("filesystems[/work].bytes")
            || place.starts_with("rlimits[nproc]")
            || place.starts_with("probes[kill_init]")
            || (place.starts_with("mounts[") && place.ends_with(".options"))
    };
    let mut caught = 0;
    for lie in lies.iter().filter(|lie| shown(&lie.place)) {
        let Some(findings) = checked("runsc", &lie.document) else {
            continue;
        };
        assert_named(&findings, lie);
        caught += 1;
    }
    assert!(caught > 80, "{caught}");
}
