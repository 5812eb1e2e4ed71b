# The kernel's calls.


#: H-21a
#: tries io_uring, and a socket made through it.
#: says setup: EPERM
#: says enter: EPERM
#: says register: EPERM
#: says-on-runsc setup: succeeded
#: says-on-runsc enter: EBADF
#: says-on-runsc register: ENOSYS
parameters = ctypes.create_string_buffer(256)
tell('setup', *(lambda n=n: syscall(425, 425, n, ctypes.byref(parameters)) for n in (1, 8, 4096)))
tell('enter', lambda: syscall(426, 426, 0, 1, 0, 0, 0, 0))
tell('register', lambda: syscall(427, 427, 0, 0, 0, 0), lambda: syscall(427, 427, -1, 13, 0, 0))
end()


#: H-22a
#: tries Page faults served by itself.
#: says call: EPERM
#: says device opened: False
#: says-on-runsc call: ENOSYS
#: says-on-runsc device opened: False
tell('call', *(lambda flags=flags: syscall(323, 282, flags) for flags in (0, 1, 0o4000)))
print('device opened:', answer(opened('/dev/userfaultfd', os.O_RDWR)) == 'succeeded')
end()


#: H-23a
#: tries Counters of the processor and of the kernel.
#: says type 0: EPERM
#: says type 1: EPERM
#: says type 2: EPERM
#: says type 3: EPERM
#: says type 4: EPERM
#: says type 5: EPERM
#: says-on-runsc type 0: ENODEV
#: says-on-runsc type 1: ENODEV
#: says-on-runsc type 2: ENODEV
#: says-on-runsc type 3: ENODEV
#: says-on-runsc type 4: ENODEV
#: says-on-runsc type 5: ENODEV
for kind in range(6):
    attributes = ctypes.create_string_buffer(kind.to_bytes(4, 'little') + (128).to_bytes(4, 'little') + b'\0' * 120)
    tell(f'type {kind}', *(lambda pid=pid, cpu=cpu: syscall(298, 241, ctypes.byref(attributes), pid, cpu, -1, 0) for pid, cpu in ((0, -1), (-1, 0), (1, -1))))
end()


#: H-24a
#: tries Every command of bpf.
#: says commands: EPERM
attributes = ctypes.create_string_buffer(128)
tell('commands', *(lambda n=n: syscall(321, 280, n, ctypes.byref(attributes), 128) for n in range(40)))
end()


#: H-26c
#: tries The kernel's ciphers, behind which Copy Fail was.
#: says AF_ALG: EPERM
#: says spliced pages: EPERM
#: says-on-runsc AF_ALG: EAFNOSUPPORT
#: says-on-runsc spliced pages: ENOSYS succeeded
import socket
tell('AF_ALG', *(lambda kind=kind: call('socket', 38, kind, 0) for kind in (2, 5, 3)))
tell('spliced pages', lambda: syscall(275, 76, 0, 0, 1, 0, 1, 0), lambda: syscall(278, 75, 1, 0, 0, 0), lambda: syscall(276, 77, 0, 1, 1, 0))
end()


#: H-27a
#: tries A call by the 32-bit gate.
#: always
#: ends signal 31
#: ends-on-runsc exited
#: says calls
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3' if platform.machine() == 'x86_64' else b'\x00\x00\x00\x00')
print('calls', flush=True)
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
end()


#: H-27b
#: tries A call by the numbers of x32.
#: ends signal 31
#: ends-on-runsc exited
#: says calls
#: says-on-runsc calls
#: says-on-runsc x32: ENOSYS
print('calls', flush=True)
tell('x32', lambda: syscall(0x40000000 + 39, 1 << 30))
end()


