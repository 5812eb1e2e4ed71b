//! What of this host matters to sandboxes, where the engine's containers run on its kernel.

use std::{
    ops::Range,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::PathBuf,
};

use mayfly_sandbox::engine::EngineFacts;

use super::{
    Locality,
    finding::{Finding, Status},
};
use crate::uids;

/// A knob of the kernel: its file below `/proc/sys`, the values that are well, what another one means, how to mend it.
struct Knob {
    name: &'static str,
    well: fn(u64) -> bool,
    /// What another value is.
    lack: Status,
    means: &'static str,
    mend: &'static str,
}

/// Each closes something that a job is kept from by its sandbox already, for the day when a sandbox fails.
const KNOBS: &[Knob] = &[
    Knob {
        name: "kernel/unprivileged_bpf_disabled",
        well: |value| value >= 1,
        lack: Status::Warning,
        means: "any user of the host may load bpf programs, a frequent way into the kernel",
        mend: "sysctl -w kernel.unprivileged_bpf_disabled=1",
    },
    Knob {
        name: "kernel/dmesg_restrict",
        well: |value| value >= 1,
        lack: Status::Warning,
        means: "any user of the host may read the kernel's log, and addresses in it",
        mend: "sysctl -w kernel.dmesg_restrict=1",
    },
    Knob {
        name: "kernel/kptr_restrict",
        well: |value| value >= 1,
        lack: Status::Warning,
        means: "any user of the host may read where the kernel lies in memory",
        mend: "sysctl -w kernel.kptr_restrict=1",
    },
    Knob {
        name: "kernel/yama/ptrace_scope",
        well: |value| value >= 1,
        lack: Status::Warning,
        means: "a process may trace any other of its user, not its children alone",
        mend: "sysctl -w kernel.yama.ptrace_scope=1",
    },
    Knob {
        name: "fs/protected_hardlinks",
        well: |value| value >= 1,
        lack: Status::Warning,
        means: "a process may link to another user's file that it can't write to, and keep what it was",
        mend: "sysctl -w fs.protected_hardlinks=1",
    },
    Knob {
        name: "kernel/perf_event_paranoid",
        well: |value| value >= 2,
        lack: Status::Warning,
        means: "any user of the host may watch the kernel by perf events",
        mend: "sysctl -w kernel.perf_event_paranoid=3",
    },
    Knob {
        name: "user/max_user_namespaces",
        well: |value| value == 0,
        lack: Status::Note,
        means: "any user of the host may make user namespaces, the most frequent way into the kernel; sandboxes can't, by \
                our filter, and rootless engines need them",
        mend: "sysctl -w user.max_user_namespaces=0, where nothing on this host needs them",
    },
];

/// Modules that recent faults were in; sandboxes can't reach them, by our filter.
const MODULES: &[&str] = &[
    "af_alg",
    "algif_aead",
    "algif_skcipher",
    "algif_hash",
    "rxrpc",
    "esp4",
    "esp6",
    "tls",
];

/// All memory of this host, in bytes, as engines count it.
pub(super) fn memory_bytes() -> Option<u64> {
    Host { root: "/".into() }.memory_bytes()
}

/// The folders that are looked into; a test has its own.
struct Host {
    root: PathBuf,
}

/// The host's uids that sandboxes have; other ones of its numbers where the engine maps the users of containers. Nothing of
/// a rootless engine, which does not tell where its user's range begins (subuid(5)).
pub(crate) fn uids_of_sandboxes(first_uid: u32, engine: Option<&EngineFacts>) -> Option<Range<u32>> {
    if engine.is_some_and(EngineFacts::is_rootless) {
        return None;
    }
    let root = engine
        .and_then(EngineFacts::mapped_root)
        .map_or(0, |(uid, _)| uid);
    Some(root.saturating_add(first_uid)..root.saturating_add(uids::END))
}

pub(crate) fn check(local: Locality, uids: Option<Range<u32>>) -> Vec<Finding> {
    let host = Host { root: "/".into() };
    let files = match local {
        Locality::Elsewhere(why) => return vec![Finding::skipped("host", why)],
        Locality::Local => [host.null_device(), host.uids(uids)],
        Locality::SameKernel => ["host.dev_null", "host.uids"].map(|id| {
            Finding::skipped(
                id,
                "this process is in a container, and its files are not the host's",
            )
        }),
    };
    let mut findings = vec![host.core_pattern()];
    findings.extend(files);
    findings.extend(KNOBS.iter().map(|knob| host.knob(knob)));
    findings.push(host.modules());
    findings
}

impl Host {
    fn read(&self, path: &str) -> std::io::Result<String> {
        let text = std::fs::read_to_string(self.root.join(path))?;
        Ok(text.trim().to_owned())
    }

