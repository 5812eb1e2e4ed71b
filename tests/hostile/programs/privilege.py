# Ids, rights, namespaces, mounts, and what the image and the engine put into a container.


#: H-01a
#: tries What it is: ids, groups, capabilities, the kernel's marks of confinement.
#: always
#: says Uid one not root
#: says Gid one not root
#: says groups: []
#: says CapInh 0000000000000000
#: says CapPrm 0000000000000000
#: says CapEff 0000000000000000
#: says CapBnd 0000000000000000
#: says CapAmb 0000000000000000
#: says NoNewPrivs 1
#: says Seccomp 2
#: says-on-runsc Uid one not root
#: says-on-runsc Gid one not root
#: says-on-runsc groups: []
#: says-on-runsc CapInh 0000000000000000
#: says-on-runsc CapPrm 0000000000000000
#: says-on-runsc CapEff 0000000000000000
#: says-on-runsc CapBnd 0000000000000000
#: says-on-runsc CapAmb not shown
#: says-on-runsc NoNewPrivs not shown
#: says-on-runsc Seccomp 0
status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
for name in ('Uid', 'Gid'):
    ids = set(status[name].split())
    print(name, 'one' if len(ids) == 1 else ids, 'not root' if '0' not in ids else 'root')
print('groups:', status['Groups'].split())
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp'):
    print(name, status.get(name, 'not shown').strip())
end()


#: H-01b
#: tries Whether a thread or a program that it starts is less confined than it is itself.
#: says a thread is as confined: True
#: says a program is as confined: True
import subprocess, threading

KEPT = ('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')


def marks(path):
    return [line for line in open(path) if line.split(':')[0] in KEPT]


mine, seen = marks('/proc/self/status'), []
thread = threading.Thread(target=lambda: seen.append(marks(f'/proc/self/task/{threading.get_native_id()}/status')))
thread.start()
thread.join()
print('a thread is as confined:', seen == [mine])
script = "print(''.join(line for line in open('/proc/self/status') if line.split(':')[0] in %r), end='')" % (KEPT,)
child = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True).stdout
print('a program is as confined:', child == ''.join(mine))
end()


#: H-02a
#: tries Has its environment run something before it is confined.
#: env {"LD_PRELOAD": "/work/none.so", "LD_AUDIT": "/work/none.so", "PYTHONPATH": "/work/hooks", "BASH_ENV": "/work/hooks/sh", "ENV": "/work/hooks/sh"}
#: files {"hooks/sitecustomize.py": "import os\nHOOKED = (os.getuid(), os.geteuid(), os.getgid())\n"}
#: says the hook ran as the job: True True
#: says guest: EACCES
#: complains ERROR: ld.so: object '/work/none.so' cannot be loaded as audit interface: cannot open shared object file; ignored.
#: complains ERROR: ld.so: object '/work/none.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.
import sitecustomize
print('the hook ran as the job:', sitecustomize.HOOKED == (os.getuid(), os.getuid(), os.getgid()), os.getuid() != 0, flush=True)
tell('guest', opened('/proc/1/mem', os.O_RDONLY))
end()


#: H-04a
#: tries Set-user-id copies of a shell, its own and under other names, in each place that it can write to.
#: says /work gained nothing
#: says /tmp not run
#: says /dev/shm not run
import shutil, subprocess
for place in ('/work', '/tmp', '/dev/shm'):
    path = f'{place}/sh'
    shutil.copy('/bin/sh', path)
    os.chmod(path, 0o6755)
    shown = subprocess.run([path, '-c', 'while read n v r; do case $n in Uid:|Gid:|CapEff:) echo $v $r;; esac; done < /proc/self/status'],
                           capture_output=True, text=True) if answer(lambda: subprocess.run([path, '-c', ':'])) == 'succeeded' else None
    gained = shown and any(word not in (str(os.getuid()), str(os.getgid()), '0' * 16) for word in shown.stdout.split())
    print(place, 'not run' if shown is None else 'gained' if gained else 'gained nothing', flush=True)
end()


