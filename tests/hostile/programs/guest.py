# The guest, which is process 1, and the descriptors that a job starts with.


#: H-14a
#: tries Its memory and its execution.
#: always
#: ends exited
#: says ptrace: EPERM
#: says process_vm_writev: EPERM
#: says process_vm_readv: EPERM
#: says kcmp: EPERM
#: says process_madvise: EPERM
#: says move_pages: EPERM
#: says perf_event_open: EPERM
#: says-on-runsc ptrace: EPERM
#: says-on-runsc process_vm_writev: ENOSYS
#: says-on-runsc process_vm_readv: ENOSYS
#: says-on-runsc kcmp: EPERM
#: says-on-runsc process_madvise: ENOSYS
#: says-on-runsc move_pages: EPERM
#: says-on-runsc perf_event_open: ENODEV
class Iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]


text = ctypes.create_string_buffer(b'x' * 16)
ours = Iovec(ctypes.addressof(text), 16)
theirs = Iovec(0x400000, 16)
tell('ptrace', *(lambda request=request: call('ptrace', request, 1, 0, 0) for request in (16, 0x4206)))
tell('process_vm_writev', lambda: call('process_vm_writev', 1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
tell('process_vm_readv', lambda: call('process_vm_readv', 1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
tell('kcmp', lambda: syscall(312, 272, 1, os.getpid(), 0, 0, 0))
tell('process_madvise', lambda: syscall(440, 440, os.pidfd_open(1), ctypes.byref(theirs), 1, 4, 0))
tell('move_pages', lambda: syscall(279, 239, 1, 0, 0, 0, 0, 0))
tell('perf_event_open', lambda: syscall(298, 241, 0, 1, -1, -1, 0))
sys.exit(7)


#: H-14b
#: tries To trace, stop and write into processes of its own user beside it: its own doing, and none of the guest's.
#: says traced: EPERM
#: says traced by its child: EPERM
#: says the guest: EPERM
#: says-on-runsc traced: EPERM succeeded
#: says-on-runsc traced by its child: EPERM
#: says-on-runsc the guest: EPERM
import time
child = os.fork()
if child == 0:
    while True:
        time.sleep(600)
tell('traced', *(lambda request=request: call('ptrace', request, child, 0, 0) for request in (16, 0x4206)))
tell('traced by its child', in_a_child(lambda: call('ptrace', 16, os.getppid(), 0, 0)))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
tell('the guest', lambda: call('ptrace', 16, 1, 0, 0))
end()


#: H-14c
#: tries Memory of every process that it sees, but its own.
#: says others: ['1']
#: says opened: EACCES
others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != os.getpid()]
print('others:', others)
tell('opened', *(opened(f'/proc/{pid}/{name}', flags) for pid in others for name in ('mem', 'pagemap') for flags in (os.O_RDONLY, os.O_RDWR)
                 if os.path.lexists(f'/proc/{pid}/{name}')))
end()


#: H-15a
#: tries Every file of pid 1. What holds its memory or execution can't be had, and nothing can be changed.
#: always
#: ends exited
#: says memory: EACCES
#: says environment and maps: EACCES
#: says folders: EACCES
#: says changed: []
#: says-on-runsc memory: EACCES
#: says-on-runsc environment and maps: succeeded
#: says-on-runsc folders: EACCES
#: says-on-runsc changed: []
tell('memory', *(opened(f'/proc/1/{name}', flags) for name in ('mem', 'pagemap', 'syscall', 'stack') for flags in (os.O_RDONLY, os.O_RDWR)
                 if os.path.lexists(f'/proc/1/{name}')))
tell('environment and maps', *(opened(f'/proc/1/{name}', os.O_RDONLY) for name in ('auxv', 'environ', 'maps', 'smaps')))
tell('folders', *(lambda name=name: os.readlink(f'/proc/1/{name}') and None for name in ('cwd', 'root')
                  if os.path.lexists(f'/proc/1/{name}')))
changed, tried = [], 0
for folder, folders, files in os.walk('/proc/1'):
    for name in files:
        tried += 1
        if answer(opened(f'{folder}/{name}', os.O_WRONLY, lambda fd: os.write(fd, b'0'))) == 'succeeded':
            changed.append(f'{folder}/{name}')
print('changed:', changed, flush=True)
assert tried > 15, tried
sys.exit(7)


#: H-15b
#: tries The guest's folders, program, environment and descriptors, by every name that /proc has for them.
#: says links: EACCES
#: says through: EACCES
#: says descriptors: EACCES
#: says by threads: EACCES
#: says program written: EACCES EROFS
#: says-on-runsc links: EACCES
#: says-on-runsc through: EACCES
#: says-on-runsc descriptors: succeeded
#: says-on-runsc by threads: EACCES succeeded
#: says-on-runsc program written: EACCES EROFS
tell('links', *(lambda name=name: os.readlink(f'/proc/1/{name}') and None for name in ('root', 'cwd', 'exe')))
tell('through', *(lambda name=name: os.listdir(f'/proc/1/{name}') and None for name in ('root', 'cwd')))
tell('descriptors', lambda: os.listdir('/proc/1/fd') and None)
tell('by threads', *(lambda name=name: os.listdir(f'/proc/1/task/1/{name}') and None for name in ('root', 'cwd', 'fd')))
tell('program written', opened('/guest/mayfly-guest', os.O_WRONLY), opened('/guest/mayfly-guest', os.O_RDWR), lambda: os.unlink('/guest/mayfly-guest'),
     lambda: os.rename('/guest/mayfly-guest', '/guest/old'))
end()


#: H-15c
#: tries What its own descriptors and those of programs that it starts belong to.
#: says input pipe
#: says output pipe
#: says errors pipe
#: says others: []
#: says in a program: []
import subprocess
kinds = {0: 'input', 1: 'output', 2: 'errors'}
for fd, name in kinds.items():
    mode = os.fstat(fd).st_mode
    print(name, 'pipe' if stat.S_ISFIFO(mode) else 'null' if stat.S_ISCHR(mode) and os.fstat(fd).st_rdev == os.makedev(1, 3) else oct(mode))
print('others:', sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) > 3), flush=True)
print('in a program:', subprocess.run([sys.executable, '-c', 'import os; print(sorted(n for n in os.listdir("/proc/self/fd") if int(n) > 3))'],
                                      capture_output=True, text=True).stdout.strip())
end()


#: H-16a
#: tries Descriptors above 2 that it was started with, up to 65,536.
#: says inherited: []
opened_already = []
for fd in range(3, 65536):
    try:
        os.fstat(fd)
        opened_already.append(fd)
    except OSError:
        pass
print('inherited:', opened_already)
end()


#: H-64a
#: tries To overwrite the runtime as CVE-2019-5736 did: /proc/self/exe of whatever enters the sandbox.
#: says its own link: EACCES
#: says others entered: []
import shutil, subprocess, time
shutil.copy(os.path.realpath(sys.executable), '/work/python')
os.symlink('/proc/self/exe', '/work/exe')
tell('its own link', opened('/work/exe', os.O_WRONLY), opened('/work/exe', os.O_RDWR))
seen, until = set(), time.monotonic() + 1.5
while time.monotonic() < until:
    for pid in os.listdir('/proc'):
        if pid.isdigit() and int(pid) not in (1, os.getpid()):
            seen.add(answer(opened(f'/proc/{pid}/exe', os.O_WRONLY)))
print('others entered:', sorted(seen))
end()


#: H-104a
#: tries The guest's own channel: an exit frame of ours into it, and the executor's next frame out of it.
#: always
#: ends exited
#: says job /proc/1/fd/0: EACCES
#: says job /proc/1/task/1/fd/0: EACCES
#: says job /proc/1/fd/1: EACCES
#: says job /proc/1/task/1/fd/1: EACCES
#: says job /proc/1/fd/2: EACCES
#: says job /proc/1/task/1/fd/2: EACCES
#: says job, linked: EACCES
#: says taken: EPERM
#: says others refused: True
#: says-on-runsc job /proc/1/fd/0: EACCES
#: says-on-runsc job /proc/1/task/1/fd/0: EACCES
#: says-on-runsc job /proc/1/fd/1: EACCES
#: says-on-runsc job /proc/1/task/1/fd/1: EACCES
#: says-on-runsc job /proc/1/fd/2: EACCES
#: says-on-runsc job /proc/1/task/1/fd/2: EACCES
#: says-on-runsc job, linked: EXDEV
#: says-on-runsc taken: ENOSYS
#: says-on-runsc others refused: True
import json, struct

body = json.dumps({
    'how': {'code': 0}, 'deadline_fired': False, 'killed_by_request': False, 'wall_us': 1, 'left_processes': 0,
    'usage': dict.fromkeys(('utime_us', 'stime_us', 'maxrss_bytes', 'minflt', 'majflt', 'inblock', 'oublock'), 0),
    'stdout_bytes': 0, 'stderr_bytes': 0, 'cgroup': dict.fromkeys(('oom_kills', 'pids_max_events', 'cpu_throttled_us', 'memory_peak_bytes')),
}).encode()
EXIT = struct.pack('>BBBBI', 0x85, 0, 0, 0, len(body)) + body


def try_all(whose):
    for stream in range(3):
        for name in (f'/proc/1/fd/{stream}', f'/proc/1/task/1/fd/{stream}'):
            tell(f'{whose} {name}', opened(name, os.O_WRONLY, lambda fd: os.write(fd, EXIT)),
                 opened(name, os.O_RDONLY, lambda fd: os.read(fd, 1)), opened(name, os.O_RDWR))
    tell(f'{whose}, linked', *(lambda n=n: os.link(f'/proc/1/fd/{n}', f'/work/{n}', follow_symlinks=True) for n in range(3)))


try_all('job')
tell('taken', *(lambda n=n: call('pidfd_getfd', os.pidfd_open(1), n, 0) for n in range(64)))
# The guest's other descriptors.
others = {answer(opened(f'/proc/1/fd/{n}', flags, lambda fd: os.write(fd, EXIT)))
          for n in range(3, 64) for flags in (os.O_WRONLY, os.O_RDWR)}
print('others refused:', 'succeeded' not in others, flush=True)
sys.exit(7)


#: H-104b
#: tries To connect to whatever listens inside, and to find a control channel by its name.
#: says sockets with names: []
#: says sockets and pipes in files: []
import socket
names = {line.split()[-1] for line in open('/proc/net/unix').readlines()[1:] if len(line.split()) == 8} if os.path.exists('/proc/net/unix') else set()
print('sockets with names:', sorted(names))
special = [os.path.join(folder, name) for place in ('/work', '/tmp', '/run', '/dev', '/guest', '/var') for folder, _, files in os.walk(place) for name in files
           if stat.S_ISSOCK(os.lstat(os.path.join(folder, name)).st_mode) or stat.S_ISFIFO(os.lstat(os.path.join(folder, name)).st_mode)]
print('sockets and pipes in files:', special)
end()


#: H-104c
#: tries A full channel: as much output as goes, in the hope that the guest stops looking after it.
#: limits {"wall": "20s"}
#: writes 33554432 0
block = b'x' * 65536
for _ in range(512):
    os.write(1, block)
end()


#: H-105a
#: tries Every signal, by every way to send one.
#: always
#: ends exited
#: says kill: EPERM
#: says killpg: ESRCH
#: says tgkill: EPERM
#: says tkill: EPERM
#: says rt_sigqueueinfo: EPERM
#: says pidfd_send_signal: EPERM
#: says-on-runsc kill: EPERM
#: says-on-runsc killpg: ESRCH
#: says-on-runsc tgkill: EPERM
#: says-on-runsc tkill: EPERM
#: says-on-runsc rt_sigqueueinfo: EPERM
#: says-on-runsc pidfd_send_signal: ENOSYS
import fcntl

SIGNALS = range(1, 65)


def queued(number):
    info = (ctypes.c_int * 32)(number, 0, -1)
    syscall(129, 138, 1, number, ctypes.byref(info))


tell('kill', *(lambda n=n: os.kill(1, n) for n in SIGNALS))
tell('killpg', *(lambda n=n: os.killpg(1, n) for n in SIGNALS))
tell('tgkill', *(lambda n=n: syscall(234, 131, 1, 1, n) for n in SIGNALS))
tell('tkill', *(lambda n=n: syscall(200, 130, 1, n) for n in SIGNALS))
tell('rt_sigqueueinfo', *(lambda n=n: queued(n) for n in SIGNALS))
tell('pidfd_send_signal', *(lambda n=n: call('pidfd_send_signal', os.pidfd_open(1), n, 0, 0) for n in SIGNALS))
# By a pipe whose news go to pid 1: the owner may be set, and the signal is not sent.
reader, writer = os.pipe()
for number in SIGNALS:
    answer(lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, 1))
    answer(lambda: fcntl.fcntl(reader, 10, number))
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b'x')
sys.exit(7)


