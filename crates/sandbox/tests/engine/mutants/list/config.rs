//! What runs, its streams, its names, and what becomes of the container.

use serde_json::json;

use super::{Mutant, set};

pub(super) fn all(image: &str) -> Vec<Mutant> {
    let mut all = what_runs(image);
    all.extend(streams());
    all.extend(names());
    all.extend(its_end());
    all
}

fn what_runs(image: &str) -> Vec<Mutant> {
    vec![
        Mutant::new("Image", "another image's digest", set("Image", image)),
        Mutant::new(
            "WorkingDir",
            "/proc/self/fd/7",
            set("WorkingDir", "/proc/self/fd/7"),
        ),
        Mutant::new("Entrypoint", "a shell in front", |create| {
            create["Entrypoint"]
                .as_array_mut()
                .unwrap()
                .insert(0, "/bin/sh".into())
        }),
        Mutant::new("Cmd", "the image's", set("Cmd", json!(["sh"]))),
        Mutant::new("Env", "one more", set("Env", json!(["LD_PRELOAD=/work/x.so"]))),
        Mutant::new("Init", "true", set("HostConfig.Init", true)),
        Mutant::new(
            "Healthcheck",
            "a program",
            set("Healthcheck", json!({"Test": ["CMD", "true"]})),
        ),
    ]
}

fn streams() -> Vec<Mutant> {
    vec![
        Mutant::new("Tty", "true", set("Tty", true)),
        Mutant::new("OpenStdin", "false", set("OpenStdin", false)),
        Mutant::new("StdinOnce", "false", set("StdinOnce", false)),
        Mutant::new("AttachStdin", "false", set("AttachStdin", false)),
        Mutant::new("AttachStdout", "false", set("AttachStdout", false)),
        Mutant::new("AttachStderr", "false", set("AttachStderr", false)),
        Mutant::new(
            "LogConfig",
            "json-file",
            set("HostConfig.LogConfig", json!({"Type": "json-file", "Config": {}})),
        )
        .unseen_inside(),
    ]
}

fn names() -> Vec<Mutant> {
    vec![
        Mutant::new("Hostname", "one of its own", set("Hostname", "executor-7"))
            .seen_inside(&["kernel.nodename"])
            .seen_by(&["H-90a"]),
        Mutant::new("Domainname", "one of its own", set("Domainname", "example.org")).unseen_inside(),
        Mutant::new("Labels", "no end", |create| {
            create["Labels"]["mayfly.expires"] = "99999999999".into()
        }),
    ]
}

fn its_end() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "RestartPolicy",
            "always",
            set(
                "HostConfig.RestartPolicy",
                json!({"Name": "always", "MaximumRetryCount": 0}),
            ),
        ),
        Mutant::new("AutoRemove", "true", set("HostConfig.AutoRemove", true)),
        Mutant::new("StopSignal", "SIGTERM", set("StopSignal", "SIGTERM")),
        Mutant::new("StopTimeout", "a minute", set("StopTimeout", 60)),
    ]
}
