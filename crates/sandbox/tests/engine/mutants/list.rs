//! What is weakened, to what, and what has to see it.

use serde_json::{Value, json};

/// How far a weak sandbox may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Danger {
    /// It is made and never started: what runs in it could harm the host. The engine's word has to do.
    Never,
    /// The guest may start in it.
    Starts,
}

/// One weak field.
pub(crate) struct Mutant {
    pub(crate) field: &'static str,
    pub(crate) to: &'static str,
    pub(crate) change: fn(&mut Value),
    pub(crate) danger: Danger,
    /// Programs that have to see it, with both read-backs blinded.
    pub(crate) programs: &'static [&'static str],
}

const fn starts(
    field: &'static str,
    to: &'static str,
    change: fn(&mut Value),
    programs: &'static [&'static str],
) -> Mutant {
    Mutant {
        field,
        to,
        change,
        danger: Danger::Starts,
        programs,
    }
}

const fn never(field: &'static str, to: &'static str, change: fn(&mut Value)) -> Mutant {
    Mutant {
        field,
        to,
        change,
        danger: Danger::Never,
        programs: &[],
    }
}

/// Four times a number of the host's configuration.
fn four_times(create: &mut Value, name: &str) {
    let number = create["HostConfig"][name].as_i64().unwrap();
    create["HostConfig"][name] = (4 * number).into();
}

fn ulimit(create: &mut Value, name: &str, limit: impl Fn(i64) -> i64) {
    let limits = create["HostConfig"]["Ulimits"].as_array_mut().unwrap();
    let found = limits.iter_mut().find(|found| found["Name"] == name).unwrap();
    let weak = limit(found["Hard"].as_i64().unwrap());
    found["Soft"] = weak.into();
    found["Hard"] = weak.into();
}

fn tmpfs(create: &mut Value, path: &str, option: &str, weak: impl Fn(&str) -> String) {
    let options = create["HostConfig"]["Tmpfs"][path].as_str().unwrap().to_owned();
    let options: Vec<String> = options
        .split(',')
        .map(|found| {
            if found.starts_with(option) {
                weak(found)
            } else {
                found.to_owned()
            }
        })
        .filter(|found| !found.is_empty())
        .collect();
    create["HostConfig"]["Tmpfs"][path] = options.join(",").into();
}

fn four_times_of(option: &str) -> String {
    let (name, number) = option.split_once('=').unwrap();
    format!("{name}={}", 4 * number.parse::<u64>().unwrap())
}

fn filter(create: &mut Value, weak: Option<&str>) {
    let options = create["HostConfig"]["SecurityOpt"].as_array_mut().unwrap();
    options.retain(|option| !option.as_str().unwrap().starts_with("seccomp="));
    options.extend(weak.map(|weak| Value::from(format!("seccomp={weak}"))));
}

fn unmask(create: &mut Value, path: &str) {
    let masked = create["HostConfig"]["MaskedPaths"].as_array_mut().unwrap();
    masked.retain(|found| found != path);
}

