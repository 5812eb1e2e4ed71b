//! Processes, signals, limits.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use mayfly_protocol::{Ended, Resource, Rlimit, Usage};

use super::{Errno, Result, check};

/// Which side of a fork this is.
pub(crate) enum Forked {
    Child,
    Parent { child: i32 },
}

/// Forks with a copy of the memory (never `vfork`: the child changes its ids and its dumpability,
/// which a shared memory map would change for the guest too).
pub(crate) fn fork() -> Result<Forked> {
    // SAFETY: the guest has one thread, so the child's copy of the memory is consistent.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent { child }),
    }
}

/// Ends the process at once, running nothing: for a forked child.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: the call doesn't return.
    unsafe { libc::_exit(code) }
}

/// Becomes another program. Returns only when that fails.
pub(crate) fn exec(program: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |list: &[CString]| {
        let mut pointers: Vec<*const libc::c_char> = list.iter().map(|s| s.as_ptr()).collect();
        pointers.push(std::ptr::null());
        pointers
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: all strings end with a NUL, both lists with a null pointer, and all outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Errno::last()
}

pub(crate) fn setsid() -> Result<()> {
    // SAFETY: the call takes nothing.
    check(unsafe { libc::setsid() }).map(drop)
}

pub(crate) fn set_umask(mask: u32) {
    // SAFETY: the call takes an integer and can't fail.
    unsafe { libc::umask(mask) };
}

/// A child that has been waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    Process {
        pid: i32,
        how: Ended,
        /// The largest resident set of it or of one of its own children that it waited for.
        maxrss_bytes: u64,
    },
    /// There are children, and none has ended.
    NoneEnded,
    /// There is no child.
    NoChild,
}

/// Waits for any child that has ended, without blocking.
pub(crate) fn reap_any() -> Result<Reaped> {
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel writes one status and one structure.
        match check(unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, used.as_mut_ptr()) }) {
            Ok(0) => return Ok(Reaped::NoneEnded),
            Ok(pid) => {
                return Ok(Reaped::Process {
                    pid,
                    how: ended(status),
                    // SAFETY: all zeros is a valid value, and the kernel wrote over it.
                    maxrss_bytes: as_usage(&unsafe { used.assume_init() }).maxrss_bytes,
                });
            }
            Err(Errno(libc::ECHILD)) => return Ok(Reaped::NoChild),
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits until a child that is about to end has ended.
pub(crate) fn reap(child: i32) -> Result<()> {
    loop {
        // SAFETY: no status is asked for.
        match check(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }) {
            Err(Errno(libc::EINTR)) => {}
            waited => return waited.map(drop),
        }
    }
}

fn ended(status: libc::c_int) -> Ended {
    // Both numbers have 8 bits by the encoding of a wait status.
    if libc::WIFEXITED(status) {
        Ended::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
    } else {
        Ended::Signal(u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX))
    }
}

/// Sends SIGKILL to every process but this one. Whether there was one doesn't matter.
pub(crate) fn kill_everything() {
    // SAFETY: the call takes integers only. As pid 1 of its namespace it reaches that alone.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Blocks every signal, for good: the guest reads those that it wants from a descriptor.
pub(crate) fn block_all_signals() -> Result<()> {
    set_mask(true)
}

/// Gives a child the signal state that a program expects: defaults, and nothing blocked.
pub(crate) fn default_signals() -> Result<()> {
    for signal in 1..=64 {
        // SAFETY: no handler of ours is installed. The numbers that can't be set answer EINVAL.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    set_mask(false)
}

fn set_mask(blocked: bool) -> Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both calls initialise the set that they are given.
    check(unsafe {
        if blocked {
            libc::sigfillset(set.as_mut_ptr())
        } else {
            libc::sigemptyset(set.as_mut_ptr())
        }
    })?;
    // SAFETY: the set is initialised; the old one isn't asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut()) })?;
    Ok(())
}

/// A descriptor that is readable when a child has ended.
pub(crate) fn sigchld_fd() -> Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call initialises the set.
    check(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: the set is initialised.
    check(unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) })?;
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let fd = check(unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the descriptor was just made and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Resources of all children that have been waited for.
pub(crate) fn children_usage() -> Result<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the structure is filled when the answer is 0.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) })?;
    // SAFETY: it answered 0.
    Ok(as_usage(&unsafe { usage.assume_init() }))
}

