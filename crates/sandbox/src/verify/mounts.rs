//! The mounts as they are seen from inside: each one that has to be there, and no other.

use std::collections::BTreeSet;

use mayfly_core::{limits::Limits, run::UserNamespace, units::ByteSize};
use mayfly_protocol::{Mount, guarded_paths};

use super::{
    Findings,
    report::{Expected, PAGE, check_once},
    tables::{Table, reason},
};
use crate::baseline::{
    ALWAYS_MASKED, ALWAYS_READ_ONLY, GUEST_MOUNT, MASKED_PATHS, READ_ONLY_PATHS, WORK, is_crun,
};

mod mapped;

/// Options that say how times of access are kept, and nothing else.
const TIMES: [&str; 5] = ["relatime", "noatime", "nodiratime", "strictatime", "lazytime"];

/// Options that gVisor takes and does not show; a later version may.
const NOT_SHOWN_BY_GVISOR: [&str; 2] = ["nosuid", "nodev"];

/// One mount as it has to be.
struct Rule<'a> {
    /// Its file system; empty where the engine's storage decides.
    fstypes: &'static [&'static str],
    /// The options of the mount, times aside; exactly these.
    options: &'static [&'static str],
    /// Those that it may have beside them.
    may_have: &'static [&'static str],
    /// Which part of the file system is mounted; `None` where the host decides.
    root: Option<&'a str>,
    /// Options that the file system must have among others.
    super_options: Vec<String>,
    /// Whether anybody may write to it and remove only what is theirs (mode 1777): the kernel shows any other mode.
    sticky: bool,
}

pub(super) fn check(
    f: &mut Findings,
    expected: &Expected<'_>,
    users: Option<UserNamespace>,
    found: &[Mount],
    present: &[String],
) {
    if expected.table() == Table::Gvisor {
        let (what, why) = reason::MOUNT_OPTIONS_GVISOR;
        f.not_enforceable(what, why);
    }
    let mut seen = BTreeSet::new();
    for mount in found {
        let point = mount.mount_point.as_str();
        // A second mount at one place hides the first.
        let first = seen.insert(point);
        let field = format!("mounts[{point}]");
        f.expect(
            first,
            &field,
            || "one mount".to_owned(),
            || "another over it".to_owned(),
        );
        match rule(expected, users, mount) {
            Some(rule) => compare(f, expected.table(), &field, &rule, mount),
            None => f.expect(
                false,
                &field,
                || "absent".to_owned(),
                || format!("{} {}", mount.fstype, mount.options.join(",")),
            ),
        }
    }
    for point in required(expected.table(), users) {
        let field = format!("mounts[{point}]");
        f.expect(
            seen.contains(point),
            &field,
            || "present".to_owned(),
            || "absent".to_owned(),
        );
    }
    check_present(f, expected.table(), &seen, present);
}

/// Each path that is to be hidden or read-only, and is there, has a mount over it; of what kind that is, its own rule has said.
fn check_present(f: &mut Findings, table: Table, mounted: &BTreeSet<&str>, present: &[String]) {
    check_once(f, "present", present.iter());
    for path in present {
        f.expect(
            guarded_paths().any(|known| known == path),
            "present",
            || "paths that are asked about".to_owned(),
            || path.clone(),
        );
    }
    if table == Table::Gvisor {
        let (what, why) = reason::HIDDEN_PATHS_GVISOR;
        f.not_enforceable(what, why);
        return;
    }
    for path in guarded_paths() {
        let listed = present.iter().any(|found| found == path);
        let always = ALWAYS_MASKED.contains(&path) || ALWAYS_READ_ONLY.contains(&path);
        let is_mounted = mounted.contains(path);
        f.expect(
            is_mounted || !(listed || always),
            &format!("mounts[{path}]"),
            || "present".to_owned(),
            || "absent".to_owned(),
        );
        f.expect(
            listed || !is_mounted,
            "present",
            || format!("{path}, which has a mount"),
            || "without it".to_owned(),
        );
    }
}

fn required(table: Table, users: Option<UserNamespace>) -> Vec<&'static str> {
    let mut points = vec![
        "/",
        "/proc",
        "/dev",
        "/sys",
        "/dev/shm",
        GUEST_MOUNT,
        WORK,
        "/tmp",
    ];
    if table == Table::HostKernel {
        points.extend(["/dev/pts", "/dev/mqueue", "/sys/fs/cgroup"]);
    }
    if users.is_some() {
        points.extend(mapped::DEVICES);
    }
    points
}

