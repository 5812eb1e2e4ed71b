//! The table of the self-test. Programs stand beside it, as `NAME.py`; the first lines of all are `prelude.py`.

use mayfly_core::{
    limits::LimitsAsked,
    units::{ByteSize, CpuShare, Span},
};

use super::{Answer, ByRuntime, End, Expected, Probe};

/// In front of each program.
pub(super) const PRELUDE: &str = include_str!("prelude.py");

/// Processes that a probe may have.
const PIDS: u32 = 16;
/// Size of `/work`.
const WORK: ByteSize = ByteSize::mib(2);
/// Size of `/tmp`.
const TMP: ByteSize = ByteSize::mib(1);
/// Size of `/dev/shm`.
const SHM: ByteSize = ByteSize::kib(256);
/// Pages of 4 KiB in it, which is how many files it may hold.
const WORK_FILES: u64 = WORK.as_bytes() / 4096;
/// The same for `/tmp`.
const TMP_FILES: u64 = TMP.as_bytes() / 4096;

/// Small, so that reaching them takes no time, and a host without them is not harmed.
const LIMITS: LimitsAsked = LimitsAsked {
    memory: Some(ByteSize::mib(64)),
    cpu: Some(CpuShare::millis(1000)),
    pids: Some(PIDS),
    wall: Some(Span::seconds(15)),
    work: Some(WORK),
    tmp: Some(TMP),
    shm: Some(SHM),
    stdout: Some(ByteSize::kib(16)),
    stderr: Some(ByteSize::kib(16)),
    open_files: Some(256),
};

/// At its end a run has used up this much of the wall clock, and no more.
const SHORT: LimitsAsked = LimitsAsked {
    wall: Some(Span::seconds(1)),
    ..LIMITS
};

/// gVisor's own account of a process counts against the memory: here it is the number that is tried.
const ROOMY: LimitsAsked = LimitsAsked {
    memory: Some(ByteSize::mib(256)),
    ..LIMITS
};

const fn both(name: &'static str, answer: Answer) -> Expected {
    Expected {
        name,
        answer: ByRuntime::same(answer),
    }
}

const fn on(name: &'static str, runc: Answer, runsc: Answer) -> Expected {
    Expected {
        name,
        answer: ByRuntime { runc, runsc },
    }
}

use Answer::{AtMost, Exactly, Free, Refused};