#: H-04b
#: tries File capabilities on programs of its own, in each place that it can write to.
#: says /work: EPERM
#: says /tmp: EPERM
#: says /dev/shm: EPERM
#: says-on-runsc /work: ENOTSUP
#: says-on-runsc /tmp: ENOTSUP
#: says-on-runsc /dev/shm: ENOTSUP
CAPABILITIES = bytes.fromhex('0100000200000000ffffffffffffffff').ljust(20, b'\0')
for place in ('/work', '/tmp', '/dev/shm'):
    open(f'{place}/program', 'w').close()
    tell(place, lambda: os.setxattr(f'{place}/program', 'security.capability', CAPABILITIES))
end()


#: H-05a
#: tries Ids, capabilities and set-user-id files.
#: always
#: ends exited
#: says setuid: EPERM
#: says setgid: EPERM
#: says guest: EPERM
#: says capset: EPERM
#: says chown: EPERM
#: says setcap: EPERM
#: says as True
#: says set-user-id files: []
#: says-on-runsc setuid: EPERM
#: says-on-runsc setgid: EPERM
#: says-on-runsc guest: EPERM
#: says-on-runsc capset: EPERM
#: says-on-runsc chown: EPERM
#: says-on-runsc setcap: ENOTSUP
#: says-on-runsc as True
#: says-on-runsc set-user-id files: []
import shutil, subprocess

tell('setuid', lambda: os.setuid(0), lambda: os.setreuid(0, 0), lambda: os.setresuid(0, 0, 0), lambda: os.seteuid(0))
tell('setgid', lambda: os.setgid(0), lambda: os.setresgid(0, 0, 0), lambda: os.setgroups([0]))
tell('guest', lambda: os.setuid(os.stat('/proc/1').st_uid or 1), lambda: os.setuid(os.getuid() - 1))
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
wanted = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)
tell('capset', lambda: call('capset', ctypes.byref(header), ctypes.byref(wanted)))
shutil.copy('/bin/sh', '/work/sh')
tell('chown', lambda: os.chown('/work/sh', 0, 0))
tell('setcap', lambda: os.setxattr('/work/sh', 'security.capability', bytes.fromhex('0100000200000000ffffffffffffffff')[:20].ljust(20, b'\0')))
os.chmod('/work/sh', 0o6755)
status = subprocess.run(['/work/sh', '-c', 'while read name value rest; do case $name in Uid:|CapEff:) echo $name $value;; esac; done < /proc/self/status'],
                        capture_output=True, text=True).stdout
print('as', status.split() == ['Uid:', str(os.getuid()), 'CapEff:', '0' * 16], flush=True)
found = [f'{folder}/{name}' for folder, _, files in os.walk('/usr') for name in files
         if os.lstat(f'{folder}/{name}').st_mode & 0o6000]
print('set-user-id files:', found, flush=True)
sys.exit(7)