#: H-37a
#: tries Oddities of processes: personalities, segments, ports of input and output.
#: says personality: EL2HLT EPERM
#: says modify_ldt: EPERM
#: says ports: EPERM
#: says dumpable: EINVAL
#: says memory map: EPERM
#: says-on-runsc personality: EINVAL
#: says-on-runsc modify_ldt: EPERM
#: says-on-runsc ports: EPERM
#: says-on-runsc dumpable: EINVAL
#: says-on-runsc memory map: EPERM
tell('personality', *(lambda n=n: call('personality', n) for n in (0x0400000, 0x0000008, 0x6d617966)))
tell('modify_ldt', lambda: syscall(154, 1 << 30, 1, ctypes.byref(ctypes.create_string_buffer(16)), 16))
tell('ports', lambda: syscall(172, 1 << 30, 3), lambda: syscall(173, 1 << 30, 0, 8, 1))
tell('dumpable', lambda: call('prctl', 4, 2, 0, 0, 0))
tell('memory map', lambda: call('prctl', 35, 8, ctypes.byref(ctypes.c_long(0)), 0, 0))
end()


#: H-37b
#: tries The kernel itself: modules, kexec, swap, accounting, reboot, its log.
#: says modules: EPERM
#: says kexec: EPERM
#: says reboot: EPERM
#: says swap: EPERM
#: says accounting: EPERM
#: says names: EPERM
#: says hang up: EPERM
tell('modules', lambda: syscall(175, 105, 0, 0, b''), lambda: syscall(313, 273, 0, b'', 0), lambda: syscall(176, 106, b'loop', 0))
tell('kexec', lambda: syscall(246, 104, 0, 0, 0, 0), lambda: syscall(320, 294, -1, -1, 0, b'', 0))
tell('reboot', lambda: call('reboot', 0), lambda: call('reboot', 0xcdef0123))
tell('swap', lambda: call('swapon', b'/work/x', 0), lambda: call('swapoff', b'/work/x'))
tell('accounting', lambda: call('acct', b'/work/x'), lambda: syscall(179, 60, 0x800002, b'/dev/vda', 0, 0))
tell('names', lambda: call('sethostname', b'x', 1), lambda: call('setdomainname', b'x', 1))
tell('hang up', lambda: call('vhangup'))
end()


#: H-37c
#: tries The kernel's log.
#: says read: EPERM
#: says cleared: EPERM
#: says device opened: False
#: says-on-runsc read: ENOSYS succeeded
#: says-on-runsc cleared: ENOSYS
#: says-on-runsc device opened: False
tell('read', *(lambda n=n: call('klogctl', n, ctypes.byref(ctypes.create_string_buffer(64)), 64) for n in (2, 3, 4)))
tell('cleared', lambda: call('klogctl', 5, 0, 0), lambda: call('klogctl', 8, 0, 1))
print('device opened:', answer(opened('/dev/kmsg', os.O_RDWR)) == 'succeeded')
end()


#: H-37d
#: tries Keyrings: those of the session, the user, and every process.
#: says added: EPERM
#: says requested: EPERM
#: says joined: EPERM
#: says-on-runsc added: EACCES
#: says-on-runsc requested: EACCES
#: says-on-runsc joined: EACCES
tell('added', *(lambda n=n: syscall(248, 217, b'user', b'x', b'x', 1, n) for n in (-1, -2, -3, -4, -5)))
tell('requested', lambda: syscall(249, 218, b'user', b'x', 0, 0))
tell('joined', lambda: syscall(250, 219, 1, 0), *(lambda n=n: syscall(250, 219, 0, n, 1) for n in (-1, -2, -3, -4)))
end()


#: H-37e
#: tries Memory that hides from the kernel, and memory of others.
#: says memfd_secret: EPERM
#: says pidfd_getfd: EPERM
#: says kcmp: EPERM
#: says migrate: EPERM
#: says-on-runsc memfd_secret: ENOSYS
#: says-on-runsc pidfd_getfd: ENOSYS
#: says-on-runsc kcmp: EPERM
#: says-on-runsc migrate: EFAULT EPERM
tell('memfd_secret', lambda: syscall(447, 447, 0))
tell('pidfd_getfd', *(lambda n=n: syscall(438, 438, os.pidfd_open(1), n, 0) for n in range(8)))
tell('kcmp', lambda: syscall(312, 272, 1, os.getpid(), 0, 0, 0))
tell('migrate', lambda: syscall(256, 238, 1, 8, 0, 0), lambda: syscall(237, 235, 0, 4096, 0, 0, 0, 0))
end()