/// Every probe, in the order in which they are run.
pub const ALL: &[Probe] = &[
    Probe {
        id: "privileges",
        tries: "become another user, gain capabilities and groups",
        program: include_str!("privileges.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("root", Exactly("no")),
            both("groups", Exactly("none")),
            both("capabilities", Exactly("none")),
            on("new_privileges", Exactly("no"), Free),
            on("filter", Exactly("yes"), Free),
            both("setuid", Refused),
            both("setgid", Refused),
            both("capset", Refused),
            both("chown", Refused),
        ],
    },
    Probe {
        id: "fork_bomb",
        tries: "have more processes than its limit, with every signal ignored",
        program: include_str!("fork_bomb.py"),
        limits: ROOMY,
        ends: ByRuntime::same(End::Counted),
        answers: &[
            // gVisor lets one more be made before it counts.
            on("held", AtMost(PIDS as u64), AtMost(PIDS as u64 + 1)),
            both("stopped_by", Exactly("EAGAIN")),
        ],
    },
    Probe {
        id: "memory",
        tries: "take four times its memory",
        program: include_str!("memory.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::OutOfMemory),
        answers: &[],
    },
    Probe {
        id: "disk",
        tries: "write more than its file systems hold, and anywhere else",
        program: include_str!("disk.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("/work", AtMost(WORK.as_bytes())),
            both("/tmp", AtMost(TMP.as_bytes())),
            both("/dev/shm", AtMost(SHM.as_bytes())),
            both("elsewhere", Refused),
        ],
    },
    Probe {
        id: "files",
        tries: "make more files than its file systems may hold",
        program: include_str!("files.py"),
        limits: LIMITS,
        ends: ByRuntime {
            runc: End::Itself,
            runsc: End::ItselfOrOutOfMemory,
        },
        answers: &[
            on("/work", AtMost(WORK_FILES), Free),
            on("/tmp", AtMost(TMP_FILES), Free),
        ],
    },
    Probe {
        id: "kernel_files",
        tries: "change any file below /proc and /sys, but its own",
        program: include_str!("kernel_files.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[both("opened", Exactly("none")), both("folders", Refused)],
    },
    Probe {
        id: "network",
        tries: "find a network card, and reach the address of cloud metadata",
        program: include_str!("network.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[both("cards", Exactly("lo")), both("metadata", Refused)],
    },
    Probe {
        id: "sockets",
        tries: "raw and packet sockets; AF_ALG, VSOCK and other families of the kernel",
        program: include_str!("sockets.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("raw", Refused),
            both("packet", Refused),
            both("alg", Refused),
            both("vsock", Refused),
            on("netlink", Refused, Free),
            both("rare", Refused),
        ],
    },
    Probe {
        id: "kernel_calls",
        tries: "io_uring, keyrings, bpf, perf, namespaces, mounts, modules",
        program: include_str!("kernel_calls.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            on("io_uring", Refused, Free),
            on("keyrings", Refused, Free),
            both("bpf", Refused),
            on("perf", Refused, Free),
            on("userfaultfd", Refused, Free),
            on("user_namespace", Refused, Free),
            on("mount_namespace", Refused, Free),
            both("pid_namespace", Refused),
            both("net_namespace", Refused),
            both("mount", Refused),
            both("umount", Refused),
            both("chroot", Refused),
            both("pivot_root", Refused),
            both("modules", Refused),
        ],
    },
    Probe {
        id: "frame_forging",
        tries: "write the guest's last frame into its channel",
        program: include_str!("frame_forging.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[both("channel", Refused), both("taken", Refused)],
    },
    Probe {
        id: "guest_memory",
        tries: "trace, read and write the guest",
        program: include_str!("guest_memory.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("ptrace", Refused),
            both("memory", Refused),
            both("vm_read", Refused),
            both("vm_write", Refused),
            both("limits", Refused),
        ],
    },
    Probe {
        id: "guest_signals",
        tries: "kill and stop the guest, by every signal",
        program: include_str!("guest_signals.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("kill", Refused),
            both("tgkill", Refused),
            both("pidfd", Refused),
        ],
    },
    Probe {
        id: "processes",
        tries: "see the processes of others, and read what the guest has open",
        program: include_str!("processes.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            both("others", Exactly("none")),
            on("secrets", Refused, Free),
            both("folders", Refused),
            on("descriptors", Refused, Free),
        ],
    },
    Probe {
        id: "guest_volume",
        tries: "change or replace the guest's program",
        program: include_str!("guest_volume.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[both("program", Refused), both("folder", Refused)],
    },
    Probe {
        id: "devices",
        tries: "make and open devices of the host, and the engine's socket",
        program: include_str!("devices.py"),
        limits: LIMITS,
        ends: ByRuntime::same(End::Itself),
        answers: &[
            on("made", Refused, Free),
            both("opened", Refused),
            both("present", Refused),
            on("tun", Refused, Free),
            both("engine", Refused),
        ],
    },
    Probe {
        id: "output_flood",
        tries: "print without end",
        program: include_str!("output_flood.py"),
        limits: SHORT,
        ends: ByRuntime::same(End::Deadline),
        answers: &[],
    },
    Probe {
        id: "deadline",
        tries: "go on after its time, in children that ignore every signal",
        program: include_str!("deadline.py"),
        limits: SHORT,
        ends: ByRuntime::same(End::Deadline),
        answers: &[],
    },
];
