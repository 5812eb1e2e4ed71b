"""What the API says of jobs and batches, typed.

Words that are newer than this package come through as they are. What is not modelled here is in `raw`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from .errors import JobFailed

T = TypeVar("T")

StreamName: TypeAlias = Literal["stdout", "stderr"]
#: Where a job stands. The first four are on the way; the others are final.
State: TypeAlias = Literal[
    "queued",
    "dispatched",
    "started",
    "cancel_requested",
    "succeeded",
    "failed",
    "timed_out",
    "out_of_memory",
    "limit_exceeded",
    "canceled",
    "rejected",
    "expired",
    "error",
    "lost",
]
#: What became of a request to cancel: the job had not started and is over; its run is being ended; it was over already.
CancelAnswer: TypeAlias = Literal["canceled", "requested", "over"]
#: Why a file is not kept.
LeftOutWhy: TypeAlias = Literal[
    "link",
    "pipe",
    "socket",
    "device",
    "unreadable",
    "too_large",
    "too_many_files",
    "too_many_bytes",
    "name_too_long",
    "too_deep",
    "holds_secret",
]
#: States that are not final.
ON_THE_WAY = frozenset(get_args(State)[:4])


class HasId(Protocol):
    """Anything that stands for a job or a batch."""

    @property
    def id(self) -> str:
        """Its id."""


@dataclass(frozen=True)
class Submitted:
    """What a submission came to."""

    #: The job.
    id: str
    #: Whether it had been accepted before, by the same idempotency key or as the same item, and stays as it is.
    existing: bool

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Submitted:
        """What the API says of it."""
        return cls(id=wire["job"], existing=wire["existing"])


@dataclass(frozen=True)
class Output:
    """What is kept of one stream of a job. Where the middle was cut it is `head` and `tail`."""

    #: The first bytes that are kept; all of them, where nothing was cut.
    head: bytes = b""
    #: The last bytes that are kept, where something was cut.
    tail: bytes = b""
    #: Every byte that the program wrote, those that were cut and taken out counted.
    written_bytes: int = 0
    #: Bytes that were cut between head and tail.
    omitted_bytes: int = 0
    #: Whether something was cut.
    truncated: bool = False
    #: SHA-256 over every byte that the program wrote, in hexadecimal digits; none where there is no output on record.
    sha256: str | None = None
    #: How many redactions there were, by their rules; `secret` are the job's own. None where nobody looked.
    redacted: Mapping[str, int] | None = None

    @property
    def content(self) -> bytes:
        """All that is kept. Where something was cut, head and tail stand side by side."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """The same as text; what is no UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")

    def __str__(self) -> str:
        return self.text

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any] | None) -> Output:
        """What the API says of it."""
        if wire is None:
            return cls()
        whole = content(wire) if "text" in wire or "base64" in wire else None
        redacted = wire.get("redacted")
        return cls(
            head=content(wire.get("head") or {}) if whole is None else whole,
            tail=content(wire.get("tail") or {}),
            written_bytes=wire["bytes"],
            omitted_bytes=wire.get("omitted_bytes") or 0,
            truncated=wire["truncated"],
            sha256=wire["sha256"],
            redacted=None if redacted is None else dict(redacted.get("counts") or {}),
        )


@dataclass(frozen=True)
class OutputPart:
    """Some bytes of what is kept of a stream."""

    content: bytes
    #: Where they begin, in what is kept.
    offset: int
    #: How many bytes are kept.
    kept_bytes: int
    #: How many bytes the program wrote.
    written_bytes: int
    #: Where in what is kept the middle was cut; none where it was not.
    cut_at: int | None


@dataclass(frozen=True)
class Artifact:
    """A file that was kept of a job."""

    #: Where it stands in the list, from 0.
    index: int
    #: Its name below `/work`. The program chose it: it is no path to write to.
    name: bytes
    bytes: int
    #: SHA-256 of its bytes, in hexadecimal digits.
    sha256: str
    #: Whether it was taken for a text.
    is_text: bool
    #: How many redactions there were, by their rules; out of a text they were taken, in other files they are still.
    redacted: Mapping[str, int] | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Artifact:
        """What the API says of it."""
        redacted = wire.get("redacted")
        return cls(
            index=wire["index"],
            name=content(wire["name"]),
            bytes=wire["bytes"],
            sha256=wire["sha256"],
            is_text=wire["is_text"],
            redacted=None if redacted is None else dict(redacted.get("counts") or {}),
        )


