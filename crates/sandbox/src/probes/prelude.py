# In front of each probe: how it tries things, and how it accounts for them. LIMITS stands before this.
import ctypes, errno, os, platform, signal, stat, sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == 'x86_64'


def call(name, *args):
    """A function of the C library; OSError when it fails."""
    returned = getattr(libc, name)(*[ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args])
    if returned == -1:
        raise OSError(ctypes.get_errno(), name)


def syscall(on_x86, on_arm, *args):
    """A system call by its number."""
    call('syscall', on_x86 if X86 else on_arm, *args)


def answer(attempt):
    """What an attempt came to: the name of an error, or `done`."""
    try:
        attempt()
        return 'done'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def say(name, *words):
    """One line of the account."""
    print(f'{name}:', *words, flush=True)


def tell(name, *attempts):
    """One line for attempts of a kind: all the answers that there were."""
    say(name, *sorted({answer(attempt) for attempt in attempts}))


def opened(path, flags):
    """An attempt to open a file, and nothing more."""
    def attempt():
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    return attempt


def in_a_child(attempt):
    """What is had is had by a child alone, so that the next attempt begins as before."""
    def told():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                attempt()
                number = 0
            except OSError as error:
                number = error.errno
            os.write(writer, bytes([number]))
            os._exit(0)
        os.close(writer)
        number = os.read(reader, 1)[0]
        os.close(reader)
        os.waitpid(child, 0)
        if number:
            raise OSError(number, 'in a child')
    return told


def ignore_all_signals():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def end():
    """The exit code that no other end has."""
    sys.exit(73)