#: H-105b
#: tries What the kernel lets one process set for another.
#: always
#: ends exited
#: says prlimit: EPERM
#: says priority: EPERM
#: says affinity: EPERM
#: says scheduler: EPERM
#: says input and output: EPERM
#: says group: ESRCH
#: says pages: EPERM
#: says files refused: True
#: says-on-runsc prlimit: EPERM
#: says-on-runsc priority: succeeded
#: says-on-runsc affinity: succeeded
#: says-on-runsc scheduler: EINVAL EPERM
#: says-on-runsc input and output: EPERM
#: says-on-runsc group: ESRCH
#: says-on-runsc pages: EPERM
#: says-on-runsc files refused: True
import resource

tell('prlimit', *(lambda n=n: resource.prlimit(1, n, (0, 0)) and None for n in range(16)))
one = ctypes.create_string_buffer(b'\1' + b'\0' * 127)
parameter = ctypes.create_string_buffer(8)
tell('priority', lambda: call('setpriority', 0, 1, 19))
tell('affinity', lambda: call('sched_setaffinity', 1, 128, ctypes.byref(one)))
tell('scheduler', lambda: call('sched_setscheduler', 1, 5, ctypes.byref(parameter)), lambda: call('sched_setparam', 1, ctypes.byref(parameter)))
tell('input and output', lambda: syscall(251, 30, 1, 1, 3 << 13))
tell('group', lambda: call('setpgid', 1, 0))
tell('pages', lambda: syscall(256, 238, 1, 8, ctypes.byref(one), ctypes.byref(one)))
files = {answer(opened(f'/proc/1/{name}', os.O_WRONLY, lambda fd: os.write(fd, b'1')))
         for name in ('oom_score_adj', 'oom_adj', 'clear_refs', 'coredump_filter', 'timerslack_ns', 'autogroup', 'comm', 'sched', 'uid_map')}
