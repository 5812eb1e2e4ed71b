"""The client, on asyncio. `Mayfly` is the same on a wire that blocks: all that either does is written here."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import httpx

from . import errors
from ._address import Address, settle
from ._call import Call, Caller, get, post
from ._version import VERSION
from ._wire import FileStream, Wire, asyncio_wire
from .events import Event, follow
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
    Page,
    State,
    StreamName,
    Submitted,
    Upload,
)
from .spec import JobSpec, spec_of

T = TypeVar("T")

#: Longest wait that the server is asked for, in seconds (docs/api.md, "Bounds").
LONGEST_SERVER_WAIT = 60.0
#: Most jobs of one request, and bytes of its body; the server takes 24 MiB.
MOST_JOBS, MOST_BYTES = 1000, 16 << 20
#: Seconds between two looks at a batch: the first, and the longest.
FIRST_LOOK, LONGEST_LOOK = 0.1, 2.0
#: Bytes of a file that are fetched at once.
DOWNLOAD_PART = 8 << 20
#: Longest time for one upload: what a server takes for it, in seconds.
LONGEST_UPLOAD = 3600.0
#: Longest time that an interrupted `run` takes to cancel its job, in seconds.
GIVE_UP = 5.0


class AsyncMayfly:
    """A client of one server, for asyncio.

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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        address = settle(server, key, ca_file, allow_plain_http)
        self._begin(address, asyncio_wire(address, connections, transport), timeout, patience)

    def _begin(self, address: Address, wire: Wire, timeout: float, patience: float) -> None:
        self._caller = Caller(wire, address, f"mayfly-python/{VERSION}", timeout, patience)

    @classmethod
    def _on(cls, address: Address, wire: Wire, timeout: float, patience: float) -> AsyncMayfly:
        """One on a wire of another kind."""
        client = cls.__new__(cls)
        client._begin(address, wire, timeout, patience)
        return client

    @property
    def server(self) -> str:
        """The server's address."""
        return self._caller.server

    def __repr__(self) -> str:
        return f"{type(self).__name__}(server={self.server!r})"

    async def __aenter__(self) -> AsyncMayfly:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._caller.wire.close()

    async def submit(self, job: JobSpec | str, *, idempotency_key: str | None = None) -> Submitted:
        """Submits a job; text is a Python program. When this returns the job is on record, and will come to exactly one end.

        The same key with the same job stands for one job, for 24 hours; where none is given one is made, under which the
        submission is sent again where its answer was lost.
        """
        key = uuid.uuid4().hex if idempotency_key is None else idempotency_key
        if not 1 <= len(key) <= 255 or not all("!" <= character <= "~" for character in key):
            raise errors.UsageError("idempotency_key: it has 1 to 255 visible ASCII characters")
        call = replace(post("submit the job", "v1", "jobs"), headers=(("idempotency-key", key),), is_repeatable=True)
        return await self._caller.json(call.json(spec_of(job).to_wire()), Submitted.from_wire)

    async def submit_many(self, jobs: Sequence[JobSpec | str]) -> list[Submitted]:
        """Submits at most 1,000 jobs: all of them are accepted, in their order, or none.

        The API knows no idempotency key for this, so that it is not sent again once the server may have taken it; `submit_batch`
        is.
        """
        if not 1 <= len(jobs) <= MOST_JOBS:
            raise errors.UsageError(f"jobs: {len(jobs)} of them; one request has 1 to {MOST_JOBS}, submit_batch takes more")
        call = post("submit the jobs", "v1", "jobs", "bulk").json({"jobs": [spec_of(job).to_wire() for job in jobs]})
        return await self._caller.json(call, _submitted_many)

    async def get(self, job: str | HasId, *, output: bool = True) -> Job:
        """A job with all that is known of it, and what is kept of its output unless that is not asked for."""
        call = get("show the job", "v1", "jobs", _id(job)).with_query(output=None if output else "false")
        return await self._caller.json(call, Job.from_wire)

    async def wait(self, job: str | HasId, timeout: float | None = None) -> Job:
        """A job, once it is over.

        Raises WaitTimeout after so many seconds; without any the job's own limits are the bound. The job goes on.
        """
        call = get("wait for the job", "v1", "jobs", _id(job))
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LONGEST_SERVER_WAIT if deadline is None else max(deadline - time.monotonic(), 0.0)
            patience = None if deadline is None else min(left, self._caller.patience)
            waiting = call.waiting(min(left, LONGEST_SERVER_WAIT))
            found = await self._caller.json(waiting, Job.from_wire, patience)
            if found.is_over:
                return found
            if timeout is not None and deadline is not None and time.monotonic() >= deadline:
                raise errors.WaitTimeout(found, timeout)

    async def run(
        self,
        job: JobSpec | str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        check: bool = False,
    ) -> Job:
        """Submits a job and waits for its end; text is a Python program.

        A program that fails is no error, unless `check` asks for JobFailed. `timeout` is how long is waited, in seconds, waiting
        for its turn included; `limits.wall` bounds the run itself. Where the wait ends early, by WaitTimeout, an interrupt or
        asyncio's cancellation, the job is cancelled. Where the server stays away it is not, and `error.job_id` names it.
        """
        submitted = await self.submit(job, idempotency_key=idempotency_key)
        try:
            ended = await self.wait(submitted, timeout)
        except (errors.TransportError, errors.ApiError) as error:
            error.job_id = submitted.id
            raise
        except GeneratorExit:
            # The coroutine is thrown away: nothing can be waited for any more.
            raise
        except BaseException:
            await self._give_up(submitted)
            raise
        return ended.check() if check else ended

    async def _give_up(self, job: HasId) -> None:
        call = replace(post("cancel the job", "v1", "jobs", job.id, "cancel"), limit=GIVE_UP)
        try:
            await self._caller.json(call, _answer, patience=0.0)
        except errors.MayflyError:
            # What ended the wait is what is to be heard of; the job ends by its own limits.
            return

    async def cancel(self, job: str | HasId) -> CancelAnswer:
        """Asks for a job's end."""
        call = replace(post("cancel the job", "v1", "jobs", _id(job), "cancel"), is_repeatable=True)
        return await self._caller.json(call, _answer)

    async def stream(self, job: str | HasId) -> AsyncGenerator[Event, None]:
        """Everything that happens to a job as it happens, from its beginning to its `EndEvent`.

        A lost connection is opened again behind the newest event.
        """
        async with aclosing(follow(self._caller, _id(job))) as events:
            async for event in events:
                yield event

    async def read_output(
        self, job: str | HasId, stream: StreamName = "stdout", start: int = 0, end: int | None = None
    ) -> OutputPart:
        """What is kept of a stream of a job that is over, byte for byte: all of it, or from `start` to before `end`. A
        negative `start` counts from the end, without an `end`."""
        call = get("read the job's output", "v1", "jobs", _id(job), "output", stream)
        call = replace(call, accept="application/octet-stream, application/problem+json", headers=_range(start, end))
        answer = await self._caller.answer(call)
        try:
            return _part(answer.headers, answer.body)
        except (KeyError, ValueError) as error:
            words = "the headers of the answer can't be read; the server's version may be too far from this package's"
            raise errors.UnexpectedAnswer(call.doing, self.server, words) from error

    async def artifacts(self, job: str | HasId) -> Artifacts:
        """Which files were kept of a job. None are before its end."""
        return await self._caller.json(get("list the job's files", "v1", "jobs", _id(job), "artifacts"), Artifacts.from_wire)

    async def read_artifact(
        self, job: str | HasId, artifact: Artifact | str | int, start: int = 0, end: int | None = None
    ) -> bytes:
        """A file that was kept of a job, by its name or its place in the list: all of it, or from `start` to before `end`. A
        negative `start` counts from the end, without an `end`. `save_artifact` is for those that are large."""
        index = (await self._artifact(job, artifact)).index if isinstance(artifact, str) else _index(artifact)
        return await self._bytes_of(_id(job), index, start, end)

    async def save_artifact(self, job: str | HasId, artifact: Artifact | str | int, path: str | os.PathLike[str]) -> Artifact:
        """Writes a file that was kept of a job to `path`, which is there once all of it has come and is what the job's record
        says. The name that the program gave it is no part of that."""
        found = artifact if isinstance(artifact, Artifact) else await self._artifact(job, artifact)
        target = Path(path)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            digest = hashlib.sha256()
            with os.fdopen(descriptor, "wb") as file:
                for start in range(0, found.bytes, DOWNLOAD_PART):
                    end = min(start + DOWNLOAD_PART, found.bytes)
                    part = await self._bytes_of(_id(job), found.index, start, end)
                    digest.update(part)
                    file.write(part)
            if digest.hexdigest() != found.sha256:
                words = "what came is not what the job's record says"
                raise errors.UnexpectedAnswer("download the job's file", self.server, words)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink()
            raise
        return found

    async def upload(self, content: bytes | str | os.PathLike[str]) -> Upload:
        """Uploads a file for jobs, bytes or a file of this host, unless it is there; jobs name what this returns in their
        `uploads`. It is kept until nobody has used it for some time, and while a job that is not over has it. The file is sent
        once: where that fails, call it again."""
        with _opened(content) as file:
            sha256, length = hashlib.sha256(), 0
            while part := file.read(DOWNLOAD_PART):
                sha256.update(part)
                length += len(part)
            digest = f"sha256:{sha256.hexdigest()}"
            try:
                return await self._caller.json(get("look for the upload", "v1", "uploads", digest), Upload.from_wire)
            except errors.NotFound:
                pass
            file.seek(0)
            call = Call("upload the file", "PUT", ("v1", "uploads", digest), is_repeatable=False, waits=LONGEST_UPLOAD)
            # What has changed meanwhile has another digest, or another length, and is refused.
            return await self._caller.json(replace(call, stream=(FileStream(file, length), length)), Upload.from_wire)

    async def list_uploads(self, *, page: int = 100) -> AsyncGenerator[Upload, None]:
        """Uploads, in the order in which they were begun."""
        call = get("list uploads", "v1", "uploads").with_query(limit=page)
        async with aclosing(self._pages(call, _page("uploads", Upload.from_wire))) as uploads:
            async for upload in uploads:
                yield upload

    async def remove_upload(self, upload: Upload | str) -> None:
        """Removes an upload, by its digest. One that a job has which is not over stays, by Conflict."""
        digest = upload if isinstance(upload, str) else upload.digest
        await self._caller.answer(replace(post("remove the upload", "v1", "uploads", digest), method="DELETE"))

    async def _artifact(self, job: str | HasId, artifact: str | int) -> Artifact:
        files = (await self.artifacts(job)).files
        if isinstance(artifact, int):
            found = files[artifact] if 0 <= artifact < len(files) else None
        else:
            found = next((file for file in files if file.name == artifact.encode()), None)
        if found is None:
            raise errors.UsageError(f"job {_id(job)} has kept no file {artifact!r}; `artifacts` lists what it has")
        return found

    async def _bytes_of(self, job: str, index: int, start: int, end: int | None) -> bytes:
        call = get("download the job's file", "v1", "jobs", job, "artifacts", str(index))
        call = replace(call, accept="application/octet-stream, application/problem+json", headers=_range(start, end))
        return (await self._caller.answer(call)).body

    async def list_jobs(
        self,
        *,
        state: State | None = None,
        label: tuple[str, str] | None = None,
        batch: str | HasId | None = None,
        image: str | None = None,
        submitted_from: datetime | None = None,
        submitted_before: datetime | None = None,
        page: int = 100,
    ) -> AsyncGenerator[JobLine, None]:
        """Jobs, newest first: those that fit everything that is named. They are fetched in pages of so many, 1 to 1,000."""
        call = get("list jobs", "v1", "jobs").with_query(
            state=state,
            label=None if label is None else "=".join(label),
            batch=None if batch is None else _id(batch),
            image=image,
            submitted_from=_rfc3339("submitted_from", submitted_from),
            submitted_before=_rfc3339("submitted_before", submitted_before),
            limit=page,
        )
        async with aclosing(self._pages(call, _page("jobs", JobLine.from_wire))) as jobs:
            async for job in jobs:
                yield job

    async def create_batch(self, input: str = "") -> Batch:
        """Begins a batch, which then takes jobs until it is complete. `input` says what it is made from, for people."""
        call = post("begin a batch", "v1", "batches").json({"input": input})
        return await self._caller.json(call, Batch.from_wire)

    async def submit_items(self, batch: str | HasId, items: Mapping[str, JobSpec | str]) -> list[Submitted]:
        """Submits jobs of a batch, by the names of their items, in requests of at most 1,000.

        Those of one request are accepted all, or none. An item that the batch has already stays as it is, so that the same call
        may be made again and again.
        """
        path = ("v1", "batches", _id(batch), "jobs")
        call = replace(post("submit jobs of the batch", *path), is_repeatable=True)
        submitted: list[Submitted] = []
        for some in _requests(items):
            submitted += await self._caller.json(call.json({"items": some}), _submitted_many)
        return submitted

    async def complete_batch(self, batch: str | HasId, items: int) -> Batch:
        """Says that a batch has all of its jobs, which are so many."""
        path = ("v1", "batches", _id(batch), "complete")
        call = replace(post("complete the batch", *path), is_repeatable=True)
        return await self._caller.json(call.json({"items": items}), Batch.from_wire)

    async def submit_batch(self, items: Mapping[str, JobSpec | str], input: str = "") -> Batch:
        """Submits any number of jobs as a batch, by the names of their items.

        Where that fails in the middle, the batch is there, and not complete; `submit_items` with `error.batch_id` goes on.
        """
        batch = await self.create_batch(input)
        try:
            await self.submit_items(batch, items)
            return await self.complete_batch(batch, len(items))
        except errors.MayflyError as error:
            error.batch_id = batch.id
            raise

    async def get_batch(self, batch: str | HasId) -> Batch:
        """A batch as it stands."""
        return await self._caller.json(get("show the batch", "v1", "batches", _id(batch)), Batch.from_wire)

    async def wait_batch(self, batch: str | HasId, timeout: float | None = None) -> Batch:
        """A batch, once it is complete and all of its jobs are over. Raises BatchTimeout after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            found = await self.get_batch(batch)
            if found.is_over:
                return found
            left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
            if timeout is not None and left <= 0:
                raise errors.BatchTimeout(found, timeout)
            await self._caller.wire.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_LOOK)

    async def list_batches(self, *, page: int = 100) -> AsyncGenerator[Batch, None]:
        """Batches, newest first."""
        call = get("list batches", "v1", "batches").with_query(limit=page)
        async with aclosing(self._pages(call, _page("batches", Batch.from_wire))) as batches:
            async for batch in batches:
                yield batch

    async def list_batch_jobs(self, batch: str | HasId, *, page: int = 100) -> AsyncGenerator[BatchJob, None]:
        """Jobs of a batch, by their places."""
        call = get("list jobs of the batch", "v1", "batches", _id(batch), "jobs").with_query(limit=page)
        async with aclosing(self._pages(call, _page("jobs", BatchJob.from_wire))) as jobs:
            async for job in jobs:
                yield job

    async def _pages(self, call: Call, read: Callable[[Any], Page[T]]) -> AsyncGenerator[T, None]:
        cursor = None
        while True:
            page = await self._caller.json(call.with_query(cursor=cursor), read)
            for entry in page.entries:
                yield entry
            if page.next is None:
                return
            if page.next == cursor:
                raise errors.UnexpectedAnswer(call.doing, self.server, "a page of the list names itself as the next one")
            cursor = page.next


def _opened(content: bytes | str | os.PathLike[str]) -> BinaryIO:
    if isinstance(content, bytes):
        return io.BytesIO(content)
    try:
        return Path(content).open("rb")
    except OSError as error:
        raise errors.UsageError(f"{content} can't be read: {error.strerror}") from error


def _id(thing: str | HasId) -> str:
    text = thing if isinstance(thing, str) else thing.id
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise errors.UsageError(f"{text[:100]!r} is no id: expected one such as 019a2b3c-4d5e-7f60-8a1b-2c3d4e5f6071") from None


def _submitted_many(wire: Mapping[str, Any]) -> list[Submitted]:
    return [Submitted.from_wire(one) for one in wire["jobs"]]


def _answer(wire: Mapping[str, Any]) -> CancelAnswer:
    answer: CancelAnswer = wire["answer"]
    return answer


def _page(name: str, read: Callable[[Any], T]) -> Callable[[Any], Page[T]]:
    return lambda wire: Page([read(one) for one in wire[name]], wire.get("next"))


def _rfc3339(name: str, at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise errors.UsageError(f"{name}: {at} has no time zone; datetime.now(timezone.utc) has one")
    return None if at is None else at.isoformat()


def _requests(items: Mapping[str, JobSpec | str]) -> Iterator[list[dict[str, Any]]]:
    """Items, in lists that one request may have."""
    some: list[dict[str, Any]] = []
    size = 0
    for name, job in items.items():
        item = {"item": name, "job": spec_of(job).to_wire()}
        length = _length(item)
        if some and (len(some) == MOST_JOBS or size + length > MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(item)
        size += length
    if some:
        yield some


def _index(artifact: Artifact | int) -> int:
    return artifact.index if isinstance(artifact, Artifact) else artifact


def _length(item: Mapping[str, Any]) -> int:
    return len(json.dumps(item, ensure_ascii=False).encode())


def _range(start: int, end: int | None) -> tuple[tuple[str, str], ...]:
    """The header for a range of bytes (RFC 9110, section 14.1.2), which has no form for an empty one."""
    if end is not None and not 0 <= start < end:
        raise errors.UsageError(f"start={start}, end={end}: a range has at least one byte, and both count from the beginning")
    if start == 0 and end is None:
        return ()
    if start < 0:
        return (("range", f"bytes={start}"),)
    return (("range", f"bytes={start}-{'' if end is None else end - 1}"),)


def _part(headers: Mapping[str, str], body: bytes) -> OutputPart:
    offset, kept = 0, len(body)
    if "content-range" in headers:
        place, _, length = headers["content-range"].removeprefix("bytes ").partition("/")
        offset, kept = int(place.partition("-")[0]), int(length)
    cut = headers.get("mayfly-cut-at")
    return OutputPart(body, offset, kept, int(headers["mayfly-written-bytes"]), None if cut is None else int(cut))