#: H-05b
#: tries To keep, raise or spread capabilities, and to take off what it cannot get rid of.
#: says ambient: EPERM
#: says bounding set: EPERM
#: says secure bits: EPERM
#: says new privileges: EINVAL
#: says filter off: EINVAL
#: says root after that: EPERM
#: says-on-runsc ambient: EINVAL
#: says-on-runsc bounding set: EINVAL EPERM
#: says-on-runsc secure bits: EINVAL
#: says-on-runsc new privileges: EINVAL
#: says-on-runsc filter off: EINVAL
#: says-on-runsc root after that: EPERM
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_SET_SECCOMP = 8, 24, 28, 38, 47, 22
tell('ambient', *(lambda n=n: call('prctl', PR_CAP_AMBIENT, 2, n, 0, 0) for n in range(41)))
tell('bounding set', *(lambda n=n: call('prctl', PR_CAPBSET_DROP, n, 0, 0, 0) for n in range(41)))
tell('secure bits', lambda: call('prctl', PR_SET_SECUREBITS, 0x3f, 0, 0, 0))
tell('new privileges', lambda: call('prctl', PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
tell('filter off', lambda: call('prctl', PR_SET_SECCOMP, 0, 0, 0, 0))
answer(lambda: call('prctl', PR_SET_KEEPCAPS, 1, 0, 0, 0))
tell('root after that', lambda: os.setresuid(0, 0, 0))
end()


#: H-05c
#: tries Set-user-id and set-group-id programs, and file capabilities, anywhere in the image.
#: says found: []
found = []
for folder, folders, files in os.walk('/'):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ('/proc', '/sys', '/dev')]
    for path in (os.path.join(folder, name) for name in files):
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and (mode & 0o6000 or answer(lambda: os.getxattr(path, 'security.capability') and None) == 'succeeded'):
            found.append(path)
print('found:', found)
end()


#: H-06a
#: tries Mounts of every kind: new, bound, moved, remounted.
#: always
#: says new: EPERM
#: says bound: EPERM
#: says moved: EPERM
#: says remounted: EPERM
#: says propagation: EPERM
KINDS = (b'tmpfs', b'proc', b'sysfs', b'cgroup', b'cgroup2', b'overlay', b'fuse', b'ext4', b'debugfs', b'devpts', b'mqueue', b'bpf')
tell('new', *(lambda kind=kind: call('mount', b'none', b'/work', kind, 0, b'') for kind in KINDS))
tell('bound', *(lambda path=path: call('mount', path, b'/work', 0, 4096, 0) for path in (b'/', b'/proc', b'/etc', b'/guest')))
tell('moved', lambda: call('mount', b'/tmp', b'/work', 0, 8192, 0))
tell('remounted', *(lambda path=path: call('mount', 0, path, 0, 32 | 4096, 0) for path in (b'/', b'/proc', b'/guest', b'/tmp', b'/sys')))
tell('propagation', *(lambda flag=flag: call('mount', 0, b'/', 0, flag | 16384, 0) for flag in (1 << 20, 1 << 19, 1 << 18)))
end()


#: H-06b
#: tries The newer calls for mounts.
#: says fsopen: EPERM
#: says fsconfig: EPERM
#: says fsmount: EPERM
#: says fspick: EPERM
#: says open_tree: EPERM
#: says move_mount: EPERM
#: says mount_setattr: EPERM
#: says-on-runsc fsopen: ENOSYS
#: says-on-runsc fsconfig: ENOSYS
#: says-on-runsc fsmount: ENOSYS
#: says-on-runsc fspick: ENOSYS
#: says-on-runsc open_tree: ENOSYS
#: says-on-runsc move_mount: ENOSYS
#: says-on-runsc mount_setattr: ENOSYS
tell('fsopen', lambda: syscall(430, 430, b'tmpfs', 0))
tell('fsconfig', lambda: syscall(431, 431, 0, 6, 0, 0, 0))
tell('fsmount', lambda: syscall(432, 432, 0, 0, 0))
tell('fspick', lambda: syscall(433, 433, -100, b'/', 0))
tell('open_tree', lambda: syscall(428, 428, -100, b'/', 1))
tell('move_mount', lambda: syscall(429, 429, -100, b'/tmp', -100, b'/work', 0))
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
tell('mount_setattr', lambda: syscall(442, 442, -100, b'/', 0, ctypes.byref(attributes), 32))
end()


#: H-06c
#: tries Another root: chroot, pivot_root, unmounting what hides something.
#: says chroot: EPERM
#: says pivot_root: EPERM
#: says umount2: EPERM
#: says out by a descriptor: EACCES
tell('chroot', *(in_a_child(lambda path=path: call('chroot', path)) for path in (b'/work', b'/', b'/proc/1/root')))
tell('pivot_root', lambda: syscall(155, 41, b'/work', b'/work'))
tell('umount2', *(lambda path=path, flag=flag: call('umount2', path, flag) for flag in (0, 2, 8)
                  for path in (b'/work', b'/tmp', b'/dev/shm', b'/proc', b'/sys', b'/guest', b'/proc/cmdline', b'/etc/hosts', b'/')))
tell('out by a descriptor', lambda: os.chdir('/proc/1/root'), lambda: os.chdir('/proc/1/cwd'))
end()


#: H-07a
#: tries Each kind of namespace by unshare.
#: says user: EPERM
#: says mount: EPERM
#: says pid: EPERM
#: says net: EPERM
#: says ipc: EPERM
#: says uts: EPERM
#: says cgroup: EPERM
#: says time: EPERM
#: says-on-runsc user: succeeded
#: says-on-runsc mount: succeeded
#: says-on-runsc pid: EPERM
#: says-on-runsc net: EPERM
#: says-on-runsc ipc: EPERM
#: says-on-runsc uts: EPERM
#: says-on-runsc cgroup: succeeded
#: says-on-runsc time: succeeded
for name, flag in NAMESPACES.items():
    tell(name, in_a_child(lambda: call('unshare', flag)))
end()


#: H-07b
#: tries Each kind of namespace by clone.
#: says user: EPERM
#: says mount: EPERM
#: says pid: EPERM
#: says net: EPERM
#: says ipc: EPERM
#: says uts: EPERM
#: says cgroup: EPERM
#: says-on-runsc user: succeeded
#: says-on-runsc mount: succeeded
#: says-on-runsc pid: EPERM
#: says-on-runsc net: EPERM
#: says-on-runsc ipc: EPERM
#: says-on-runsc uts: EPERM
#: says-on-runsc cgroup: succeeded
def cloned(flag):
    def attempt():
        returned = libc.syscall(ctypes.c_long(56 if platform.machine() == 'x86_64' else 220), ctypes.c_long(flag | signal.SIGCHLD), 0, 0, 0, 0)
        if returned == 0:
            os._exit(0)
        if returned < 0:
            raise OSError(ctypes.get_errno(), 'clone')
        os.waitpid(returned, 0)
    return attempt


for name, flag in NAMESPACES.items():
    if name != 'time':
        tell(name, cloned(flag))
end()


#: H-07c
#: tries Each kind of namespace by clone3.
#: says user: ENOSYS
#: says mount: ENOSYS
#: says pid: ENOSYS
#: says net: ENOSYS
#: says ipc: ENOSYS
#: says uts: ENOSYS
#: says cgroup: ENOSYS
#: says time: ENOSYS
def cloned(flag):
    arguments = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, signal.SIGCHLD)

    def attempt():
        returned = libc.syscall(ctypes.c_long(435), ctypes.byref(arguments), ctypes.c_long(88))
        if returned == 0:
            os._exit(0)
        if returned < 0:
            raise OSError(ctypes.get_errno(), 'clone3')
        os.waitpid(returned, 0)
    return attempt


