//! Live probes: what the kernel, or the filter in front of it, answers to this process.
//!
//! Made in a child that has become the job's user and ends right after, so that what a probe
//! changes is gone with it. No argument points to memory but where said.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use mayfly_protocol::{Answer, MARKER_PERSONA, Probe};

use super::Errno;

/// Bit that the kernel drops from an `int` argument and a filter that compares 64 bits sees.
const BIT_32: i64 = 1 << 32;

/// `TCP_ULP` of `linux/tcp.h`.
const TCP_ULP: i64 = 31;
/// `PTRACE_SEIZE` of `linux/ptrace.h`: attaches without stopping.
const PTRACE_SEIZE: i64 = 0x4206;
/// `BPF_PROG_LOAD` of `linux/bpf.h`.
const BPF_PROG_LOAD: i64 = 5;
/// `KEY_SPEC_SESSION_KEYRING` of `linux/keyctl.h`.
const KEY_SPEC_SESSION_KEYRING: i64 = -3;

/// What `personality` answers to the marker.
pub(crate) fn marker() -> Answer {
    call(libc::SYS_personality, [i64::from(MARKER_PERSONA), 0, 0, 0, 0])
}

/// Makes one probe. `scratch` is a path in a directory that the job may write to; it is gone after.
pub(crate) fn probe(probe: Probe, scratch: &CStr) -> Answer {
    match probe {
        Probe::SocketAlg => socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0, 0),
        Probe::SocketAlgBit32 => socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0, BIT_32),
        Probe::SocketVsock => socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0, 0),
        Probe::SocketVsockBit32 => socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0, BIT_32),
        Probe::SocketRxrpc => socket(libc::AF_RXRPC, libc::SOCK_DGRAM, libc::AF_INET, 0),
        Probe::SocketNetlink => socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, 0),
        Probe::SocketPacket => socket(libc::AF_PACKET, libc::SOCK_RAW, 0, 0),
        Probe::SocketInetStream => socket(libc::AF_INET, libc::SOCK_STREAM, 0, 0),
        Probe::SocketInetDatagram => socket(libc::AF_INET, libc::SOCK_DGRAM, 0, 0),
        Probe::SocketInetRaw => socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP, 0),
        Probe::SocketInet6Stream => socket(libc::AF_INET6, libc::SOCK_STREAM, 0, 0),
        Probe::SocketUnix => socket(libc::AF_UNIX, libc::SOCK_STREAM, 0, 0),
        Probe::TcpUlp => tcp_ulp(TCP_ULP),
        Probe::TcpUlpBit32 => tcp_ulp(TCP_ULP | BIT_32),
        Probe::IoUringSetup => call_fd(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        Probe::Keyctl => call(libc::SYS_keyctl, [0, KEY_SPEC_SESSION_KEYRING, 0, 0, 0]),
        Probe::AddKey => call(libc::SYS_add_key, [0; 5]),
        Probe::Mount => call(libc::SYS_mount, [0; 5]),
        Probe::Fsopen => call_fd(libc::SYS_fsopen, [0; 5]),
        Probe::UnshareUser => call(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0]),
        Probe::UnshareMount => call(libc::SYS_unshare, [libc::CLONE_NEWNS.into(), 0, 0, 0, 0]),
        Probe::Clone3 => call(libc::SYS_clone3, [0; 5]),
        Probe::Bpf => call_fd(libc::SYS_bpf, [BPF_PROG_LOAD, 0, 0, 0, 0]),
        Probe::PerfEventOpen => call_fd(libc::SYS_perf_event_open, [0, 0, -1, -1, 0]),
        Probe::PtraceInit => call(libc::SYS_ptrace, [PTRACE_SEIZE, 1, 0, 0, 0]),
        Probe::ProcessVmReadvInit => read_init(),
        Probe::Splice => call(libc::SYS_splice, [-1, 0, -1, 0, 1]),
        Probe::Tee => call(libc::SYS_tee, [-1, -1, 1, 0, 0]),
        Probe::Vmsplice => call(libc::SYS_vmsplice, [-1, 0, 0, 0, 0]),
        Probe::Sendfile => call(libc::SYS_sendfile, [-1, -1, 0, 1, 0]),
        Probe::MknodFifo => mknod(scratch, libc::S_IFIFO | 0o600, 0),
        Probe::MknodDevice => mknod(scratch, libc::S_IFCHR | 0o600, libc::makedev(1, 3)),
        Probe::Userfaultfd => call_fd(libc::SYS_userfaultfd, [libc::O_NONBLOCK.into(), 0, 0, 0, 0]),
        Probe::OpenByHandleAt => call_fd(libc::SYS_open_by_handle_at, [libc::AT_FDCWD.into(), 0, 0, 0, 0]),
        Probe::KillInit => call(libc::SYS_kill, [1, 0, 0, 0, 0]),
        Probe::PrlimitInit => prlimit_init(),
        Probe::OpenInitStdout => open(c"/proc/1/fd/1", libc::O_WRONLY),
        Probe::OpenInitStdin => open(c"/proc/1/fd/0", libc::O_RDONLY),
        Probe::OpenCgroups => open_cgroups(),
    }
}