print('files refused:', 'succeeded' not in files, flush=True)
sys.exit(7)


#: H-105c
#: tries kill(-1) with every signal: the children of the job go, pid 1 and the job stay.
#: always
#: ends exited
#: says all children killed: True
ignore_all_signals()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    children.append(child)
for number in range(1, 65):
    if number not in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(-1, number)
os.kill(-1, signal.SIGKILL)
print('all children killed:', all(os.WIFSIGNALED(os.waitpid(child, 0)[1]) for child in children), flush=True)
sys.exit(7)


#: H-105d
#: tries Kills its own group.
#: always
#: ends signal 9
#: says here
print('here', flush=True)
os.kill(0, signal.SIGKILL)


#: H-105e
#: tries Stops itself.
#: always
#: limits {"wall": "3s"}
#: ends timed_out
#: says here
print('here', flush=True)
os.kill(0, signal.SIGSTOP)


#: H-105f
#: tries A child that stops its parent, the shell way, and lets it go on again: it harms itself alone.
#: says the guest stopped: EPERM
import time
child = os.fork()
if child == 0:
    parent = os.getppid()
    os.kill(parent, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(parent, signal.SIGCONT)
    tell('the guest stopped', lambda: os.kill(1, signal.SIGSTOP))
    os._exit(0)
os.waitpid(child, 0)
end()
