"""The command line that every image's `build` shares."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Callable

from debian import MIRROR, SNAPSHOT, BuildError, Lock, control, download, iso, members, resolve
from oci import Start, compact, write_archive
from tree import Tree

REPOSITORY = Path(__file__).resolve().parents[3]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "amd64": "amd64"}

# Nobody reads these inside a sandbox. Licences stay: they must travel with the programs.
UNREAD = (
    "usr/share/doc/*", "usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/lintian/*",
    "usr/share/bug/*", "usr/share/doc-base/*", "usr/share/applications/*", "usr/share/pixmaps/*",
    "usr/share/bash-completion/*", "usr/share/menu/*", "usr/share/readline/*", "usr/share/debianutils/*",
    "usr/share/python3/runtime.d/*", "usr/share/python3/debpython/*", "usr/share/base-files/*",
    "etc/dpkg*", "etc/update-motd.d*", "etc/cron*", "etc/skel*", "etc/motd", "etc/issue*", "etc/alternatives*",
    "usr/lib/*/gconv/*", "usr/lib/*/audit/*", "usr/share/zoneinfo/right/*", "usr/share/zoneinfo/posix/*",
    "var/cache/*", "var/backups*", "var/lib/dpkg*", "var/log*", "usr/games*", "usr/local/games*", "usr/src*",
    "usr/include*", "boot*", "media*", "mnt*", "opt*", "srv*",
)  # fmt: skip
LICENCES = ("usr/share/doc/*/copyright",)
# What update-alternatives would link, were it there.
ALTERNATIVES = {"usr/bin/awk": "mawk", "usr/bin/which": "which.debianutils"}


@dataclass(frozen=True)
class Image:
    name: str
    suite: str
    packages: tuple[str, ...]
    start: Start
    unread: tuple[str, ...]
    finish: Callable[[Tree, str], dict[str, str]]
    """Completes the tree for an architecture; returns labels."""
    kept: tuple[str, ...] = ()
    """What is read in this image though it is not in others."""
    left_out: tuple[str, ...] = ()
    """Packages that others depend on and this image does without."""
    accounts: tuple[tuple[str, int, str], ...] = ()
    """Users besides root and nobody, each with a group of its own: name, id, home."""


def main(image: Image, options: argparse.Namespace | None = None) -> int:
    options = options or parser(image.name).parse_args()
    try:
        build(image, options)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"Builds the {name} image from locked Debian packages.")
    parser.add_argument("--out", type=Path, help="archive to write (default: .cache/images/NAME-ARCH.tar)")
    parser.add_argument("--cache", type=Path, help="folder for packages and archives (default: .cache/images)")
    parser.add_argument("--arch", choices=("amd64", "arm64"), help="default: the engine's, else this machine's")
    parser.add_argument("--engine-load", action="store_true", help="load the archive with docker or podman")
    parser.add_argument("--refresh", action="store_true", help="resolve today's versions into the lock file first")
    parser.add_argument("--json", action="store_true", help="print the image record as one JSON object")
    parser.add_argument("--mirror", default=MIRROR, help="root of a Debian mirror (default: %(default)s)")
    parser.add_argument("--snapshot", default=SNAPSHOT, help="where superseded packages are kept (default: %(default)s)")
    return parser


def say(text: str) -> None:
    print(f"[image] {text}", file=sys.stderr, flush=True)


def build(image: Image, options: argparse.Namespace) -> None:
    architecture = options.arch or engine_architecture() or machine_architecture()
    cache = options.cache or REPOSITORY / ".cache/images"
    out = options.out or cache / f"{image.name}-{architecture}.tar"
    lock_file = REPOSITORY / "deploy/images" / image.name / f"packages.{architecture}.lock"

    lock = locked(image, architecture, lock_file, options)
    say(f"{image.name} for {architecture}: {len(lock.packages)} packages of {iso(lock.epoch)[:10]}")
    gone = download(lock, cache / "packages", options.mirror, options.snapshot)
    if gone:
        say(f"{len(gone)} locked packages cannot be downloaded, the first is {gone[0].name} {gone[0].version};")
        say("today's versions are taken instead, so the digest will not be the one of the lock file")
        lock = resolve(image.suite, architecture, image.packages, options.mirror, image.left_out)
        if download(lock, cache / "packages", options.mirror, options.snapshot):
            raise BuildError(f"{options.mirror} lists packages that it does not serve: try again or name a --mirror.")

    say("assembling the files")
    tree = assemble(lock, cache / "packages", image)
    listing = compact([[p.name, p.version, p.architecture, p.sha256] for p in lock.packages])
    labels = {
        "org.opencontainers.image.title": f"mayfly {image.name}",
        "mayfly.image.base": f"debian:{lock.suite}",
        "mayfly.image.packages.sha256": sha256(listing).hexdigest(),
        **image.finish(tree, architecture),
    }
    tree.add_parents()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", lock.epoch))
    written = write_archive(out, image.name, architecture, tree.to_tar(epoch), epoch, labels, image.start)
    record = {
        "name": image.name,
        "architecture": architecture,
        "base": f"debian:{lock.suite}",
        "created": iso(epoch),
        "image_id": written.image_id,
        "manifest_digest": written.manifest_digest,
        "tag": written.tag,
        "size_bytes": written.layer_bytes,
        "labels": labels,
        "packages": [
            {"name": p.name, "version": p.version, "architecture": p.architecture, "sha256": p.sha256}
            for p in lock.packages
        ],
        "archive": str(out),
    }
    out.with_suffix(".json").write_text(json.dumps(record | {"archive": out.name}, indent=2) + "\n")
    if options.engine_load:
        load(out, written.image_id, written.manifest_digest)
    show(record, as_json=options.json)


def locked(image: Image, architecture: str, lock_file: Path, options: argparse.Namespace) -> Lock:
    if not options.refresh:
        if not lock_file.exists():
            raise BuildError(f"{lock_file} is missing: `build --refresh` writes it.")
        return Lock.parse(lock_file.read_text())
    say(f"asking {options.mirror} for today's versions")
    before = set(Lock.parse(lock_file.read_text()).packages) if lock_file.exists() else set()
    lock = resolve(image.suite, architecture, image.packages, options.mirror, image.left_out)
    if set(lock.packages) == before:
        say("nothing newer: the lock file stays as it is")
        return Lock.parse(lock_file.read_text())
    for package in sorted(set(lock.packages) - before):
        say(f"now {package.name} {package.version}")
    lock_file.write_text(lock.to_text())
    return lock


def assemble(lock: Lock, packages: Path, image: Image) -> Tree:
    tree = Tree()
    controls = {}
    for package in lock.packages:
        path = packages / package.file_name
        for member, content in members(path):
            tree.add_member(member, content)
        controls[package.name] = control(path)
    tree.merge_usr()
    # Some packages have only a link to the licence of their neighbour.
    tree.remove(UNREAD + image.unread, keep=LICENCES + image.kept + tree.links_in("usr/share/doc/"))
    tree.remove_commands_without_interpreter()
    tree.add_parents()
    tree.remove_dangling_links()
    for path, target in ALTERNATIVES.items():
        if f"usr/bin/{target}" in tree.entries:
            tree.add_link(path, target)
    # Where scanners look for the packages of an image that has no dpkg.
    for name, text in controls.items():
        tree.add_file(f"var/lib/dpkg/status.d/{name}", text.encode())
    accounts = (("root", 0, "/root"), *image.accounts, ("nobody", 65534, "/nonexistent"))
    users = (f"{name}:x:{uid}:{uid}:{name}:{home}:/usr/sbin/nologin\n" for name, uid, home in accounts)
    groups = (f"{'nogroup' if name == 'nobody' else name}:x:{uid}:\n" for name, uid, _ in accounts)
    tree.add_file("etc/passwd", "".join(users).encode())
    tree.add_file("etc/group", "".join(groups).encode())
    tree.add_file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n")
    for path in ("dev", "guest", "proc", "root", "run", "sys", "work"):
        tree.add_dir(path)
    for path in ("tmp", "var/tmp"):
        tree.add_dir(path, 0o1777)
    return tree


def engine_architecture() -> str | None:
    for engine in engines():
        done = subprocess.run(
            [engine, "version", "--format", "{{.Server.Arch}}"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return ARCHITECTURES.get(done.stdout.strip())
    return None


def machine_architecture() -> str:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise BuildError(f"there is no image for {machine}: use amd64 or arm64.")
    return ARCHITECTURES[machine]


def engines() -> list[str]:
    return [engine for engine in ("docker", "podman") if shutil.which(engine)]


def load(archive: Path, image_id: str, manifest_digest: str) -> None:
    if not engines():
        raise BuildError("neither docker nor podman is here to load the image; the archive is written.")
    engine = engines()[0]
    say(f"loading into {engine}")
    done = subprocess.run([engine, "load", "--input", str(archive)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{engine} load failed: {done.stderr.strip()}")
    # The containerd image store names an image by its manifest, the classic store by its config.
    for name in (image_id, manifest_digest):
        if subprocess.run([engine, "image", "inspect", name], capture_output=True, check=False).returncode == 0:
            return
    raise BuildError(f"{engine} loaded the archive but has no image {image_id}.")


def show(record: dict, as_json: bool) -> None:
    if as_json:
        print(json.dumps(record, sort_keys=True))
        return
    for package in record["packages"]:
        print(f"package          {package['name']}={package['version']}")
    print(f"image id         {record['image_id']}")
    print(f"manifest digest  {record['manifest_digest']}")
    print(f"name             {record['tag']}")
    print(f"size             {record['size_bytes'] / 1e6:.1f} MB unpacked, {len(record['packages'])} packages")
    print(f"archive          {record['archive']}")