#: H-37f
#: tries A filter of its own that asks another process, and Landlock, which may only take away.
#: says filter: succeeded
#: says listener: EPERM
#: says setuid behind it: EPERM
#: says-on-runsc filter: succeeded
#: says-on-runsc listener: EINVAL
#: says-on-runsc setuid behind it: EPERM
import struct
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HL', 1, ctypes.addressof(code)))
tell('filter', in_a_child(lambda: syscall(317, 277, 1, 0, ctypes.byref(program))))
tell('listener', in_a_child(lambda: syscall(317, 277, 1, 8, ctypes.byref(program))))
tell('setuid behind it', in_a_child(lambda: os.setuid(0)))
end()


#: H-38a
#: tries Files by their handles, past every folder that hides them.
#: says named: EPERM
#: says opened: EPERM
#: says-on-runsc named: ENOTSUP
#: says-on-runsc opened: ENOTSUP
handle = ctypes.create_string_buffer((128).to_bytes(4, 'little') + b'\0' * 132)
mount = ctypes.c_int()
tell('named', *(lambda path=path: call('name_to_handle_at', -100, path, ctypes.byref(handle), ctypes.byref(mount), 0) for path in (b'/', b'/etc/passwd', b'/work')))
tell('opened', lambda: call('open_by_handle_at', os.open('/', os.O_RDONLY), ctypes.byref(handle), 0))
end()


#: H-39a
#: tries Programs without a file: memory that is executed. Allowed, and no more than any other program.
#: says ran as the job: True
import shutil, subprocess
fd = os.memfd_create('x')
with open('/bin/sh', 'rb') as shell, os.fdopen(os.dup(fd), 'wb') as file:
    shutil.copyfileobj(shell, file)
script = 'while read n v r; do case $n in Uid:|CapEff:) echo $v;; esac; done < /proc/self/status'
shown = subprocess.run([f'/proc/self/fd/{fd}', '-c', script], pass_fds=[fd], capture_output=True, text=True).stdout.split()
print('ran as the job:', shown == [str(os.getuid()), '0' * 16])
end()


#: H-39b
#: tries Programs from places that may not be executed.
#: says /tmp: EACCES EPERM
#: says /dev/shm: EACCES EPERM
#: says-on-runsc /tmp: EACCES succeeded
#: says-on-runsc /dev/shm: EACCES succeeded
import mmap, shutil
for place in ('/tmp', '/dev/shm'):
    shutil.copy('/bin/sh', f'{place}/sh')
    os.chmod(f'{place}/sh', 0o755)

    def mapped():
        with open(f'{place}/sh', 'rb') as file:
            mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    tell(place, in_a_child(lambda: os.execv(f'{place}/sh', ['sh', '-c', 'exit 0'])), mapped)
end()


#: H-50a
#: tries The calls that move pages of files into pipes: Dirty Pipe and its like.
#: says splice: EPERM
#: says tee: EPERM
#: says vmsplice: EPERM
#: says sendfile: EINVAL
#: says-on-runsc splice: succeeded
#: says-on-runsc tee: EINVAL
#: says-on-runsc vmsplice: ENOSYS
#: says-on-runsc sendfile: succeeded
reader, writer = os.pipe()
file = os.open('/etc/passwd', os.O_RDONLY)
offset = ctypes.c_long(1)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.create_string_buffer(4096)), 4096)
tell('splice', lambda: call('splice', file, ctypes.byref(offset), writer, 0, 1, 0))
tell('tee', lambda: call('tee', reader, writer, 1, 0))
tell('vmsplice', lambda: call('vmsplice', writer, ctypes.byref(vector), 1, 0))
tell('sendfile', lambda: os.sendfile(writer, file, 0, 1) and None)
end()
