"""What can go wrong, in words that say what to do about it.

An `ApiError` is the server's no: a problem document (RFC 9457), as the class that stands for its code. A `TransportError`
is that there is no answer. A program that fails is neither: that is how a job ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job import Batch, Job


class MayflyError(Exception):
    """Everything that this package raises of its own."""

    #: The job that `run` had submitted before this happened; `wait(error.job_id)` goes on with it.
    job_id: str | None = None
    #: The batch that `submit_batch` had begun before this happened.
    batch_id: str | None = None


class UsageError(MayflyError, ValueError):
    """What was given can't be sent. Nothing was."""


class TransportError(MayflyError):
    """There is no answer, or none that can be read."""

    def __init__(self, doing: str, server: str, what: str) -> None:
        super().__init__(f"could not {doing}: {what}")
        #: What was being done, as it stands behind "could not".
        self.doing = doing
        #: The server's address.
        self.server = server


class Unreachable(TransportError):
    """No connection to the server. Nothing was sent."""


class NoAnswer(TransportError):
    """The server took too long. It may have done what was asked."""


class ConnectionLost(TransportError):
    """The connection was lost before the end of the answer. The server may have done what was asked."""


class AnswerTooLarge(TransportError):
    """The answer is larger than answers may be."""


class UnexpectedAnswer(TransportError):
    """Something answers that is not the API, or another version of it."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with what was sent."""

    #: The field, as `limits.memory` or `files[2].path`; empty where it is the whole of it.
    path: str
    #: A stable word for programs.
    code: str
    #: What is wrong and what would be right, for people.
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True)
class Problem:
    """A problem document, or what is known where something on the way answered in the server's place."""

    status: int
    #: What programs decide by; empty where it was not the server that answered.
    code: str
    title: str
    detail: str | None = None
    faults: tuple[Fault, ...] = ()
    request_id: str | None = None
    #: Seconds until it is worth while to come back.
    retry_after: float | None = None


class ApiError(MayflyError):
    """The server's no. Where a code has no class of its own, or is newer than this package, it is this one."""

    #: What whoever has asked can do about it, where the problem itself does not say.
    hint: str | None = None

    def __init__(self, doing: str, problem: Problem) -> None:
        super().__init__(_sentence(doing, problem, self.hint))
        self.doing = doing
        self.problem = problem

    @property
    def status(self) -> int:
        """The status of the answer."""
        return self.problem.status

    @property
    def code(self) -> str:
        """The stable code, as docs/api.md lists them."""
        return self.problem.code

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Everything that is wrong with what was sent, each with the path of its field."""
        return self.problem.faults

    @property
    def retry_after(self) -> float | None:
        """Seconds until it is worth while to come back, where the server says so."""
        return self.problem.retry_after

    @property
    def request_id(self) -> str | None:
        """By which the server's log lines about the request are found."""
        return self.problem.request_id


class BadRequest(ApiError):
    """The request has a form that it can't have."""


class Unauthorized(ApiError):
    """No key was shown, or none that opens anything."""

    hint = "the server does not know the key, or its time is over: see key=, MAYFLY_CLIENT__KEY_FILE"


class Forbidden(ApiError):
    """The key's role may not do this."""

    hint = "another role is needed: `mayfly key list` shows which key has which"


class NotFound(ApiError):
    """There is no such thing, or it is another tenant's."""


class NoSuchRoute(ApiError):
    """The server has no such route."""

    hint = "the server's version may be too far from this package's"


class Conflict(ApiError):
    """Something of this name, or in this state, stands in the way."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used with another job."""

    hint = "take another key, or send the same job"


class Invalid(ApiError):
    """What was sent breaks rules; `faults` has all of them."""


class ImageNotPinned(Invalid):
    """The image that a job names is not in the catalog."""

    hint = "`mayfly image list` shows which images there are; an admin adds one with `mayfly image pin`"


class TooLarge(ApiError):
    """The body is larger than bodies may be (24 MiB)."""


class RateLimited(ApiError):
    """The key sends more than it may; `retry_after` says when to go on."""


class QuotaExceeded(ApiError):
    """The tenant has more at once than it may; `retry_after` says when to go on."""


class Unavailable(ApiError):
    """Trouble of the server's that passes."""


class ServerError(ApiError):
    """Trouble of the server's that does not pass by itself."""


#: The class of each code (docs/api.md, "Problems").
CLASSES: Mapping[str, type[ApiError]] = {
    "malformed_json": BadRequest,
    "invalid_parameter": BadRequest,
    "unsupported_media_type": BadRequest,
    "range_not_satisfiable": BadRequest,
    "unauthenticated": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "no_such_route": NoSuchRoute,
    "method_not_allowed": NoSuchRoute,
    "request_timeout": Unavailable,
    "idempotency_conflict": IdempotencyConflict,
    "conflict": Conflict,
    "gone": NotFound,
    "body_too_large": TooLarge,
    "invalid_body": Invalid,
    "invalid_job": Invalid,
    "image_not_pinned": ImageNotPinned,
    "rate_limited": RateLimited,
    "over_quota": QuotaExceeded,
    "internal": ServerError,
    "not_supported": ServerError,
    "unavailable": Unavailable,
    "overloaded": Unavailable,
}

#: Where something on the way answered in the server's place, which has no code.
_BY_STATUS: dict[int, type[ApiError]] = {408: Unavailable, 429: RateLimited, 502: Unavailable, 503: Unavailable, 504: Unavailable}


def refusal(doing: str, problem: Problem) -> ApiError:
    """The error that stands for a problem."""
    kind = CLASSES.get(problem.code) or _BY_STATUS.get(problem.status) or ApiError
    return kind(doing, problem)


class WaitTimeout(MayflyError, TimeoutError):
    """The job has not ended in the time that was waited for. It goes on, unless it was `run` that waited."""

    def __init__(self, job: Job, seconds: float) -> None:
        super().__init__(f"job {job.id} has not ended within {seconds:g} s: it is {job.state}")
        #: The job as it stood.
        self.job = job
        self.job_id = job.id


class BatchTimeout(MayflyError, TimeoutError):
    """Not all jobs of the batch have ended in the time that was waited for. They go on."""

    def __init__(self, batch: Batch, seconds: float) -> None:
        super().__init__(
            f"batch {batch.id} is not over within {seconds:g} s: {batch.waiting} of its jobs wait, {batch.running} run"
        )
        #: The batch as it stood.
        self.batch = batch
        self.batch_id = batch.id


class JobFailed(MayflyError):
    """A job ended in another way than by exit code 0."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id}: {job.error}")
        self.job = job
        self.job_id = job.id


def _sentence(doing: str, problem: Problem, hint: str | None) -> str:
    words = f"could not {doing}: {problem.title}"
    if problem.detail:
        words += f": {problem.detail}"
    words += "".join(f"; {fault}" for fault in problem.faults)
    if problem.retry_after is not None:
        words += f" (try again in {problem.retry_after:g} s)"
    elif hint:
        words += f" ({hint})"
    if problem.status >= 500 and problem.request_id:
        words += f" (request {problem.request_id})"
    return words
