//! A container's request in the words of `docker run`.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use bollard::models::{ContainerCreateBody, HostConfig};

/// Fields that its command line has no words for.
#[cfg(test)]
const WITHOUT_WORDS: [&str; 2] = ["MaskedPaths", "ReadonlyPaths"];

/// The arguments that ask for this container, run it and remove it.
pub(super) fn arguments(body: &ContainerCreateBody, filter: &Path) -> Vec<String> {
    let mut flags = Flags(
        ["run", "--rm", "--interactive", "--pull=never"]
            .map(str::to_owned)
            .to_vec(),
    );
    let host = body.host_config.clone().unwrap_or_default();
    flags.text("user", body.user.as_ref());
    flags.text("workdir", body.working_dir.as_ref());
    flags.text("hostname", body.hostname.as_ref());
    flags.text("domainname", body.domainname.as_ref());
    flags.text("stop-signal", body.stop_signal.as_ref());
    flags.text("stop-timeout", body.stop_timeout);
    if body.healthcheck.is_some() {
        flags.0.push("--no-healthcheck".to_owned());
    }
    for (name, value) in sorted(body.labels.as_ref()) {
        flags.add("label", format!("{name}={value}"));
    }
    for entry in body.env.iter().flatten() {
        flags.add("env", entry);
    }
    of_the_host(&mut flags, &host, filter);
    let mut command = body.entrypoint.iter().flatten().chain(body.cmd.iter().flatten());
    flags.text("entrypoint", command.next());
    flags.0.extend(body.image.clone());
    flags.0.extend(command.cloned());
    flags.0
}

fn of_the_host(flags: &mut Flags, host: &HostConfig, filter: &Path) {
    flags.text("runtime", host.runtime.as_ref());
    flags.text("network", host.network_mode.as_ref());
    flags.text("pid", host.pid_mode.as_ref());
    flags.text("uts", host.uts_mode.as_ref());
    flags.text("userns", host.userns_mode.as_ref());
    flags.text("ipc", host.ipc_mode.as_ref());
    flags.text("cgroupns", host.cgroupns_mode);
    flags.yes("privileged", host.privileged);
    flags.yes("publish-all", host.publish_all_ports);
    flags.yes("read-only", host.readonly_rootfs);
    flags.yes("oom-kill-disable", host.oom_kill_disable);
    flags.yes("init", host.init);
    for capability in host.cap_drop.iter().flatten() {
        flags.add("cap-drop", capability);
    }
    for capability in host.cap_add.iter().flatten() {
        flags.add("cap-add", capability);
    }
    for option in host.security_opt.iter().flatten() {
        // The command line reads the filter from a file and sends its content.
        match option.strip_prefix("seccomp=") {
            Some(_) => flags.add("security-opt", format!("seccomp={}", filter.display())),
            None => flags.add("security-opt", option),
        }
    }
    for (path, options) in sorted(host.tmpfs.as_ref()) {
        flags.add("tmpfs", format!("{path}:{options}"));
    }
    flags.text("shm-size", host.shm_size);
    flags.text("memory", host.memory);
    flags.text("memory-swap", host.memory_swap);
    flags.text("memory-swappiness", host.memory_swappiness);
    flags.text("oom-score-adj", host.oom_score_adj);
    flags.text("cpus", host.nano_cpus.map(cpus));
    flags.text("pids-limit", host.pids_limit);
    for limit in host.ulimits.iter().flatten() {
        if let (Some(name), Some(soft), Some(hard)) = (&limit.name, limit.soft, limit.hard) {
            flags.add("ulimit", format!("{name}={soft}:{hard}"));
        }
    }
    flags.text(
        "log-driver",
        host.log_config.as_ref().and_then(|log| log.typ.as_ref()),
    );
    let restart = host.restart_policy.as_ref().and_then(|policy| policy.name);
    flags.text("restart", restart);
    for mount in host.mounts.iter().flatten() {
        if let (Some(source), Some(target)) = (&mount.source, &mount.target) {
            flags.add(
                "mount",
                format!("type=volume,source={source},target={target},readonly,volume-nocopy"),
            );
        }
    }
}

fn sorted(map: Option<&HashMap<String, String>>) -> BTreeMap<&String, &String> {
    map.into_iter().flatten().collect()
}

/// Nine decimals hold each number of billionths.
fn cpus(nano: i64) -> String {
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
}

struct Flags(Vec<String>);

