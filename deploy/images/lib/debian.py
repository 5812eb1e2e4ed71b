"""Debian packages by lock file: resolve, download, read. Needs apt, not root.

The lock names every package by version and SHA-256, so a build depends on its
text alone: which mirror serves the files, and when, changes nothing.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

MIRROR = "http://deb.debian.org"
SNAPSHOT = "http://snapshot.debian.org/archive"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_HELPER = Path("/usr/lib/apt/apt-helper")

# Packages that are only there to install others. The resolver is told that
# they are present, so neither they nor what they need (perl) enter an image.
INSTALL_TIME_ONLY = ("debconf", "dpkg", "install-info", "perl-base")
# Where packages of an architecture have their libraries.
LIBRARIES = {"amd64": "usr/lib/x86_64-linux-gnu", "arm64": "usr/lib/aarch64-linux-gnu"}


class BuildError(Exception):
    """One sentence for the person who runs the build."""


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    architecture: str
    sha256: str
    path: str
    """Below the mirror's root, for example debian/pool/main/d/dash/dash_0.5.12-2_amd64.deb."""

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.sha256[:16]}.deb"

    @property
    def snapshot_path(self) -> tuple[str, str]:
        archive, _, rest = self.path.partition("/")
        return archive, rest


@dataclass(frozen=True)
class Lock:
    suite: str
    epoch: int
    """Seconds since 1970 of the newest index resolved against: the image's build date."""
    packages: tuple[Package, ...]

    def to_text(self) -> str:
        head = (
            "# Written by `build --refresh`; do not edit by hand.\n"
            f"suite {self.suite}\n"
            f"epoch {self.epoch}\n"
        )
        rows = (f"{p.name} {p.version} {p.architecture} {p.sha256} {p.path}\n" for p in self.packages)
        return head + "".join(rows)

    @staticmethod
    def parse(text: str) -> "Lock":
        lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
        head = {fields[0]: fields[1] for fields in lines if len(fields) == 2}
        packages = tuple(sorted(Package(*fields) for fields in lines if len(fields) == 5))
        return Lock(head["suite"], int(head["epoch"]), packages)


def run(*command: object, config: Path | None = None) -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    if config:
        environment["APT_CONFIG"] = str(config)
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError(
            f"{words[0]} is missing: our own images are built on Debian or Ubuntu; "
            "elsewhere let the engine pull the official Python image instead."
        ) from None
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise BuildError(f"{' '.join(words[:2])} failed: {reason}")
    return done.stdout


def resolve(suite: str, architecture: str, names: tuple[str, ...], mirror: str, left_out: tuple[str, ...] = ()) -> Lock:
    """Asks apt, in a private root where only `left_out` counts as installed, what `names` need today."""
    if not KEYRING.exists():
        raise BuildError(f"{KEYRING} is missing: install the package debian-archive-keyring.")
    with tempfile.TemporaryDirectory(prefix="mayfly-apt-") as folder:
        root = Path(folder)
        config = private_apt(root, suite, architecture, mirror, left_out)
        try:
            run("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update", config=config)
        except BuildError as error:
            raise BuildError(f"{mirror} gave no package index: check the network or name a --mirror ({error}).") from None
        listing = run("apt-get", "-y", "--print-uris", "install", *names, config=config)
        packages = []
        for url in re.findall(r"^'([^']+\.deb)' ", listing, flags=re.MULTILINE):
            path = unquote(url.removeprefix(mirror + "/"))
            name = path.rsplit("/", 1)[1].split("_")[0]
            packages.append(locked_package(config, name, path))
        return Lock(suite, index_epoch(root), tuple(sorted(packages)))


def private_apt(root: Path, suite: str, architecture: str, mirror: str, left_out: tuple[str, ...]) -> Path:
    for folder in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True)
    suites = {f"{mirror}/debian": (suite, f"{suite}-updates"), f"{mirror}/debian-security": (f"{suite}-security",)}
    sources = [
        f"deb [signed-by={KEYRING}] {url} {name} main\n" for url, names in suites.items() for name in names
    ]
    (root / "sources.list").write_text("".join(sources))
    stanza = (
        "Package: {}\nStatus: install ok installed\nArchitecture: {}\nMulti-Arch: {}\n"
        "Version: 9999\nMaintainer: none\nDescription: none\n\n"
    )
    present = {name: "foreign" for name in INSTALL_TIME_ONLY}
    present |= {name: "allowed" for name in left_out}  # "python3:any" is a dependency, too
    (root / "status").write_text("".join(stanza.format(name, architecture, kind) for name, kind in present.items()))
    config = root / "apt.conf"
    config.write_text(
        run("apt-config", "dump", "Acquire::http")  # the host's proxy
        + f"""
Dir "{root}";
Dir::State "state";
Dir::State::status "{root}/status";
Dir::Cache "cache";
Dir::Etc "etc";
Dir::Etc::Parts "apt.conf.d";
Dir::Etc::SourceList "{root}/sources.list";
Dir::Etc::SourceParts "-";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
"""
    )
    return config


def locked_package(config: Path, name: str, path: str) -> Package:
    for stanza in run("apt-cache", "show", name, config=config).split("\n\n"):
        fields = dict(re.findall(r"^(\S+): (.*)$", stanza, flags=re.MULTILINE))
        if fields.get("Filename") and path.endswith("/" + fields["Filename"]):
            return Package(name, fields["Version"], fields["Architecture"], fields["SHA256"], path)
    raise BuildError(f"apt lists no SHA-256 for {path}.")


def index_epoch(root: Path) -> int:
    dates = [
        parsedate_to_datetime(line.split(": ", 1)[1])
        for release in (root / "state/lists").glob("*InRelease")
        for line in release.read_text().splitlines()
        if line.startswith("Date: ")
    ]
    return int(max(dates).timestamp())


def download(lock: Lock, cache: Path, mirror: str, snapshot: str) -> list[Package]:
    """Fills `cache` with the lock's packages; returns those that could not be had."""
    cache.mkdir(parents=True, exist_ok=True)
    stamp = re.sub(r"[-:]", "", iso(lock.epoch))
    places = (
        lambda package: f"{mirror}/{package.path}",
        lambda package: "{}/{}/{}/{}".format(snapshot, package.snapshot_path[0], stamp, package.snapshot_path[1]),
    )
    for place in places:
        wanted = missing(lock, cache)
        if not wanted:
            break
        triples = [word for p in wanted for word in (place(p), cache / p.file_name, f"SHA256:{p.sha256}")]
        try:
            run(APT_HELPER, "-o", "APT::Sandbox::User=", "download-file", *triples)
        except BuildError:
            if not APT_HELPER.exists():
                raise
    return missing(lock, cache)


def missing(lock: Lock, cache: Path) -> list[Package]:
    return [p for p in lock.packages if not is_whole(cache / p.file_name, p.sha256)]


def is_whole(path: Path, digest: str) -> bool:
    return path.exists() and sha256(path.read_bytes()).hexdigest() == digest


def iso(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def members(package: Path):
    """Yields each member of a package's data archive with its bytes."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacker:
        with tarfile.open(fileobj=unpacker.stdout, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member).read() if member.isreg() else b""
                yield member, content
        unpacker.stdout.read()
    if unpacker.returncode != 0:
        raise BuildError(f"dpkg-deb could not unpack {package}.")


def control(package: Path) -> str:
    return run("dpkg-deb", "--field", package)
