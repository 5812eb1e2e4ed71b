"""One request: its bounds, and when it is sent again."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from . import errors
from ._address import Address
from ._wire import CONNECT, TURN, FileStream, Wire

T = TypeVar("T")

_log = logging.getLogger("mayfly")

#: Most bytes of a request's body (docs/api.md, "Bounds").
MAX_BODY = 24 << 20
#: From how many bytes on a server may close a connection before it has read a body, so that its answer is lost with it.
LARGE_BODY = 64 << 10
#: Most bytes of one answer.
MAX_ANSWER = 256 << 20
#: Most bytes of a problem.
MAX_PROBLEM = 256 << 10
#: Longest time to come back after that a server is believed, in seconds.
LONGEST_RETRY_AFTER = 24 * 3600.0
#: Wait before the first repetition, and the longest that nobody has asked for, in seconds.
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


@dataclass(frozen=True)
class Call:
    """A request."""

    #: What it does, after "could not".
    doing: str
    method: str
    #: Parts of the path below the server's own.
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    #: JSON. It may hold a job's secrets, so that nothing shows it.
    body: bytes | None = field(default=None, repr=False)
    #: A body that is made while it is sent, in place of JSON, and how long it is. It is there once.
    stream: tuple[FileStream, int] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    #: The media type of the answer, problems aside.
    accept: str = "application/json"
    #: Whether it may be sent again without knowing what became of it: it changes nothing, or the second time is as the
    #: first. Otherwise it is sent again only where it has certainly not been done.
    is_repeatable: bool = True
    #: How long the server is asked to wait before it answers, in seconds.
    waits: float = 0.0
    #: Longest time for it, in seconds; the client's where there is none.
    limit: float | None = None

    def json(self, body: object) -> Call:
        """The same with a body."""
        return replace(self, body=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())

    def with_query(self, **values: object) -> Call:
        """The same with those of the parameters that have a value."""
        given = tuple((name, str(value)) for name, value in values.items() if value is not None)
        return replace(self, query=self.query + given)

    def waiting(self, seconds: float) -> Call:
        """The same, for which the server is asked to wait."""
        return replace(self, waits=seconds).with_query(wait=f"{int(seconds * 1000)}ms")


def _length(call: Call) -> int:
    return call.stream[1] if call.stream is not None else len(call.body or b"")


def get(doing: str, *path: str) -> Call:
    """A request that reads."""
    return Call(doing, "GET", path)


def post(doing: str, *path: str) -> Call:
    """A request that changes something, and must not do so twice."""
    return Call(doing, "POST", path, is_repeatable=False)


@dataclass(frozen=True)
class Answer:
    """An answer of success."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Caller:
    """Sends requests to one server."""

    def __init__(self, wire: Wire, address: Address, user_agent: str, timeout: float, patience: float) -> None:
        self.wire = wire
        self.server = address.server
        #: How long a request is sent again and again while the server is away or has too much to do, in seconds.
        self.patience = patience
        self._key = address.key
        self._timeout = timeout
        self._user_agent = user_agent

    async def json(self, call: Call, read: Callable[[Any], T], patience: float | None = None) -> T:
        """What an answer's JSON comes to."""
        answer = await self.answer(call, patience)
        return self.parse(call.doing, answer.body, read)

    def parse(self, doing: str, text: bytes | str, read: Callable[[Any], T]) -> T:
        """What some JSON of the server comes to."""
        try:
            return read(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.UnexpectedAnswer(
                doing, self.server, "the answer can't be read; the server's version may be too far from this package's"
            ) from error

    async def answer(self, call: Call, patience: float | None = None) -> Answer:
        """The answer to a request, which is sent again while that is safe and there is patience for it."""
        if call.body is not None and len(call.body) > MAX_BODY:
            # The server's no would come while the body is still being sent, and be lost with the connection.
            raise errors.UsageError(f"could not {call.doing}: {len(call.body)} bytes of JSON; a request has at most {MAX_BODY}")
        give_up_at = time.monotonic() + (self.patience if patience is None else patience)
        repetitions = 0
        while True:
            try:
                return await self._once(call)
            except (errors.TransportError, errors.ApiError) as error:
                left = give_up_at - time.monotonic()
                wait = wait_before_repetition(error, call.is_repeatable, repetitions, left)
                if wait is None:
                    raise
                if repetitions == 0:
                    _log.warning("%s; trying again for up to %.0f s", error, left)
            await self.wire.sleep(wait)
            repetitions += 1

    async def _once(self, call: Call) -> Answer:
        limit = (self._timeout if call.limit is None else call.limit) + call.waits
        deadline = time.monotonic() + limit
        response = await self.open(call, limit)
        try:
            body = await self._body(call.doing, response, MAX_ANSWER, deadline, limit)
        finally:
            await self.wire.close_response(response)
        return Answer(response.status_code, response.headers, body)

    async def open(self, call: Call, silence: float) -> httpx.Response:
        """Sends a request once. The answer is one of success, its body still to be read and the answer to be closed.

        `silence` is how long nothing may come, in seconds.
        """
        request = httpx.Request(
            call.method,
            self._url(call),
            headers=[
                ("authorization", self._key.header()),
                ("accept", call.accept),
                # A compressed answer would have a size that its bound does not see.
                ("accept-encoding", "identity"),
                ("user-agent", self._user_agent),
                *([("content-type", "application/json")] if call.body is not None else []),
                *([("content-length", str(call.stream[1]))] if call.stream is not None else []),
                *call.headers,
            ],
            content=call.body,
            extensions={"timeout": {"connect": CONNECT, "read": silence, "write": silence, "pool": TURN}},
        )
        if call.stream is not None:
            # Given at once, httpx would write no headers of its own.
            request.stream = call.stream[0]
        try:
            response = await self.wire.send(request)
        except httpx.HTTPError as error:
            # Not as its cause: frames of its traceback hold the key, and some tools show what frames hold.
            raise self._unanswered(call.doing, error, silence, _length(call)) from None
        if response.is_success:
            return response
        try:
            raise await self._refused(call.doing, response)
        finally:
            await self.wire.close_response(response)

    async def next_bytes(self, doing: str, response: httpx.Response, silence: float) -> bytes:
        """The next bytes of a body; none at its end."""
        try:
            return await self.wire.next_bytes(response)
        except httpx.HTTPError as error:
            raise self._unanswered(doing, error, silence) from None

    def _url(self, call: Call) -> httpx.URL:
        path = "/".join(quote(part, safe="") for part in call.path)
        return httpx.URL(f"{self.server}/{path}", params=call.query or None)

    async def _body(self, doing: str, response: httpx.Response, most: int, deadline: float, limit: float) -> bytes:
        parts, length = [], 0
        while part := await self.next_bytes(doing, response, limit):
            parts.append(part)
            length += len(part)
            if length > most:
                raise errors.AnswerTooLarge(doing, self.server, f"the answer is larger than {most} bytes")
            if time.monotonic() > deadline:
                raise self._silent(doing, limit)
        return b"".join(parts)

    def _silent(self, doing: str, seconds: float) -> errors.NoAnswer:
        return errors.NoAnswer(doing, self.server, f"{self.server} has not answered within {seconds:g} s")

    def _unanswered(self, doing: str, error: httpx.HTTPError, silence: float, sent_bytes: int = 0) -> errors.TransportError:
        """What is said of an error of httpx, of a request with a body of so many bytes."""
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)):
            words = (
                f"no connection to {self.server} ({error or type(error).__name__}); is the server's address right "
                "(server=, MAYFLY_CLIENT__SERVER), and does it run?"
            )
            return errors.Unreachable(doing, self.server, words)
        if isinstance(error, httpx.TimeoutException):
            return self._silent(doing, silence)
        if isinstance(error, httpx.TransportError):
            words = f"the connection to {self.server} was lost before the end of the answer ({type(error).__name__})"
            if sent_bytes > LARGE_BODY:
                words += (
                    "; it may have refused the request before it had read all of it, as it does for a key that it does not know"
                )
            return errors.ConnectionLost(doing, self.server, words)
        return errors.UnexpectedAnswer(doing, self.server, f"the answer of {self.server} can't be read")

    async def _refused(self, doing: str, response: httpx.Response) -> errors.MayflyError:
        """What an answer says that is not one of success."""
        status = response.status_code
        document: Mapping[str, Any] | None = None
        if response.headers.get("content-type", "").startswith("application/problem+json"):
            deadline = time.monotonic() + self._timeout
            body = await self._body(doing, response, MAX_PROBLEM, deadline, self._timeout)
            document = self.parse(doing, body, dict)
        if document is None and status not in (408, 429) and status < 500:
            return errors.UnexpectedAnswer(
                doing,
                self.server,
                f"what answers at {self.server} is not mayfly's API (status {status}); is the server's address right?",
            )
        return errors.refusal(doing, _problem(status, document, response.headers.get("retry-after")))