for name, flag in NAMESPACES.items():
    tell(name, cloned(flag))
end()


#: H-07d
#: tries The namespaces of the guest and its own, entered by setns.
#: says 1: entered 0
#: says self: entered 0
#: says by a process: EPERM
#: says-on-runsc 1: entered 0
#: says-on-runsc self: entered 0
#: says-on-runsc by a process: ENOSYS
for whose in ('1', 'self'):
    kinds = ('cgroup', 'ipc', 'mnt', 'net', 'pid', 'time', 'user', 'uts')

    def entered(kind):
        def attempt():
            fd = os.open(f'/proc/{whose}/ns/{kind}', os.O_RDONLY)
            try:
                call('setns', fd, 0)
            finally:
                os.close(fd)
        return attempt
    print(f'{whose}: entered', sum(answer(in_a_child(entered(kind))) == 'succeeded' for kind in kinds), flush=True)
tell('by a process', lambda: call('setns', os.pidfd_open(1), NAMESPACES['mount'] | NAMESPACES['pid'] | NAMESPACES['net']))
end()


#: H-07e
#: tries A user namespace of its own, where it can be had: all capabilities there, none on what was there before.
#: always
#: ends exited
#: says unshare: EPERM
#: says setgroups: EACCES
#: says uid_map: EPERM
#: says gid_map: EPERM
#: says root there: False
#: says channel: EACCES
#: says memory: EACCES EPERM
#: says signals: EPERM
#: says limits: EPERM
#: says mounts: EPERM
#: says files: EACCES EPERM EROFS
#: says-on-runsc unshare: succeeded
#: says-on-runsc setgroups: ENOENT
#: says-on-runsc uid_map: succeeded
#: says-on-runsc gid_map: succeeded
#: says-on-runsc root there: True
#: says-on-runsc channel: EACCES
#: says-on-runsc memory: EACCES EPERM
#: says-on-runsc signals: EPERM
#: says-on-runsc limits: EPERM
#: says-on-runsc mounts: EPERM
#: says-on-runsc files: EACCES EPERM EROFS
import resource

