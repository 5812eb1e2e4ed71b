"""The program's half of a warm start: `site` runs this before the interpreter has looked for its program.

It imports what it is told to, says that it is ready, and waits. Then it takes the job's arguments and environment,
removes its own traces and returns, so that the interpreter goes on to the program as it always does. The bytes on the
two pipes are described in docs/warm-sandboxes.md. A failure on the way ends the process: the guest starts the job cold.
"""

import os
import sys


def boot():
    orders, answers = 3, 4
    # Nobody but the guest may read what is handed over, and nothing that is started here may keep it open.
    os.set_inheritable(orders, False)
    os.set_inheritable(answers, False)
    folder = os.path.dirname(__file__)
    sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    search = os.environ.pop("PYTHONPATH").split(":", 1)
    if len(search) > 1:
        os.environ["PYTHONPATH"] = search[1]
    imports = os.environ.pop("MAYFLY_WARM_IMPORTS")
    bare = set(sys.modules)
    for name in filter(None, imports.split(",")):
        try:
            __import__(name)
        except BaseException as error:
            said = "%s: %s: %s" % (name, type(error).__name__, error)
            os.write(answers, b"F" + said.encode("utf-8", "replace")[:1000])
            os._exit(1)
    imported = {name.partition(".")[0] for name in set(sys.modules).difference(bare)}
    flush_all()
    os.write(answers, b"R")

    arguments, environment = read_order(orders)
    program_folder = os.path.dirname(os.fsdecode(arguments[1]))
    # Where the image's PYTHONPATH has the folder too, it was looked into before the job's files were there, and Python
    # would notice them by a time of modification that has the grain of the kernel's clock.
    sys.path_importer_cache.pop(program_folder, None)
    if imported and would_shadow(program_folder, imported):
        os.write(answers, b"D")
        os._exit(0)
    os.environ.clear()
    for variable in environment:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    sys.orig_argv[:] = map(os.fsdecode, arguments)
    sys.argv[:] = sys.orig_argv[1:]
    flush_all()
    os.write(answers, b"T")
    # Nothing of the job's happens before the guest has said that it counts as started.
    if os.read(orders, 1) != b"G":
        os._exit(0)
    os.close(orders)
    os.close(answers)


def flush_all():
    """Shows the guest what an import has printed, so that it can't end up in the job's output."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def read_order(orders):
    """Reads two counts, the arguments and the environment, each ended by a NUL."""
    text = b""
    while True:
        more = os.read(orders, 65536)
        if not more:
            os._exit(0)
        text += more
        fields = text.split(b"\0")[:-1]
        if len(fields) >= 2 and len(fields) == 2 + int(fields[0]) + int(fields[1]):
            end = 2 + int(fields[0])
            return fields[2:end], fields[end:]


def would_shadow(folder, imported):
    """Whether the job brings something that an import at a cold start would have found first."""
    for entry in os.listdir(folder):
        if entry.partition(".")[0] in imported:
            return True
    return False


try:
    boot()
except BaseException as error:
    os.write(4, b"F" + ("%s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")[:1000])
    os._exit(1)
# The image's own, if it has one; the import system expects the name to be bound when this file is done, or to fail as
# it does where there is none.
del sys.modules[__name__]
import sitecustomize  # noqa: E402,F401
