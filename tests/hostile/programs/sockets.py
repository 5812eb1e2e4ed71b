# Sockets and networks. No sandbox has a card; nothing leaves it.


#: H-24b
#: tries Programs of the kernel on sockets of its own.
#: says classic: EPERM
#: says by descriptor: EPERM
#: says-on-runsc classic: succeeded
#: says-on-runsc by descriptor: succeeded
import socket, struct
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0xffff))
filter_ = struct.pack('HL', 1, ctypes.addressof(code))
pair = socket.socketpair()
tell('classic', lambda: pair[0].setsockopt(socket.SOL_SOCKET, 26, filter_))
tell('by descriptor', lambda: pair[0].setsockopt(socket.SOL_SOCKET, 50, struct.pack('i', 0)), lambda: pair[0].setsockopt(socket.SOL_SOCKET, 52, struct.pack('i', 0)))
end()


#: H-26a
#: tries Sockets of every family and type.
#: always
#: says families: {1: [1, 2, 3, 5]}
#: says-on-runsc families: {1: [1, 2, 3, 5], 2: [1, 2], 10: [1, 2], 16: [2, 3]}
import socket
got = {}
for family in range(64):
    kinds = [kind for kind in (1, 2, 3, 4, 5, 6, 10) if answer(lambda: call('socket', family, kind, 0)) == 'succeeded']
    if kinds:
        got[family] = kinds
print('families:', got)
end()


#: H-26b
#: tries The same behind numbers that the kernel cuts to 32 bits, and with flags.
#: says exotic: EPERM
#: says pairs: EPERM
#: says types: EPERM
#: says-on-runsc exotic: EAFNOSUPPORT EPERM succeeded
#: says-on-runsc pairs: EAFNOSUPPORT ENOTSUP ESOCKTNOSUPPORT
#: says-on-runsc types: EPERM succeeded
HIGH = 1 << 32
tell('exotic', *(lambda family=family: call('socket', family | HIGH, 2, 0) for family in (2, 10, 16, 17, 21, 30, 33, 38, 39, 40, 41, 43, 44)))
tell('pairs', *(lambda family=family: call('socketpair', family | HIGH, 1, 0, ctypes.byref((ctypes.c_int * 2)())) for family in (2, 16, 21, 30, 38, 40)))
tell('types', *(lambda kind=kind: call('socket', 2, kind | 0o2004000, 0) for kind in (1, 2, 3)))
end()


#: H-28a
#: tries Sockets to the hypervisor.
#: says made: EPERM
#: says device: ENOENT
#: says-on-runsc made: EAFNOSUPPORT
#: says-on-runsc device: ENOENT
tell('made', *(lambda kind=kind: call('socket', 40, kind, 0) for kind in (1, 2, 5)), *(lambda kind=kind: call('socket', 40 | 1 << 32, kind, 0) for kind in (1, 2)))
tell('device', opened('/dev/vsock', os.O_RDWR), opened('/dev/vhost-vsock', os.O_RDWR))
end()


#: H-29a
#: tries Every protocol of netlink.
#: says protocols: []
#: says-on-runsc protocols: [0, 15]
got = [n for n in range(23) if answer(lambda: call('socket', 16, 3, n)) == 'succeeded']
print('protocols:', got)
end()


#: H-36a
#: tries Options and flags of sockets behind which faults were found.
#: says urgent data: EPERM
#: says zero copy: EPERM
#: says upper layer: EPERM
#: says large buffers by force: EPERM
#: says marks and devices: EPERM
#: says descriptors pass between its own: True
#: says-on-runsc urgent data: succeeded
#: says-on-runsc zero copy: succeeded
#: says-on-runsc upper layer: succeeded
#: says-on-runsc large buffers by force: EPERM succeeded
#: says-on-runsc marks and devices: ENODEV succeeded
#: says-on-runsc descriptors pass between its own: True
import socket, struct
one, other = socket.socketpair()
tell('urgent data', lambda: one.send(b'x', socket.MSG_OOB), lambda: other.recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT))
tell('zero copy', lambda: one.setsockopt(socket.SOL_SOCKET, 60, 1))
tell('upper layer', lambda: one.setsockopt(6, 31, b'tls\0'))
tell('large buffers by force', lambda: one.setsockopt(socket.SOL_SOCKET, 32, 1 << 30), lambda: one.setsockopt(socket.SOL_SOCKET, 33, 1 << 30))
tell('marks and devices', lambda: one.setsockopt(socket.SOL_SOCKET, 36, 1), lambda: one.setsockopt(socket.SOL_SOCKET, 25, b'eth0\0'))
one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', 0))])
print('descriptors pass between its own:', len(other.recvmsg(1, 64)[1]) == 1)
end()


