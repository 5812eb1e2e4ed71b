# Ends, output, files and names.


#: H-67a
#: tries Plants programs that an engine or a host might call while it copies.
#: says called: []
import time
for name in ('tar', 'xz', 'unpigz', 'gzip', 'runc', 'docker-init', 'nvidia-container-cli', 'ldconfig'):
    for place in ('/work', '/tmp', '/dev/shm'):
        with open(f'{place}/{name}', 'w') as file:
            file.write(f'#!/bin/sh\necho called > {place}/called\n')
        os.chmod(f'{place}/{name}', 0o755)
    answer(opened(f'/usr/local/bin/{name}', os.O_CREAT | os.O_WRONLY))
time.sleep(1)
print('called:', [place for place in ('/work', '/tmp', '/dev/shm') if os.path.exists(f'{place}/called')])
end()


#: H-68a
#: tries Swaps a folder for a link, over and over, while it ends.
import time
os.mkdir('/work/a')
os.symlink('/proc/1/root', '/work/b')
if os.fork() == 0:
    while True:
        for one, other in (('a', 'c'), ('b', 'a'), ('c', 'b')):
            os.rename(f'/work/{one}', f'/work/{other}')
time.sleep(1)
os._exit(7)


#: H-73a
#: tries Folders that are 3,000 deep, with names of 255 bytes, that nobody may enter.
#: says deep: 3000
os.chdir('/work')
deep = 0
try:
    while deep < 3000:
        os.mkdir('d' * 255)
        os.chdir('d' * 255)
        deep += 1
except OSError as error:
    print(errno.errorcode[error.errno])
print('deep:', deep, flush=True)
os.chmod('.', 0)
os.chmod('/work', 0)
end()


#: H-73b
#: tries Files that cannot be removed: immutable, append-only, busy, held by a lock.
#: says attributes: EPERM
#: says-on-runsc attributes: ENOTTY
import fcntl
file = open('/work/kept', 'w')
flags = ctypes.c_long(0x10 | 0x20)
tell('attributes', lambda: call('ioctl', file.fileno(), 0x40086602, ctypes.byref(flags)))
fcntl.flock(file, fcntl.LOCK_EX)
os.chdir('/work')
os.mkdir('busy')
os.chdir('busy')
end()


#: H-74a
#: tries Pipes, sockets and links where files are looked for.
import socket
os.mkfifo('/work/result')
os.symlink('/dev/stdin', '/work/result.json')
os.symlink('/proc/1/environ', '/work/output')
socket.socket(socket.AF_UNIX).bind('/work/report')
os.symlink('/', '/work/out')
end()


#: H-77a
#: tries Names of files and processes with newlines, escapes, dashes, and bytes that are no text.
#: says files: succeeded
#: says processes: succeeded
NAMES = (b'a\nb', b'-rf', b'\x1b[31m', b'..%2f', '\u202e'.encode(), '\U0001f41b'.encode() * 63, b'\xff\xfe', b' ', b"';x'")
tell('files', *(lambda name=name: os.close(os.open(b'/work/' + name, os.O_CREAT | os.O_WRONLY)) for name in NAMES))
tell('processes', *(lambda name=name: call('prctl', 15, ctypes.c_char_p(name), 0, 0, 0) for name in NAMES))
end()


#: H-79a
#: tries To change its own program and inputs while it runs.
for path in ('/work/main.py', sys.argv[0]):
    with open(path, 'w') as file:
        file.write('raise SystemExit(0)\n')
os.unlink('/work/main.py')
os.symlink('/proc/self/exe', '/work/main.py')
end()


#: H-100a
#: tries Sessions of their own, parents that are gone, signals ignored, and the job's pipes held open.
#: always
#: ends exited
#: says xxxxxxxx
import time
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        ignore_all_signals()
        os.write(1, b'x')
        while True:
            time.sleep(600)
for _ in range(8):
    os.wait()
time.sleep(0.5)
os.write(1, b'\n')
os._exit(7)


#: H-100b
#: tries To go on as a daemon after its main process has ended.
import time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    ignore_all_signals()
    time.sleep(600)
os._exit(7)


#: H-101a
#: tries To close its output and have a child write on until it is taken away.
#: says the child writes
import time
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(1, b'the child writes\n')
    os.close(writer)
    while True:
        time.sleep(600)
os.close(writer)
os.read(reader, 1)
os.close(1)
os.close(2)
os._exit(7)


#: H-101b
#: tries Its own ends of the pipes: closed, swapped, duplicated.
#: always
#: ends exited
#: says one
#: says on stdout
#: complains two
#: complains on stderr
os.write(1, b'one\n')
os.write(2, b'two\n')
kept = os.dup(1)
os.dup2(2, 1)
os.write(1, b'on stderr\n')
os.close(2)
os.dup2(kept, 2)
os.write(2, b'on stdout\n')
os.closerange(0, 1024)
os._exit(7)


