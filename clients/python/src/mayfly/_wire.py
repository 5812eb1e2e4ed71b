"""The one place that knows two ways to wait: with the thread, or with asyncio.

Everything above is written once, as coroutines on a `Wire`. A `BlockingWire` waits inside of its methods, so that a
coroutine on it never suspends, and `run_now` has its result at the first step.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterator
from typing import Any, BinaryIO, Protocol, TypeVar

import httpx

from ._address import Address
from .errors import UsageError

T = TypeVar("T")

#: Longest wait for a connection, in seconds.
CONNECT = 10.0
#: Longest wait for others of the same client to give a connection back, in seconds.
TURN = 600.0


#: Bytes of a file that are read at once.
FILE_PART = 256 << 10


class FileStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """So many bytes of an open file as the body of a request, on either wire; once."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._left = length

    def _read(self) -> bytes:
        part = self._file.read(min(FILE_PART, self._left))
        self._left -= len(part)
        return part

    def __iter__(self) -> Iterator[bytes]:
        while part := self._read():
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await asyncio.to_thread(self._read):
            yield part


class Wire(Protocol):
    """How requests travel and time passes."""

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Sends a request. The answer's body is still to be read, and the answer to be closed."""

    async def next_bytes(self, response: httpx.Response) -> bytes:
        """The next bytes of a body; none at its end."""

    async def close_response(self, response: httpx.Response) -> None:
        """Gives the answer's connection back."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def close(self) -> None:
        """Closes all connections."""


class BlockingWire:
    """Waits with the thread."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    async def send(self, request: httpx.Request) -> httpx.Response:
        response = self._client.send(request, stream=True)
        response.extensions["mayfly_body"] = response.iter_bytes()
        return response

    async def next_bytes(self, response: httpx.Response) -> bytes:
        body: Iterator[bytes] = response.extensions["mayfly_body"]
        return next(body, b"")

    async def close_response(self, response: httpx.Response) -> None:
        response.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._client.close()


class AsyncioWire:
    """Waits with asyncio."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, request: httpx.Request) -> httpx.Response:
        response = await self._client.send(request, stream=True)
        response.extensions["mayfly_body"] = response.aiter_bytes()
        return response

    async def next_bytes(self, response: httpx.Response) -> bytes:
        body: AsyncIterator[bytes] = response.extensions["mayfly_body"]
        try:
            return await body.__anext__()
        except StopAsyncIteration:
            return b""

    async def close_response(self, response: httpx.Response) -> None:
        await response.aclose()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._client.aclose()


def blocking(address: Address, connections: int, transport: httpx.BaseTransport | None) -> BlockingWire:
    """A wire that waits with the thread."""
    return BlockingWire(httpx.Client(transport=transport, **_options(address, connections)))


def asyncio_wire(address: Address, connections: int, transport: httpx.AsyncBaseTransport | None) -> AsyncioWire:
    """A wire that waits with asyncio."""
    return AsyncioWire(httpx.AsyncClient(transport=transport, **_options(address, connections)))


def _options(address: Address, connections: int) -> dict[str, Any]:
    return {
        "verify": _trust(address),
        # A proxy would get the key in clear.
        "trust_env": not address.is_plain,
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # A key goes where it was meant to go, and nowhere else.
        "follow_redirects": False,
    }


def _trust(address: Address) -> ssl.SSLContext | bool:
    if address.is_plain:
        return False
    if address.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=address.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates of {address.ca_file} can't be read: it must hold PEM") from error


def run_now(awaitable: Awaitable[T]) -> T:
    """The result of a coroutine on a `BlockingWire`."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a coroutine on a blocking wire has suspended")


def iterate_now(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The same for what yields."""
    try:
        while True:
            try:
                item = run_now(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run_now(items.aclose())
