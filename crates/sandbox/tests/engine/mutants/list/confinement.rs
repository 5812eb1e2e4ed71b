//! Privileges, namespaces, devices, folders and networks of the host.

use serde_json::{Value, json};

use super::{Mutant, list, set};

const NO_FILTER: &[&str] = &["H-21a", "H-26b", "H-50a"];

pub(super) fn all() -> Vec<Mutant> {
    let mut all = privileges();
    all.extend(namespaces());
    all.extend(of_the_host());
    all
}

fn privileges() -> Vec<Mutant> {
    vec![
        Mutant::new("CapDrop", "nothing", set("HostConfig.CapDrop", json!([]))).unseen_inside(),
        Mutant::new("CapAdd", "also SYS_ADMIN", |create| {
            list(create, "CapAdd").push("CAP_SYS_ADMIN".into())
        })
        .unseen_inside(),
        Mutant::new("CapAdd", "also DAC_OVERRIDE", |create| {
            list(create, "CapAdd").push("CAP_DAC_OVERRIDE".into())
        })
        .unseen_inside(),
        Mutant::new("SecurityOpt", "no no-new-privileges", |create| {
            list(create, "SecurityOpt").retain(|option| option != "no-new-privileges")
        })
        .seen_inside(&["guest.no_new_privs", "job.no_new_privs"]),
        Mutant::new("SecurityOpt", "seccomp=unconfined", |create| {
            filter(create, Some("unconfined"))
        })
        .seen_inside(&["guest.seccomp_mode", "guest.seccomp_filters", "marker"])
        .seen_by(NO_FILTER),
        Mutant::new("SecurityOpt", "the engine's own filter", |create| {
            filter(create, None)
        })
        .seen_inside(&["marker", "probes[socket_alg]"])
        .seen_by(NO_FILTER),
        Mutant::new("Privileged", "true", set("HostConfig.Privileged", true)),
        Mutant::new("GroupAdd", "root's", set("HostConfig.GroupAdd", json!(["0"]))),
        Mutant::new("User", "0:0 and no more, by name", set("User", "root")),
    ]
}

fn filter(create: &mut Value, weak: Option<&str>) {
    let options = list(create, "SecurityOpt");
    options.retain(|option| !option.as_str().unwrap().starts_with("seccomp="));
    options.extend(weak.map(|weak| Value::from(format!("seccomp={weak}"))));
}

fn namespaces() -> Vec<Mutant> {
    vec![
        Mutant::new("PidMode", "host", set("HostConfig.PidMode", "host")),
        Mutant::new("IpcMode", "host", set("HostConfig.IpcMode", "host")),
        Mutant::new("IpcMode", "shareable", set("HostConfig.IpcMode", "shareable")).unseen_inside(),
        Mutant::new("UTSMode", "host", |create| {
            create["HostConfig"]["UTSMode"] = "host".into();
            create["Hostname"] = "".into();
        }),
        Mutant::new("UsernsMode", "host", set("HostConfig.UsernsMode", "host")),
        Mutant::new("CgroupnsMode", "host", set("HostConfig.CgroupnsMode", "host"))
            .seen_inside(&["mounts[/sys/fs/cgroup"])
            .seen_by(&["H-90a"]),
        Mutant::new("NetworkMode", "host", set("HostConfig.NetworkMode", "host"))
            .seen_inside(&["interfaces"]),
        // The engine of the tests has no bridge, so that no card would show inside.
        Mutant::new("NetworkMode", "bridge", set("HostConfig.NetworkMode", "bridge")),
        Mutant::new(
            "CgroupParent",
            "another",
            set("HostConfig.CgroupParent", "/elsewhere"),
        ),
    ]
}

fn of_the_host() -> Vec<Mutant> {
    let device =
        json!([{"PathOnHost": "/dev/zero", "PathInContainer": "/dev/kvm", "CgroupPermissions": "rwm"}]);
    vec![
        Mutant::new(
            "Binds",
            "a folder of the host, writable",
            set("HostConfig.Binds", json!(["/var/tmp:/mnt:rw"])),
        )
        .seen_inside(&["mounts[/mnt]"])
        .seen_by(&["H-48b"]),
        Mutant::new(
            "Binds",
            "the engine's socket",
            set("HostConfig.Binds", json!(["/var/run:/var/run:ro"])),
        ),
        Mutant::new(
            "Devices",
            "one under the name of kvm",
            set("HostConfig.Devices", device),
        )
        .seen_inside(&["devices"])
        .seen_by(&["H-115a"]),
        Mutant::new(
            "DeviceCgroupRules",
            "all",
            set("HostConfig.DeviceCgroupRules", json!(["a *:* rwm"])),
        ),
        Mutant::new("PublishAllPorts", "true", set("HostConfig.PublishAllPorts", true)),
        Mutant::new(
            "ExtraHosts",
            "one",
            set("HostConfig.ExtraHosts", json!(["metadata:192.0.2.1"])),
        ),
        Mutant::new("Dns", "one", set("HostConfig.Dns", json!(["192.0.2.1"]))),
        Mutant::new(
            "Sysctls",
            "one",
            set("HostConfig.Sysctls", json!({"kernel.msgmax": "65536"})),
        ),
    ]
}
