//! Calls that are allowed for some arguments.

use mayfly_protocol::{MARKER_ERRNO, MARKER_PERSONA};

use super::{
    Arch,
    document::{Condition, Rule},
};

/// Every `CLONE_NEW*` flag that `clone` takes (`linux/sched.h`): mount, cgroup, UTS, IPC, user, pid, network.
const CLONE_NEW: u64 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// `personality` (`linux/personality.h`): the usual one, the same without address randomisation, the query.
const PERSONALITIES: &[u64] = &[0, 0x0004_0000, 0xffff_ffff];

/// The kind of file in a mode (`linux/stat.h`).
const S_IFMT: u64 = 0o170_000;
/// What `mknod` may make: 0 means a regular file, and so does `S_IFREG`; then FIFO and socket.
const NODES: &[u64] = &[0, 0o100_000, 0o010_000, 0o140_000];

/// `MSG_OOB` (`linux/socket.h`).
const MSG_OOB: u64 = 1;
/// The calls that take message flags, and which argument they are.
const MESSAGES: &[(&[&str], u32)] = &[
    (&["recvmsg", "sendmsg"], 2),
    (&["recvfrom", "recvmmsg", "sendmmsg", "sendto"], 3),
];

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` (`linux/seccomp.h`).
const NEW_LISTENER: u64 = 8;

/// First `madvise` value that is not allowed by being small: `MADV_MERGEABLE`.
const MADV_MERGEABLE: u64 = 12;
/// The allowed ones above it (`asm-generic/mman-common.h`): unmergeable to collapse, guard install and remove. Between
/// them lie those that fake hardware faults.
const ADVICE: &[u64] = &[13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 102, 103];

/// `prctl` options (`linux/prctl.h`) on every architecture.
const PRCTL: &[u64] = &[
    1,           // PR_SET_PDEATHSIG
    2,           // PR_GET_PDEATHSIG
    3,           // PR_GET_DUMPABLE
    4,           // PR_SET_DUMPABLE
    7,           // PR_GET_KEEPCAPS
    8,           // PR_SET_KEEPCAPS
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    21,          // PR_GET_SECCOMP
    22,          // PR_SET_SECCOMP
    23,          // PR_CAPBSET_READ
    24,          // PR_CAPBSET_DROP
    27,          // PR_GET_SECUREBITS
    28,          // PR_SET_SECUREBITS
    29,          // PR_SET_TIMERSLACK
    30,          // PR_GET_TIMERSLACK
    36,          // PR_SET_CHILD_SUBREAPER
    37,          // PR_GET_CHILD_SUBREAPER
    38,          // PR_SET_NO_NEW_PRIVS
    39,          // PR_GET_NO_NEW_PRIVS
    40,          // PR_GET_TID_ADDRESS
    41,          // PR_SET_THP_DISABLE
    42,          // PR_GET_THP_DISABLE
    47,          // PR_CAP_AMBIENT
    52,          // PR_GET_SPECULATION_CTRL
    53,          // PR_SET_SPECULATION_CTRL
    65,          // PR_SET_MDWE
    66,          // PR_GET_MDWE
    0x5356_4d41, // PR_SET_VMA: names of mappings
    0x5961_6d61, // PR_SET_PTRACER: crash reporters call it, and ptrace is refused anyway
];

/// `prctl` options for registers that only 64-bit ARM has.
const PRCTL_AARCH64: &[u64] = &[
    50, // PR_SVE_SET_VL
    51, // PR_SVE_GET_VL
    54, // PR_PAC_RESET_KEYS
    55, // PR_SET_TAGGED_ADDR_CTRL
    56, // PR_GET_TAGGED_ADDR_CTRL
    60, // PR_PAC_SET_ENABLED_KEYS
    61, // PR_PAC_GET_ENABLED_KEYS
    63, // PR_SME_SET_VL
    64, // PR_SME_GET_VL
    74, // PR_GET_SHADOW_STACK_STATUS
    75, // PR_SET_SHADOW_STACK_STATUS
    76, // PR_LOCK_SHADOW_STACK_STATUS
];

/// `arch_prctl` codes (`asm/prctl.h`): segment bases (threads), CPUID state, tile registers, shadow stacks.
const ARCH_PRCTL: &[u64] = &[
    0x1001, 0x1002, 0x1003, 0x1004, 0x1011, 0x1021, 0x1022, 0x1023, 0x5001, 0x5002, 0x5003, 0x5005,
];

pub(super) fn rules(arch: Arch) -> impl Iterator<Item = Rule> {
    let (prctl, arch_prctl): (&[u64], &[u64]) = match arch {
        Arch::X86_64 => (&[], ARCH_PRCTL),
        Arch::Aarch64 => (PRCTL_AARCH64, &[]),
    };
    let one_of = |comment, name, index, values: &'static [u64]| {
        values
            .iter()
            .map(move |value| Rule::allow(comment, &[name]).when(&[Condition::equal(index, *value)]))
    };
    let new_processes =
        Rule::allow("no new namespaces", &["clone"]).when(&[Condition::masked(0, CLONE_NEW, 0)]);
    let own_filters = Rule::allow("filters of the program's own, without a listener", &["seccomp"])
        .when(&[Condition::masked(1, NEW_LISTENER, 0)]);
    let small_advice = Rule::allow("advice before MADV_MERGEABLE", &["madvise"])
        .when(&[Condition::less_than(2, MADV_MERGEABLE)]);
    [new_processes, own_filters, small_advice, marker()]
        .into_iter()
        .chain(one_of("listed advice", "madvise", 2, ADVICE))
        .chain(one_of(
            "usual personalities, and the query",
            "personality",
            0,
            PERSONALITIES,
        ))
        .chain(one_of("listed options", "prctl", 0, PRCTL))
        .chain(one_of("listed options", "prctl", 0, prctl))
        .chain(one_of("listed codes", "arch_prctl", 0, arch_prctl))
        .chain(nodes())
        .chain(MESSAGES.iter().map(|(names, flags)| {
            Rule::allow("without MSG_OOB", names).when(&[Condition::masked(*flags, MSG_OOB, 0)])
        }))
}

fn marker() -> Rule {
    Rule::answer(
        "the marker of this profile",
        MARKER_ERRNO.unsigned_abs(),
        &["personality"],
    )
    .when(&[Condition::equal(0, u64::from(MARKER_PERSONA))])
}

fn nodes() -> impl Iterator<Item = Rule> {
    NODES.iter().flat_map(|kind| {
        [("mknod", 1), ("mknodat", 2)].map(|(name, mode)| {
            Rule::allow("regular files, FIFOs and sockets", &[name])
                .when(&[Condition::masked(mode, S_IFMT, *kind)])
        })
    })
}
