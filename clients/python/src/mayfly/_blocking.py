"""The client that blocks: `AsyncMayfly` on a wire that waits with the thread. What each method does stands there."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType

import httpx

from ._address import settle
from ._asyncio import AsyncMayfly
from ._wire import blocking, iterate_now, run_now
from .events import Event
from .job import (
    Artifact,
    Artifacts,
    Batch,
    BatchJob,
    CancelAnswer,
    HasId,
    Job,
    JobLine,
    OutputPart,
    State,
    StreamName,
    Submitted,
    Upload,
)
from .spec import JobSpec


class Mayfly:
    """A client of one server. Several threads may share it.

    Server and key come from the arguments, else from MAYFLY_CLIENT__SERVER and MAYFLY_CLIENT__KEY_FILE or MAYFLY_CLIENT__KEY.
    `timeout` is the longest time for one request, in seconds, `patience` how long a request is sent again while the
    server is away or has too much to do, and `connections` how many requests may be under way at once; further ones wait
    for their turn. `transport` is what sends, where it is to be another than httpx's own. Requests are sent again only
    where that is safe; a submission is, under its idempotency key.

    Every method raises `ApiError` where the server says no, and `TransportError` where there is no answer.
    """

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        ca_file: str | Path | None = None,
        allow_plain_http: bool | None = None,
        timeout: float = 60.0,
        patience: float = 30.0,
        connections: int = 256,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = settle(server, key, ca_file, allow_plain_http)
        self._client = AsyncMayfly._on(address, blocking(address, connections, transport), timeout, patience)

    @property
    def server(self) -> str:
        """The server's address."""
        return self._client.server

    def __repr__(self) -> str:
        return f"{type(self).__name__}(server={self.server!r})"

    def __enter__(self) -> Mayfly:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        run_now(self._client.close())

    def submit(self, job: JobSpec | str, *, idempotency_key: str | None = None) -> Submitted:
        """Submits a job; text is a Python program. When this returns the job is on record, and will come to exactly one end.

        The same key with the same job stands for one job, for 24 hours; where none is given one is made, under which the
        submission is sent again where its answer was lost.
        """
        return run_now(self._client.submit(job, idempotency_key=idempotency_key))

    def submit_many(self, jobs: Sequence[JobSpec | str]) -> list[Submitted]:
        """Submits at most 1,000 jobs: all of them are accepted, in their order, or none.

        The API knows no idempotency key for this, so that it is not sent again once the server may have taken it; `submit_batch`
        is.
        """
        return run_now(self._client.submit_many(jobs))

    def get(self, job: str | HasId, *, output: bool = True) -> Job:
        """A job with all that is known of it, and what is kept of its output unless that is not asked for."""
        return run_now(self._client.get(job, output=output))

    def wait(self, job: str | HasId, timeout: float | None = None) -> Job:
        """A job, once it is over.

        Raises WaitTimeout after so many seconds; without any the job's own limits are the bound. The job goes on.
        """
        return run_now(self._client.wait(job, timeout))

    def run(
        self,
        job: JobSpec | str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        check: bool = False,
    ) -> Job:
        """Submits a job and waits for its end; text is a Python program.

        A program that fails is no error, unless `check` asks for JobFailed. `timeout` is how long is waited, in seconds, waiting
        for its turn included; `limits.wall` bounds the run itself. Where the wait ends early, by WaitTimeout or Ctrl-C, the job
        is cancelled. Where the server stays away it is not, and `error.job_id` names it.
        """
        return run_now(self._client.run(job, timeout=timeout, idempotency_key=idempotency_key, check=check))

    def cancel(self, job: str | HasId) -> CancelAnswer:
        """Asks for a job's end."""
        return run_now(self._client.cancel(job))

    def stream(self, job: str | HasId) -> Generator[Event, None, None]:
        """Everything that happens to a job as it happens, from its beginning to its `EndEvent`.

        A lost connection is opened again behind the newest event.
        """
        return iterate_now(self._client.stream(job))

    def read_output(self, job: str | HasId, stream: StreamName = "stdout", start: int = 0, end: int | None = None) -> OutputPart:
        """What is kept of a stream of a job that is over, byte for byte: all of it, or from `start` to before `end`. A
        negative `start` counts from the end, without an `end`."""
        return run_now(self._client.read_output(job, stream, start, end))

    def artifacts(self, job: str | HasId) -> Artifacts:
        """Which files were kept of a job. None are before its end."""
        return run_now(self._client.artifacts(job))

    def read_artifact(self, job: str | HasId, artifact: Artifact | str | int, start: int = 0, end: int | None = None) -> bytes:
        """A file that was kept of a job, by its name or its place in the list: all of it, or from `start` to before `end`. A
        negative `start` counts from the end, without an `end`. `save_artifact` is for those that are large."""
        return run_now(self._client.read_artifact(job, artifact, start, end))

    def save_artifact(self, job: str | HasId, artifact: Artifact | str | int, path: str | os.PathLike[str]) -> Artifact:
        """Writes a file that was kept of a job to `path`, which is there once all of it has come and is what the job's record
        says. The name that the program gave it is no part of that."""
        return run_now(self._client.save_artifact(job, artifact, path))

    def upload(self, content: bytes | str | os.PathLike[str]) -> Upload:
        """Uploads a file for jobs, bytes or a file of this host, unless it is there; jobs name what this returns in their
        `uploads`. It is kept until nobody has used it for some time, and while a job that is not over has it. The file is sent
        once: where that fails, call it again."""
        return run_now(self._client.upload(content))

    def list_uploads(self, *, page: int = 100) -> Generator[Upload, None, None]:
        """Uploads, in the order in which they were begun."""
        return iterate_now(self._client.list_uploads(page=page))

    def remove_upload(self, upload: Upload | str) -> None:
        """Removes an upload, by its digest. One that a job has which is not over stays, by Conflict."""
        run_now(self._client.remove_upload(upload))

    def list_jobs(
        self,
        *,
        state: State | None = None,
        label: tuple[str, str] | None = None,
        batch: str | HasId | None = None,
        image: str | None = None,
        submitted_from: datetime | None = None,
        submitted_before: datetime | None = None,
        page: int = 100,
    ) -> Generator[JobLine, None, None]:
        """Jobs, newest first: those that fit everything that is named. They are fetched in pages of so many, 1 to 1,000."""
        return iterate_now(
            self._client.list_jobs(
                state=state,
                label=label,
                batch=batch,
                image=image,
                submitted_from=submitted_from,
                submitted_before=submitted_before,
                page=page,
            )
        )

    def create_batch(self, input: str = "") -> Batch:
        """Begins a batch, which then takes jobs until it is complete. `input` says what it is made from, for people."""
        return run_now(self._client.create_batch(input))

    def submit_items(self, batch: str | HasId, items: Mapping[str, JobSpec | str]) -> list[Submitted]:
        """Submits jobs of a batch, by the names of their items, in requests of at most 1,000.

        Those of one request are accepted all, or none. An item that the batch has already stays as it is, so that the same call
        may be made again and again.
        """
        return run_now(self._client.submit_items(batch, items))

    def complete_batch(self, batch: str | HasId, items: int) -> Batch:
        """Says that a batch has all of its jobs, which are so many."""
        return run_now(self._client.complete_batch(batch, items))

    def submit_batch(self, items: Mapping[str, JobSpec | str], input: str = "") -> Batch:
        """Submits any number of jobs as a batch, by the names of their items.

        Where that fails in the middle, the batch is there, and not complete; `submit_items` with `error.batch_id` goes on.
        """
        return run_now(self._client.submit_batch(items, input))

    def get_batch(self, batch: str | HasId) -> Batch:
        """A batch as it stands."""
        return run_now(self._client.get_batch(batch))

    def wait_batch(self, batch: str | HasId, timeout: float | None = None) -> Batch:
        """A batch, once it is complete and all of its jobs are over. Raises BatchTimeout after so many seconds."""
        return run_now(self._client.wait_batch(batch, timeout))

    def list_batches(self, *, page: int = 100) -> Generator[Batch, None, None]:
        """Batches, newest first."""
        return iterate_now(self._client.list_batches(page=page))

    def list_batch_jobs(self, batch: str | HasId, *, page: int = 100) -> Generator[BatchJob, None, None]:
        """Jobs of a batch, by their places."""
        return iterate_now(self._client.list_batch_jobs(batch, page=page))