fn as_usage(usage: &libc::rusage) -> Usage {
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let micros = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds
            .saturating_mul(1_000_000)
            .saturating_add(count(time.tv_usec))
    };
    Usage {
        utime_us: micros(usage.ru_utime),
        stime_us: micros(usage.ru_stime),
        maxrss_bytes: count(usage.ru_maxrss).saturating_mul(1024),
        minflt: count(usage.ru_minflt),
        majflt: count(usage.ru_majflt),
        inblock: count(usage.ru_inblock),
        oublock: count(usage.ru_oublock),
    }
}

/// What a living process and the children that it has waited for have used so far, as far as the kernel tells another
/// process: no I/O, and no resident set, which is not used up.
pub(crate) fn process_usage(pid: i32) -> Usage {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let usage = parse_stat(&stat);
    // The file counts in hundredths of a second. Their sum is known better, and most of a boot is user time.
    match cpu_time_us(pid) {
        Ok(exact) if exact > usage.stime_us => Usage {
            utime_us: exact - usage.stime_us,
            ..usage
        },
        _ => usage,
    }
}

/// The fields of proc_pid_stat(5) that count what was used.
fn parse_stat(stat: &str) -> Usage {
    /// `USER_HZ` of x86-64 and arm64.
    const TICK_US: u64 = 10_000;
    // The name before it may have spaces and parentheses; what follows starts with field 3.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    Usage {
        utime_us: (field(14) + field(16)).saturating_mul(TICK_US),
        stime_us: (field(15) + field(17)).saturating_mul(TICK_US),
        minflt: field(10) + field(11),
        majflt: field(12) + field(13),
        ..Usage::default()
    }
}

fn cpu_time_us(pid: i32) -> Result<u64> {
    let (mut clock, mut time) = (0, MaybeUninit::<libc::timespec>::zeroed());
    // SAFETY: the call writes one clock's number. It answers with an error's number, and sets no errno.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        errno => return Err(Errno(errno)),
    }
    // SAFETY: the kernel writes one structure.
    check(unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) })?;
    // SAFETY: all zeros is a valid value, and the kernel wrote over it.
    let time = unsafe { time.assume_init() };
    let micros = |value: i64, from, to| u64::try_from(value).unwrap_or(0).saturating_mul(from) / to;
    Ok(micros(time.tv_sec, 1_000_000, 1).saturating_add(micros(time.tv_nsec, 1, 1000)))
}

pub(crate) fn rlimit(resource: Resource) -> Result<Rlimit> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the structure is filled when the answer is 0.
    check(unsafe { libc::getrlimit(number(resource), limit.as_mut_ptr()) })?;
    // SAFETY: it answered 0.
    let limit = unsafe { limit.assume_init() };
    let value = |value| (value != libc::RLIM_INFINITY).then_some(value);
    Ok(Rlimit {
        resource,
        soft: value(limit.rlim_cur),
        hard: value(limit.rlim_max),
    })
}

/// Sets the soft and the hard limit.
pub(crate) fn set_rlimit(resource: Resource, limit: Option<u64>) -> Result<()> {
    let value = limit.unwrap_or(libc::RLIM_INFINITY);
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the kernel reads the structure.
    check(unsafe { libc::setrlimit(number(resource), &raw const limit) }).map(drop)
}

fn number(resource: Resource) -> libc::__rlimit_resource_t {
    match resource {
        Resource::Cpu => libc::RLIMIT_CPU,
        Resource::Fsize => libc::RLIMIT_FSIZE,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::Stack => libc::RLIMIT_STACK,
        Resource::Core => libc::RLIMIT_CORE,
        Resource::Rss => libc::RLIMIT_RSS,
        Resource::Nproc => libc::RLIMIT_NPROC,
        Resource::Nofile => libc::RLIMIT_NOFILE,
        Resource::Memlock => libc::RLIMIT_MEMLOCK,
        Resource::As => libc::RLIMIT_AS,
        Resource::Locks => libc::RLIMIT_LOCKS,
        Resource::Sigpending => libc::RLIMIT_SIGPENDING,
        Resource::Msgqueue => libc::RLIMIT_MSGQUEUE,
        Resource::Nice => libc::RLIMIT_NICE,
        Resource::Rtprio => libc::RLIMIT_RTPRIO,
        Resource::Rttime => libc::RLIMIT_RTTIME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_stat_are_counted_from_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 20 3 4 5 6 70 80 20 0 1 0 9 0 0";
        let expected = Usage {
            utime_us: 750_000,
            stime_us: 860_000,
            minflt: 120,
            majflt: 7,
            ..Usage::default()
        };
        assert_eq!(parse_stat(stat), expected);
        assert_eq!(parse_stat(""), Usage::default());
    }
}
