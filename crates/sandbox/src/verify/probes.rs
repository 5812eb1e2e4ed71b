//! Live probes: what the kernel and the filter in front of it answer to the job.

use std::collections::BTreeMap;

use mayfly_protocol::{Answer, MARKER_ERRNO, Probe, ProbeResult};

use super::{Findings, report::Expected, tables::Table};
use crate::seam::Loopback;

/// Numbers of errno(3) on Linux.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;

/// What a probe has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It succeeds: a job needs it.
    Works,
    /// It is refused with this errno.
    Refused(i32),
    /// It is refused by the mode of what it wants, or by a mount that is read-only.
    NotWritable,
    /// It can't be tried, since what it needs is refused.
    NotTried,
    /// It may answer anything: what stands behind it is not the host's kernel.
    Free,
}

impl Asked {
    fn accepts(self, answer: Answer) -> bool {
        match self {
            Self::Works => matches!(answer, Answer::Returned(_)),
            Self::Refused(errno) => answer == Answer::Errno(errno),
            Self::NotWritable => [EACCES, EROFS].map(Answer::Errno).contains(&answer),
            Self::NotTried => answer == Answer::NotTried,
            Self::Free => true,
        }
    }
}

pub(super) fn check(f: &mut Findings, expected: &Expected<'_>, marker: Answer, found: &[ProbeResult]) {
    if expected.table() == Table::HostKernel {
        // The answer of this very filter, which no kernel gives.
        f.equal("marker", &Answer::Errno(MARKER_ERRNO), &marker);
    }
    let mut answers = BTreeMap::new();
    for ProbeResult { probe, answer } in found {
        let name = name(*probe);
        let field = format!("probes[{name}]");
        let first = answers.insert(name, *answer).is_none();
        f.expect(first, &field, || "one answer".to_owned(), || "two".to_owned());
    }
    for probe in Probe::ALL {
        let name = name(probe);
        let asked = match expected.table() {
            Table::HostKernel => host_kernel(probe, expected.request.loopback),
            Table::Gvisor => gvisor(probe, expected.request.loopback),
        };
        let answer = answers.get(&name).copied();
        f.expect(
            answer.is_some_and(|answer| asked.accepts(answer)),
            &format!("probes[{name}]"),
            || format!("{asked:?}"),
            || format!("{answer:?}"),
        );
    }
}

/// The probe's name on the wire.
fn name(probe: Probe) -> String {
    serde_json::to_value(probe)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// The filter's answers, and the kernel's where the two users are what refuses.
fn host_kernel(probe: Probe, loopback: Loopback) -> Asked {
    match (probe, loopback) {
        (
            Probe::SocketInetStream
            | Probe::SocketInetDatagram
            | Probe::SocketInet6Stream
            | Probe::SocketNetlink,
            Loopback::Open,
        ) => return Asked::Works,
        // There is something to try it on now.
        (Probe::TcpUlp | Probe::TcpUlpBit32, Loopback::Open) => return Asked::Refused(EPERM),
        _ => {}
    }
    match probe {
        Probe::SocketUnix | Probe::MknodFifo => Asked::Works,
        Probe::Clone3 => Asked::Refused(ENOSYS),
        Probe::Sendfile => Asked::Refused(EINVAL),
        Probe::OpenInitStdout | Probe::OpenInitStdin => Asked::Refused(EACCES),
        // Where users are mapped the mounts of control groups are not read-only.
        Probe::OpenCgroups => Asked::NotWritable,
        Probe::TcpUlp | Probe::TcpUlpBit32 => Asked::NotTried,
        Probe::SocketAlg
        | Probe::SocketAlgBit32
        | Probe::SocketVsock
        | Probe::SocketVsockBit32
        | Probe::SocketRxrpc
        | Probe::SocketNetlink
        | Probe::SocketPacket
        | Probe::SocketInetStream
        | Probe::SocketInetDatagram
        | Probe::SocketInetRaw
        | Probe::SocketInet6Stream
        | Probe::IoUringSetup
        | Probe::Keyctl
        | Probe::AddKey
        | Probe::Mount
        | Probe::Fsopen
        | Probe::UnshareUser
        | Probe::UnshareMount
        | Probe::Bpf
        | Probe::PerfEventOpen
        | Probe::PtraceInit
        | Probe::ProcessVmReadvInit
        | Probe::Splice
        | Probe::Tee
        | Probe::Vmsplice
        | Probe::MknodDevice
        | Probe::Userfaultfd
        | Probe::OpenByHandleAt
        | Probe::KillInit
        | Probe::PrlimitInit => Asked::Refused(EPERM),
    }
}

/// gVisor's kernel serves these calls, and what it lets through ends in it: user namespaces, sockets, its own devices.
/// What keeps the job from the guest has to hold there too.
fn gvisor(probe: Probe, loopback: Loopback) -> Asked {
    if let (Probe::SocketInetStream, Loopback::Open) = (probe, loopback) {
        return Asked::Works;
    }
    match probe {
        Probe::SocketUnix | Probe::MknodFifo => Asked::Works,
        Probe::OpenInitStdout | Probe::OpenInitStdin => Asked::Refused(EACCES),
        Probe::Bpf
        | Probe::KillInit
        | Probe::Mount
        | Probe::PrlimitInit
        | Probe::PtraceInit
        | Probe::SocketInetRaw
        | Probe::SocketPacket => Asked::Refused(EPERM),
        Probe::SocketAlg
        | Probe::SocketAlgBit32
        | Probe::SocketVsock
        | Probe::SocketVsockBit32
        | Probe::SocketRxrpc
        | Probe::SocketNetlink
        | Probe::SocketInetStream
        | Probe::SocketInetDatagram
        | Probe::SocketInet6Stream
        | Probe::TcpUlp
        | Probe::TcpUlpBit32
        | Probe::IoUringSetup
        | Probe::Keyctl
        | Probe::AddKey
        | Probe::Fsopen
        | Probe::UnshareUser
        | Probe::UnshareMount
        | Probe::Clone3
        | Probe::PerfEventOpen
        | Probe::ProcessVmReadvInit
        | Probe::Splice
        | Probe::Tee
        | Probe::Vmsplice
        | Probe::Sendfile
        | Probe::MknodDevice
        | Probe::Userfaultfd
        | Probe::OpenByHandleAt
        | Probe::OpenCgroups => Asked::Free,
    }
}