def _problem(status: int, document: Mapping[str, Any] | None, retry_after: str | None) -> errors.Problem:
    # Proxies may name a date; it is as good as no time at all.
    seconds = min(float(retry_after), LONGEST_RETRY_AFTER) if retry_after and retry_after.isdecimal() else None
    if document is None:
        title = f"the answer has the status {status}, and comes from something before the server"
        return errors.Problem(status=status, code="", title=title, retry_after=seconds)
    return errors.Problem(
        status=status,
        code=str(document.get("code", "")),
        title=str(document.get("title", "")),
        detail=document.get("detail"),
        faults=tuple(
            errors.Fault(str(fault.get("path", "")), str(fault.get("code", "")), str(fault.get("message", "")))
            for fault in document.get("faults", ())
        ),
        request_id=document.get("request_id"),
        retry_after=seconds,
    )


def wait_before_repetition(error: errors.MayflyError, is_repeatable: bool, repetitions: int, left: float) -> float | None:
    """How long to wait before a request is sent again, in seconds, where it may be and there is time for that.

    So many repetitions have been made, and this much is left of the caller's patience.
    """
    if not _may_repeat(error, is_repeatable):
        return None
    usual = _backoff(repetitions)
    asked = error.retry_after if isinstance(error, errors.ApiError) else None
    # Nobody comes back before the time that the server has named, and not all at that very moment.
    wait = usual if asked is None else asked + usual / 4
    return wait if wait <= left else None


def _may_repeat(error: errors.MayflyError, is_repeatable: bool) -> bool:
    if isinstance(error, errors.Unreachable):
        return True
    if isinstance(error, (errors.NoAnswer, errors.ConnectionLost)):
        return is_repeatable
    if not isinstance(error, errors.ApiError):
        return False
    # Refused at the door.
    if error.status == 429 or error.code == "overloaded":
        return True
    # A proxy's words for a server that is not there, or has not answered in time, and the server's own.
    return is_repeatable and error.status in (408, 502, 503, 504)


def _backoff(repetitions: int) -> float:
    """Doubles from `FIRST_WAIT` to `LONGEST_WAIT`; of that a random part between a half and all, so that those who were
    cut off together do not come back together."""
    whole = min(FIRST_WAIT * 2.0 ** min(repetitions, 16), LONGEST_WAIT)
    return whole / 2 + random.random() * whole / 2