maps = {'setgroups': 'deny', 'uid_map': f'0 {os.getuid()} 1', 'gid_map': f'0 {os.getgid()} 1'}
tell('unshare', lambda: call('unshare', 0x10000000))
for name, text in maps.items():
    tell(name, opened(f'/proc/self/{name}', os.O_WRONLY, lambda fd: os.write(fd, text.encode())))
print('root there:', os.getuid() == 0, flush=True)
tell('channel', *(opened(f'/proc/1/fd/{n}', flags) for n in range(3) for flags in (os.O_RDONLY, os.O_WRONLY)))
tell('memory', opened('/proc/1/mem', os.O_RDWR), lambda: call('ptrace', 16, 1, 0, 0))
tell('signals', *(lambda n=n: os.kill(1, n) for n in range(1, 65)))
tell('limits', *(lambda n=n: resource.prlimit(1, n, (0, 0)) and None for n in range(16)))
tell('mounts', lambda: call('mount', b'none', b'/tmp', b'tmpfs', 0, 0), lambda: call('mount', 0, b'/', 0, 32, 0),
     lambda: call('umount2', b'/work', 2))
tell('files', lambda: os.mkdir('/x'), lambda: os.mkdir('/dev/x'), lambda: os.chown('/dev', 0, 0), lambda: os.chmod('/guest', 0o777))
sys.exit(7)


#: H-09a
#: tries Every file of the kernel's own file systems, but what the job may change of itself.
#: always
#: ends exited
#: says changed: []
#: says devices: /dev/full /dev/null /dev/ptmx /dev/random /dev/tty /dev/urandom /dev/zero
#: says nothing made: True
#: says-on-runsc changed: []
#: says-on-runsc devices: /dev/full /dev/fuse /dev/null /dev/ptmx /dev/random /dev/tty /dev/urandom /dev/zero
#: says-on-runsc nothing made: True
SELF = ('/proc/self', '/proc/thread-self', f'/proc/{os.getpid()}', '/dev/shm', '/dev/fd')
changed, tried = [], 0
for root in ('/proc', '/sys', '/dev'):
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if f'{folder}/{name}' not in SELF]
        for path in (f'{folder}/{name}' for name in files):
            tried += 1
            # Devices without a memory, which also hide files of /proc.
            if answer(lambda: stat.S_ISCHR(os.stat(path).st_mode) and 'device') == 'device':
                continue
            if answer(opened(path, os.O_WRONLY, lambda fd: os.write(fd, b'0'))) == 'succeeded':
                changed.append(path)
print('changed:', sorted(changed), flush=True)
devices = [path for path in (f'/dev/{name}' for name in os.listdir('/dev')) if stat.S_ISCHR(os.stat(path).st_mode) or stat.S_ISBLK(os.stat(path).st_mode)]
print('devices:', *sorted(devices), flush=True)
made = {answer(lambda path=path: os.mkdir(f'{path}/x')) for path in ('/', '/proc', '/sys', '/sys/fs/cgroup', '/dev', '/guest', '/etc')}
print('nothing made:', 'succeeded' not in made, flush=True)
assert tried > 100, tried
sys.exit(7)


