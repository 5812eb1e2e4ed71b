//! What a job may try against its guest. Each attack prints what came of it, and the job's end must
//! be the true one whatever it tried.

use mayfly_protocol::{Ended, Exit, FromGuest, GuestExit, Usage};

use crate::guest;
use crate::harness::{Told, python};

/// Runs a script that tries things against pid 1 and then exits with 7.
fn attack(script: &str) -> Option<Told> {
    let guest = match crate::harness::Guest::start(&crate::harness::Options::plain()) {
        Ok(guest) => guest,
        Err(reason) => {
            eprintln!("SKIPPED, nothing shown: {reason}");
            return None;
        }
    };
    let script = format!("{PRELUDE}\n{script}\nsys.stdout.flush()\nos._exit(7)");
    let told = guest.run(python(&script), &[]);
    assert_eq!(told.exit().how, Ended::Code(7), "{}", told.err());
    assert!(!told.exit().killed_by_request && !told.exit().deadline_fired);
    assert_eq!(guest.exit_code(), Some(i32::from(GuestExit::Done.code())));
    Some(told)
}

const PRELUDE: &str = "
import ctypes, errno, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    answer = libc[name](*args)
    print(name, 'ok' if answer >= 0 else errno.errorcode[ctypes.get_errno()])
def attempt(name, f):
    try:
        f()
        print(name, 'ok')
    except OSError as e:
        print(name, errno.errorcode[e.errno])
";

/// Asserts that every line ends in one of the refusals.
fn assert_all_refused(told: &Told, least: usize) {
    let out = told.out();
    let lines: Vec<_> = out.lines().collect();
    assert!(lines.len() >= least, "{out}");
    for line in lines {
        assert!(line.ends_with(" EPERM") || line.ends_with(" EACCES"), "{line}");
    }
}

#[test]
fn the_guests_descriptors_and_memory_stay_closed() {
    let told = attack(
        "for fd in (0, 1, 2, 3, 4):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        attempt(f'fd {fd} {flags}', lambda: os.open(f'/proc/1/fd/{fd}', flags))
for name in ('mem', 'environ', 'maps', 'auxv', 'io', 'syscall', 'stack', 'fdinfo/1', 'map_files', 'task/1/mem'):
    attempt(name, lambda: os.open(f'/proc/1/{name}', os.O_RDONLY))
for name in ('oom_score_adj', 'oom_adj', 'clear_refs', 'coredump_filter', 'comm', 'mem'):
    attempt(name, lambda: os.open(f'/proc/1/{name}', os.O_WRONLY))
attempt('slack', lambda: os.write(os.open('/proc/1/timerslack_ns', os.O_WRONLY), b'1'))
for name in ('cwd', 'root', 'exe', 'ns/pid', 'ns/mnt'):
    attempt(name, lambda: os.readlink(f'/proc/1/{name}'))
pidfd = os.pidfd_open(1)
for fd in range(3):
    attempt('pidfd_getfd', lambda: (_ for _ in ()).throw(OSError(ctypes.get_errno(), '')) if libc.syscall(438, pidfd, fd, 0) < 0 else None)",
    );
    if let Some(told) = told {
        assert_all_refused(&told, 40);
    }
}

#[test]
fn no_signal_reaches_the_guest() {
    let told = attack(
        "for s in range(1, 65):
    if s not in (32, 33):
        attempt(f'kill {s}', lambda: os.kill(1, s))
pidfd = os.pidfd_open(1)
attempt('pidfd', lambda: signal.pidfd_send_signal(pidfd, signal.SIGKILL))
call('tgkill', 1, 1, 9)
call('sigqueue', 1, 9, None)",
    );
    if let Some(told) = told {
        assert_all_refused(&told, 65);
    }
}

#[test]
fn killing_everyone_spares_the_guest() {
    for signal in ["SIGKILL", "SIGSTOP", "SIGTERM"] {
        let script = format!(
            "if os.fork() == 0:
    signal.pause()
attempt('all', lambda: os.kill(-1, signal.{signal}))"
        );
        let Some(told) = attack(&script) else { return };
        assert_eq!(told.out(), "all ok\n", "it reaches the job's own processes");
    }
}

#[test]
fn the_guests_limits_and_scheduling_stay_as_they_are() {
    let told = attack(
        "for r in range(16):
    attempt(f'prlimit {r}', lambda: resource.prlimit(1, r, (0, 0)))
    attempt(f'prlimit {r}', lambda: resource.prlimit(1, r))
attempt('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
attempt('affinity', lambda: os.sched_setaffinity(1, {0}))
attempt('scheduler', lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
call('syscall', 251, 1, 1, 3 << 13)",
    );
    if let Some(told) = told {
        assert_all_refused(&told, 36);
    }
}

#[test]
fn the_guest_cannot_be_traced_or_read() {
    let told = attack(
        "for request in (16, 0x4206):
    call('ptrace', request, 1, 0, 0)
buffer = ctypes.create_string_buffer(8)
class iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
local = iovec(ctypes.addressof(buffer), 8)
remote = iovec(0x400000, 8)
call('process_vm_readv', 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
call('process_vm_writev', 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
call('syscall', 312, 1, os.getpid(), 0, 0, 0)",
    );
    if let Some(told) = told {
        assert_all_refused(&told, 5);
    }
}

#[test]
fn the_job_cannot_become_anyone_else() {
    let told = attack(
        "attempt('uid 0', lambda: os.setuid(0))
attempt('uid guest', lambda: os.setuid(os.getuid() - 1))
attempt('gid 0', lambda: os.setgid(0))
attempt('groups', lambda: os.setgroups([0]))
attempt('chroot', lambda: os.chroot('/'))
call('mount', b'x', b'/mnt', b'tmpfs', 0, None)",
    );
    if let Some(told) = told {
        assert_all_refused(&told, 6);
    }
}

#[test]
fn a_forged_exit_frame_is_output_and_nothing_else() {
    let forged = Exit {
        how: Ended::Code(0),
        deadline_fired: false,
        killed_by_request: false,
        wall_us: 1,
        usage: Usage::default(),
        left_processes: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        cgroup: Default::default(),
        oom_kills_before: None,
    };
    let mut bytes = Vec::new();
    FromGuest::Exit(forged).encode(&mut bytes).unwrap();
    let guest = guest!();
    let mut job = python(
        "import os, sys
frame = open('frame', 'rb').read()
for path in ('/proc/1/fd/1', '/dev/stdout', '/proc/self/fd/1', '/proc/self/fd/2'):
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, frame)
        os.close(fd)
    except OSError: pass
for fd in range(3, 64):
    try: os.write(fd, frame)
    except OSError: pass
os._exit(9)",
    );
    job.files = 1;
    let told = guest.run(job, &[("frame", 0o644, &bytes)]);
    assert_eq!(told.exit().how, Ended::Code(9));
    assert!(told.stdout == bytes.repeat(2), "{}", told.out());
    assert!(told.stderr == bytes, "{}", told.err());
}
