//! Arbitrary frames, for the tests of this crate.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{
    Answer, ArtifactEnd, ArtifactHeader, Capabilities, CgroupCounts, CgroupLimits, CollectOrder, Collected,
    Ended, Exit, FileHeader, FileName, Filesystem, FromGuest, IdRange, Identity, Ids, Job, JobRlimit, Kernel,
    LeftOut, LeftOutWhy, MAX_DATA, MAX_PAYLOAD, MAX_WINDOW, Mount, Probe, ProbeResult, ReadyReport, Refused,
    Resource, Rlimit, Stage, Started, StreamId, ToGuest, Tunnel, Usage, VERSION, WarmFailed, WarmOrder,
    WarmUse, Warmed,
};

pub(crate) fn encoded(frame: &FromGuest) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes).unwrap();
    bytes
}

/// A job that takes `files` files.
pub(crate) fn job(files: u32, stdin: bool) -> Job {
    Job {
        version: VERSION,
        argv: vec!["python3".to_owned()],
        env: vec![],
        cwd: "/work".to_owned(),
        deadline_ms: 30_000,
        rlimits: vec![],
        files,
        stdin,
        warm: false,
        collects: false,
        egress: false,
    }
}

/// An order for at most two files of at most 8 bytes, 10 in all, of which two more may be named.
pub(crate) fn collect_order() -> CollectOrder {
    CollectOrder {
        globs: vec!["**".to_owned()],
        max_files: 2,
        max_file_bytes: 8,
        max_bytes: 10,
        max_entries: 100,
        max_named: 2,
    }
}

pub(crate) fn file_name(bytes: &[u8]) -> FileName {
    FileName::new(bytes.to_vec()).unwrap()
}

/// The start of a job that asked for no process that waits.
pub(crate) fn started() -> FromGuest {
    started_by(WarmUse::NotAsked)
}

pub(crate) fn started_by(warm: WarmUse) -> FromGuest {
    FromGuest::Started(Started { warm })
}

/// An order for a process that waits.
pub(crate) fn warm_order() -> WarmOrder {
    WarmOrder {
        argv: vec!["python3".to_owned(), "/work/main.py".to_owned()],
        env: vec![],
        cwd: "/work".to_owned(),
        limit_ms: 10_000,
    }
}

fn any_use() -> impl Strategy<Value = WarmUse> {
    prop::sample::select(vec![
        WarmUse::NotAsked,
        WarmUse::Used,
        WarmUse::Gone,
        WarmUse::Unfit,
        WarmUse::Wrote,
        WarmUse::Silent,
        WarmUse::Declined,
    ])
}

fn identity(id: u32) -> Identity {
    let ids = Ids {
        real: id,
        effective: id,
        saved: id,
        fs: id,
    };
    Identity {
        uid: ids,
        gid: ids,
        groups: vec![1],
        caps: Capabilities {
            inheritable: 0,
            permitted: u64::MAX,
            effective: 224,
            bounding: 0,
            ambient: Some(0),
        },
        no_new_privs: Some(true),
        seccomp_mode: Some(2),
        seccomp_filters: None,
        dumpable: 0,
        oom_score_adj: Some(-5),
    }
}

/// A report with something in every field.
pub(crate) fn report() -> ReadyReport {
    ReadyReport {
        version: VERSION,
        build: "b".to_owned(),
        pid: 1,
        guest: identity(7),
        job: identity(8),
        uid_map: vec![IdRange {
            inside: 0,
            outside: 1 << 30,
            count: 65_536,
        }],
        gid_map: vec![],
        marker: Answer::Errno(crate::MARKER_ERRNO),
        probes: Probe::ALL
            .map(|probe| ProbeResult {
                probe,
                answer: Answer::Returned(-1),
            })
            .to_vec(),
        mounts: vec![Mount {
            mount_point: "/work".to_owned(),
            root: "/".to_owned(),
            fstype: "tmpfs".to_owned(),
            source: "tmpfs".to_owned(),
            options: vec!["rw".to_owned()],
            super_options: vec!["size=65536k".to_owned()],
        }],
        present: crate::guarded_paths().map(str::to_owned).collect(),
        root_read_only: Some(true),
        filesystems: vec![Filesystem {
            path: "/work".to_owned(),
            bytes: 1,
            free_bytes: 1,
            inodes: 1,
            free_inodes: 1,
            read_only: false,
        }],
        interfaces: Some(vec!["lo".to_owned()]),
        devices: None,
        rlimits: Resource::ALL
            .map(|resource| Rlimit {
                resource,
                soft: Some(u64::MAX),
                hard: None,
            })
            .to_vec(),
        cgroup: CgroupLimits {
            pids: Some(u64::MAX),
            ..CgroupLimits::default()
        },
        lsm_label: None,
        kernel: Kernel {
            sysname: "Linux".to_owned(),
            release: "6".to_owned(),
            version: "#1".to_owned(),
            machine: "x86_64".to_owned(),
            nodename: "sandbox".to_owned(),
        },
        truncated: false,
    }
}

/// An end with these byte counts.
pub(crate) fn exit(stdout_bytes: u64, stderr_bytes: u64) -> Exit {
    Exit {
        how: Ended::Code(0),
        deadline_fired: false,
        killed_by_request: false,
        wall_us: 1,
        usage: Usage::default(),
        left_processes: 0,
        stdout_bytes,
        stderr_bytes,
        cgroup: CgroupCounts::default(),
        oom_kills_before: None,
    }
}

fn data(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 1..200), 1 => vec(any::<u8>(), most..=most)]
}