fn rule<'a>(expected: &Expected<'_>, users: Option<UserNamespace>, mount: &'a Mount) -> Option<Rule<'a>> {
    match expected.table() {
        Table::HostKernel => users
            .and_then(|users| mapped::rule(users, mount))
            .or_else(|| host_kernel(expected, users, mount)),
        Table::Gvisor => gvisor(expected, mount),
    }
}

fn host_kernel<'a>(
    expected: &Expected<'_>,
    users: Option<UserNamespace>,
    mount: &'a Mount,
) -> Option<Rule<'a>> {
    let limits = &expected.request.limits;
    let job = expected.uids.job;
    // The kernel shows the host's ids of an owner.
    // A map without the job's user has been found to be wrong; no owner is this one.
    let nobody = (u32::MAX, u32::MAX);
    let (owner, group) = users.map_or((job, job), |users| users.outside(job).unwrap_or(nobody));
    let rule = |fstypes, options, root, super_options| {
        Some(Rule {
            fstypes,
            options,
            may_have: &[],
            root,
            super_options,
            sticky: false,
        })
    };
    let sticky = |super_options| {
        let rule = rule(
            &["tmpfs"],
            &["rw", "nosuid", "nodev", "noexec"],
            Some("/"),
            super_options,
        );
        rule.map(|rule| Rule { sticky: true, ..rule })
    };
    let nothing = Vec::new;
    // runc keeps the options of what it mounts over itself; crun leaves `ro` alone of them, also over the null device. What
    // is left out changes nothing on procfs, which has neither programs nor devices, nor on a device.
    let (hidden, kept): (&[_], &[_]) = if is_crun(&expected.request.runtime) {
        (&["ro"], &["ro"])
    } else {
        (&["rw", "nosuid"], &["ro", "nosuid", "nodev", "noexec"])
    };
    match mount.mount_point.as_str() {
        "/" => rule(&[], &["ro"], Some("/"), nothing()),
        "/proc" => rule(
            &["proc"],
            &["rw", "nosuid", "nodev", "noexec"],
            Some("/"),
            nothing(),
        ),
        // Root's alone; it holds the pseudo devices, so that nodev can't be.
        "/dev" => rule(
            &["tmpfs"],
            &["rw", "nosuid"],
            Some("/"),
            vec!["mode=755".to_owned()],
        ),
        "/dev/pts" => rule(&["devpts"], &["rw", "nosuid", "noexec"], Some("/"), nothing()),
        "/dev/mqueue" => rule(
            &["mqueue"],
            &["rw", "nosuid", "nodev", "noexec"],
            Some("/"),
            nothing(),
        ),
        "/dev/shm" => sticky(vec![size(limits.shm)]),
        "/tmp" => sticky(vec![size(limits.tmp), inodes(limits.tmp)]),
        WORK => rule(
            &["tmpfs"],
            &["rw", "nosuid", "nodev"],
            Some("/"),
            vec![
                size(limits.work),
                inodes(limits.work),
                "mode=700".to_owned(),
                format!("uid={owner}"),
                format!("gid={group}"),
            ],
        ),
        GUEST_MOUNT => rule(&[], &["ro"], None, nothing()),
        "/etc/hosts" | "/etc/hostname" | "/etc/resolv.conf" => rule(&[], &["ro"], None, nothing()),
        "/sys" => rule(
            &["sysfs"],
            &["ro", "nosuid", "nodev", "noexec"],
            Some("/"),
            nothing(),
        ),
        // The folder of cgroup v1's hierarchies, root's alone; each hierarchy in it is read-only. Under crun (1.8.1) anybody
        // may write to it, so that it is refused here.
        "/sys/fs/cgroup" if mount.fstype == "tmpfs" => {
            let options: &[_] = if mount.options.iter().any(|option| option == "ro") {
                &["ro", "nosuid", "nodev", "noexec"]
            } else {
                &["rw", "nosuid", "nodev", "noexec"]
            };
            rule(&["tmpfs"], options, Some("/"), vec!["mode=755".to_owned()])
        }
        "/sys/fs/cgroup" => rule(
            &["cgroup2"],
            &["ro", "nosuid", "nodev", "noexec"],
            Some("/"),
            nothing(),
        ),
        point if point.starts_with("/sys/fs/cgroup/") => rule(
            &["cgroup"],
            &["ro", "nosuid", "nodev", "noexec"],
            Some("/"),
            nothing(),
        ),
        point if MASKED_PATHS.contains(&point) && mount.root == "/" => {
            rule(&["tmpfs"], &["ro"], Some("/"), nothing())
        }
        // A file is hidden by the null device.
        point if MASKED_PATHS.contains(&point) => {
            rule(&["tmpfs", "devtmpfs"], hidden, Some("/null"), nothing())
        }
        point if READ_ONLY_PATHS.contains(&point) => {
            // The same part of the same file system, mounted over itself.
            let root = point.strip_prefix("/proc");
            rule(&["proc"], kept, root, nothing())
        }
        _ => None,
    }
}

