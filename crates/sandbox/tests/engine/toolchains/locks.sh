# One writer keeps another one out, in each of SQLite's ways to journal; so do the locks below it.
cat > locks.py <<'P'
import fcntl, os, sqlite3, subprocess, sys

WRITER = """
import sqlite3, sys
base = sqlite3.connect("a.db", timeout=0, isolation_level=None)
base.execute("BEGIN IMMEDIATE")
base.execute("INSERT INTO t VALUES (1)")
print("held", flush=True)
sys.stdin.read()
base.execute("COMMIT")
"""

for journal in ("delete", "wal"):
    base = sqlite3.connect("a.db", timeout=0, isolation_level=None)
    print(base.execute(f"PRAGMA journal_mode={journal}").fetchone()[0])
    base.execute("CREATE TABLE IF NOT EXISTS t (n)")
    other = subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    try:
        base.execute("BEGIN IMMEDIATE")
        print("not locked")
    except sqlite3.OperationalError as error:
        print(error)
    other.stdin.close()
    assert other.wait() == 0
    base.execute("INSERT INTO t VALUES (2)")
    print(base.execute("SELECT count(*) FROM t").fetchone()[0])
    base.close()

for name, lock in (("flock", fcntl.flock), ("lockf", fcntl.lockf)):
    file = open(name, "w")
    lock(file, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        own = open(name, "r+")
        try:
            lock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(0)
        except BlockingIOError:
            os._exit(7)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
P
python3 locks.py