/// Makes a call none of whose arguments is a pointer that the kernel could follow.
fn call(number: libc::c_long, [a, b, c, d, e]: [i64; 5]) -> Answer {
    // SAFETY: every caller passes integers, null pointers and bad descriptors only, so the kernel
    // reads and writes no memory of this process.
    answer(unsafe { libc::syscall(number, a, b, c, d, e, 0_i64) })
}

/// The same for a call that makes a descriptor, which is closed again.
fn call_fd(number: libc::c_long, arguments: [i64; 5]) -> Answer {
    let made = call(number, arguments);
    drop(own(made));
    made
}

fn answer(returned: libc::c_long) -> Answer {
    if returned < 0 {
        Answer::Errno(Errno::last().0)
    } else {
        Answer::Returned(returned)
    }
}

fn own(answer: Answer) -> Option<OwnedFd> {
    match answer {
        // SAFETY: the call has just made this descriptor and nothing else owns it.
        Answer::Returned(fd) => i32::try_from(fd)
            .ok()
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
        Answer::Errno(_) | Answer::NotTried => None,
    }
}

/// `socket` with bits added to its family.
fn socket(family: i32, kind: i32, protocol: i32, bits: i64) -> Answer {
    call_fd(
        libc::SYS_socket,
        [i64::from(family) | bits, kind.into(), protocol.into(), 0, 0],
    )
}

fn tcp_ulp(option: i64) -> Answer {
    let made = call(
        libc::SYS_socket,
        [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0, 0, 0],
    );
    let Some(socket) = own(made) else {
        return Answer::NotTried;
    };
    let name = b"tls";
    // SAFETY: the kernel reads 3 bytes of the name, which outlives the call.
    answer(unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            i64::from(socket.as_raw_fd()),
            i64::from(libc::IPPROTO_TCP),
            option,
            name.as_ptr(),
            3_i64,
        )
    })
}

/// Reads one byte of pid 1, of which this process is a copy: the address of the byte is the same.
fn read_init() -> Answer {
    static BYTE: u8 = 1;
    let mut into = 0_u8;
    let local = libc::iovec {
        iov_base: (&raw mut into).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: (&raw const BYTE).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: the kernel writes one byte into `into`; the remote address is only read, elsewhere.
    answer(unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            1_i64,
            &raw const local,
            1_i64,
            &raw const remote,
            1_i64,
            0_i64,
        )
    })
}

fn prlimit_init() -> Answer {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let number = i64::from(libc::RLIMIT_NOFILE);
    // SAFETY: the kernel writes the old limit; no new one is given.
    answer(unsafe { libc::syscall(libc::SYS_prlimit64, 1_i64, number, 0_i64, &raw mut limit) })
}