fn path() -> impl Strategy<Value = String> {
    vec("[a-z .\u{e9}]{1,9}", 1..4)
        .prop_map(|parts| parts.join("/"))
        .prop_filter("dots alone", |path| {
            !path.split('/').any(|part| part == "." || part == "..")
        })
}

fn any_name() -> impl Strategy<Value = FileName> {
    vec(any::<u8>(), 1..30).prop_filter_map("a way out", FileName::new)
}

fn any_connection() -> impl Strategy<Value = StreamId> {
    (StreamId::FIRST_TUNNEL.0..).prop_map(StreamId)
}

fn any_tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        data(MAX_DATA).prop_map(Tunnel::Data),
        Just(Tunnel::End),
        Just(Tunnel::Reset),
        (1..=MAX_WINDOW).prop_map(Tunnel::Credit),
    ]
}

pub(crate) fn any_to_guest() -> impl Strategy<Value = ToGuest> {
    let job = (
        vec(".{0,20}", 1..5),
        vec((".{0,9}", ".{0,9}"), 0..4),
        any::<u32>(),
        any::<bool>(),
    );
    let order = (
        vec(".{0,20}", 0..5),
        vec((".{0,9}", ".{0,9}"), 0..4),
        any::<u64>(),
    );
    prop_oneof![
        order.prop_map(|(argv, env, limit_ms)| ToGuest::Warm(WarmOrder {
            argv,
            env,
            limit_ms,
            ..warm_order()
        })),
        job.prop_map(|(argv, env, files, stdin)| ToGuest::Job(Job {
            argv,
            env,
            deadline_ms: u64::from(files) << 20,
            rlimits: vec![JobRlimit {
                resource: Resource::Nofile,
                limit: Some(u64::MAX)
            }],
            warm: !stdin,
            collects: stdin,
            egress: !stdin,
            ..self::job(files, stdin)
        })),
        (path(), 0_u32..=0o777, any::<u64>()).prop_map(|(path, mode, size)| ToGuest::File(FileHeader {
            path,
            mode,
            size
        })),
        data(MAX_PAYLOAD).prop_map(ToGuest::FileData),
        Just(ToGuest::FileEnd),
        Just(ToGuest::Start),
        data(MAX_DATA).prop_map(ToGuest::Stdin),
        Just(ToGuest::StdinClose),
        (vec(".{0,20}", 0..5), any::<u32>(), any::<u64>()).prop_map(|(globs, max_files, max_bytes)| {
            ToGuest::Collect(CollectOrder {
                globs,
                max_files,
                max_bytes,
                ..collect_order()
            })
        }),
        Just(ToGuest::Kill),
        Just(ToGuest::Alive),
        (
            1..=MAX_WINDOW,
            prop::sample::select(vec![StreamId::STDOUT, StreamId::STDERR, StreamId::ARTIFACTS])
        )
            .prop_map(|(bytes, stream)| ToGuest::Credit { stream, bytes }),
        (any_connection(), any_tunnel()).prop_map(|(stream, frame)| ToGuest::Tunnel { stream, frame }),
    ]
}

pub(crate) fn any_from_guest() -> impl Strategy<Value = FromGuest> {
    let how = prop_oneof![
        any::<u8>().prop_map(Ended::Code),
        any::<u8>().prop_map(Ended::Signal)
    ];
    let counts = (any::<u64>(), any::<Option<u64>>(), any::<bool>());
    prop_oneof![
        ".{0,30}".prop_map(|build| { FromGuest::Ready(Box::new(ReadyReport { build, ..report() })) }),
        any_use().prop_map(started_by),
        any::<u64>().prop_map(|boot_us| FromGuest::Warmed(Warmed { boot_us })),
        (".{0,2000}", any::<bool>())
            .prop_map(|(reason, memory)| FromGuest::WarmFailed(WarmFailed::new(reason, memory))),
        data(MAX_DATA).prop_map(FromGuest::Stdout),
        data(MAX_DATA).prop_map(FromGuest::Stderr),
        (how, counts).prop_map(|(how, (bytes, oom_kills, deadline_fired))| {
            FromGuest::Exit(Exit {
                how,
                deadline_fired,
                cgroup: CgroupCounts {
                    oom_kills,
                    ..CgroupCounts::default()
                },
                usage: Usage {
                    utime_us: bytes,
                    ..Usage::default()
                },
                oom_kills_before: oom_kills,
                ..exit(bytes, 0)
            })
        }),
        (any::<Option<i32>>(), ".{0,2000}").prop_map(|(errno, detail)| FromGuest::Refused(Refused::new(
            Stage::File,
            errno,
            detail
        ))),
        (1..=MAX_WINDOW).prop_map(|bytes| FromGuest::Credit { bytes }),
        (any_name(), any::<u64>())
            .prop_map(|(name, size)| FromGuest::Artifact(ArtifactHeader { name, size })),
        data(MAX_DATA).prop_map(FromGuest::ArtifactData),
        any::<Option<i32>>().prop_map(|errno| FromGuest::ArtifactEnd(ArtifactEnd { errno })),
        (any_name(), any::<Option<u64>>()).prop_map(|(name, size)| {
            FromGuest::LeftOut(LeftOut {
                name,
                why: LeftOutWhy::Link,
                size,
                errno: None,
            })
        }),
        any_connection().prop_map(|stream| FromGuest::TunnelOpen { stream }),
        (any_connection(), any_tunnel()).prop_map(|(stream, frame)| FromGuest::Tunnel { stream, frame }),
        (any::<u32>(), any::<bool>()).prop_map(|(entries, incomplete)| {
            FromGuest::Collected(Collected {
                entries,
                not_named: 0,
                incomplete,
            })
        }),
    ]
}
