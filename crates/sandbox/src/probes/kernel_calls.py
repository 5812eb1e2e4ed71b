nothing = ctypes.create_string_buffer(256)
tell('io_uring', lambda: syscall(425, 425, 1, ctypes.byref(nothing)))
tell('keyrings', lambda: syscall(248, 217, b'user', b'mayfly', b'x', 1, -4), lambda: syscall(250, 219, 0, -4, 1))
tell('bpf', lambda: syscall(321, 280, 0, ctypes.byref(nothing), 64))
tell('perf', lambda: syscall(298, 241, ctypes.byref(nothing), 0, -1, -1, 0))
tell('userfaultfd', lambda: syscall(323, 282, 0))
for name, flag in {'user': 0x10000000, 'mount': 0x00020000, 'pid': 0x20000000, 'net': 0x40000000}.items():
    tell(f'{name}_namespace', in_a_child(lambda: call('unshare', flag)))
tell('mount', in_a_child(lambda: call('mount', b'none', b'/work', b'tmpfs', 0, 0)),
     in_a_child(lambda: call('mount', b'/', b'/tmp', 0, 4096, 0)),
     in_a_child(lambda: call('mount', 0, b'/', 0, 32 | 4096, 0)))
tell('umount', in_a_child(lambda: call('umount2', b'/guest', 2)))
tell('chroot', in_a_child(lambda: call('chroot', b'/work')))
tell('pivot_root', in_a_child(lambda: syscall(155, 41, b'/work', b'/work')))
tell('modules', lambda: syscall(175, 105, 0, 0, b''), lambda: syscall(313, 273, -1, b'', 0))
end()
