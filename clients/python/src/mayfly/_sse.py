"""Reads `text/event-stream` (WHATWG HTML, section 9.2.6), whatever the borders of what arrives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Most bytes of one event.
MAX_EVENT = 8 << 20
#: Longest id that is kept.
MAX_ID = 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class RawEvent:
    """An event of a stream."""

    name: str
    #: Its lines, joined by line feeds.
    data: str
    #: The newest id so far.
    id: str | None


class Parser:
    """Reads events from bytes as they arrive."""

    def __init__(self) -> None:
        #: What has come of a line whose end has not.
        self._rest = bytearray()
        self._has_begun = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        self._id: str | None = None

    def feed(self, arrived: bytes) -> Iterator[RawEvent]:
        """The events that the next bytes complete. Raises ValueError for an event that is too large, or no text."""
        self._rest += arrived
        for line in self._lines():
            event = self._line(line.decode())
            if event is not None:
                yield event
        if self._size + len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event is larger than {MAX_EVENT} bytes")

    def _lines(self) -> Iterator[bytes]:
        begin = 0
        try:
            while end := _LINE_END.search(self._rest, begin):
                # A carriage return at the very end: a line feed that belongs to it may follow.
                if end.end() == len(self._rest) and end.group() == b"\r":
                    return
                line = bytes(self._rest[begin : end.start()])
                begin = end.end()
                yield line
        finally:
            del self._rest[:begin]

    def _line(self, line: str) -> RawEvent | None:
        if not self._has_begun:
            # A byte order mark may stand at the very beginning.
            line, self._has_begun = line.removeprefix("\ufeff"), True
        if not line:
            return self._event()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
            self._size += len(value) + 1
        elif field == "id" and len(value) <= MAX_ID and "\0" not in value:
            self._id = value
        # Anything else is a comment, whose field is empty, or a field that nobody knows.
        return None

    def _event(self) -> RawEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._size = "", [], 0
        # Without data there is no event.
        return RawEvent(name, "\n".join(data), self._id) if data else None
