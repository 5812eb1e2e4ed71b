# Opened, and not written to; but for those of the guest, which anybody may open and nobody may change.
guest = open('/proc/1/comm').read().strip() == 'mayfly-guest'


def attempted(path):
    if not (guest and path.startswith('/proc/1/')):
        return opened(path, os.O_WRONLY)

    def attempt():
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, b'0')
        finally:
            os.close(fd)
    return attempt


own = ('/proc/self', '/proc/thread-self', f'/proc/{os.getpid()}')
open_for_writing, tried = [], 0
for root in ('/proc', '/sys'):
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if f'{folder}/{name}' not in own]
        for path in (f'{folder}/{name}' for name in files):
            try:
                # A device that forgets hides some; a pipe is somebody's, such as this program's output.
                if not stat.S_ISREG(os.stat(path).st_mode):
                    continue
            except OSError:
                continue
            tried += 1
            if answer(attempted(path)) == 'done':
                open_for_writing.append(path.replace(' ', '_'))
assert tried > 100, tried
say('opened', *open_for_writing[:20] or ['none'])
tell('folders', *(lambda path=path: os.mkdir(f'{path}/mayfly-probe') for path in ('/proc', '/sys', '/sys/fs/cgroup', '/dev')))
end()
