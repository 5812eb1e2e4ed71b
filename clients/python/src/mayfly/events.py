"""A job's stream, followed until the job's end across lost connections.

A connection that is lost is opened again behind the newest event (`Last-Event-ID`). Where bytes come twice all the same
they are dropped by their offsets, so that a reader never sees output twice; where bytes are missing that is a gap.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import httpx

from . import errors
from ._call import Call, Caller, get, wait_before_repetition
from ._sse import Parser, RawEvent
from .job import State, StreamName, content

DOING = "follow the job"
#: Longest silence on a connection until it is taken for lost, in seconds. The server says something every 15 s.
SILENCE = 60.0


@dataclass(frozen=True)
class StateEvent:
    """The job stands somewhere else."""

    state: State
    #: Attempts so far.
    attempts: int


@dataclass(frozen=True)
class OutputEvent:
    """The job has written something."""

    #: The attempt that wrote it. Output of another attempt begins anew.
    attempt: str
    stream: StreamName
    #: Where it begins, in bytes from the stream's beginning.
    offset: int
    content: bytes

    @property
    def text(self) -> str:
        """The same as text; what is no UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")


@dataclass(frozen=True)
class GapEvent:
    """Output that is passed over: it was lost on its way, or is not kept. What is kept `read_output` has after the end."""

    attempt: str
    stream: StreamName
    #: The first byte that is missing, and the first behind them.
    begin: int
    end: int


@dataclass(frozen=True)
class EndEvent:
    """The job is over. Nothing follows."""

    state: State
    #: Why.
    cause: str
    exit_code: int | None
    signal: int | None


Event: TypeAlias = StateEvent | OutputEvent | GapEvent | EndEvent


class Seen:
    """How much of the newest attempt's output was handed out."""

    def __init__(self) -> None:
        self._attempt = ""
        self._ends: dict[StreamName, int] = {}

    def _is_current(self, attempt: str) -> bool:
        # Their ids sort by their creation.
        if attempt > self._attempt:
            self._attempt, self._ends = attempt, {}
        return attempt == self._attempt

    def output(self, event: OutputEvent) -> Iterator[Event]:
        """What of some output is new, and what is missing before it."""
        if not self._is_current(event.attempt):
            return
        seen, end = self._ends.get(event.stream, 0), event.offset + len(event.content)
        if end <= seen:
            return
        self._ends[event.stream] = end
        if event.offset > seen:
            yield GapEvent(event.attempt, event.stream, seen, event.offset)
        begin = max(seen, event.offset)
        yield replace(event, offset=begin, content=event.content[begin - event.offset :])

    def gap(self, event: GapEvent) -> Iterator[Event]:
        """What of a gap is new."""
        if not self._is_current(event.attempt):
            return
        seen = self._ends.get(event.stream, 0)
        self._ends[event.stream] = max(event.end, seen)
        if max(event.begin, seen) < event.end:
            yield replace(event, begin=max(event.begin, seen))


async def follow(caller: Caller, job: str) -> AsyncGenerator[Event, None]:
    """Everything that happens to a job, until its end.

    Raises what a request raises, once the server was away for longer than the client has patience.
    """
    call = replace(get(DOING, "v1", "jobs", job, "events"), accept="text/event-stream")
    seen, last = Seen(), None
    failures, failing_since = 0, None
    while True:
        response = None
        try:
            response = await caller.open(_behind(call, last), SILENCE)
            parser = Parser()
            while True:
                arrived = await _arrived(caller, response)
                failures, failing_since = 0, None
                for raw in _fed(caller, parser, arrived):
                    last = _id(raw)
                    for event in _read(caller, raw, seen):
                        yield event
                        if isinstance(event, EndEvent):
                            return
        except (errors.TransportError, errors.ApiError) as error:
            failing_since = time.monotonic() if failing_since is None else failing_since
            left = failing_since + caller.patience - time.monotonic()
            wait = wait_before_repetition(error, True, failures, left)
            if wait is None:
                raise
            failures += 1
        finally:
            if response is not None:
                await caller.wire.close_response(response)
        await caller.wire.sleep(wait)


def _behind(call: Call, last: str | None) -> Call:
    return call if last is None else replace(call, headers=(("last-event-id", last),))


async def _arrived(caller: Caller, response: httpx.Response) -> bytes:
    arrived = await caller.next_bytes(DOING, response, SILENCE)
    if not arrived:
        # An end without the job's end: the server stops, or a proxy has had enough.
        raise errors.ConnectionLost(DOING, caller.server, "the stream ended before the job")
    return arrived


def _fed(caller: Caller, parser: Parser, arrived: bytes) -> Iterator[RawEvent]:
    try:
        yield from parser.feed(arrived)
    except ValueError as error:
        raise errors.UnexpectedAnswer(DOING, caller.server, "what the server sends is no stream of events") from error


def _id(raw: RawEvent) -> str | None:
    return raw.id if raw.id and all("!" <= character <= "~" for character in raw.id) else None


def _read(caller: Caller, raw: RawEvent, seen: Seen) -> Iterator[Event]:
    if raw.name == "state":
        yield caller.parse(DOING, raw.data, lambda wire: StateEvent(wire["state"], wire["attempts"]))
    elif raw.name == "output":
        yield from seen.output(caller.parse(DOING, raw.data, _output))
    elif raw.name == "gap":
        yield from seen.gap(caller.parse(DOING, raw.data, _gap))
    elif raw.name == "end":
        yield caller.parse(DOING, raw.data, _end)
    # Anything else is of a server that is newer than this.


def _output(wire: Mapping[str, Any]) -> OutputEvent:
    return OutputEvent(wire["attempt"], wire["stream"], wire["offset"], content(wire["content"]))


def _gap(wire: Mapping[str, Any]) -> GapEvent:
    return GapEvent(wire["attempt"], wire["stream"], wire["from"], wire["to"])


def _end(wire: Mapping[str, Any]) -> EndEvent:
    return EndEvent(wire["state"], wire["cause"], wire.get("exit_code"), wire.get("signal"))
