//! The baseline: everything that is fixed when a container is created, in one pure function.
//!
//! What is not set here must be empty in what the engine says of the container afterwards: the read-back takes this
//! request as the whole truth (see [`crate::verify`]). A snapshot test shows each change of hardening in review.

use std::{collections::HashMap, time::Duration};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountType, MountVolumeOptions, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use mayfly_core::{
    digest::{Digest, canonical_json},
    id::{ExecutorId, SandboxId, SessionId},
    image::ImagePin,
    limits::{LimitRules, Limits},
    policy::Network,
    units::ByteSize,
};
use mayfly_failpoints::times_divided_by;

use crate::{
    engine::{CgroupVersion, EngineDetails, EngineFacts},
    seam::{Loopback, SandboxRequest},
    uids::UidPair,
};

mod env;
mod paths;

pub(crate) use env::job_environment;
pub(crate) use paths::{ALWAYS_MASKED, ALWAYS_READ_ONLY, MASKED_PATHS, READ_ONLY_PATHS};

/// Where the guest's volume is mounted.
pub(crate) const GUEST_MOUNT: &str = "/guest";
/// Where the guest is in it.
pub(crate) const GUEST_PATH: &str = "/guest/mayfly-guest";
/// How long a guest lives without an `alive` frame where nobody says otherwise.
const GUEST_ALIVE_LIMIT: Duration = Duration::from_secs(10);
/// The job's working directory and home.
pub(crate) const WORK: &str = "/work";
/// The same for each sandbox: a host name of its own would tell sandboxes apart.
pub(crate) const HOST_NAME: &str = "sandbox";
/// What the guest starts with and gives up before it takes a job.
pub(crate) const CAPABILITIES: [&str; 4] = ["CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP"];
/// The guest's; the job's is 1000. Above 0, so that a host without memory kills sandboxes before its own services.
pub(crate) const GUEST_OOM_SCORE_ADJ: i64 = 500;

/// Names of the labels that each container has from its creation on.
pub(crate) mod label {
    pub(crate) const DEPLOYMENT: &str = "mayfly.deployment";
    pub(crate) const EXECUTOR: &str = "mayfly.executor";
    pub(crate) const SESSION: &str = "mayfly.session";
    pub(crate) const SANDBOX: &str = "mayfly.sandbox";
    /// Seconds since 1970 after which nothing of ours waits for this container.
    pub(crate) const EXPIRES: &str = "mayfly.expires";
}

/// All that the request for one container is made of.
#[derive(Debug, Clone)]
pub(crate) struct CreateInputs<'a> {
    pub(crate) request: &'a SandboxRequest,
    pub(crate) engine: &'a EngineFacts,
    pub(crate) deployment: &'a str,
    /// Seconds since 1970.
    pub(crate) expires: i64,
    pub(crate) uids: UidPair,
    /// Name of the volume that holds the guest.
    pub(crate) guest_volume: &'a str,
    /// The syscall filter as the engine takes it: its JSON, or for Podman a path.
    pub(crate) filter: &'a str,
    /// The environment that the image would add, `NAME=value`.
    pub(crate) image_env: &'a [String],
}

