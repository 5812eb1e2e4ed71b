frame = open('/work/exit.frame', 'rb').read()
assert frame
own = {(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in range(3)}


def written(path, flags):
    def attempt():
        fd = os.open(path, flags | os.O_NONBLOCK)
        try:
            # Its own pipe by another name is no channel of the guest's.
            if (os.fstat(fd).st_dev, os.fstat(fd).st_ino) in own:
                raise OSError(errno.EPERM, path)
            os.write(fd, frame)
        finally:
            os.close(fd)
    return attempt


tell('channel', *(written(f'/proc/1/{way}/{fd}', flags) for way in ('fd', 'task/1/fd') for fd in range(3)
                  for flags in (os.O_WRONLY, os.O_RDWR)))
tell('taken', *(lambda fd=fd: syscall(438, 438, os.pidfd_open(1), fd, 0) for fd in range(8)))
# Into its own output it may write what it likes: there it is output.
os.write(1, frame + b'\n')
end()
