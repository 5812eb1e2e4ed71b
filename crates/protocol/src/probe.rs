//! Live probes: calls that a sandbox has to refuse, made from inside of it.

use serde::{Deserialize, Serialize};

/// What a system call answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It succeeded with this value.
    Returned(i64),
    /// It failed with this `errno`.
    Errno(i32),
    /// It was not made: what it needs could not be had.
    NotTried,
}

/// A live probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeResult {
    /// Which.
    pub probe: Probe,
    /// What the kernel answered.
    pub answer: Answer,
}

/// The live probes. Each is made with arguments that would work, or would fail in a way that only
/// the kernel's own code does, so that a filter's answer can be told from the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// `socket(AF_ALG, SOCK_SEQPACKET, 0)`.
    SocketAlg,
    /// The same with bit 32 of the family set, which the kernel ignores and a careless filter doesn't.
    SocketAlgBit32,
    /// `socket(AF_VSOCK, SOCK_STREAM, 0)`.
    SocketVsock,
    /// The same with bit 32 of the family set.
    SocketVsockBit32,
    /// `socket(AF_RXRPC, SOCK_DGRAM, AF_INET)`.
    SocketRxrpc,
    /// `socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)`.
    SocketNetlink,
    /// `socket(AF_PACKET, SOCK_RAW, 0)`.
    SocketPacket,
    /// `socket(AF_INET, SOCK_STREAM, 0)`.
    SocketInetStream,
    /// `socket(AF_INET, SOCK_DGRAM, 0)`.
    SocketInetDatagram,
    /// `socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)`.
    SocketInetRaw,
    /// `socket(AF_INET6, SOCK_STREAM, 0)`.
    SocketInet6Stream,
    /// `socket(AF_UNIX, SOCK_STREAM, 0)`.
    SocketUnix,
    /// `setsockopt(IPPROTO_TCP, TCP_ULP, "tls")` on an `AF_INET` stream, where one could be made.
    TcpUlp,
    /// The same with bit 32 of the option's number set.
    TcpUlpBit32,
    /// `io_uring_setup(1, NULL)`.
    IoUringSetup,
    /// `keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0)`.
    Keyctl,
    /// `add_key` with no type: `EFAULT` from the kernel itself.
    AddKey,
    /// `mount` with no path: `EFAULT` from the kernel itself.
    Mount,
    /// `fsopen(NULL, 0)`, of the new mount API.
    Fsopen,
    /// `clone3(NULL, 0)`.
    Clone3,
    /// `bpf(BPF_PROG_LOAD, NULL, 0)`.
    Bpf,
    /// `perf_event_open(NULL, 0, -1, -1, 0)`.
    PerfEventOpen,
    /// `ptrace(PTRACE_SEIZE, 1)`, which would not stop it.
    PtraceInit,
    /// `process_vm_readv` of one byte of pid 1.
    ProcessVmReadvInit,
    /// `splice` between two bad descriptors.
    Splice,
    /// `tee` between two bad descriptors.
    Tee,
    /// `vmsplice` to a bad descriptor.
    Vmsplice,
    /// `sendfile` between two bad descriptors.
    Sendfile,
    /// `mknodat` of a FIFO in the work directory, removed again.
    MknodFifo,
    /// `mknodat` of the device 1:3 in the work directory, removed again.
    MknodDevice,
    /// `userfaultfd(O_NONBLOCK)`.
    Userfaultfd,
    /// `open_by_handle_at` with no handle.
    OpenByHandleAt,
    /// `kill(1, 0)`.
    KillInit,
    /// `prlimit64(1, RLIMIT_NOFILE, NULL, …)`.
    PrlimitInit,
    /// `openat` of `/proc/1/fd/1` for writing.
    OpenInitStdout,
    /// `openat` of `/proc/1/fd/0` for reading.
    OpenInitStdin,
    /// `openat` for writing of every file in `/sys/fs/cgroup` and in the folders in it, and `faccessat(W_OK)` of the
    /// folders: how many are open to the job. Where none is, an answer other than `EACCES` and `EROFS` if there is one, and
    /// one of these two otherwise. Not tried where there is nothing, or what there is can't be listed.
    OpenCgroups,
    /// `unshare(CLONE_NEWNS)`.
    UnshareMount,
    /// `unshare(CLONE_NEWUSER)`. Last, for where it succeeds all capabilities come with it.
    UnshareUser,
}

impl Probe {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 39] = [
        Self::SocketAlg,
        Self::SocketAlgBit32,
        Self::SocketVsock,
        Self::SocketVsockBit32,
        Self::SocketRxrpc,
        Self::SocketNetlink,
        Self::SocketPacket,
        Self::SocketInetStream,
        Self::SocketInetDatagram,
        Self::SocketInetRaw,
        Self::SocketInet6Stream,
        Self::SocketUnix,
        Self::TcpUlp,
        Self::TcpUlpBit32,
        Self::IoUringSetup,
        Self::Keyctl,
        Self::AddKey,
        Self::Mount,
        Self::Fsopen,
        Self::Clone3,
        Self::Bpf,
        Self::PerfEventOpen,
        Self::PtraceInit,
        Self::ProcessVmReadvInit,
        Self::Splice,
        Self::Tee,
        Self::Vmsplice,
        Self::Sendfile,
        Self::MknodFifo,
        Self::MknodDevice,
        Self::Userfaultfd,
        Self::OpenByHandleAt,
        Self::KillInit,
        Self::PrlimitInit,
        Self::OpenInitStdout,
        Self::OpenInitStdin,
        Self::OpenCgroups,
        Self::UnshareMount,
        Self::UnshareUser,
    ];
}