fn open(path: &CStr, flags: i32) -> Answer {
    let flags = i64::from(flags | libc::O_NONBLOCK | libc::O_CLOEXEC);
    // SAFETY: the path ends with a NUL and outlives the call.
    let opened = answer(unsafe {
        libc::syscall(
            libc::SYS_openat,
            i64::from(libc::AT_FDCWD),
            path.as_ptr(),
            flags,
            0_i64,
        )
    });
    drop(own(opened));
    opened
}

/// All of `/sys/fs/cgroup` down to the files of each hierarchy of version 1.
fn open_cgroups() -> Answer {
    let mut answers = Vec::new();
    match try_all_in(Path::new("/sys/fs/cgroup"), 2, &mut answers) {
        Ok(()) => sum_up(&answers),
        // What can't be listed was not tried.
        Err(_) => Answer::NotTried,
    }
}

/// One answer for many: how many were open, or what says most of why none was.
fn sum_up(answers: &[Answer]) -> Answer {
    let open = answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Returned(_)))
        .count();
    if open > 0 {
        return Answer::Returned(i64::try_from(open).unwrap_or(i64::MAX));
    }
    let usual = [libc::EACCES, libc::EROFS].map(Answer::Errno);
    let odd = answers.iter().find(|answer| !usual.contains(answer));
    *odd.or(answers.first()).unwrap_or(&Answer::NotTried)
}

/// Tries a folder and what is in it, down to so many folders deep. Links lead to what is tried anyway.
fn try_all_in(folder: &Path, depth: u32, answers: &mut Vec<Answer>) -> std::io::Result<()> {
    answers.push(may_write(&path_of(folder.into())?));
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() {
            answers.push(open(&path_of(entry.path())?, libc::O_WRONLY));
        } else if kind.is_dir() && depth > 1 {
            try_all_in(&entry.path(), depth - 1, answers)?;
        }
    }
    Ok(())
}

fn path_of(path: PathBuf) -> std::io::Result<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}

/// Whether this process, whose real ids are its effective ones, may write to it.
fn may_write(path: &CStr) -> Answer {
    // SAFETY: the path ends with a NUL and outlives the call.
    answer(unsafe {
        libc::syscall(
            libc::SYS_faccessat,
            i64::from(libc::AT_FDCWD),
            path.as_ptr(),
            i64::from(libc::W_OK),
        )
    })
}

fn mknod(path: &CStr, mode: u32, device: libc::dev_t) -> Answer {
    // SAFETY: the path ends with a NUL and outlives the call.
    let made = answer(unsafe {
        libc::syscall(
            libc::SYS_mknodat,
            i64::from(libc::AT_FDCWD),
            path.as_ptr(),
            i64::from(mode),
            device,
        )
    });
    if matches!(made, Answer::Returned(_)) {
        // SAFETY: as above.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_open_is_not_hidden_by_many_that_are_not() {
        use Answer::{Errno, NotTried, Returned};
        for (answers, told) in [
            (vec![], NotTried),
            (vec![Errno(libc::EACCES), Errno(libc::EROFS)], Errno(libc::EACCES)),
            (
                vec![Errno(libc::EROFS), Errno(libc::EPERM), Errno(libc::EACCES)],
                Errno(libc::EPERM),
            ),
            (
                vec![Errno(libc::EACCES), Returned(3), Errno(libc::EIO), Returned(0)],
                Returned(2),
            ),
        ] {
            assert_eq!(sum_up(&answers), told, "{answers:?}");
        }
    }

    #[test]
    fn files_and_folders_are_tried_two_folders_deep() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("memory/deeper")).unwrap();
        for file in ["tasks", "memory/limit", "memory/deeper/limit"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("memory", folder.path().join("link")).unwrap();
        let mut answers = Vec::new();
        try_all_in(folder.path(), 2, &mut answers).unwrap();
        // Two folders and the file in each of them.
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert_eq!(sum_up(&answers), Answer::Returned(4));
        assert!(try_all_in(&folder.path().join("none"), 2, &mut answers).is_err());
    }
}