#: H-09b
#: tries What it may change of itself, to be killed later than others or to be someone else.
#: says killed after the host: EACCES
#: says maps: EPERM
#: says label: EINVAL
#: says-on-runsc killed after the host: succeeded
#: says-on-runsc maps: EPERM
#: says-on-runsc label: ENOENT
tell('killed after the host', *(opened('/proc/self/oom_score_adj', os.O_WRONLY, lambda fd, n=n: os.write(fd, str(n).encode())) for n in (-1000, -500, -1)))
tell('maps', *(opened(f'/proc/self/{name}', os.O_WRONLY, lambda fd: os.write(fd, b'0 0 4294967295')) for name in ('uid_map', 'gid_map')))
tell('label', *(opened(f'/proc/self/attr/{name}', os.O_WRONLY, lambda fd: os.write(fd, b'unconfined')) for name in ('current', 'exec')))
end()


#: H-09c
#: tries The files by which the kernel is told to run something, or to stop.
#: says control groups made: False
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/modprobe', '/proc/sys/kernel/hotplug', '/proc/sysrq-trigger',
             '/sys/kernel/uevent_helper', '/sys/fs/cgroup/release_agent', '/sys/fs/cgroup/memory/release_agent', '/sys/fs/cgroup/pids/cgroup.procs',
             '/sys/fs/cgroup/devices/devices.allow', '/proc/sys/fs/binfmt_misc/register', '/proc/sys/vm/panic_on_oom', '/proc/sys/kernel/panic',
             '/sys/power/state', '/sys/kernel/security/apparmor/.load', '/sys/kernel/debug/tracing/trace'):
    word = answer(opened(path, os.O_WRONLY, lambda fd: os.write(fd, b'|/work/x')))
    if word == 'succeeded':
        print(path, 'written')
made = {answer(lambda path=path: os.mkdir(path)) for path in ('/sys/fs/cgroup/x', '/sys/fs/cgroup/memory/x', '/sys/fs/cgroup/pids/x', '/sys/kernel/config/x')}
print('control groups made:', 'succeeded' in made)
end()


#: H-10a
#: tries The image's folders: new files, folders, links, and changes of what is there.
#: says done
for name in ('/', '/usr', '/usr/bin', '/etc', '/bin', '/lib', '/opt', '/var', '/var/tmp', '/home', '/root', '/run', '/guest'):
    if os.path.isdir(name):
        attempts = {answer(lambda: os.mkdir(f'{name}/x')), answer(lambda: os.symlink('/work', f'{name}/x')), answer(opened(f'{name}/x', os.O_CREAT | os.O_WRONLY)),
                    answer(lambda: os.chmod(name, 0o777)), answer(lambda: os.utime(name))}
        if 'succeeded' in attempts:
            print(name, 'changed')
print('done')
end()


#: H-10b
#: tries The interpreter that runs it, by its path and by /proc/self/exe, and by memory that is shared with the file.
#: says written: EACCES EROFS
#: says removed: EACCES EROFS
#: says mapped: EACCES
#: says named anew: EXDEV
#: says-on-runsc written: EACCES
#: says-on-runsc removed: EACCES EROFS
#: says-on-runsc mapped: EACCES
#: says-on-runsc named anew: EXDEV
import mmap
path = os.path.realpath(sys.executable)
tell('written', *(opened(name, flags) for name in (path, '/proc/self/exe') for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC)))
tell('removed', lambda: os.unlink(path), lambda: os.rename(path, path + '.old'), lambda: os.truncate(path, 0))


def mapped():
    with open(path, 'rb') as file:
        mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


tell('mapped', mapped)
tell('named anew', lambda: os.link(path, '/work/python'))
end()


#: H-11a
#: tries The files that the engine puts into each container: names, hosts, resolvers, users.
#: says done
for path in ('/etc/passwd', '/etc/shadow', '/etc/group', '/etc/hosts', '/etc/resolv.conf', '/etc/hostname', '/etc/ld.so.preload', '/etc/ld.so.cache'):
    words = {answer(opened(path, flags, lambda fd: os.write(fd, b'root::0:0::/:/bin/sh\n'))) for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT)}
    words |= {answer(lambda: os.truncate(path, 0)), answer(lambda: os.chmod(path, 0o666)), answer(lambda: os.unlink(path))}
    open('/work/own', 'w').write('root::0:0::/:/bin/sh\n')
    words.add(answer(lambda: os.rename('/work/own', path)))
    if 'succeeded' in words:
        print(path, 'changed')
