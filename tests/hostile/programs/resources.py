# Limits.


#: H-41a
#: tries A fork bomb that no signal but one can end.
#: always
#: limits {"wall": "6s", "pids": 16}
#: ends timed_out
#: ends-on-runsc guest_lost
#: says begun
ignore_all_signals()
os.write(1, b'begun\n')
while True:
    try:
        os.fork()
    except OSError:
        pass


#: H-41b
#: tries Threads without end.
#: limits {"pids": 32}
#: says ended at its limit: True
import threading
held, begun = threading.Event(), 0
try:
    while begun < 1000:
        threading.Thread(target=held.wait, daemon=True).start()
        begun += 1
except (RuntimeError, OSError):
    pass
print('ended at its limit:', begun <= 32, flush=True)
os._exit(7)


#: H-41c
#: tries Programs that start programs, each two.
#: limits {"pids": 16, "wall": "5s", "memory": "128MiB"}
#: ends timed_out
#: ends-on-runsc timed_out or guest_lost or out_of_memory_whole
#: says begins
print('begins', flush=True)
while True:
    try:
        os.fork()
        os.execv(sys.executable, [sys.executable, '-S', '-c', 'import os, sys\ntry:\n    os.fork()\nexcept OSError:\n    pass\nos.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])'])
    except OSError:
        pass


#: H-42a
#: tries Children in sessions of their own that fork on, ignore all signals and leave the dead unburied.
#: limits {"pids": 24, "wall": "5s"}
#: ends timed_out
#: ends-on-runsc timed_out or guest_lost or out_of_memory_whole
#: says begins
ignore_all_signals()
os.write(1, b'begins\n')
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            try:
                os.fork()
            except OSError:
                pass
            if os.getpid() % 2:
                os._exit(0)
    except OSError:
        pass


#: H-42b
#: tries Dead children by the hundred, unburied.
#: limits {"pids": 32}
#: says EAGAIN at its limit: True
left = 0
try:
    while left < 1000:
        if os.fork() == 0:
            os._exit(0)
        left += 1
except OSError as error:
    print(errno.errorcode[error.errno], 'at its limit:', left <= 32, flush=True)
os._exit(7)


#: H-43a
#: tries All memory at once.
#: limits {"memory": "128MiB"}
#: ends out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says takes
print('takes', flush=True)
block = bytearray(1 << 30)
for at in range(0, len(block), 4096):
    block[at] = 1
end()


#: H-43b
#: tries Memory, a page at a time.
#: limits {"memory": "64MiB"}
#: ends out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says takes
import mmap
print('takes', flush=True)
pages = []
while True:
    pages.append(mmap.mmap(-1, 4096))
    pages[-1][0] = 1


#: H-43c
#: tries Memory in many processes.
#: limits {"memory": "128MiB", "pids": 32}
#: ends out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says takes
print('takes', flush=True)
for _ in range(4):
    os.fork()
kept = []
while True:
    kept.append(b'x' * (1 << 20))


#: H-43d
#: tries Shared memory without a name.
#: limits {"memory": "128MiB"}
#: ends out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says takes
import mmap
print('takes', flush=True)
kept = []
while True:
    kept.append(mmap.mmap(-1, 1 << 20))
    kept[-1].write(b'x' * (1 << 20))


#: H-43e
#: tries Memory that cannot be moved, and large pages.
#: says locked: ENOMEM
#: says large pages: ENOMEM
#: says-on-runsc locked: ENOMEM
#: says-on-runsc large pages: succeeded
tell('locked', lambda: call('mlockall', 3), lambda: call('mlock', ctypes.byref(ctypes.create_string_buffer(64 << 20)), 64 << 20))
import mmap
tell('large pages', lambda: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000) and None)
end()


#: H-43f
#: tries A stack without end.
#: ends signal 11
#: says falls
import threading
print('falls', flush=True)
sys.setrecursionlimit(1 << 30)


def deeper(n):
    return sorted([n], key=deeper)


deeper(0)


