//! Each path that is to be hidden or read-only: mounted over where it is there.

use mayfly_protocol::guarded_paths;
use serde_json::{Value, json};

use super::*;
use crate::baseline::{ALWAYS_MASKED, ALWAYS_READ_ONLY};

fn of_gvisor() -> Value {
    serde_json::from_str(GVISOR_REPORT).unwrap()
}

fn fields(runtime: &str, report: &Value) -> Vec<String> {
    let found = checked(runtime, report).unwrap().mismatches;
    found.into_iter().map(|mismatch| mismatch.field).collect()
}

/// Whether the path is listed, and whether there is a mount over it.
fn with(path: &str, listed: bool, mounted: bool) -> Value {
    let mut report = honest();
    let present = report["present"].as_array_mut().unwrap();
    present.retain(|found| found != path);
    if listed {
        present.push(path.into());
    }
    let mounts = report["mounts"].as_array_mut().unwrap();
    mounts.retain(|mount| mount["mount_point"] != path);
    if mounted {
        let (root, fstype, options) = if READ_ONLY_PATHS.contains(&path) {
            let options = json!(["ro", "nosuid", "nodev", "noexec", "relatime"]);
            (path.strip_prefix("/proc").unwrap(), "proc", options)
        } else {
            ("/null", "tmpfs", json!(["rw", "nosuid"]))
        };
        mounts.push(json!({
            "mount_point": path, "root": root, "fstype": fstype, "source": "none",
            "options": options, "super_options": ["rw"],
        }));
    }
    report
}

#[test]
fn each_path_that_is_there_has_its_mount_and_each_that_has_a_mount_is_there() {
    for path in guarded_paths() {
        let mount = [format!("mounts[{path}]")];
        let always = ALWAYS_MASKED.contains(&path) || ALWAYS_READ_ONLY.contains(&path);
        for runtime in ["runc", "kata"] {
            let fields = |listed, mounted| fields(runtime, &with(path, listed, mounted));
            assert_eq!(fields(true, true), [""; 0], "{path}");
            assert_eq!(fields(true, false), mount, "{path}");
            assert_eq!(fields(false, true), ["present"], "{path}");
            assert_eq!(fields(false, false), &mount[usize::from(!always)..], "{path}");
        }
    }
}

#[test]
fn a_mount_that_hides_is_none_that_makes_read_only_and_the_reverse() {
    let swap = |path: &str, root: &str, fstype: &str| {
        let mut report = with(path, true, true);
        let mount = report["mounts"].as_array_mut().unwrap().last_mut().unwrap();
        (mount["root"], mount["fstype"]) = (root.into(), fstype.into());
        fields("runc", &report)
    };
    for path in MASKED_PATHS {
        let itself = path.strip_prefix("/proc").unwrap_or(path);
        let found = swap(path, itself, "proc");
        assert!(
            found.contains(&format!("mounts[{path}].root")),
            "{path}: {found:?}"
        );
    }
    for path in READ_ONLY_PATHS {
        let found = swap(path, "/null", "tmpfs");
        assert!(
            found.contains(&format!("mounts[{path}].root")),
            "{path}: {found:?}"
        );
    }
}

#[test]
fn a_path_that_is_not_asked_about_or_is_named_twice_is_refused_on_each_runtime() {
    for (runtime, honest) in [("runc", honest()), ("runsc", of_gvisor())] {
        let more = |path: &str| {
            let mut report = honest.clone();
            report["present"].as_array_mut().unwrap().push(path.into());
            fields(runtime, &report)
        };
        assert_eq!(more("/proc/self"), ["present"], "{runtime}");
        assert_eq!(more("/proc/version"), ["present[/proc/version]"], "{runtime}");
    }
}

#[test]
fn gvisor_hides_no_path_so_that_its_own_may_be_there_or_not() {
    for present in [Vec::new(), guarded_paths().collect()] {
        let mut report = of_gvisor();
        report["present"] = json!(present);
        assert_eq!(fields("runsc", &report), [""; 0], "{present:?}");
    }
}