/// Every weak field.
pub(crate) const ALL: &[Mutant] = &[
    starts(
        "CapDrop",
        "nothing",
        |create| create["HostConfig"]["CapDrop"] = json!([]),
        &[],
    ),
    starts(
        "CapAdd",
        "also SYS_ADMIN",
        |create| {
            create["HostConfig"]["CapAdd"]
                .as_array_mut()
                .unwrap()
                .push("CAP_SYS_ADMIN".into())
        },
        &[],
    ),
    starts(
        "CapAdd",
        "also DAC_OVERRIDE",
        |create| {
            create["HostConfig"]["CapAdd"]
                .as_array_mut()
                .unwrap()
                .push("CAP_DAC_OVERRIDE".into())
        },
        &[],
    ),
    starts(
        "SecurityOpt",
        "no no-new-privileges",
        |create| {
            create["HostConfig"]["SecurityOpt"]
                .as_array_mut()
                .unwrap()
                .retain(|option| option != "no-new-privileges")
        },
        &[],
    ),
    starts(
        "SecurityOpt",
        "seccomp=unconfined",
        |create| filter(create, Some("unconfined")),
        &["H-21a", "H-26b", "H-50a"],
    ),
    starts(
        "SecurityOpt",
        "the engine's own filter",
        |create| filter(create, None),
        &["H-21a", "H-26b", "H-50a"],
    ),
    starts(
        "ReadonlyRootfs",
        "false",
        |create| create["HostConfig"]["ReadonlyRootfs"] = false.into(),
        &["H-10b"],
    ),
    never("Privileged", "true", |create| {
        create["HostConfig"]["Privileged"] = true.into()
    }),
    never("PidMode", "host", |create| {
        create["HostConfig"]["PidMode"] = "host".into()
    }),
    never("IpcMode", "host", |create| {
        create["HostConfig"]["IpcMode"] = "host".into()
    }),
    starts(
        "IpcMode",
        "shareable",
        |create| create["HostConfig"]["IpcMode"] = "shareable".into(),
        &[],
    ),
    never("UTSMode", "host", |create| {
        create["HostConfig"]["UTSMode"] = "host".into();
        create["Hostname"] = "".into();
    }),
    starts(
        "CgroupnsMode",
        "host",
        |create| create["HostConfig"]["CgroupnsMode"] = "host".into(),
        &["H-90a"],
    ),
    never("PublishAllPorts", "true", |create| {
        create["HostConfig"]["PublishAllPorts"] = true.into()
    }),
    starts(
        "Binds",
        "a folder of the host, writable",
        |create| create["HostConfig"]["Binds"] = json!(["/var/tmp:/mnt:rw"]),
        &["H-48b"],
    ),
    never("Binds", "the engine's socket", |create| {
        create["HostConfig"]["Binds"] = json!(["/var/run:/var/run:ro"])
    }),
    starts(
        "Devices",
        "one under the name of kvm",
        |create| {
            create["HostConfig"]["Devices"] = json!([{"PathOnHost": "/dev/zero", "PathInContainer": "/dev/kvm", "CgroupPermissions": "rwm"}])
        },
        &["H-115a"],
    ),
    never("DeviceCgroupRules", "all", |create| {
        create["HostConfig"]["DeviceCgroupRules"] = json!(["a *:* rwm"])
    }),
    starts(
        "Mounts",
        "the guest's volume writable",
        |create| create["HostConfig"]["Mounts"][0]["ReadOnly"] = false.into(),
        &["H-15b"],
    ),
    starts(
        "Tmpfs /work",
        "four times the size",
        |create| tmpfs(create, "/work", "size=", four_times_of),
        &[],
    ),
    starts(
        "Tmpfs /work",
        "four times the files",
        |create| tmpfs(create, "/work", "nr_inodes=", four_times_of),
        &[],
    ),
    starts(
        "Tmpfs /work",
        "without nosuid",
        |create| tmpfs(create, "/work", "nosuid", |_| "suid".to_owned()),
        &[],
    ),
    starts(
        "Tmpfs /work",
        "without nodev",
        |create| tmpfs(create, "/work", "nodev", |_| "dev".to_owned()),
        &[],
    ),
    starts(
        "Tmpfs /tmp",
        "four times the size",
        |create| tmpfs(create, "/tmp", "size=", four_times_of),
        &[],
    ),
    starts(
        "Tmpfs /tmp",
        "four times the files",
        |create| tmpfs(create, "/tmp", "nr_inodes=", four_times_of),
        &[],
    ),
    starts(
        "Tmpfs /tmp",
        "executable",
        |create| tmpfs(create, "/tmp", "noexec", |_| "exec".to_owned()),
        &["H-39b"],
    ),
    starts(
        "Tmpfs",
        "one more, on /opt",
        |create| create["HostConfig"]["Tmpfs"]["/opt"] = "rw,mode=1777,size=1048576".into(),
        &["H-48b"],
    ),
    starts(
        "ShmSize",
        "four times",
        |create| four_times(create, "ShmSize"),
        &[],
    ),
    starts(
        "Memory",
        "four times",
        |create| {
            four_times(create, "Memory");
            four_times(create, "MemorySwap");
        },
        &[],
    ),
    starts(
        "MemorySwap",
        "four times",
        |create| four_times(create, "MemorySwap"),
        &[],
    ),
    starts(
        "MemorySwappiness",
        "60",
        |create| create["HostConfig"]["MemorySwappiness"] = 60.into(),
        &[],
    ),
    never("OomKillDisable", "true", |create| {
        create["HostConfig"]["OomKillDisable"] = true.into()
    }),
    starts(
        "OomScoreAdj",
        "0",
        |create| create["HostConfig"]["OomScoreAdj"] = 0.into(),
        &[],
    ),
    starts(
        "NanoCpus",
        "half as much again",
        |create| create["HostConfig"]["NanoCpus"] = 1_500_000_000.into(),
        &[],
    ),
    starts(
        "PidsLimit",
        "four times",
        |create| four_times(create, "PidsLimit"),
        &[],
    ),
    starts(
        "Ulimits core",
        "unlimited",
        |create| ulimit(create, "core", |_| -1),
        &[],
    ),
    starts(
        "Ulimits fsize",
        "four times",
        |create| ulimit(create, "fsize", |limit| 4 * limit),
        &[],
    ),
    starts(
        "Ulimits memlock",
        "four times",
        |create| ulimit(create, "memlock", |limit| 4 * limit),
        &[],
    ),
    starts(
        "Ulimits msgqueue",
        "four times",
        |create| ulimit(create, "msgqueue", |limit| 4 * limit),
        &[],
    ),
    starts(
        "Ulimits nofile",
        "four times",
        |create| ulimit(create, "nofile", |limit| 4 * limit),
        &["H-58a"],
    ),
    starts(
        "Ulimits nproc",
        "four times",
        |create| ulimit(create, "nproc", |limit| 4 * limit),
        &[],
    ),
    starts(
        "Ulimits sigpending",
        "four times",
        |create| ulimit(create, "sigpending", |limit| 4 * limit),
        &[],
    ),
    starts(
        "MaskedPaths",
        "not /proc/loadavg",
        |create| unmask(create, "/proc/loadavg"),
        &["H-34a"],
    ),
    starts(
        "MaskedPaths",
        "not /proc/version",
        |create| unmask(create, "/proc/version"),
        &["H-34a"],
    ),
    starts(
        "MaskedPaths",
        "none",
        |create| create["HostConfig"]["MaskedPaths"] = json!([]),
        &["H-34a"],
    ),
    starts(
        "ReadonlyPaths",
        "none",
        |create| create["HostConfig"]["ReadonlyPaths"] = json!([]),
        &[],
    ),
    starts(
        "LogConfig",
        "json-file",
        |create| create["HostConfig"]["LogConfig"] = json!({"Type": "json-file", "Config": {}}),
        &[],
    ),
    never("RestartPolicy", "always", |create| {
        create["HostConfig"]["RestartPolicy"] = json!({"Name": "always", "MaximumRetryCount": 0})
    }),
    never("AutoRemove", "true", |create| {
        create["HostConfig"]["AutoRemove"] = true.into()
    }),
    never("Init", "true", |create| {
        create["HostConfig"]["Init"] = true.into()
    }),
    never("CgroupParent", "another", |create| {
        create["HostConfig"]["CgroupParent"] = "/elsewhere".into()
    }),
    never("GroupAdd", "root's", |create| {
        create["HostConfig"]["GroupAdd"] = json!(["0"])
    }),
    never("Sysctls", "one", |create| {
        create["HostConfig"]["Sysctls"] = json!({"kernel.msgmax": "65536"})
    }),
    never("ExtraHosts", "one", |create| {
        create["HostConfig"]["ExtraHosts"] = json!(["metadata:192.0.2.1"])
    }),
    never("Dns", "one", |create| {
        create["HostConfig"]["Dns"] = json!(["192.0.2.1"])
    }),
    never("VolumesFrom, Volumes", "one of its own", |create| {
        create["Volumes"] = json!({"/data": {}})
    }),
    never("Tty", "true", |create| create["Tty"] = true.into()),
    never("StdinOnce", "false", |create| create["StdinOnce"] = false.into()),
    never("User", "0:0 and no more, by name", |create| {
        create["User"] = "root".into()
    }),
    never("WorkingDir", "/proc/self/fd/7", |create| {
        create["WorkingDir"] = "/proc/self/fd/7".into()
    }),
    never("Entrypoint", "a shell in front", |create| {
        create["Entrypoint"]
            .as_array_mut()
            .unwrap()
            .insert(0, "/bin/sh".into())
    }),
    never("Cmd", "the image's", |create| create["Cmd"] = json!(["sh"])),
    never("Env", "one more", |create| {
        create["Env"] = json!(["LD_PRELOAD=/work/x.so"])
    }),
    never("Healthcheck", "a program", |create| {
        create["Healthcheck"] = json!({"Test": ["CMD", "true"]})
    }),
    never("StopSignal", "SIGTERM", |create| {
        create["StopSignal"] = "SIGTERM".into()
    }),
    never("StopTimeout", "a minute", |create| {
        create["StopTimeout"] = 60.into()
    }),
    starts(
        "Hostname",
        "one of its own",
        |create| create["Hostname"] = "executor-7".into(),
        &["H-90a"],
    ),
    never("Labels", "no end", |create| {
        create["Labels"]["mayfly.expires"] = "99999999999".into()
    }),
];

/// What is weak and not counted, and why.
pub(crate) const NOT_COUNTED: &[(&str, &str, &str)] = &[
    (
        "NetworkMode",
        "bridge, host",
        "no program of the battery may have a card; that an engine which says another mode is refused is tested in `lies.rs`",
    ),
    (
        "UsernsMode",
        "host",
        "the engine has no user namespaces of its own set up: the host's is its default",
    ),
    ("AppArmor, SELinux", "none", "this machine has neither"),
    (
        "BlkioWeight, device limits",
        "none",
        "control groups v1 here: we set none, and the engine applies none",
    ),
    (
        "KernelMemoryTCP",
        "none",
        "the engine takes it and does not apply it; jobs have no TCP",
    ),
    (
        "Runtime",
        "runc under the name of runsc",
        "tested in `tests/hostile/runtimes.rs`",
    ),
];
