//! What is mounted otherwise where the engine maps the users of its containers or is rootless, found with Docker 20.10 and
//! runc 1.1 on control groups of version 1: in a user namespace no device can be made. With `userns-remap` none of these
//! mounts is made read-only.

use mayfly_core::run::UserNamespace;
use mayfly_protocol::Mount;

use super::Rule;
use crate::baseline::MASKED_PATHS;

/// The devices of a container (OCI runtime specification, "Default Devices"), each bound from the host's `/dev`.
pub(super) const DEVICES: [&str; 6] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

/// The host's `/dev` may have them, and what is bound from it then has them too. Nothing is opened by their absence that a
/// device could do.
const OF_THE_HOSTS_DEV: &[&str] = &["nosuid", "noexec"];

/// The rule of a mount that is another one here.
pub(super) fn rule<'a>(users: UserNamespace, mount: &'a Mount) -> Option<Rule<'a>> {
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
    let device = |root| {
        rule(&["devtmpfs"], &["rw"], Some(root), Vec::new()).map(|rule| Rule {
            may_have: OF_THE_HOSTS_DEV,
            ..rule
        })
    };
    // Moby leaves `ro` out (`daemon/oci_linux.go`, "withMounts": "we must clear the readonly flag for the cgroups mount"); an
    // engine that does not is as good. That the job can write to none of them, the probe has asked.
    let cgroup: &[_] = if mount.options.iter().any(|option| option == "ro") {
        &["ro", "nosuid", "nodev", "noexec"]
    } else {
        &["rw", "nosuid", "nodev", "noexec"]
    };
    // The sandbox's root and nobody else's: the kernel shows the owner, who is not the host's root.
    let of_root = || {
        vec![
            "mode=755".to_owned(),
            format!("uid={}", users.first_uid),
            format!("gid={}", users.first_gid),
        ]
    };
    match mount.mount_point.as_str() {
        point if DEVICES.contains(&point) => device(point.strip_prefix("/dev")?),
        point if MASKED_PATHS.contains(&point) && mount.root != "/" => device("/null"),
        "/dev" => rule(&["tmpfs"], &["rw", "nosuid"], Some("/"), of_root()),
        "/sys/fs/cgroup" if mount.fstype == "tmpfs" => rule(&["tmpfs"], cgroup, Some("/"), of_root()),
        "/sys/fs/cgroup" => rule(&["cgroup2"], cgroup, Some("/"), Vec::new()),
        point if point.starts_with("/sys/fs/cgroup/") => rule(&["cgroup"], cgroup, Some("/"), Vec::new()),
        _ => None,
    }
}