#: H-103a
#: tries Text that looks like what the guest, the engine and mayfly itself write.
#: always
#: ends exited
#: says \x85\x00\x00\x00\x00\x00\x00E{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}\x01\x00\x00\x00\x00\x00\x00M\x85\x00\x00\x00\x00\x00\x00E{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}
#: says mayfly: succeeded (exited) \x1b[2K\x0d
#: complains \x85\x00\x00\x00\x00\x00\x00E{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}\x01\x00\x00\x00\x00\x00\x00M\x85\x00\x00\x00\x00\x00\x00E{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}{"job": "0", "state": "succeeded", "cause": "exited", "exit_code": 0}
#: complains mayfly: succeeded (exited) \x1b[2K\x0d
import json, struct
result = json.dumps({'job': '0', 'state': 'succeeded', 'cause': 'exited', 'exit_code': 0})
frame = struct.pack('>BBBBI', 0x85, 0, 0, 0, len(result)) + result.encode()
stream = struct.pack('>BBBBI', 1, 0, 0, 0, len(frame)) + frame
for descriptor in (1, 2):
    os.write(descriptor, frame + stream + result.encode() + b'\nmayfly: succeeded (exited) \x1b[2K\r\n')
os._exit(7)


#: H-103b
#: tries Text that a terminal or a page might take for more than text.
#: says \x1b]0;owned\x07\x1b[2J\x1b[1;1H<script>alert(1)</script> \xe2\x80\xae "}
#: says {"state":"succeeded"}
#: complains ::set-output name=x::y\x0d
#: complains %00%0a\x00
os.write(1, b'\x1b]0;owned\x07\x1b[2J\x1b[1;1H<script>alert(1)</script> \xe2\x80\xae "}\n{"state":"succeeded"}\n')
os.write(2, b'::set-output name=x::y\r\n%00%0a\x00\n')
end()


#: H-106a
#: tries To ignore every signal until the deadline.
#: limits {"wall": "2s"}
#: ends timed_out
#: says waits
import time
ignore_all_signals()
print('waits', flush=True)
while True:
    time.sleep(600)


#: H-108a
#: tries To learn which attempt it is, on which executor, and for whom.
#: says told: {}
told = {name: value for name, value in os.environ.items() if any(word in name.lower() for word in ('attempt', 'job', 'mayfly', 'executor', 'tenant', 'run_'))}
print('told:', told)
end()


#: H-109a
#: tries To use up random numbers, and to set clocks.
#: says clocks: EPERM
#: says settimeofday: EPERM
#: says adjtimex: EPERM
got = 0
while got < 32 << 20:
    got += len(os.getrandom(1 << 20))
time_of = (ctypes.c_long * 2)(1, 0)
tell('clocks', *(lambda n=n: call('clock_settime', n, ctypes.byref(time_of)) for n in (0, 1, 7)))
tell('settimeofday', lambda: call('settimeofday', ctypes.byref(time_of), 0))
tell('adjtimex', lambda: call('adjtimex', ctypes.byref(ctypes.create_string_buffer(b'\1' + b'\0' * 255))))
end()


#: H-110a
#: tries To look alive for ever, a byte at a time.
#: limits {"wall": "3s"}
#: ends timed_out
#: says-starts .
import time
while True:
    os.write(1, b'.')
    time.sleep(0.1)


#: H-111a
#: tries Eight times the output that is kept, on both streams, and then to end as it likes.
#: always
#: limits {"stdout": "64KiB", "stderr": "64KiB"}
#: writes 524288 524288
for _ in range(8):
    os.write(1, b'o' * 65536)
    os.write(2, b'e' * 65536)
end()


#: H-111b
#: tries Output without end.
#: limits {"stdout": "16KiB", "stderr": "16KiB", "wall": "4s"}
#: ends timed_out
#: says-starts o
#: complains-starts e
while True:
    os.write(1, b'o' * 65536)
    os.write(2, b'e' * 65536)


#: H-114a
#: tries To sleep until nobody looks any more, and to misbehave then: what binds at the end is what bound at the start.
#: says setuid: EPERM
#: says mount: EPERM
#: says guest: EPERM
import time
time.sleep(3)
tell('setuid', lambda: os.setuid(0))
tell('mount', lambda: call('mount', b'none', b'/work', b'tmpfs', 0, 0))
tell('guest', lambda: os.kill(1, 9))
end()


#: H-118a
#: tries Hammers memory for three seconds.
#: limits {"wall": "3s"}
#: ends timed_out
block = bytearray(64 << 20)
while True:
    for at in range(0, len(block), 4096):
        block[at] ^= 1


#: H-119a
#: tries Times, sizes and modes of files that overflow what records them.
#: says times: succeeded
#: says sizes: EFBIG
#: says modes: succeeded
path = '/work/strange'
open(path, 'w').close()
tell('times', *(lambda t=t: os.utime(path, (t, t)) for t in (-(1 << 62), -1, 1 << 33, 1 << 62)))
tell('sizes', *(lambda n=n: os.truncate(path, n) for n in (1 << 62, (1 << 63) - 1)))
tell('modes', *(lambda mode=mode: os.chmod(path, mode) for mode in (0o7777, 0, 0o1000)))
end()
