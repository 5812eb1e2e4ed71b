"""CPython of Debian in an image: where it is, and what it does itself while the image is built.

The image's own interpreter runs through the image's own loader, which needs no
root. A machine that cannot run the image's programs builds it without that.
"""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from debian import LIBRARIES, BuildError
from tree import Tree

LIBRARY = "usr/lib/python3.11"
MODULES = "usr/lib/python3/dist-packages"
LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
UNREAD = (f"{LIBRARY}/ensurepip*", f"{LIBRARY}/config-*", f"{LIBRARY}/idlelib*", f"{LIBRARY}/tkinter*")


class ForeignMachine(Exception):
    """This machine cannot run programs of the image's architecture."""


class Unpacked:
    """A tree on disk, whose interpreter can run."""

    def __init__(self, root: Path, architecture: str) -> None:
        self.root = root
        libraries = root / LIBRARIES[architecture]
        self.interpreter = (libraries / LOADERS[architecture], "--library-path", libraries, root / "usr/bin/python3.11")
        self.architecture = architecture

    def python(self, *arguments: object, **environment: str) -> str:
        """Runs the interpreter without site and bytecode of its own making; gives its output."""
        words = [str(word) for word in (*self.interpreter, "-S", "-s", "-B", *arguments)]
        variables = {"PYTHONHOME": str(self.root / "usr"), "PYTHONPATH": str(self.root / MODULES), "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                words, env=variables | environment, cwd="/", capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise ForeignMachine(f"this machine cannot run {self.architecture} programs ({error.strerror})") from None
        if done.returncode != 0:
            raise BuildError(f"the image's Python failed: {(done.stdout + done.stderr).strip()}")
        return done.stdout


@contextmanager
def unpacked(tree: Tree, architecture: str) -> Iterator[Unpacked]:
    with tempfile.TemporaryDirectory(prefix="mayfly-image-") as folder:
        tree.write_to(Path(folder))
        yield Unpacked(Path(folder), architecture)


def compile_modules(tree: Tree, on_disk: Unpacked, folders: tuple[str, ...]) -> None:
    """Adds bytecode, so that a job on a read-only root does not compile each import anew.

    Unchecked-hash files hold no time, and one process that takes the files in
    one order writes the same bytes each time.
    """
    root = on_disk.root
    on_disk.python(
        "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash",
        "-s", root, "-p", "/", *(root / folder for folder in folders),
    )  # fmt: skip
    for folder in folders:
        for path in sorted((root / folder).rglob("*.pyc")):
            tree.add_file(str(path.relative_to(root)), path.read_bytes())