    fn memory_bytes(&self) -> Option<u64> {
        let text = self.read("proc/meminfo").ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// A program that crashes in a sandbox would start this program of the host's, as root.
    fn core_pattern(&self) -> Finding {
        let id = "host.core_pattern";
        match self.read("proc/sys/kernel/core_pattern") {
            Err(error) => Finding::skipped(id, format!("kernel.core_pattern can't be read: {error}")),
            Ok(pattern) if pattern.starts_with('|') => Finding::warning(id, &pattern)
                .means(
                    "a crash starts that program on the host, as root and with input that whoever crashes has chosen; \
                     sandboxes set the limit of core files to 1, which the kernel takes as a wish for none (core(5)), and \
                     that alone stands between a job and this program",
                )
                .mend("sysctl -w kernel.core_pattern=core, or make sure that the program may be trusted with that"),
            Ok(pattern) => Finding::ok(id, pattern).means("a crash starts no program of the host"),
        }
    }

    /// Debian's runsc has been seen to give it to the container's user.
    fn null_device(&self) -> Finding {
        let id = "host.dev_null";
        let path = self.root.join("dev/null");
        let found = match std::fs::metadata(&path) {
            Err(error) => return Finding::problem(id, format!("/dev/null: {error}")),
            Ok(found) => found,
        };
        let mode = found.mode() & 0o7777;
        let shown = format!(
            "/dev/null is owned by {}:{} and has mode {mode:o}",
            found.uid(),
            found.gid()
        );
        if !found.file_type().is_char_device() {
            return Finding::problem(id, "/dev/null is no device")
                .means("programs that write to it fill a file, and those that read from it get something")
                .mend("rm /dev/null && mknod -m 666 /dev/null c 1 3");
        }
        if found.uid() == 0 && found.gid() == 0 && mode == 0o666 {
            return Finding::ok(id, shown).means("as every program takes for granted");
        }
        Finding::problem(id, shown)
            .means("a runtime has changed the host's own device: gVisor of Debian 12 does that as root")
            .mend("chown root:root /dev/null && chmod 666 /dev/null; run gVisor on an engine with a /dev of its own")
    }

    /// Two users with one uid are one user to the kernel.
    fn uids(&self, range: Option<Range<u32>>) -> Finding {
        let id = "host.uids";
        let Some(range) = range else {
            let why = "a rootless engine runs containers under uids of its user's range in /etc/subuid, and does not tell which";
            return Finding::skipped(id, why);
        };
        let passwd = match self.read("etc/passwd") {
            Err(error) => return Finding::skipped(id, format!("/etc/passwd can't be read: {error}")),
            Ok(passwd) => passwd,
        };
        let taken: Vec<String> = passwd
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
                range.contains(&uid).then(|| format!("{name} ({uid})"))
            })
            .collect();
        let (first, last) = (range.start, range.end - 1);
        if taken.is_empty() {
            return Finding::ok(
                id,
                format!("no user of this host has one of the uids {first} to {last}"),
            )
            .means("a job never runs as somebody; users that a directory service adds are not looked at");
        }
        Finding::warning(
            id,
            format!(
                "uids of sandboxes ({first} to {last}) belong to {}",
                taken.join(", ")
            ),
        )
        .means("a job may run as that user, and use up what the kernel counts for each user")
        .mend("set `sandbox.first_uid` above them; docs/settings.md")
    }

    fn knob(&self, knob: &Knob) -> Finding {
        let name = knob.name.replace('/', ".");
        let id = format!("host.{}", name.rsplit('.').next().unwrap_or(&name));
        match self.read(&format!("proc/sys/{}", knob.name)) {
            Err(error) => Finding::skipped(id, format!("{name} can't be read: {error}")),
            Ok(text) => match text.parse::<i64>().map(|value| u64::try_from(value).unwrap_or(0)) {
                Ok(value) if (knob.well)(value) => Finding::ok(id, format!("{name} = {text}")),
                _ => Finding::new(id, knob.lack, format!("{name} = {text}"))
                    .means(knob.means)
                    .mend(knob.mend),
            },
        }
    }

    fn modules(&self) -> Finding {
        let id = "host.modules";
        let loaded = match self.read("proc/modules") {
            Err(error) => {
                return Finding::skipped(id, format!("the kernel's modules can't be listed: {error}"));
            }
            Ok(loaded) => loaded,
        };
        let found: Vec<_> = loaded
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|name| MODULES.contains(name))
            .collect();
        if found.is_empty() {
            return Finding::ok(id, "none of the modules that recent faults were in is loaded")
                .means("what is built into the kernel is not seen here");
        }
        Finding::warning(id, found.join(", "))
            .means("recent faults of the kernel were in these modules; sandboxes can't reach them, by our filter")
            .mend("keep the kernel up to date, or block them: `install NAME /bin/false` in /etc/modprobe.d")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, Host { root })
    }

    #[test]
    fn a_core_pattern_that_starts_a_program_is_a_warning() {
        for (pattern, status) in [
            ("core\n", Status::Ok),
            ("|/usr/share/apport %p\n", Status::Warning),
        ] {
            let (_folder, host) = host(&[("proc/sys/kernel/core_pattern", pattern)]);
            assert_eq!(host.core_pattern().status, status, "{pattern}");
        }
        assert_eq!(host(&[]).1.core_pattern().status, Status::Skipped);
    }

    #[test]
    fn a_null_device_that_is_a_file_or_not_there_is_a_problem() {
        let (_folder, file) = host(&[("dev/null", "")]);
        assert_eq!(file.null_device().status, Status::Problem);
        assert_eq!(host(&[]).1.null_device().status, Status::Problem);
    }

    #[test]
    fn a_user_within_the_range_of_sandboxes_is_named() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:19999:1::/:/bin/sh\nben:x:20063:1::/:/bin/sh\nnobody:x:65534:1::/:\n";
        let (_folder, host) = host(&[("etc/passwd", passwd)]);
        let found = host.uids(uids_of_sandboxes(20_000, None));
        assert_eq!(found.status, Status::Warning);
        assert!(
            found.found.contains("ben (20063)") && !found.found.contains("ann"),
            "{}",
            found.found
        );
        assert_eq!(host.uids(uids_of_sandboxes(20_064, None)).status, Status::Ok);
        let mut mapped = crate::doctor::engine::tests::good();
        mapped.security_options.push("name=userns".to_owned());
        mapped.details.data_folder = "/var/lib/docker/100000.100000".to_owned();
        assert_eq!(uids_of_sandboxes(20_000, Some(&mapped)), Some(120_000..160_000));
        assert_eq!(host.uids(Some(120_000..160_000)).status, Status::Ok);
        let mut rootless = crate::doctor::engine::tests::good();
        rootless.security_options.push("name=rootless".to_owned());
        assert_eq!(uids_of_sandboxes(20_000, Some(&rootless)), None);
        let found = host.uids(None);
        assert_eq!(found.status, Status::Skipped);
        assert!(found.found.contains("subuid"), "{}", found.found);
    }

    #[test]
    fn knobs_are_judged_by_their_value_and_skipped_where_there_are_none() {
        for knob in KNOBS {
            let path = format!("proc/sys/{}", knob.name);
            let statuses = ["0\n", "1\n", "2\n", "-1\n", "many\n"]
                .map(|text| host(&[(&path, text)]).1.knob(knob).status);
            let expected = match knob.name {
                "user/max_user_namespaces" => {
                    [Status::Ok, Status::Note, Status::Note, Status::Ok, Status::Note]
                }
                "kernel/perf_event_paranoid" => [
                    Status::Warning,
                    Status::Warning,
                    Status::Ok,
                    Status::Warning,
                    Status::Warning,
                ],
                _ => [
                    Status::Warning,
                    Status::Ok,
                    Status::Ok,
                    Status::Warning,
                    Status::Warning,
                ],
            };
            assert_eq!(statuses, expected, "{}", knob.name);
            assert_eq!(host(&[]).1.knob(knob).status, Status::Skipped);
        }
    }

    #[test]
    fn modules_of_recent_faults_are_named() {
        let (_folder, host) = host(&[("proc/modules", "ext4 1 2 - Live 0\nrxrpc 1 2 - Live 0\n")]);
        let found = host.modules();
        assert_eq!((found.status, found.found.as_str()), (Status::Warning, "rxrpc"));
    }

    #[test]
    fn another_host_is_not_judged_by_this_ones_files() {
        let found = check(
            Locality::Elsewhere("it is elsewhere".to_owned()),
            Some(20_000..59_000),
        );
        let found: Vec<_> = found
            .iter()
            .map(|finding| (finding.status, finding.found.as_str()))
            .collect();
        assert_eq!(found, [(Status::Skipped, "it is elsewhere")]);
    }

    #[test]
    fn from_within_a_container_the_kernels_files_are_judged_and_no_others() {
        let (alone, beside) = (
            check(Locality::SameKernel, Some(20_000..59_000)),
            check(Locality::Local, Some(20_000..59_000)),
        );
        let ids = |findings: &[Finding]| findings.iter().map(|found| found.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&alone), ids(&beside));
        for (alone, beside) in alone.iter().zip(&beside) {
            if ["host.dev_null", "host.uids"].contains(&alone.id.as_str()) {
                assert_eq!(alone.status, Status::Skipped);
            } else {
                assert_eq!(alone, beside);
            }
        }
    }

    #[test]
    fn memory_is_counted_as_engines_count_it() {
        let (_folder, host) = host(&[("proc/meminfo", "MemTotal:       24680748 kB\nMemFree: 1 kB\n")]);
        assert_eq!(host.memory_bytes(), Some(24_680_748 * 1024));
        assert_eq!(self::host(&[]).1.memory_bytes(), None);
    }
}
