"""What the tests of all images use. The packages are downloaded once, into the repository's cache."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1]
REPOSITORY = IMAGES.parents[1]
PACKAGES = REPOSITORY / ".cache/images/packages"

sys.path.insert(0, str(IMAGES / "lib"))

from tree import Entry, Tree  # noqa: E402

needs_apt = unittest.skipUnless(shutil.which("apt-get"), "apt is not here: our images are built on Debian or Ubuntu")


def build(images: Path, cache: Path, *options: str, umask: int = 0o022, name: str) -> dict:
    cache.mkdir(parents=True)
    PACKAGES.mkdir(parents=True, exist_ok=True)
    (cache / "packages").symlink_to(PACKAGES)
    return run_build(images, "--cache", str(cache), *options, umask=umask, name=name)


def run_build(images: Path, *options: str, umask: int = 0o022, name: str) -> dict:
    done = subprocess.run(
        [sys.executable, images / name / "build", "--arch", "amd64", "--json", *options],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.umask(umask),
        check=True,
    )
    return json.loads(done.stdout)


def engine() -> str | None:
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


class Unpacked:
    """What a build has written."""

    def __init__(self, record: dict) -> None:
        with tarfile.open(record["archive"]) as archive:
            self.archive = {member.name: archive.extractfile(member).read() for member in archive if member.isreg()}
        manifest = json.loads(self.archive["manifest.json"])[0]
        self.config = json.loads(self.archive[manifest["Config"]])["config"]
        self.layer = tarfile.open(fileobj=io.BytesIO(self.archive[manifest["Layers"][0]]))
        self.members = self.layer.getmembers()
        self.paths = {member.name for member in self.members}
        self.tree = Tree()
        for member in self.members:
            self.tree.entries[member.name] = Entry("link" if member.issym() else "file", target=member.linkname)

    def dangling_links(self) -> list[str]:
        return [path for path in self.tree.links_in("") if not self.tree.is_present(self.tree.resolve(path))]
