# What could be left for others, heard of others, or found of the host.


#: H-31a
#: tries System V memory, queues and semaphores for whoever comes next or runs beside it.
#: always
#: copies 3
#: says found: ENOENT
#: says left: succeeded
#: says listed: []
KEY, GET, CREATE = 0x6d617966, 0o666, 0o1666
tell('found', lambda: call('shmget', KEY, 4096, GET), lambda: call('msgget', KEY, GET), lambda: call('semget', KEY, 1, GET))
tell('left', lambda: call('shmget', KEY, 4096, CREATE), lambda: call('msgget', KEY, CREATE), lambda: call('semget', KEY, 1, CREATE))
print('listed:', [name for name in ('shm', 'msg', 'sem') if os.path.exists(f'/proc/sysvipc/{name}') and len(open(f'/proc/sysvipc/{name}').readlines()) > 2])
import time
time.sleep(1)
end()


#: H-31b
#: tries POSIX queues and shared memory for whoever comes next or runs beside it.
#: copies 3
#: says found: ENOENT
#: says left in memory: succeeded
tell('found', lambda: call('mq_open', b'/canary', os.O_RDWR), opened('/dev/shm/canary', os.O_RDWR), opened('/dev/mqueue/canary', os.O_RDWR))
tell('left in memory', opened('/dev/shm/canary', os.O_CREAT | os.O_RDWR, lambda fd: os.write(fd, b'left')))
answer(lambda: call('mq_open', b'/canary', os.O_CREAT | os.O_RDWR, 0o666, 0))
import time
time.sleep(1)
end()


#: H-31c
#: tries Abstract sockets and locks for whoever runs beside it.
#: copies 3
#: says taken: succeeded
#: says came: EAGAIN
import socket, time
listener = socket.socket(socket.AF_UNIX)
tell('taken', lambda: listener.bind('\0canary'))
listener.listen()
listener.setblocking(False)
time.sleep(1)
tell('came', lambda: listener.accept() and None)
end()


#: H-31d
#: tries Files in every writable place for whoever comes next.
#: copies 3
#: says found: []
#: says entries: ['left'] ['left']
found = [path for path in ('/work/left', '/tmp/left', '/dev/shm/left') if os.path.exists(path)]
print('found:', found)
for path in ('/work/left', '/tmp/left', '/dev/shm/left'):
    with open(path, 'w') as file:
        file.write('left')
print('entries:', sorted(os.listdir('/tmp')), sorted(os.listdir('/dev/shm')))
end()


#: H-32a
#: tries To hear of files that others open in the shared image.
#: says watched: {'succeeded'}
#: says heard of others: False
#: says fanotify: EPERM
#: says-on-runsc watched: {'succeeded'}
#: says-on-runsc heard of others: False
#: says-on-runsc fanotify: ENOSYS
import select, time
fd = libc.inotify_init1(0o4000)
answers = {answer(lambda path=path: call('inotify_add_watch', fd, path, 0x20 | 0x1 | 0x10)) for path in (b'/usr/bin', b'/etc', b'/usr/lib')}
print('watched:', answers)
time.sleep(1.5)
print('heard of others:', bool(select.select([fd], [], [], 0)[0]))
tell('fanotify', lambda: call('fanotify_init', 0, 0), lambda: call('fanotify_init', 0x200, 0))
end()


#: H-33a
#: tries Which pages of the image others have read.
#: says cachestat: ENOSYS
#: says mincore: succeeded
#: says says nothing of others: True
import mmap
tell('cachestat', lambda: syscall(451, 451, 0, ctypes.byref(ctypes.create_string_buffer(16)), ctypes.byref(ctypes.create_string_buffer(40)), 0))
pages = ctypes.create_string_buffer(16)
with open('/etc/passwd', 'rb') as file:
    area = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    tell('mincore', lambda: call('mincore', address, 4096, ctypes.byref(pages)))
print('says nothing of others:', pages[0] in (b'\0', b'\1'))
end()


#: H-34a
#: tries Counters of the host that move with what others do.
#: says told: []
#: says-on-runsc told: ['loadavg', 'cmdline', 'version']
empty = []
for name in ('loadavg', 'pressure/cpu', 'pressure/memory', 'pressure/io', 'diskstats', 'interrupts', 'timer_list', 'sched_debug', 'keys', 'latency_stats', 'kallsyms',
             'modules', 'cmdline', 'version', 'config.gz', 'kcore', 'scsi/scsi', 'acpi/wakeup'):
    try:
        if os.read(os.open(f'/proc/{name}', os.O_RDONLY), 65536).strip(b'\0'):
            empty.append(name)
    except OSError:
        pass
print('told:', empty)
end()


#: H-34b
#: tries To see processes that are not its own.
#: always
#: says processes: [1]
#: says signals beyond: ESRCH
print('processes:', sorted(int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) != os.getpid()))
tell('signals beyond', *(lambda n=n: os.kill(n, 0) for n in (2, 3, int(os.environ['CANARY_PID']), 99999) if n != os.getpid()))
end()


