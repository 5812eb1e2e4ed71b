//! Programs that look at themselves from all sides. What they say has to be the same after a warm start as after a cold
//! one; the tests of the sandbox crate run them too.

/// A program, the arguments that it gets, and its stdin.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) stdin: Option<&'static str>,
    pub(crate) text: &'static str,
}

/// What a program said, without the addresses of its objects, which differ from process to process.
pub(crate) fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += "0x";
        plain += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    plain
}

const fn plain(name: &'static str, text: &'static str) -> Program {
    Program {
        name,
        args: &[],
        stdin: None,
        text,
    }
}

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "arguments, environment, paths",
        args: &["one", "", "zwei drei", "h\u{e9}\u{1f41d}", "-x", "a=b"],
        stdin: None,
        text: "
import os, sys
print(sys.argv, sys.orig_argv, sys.executable, sys.prefix, sys.exec_prefix)
print(list(os.environ.items()), os.environ.get('PYTHONPATH'), os.getcwd())
print(sys.path, sorted(sys.path_importer_cache), sys.path_hooks and len(sys.path_hooks), sys.meta_path)
print(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(__file__, __name__, __builtins__ is sys.modules['builtins'], __spec__, __loader__.__class__)
print(os.environ['NAME'], os.getenvb(b'NAME'))",
    },
    plain(
        "modules",
        "
import sys
print(sorted(sys.modules))
import builtins, __main__
print(sorted(dir(builtins)), sorted(vars(__main__)))
try:
    import sitecustomize
    print(sitecustomize.__file__, sorted(vars(sitecustomize)))
except ImportError as error: print(error)",
    ),
    plain(
        "a traceback",
        "
def outer(n):
    try:
        return {}[n]
    except KeyError as error:
        raise ValueError('no ' + n) from error
outer('key')",
    ),
    plain("a syntax error", "print('not reached')\nif True print('x')"),
    plain("a group of exceptions", "raise ExceptionGroup('many', [ValueError(1), TypeError('x')])"),
    plain("an exit code", "import sys; print('out'); sys.exit(3)"),
    plain("an exit with a text", "import sys; sys.exit('what a pity')"),
    plain("an exit with nothing", "raise SystemExit"),
    plain("an exit with a number too large", "raise SystemExit(256 + 7)"),
    plain("an exit at once", "import os, sys; sys.stdout.write('lost'); os._exit(9)"),
    plain("a signal", "import os; os.kill(os.getpid(), 15)"),
    plain("an abort", "import os; print('lost'); os.abort()"),
    plain(
        "a signal that Python turns into an exception",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    ),
    plain(
        "signals",
        "
import signal
print({s.name: str(signal.getsignal(s)) for s in sorted(signal.valid_signals()) if isinstance(s, signal.Signals)})
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    ),
    Program {
        name: "stdin",
        args: &[],
        stdin: Some("first\nsecond\nrest\u{e9}"),
        text: "
import sys
print(input(), sys.stdin.readline(), repr(sys.stdin.read()), repr(sys.stdin.read()))
print(sys.stdin, sys.stdin.buffer.raw, sys.stdin.isatty())",
    },
    plain(
        "no stdin",
        "
import sys
print(repr(sys.stdin.read()))
input()",
    ),
    plain(
        "streams and their encodings",
        "
import sys, locale, os, time
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.newlines, stream.name, stream.mode)
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding())
print(locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL), time.tzname, os.device_encoding(1))
print('h\u{e9}\u{1f41d}\\udcff'.encode('utf-8', 'surrogateescape'))",
    ),
    plain(
        "output in its order",
        "
import os, sys
for n in range(4):
    print('buffered', n)
    os.write(1, b'at once\\n')
    print('error', n, file=sys.stderr)
sys.stdout.buffer.write(b'\\xff\\x00\\n')",
    ),
    plain(
        "open descriptors, here and in a child",
        "
import os, subprocess, sys
print([(fd, os.stat(int(fd)).st_mode) for fd in ('0', '1', '2')])
def fds(): return sorted(os.listdir('/proc/self/fd'))
print(fds())
print(subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.listdir(\"/proc/self/fd\")))'],
    capture_output=True, text=True, close_fds=False).stdout)",
    ),
    plain(
        "the process",
        "
import os, resource
print(os.getuid() == os.geteuid(), os.getgid() == os.getegid(), os.getgroups(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid())
print(oct(os.umask(0)), os.nice(0), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
print({name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith('RLIMIT_')})
wanted = ('Cap', 'NoNewPrivs', 'Seccomp', 'Threads', 'Sig', 'TracerPid')
print([line for line in open('/proc/self/status').read().splitlines() if line.startswith(wanted)])
print(open('/proc/self/oom_score_adj').read(), open('/proc/self/cmdline').read(), open('/proc/self/comm').read())",
    ),
    plain(
        "the interpreter",
        "
import sys, gc, threading, warnings, site
print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits())
print(warnings.filters, sys.gettrace(), sys.getprofile(), sys.displayhook, sys.excepthook, sys.breakpointhook, sys.unraisablehook)
print(site.ENABLE_USER_SITE, site.getusersitepackages(), site.getsitepackages(), site.PREFIXES)
print(threading.current_thread().name, threading.main_thread() is threading.current_thread(), threading.active_count(), threading.stack_size())
ours = ('boot', 'flush_all', 'read_order', 'would_shadow')
print([o for o in gc.get_objects() if getattr(o, '__name__', '') in ours and getattr(o, '__module__', '') == 'sitecustomize'])",
    ),
    plain(
        "children by multiprocessing",
        "
import multiprocessing, os, sys
def child(queue, kind):
    queue.put((kind, sys.argv, sys.path, os.environ.get('NAME'), os.environ.get('PYTHONPATH'), __name__, sorted(os.environ), 'sitecustomize' in sys.modules))
if __name__ == '__main__':
    for kind in ('fork', 'spawn', 'forkserver'):
        context = multiprocessing.get_context(kind)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue, kind))
        process.start()
        print(queue.get())
        process.join()
        print(process.exitcode)
    with multiprocessing.Pool(2) as pool: print(pool.map(abs, range(-3, 3)))",
    ),
    plain(
        "children by subprocess",
        "
import subprocess, sys
print(subprocess.run(['env'], capture_output=True, text=True).stdout)
print(subprocess.run([sys.executable, '-c', 'import sys, os; print(sys.path, sys.argv, sorted(os.environ), sorted(sys.modules))'], capture_output=True, text=True).stdout)",
    ),
    plain(
        "threads and what runs at the end",
        "
import atexit, threading, weakref
atexit.register(print, 'at exit, first registered')
atexit.register(print, 'at exit, last registered')
def work(n): print('thread', n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for thread in threads: thread.start(); thread.join()
class Thing: pass
thing = Thing()
weakref.finalize(thing, print, 'finalized')
threading.Thread(target=lambda: print('last thread')).start()",
    ),
    plain(
        "files beside it",
        "
import os
print(sorted(os.listdir('.')))
open('helper.py', 'w').write('def f(): return __file__, __name__')
import helper
print(helper.f(), sorted(os.listdir('.')), os.path.exists('__pycache__'))
import runpy; print(sorted(runpy.run_path('helper.py'))[:3])",
    ),
    plain(
        "an exception in a thread, and one that can't be raised",
        "
import threading
def work(): raise RuntimeError('in a thread')
thread = threading.Thread(target=work, name='worker'); thread.start(); thread.join()
class Bad:
    def __del__(self): raise RuntimeError('in del')
Bad()",
    ),
    plain("it runs out of stack", "def f(n): return f(n + 1)\nf(0)"),
    plain(
        "asyncio",
        "
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)
    print(await process.stdout.read(), await process.wait())
asyncio.run(main())",
    ),
];