print('done')
end()


#: H-71a
#: tries Hard links to files that it cannot write or read.
#: says linked: False
linked = {answer(lambda path=path: os.link(path, '/work/linked')) for path in ('/etc/passwd', '/etc/shadow', '/bin/sh', '/guest/mayfly-guest', '/proc/1/environ')}
print('linked:', 'succeeded' in linked)
end()


#: H-90a
#: tries What it can learn: names, paths and secrets of the host and of us.
#: says names of ours: []
#: says ids of containers: False
#: says host name: sandbox
#: says environment: ['ASAN_OPTIONS', 'HOME', 'HOSTNAME', 'LANG', 'LOGNAME', 'PATH', 'TMPDIR', 'USER']
#: says hardware: []
import json, re
text = '\n'.join([json.dumps(dict(os.environ)), platform.node(), ' '.join(open('/proc/self/cmdline').read().split('\0'))])
for path in ('/proc/self/cgroup', '/proc/1/cgroup', '/etc/hostname', '/etc/hosts', '/etc/machine-id', '/proc/sys/kernel/hostname', '/proc/cmdline'):
    try:
        text += open(path).read()
    except OSError:
        pass
print('names of ours:', sorted(set(re.findall(r'mayfly[-_.a-z]*|executor|session|tenant', text.lower()))))
print('ids of containers:', bool(re.search(r'[0-9a-f]{64}', text)))
print('host name:', platform.node())
print('environment:', sorted(set(os.environ) - {'GOMAXPROCS', 'UV_THREADPOOL_SIZE', 'JAVA_TOOL_OPTIONS'} - {name for name in os.environ if 'NUM_THREADS' in name or name.startswith(('CANARY', 'PYTHON'))}))
print('hardware:', [path for path in ('/sys/class/dmi/id/product_uuid', '/sys/firmware/dmi/tables/DMI') if answer(opened(path, os.O_RDONLY, lambda fd: os.read(fd, 1))) == 'succeeded'])
end()


#: H-92a
#: tries Credentials that an image may hold.
#: says keys: []
#: says files of credentials: []
import re
NAMES = re.compile(r'(^id_(rsa|dsa|ecdsa|ed25519)$|\.pem$|\.p12$|^\.npmrc$|^\.pypirc$|^\.netrc$|^\.git-credentials$|^credentials$|^\.dockercfg$|^config\.json$)')
found = []
for folder, folders, files in os.walk('/'):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ('/proc', '/sys', '/dev', '/work')]
    found += [os.path.join(folder, name) for name in files if NAMES.search(name)]
keys = [path for path in found if b'PRIVATE KEY' in open(path, 'rb').read(65536)]
print('keys:', keys)
print('files of credentials:', [path for path in found if not path.endswith('.pem')])
end()


#: H-115a
#: tries Devices: those that are there, and new ones.
#: says made: EPERM
#: says made and opened: ENOENT
#: says opened: []
#: says-on-runsc made: succeeded
#: says-on-runsc made and opened: ENOENT ENXIO
#: says-on-runsc opened: ['fuse', 'net/tun']
tell('made', *(lambda kind=kind, n=n: os.mknod(f'/work/{kind}{n}', kind | 0o666, os.makedev(*n)) for kind in (stat.S_IFBLK, stat.S_IFCHR)
               for n in ((1, 1), (8, 0), (254, 0))))
tell('made and opened', *(opened(f'/work/{name}', os.O_RDWR) for name in os.listdir('/work') if name.isdigit() or '(' in name), lambda: 'ENOENT')
THERE = ('kvm', 'fuse', 'net/tun', 'mem', 'kmem', 'port', 'kmsg', 'sda', 'vda', 'nvme0', 'loop-control', 'mapper/control', 'nvidia0', 'dri/card0', 'vsock', 'vhost-net', 'rtc0', 'userfaultfd')
print('opened:', [name for name in THERE if answer(opened(f'/dev/{name}', os.O_RDWR)) == 'succeeded'])
end()