@dataclass(frozen=True)
class Upload:
    """A file that is kept for jobs."""

    #: `sha256:` and 64 hexadecimal digits: by it jobs name the file.
    digest: str
    bytes: int
    kept_at: datetime
    #: When it was last uploaded, or a job was submitted with it; to the minute.
    used_at: datetime
    #: Until when it is kept, unless it is used again.
    kept_until: datetime

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Upload:
        """What the API says of it."""
        at = {name: _instant(wire[name]) for name in ("kept_at", "used_at", "kept_until")}
        return cls(digest=wire["digest"], bytes=wire["bytes"], **at)


@dataclass(frozen=True)
class LeftOut:
    """A file that was wanted and is not kept."""

    #: Its name below `/work`. The program chose it.
    name: bytes
    why: LeftOutWhy
    #: How many bytes it had, of a regular file.
    bytes: int | None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> LeftOut:
        """What the API says of it."""
        return cls(name=content(wire["name"]), why=wire["why"], bytes=wire.get("bytes"))


@dataclass(frozen=True)
class Artifacts:
    """What came of the files that a job asked to keep."""

    #: Whether anything was collected: the job asked for files, and ended in a way after which they are kept.
    collected: bool
    #: In the order of their names.
    files: tuple[Artifact, ...] = ()
    #: Those that are not kept, as far as they are named, and how many more there are.
    left_out: tuple[LeftOut, ...] = ()
    not_named: int = 0
    #: Why there may be files of which nothing is known.
    incomplete: str | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Artifacts:
        """What the API says of them."""
        return cls(
            collected=wire["collected"],
            files=tuple(Artifact.from_wire(file) for file in wire["files"]),
            left_out=tuple(LeftOut.from_wire(file) for file in wire["left_out"]),
            not_named=wire["not_named"],
            incomplete=wire.get("incomplete"),
        )


@dataclass(frozen=True)
class Usage:
    """Resources that the run used, as the kernel counted them."""

    #: From the program's start to its end, in seconds.
    wall_s: float
    #: CPU time in user mode and in the kernel, in seconds.
    user_s: float
    system_s: float
    #: The largest resident set of one process, in bytes.
    max_rss_bytes: int
    #: The most memory that the whole container had, in bytes, where the kernel tells.
    peak_memory_bytes: int | None
    #: How long processes had to wait because the CPU limit was used up, in seconds, where the kernel tells.
    cpu_throttled_s: float | None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Usage:
        """What the API says of it."""
        throttled = wire.get("cpu_throttled_us")
        return cls(
            wall_s=wire["wall_us"] / 1e6,
            user_s=wire["user_us"] / 1e6,
            system_s=wire["system_us"] / 1e6,
            max_rss_bytes=wire["max_rss_bytes"],
            peak_memory_bytes=wire.get("peak_memory_bytes"),
            cpu_throttled_s=None if throttled is None else throttled / 1e6,
        )