/// gVisor shows the mounts of its own kernel: the same places, with file systems and options of its own. Sizes show in
/// `statvfs(3)` alone.
fn gvisor<'a>(expected: &Expected<'_>, mount: &'a Mount) -> Option<Rule<'a>> {
    let job = expected.uids.job;
    let rule = |fstypes, options, super_options| {
        Some(Rule {
            fstypes,
            options,
            may_have: &[],
            root: Some("/"),
            super_options,
            sticky: false,
        })
    };
    let nothing = Vec::new;
    match mount.mount_point.as_str() {
        "/" | GUEST_MOUNT | "/etc/hosts" | "/etc/hostname" | "/etc/resolv.conf" => {
            rule(&[], &["ro"], nothing())
        }
        "/proc" => rule(&["proc"], &["rw", "noexec"], nothing()),
        "/dev" => rule(&["tmpfs"], &["rw"], vec!["mode=0755".to_owned()]),
        "/dev/pts" => rule(&["devpts"], &["rw", "noexec"], nothing()),
        "/dev/mqueue" => rule(&["mqueue"], &["rw", "noexec"], nothing()),
        "/dev/shm" | "/tmp" => rule(&["tmpfs"], &["rw", "noexec"], nothing()),
        "/sys" => rule(&["sysfs"], &["ro", "noexec"], nothing()),
        WORK => rule(
            &["tmpfs"],
            &["rw"],
            vec!["mode=0700".to_owned(), format!("uid={job}"), format!("gid={job}")],
        ),
        _ => None,
    }
}

fn size(size: ByteSize) -> String {
    format!("size={}k", size.as_bytes().next_multiple_of(PAGE) / 1024)
}

fn inodes(size: ByteSize) -> String {
    format!("nr_inodes={}", Limits::inodes_of(size))
}

fn compare(f: &mut Findings, table: Table, field: &str, rule: &Rule<'_>, found: &Mount) {
    let Mount {
        mount_point: _, // What the rule was found by.
        root,
        fstype,
        source: _, // A name that the mounter chose.
        options,
        super_options,
    } = found;
    f.expect(
        rule.fstypes.is_empty() || rule.fstypes.contains(&fstype.as_str()),
        &format!("{field}.fstype"),
        || rule.fstypes.join(" or "),
        || fstype.clone(),
    );
    let asked: BTreeSet<_> = rule.options.iter().copied().collect();
    let without_times: BTreeSet<_> = options
        .iter()
        .map(String::as_str)
        .filter(|option| !TIMES.contains(option))
        .filter(|option| !rule.may_have.contains(option))
        .filter(|option| table == Table::HostKernel || !NOT_SHOWN_BY_GVISOR.contains(option))
        .collect();
    f.expect(
        asked == without_times,
        &format!("{field}.options"),
        || rule.options.join(","),
        || options.join(","),
    );
    if let Some(asked) = rule.root {
        f.equal(&format!("{field}.root"), &asked, &root.as_str());
    }
    let missing: Vec<_> = rule
        .super_options
        .iter()
        .filter(|option| !super_options.contains(option))
        .cloned()
        .collect();
    f.expect(
        missing.is_empty(),
        &format!("{field}.super_options"),
        || missing.join(","),
        || super_options.join(","),
    );
    let mode = super_options.iter().find(|option| option.starts_with("mode="));
    if let Some(mode) = mode.filter(|_| rule.sticky) {
        f.expect(
            false,
            &format!("{field}.super_options"),
            || "mode=1777".to_owned(),
            || mode.clone(),
        );
    }
}