#: H-51a
#: tries The gates of ESP and RxRPC.
#: says AF_RXRPC: EPERM
#: says AF_KEY: EPERM
#: says xfrm: EPERM
#: says udp: EPERM
#: says-on-runsc AF_RXRPC: EAFNOSUPPORT
#: says-on-runsc AF_KEY: EAFNOSUPPORT
#: says-on-runsc xfrm: EPROTONOSUPPORT
#: says-on-runsc udp: succeeded
tell('AF_RXRPC', *(lambda family=family: call('socket', 33, 2, family) for family in (2, 10)))
tell('AF_KEY', lambda: call('socket', 15, 3, 2))
tell('xfrm', lambda: call('socket', 16, 3, 6))
tell('udp', lambda: call('socket', 2, 2, 17), lambda: call('socket', 10, 2, 17))
end()


#: H-81a
#: tries Addresses of the host, of clouds and of others: it has no socket to ask with, and no card.
#: says reached: EPERM
#: says cards: ['lo']
#: says-on-runsc reached: ECONNREFUSED EHOSTUNREACH ENETUNREACH succeeded
#: says-on-runsc cards: ['lo']
import socket


def reached(family, kind, address):
    def attempt():
        with socket.socket(family, kind) as connection:
            connection.settimeout(1)
            connection.connect(address)
    return attempt


V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
tell('reached', *(reached(family, kind, address) for family, kind, address in (
    (V4, TCP, ('169.254.169.254', 80)), (V4, TCP, ('172.17.0.1', 2375)), (V4, TCP, ('127.0.0.1', 2375)), (V4, UDP, ('127.0.0.11', 53)),
    (V4, UDP, ('224.0.0.1', 5353)), (V6, TCP, ('fe80::1', 80)), (V6, TCP, ('::1', 2375)))))
print('cards:', sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else 'not shown')
end()


#: H-81b
#: tries The very sockets that listen on its host: by address, by an abstract name and by a path.
#: always
#: says TCP: EPERM
#: says abstract: ECONNREFUSED
#: says path: ENOENT
#: says-on-runsc TCP: ECONNREFUSED
#: says-on-runsc abstract: ECONNREFUSED
#: says-on-runsc path: ENOENT
import socket
host, port = os.environ['CANARY_TCP'].rsplit(':', 1)


def reached(family, address):
    def attempt():
        with socket.socket(family) as connection:
            connection.settimeout(2)
            connection.connect(address)
            connection.send(b'from a sandbox')
    return attempt


tell('TCP', reached(socket.AF_INET, (host, int(port))))
tell('abstract', reached(socket.AF_UNIX, '\0' + os.environ['CANARY_ABSTRACT']))
tell('path', reached(socket.AF_UNIX, os.environ['CANARY_SOCKET']))
end()


#: H-82a
#: tries Raw packets, and the settings of cards.
#: says raw: EPERM
#: says settings: ENOTSUP ENOTTY EPERM
#: says-on-runsc raw: EPERM
#: says-on-runsc settings: ENOTTY
import fcntl, socket
tell('raw', *(lambda f=f, k=k, p=p: call('socket', f, k, p) for f, k, p in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300))))
pair = socket.socketpair()
tell('settings', *(lambda n=n: call('ioctl', pair[0].fileno(), n, ctypes.byref(ctypes.create_string_buffer(b'lo', 64))) for n in (0x8914, 0x8916, 0x8924, 0x8943, 0x89f0)))
end()


#: H-83a
#: tries The sockets of engines, by every path that they have.
#: says engine: ENOENT
#: says abstract: ECONNREFUSED
tell('engine', *(opened(path, os.O_RDWR) for path in ('/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock', '/run/podman/podman.sock',
                                                      '/run/crio/crio.sock', '/run/dbus/system_bus_socket', '/run/systemd/private', '/var/run/secrets/kubernetes.io/serviceaccount/token')))
import socket
names = ['containerd-shim/' + 'a' * 64, 'docker/libnetwork', '/tmp/dbus', '/com/ubuntu/upstart']


def connected(name):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect('\0' + name)


tell('abstract', *(lambda name=name: connected(name) for name in names))
end()


#: H-84a
#: tries To be reached: to listen where others could come.
#: says TCP: EPERM
#: says its own: succeeded
#: says-on-runsc TCP: succeeded
#: says-on-runsc its own: succeeded
import socket


def listens(family, address):
    def attempt():
        with socket.socket(family) as listener:
            listener.bind(address)
            listener.listen()
    return attempt


tell('TCP', listens(socket.AF_INET, ('0.0.0.0', 8080)), listens(socket.AF_INET6, ('::', 8080)))
tell('its own', listens(socket.AF_UNIX, '/work/socket'), listens(socket.AF_UNIX, '\0own'))
end()


#: H-86a
#: tries Ways out that are not TCP.
#: says sockets: EPERM
#: says names: not resolved
#: says-on-runsc sockets: EINVAL EPROTONOSUPPORT succeeded
#: says-on-runsc names: not resolved
tell('sockets', *(lambda f=f, k=k, p=p: call('socket', f, k, p) for f in (2, 10) for k, p in ((2, 17), (2, 1), (2, 58), (2, 136), (1, 132), (5, 132), (1, 262), (6, 33))))
import socket
try:
    socket.getaddrinfo('canary.invalid', 80)
    print('resolved')
except OSError:
    print('names: not resolved')
end()
