import socket

kinds = (stat.S_IFBLK, stat.S_IFCHR)
# Memory, and the first disks: numbers that hosts have.
numbers = {'mem': (stat.S_IFCHR, 1, 1), 'kmsg': (stat.S_IFCHR, 1, 11), 'sda': (stat.S_IFBLK, 8, 0), 'vda': (stat.S_IFBLK, 254, 0)}
tell('made', *(lambda name=name: os.mknod(f'/work/{name}', numbers[name][0] | 0o666, os.makedev(*numbers[name][1:])) for name in numbers))
tell('opened', *(opened(f'/work/{name}', os.O_RDONLY) for name in numbers))
present = ('/dev/mem', '/dev/kmem', '/dev/port', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/nvme0n1', '/dev/dm-0', '/dev/kvm',
           '/dev/vhost-net', '/dev/vhost-vsock', '/dev/mapper/control', '/dev/loop-control')
tell('present', *(opened(path, os.O_RDONLY) for path in present))
tell('tun', opened('/dev/net/tun', os.O_RDWR))


def connected(path):
    def attempt():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
    return attempt


tell('engine', *(connected(path) for path in ('/run/docker.sock', '/var/run/docker.sock', '/run/containerd/containerd.sock',
                                              '/run/podman/podman.sock', '/run/systemd/private')))
end()
