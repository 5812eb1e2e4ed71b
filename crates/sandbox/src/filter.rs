//! The syscall filter: a seccomp profile in the form that Docker and Podman take (moby `profiles/seccomp`; the
//! rules become those of the OCI runtime specification, "Seccomp").
//!
//! [`profile`] is a pure function. What is not named in a profile is refused with `EPERM`. What is allowed stands in
//! `filter/allow.rs`, what is allowed for some arguments only in `filter/arguments.rs` and `filter/sockets.rs`, what
//! has an answer other than `EPERM` in `filter/answer.rs`; each list says why.
//!
//! | refused | answer | why |
//! |---|---|---|
//! | another ABI: `int 0x80`, x32, 32-bit ARM | the thread is killed, `SIGSYS` | its numbers and `socketcall` pass by every rule that looks at arguments |
//! | `clone3` | `ENOSYS` | its flags lie in memory, where a filter can't look; the C library takes `clone` then |
//! | `clone` with a `CLONE_NEW*` flag, `unshare`, `setns` | `EPERM` | a user namespace opens most of the kernel's privileged code to everybody |
//! | `mount`, `umount2`, `pivot_root`, `chroot`, `fsopen`, `open_tree`, `mount_setattr` … | `EPERM` | the file systems are ours |
//! | `io_uring_*` | `EPERM` | its operations pass by this filter |
//! | `io_setup` and the other calls of Linux AIO | `ENOSYS` | `fs.aio-max-nr` is one number for the whole host |
//! | `splice`, `tee`, `vmsplice` | `EPERM` | put pages of files into pipes: the ground of a class of page cache writes |
//! | `sendfile` | `EINVAL` | the same; with `EINVAL` every program that was tried copies by itself |
//! | socket families other than the listed, protocols other than TCP and UDP | `EPERM` | `AF_ALG`, `AF_VSOCK`, `AF_RXRPC`, SCTP, SMC … are kernel code that nothing here needs |
//! | `setsockopt` beyond a list: `TCP_ULP`, BPF, multicast, zero copy | `EPERM` | kernel TLS, programs in the kernel, IGMP, pinned pages |
//! | `MSG_OOB` | `EPERM` | out-of-band data of `AF_UNIX` sockets: a series of use-after-free faults |
//! | `keyctl`, `add_key`, `request_key` | `EPERM` | keyrings know no containers |
//! | `bpf`, `perf_event_open`, `userfaultfd`, `kexec_*`, `*_module`, `memfd_secret` | `EPERM` | kernel surface, and tools to exploit the rest of it |
//! | `ptrace`, `process_vm_*`, `pidfd_getfd`, `kcmp`, `process_madvise` | `EPERM` | reach into other processes |
//! | `name_to_handle_at`, `open_by_handle_at`, `fanotify_*` | `EPERM` | files outside of what the mounts show |
//! | `mknod` of a device | `EPERM` | FIFOs, sockets and regular files are allowed: `mkfifo(3)` is this call |
//! | `madvise(MADV_MERGEABLE)`, `prctl` and `arch_prctl` beyond a list | `EPERM` | merged pages tell one container what is in another's memory; the rest is unused surface |
//! | `personality` beyond 0, `ADDR_NO_RANDOMIZE` and the query | `EPERM` | old personalities weaken address randomisation and memory protection |
//! | clocks, host name, swap, reboot, quota, accounting, kernel log, I/O ports, LDT, NUMA policy | `EPERM` | belong to the host |
//! | `cachestat`, `statmount`, `listmount`, `lsm_*`, … | `ENOSYS` | too new to be needed; where a name is unknown to the runtime the answer is the same |
//! | `sync`, `syncfs` | success, no effect | would flush the whole host's disks; a sandbox writes to memory only |
//! | `SO_SNDBUF`, `SO_RCVBUF` under [`SocketBuffers::Fixed`] | success, no effect | buffers that no memory limit counts |
//! | `personality(0x6d617966)` | `EL2HLT` | the marker by which a guest proves that this very profile is in force |
//!
//! # How the rules are written
//! Found by measuring, and held by tests of behaviour:
//! - Arguments are compared as 64 bits while the kernel takes many as `int`: `socket(40 | 1 << 32)` is `AF_VSOCK`. So
//!   there are *allow* rules only, by `EQ`, `LT` or a masked `EQ`, and never `NE` or a refusal beside a wider allow. A
//!   number with a high bit set then matches nothing.
//! - A masked condition stands alone in its rule: with one before an `EQ`, the program that libseccomp 2.5 makes compares
//!   the wrong word, and `socket(AF_INET, SOCK_STREAM, 262 | 1 << 32)` was an MPTCP socket.
//! - The runtime makes an *or* of two conditions on one argument in one rule, and drops a conditional rule beside an
//!   unconditional one of the same call.
//! - Docker 20.10 ignores `defaultErrnoRet`, and a rule that answers what is the default is skipped. So `EPERM` is
//!   never written, and every other answer always is.
//! - A name that the runtime's libseccomp doesn't know is skipped without a word.