#: H-63a
#: tries The device files that a container is started with: replaced, removed, linked anew.
#: says done
for name in ('null', 'zero', 'full', 'random', 'tty', 'console', 'ptmx', 'stdin', 'fd', 'core'):
    path = f'/dev/{name}'
    if os.path.lexists(path):
        words = {answer(lambda: os.unlink(path)), answer(lambda: os.rename(path, path + 'x')), answer(lambda: os.chmod(path, 0o777) if not os.path.islink(path) else os.unlink(path)),
                 answer(lambda: os.symlink('/work/x', path)), answer(lambda: os.chown(path, os.getuid(), -1, follow_symlinks=False))}
        if 'succeeded' in words:
            print(path, 'changed')
print('done')
end()


#: H-63b
#: tries Terminals: its own, those of others, and keys pushed into them.
#: says terminals: []
#: says pushed: ENOTTY
#: says controlling: ENOENT ENXIO
#: says made: succeeded
#: says-on-runsc terminals: []
#: says-on-runsc pushed: ENOTTY
#: says-on-runsc controlling: EIO ENOENT
#: says-on-runsc made: succeeded
import fcntl
print('terminals:', [name for name in os.listdir('/dev/pts') if name.isdigit()] if os.path.isdir('/dev/pts') else [])
tell('pushed', *(lambda fd=fd: call('ioctl', fd, 0x5412, ctypes.byref(ctypes.create_string_buffer(b'x'))) for fd in range(3)))
tell('controlling', opened('/dev/tty', os.O_RDWR), opened('/dev/console', os.O_RDWR))
tell('made', opened('/dev/ptmx', os.O_RDWR))
end()


#: H-76a
#: tries Whether paths of its host exist, by differences between errors.
#: always
#: says there: ENOENT
#: says read: ENOENT
#: says written: ENOENT
paths = [os.environ['CANARY_FILE'], os.path.dirname(os.environ['CANARY_FILE']) + '/none', os.environ['CANARY_SOCKET'], '/var/lib/docker', '/work/../..' + os.environ['CANARY_FILE'],
         '/proc/self/root' + os.environ['CANARY_FILE'], '/proc/self/cwd/../' + os.environ['CANARY_FILE']]
tell('there', *(lambda path=path: os.stat(path) and None for path in paths))
tell('read', *(opened(path, os.O_RDONLY, lambda fd: os.write(1, os.read(fd, 200))) for path in paths))
tell('written', *(opened(path, os.O_WRONLY, lambda fd: os.write(fd, b'x')) for path in paths))
end()


#: H-91a
#: tries Fresh memory and files for what an earlier run has left in them.
#: says memory is zero: True
#: says /work is zero: True
#: says /tmp is zero: True
#: says /dev/shm is zero: True
import mmap
area = mmap.mmap(-1, 96 << 20)
print('memory is zero:', not any(area[at:at + 4096].strip(b'\0') for at in range(0, len(area), 4096)))
area.close()
for place in ('/work', '/tmp', '/dev/shm'):
    with open(f'{place}/sparse', 'w+b') as file:
        file.truncate(4 << 20)
        print(place, 'is zero:', not file.read().strip(b'\0'))
    os.unlink(f'{place}/sparse')
end()


#: H-91b
#: tries To find the host's and its neighbours' secrets: in environments, command lines and files of every process that it sees.
#: always
#: says found: []
import re
found = set()
for pid in (name for name in os.listdir('/proc') if name.isdigit()):
    for name in ('environ', 'cmdline', 'comm', 'cgroup', 'mountinfo'):
        try:
            text = open(f'/proc/{pid}/{name}', 'rb').read()
        except OSError:
            continue
        found |= set(re.findall(rb'secret-[0-9a-f]{32}', text))
for folder, folders, files in os.walk('/'):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ('/proc', '/sys', '/usr', '/lib')]
    for name in files:
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
            found |= set(re.findall(rb'secret-[0-9a-f]{32}', os.read(fd, 1 << 20)))
            os.close(fd)
        except OSError:
            pass
print('found:', sorted(found))
end()


#: H-116a
#: tries Caches that other runs would use: byte code, libraries, packages.
#: says written: False
import site, sysconfig
places = [sysconfig.get_paths()['stdlib'], sysconfig.get_paths()['purelib'], '/usr/local/lib', '/root/.cache', '/var/cache', '/usr/lib/python3/dist-packages', '/var/lib', '/home']
words = {answer(opened(f'{place}/canary.pth', os.O_CREAT | os.O_WRONLY)) for place in places if os.path.isdir(place)}
words |= {answer(lambda: os.mkdir(f'{place}/__pycache__x')) for place in places if os.path.isdir(place)}
print('written:', 'succeeded' in words)
end()