@dataclass(frozen=True, kw_only=True)
class JobLine:
    """A job in a list."""

    id: str
    state: State
    #: Why it ended so; more exact than its state (docs/outcomes.md).
    cause: str | None
    #: The program's exit code, where it has one.
    exit_code: int | None
    #: The image as it was named, and what that meant at submission.
    image: str
    image_digest: str
    attempts: int
    labels: Mapping[str, str]
    #: The batch that it is one of.
    batch: str | None
    submitted_at: datetime
    ended_at: datetime | None
    #: All that the API says of it.
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with 0."""
        return self.state == "succeeded"

    @property
    def is_over(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state not in ON_THE_WAY

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> JobLine:
        """What the API says of it."""
        return cls(**_line(wire))


@dataclass(frozen=True, kw_only=True)
class BatchJob(JobLine):
    """A job of a batch."""

    #: The name of its item; empty once it is erased.
    item: str
    #: Its place, from 1.
    position: int

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> BatchJob:
        """What the API says of it."""
        return cls(item=wire["item"], position=wire["position"], **_line(wire))


@dataclass(frozen=True, kw_only=True)
class Job(JobLine):
    """A job with all that is known of it."""

    #: The signal that ended the program, where one did.
    signal: int | None
    #: What it wrote, as far as it is kept. Empty until it is over, and for a key that may not read output.
    stdout: Output = field(repr=False)
    stderr: Output = field(repr=False)
    #: What came of the files that it asked to keep; none where nothing was collected.
    artifacts: Artifacts | None
    #: What it used, where it ran.
    usage: Usage | None
    started_at: datetime | None

    @property
    def error(self) -> str | None:
        """Why it is not `ok`, as a sentence; none where it is, or is not over."""
        return None if self.ok or not self.is_over else _why(self)

    @property
    def waiting_for(self) -> str | None:
        """Why it has not started, as a sentence, where it has not."""
        waiting = self.raw.get("waiting_for")
        return None if waiting is None else str(waiting["detail"])

    def check(self) -> Job:
        """The job itself. Raises JobFailed where it is not `ok`."""
        if not self.ok:
            raise JobFailed(self)
        return self

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Job:
        """What the API says of it."""
        usage, artifacts = wire.get("usage"), wire.get("artifacts")
        return cls(
            artifacts=None if artifacts is None else Artifacts.from_wire(artifacts),
            signal=wire.get("signal"),
            stdout=Output.from_wire(wire.get("stdout")),
            stderr=Output.from_wire(wire.get("stderr")),
            usage=None if usage is None else Usage.from_wire(usage),
            started_at=_time(wire.get("started_at")),
            **_line(wire),
        )


@dataclass(frozen=True)
class Batch:
    """A batch as it stands."""

    id: str
    #: What it was made from.
    input: str
    created_at: datetime
    #: How many jobs it has, once it is complete.
    items: int | None
    #: Its jobs that have not started, and those that have.
    waiting: int
    running: int
    #: Its jobs that are over, by how they ended.
    ended: Mapping[str, int]

    @property
    def is_over(self) -> bool:
        """Whether it is complete and all of its jobs are over."""
        return self.items is not None and sum(self.ended.values()) >= self.items

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Batch:
        """What the API says of it."""
        return cls(
            id=wire["batch"],
            input=wire["input"],
            created_at=_instant(wire["created_at"]),
            items=wire.get("items"),
            waiting=wire["waiting"],
            running=wire["running"],
            ended=dict(wire["ended"]),
        )


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list."""

    entries: list[T]
    #: Where the list goes on; none at its end.
    next: str | None


def content(wire: Mapping[str, Any]) -> bytes:
    """Bytes of a program's output: `text`, or `base64` where they are no UTF-8."""
    text = wire.get("text")
    if text is not None:
        return str(text).encode()
    return base64.b64decode(wire.get("base64") or "", validate=True)


def _line(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": wire["job"],
        "state": wire["state"],
        "cause": wire.get("cause"),
        "exit_code": wire.get("exit_code"),
        "image": wire["image"],
        "image_digest": wire["image_digest"],
        "attempts": wire["attempts"],
        "labels": dict(wire["labels"]),
        "batch": wire.get("batch"),
        "submitted_at": _instant(wire["submitted_at"]),
        "ended_at": _time(wire.get("ended_at")),
        "raw": wire,
    }


def _time(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _instant(text: str) -> datetime:
    """A time of RFC 3339. Python 3.10 reads neither `Z` nor nanoseconds."""
    shortened = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    return datetime.fromisoformat(re.sub(r"\.(\d{1,5})(?=[+-])", lambda part: f".{part[1]:0<6}", shortened))


#: What a state means, where the evidence says no more (docs/outcomes.md).
_WORDS = {
    "timed_out": "it ran into its wall-clock limit",
    "out_of_memory": "it was killed for memory",
    "limit_exceeded": "it wrote more than its policy allows",
    "canceled": "it was canceled",
    "expired": "it waited for its start longer than it may",
    "lost": "its executor died, and it may not be tried again",
}


def _why(job: Job) -> str:
    evidence = job.raw.get("evidence") or {}
    refused, trouble = evidence.get("refused"), evidence.get("trouble")
    if refused:
        subject = f"{refused['subject']}: " if refused.get("subject") else ""
        words = f"it could not be started: {subject}{refused['reason']}"
    elif trouble:
        words = str(trouble["message"])
    elif evidence.get("mismatches"):
        names = ", ".join(str(one.get("field", one)) for one in evidence["mismatches"])
        words = f"its sandbox was not as it was asked for: {names}"
    elif job.state in _WORDS:
        words = _WORDS[job.state]
    elif job.exit_code is not None:
        words = f"its program ended with exit code {job.exit_code}"
    elif job.signal is not None:
        words = f"its program was ended by signal {job.signal}"
    else:
        words = f"its cause is {job.cause}"
    return f"{job.state}: {words}"
