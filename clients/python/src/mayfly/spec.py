"""What a job is: the body of a submission, typed.

What is left out is the policy's default; what is wrong with a job is said by the server, all of it at once (`Invalid`).
Only what can't be sent at all is refused here.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .errors import UsageError
from .job import Upload

#: Text, bytes, or a file of this host, which is read when the job is submitted.
Content: TypeAlias = "str | bytes | Path"
#: Ends of a job's own making after which it may be tried again.
RetryOn: TypeAlias = Literal["failed", "timed_out", "out_of_memory", "limit_exceeded"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job asks for (docs/limits.md has defaults, floors and ceilings).

    Sizes are text with a unit, `"256MiB"`; the server refuses a bare number.
    """

    #: Memory and swap together, file systems in memory included.
    memory: str | None = None
    #: CPUs: `0.5`, or `"500m"`.
    cpu: float | str | None = None
    #: Processes and threads at once.
    pids: int | None = None
    #: From the start to the end: `timedelta(seconds=5)`, or `"5s"`.
    wall: timedelta | str | None = None
    #: `/work`, which is writable.
    work: str | None = None
    #: `/tmp`, which is writable, and nothing in it can be executed.
    tmp: str | None = None
    #: `/dev/shm`.
    shm: str | None = None
    #: What is kept of standard output.
    stdout: str | None = None
    #: What is kept of standard error.
    stderr: str | None = None
    #: Descriptors of a process.
    open_files: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """As the API takes it."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return _given(values | {"wall": span("limits.wall", self.wall)})


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When a job is tried again."""

    #: Attempts in all. With 1 a job starts at most once, and is `lost` if its executor dies.
    max_attempts: int
    #: Ends of the job's own making after which it is tried again as well. Trouble of the fleet's needs no mention.
    on: Sequence[RetryOn] = ()

    def to_wire(self) -> dict[str, Any]:
        """As the API takes it."""
        return {"max_attempts": self.max_attempts, "on": list(self.on)}


@dataclass(frozen=True)
class File:
    """A file that is put into `/work`, where it has to be executable or have a mode. Otherwise its content alone does."""

    content: Content
    executable: bool = False
    #: Three octal digits, for owner, group and others, such as `"0640"`. Either this or `executable`.
    mode: str | None = None


@dataclass(frozen=True)
class Uploaded:
    """A file that was uploaded before (`Mayfly.upload`), where it has to be executable or have a mode. Otherwise its digest or
    what `upload` returned does."""

    #: `sha256:` and 64 hexadecimal digits.
    digest: str
    executable: bool = False
    #: As of a `File`.
    mode: str | None = None


@dataclass(frozen=True)
class NamedSecret:
    """A secret that the server keeps under a name (docs/secrets.md)."""

    name: str