#: H-43g
#: tries Files that are nowhere: memory behind descriptors.
#: limits {"memory": "64MiB"}
#: ends out_of_memory or exited
#: ends-on-runsc out_of_memory_whole or exited
#: says takes
print('takes', flush=True)
kept = [os.memfd_create(str(n)) for n in range(16)]
try:
    while True:
        for fd in kept:
            os.write(fd, b'x' * (1 << 20))
except OSError:
    end()


#: H-43h
#: tries Memory of the kernel: pipes and sockets, all full.
#: limits {"memory": "64MiB", "pids": 8}
#: ends exited or out_of_memory
#: ends-on-runsc exited or out_of_memory_whole
#: says takes
import socket
kept = []
print('takes', flush=True)
try:
    while True:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        one, other = socket.socketpair()
        one.setblocking(False)
        kept.append((reader, writer, one, other))
        for write in (lambda: os.write(writer, b'x' * 65536), lambda: one.send(b'x' * 65536)):
            try:
                while True:
                    write()
            except BlockingIOError:
                pass
except OSError:
    os._exit(7)


#: H-43i
#: tries System V memory beyond every size.
#: limits {"memory": "128MiB"}
#: ends out_of_memory or exited
#: ends-on-runsc out_of_memory_whole or exited
#: says takes
print('takes', flush=True)
libc.shmat.restype = ctypes.c_void_p
for n in range(64):
    shared = libc.shmget(n + 1, 16 << 20, 0o1600)
    if shared < 0:
        break
    address = libc.shmat(shared, None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        break
    ctypes.memset(address, 1, 16 << 20)
end()


#: H-44a
#: tries A child that is killed for memory, and a parent that says all is well.
#: always
#: limits {"memory": "128MiB"}
#: ends child_out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says begins
print('begins', flush=True)
child = os.fork()
if child == 0:
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
os.waitpid(child, 0)
end()


#: H-46a
#: tries Every writable place, to its last byte.
#: always
#: ends exited
#: says /work ENOSPC after all
#: says /tmp ENOSPC after all
#: says /dev/shm ENOSPC after all
for folder in ('/work', '/tmp', '/dev/shm'):
    room = os.statvfs(folder)
    room = room.f_bavail * room.f_frsize
    written = 0
    with open(f'{folder}/fill', 'wb', buffering=0) as file:
        try:
            while True:
                written += file.write(b'x' * 65536)
        except OSError as error:
            print(folder, errno.errorcode[error.errno], 'after all' if written == room else f'after {written} of {room}', flush=True)
sys.exit(7)


#: H-46b
#: tries Full file systems are memory that no kill gives back: the kernel has to take the job all the same, and not the guest.
#: always
#: ends out_of_memory
#: ends-on-runsc out_of_memory_whole
#: says full
for folder in ('/work', '/tmp', '/dev/shm'):
    with open(f'{folder}/fill', 'wb', buffering=0) as file:
        try:
            while True:
                file.write(b'x' * 65536)
        except OSError:
            pass
print('full', flush=True)
kept = []
while True:
    kept.append(bytearray(1 << 20))


#: H-46c
#: tries To have the guest killed in its place: a lower score of its own, full file systems, then memory.
#: ends out_of_memory or out_of_memory_whole
#: ends-on-runsc out_of_memory_whole
#: says fills
for score in (0, 100, 500):
    if answer(opened('/proc/self/oom_score_adj', os.O_WRONLY, lambda fd: os.write(fd, str(score).encode()))) == 'succeeded':
        break
print('fills', flush=True)
for folder in ('/work', '/tmp', '/dev/shm'):
    with open(f'{folder}/fill', 'wb', buffering=0) as file:
        try:
            while True:
                file.write(b'x' * 65536)
        except OSError:
            pass
kept = []
while True:
    kept.append(bytearray(1 << 20))


#: H-47a
#: tries Every writable place, to its last file. What can't be bounded by count is bounded by the memory limit.
#: always
#: limits {"memory": "128MiB"}
#: ends exited
#: ends-on-runsc out_of_memory_whole
#: says /work ENOSPC below 200000 files
#: says /tmp ENOSPC below 200000 files
#: says-on-runsc
for folder in ('/work', '/tmp'):
    made = 0
    try:
        while made < 200000:
            os.close(os.open(f'{folder}/{made}', os.O_CREAT | os.O_WRONLY))
            made += 1
        print(folder, 'no end')
    except OSError as error:
        print(folder, errno.errorcode[error.errno], 'below 200000 files', flush=True)
sys.exit(7)


#: H-47b
#: tries Folders and hard links without end.
#: limits {"work": "4MiB", "tmp": "4MiB", "memory": "128MiB"}
#: ends exited
#: ends-on-runsc exited or out_of_memory_whole
#: says /work ENOSPC below 20000
#: says /tmp ENOSPC below 20000
#: says links ENOSPC below 20000
#: says-on-runsc
for place in ('/work', '/tmp'):
    made = 0
    try:
        while made < 20000:
            os.mkdir(f'{place}/{made}')
            made += 1
    except OSError as error:
        print(place, errno.errorcode[error.errno], 'below 20000' if made < 20000 else 'no end', flush=True)
    for n in range(made):
        os.rmdir(f'{place}/{n}')
open('/work/one', 'w').close()
made = 0
try:
    while made < 20000:
        os.link('/work/one', f'/work/{made}')
        made += 1
except OSError as error:
    print('links', errno.errorcode[error.errno], 'below 20000' if made < 20000 else 'no end', flush=True)
end()


#: H-48a
#: tries /dev/shm, by bytes and by files: it counts no files, and memory is what ends them.
#: limits {"memory": "64MiB", "shm": "1MiB"}
#: ends exited or out_of_memory
#: ends-on-runsc exited or out_of_memory_whole
#: says ENOSPC at its size: True
written = 0
try:
    with open('/dev/shm/fill', 'wb', buffering=0) as file:
        while True:
            written += file.write(b'x' * 65536)
except OSError as error:
    print(errno.errorcode[error.errno], 'at its size:', written == 1 << 20, flush=True)
os.unlink('/dev/shm/fill')
made = 0
try:
    while made < 100000:
        os.close(os.open(f'/dev/shm/{made}', os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError:
    pass
end()


#: H-48b
#: tries Every folder, for one that can be written to.
#: says written: ['/dev/mqueue', '/dev/shm', '/tmp', '/work']
#: says-on-runsc written: ['/dev/shm', '/tmp', '/work']
found = set()
for folder, folders, files in os.walk('/', followlinks=False):
    folders[:] = [name for name in folders if not os.path.islink(os.path.join(folder, name)) and not (folder == '/proc' and name.isdigit())]
    if answer(opened(f'{folder}/canary', os.O_CREAT | os.O_WRONLY)) == 'succeeded':
        os.unlink(f'{folder}/canary')
        found.add(folder)
print('written:', sorted(found))
end()


#: H-54a
#: tries Burns all processors in as many threads as it may have.
#: limits {"wall": "3s", "cpu": "0.5", "pids": 16}
#: ends timed_out
for _ in range(12):
    if os.fork() == 0:
        break
while True:
    pass


#: H-54b
#: tries To be served before others: priorities, real time, other processors.
#: says nice: EACCES
#: says real time: EPERM
#: says deadline: EPERM
#: says input and output: EPERM
#: says its own limits: EPERM
#: says-on-runsc nice: succeeded
#: says-on-runsc real time: EINVAL
#: says-on-runsc deadline: ENOSYS
#: says-on-runsc input and output: EPERM
#: says-on-runsc its own limits: EPERM
tell('nice', *(lambda n=n: os.setpriority(os.PRIO_PROCESS, 0, n) for n in (-20, -1)))
parameter = ctypes.c_int(50)
tell('real time', *(lambda n=n: call('sched_setscheduler', 0, n, ctypes.byref(parameter)) for n in (1, 2)))
attributes = (ctypes.c_uint64 * 6)(48 | 6 << 32, 0, 0, 10 ** 6, 10 ** 7, 10 ** 7)
tell('deadline', lambda: syscall(314, 274, 0, ctypes.byref(attributes), 0))
tell('input and output', lambda: syscall(251, 30, 1, 0, 1 << 13))
import resource
unlimited = (ctypes.c_uint64 * 2)(2 ** 64 - 1, 2 ** 64 - 1)
tell('its own limits', *(lambda n=n: call('setrlimit', n, ctypes.byref(unlimited)) for n in
                         (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)))
end()


#: H-54c
#: tries Wakes and timers as many as go, for three seconds.
#: limits {"wall": "3s", "pids": 24}
#: ends timed_out
import threading, time
condition = threading.Condition()


def storm():
    while True:
        with condition:
            condition.notify_all()
            condition.wait(0.0001)


for _ in range(16):
    threading.Thread(target=storm, daemon=True).start()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
while True:
    time.sleep(1)


#: H-57a
#: tries Writes that are forced out, past every cache, for three seconds.
#: limits {"wall": "3s"}
#: ends timed_out
import mmap
block = mmap.mmap(-1, 4096)
direct = 0
try:
    direct = os.open('/work/direct', os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
except OSError:
    direct = os.open('/work/direct', os.O_CREAT | os.O_WRONLY)
n = 0
while True:
    os.pwrite(direct, block, n % 4096 * 4096)
    os.fsync(direct)
    os.sync()
    n += 1


#: H-57b
#: tries The image, read again and again and thrown out of the cache, for three seconds.
#: limits {"wall": "3s"}
#: ends timed_out
paths = [os.path.join(folder, name) for folder, _, files in os.walk('/usr/lib') for name in files]
while True:
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.read(fd, 1 << 20)
            os.close(fd)
        except OSError:
            pass


#: H-58a
#: tries Descriptors in many processes, sockets that nobody accepts, watchers of watchers.
#: limits {"pids": 8}
#: says descriptors: EMFILE within its limit: True
#: says watchers of watchers: ELOOP
#: says connections that nobody accepts end: True
import select, socket
kept = []
try:
    while True:
        kept.append(os.dup(0))
except OSError as error:
    print('descriptors:', errno.errorcode[error.errno], 'within its limit:', len(kept) < 1024)
for fd in kept:
    os.close(fd)
pollers = [select.epoll() for _ in range(64)]


def nested():
    for one, other in zip(pollers, pollers[1:]):
        other.register(one.fileno(), select.EPOLLIN)


tell('watchers of watchers', nested)
listener = socket.socket(socket.AF_UNIX)
listener.bind('\0never')
listener.listen(1)
clients = []
try:
    while len(clients) < 2000:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.connect('\0never')
        clients.append(client)
except OSError:
    pass
print('connections that nobody accepts end:', len(clients) < 900)
end()


#: H-58b
#: tries Descriptors, queues, timers, pipes, watches and processes, each to its end, and all held.
#: always
#: limits {"pids": 32}
#: ends exited
#: ends-on-runsc out_of_memory_whole
#: says inotify: EMFILE after some
#: says queues: EMFILE after some
#: says timers: EAGAIN after some
#: says processes: EAGAIN after some
#: says pipes: EPERM after some
#: says descriptors: EMFILE after some
#: says-on-runsc inotify: EMFILE after some
#: says-on-runsc queues: EMFILE at once
import fcntl, time


def until_refused(name, take):
    for taken in range(100000):
        try:
            take(taken)
        except OSError as error:
            print(f'{name}:', errno.errorcode[error.errno], 'after some' if taken else 'at once', flush=True)
            return
    print(f'{name}: no end', flush=True)


def process(_):
    if os.fork() == 0:
        while True:
            time.sleep(600)


timer = ctypes.c_void_p()
until_refused('inotify', lambda _: call('inotify_init1', 0))
until_refused('queues', lambda n: call('mq_open', f'/{n}'.encode(), os.O_CREAT | os.O_RDWR, 0o600, 0))
until_refused('timers', lambda _: call('timer_create', 0, 0, ctypes.byref(timer)))
until_refused('processes', process)
until_refused('pipes', lambda _: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20))
until_refused('descriptors', lambda _: os.dup(1))
sys.exit(7)