impl Flags {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name}={value}"));
    }

    fn text(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn yes(&mut self, name: &str, value: Option<bool>) {
        self.text(name, value.filter(|value| *value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{
        baseline::{CreateInputs, create_body, sample_engine, sample_request},
        uids::UidPair,
    };

    fn sample() -> ContainerCreateBody {
        let (engine, request) = (sample_engine(), sample_request());
        let sandbox = create_body(&CreateInputs {
            request: &request,
            engine: &engine,
            deployment: "d",
            expires: 7,
            uids: UidPair { guest: 1, job: 2 },
            guest_volume: "the-guest",
            filter: "{\"the\":\"filter\"}",
            image_env: &[],
        });
        ContainerCreateBody {
            env: Some(vec!["NAME=value".to_owned()]),
            ..sandbox
        }
    }

    /// A text as a shell reads it.
    fn word(text: &str) -> String {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,+".contains(letter);
        if text.chars().all(plain) {
            text.to_owned()
        } else {
            format!("'{text}'")
        }
    }

    /// What the checklist shows: a sandbox with the usual limits, what differs from one to the next in capitals.
    fn shown() -> String {
        let (engine, request) = (sample_engine(), sample_request());
        let sandbox = create_body(&CreateInputs {
            request: &request,
            engine: &engine,
            deployment: "NAME",
            expires: 0,
            uids: UidPair {
                guest: 20_000,
                job: 20_001,
            },
            guest_volume: "GUEST",
            filter: "",
            image_env: &[],
        });
        let body = ContainerCreateBody {
            image: Some("IMAGE".to_owned()),
            labels: None,
            ..sandbox
        };
        let arguments = arguments(&body, Path::new("config/seccomp.json"));
        let image = arguments.iter().position(|argument| argument == "IMAGE").unwrap();
        let words = |arguments: &[String]| arguments.iter().map(|text| word(text)).collect::<Vec<_>>();
        // The subcommand and what it means for the streams in one line, as the image and what runs in it.
        let mut lines = vec![format!("docker {}", words(&arguments[..4]).join(" "))];
        lines.extend(words(&arguments[4..image]));
        lines.push(words(&arguments[image..]).join(" "));
        let host = body.host_config.unwrap();
        let paths = |paths: Option<Vec<String>>| paths.unwrap().join(" ");
        format!(
            "```sh\n{}\n```\n\nBeyond that, what `docker run` has no words for:\n\n- hidden (`MaskedPaths`): {}\n- read-only \
             (`ReadonlyPaths`): {}\n",
            lines.join(" \\\n    "),
            paths(host.masked_paths),
            paths(host.readonly_paths),
        )
    }

    /// `MAYFLY_UPDATE=1` puts it there anew.
    #[test]
    fn the_checklist_shows_the_flags_of_a_sandbox() {
        const BEGIN: &str = "<!-- made by crates/sandbox/src/floor/docker_run.rs -->\n";
        const END: &str = "<!-- end -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security-checklist.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (there, after) = rest.split_once(END).unwrap();
        let shown = shown();
        if std::env::var_os("MAYFLY_UPDATE").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{shown}{END}{after}")).unwrap();
        } else {
            assert!(there == shown, "MAYFLY_UPDATE=1 puts there:\n{shown}");
        }
    }

    /// Takes the fields away, one after the other: a field whose absence changes no flag is one that the command line
    /// was not told of.
    #[test]
    fn every_field_of_a_sandbox_is_in_the_flags_or_known_to_have_none() {
        let whole = serde_json::to_value(sample()).unwrap();
        let flags = |body: Value| arguments(&serde_json::from_value(body).unwrap(), Path::new("/f"));
        let all = flags(whole.clone());
        let mut unheard = Vec::new();
        for pointer in ["", "/HostConfig"] {
            for name in whole.pointer(pointer).unwrap().as_object().unwrap().keys() {
                let mut body = whole.clone();
                body.pointer_mut(pointer)
                    .unwrap()
                    .as_object_mut()
                    .unwrap()
                    .remove(name);
                if flags(body) == all {
                    unheard.push(name.clone());
                }
            }
        }
        // Streams and removal are what `run --rm --interactive` means; what is off or empty has no flag.
        let meant = [
            "AttachStderr",
            "AttachStdin",
            "AttachStdout",
            "Cmd",
            "OpenStdin",
            "StdinOnce",
            "Tty",
            "AutoRemove",
            "Init",
            "OomKillDisable",
            "Privileged",
            "PublishAllPorts",
        ];
        unheard.retain(|name| !meant.contains(&name.as_str()));
        assert_eq!(unheard, WITHOUT_WORDS);
    }

    #[test]
    fn the_command_comes_after_the_image_and_the_filter_is_a_file() {
        let body = ContainerCreateBody {
            entrypoint: Some(["python3", "-c", "print()"].map(str::to_owned).to_vec()),
            ..sample()
        };
        let arguments = arguments(&body, Path::new("/a/filter.json"));
        let image = arguments.len() - 3;
        assert_eq!(Some(&arguments[image]), body.image.as_ref());
        assert_eq!(&arguments[image + 1..], ["-c", "print()"]);
        for flag in [
            "--entrypoint=python3",
            "--security-opt=seccomp=/a/filter.json",
            "--security-opt=no-new-privileges",
            "--cpus=1.000000000",
            "--read-only=true",
        ] {
            assert!(
                arguments.iter().any(|argument| argument == flag),
                "{flag}: {arguments:?}"
            );
        }
    }
}
