"""The files of an image, held in memory, in one normal form.

Nothing is unpacked to disk, so neither the builder's user, its umask nor its
file system can leave a trace in the image.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from debian import BuildError

MERGED_INTO_USR = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


@dataclass(frozen=True)
class Entry:
    kind: str
    """"dir", "file" or "link"."""
    mode: int = 0o755
    content: bytes = b""
    target: str = ""
    owner: int = 0
    """Its uid and gid."""


class Tree:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def add_member(self, member: tarfile.TarInfo, content: bytes) -> None:
        path = merged(posixpath.normpath(member.name))
        if path == ".":
            return
        if member.isdir():
            self.entries.setdefault(path, Entry("dir"))
        elif member.isreg():
            self.add_file(path, content, executable=bool(member.mode & 0o111))
        elif member.issym():
            self.entries[path] = Entry("link", 0o777, target=member.linkname)
        elif member.islnk():
            self.entries[path] = self.entries[merged(posixpath.normpath(member.linkname))]
        else:
            raise BuildError(f"/{path} is neither a file, a folder nor a link; an image may not hold it.")

    def add_dir(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        self.entries[path] = Entry("dir", mode, owner=owner)

    def add_file(self, path: str, content: bytes, executable: bool = False) -> None:
        # Only what the image needs of a mode is kept: no setuid, setgid, sticky or group write.
        self.entries[path] = Entry("file", 0o755 if executable else 0o644, content)

    def add_link(self, path: str, target: str) -> None:
        self.entries[path] = Entry("link", 0o777, target=target)

    def links_in(self, folder: str) -> tuple[str, ...]:
        return tuple(path for path, entry in self.entries.items() if entry.kind == "link" and path.startswith(folder))

    def remove(self, patterns: tuple[str, ...], keep: tuple[str, ...] = ()) -> None:
        """Drops every path that matches a shell pattern (`*` crosses slashes), `keep` excepted."""
        self.entries = {
            path: entry
            for path, entry in self.entries.items()
            if matches(path, keep) or not matches(path, patterns)
        }

    def remove_commands_without_interpreter(self) -> None:
        for path, entry in list(self.entries.items()):
            if path.startswith(("usr/bin/", "usr/sbin/")) and entry.content.startswith(b"#!"):
                words = entry.content.split(b"\n", 1)[0][2:].split()
                if words and self.resolve(words[0].decode()) not in self.entries:
                    del self.entries[path]

    def remove_dangling_links(self) -> None:
        """A link to a link that goes dangles in turn, hence the loop."""
        while dangling := [
            path
            for path, entry in self.entries.items()
            if entry.kind == "link" and not self.is_present(self.resolve(path))
        ]:
            for path in dangling:
                del self.entries[path]

    def is_present(self, path: str) -> bool:
        return path in self.entries or path.startswith(("proc/", "dev/")) or path == "."

    def resolve(self, path: str) -> str:
        """Follows links within the tree, as the kernel would with the tree as its root."""
        rest, done, hops = path.strip("/").split("/"), "", 0
        while rest:
            step = posixpath.normpath(posixpath.join("/", done, rest.pop(0))).strip("/")
            entry = self.entries.get(step)
            if entry is None or entry.kind != "link":
                done = step
                continue
            hops += 1
            if hops > 40:
                return path.strip("/")
            target = entry.target
            done = "" if target.startswith("/") else posixpath.dirname(step)
            rest = target.strip("/").split("/") + rest
        return done

    def merge_usr(self) -> None:
        for name in MERGED_INTO_USR:
            if any(path.startswith(f"usr/{name}/") for path in self.entries):
                self.add_link(name, f"usr/{name}")

    def add_parents(self) -> None:
        for path in list(self.entries):
            while path := posixpath.dirname(path):
                self.entries.setdefault(path, Entry("dir"))

    def write_to(self, root: Path) -> None:
        """Unpacks into an existing empty folder, for programs of the image that must run now."""
        for path, entry in sorted(self.entries.items()):
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.kind == "dir":
                target.mkdir(exist_ok=True)
            elif entry.kind == "link":
                target.symlink_to(entry.target)
            else:
                target.write_bytes(entry.content)
                target.chmod(entry.mode)

    def to_tar(self, epoch: int) -> bytes:
        """One layer: sorted, owners by number, one time for all."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, entry in sorted(self.entries.items()):
                info = tarfile.TarInfo(path)
                info.mode, info.mtime = entry.mode, epoch
                info.uid = info.gid = entry.owner
                if entry.kind == "dir":
                    info.type = tarfile.DIRTYPE
                elif entry.kind == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, entry.target
                else:
                    info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
        return buffer.getvalue()


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def merged(path: str) -> str:
    first = path.split("/", 1)[0]
    return f"usr/{path}" if first in MERGED_INTO_USR else path
