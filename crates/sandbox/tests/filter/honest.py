"""Uses what ordinary programs use, and fails on the first thing that doesn't work."""

import asyncio
import ctypes
import fcntl
import hashlib
import mmap
import multiprocessing
import os
import random
import resource
import select
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

LOOPBACK = sys.argv[1:] == ["loopback"]
BLOB = random.Random(1).randbytes(3_000_000)


def square(number):
    return number * number


def files():
    with tempfile.TemporaryDirectory() as folder:
        source, copy = os.path.join(folder, "a"), os.path.join(folder, "b")
        with open(source, "wb") as file:
            file.write(BLOB)
            file.flush()
            os.fsync(file.fileno())
        for how in (shutil.copyfile, shutil.copy2, shutil.move):
            how(source, copy)
            with open(copy, "rb") as file:
                assert hashlib.sha256(file.read()).digest() == hashlib.sha256(BLOB).digest(), how
        os.mkdir(os.path.join(folder, "tree"))
        os.symlink(copy, os.path.join(folder, "tree", "link"))
        shutil.copytree(os.path.join(folder, "tree"), os.path.join(folder, "tree2"), symlinks=True)
        shutil.make_archive(os.path.join(folder, "archive"), "gztar", os.path.join(folder, "tree"))
        with open(copy, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.lockf(file, fcntl.LOCK_EX)
            mapped.madvise(mmap.MADV_DONTNEED)
            mapped[:4] = b"abcd"
            mapped.flush()
        os.chmod(copy, 0o600)
        os.utime(copy, (1, 2))
        os.posix_fallocate(os.open(copy, os.O_RDWR), 0, 100)
        os.sync()
        with os.scandir(folder) as entries:
            assert len(list(entries)) == 4


def fifos():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fifo")
        os.mkfifo(path)
        assert stat.S_ISFIFO(os.stat(path).st_mode)
        writer = threading.Thread(target=lambda: open(path, "w").write("through"))
        writer.start()
        with open(path) as file:
            assert file.read() == "through"
        writer.join()


def databases():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.db")
        with sqlite3.connect(path) as one:
            assert one.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
            one.execute("CREATE TABLE t(a)")
            one.executemany("INSERT INTO t VALUES (?)", ((n,) for n in range(1000)))
        with sqlite3.connect(path) as two:
            assert two.execute("SELECT sum(a) FROM t").fetchone() == (499500,)


def processes():
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16], method
    with ProcessPoolExecutor(2) as pool, ThreadPoolExecutor(4) as threads:
        assert list(pool.map(square, range(3))) == list(threads.map(square, range(3)))
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a=1)
        assert dict(shared) == {"a": 1}
    queue, lock, value = multiprocessing.Queue(), multiprocessing.Lock(), multiprocessing.Value("i", 3)
    with lock:
        queue.put(value.value)
    assert queue.get(timeout=10) == 3
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 7
    memory.close()
    memory.unlink()
    program = "import sys; sys.exit(sys.stdin.read() != 'in')"
    subprocess.run([sys.executable, "-c", program], input="in", text=True, check=True, timeout=30)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    sleeper.send_signal(signal.SIGKILL)
    assert sleeper.wait(timeout=10) == -signal.SIGKILL
    assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), 0)[1]) == 0


def signals_and_limits():
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    assert seen == [1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.nice(1)
    assert len(os.getrandom(16)) == 16
    os.close(os.memfd_create("x"))
    os.close(os.eventfd(0))
    os.close(os.pidfd_open(os.getpid()))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(15, b"honest", 0, 0, 0) == 0
    time.sleep(0.001)


def sockets():
    one, two = socket.socketpair()
    with one, two, tempfile.TemporaryFile() as file:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        file.write(b"x" * 5000)
        file.seek(0)
        one.sendfile(file)
        one.shutdown(socket.SHUT_WR)
        received = b""
        while part := two.recv(4096):
            received += part
        assert received == b"x" * 5000
    one, two = socket.socketpair()
    with one, two:
        socket.send_fds(one, [b"fd"], [0])
        _, fds, _, _ = socket.recv_fds(two, 10, 1)
        os.close(fds[0])
        poll = select.epoll()
        poll.register(two, select.EPOLLIN)
        one.send(b"y")
        assert poll.poll(5)
        poll.close()


async def conversation(start, connect):
    async def echo(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await start(echo)
    reader, writer = await connect()
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 10) == b"HELLO\n"
    writer.close()
    server.close()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(6 * 7)", stdout=subprocess.PIPE)
    assert (await asyncio.wait_for(process.communicate(), 30))[0] == b"42\n"


def event_loops():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        asyncio.run(conversation(
            lambda echo: asyncio.start_unix_server(echo, path),
            lambda: asyncio.open_unix_connection(path),
        ))


def network():
    if not LOOPBACK:
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.socket(family)
            except PermissionError:
                continue
            raise AssertionError(f"{family} is open")
        return
    assert "lo" in [name for _, name in socket.if_nameindex()]
    port = 20000
    asyncio.run(conversation(
        lambda echo: asyncio.start_server(echo, "127.0.0.1", port),
        lambda: asyncio.open_connection("127.0.0.1", port),
    ))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    import http.server
    import urllib.request
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=10) as answer:
        assert answer.status == 200
    server.shutdown()


if __name__ == "__main__":
    for step in (files, fifos, databases, processes, signals_and_limits, sockets, event_loops, network):
        step()
        print(step.__name__, flush=True)
    print("all done")