/// The request for one container.
pub(crate) fn create_body(inputs: &CreateInputs<'_>) -> ContainerCreateBody {
    let mut guest = vec![
        GUEST_PATH.to_owned(),
        "--guest-uid".to_owned(),
        inputs.uids.guest.to_string(),
        "--job-uid".to_owned(),
        inputs.uids.job.to_string(),
    ];
    // Never in a release: there the guest's own limit stands.
    if times_divided_by() > 1 {
        let limit = GUEST_ALIVE_LIMIT / times_divided_by();
        guest.extend(["--alive-limit-ms".to_owned(), limit.as_millis().to_string()]);
    }
    ContainerCreateBody {
        image: Some(inputs.request.image.config_digest.to_string()),
        entrypoint: Some(guest),
        cmd: Some(Vec::new()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        hostname: Some(HOST_NAME.to_owned()),
        domainname: Some(String::new()),
        env: Some(removed_environment(inputs)),
        tty: Some(false),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        stop_signal: Some("SIGKILL".to_owned()),
        stop_timeout: Some(1),
        labels: Some(labels(inputs)),
        host_config: Some(host_config(inputs)),
        ..Default::default()
    }
}

/// A name without a value takes the image's variable away: nothing of the image reaches the guest, and what the job
/// may have of it comes in its own environment. Podman would look the name up in its own environment instead.
fn removed_environment(inputs: &CreateInputs<'_>) -> Vec<String> {
    if inputs.engine.podman {
        return Vec::new();
    }
    let name = |entry: &String| entry.split('=').next().unwrap_or_default().to_owned();
    inputs.image_env.iter().map(name).collect()
}

fn labels(inputs: &CreateInputs<'_>) -> HashMap<String, String> {
    let request = inputs.request;
    [
        (label::DEPLOYMENT, inputs.deployment.to_owned()),
        (label::EXECUTOR, request.executor.to_string()),
        (label::SESSION, request.session.to_string()),
        (label::SANDBOX, request.sandbox_id.to_string()),
        (label::EXPIRES, inputs.expires.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn host_config(inputs: &CreateInputs<'_>) -> HostConfig {
    let request = inputs.request;
    let limits = &request.limits;
    let memory = signed(limits.memory.as_bytes());
    HostConfig {
        runtime: Some(request.runtime.clone()),
        network_mode: Some(match request.network {
            Network::None => "none".to_owned(),
        }),
        // Empty is the engine's word for a namespace of the container's own.
        pid_mode: Some(String::new()),
        uts_mode: Some(String::new()),
        userns_mode: Some(String::new()),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        privileged: Some(false),
        publish_all_ports: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
        security_opt: Some(vec![
            "no-new-privileges".to_owned(),
            format!("seccomp={}", inputs.filter),
        ]),
        readonly_rootfs: Some(true),
        tmpfs: Some(tmpfs(limits, inputs.uids)),
        shm_size: Some(signed(limits.shm.as_bytes())),
        memory: Some(memory),
        memory_swap: Some(memory),
        sysctls: socket_memory(inputs),
        memory_swappiness: match inputs.engine.cgroup {
            CgroupVersion::V1 => Some(0),
            CgroupVersion::V2 => None,
        },
        oom_kill_disable: Some(false),
        oom_score_adj: Some(GUEST_OOM_SCORE_ADJ),
        nano_cpus: Some(i64::from(limits.cpu.as_millis()) * 1_000_000),
        pids_limit: Some(engine_pids_limit(request)),
        ulimits: Some(ulimits(request)),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: Some(HashMap::new()),
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: Some(0),
        }),
        auto_remove: Some(false),
        init: Some(false),
        masked_paths: Some(MASKED_PATHS.map(str::to_owned).to_vec()),
        readonly_paths: Some(READ_ONLY_PATHS.map(str::to_owned).to_vec()),
        mounts: Some(vec![Mount {
            typ: Some(MountType::VOLUME),
            source: Some(inputs.guest_volume.to_owned()),
            target: Some(GUEST_MOUNT.to_owned()),
            read_only: Some(true),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        }]),
        ..Default::default()
    }
}

/// Small buffers for TCP, in bytes: least, usual, most. Where no limit counts them they are what bounds them, together
/// with the limits on descriptors.
const TCP_BUFFERS: &str = "4096 16384 65536";

/// The sandbox's own settings of its sockets' memory, where it may have sockets whose memory no limit counts. gVisor's
/// are in its own memory.
fn socket_memory(inputs: &CreateInputs<'_>) -> Option<HashMap<String, String>> {
    let uncounted = counts_no_sockets(inputs.engine, inputs.request);
    uncounted.then(|| {
        ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
            .map(|name| (name.to_owned(), TCP_BUFFERS.to_owned()))
            .into()
    })
}

/// Whether a sandbox may have sockets whose memory counts to no limit: control groups of version 1 count none of TCP and
/// UDP.
pub(crate) fn counts_no_sockets(engine: &EngineFacts, request: &SandboxRequest) -> bool {
    request.loopback == Loopback::Open && engine.cgroup == CgroupVersion::V1 && !is_gvisor(&request.runtime)
}

/// The writable file systems: all memory, all bounded in bytes and in files. `/tmp` is noexec, so that what must be
/// executed goes to `/work`, which the job owns.
fn tmpfs(limits: &Limits, uids: UidPair) -> HashMap<String, String> {
    let options = |size: ByteSize, rest: String| {
        format!(
            "rw,nosuid,nodev,size={},nr_inodes={},{rest}",
            size.as_bytes(),
            Limits::inodes_of(size)
        )
    };
    let job = uids.job;
    [
        (
            WORK,
            options(limits.work, format!("exec,mode=0700,uid={job},gid={job}")),
        ),
        ("/tmp", options(limits.tmp, "noexec,mode=1777".to_owned())),
    ]
    .map(|(path, options)| (path.to_owned(), options))
    .into()
}

/// The engine counts the guest too, so that the job gets what it asked for. gVisor's own host threads count as well,
/// and a low limit hangs its start: there the engine's limit is a backstop, and the job's own is its `nproc`.
pub(crate) fn engine_pids_limit(request: &SandboxRequest) -> i64 {
    let pids = i64::from(request.limits.pids);
    if is_gvisor(&request.runtime) {
        128 + 8 * pids
    } else {
        pids + 1
    }
}

/// Whether a runtime is gVisor, by the name that engines are configured with.
pub(crate) fn is_gvisor(runtime: &str) -> bool {
    runtime == "runsc" || runtime.starts_with("runsc-")
}

/// Whether a runtime is crun, by the name that engines are configured with.
pub(crate) fn is_crun(runtime: &str) -> bool {
    runtime == "crun" || runtime.starts_with("crun-")
}

/// Limits of each process, soft and hard alike, sorted by name.
///
/// `core` is 1 and not 0: a core pattern that starts with a pipe ignores 0 and is stopped by 1 alone (core(5)).
/// `fsize` is the memory limit, which no file in memory can pass. `nproc` binds because no other process of the host
/// has the job's uid; it is one more than was asked for where the control group counts, so that the group's own count
/// of refusals shows in the evidence. `memlock`, `msgqueue` and `sigpending` count by uid too.
pub(crate) fn process_limits(request: &SandboxRequest) -> [(&'static str, u64); 7] {
    let limits = &request.limits;
    let memory = limits.memory.as_bytes();
    let pids = u64::from(limits.pids);
    [
        ("core", 1),
        ("fsize", memory),
        ("memlock", memory.min(8 << 20)),
        ("msgqueue", 819_200),
        ("nofile", limits.open_files.into()),
        (
            "nproc",
            if is_gvisor(&request.runtime) {
                pids
            } else {
                pids + 1
            },
        ),
        ("sigpending", 4096),
    ]
}

fn ulimits(request: &SandboxRequest) -> Vec<ResourcesUlimits> {
    process_limits(request)
        .into_iter()
        .map(|(name, limit)| ResourcesUlimits {
            name: Some(name.to_owned()),
            soft: Some(signed(limit)),
            hard: Some(signed(limit)),
        })
        .collect()
}

/// Limits are far below what a signed number holds.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Digest of everything that this crate fixes for each sandbox: the request for a fixed job on a fixed engine, the
/// environment that each job has, the syscall filter, and the rules of redaction. It goes into the policy's version, so that a change of any
/// default changes that.
///
/// # Panics
/// Never: the request is made of texts and numbers.
#[must_use]
pub fn baseline_digest() -> Digest {
    let engine = sample_engine();
    let both = [Loopback::Closed, Loopback::Open].map(|loopback| {
        let request = SandboxRequest {
            loopback,
            ..sample_request()
        };
        let body = create_body(&CreateInputs {
            request: &request,
            engine: &engine,
            deployment: "",
            expires: 0,
            uids: UidPair { guest: 1, job: 2 },
            guest_volume: "",
            filter: "",
            image_env: &[],
        });
        (body, job_environment(&request.limits, loopback, &[], []))
    });
    Digest::of(&canonical_json(&(
        both,
        crate::syscalls::all_filters_digest(),
        mayfly_redact::Rules::all().digest(),
    )))
}

/// An engine for the digest and the snapshot.
pub(crate) fn sample_engine() -> EngineFacts {
    EngineFacts {
        id: "C2XJ:ENGINE".to_owned(),
        name: "Docker Engine".to_owned(),
        version: "0".to_owned(),
        api: "1.41".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: String::new(),
        operating_system: String::new(),
        cgroup: CgroupVersion::V1,
        swap_limit: true,
        security_options: Vec::new(),
        runtimes: ["runc".to_owned()].into(),
        podman: false,
        cpus: 1,
        memory_bytes: 0,
        storage_driver: String::new(),
        details: EngineDetails::default(),
    }
}

/// A request for the digest and the snapshot.
pub(crate) fn sample_request() -> SandboxRequest {
    let nil = "00000000-0000-0000-0000-000000000000";
    let digest = Digest::of(b"");
    SandboxRequest {
        sandbox_id: nil.parse::<SandboxId>().expect("a nil UUID is an id"),
        executor: nil.parse::<ExecutorId>().expect("a nil UUID is an id"),
        session: nil.parse::<SessionId>().expect("a nil UUID is an id"),
        image: ImagePin {
            reference: "sample".to_owned(),
            digest,
            config_digest: digest,
            platform: "linux/amd64".to_owned(),
        },
        runtime: "runc".to_owned(),
        limits: LimitRules::default().defaults,
        network: Network::None,
        loopback: Loopback::Closed,
        warm: None,
        longest_idle: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
