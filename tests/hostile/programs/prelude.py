# In front of each program: how it tries things, and tells what each attempt was answered.
import ctypes, errno, os, platform, signal, stat, sys

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """A function of the C library, as Python's own calls: OSError when it fails."""
    returned = getattr(libc, name)(*[ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args])
    if returned == -1:
        raise OSError(ctypes.get_errno(), name)


def syscall(on_x86, on_arm, *args):
    """A system call without a function in the C library, by its number."""
    call('syscall', on_x86 if platform.machine() == 'x86_64' else on_arm, *args)


def answer(attempt):
    """What an attempt came to, in a word: its own, or whether it succeeded."""
    try:
        word = attempt()
        return word if isinstance(word, str) else 'succeeded'
    except OSError as error:
        return errno.errorcode[error.errno]


def tell(name, *attempts):
    """One line for attempts of a kind: all answers that were given."""
    print(f'{name}:', ' '.join(sorted({answer(attempt) for attempt in attempts})), flush=True)


OWN_PIPES = [(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in range(3)]


def opened(path, flags, use=lambda fd: None):
    """An attempt to open a file and to use it. The job's own ends of its pipes are no prey, by whatever name."""
    def attempt():
        fd = os.open(path, flags | os.O_NONBLOCK)
        try:
            if (os.fstat(fd).st_dev, os.fstat(fd).st_ino) in OWN_PIPES:
                return 'its-own-pipe'
            use(fd)
        finally:
            os.close(fd)
    return attempt


def ignore_all_signals():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


NAMESPACES = {'user': 0x10000000, 'mount': 0x00020000, 'pid': 0x20000000, 'net': 0x40000000, 'ipc': 0x08000000, 'uts': 0x04000000,
              'cgroup': 0x02000000, 'time': 0x80}


def in_a_child(attempt):
    """What can be had is had by a child, so that the next attempt starts as the job."""
    def told():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, answer(attempt).encode())
            os._exit(0)
        os.close(writer)
        text = os.read(reader, 100).decode()
        os.close(reader)
        os.waitpid(child, 0)
        return text or 'succeeded'
    return told


def end():
    """The exit code that no other end has."""
    sys.stdout.flush()
    os._exit(7)


