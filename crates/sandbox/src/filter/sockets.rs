//! Which sockets may be made, and which of their options may be set.

use super::{
    SocketBuffers, Sockets,
    document::{Condition, Rule},
};

/// Address families (`linux/socket.h`).
const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;

/// `NETLINK_ROUTE` (`linux/netlink.h`): `getifaddrs(3)` and `if_nameindex(3)` ask it.
const NETLINK_ROUTE: u64 = 0;

/// Socket types with the protocols that they may have: 0 is the type's usual one. Each is asked for by its number,
/// else `SOCK_STREAM` alone opens MPTCP, SCTP and SMC.
const STREAM: (u64, [u64; 2]) = (1, [0, 6]);
const DATAGRAM: (u64, [u64; 2]) = (2, [0, 17]);

/// What may be added to a type: nothing, `SOCK_NONBLOCK`, `SOCK_CLOEXEC`, both. By their sums, since libseccomp 2.5
/// lets bit 32 of a later argument through where a rule begins with a mask.
const TYPE_FLAGS: [u64; 4] = [0, 0o4_000, 0o2_000_000, 0o2_004_000];

/// Levels of `setsockopt` (`linux/socket.h`, `linux/in.h`).
const SOL_SOCKET: u64 = 1;
const IPPROTO_IP: u64 = 0;
const IPPROTO_TCP: u64 = 6;
const IPPROTO_IPV6: u64 = 41;

/// Options of every socket (`asm-generic/socket.h`) but the sizes of its buffers: reuse of addresses and ports, routing
/// and broadcast, keep-alive, urgent data inline, priority, linger, credentials, low water mark, time limits, timestamps.
const SOCKET_OPTIONS: &[u64] = &[2, 5, 6, 9, 10, 12, 13, 15, 16, 18, 20, 21, 29, 35];

/// `SO_SNDBUF` and `SO_RCVBUF`.
const BUFFERS: &[u64] = &[7, 8];
/// The same past the system's limit, which the kernel refuses without a capability.
const BUFFERS_BY_FORCE: &[u64] = &[32, 33];

/// `linux/in.h`: type of service, TTL, packet information, path MTU, errors, TTL and service of what is received; TTL,
/// loop and delivery of multicast, which Java sets on every datagram socket; late binding. Joining a group is not here.
const IP_OPTIONS: &[u64] = &[1, 2, 8, 10, 11, 12, 13, 24, 33, 34, 49];

/// `linux/in6.h`: the same.
const IPV6_OPTIONS: &[u64] = &[16, 18, 19, 23, 25, 26, 29, 49, 51, 66, 67];

/// `linux/tcp.h`: no delay, segment size, cork, keep-alive times, retries, linger, deferred accept, quick
/// acknowledgement, time limit, fast open, low water mark of what is not sent. `TCP_ULP` (31) is not here.
const TCP_OPTIONS: &[u64] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 18, 23, 25, 30];

pub(super) fn rules(sockets: Sockets) -> impl Iterator<Item = Rule> {
    let mut rules = vec![
        Rule::allow(
            "sockets between the job's own processes",
            &["socket", "socketpair"],
        )
        .when(&[Condition::equal(0, AF_UNIX)]),
    ];
    rules.extend(options("options of every socket", SOL_SOCKET, SOCKET_OPTIONS));
    match sockets {
        Sockets::UnixOnly => rules.extend(settable_buffers()),
        Sockets::LoopbackToo(buffers) => {
            rules.extend(internet());
            match buffers {
                SocketBuffers::Settable => rules.extend(settable_buffers()),
                SocketBuffers::Fixed => rules.extend(fixed_buffers()),
            }
        }
    }
    rules.into_iter()
}

fn internet() -> impl Iterator<Item = Rule> {
    let made = [AF_INET, AF_INET6].into_iter().flat_map(|family| {
        [STREAM, DATAGRAM].into_iter().flat_map(move |(kind, protocols)| {
            TYPE_FLAGS.into_iter().flat_map(move |flags| {
                protocols.map(|protocol| {
                    Rule::allow("TCP and UDP", &["socket"]).when(&[
                        Condition::equal(0, family),
                        Condition::equal(1, kind | flags),
                        Condition::equal(2, protocol),
                    ])
                })
            })
        })
    });
    let interfaces = Rule::allow("lists of interfaces and addresses", &["socket"]).when(&[
        Condition::equal(0, AF_NETLINK),
        Condition::equal(2, NETLINK_ROUTE),
    ]);
    made.chain([interfaces])
        .chain(options("options of IPv4", IPPROTO_IP, IP_OPTIONS))
        .chain(options("options of IPv6", IPPROTO_IPV6, IPV6_OPTIONS))
        .chain(options("options of TCP", IPPROTO_TCP, TCP_OPTIONS))
}

fn settable_buffers() -> impl Iterator<Item = Rule> {
    options("sizes of buffers", SOL_SOCKET, BUFFERS)
}

fn fixed_buffers() -> impl Iterator<Item = Rule> {
    BUFFERS.iter().chain(BUFFERS_BY_FORCE).map(|option| {
        Rule::answer(
            "sizes of buffers that no limit counts: no effect",
            0,
            &["setsockopt"],
        )
        .when(&option_is(SOL_SOCKET, *option))
    })
}

fn options(comment: &'static str, level: u64, options: &'static [u64]) -> impl Iterator<Item = Rule> {
    options
        .iter()
        .map(move |option| Rule::allow(comment, &["setsockopt"]).when(&option_is(level, *option)))
}

const fn option_is(level: u64, option: u64) -> [Condition; 2] {
    [Condition::equal(1, level), Condition::equal(2, option)]
}
