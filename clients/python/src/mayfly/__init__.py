"""A client of mayfly, which runs untrusted code as jobs in containers.

    import mayfly

    with mayfly.Mayfly() as client:
        job = client.run("print(6 * 7)")
        print(job.stdout)

Start with `Mayfly`, or with `AsyncMayfly` on asyncio. A job is a `JobSpec`; what came of it is a `Job`. `docker_run` is for
programs that call `docker run` so far, `PythonTool` for agents.
"""

from ._asyncio import AsyncMayfly
from ._blocking import Mayfly
from ._version import VERSION
from .docker import DockerRun, OutputTruncated, docker_argv, docker_run
from .errors import (
    AnswerTooLarge,
    ApiError,
    BadRequest,
    BatchTimeout,
    Conflict,
    ConnectionLost,
    Fault,
    Forbidden,
    IdempotencyConflict,
    ImageNotPinned,
    Invalid,
    JobFailed,
    MayflyError,
    NoAnswer,
    NoSuchRoute,
    NotFound,
    Problem,
    QuotaExceeded,
    RateLimited,
    ServerError,
    TooLarge,
    TransportError,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    UsageError,
    WaitTimeout,
)
from .events import EndEvent, Event, GapEvent, OutputEvent, StateEvent
from .job import Artifact, Artifacts, Batch, BatchJob, Job, JobLine, LeftOut, Output, OutputPart, Submitted, Upload, Usage
from .spec import Archive, File, JobSpec, Limits, NamedSecret, Retry, Uploaded
from .tool import PythonTool

__all__ = [
    "VERSION",
    "AnswerTooLarge",
    "ApiError",
    "Archive",
    "Artifact",
    "Artifacts",
    "AsyncMayfly",
    "BadRequest",
    "Batch",
    "BatchJob",
    "BatchTimeout",
    "Conflict",
    "ConnectionLost",
    "DockerRun",
    "EndEvent",
    "Event",
    "Fault",
    "File",
    "Forbidden",
    "GapEvent",
    "IdempotencyConflict",
    "ImageNotPinned",
    "Invalid",
    "Job",
    "JobFailed",
    "JobLine",
    "JobSpec",
    "LeftOut",
    "Limits",
    "Mayfly",
    "MayflyError",
    "NamedSecret",
    "NoAnswer",
    "NoSuchRoute",
    "NotFound",
    "Output",
    "OutputEvent",
    "OutputPart",
    "OutputTruncated",
    "Problem",
    "PythonTool",
    "QuotaExceeded",
    "RateLimited",
    "Retry",
    "ServerError",
    "StateEvent",
    "Submitted",
    "TooLarge",
    "TransportError",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "Upload",
    "Uploaded",
    "Usage",
    "UsageError",
    "WaitTimeout",
    "docker_argv",
    "docker_run",
]