@dataclass(frozen=True)
class Archive:
    """An archive whose files are put into `/work` (docs/files.md has what is taken)."""

    content: bytes | Path
    #: What it is; where this is left out its first bytes say it.
    format: Literal["zip", "tar", "tar.gz"] | None = None
    #: The folder below `/work` into which it goes; `/work` itself where it is left out.
    into: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job: a program as `source`, or as a `command` of its image."""

    #: A name of the catalog, or a reference with a digest (`repository@sha256:…`).
    image: str = "python"
    #: A program's text. Either this or `command`.
    source: Content | None = None
    #: Which interpreter reads `source`. Where it is left out: `shell` for a file that ends in `.sh`, else `python`.
    language: Literal["python", "shell"] | None = None
    #: A program of the image and its first arguments. Either this or `source`.
    command: Sequence[str] | None = None
    #: Arguments after the command or the program's file.
    args: Sequence[str] = ()
    #: What the program reads from its standard input; nothing where it is left out.
    stdin: Content | None = None
    #: Files that are put into `/work`, by their paths below it.
    files: Mapping[str, Content | File] = field(default_factory=dict)
    #: Files that were uploaded before, by their paths below `/work`: what `Mayfly.upload` returned, or a digest.
    uploads: Mapping[str, str | Upload | Uploaded] = field(default_factory=dict)
    #: Archives whose files are put into `/work` as well.
    archives: Sequence[Archive] = ()
    #: Environment variables.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Environment variables whose values are taken out of what the job writes, at least 4 bytes each (docs/redaction.md).
    secrets: Mapping[str, str | NamedSecret] = field(default_factory=dict, repr=False)
    #: The same as files below `/work` that the job's user alone can read, by their paths.
    secret_files: Mapping[str, str | NamedSecret] = field(default_factory=dict, repr=False)
    #: Files to keep when it has ended, as globs below `/work`: `["out/*.csv", "**/*.png"]`.
    artifacts: Sequence[str] = ()
    #: After which ends: exit code 0 alone, or any end, also that of its time.
    artifacts_after: Literal["success", "any_end"] = "success"
    limits: Limits = field(default_factory=Limits)
    retry: Retry | None = None
    #: For your own use; `list_jobs` finds jobs by them.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Among your own jobs the higher goes first; 0 is usual.
    priority: int = 0
    #: Longest wait for the start, from submission: `timedelta(minutes=5)`, or `"5m"`.
    expires_after: timedelta | str | None = None
    #: It does not start before this. It has to have a time zone.
    not_before: datetime | None = None
    #: Whether what the job brings is kept after its end. The result is in any case.
    retain_source: bool = True
    #: The network asked for.
    network: Literal["none"] | None = None
    #: Hosts that it is to reach, as rules: `["pypi.org", "*.example.com:8443"]` (docs/egress.md). The policy says which may be.
    egress: Sequence[str] = ()
    #: The OCI runtime asked for: `"runsc"` is gVisor.
    runtime: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """The body of a submission. Raises UsageError for what can't be sent: a file that can't be read, text that is no
        UTF-8, a source and a command at once."""
        if (self.source is None) == (self.command is None):
            raise UsageError("a job is a program as `source`, or as a `command` of its image: give one of the two")
        if self.command is not None and isinstance(self.command, str):
            raise UsageError("`command` is a list of words, not one text: ['sh', '-c', '…'] runs it in a shell")
        if isinstance(self.egress, str):
            raise UsageError("`egress` is a list of rules, not one text: ['pypi.org']")
        if isinstance(self.artifacts, str):
            raise UsageError("`artifacts` is a list of globs, not one text: ['out/*.csv']")
        body = {
            "image": self.image,
            "source": self._source(),
            "command": None if self.command is None else list(self.command),
            "args": list(self.args),
            "stdin": None if self.stdin is None else blob("stdin", self.stdin),
            "files": [_file(path, content) for path, content in self.files.items()],
            "uploads": [_uploaded(path, upload) for path, upload in self.uploads.items()],
            "archives": [_archive(position, archive) for position, archive in enumerate(self.archives)],
            "env": dict(self.env),
            "secrets": _secrets(self.secrets),
            "secret_files": _secrets(self.secret_files),
            "artifacts": list(self.artifacts),
            "artifacts_after": None if self.artifacts_after == "success" else self.artifacts_after,
            "limits": self.limits.to_wire(),
            "retry": None if self.retry is None else self.retry.to_wire(),
            "labels": dict(self.labels),
            "expires_after": span("expires_after", self.expires_after),
            "not_before": _instant(self.not_before),
            "network": self.network,
            "egress": list(self.egress),
            "runtime": self.runtime,
        }
        return {name: value for name, value in body.items() if value not in (None, [], {})} | {
            "priority": self.priority,
            "retain_source": self.retain_source,
        }

    def _source(self) -> dict[str, Any] | None:
        if self.source is None:
            return None
        is_shell = isinstance(self.source, Path) and self.source.suffix == ".sh"
        language = self.language or ("shell" if is_shell else "python")
        return {"language": language, "text": blob("source", self.source)}


def spec_of(job: JobSpec | str) -> JobSpec:
    """The job that is meant: text is a Python program."""
    return JobSpec(source=job) if isinstance(job, str) else job


def blob(name: str, content: Content) -> str | dict[str, str]:
    """Bytes as the API takes them: as text where they are UTF-8, otherwise in base64 (RFC 4648, section 4)."""
    if isinstance(content, str):
        try:
            content.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name}: the text has surrogates, which are no UTF-8: give bytes") from None
        return content
    data = content if isinstance(content, bytes) else _read(name, content)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def span(name: str, value: timedelta | str | None) -> str | None:
    """A length of time as the API takes it: in whole milliseconds, and nothing is rounded in silence."""
    if not isinstance(value, timedelta):
        return value
    millis, rest = divmod(value, timedelta(milliseconds=1))
    if rest or millis < 0:
        raise UsageError(f"{name}: {value} is no length of time in whole milliseconds")
    return f"{millis}ms"


def _read(name: str, path: os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {path} can't be read: {error.strerror}") from error


def _file(path: str, content: Content | File) -> dict[str, Any]:
    file = content if isinstance(content, File) else File(content)
    body = {"path": path, "content": blob(f"files[{path!r}]", file.content), "executable": file.executable}
    return body if file.mode is None else body | {"mode": file.mode}


def _uploaded(path: str, upload: str | Upload | Uploaded) -> dict[str, Any]:
    file = upload if isinstance(upload, Uploaded) else Uploaded(upload if isinstance(upload, str) else upload.digest)
    return _given({"path": path, "digest": file.digest, "executable": file.executable, "mode": file.mode})


def _secrets(places: Mapping[str, str | NamedSecret]) -> dict[str, Any]:
    return {place: {"named": value.name} if isinstance(value, NamedSecret) else value for place, value in places.items()}


def _archive(position: int, archive: Archive) -> dict[str, Any]:
    content = blob(f"archives[{position}]", archive.content)
    return _given({"content": content, "format": archive.format, "into": archive.into})


def _instant(at: datetime | None) -> str | None:
    if at is None:
        return None
    if at.tzinfo is None:
        raise UsageError(f"not_before: {at} has no time zone; datetime.now(timezone.utc) has one")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
