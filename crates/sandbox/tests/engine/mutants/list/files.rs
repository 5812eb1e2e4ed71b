//! The root, what is mounted, and what is hidden or read-only.

use mayfly_protocol::{MASKED_PATHS, READ_ONLY_PATHS};
use serde_json::{Value, json};

use super::{Mutant, four_times, list, set};

pub(super) fn all(present: &[String]) -> Vec<Mutant> {
    let mut all = mounts();
    for (field, path, size, files) in [
        (
            "Tmpfs /work",
            "/work",
            "filesystems[/work].bytes",
            "filesystems[/work].inodes",
        ),
        (
            "Tmpfs /tmp",
            "/tmp",
            "filesystems[/tmp].bytes",
            "filesystems[/tmp].inodes",
        ),
    ] {
        all.extend(of_both(field, path, size, files));
    }
    all.extend(of_work());
    all.extend(of_tmp());
    all.extend(paths(present));
    all
}

fn mounts() -> Vec<Mutant> {
    vec![
        Mutant::new("ReadonlyRootfs", "false", set("HostConfig.ReadonlyRootfs", false))
            .seen_inside(&["mounts[/].options"])
            .seen_by(&["H-10b"]),
        Mutant::new("Mounts", "the guest's volume writable", |create| {
            create["HostConfig"]["Mounts"][0]["ReadOnly"] = false.into()
        })
        .seen_inside(&["mounts[/guest].options"])
        .seen_by(&["H-15b"]),
        Mutant::new("Tmpfs", "one more, on /opt", |create| {
            create["HostConfig"]["Tmpfs"]["/opt"] = "rw,mode=1777,size=1048576".into()
        })
        .seen_inside(&["mounts[/opt]"])
        .seen_by(&["H-48b"]),
        Mutant::new("ShmSize", "four times", |create| four_times(create, "ShmSize"))
            .seen_inside(&["filesystems[/dev/shm].bytes"]),
        Mutant::new("Volumes", "one of its own", set("Volumes", json!({"/data": {}}))),
    ]
}

/// What `/work` and `/tmp` have in common.
fn of_both(field: &'static str, path: &'static str, size: &str, files: &str) -> [Mutant; 4] {
    let options = format!("mounts[{path}].options");
    [
        option(field, path, "four times the size", "size=", four_times_of).seen_inside(&[size]),
        option(field, path, "four times the files", "nr_inodes=", four_times_of).seen_inside(&[files]),
        option(field, path, "without nosuid", "nosuid", |_| "suid".to_owned()).seen_inside(&[&options]),
        option(field, path, "without nodev", "nodev", |_| "dev".to_owned()).seen_inside(&[&options]),
    ]
}

/// The job's own.
fn of_work() -> Vec<Mutant> {
    let work = |to: &str, name: &'static str, weak: &'static str| {
        option("Tmpfs /work", "/work", to, name, move |_| weak.to_owned())
            .seen_inside(&["mounts[/work].super_options"])
    };
    vec![
        work("open to all", "mode=", "mode=0777"),
        work("root's", "uid=", "uid=0"),
        work("root's group's", "gid=", "gid=0"),
    ]
}

fn of_tmp() -> Vec<Mutant> {
    vec![
        option("Tmpfs /tmp", "/tmp", "executable", "noexec", |_| {
            "exec".to_owned()
        })
        .seen_inside(&["mounts[/tmp].options"])
        .seen_by(&["H-39b"]),
        option(
            "Tmpfs /tmp",
            "/tmp",
            "anybody may remove anything",
            "mode=",
            |_| "mode=0777".to_owned(),
        )
        .seen_inside(&["mounts[/tmp].super_options"]),
    ]
}

/// Each path left out of its list, alone and all together. The guest misses those that there are.
fn paths(present: &[String]) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (field, paths) in [
        ("MaskedPaths", &MASKED_PATHS[..]),
        ("ReadonlyPaths", &READ_ONLY_PATHS[..]),
    ] {
        for path in paths {
            let without = Mutant::new(field, format!("not {path}"), move |create| {
                list(create, field).retain(|found| found != path)
            });
            let mount = format!("mounts[{path}]");
            let is_there = present.iter().any(|found| found == path);
            let mount = [mount.as_str()];
            let without = without.seen_inside(if is_there { &mount } else { &[] });
            // These two are counters that H-34a reads.
            let without = match *path {
                "/proc/loadavg" | "/proc/version" => without.seen_by(&["H-34a"]),
                _ => without,
            };
            all.push(Mutant {
                always: true,
                ..without
            });
        }
    }
    all.push(
        Mutant::new("MaskedPaths", "none", set("HostConfig.MaskedPaths", json!([])))
            .seen_inside(&["mounts[/proc/", "mounts[/sys/firmware"])
            .seen_by(&["H-34a"]),
    );
    all.push(
        Mutant::new(
            "ReadonlyPaths",
            "none",
            set("HostConfig.ReadonlyPaths", json!([])),
        )
        .seen_inside(&["mounts[/proc/"]),
    );
    all
}

/// One option of a file system in memory, replaced.
fn option(
    field: &'static str,
    path: &'static str,
    to: &str,
    option: &'static str,
    weak: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Mutant {
    Mutant::new(field, to, move |create: &mut Value| {
        let options = create["HostConfig"]["Tmpfs"][path].as_str().unwrap();
        let options = options.split(',').map(|found| {
            if found.starts_with(option) {
                weak(found)
            } else {
                found.to_owned()
            }
        });
        let options: Vec<_> = options.collect();
        create["HostConfig"]["Tmpfs"][path] = options.join(",").into();
    })
}

fn four_times_of(option: &str) -> String {
    let (name, number) = option.split_once('=').unwrap();
    format!("{name}={}", 4 * number.parse::<u64>().unwrap())
}