mod allow;
mod answer;
mod arguments;
mod document;
mod sockets;
#[cfg(test)]
mod tests;

use mayfly_core::digest::{Digest, canonical_json};
use serde_json::Value;

use self::document::{Document, Rule};

/// What a profile depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// The architecture of the engine's host.
    pub arch: Arch,
    /// The sockets that a job may make.
    pub sockets: Sockets,
}

/// An architecture of which a sandbox may use the native calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// The sockets that a job may make. Whether there is anything to talk to is decided elsewhere: a sandbox has no
/// interface but loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// `AF_UNIX`, between the job's own processes.
    UnixOnly,
    /// Also TCP and UDP over IPv4 and IPv6, and the netlink sockets by which programs list interfaces.
    LoopbackToo(SocketBuffers),
}

/// Whether a job may set the size of its sockets' buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketBuffers {
    /// It may: the buffers count to its memory limit (cgroup v2).
    Settable,
    /// Setting one succeeds and changes nothing: TCP and UDP buffers count to no limit (cgroup v1).
    Fixed,
}

/// A seccomp profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile(Document);

impl Arch {
    /// By the name that the kernel and the engine's `info` give it; `None` for one that we have no profile of.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The runtime's name for the native ABI alone.
    const fn seccomp_name(self) -> &'static str {
        match self {
            Self::X86_64 => "SCMP_ARCH_X86_64",
            Self::Aarch64 => "SCMP_ARCH_AARCH64",
        }
    }
}

impl Profile {
    /// One line of JSON in canonical form (RFC 8785). Docker takes it as the option `seccomp=` followed by this text;
    /// Podman takes `seccomp=` and the path of a file that holds it, on the engine's host.
    ///
    /// # Panics
    /// Never: the canonical form is UTF-8.
    #[must_use]
    pub fn inline(&self) -> String {
        String::from_utf8(canonical_json(&self.0)).expect("JSON is UTF-8")
    }

    /// The digest of [`Self::inline`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.inline().as_bytes())
    }

    /// The same document as a value, to be compared or printed.
    ///
    /// # Panics
    /// Never: the document holds text and numbers only.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(&self.0).expect("the document holds text and numbers only")
    }

    /// The same document for people: `config/seccomp.json`.
    ///
    /// # Panics
    /// Never: the document holds text and numbers only.
    #[must_use]
    pub fn pretty(&self) -> String {
        let text = serde_json::to_string_pretty(&self.0).expect("the document holds text and numbers only");
        text + "\n"
    }
}

/// The profile for these options. Equal options give equal bytes.
#[must_use]
pub fn profile(options: FilterOptions) -> Profile {
    let rules: Vec<Rule> = allow::rules(options.arch)
        .chain(arguments::rules(options.arch))
        .chain(sockets::rules(options.sockets))
        .chain(answer::rules())
        .collect();
    Profile(Document::new(options.arch.seccomp_name(), rules))
}
