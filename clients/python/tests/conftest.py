"""A real server: `mayfly dev` with the machine's engine, in a home of its own. Where it can't be had that is said.

MAYFLY_TEST_PROGRAM names the binary; without it the one that `cargo build` makes is taken.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import mayfly

REPOSITORY = Path(__file__).resolve().parents[3]
#: Exit code of `mayfly` where no engine answers (docs/outcomes.md).
NO_ENGINE = 69


@dataclass(frozen=True)
class Server:
    """Where it is, and a key of its admin."""

    url: str
    key: str = field(repr=False)


class Awaited:
    """An `AsyncMayfly` whose methods are called as those of `Mayfly`, on an event loop of its own."""

    def __init__(self, **options: Any) -> None:
        self._client = mayfly.AsyncMayfly(**options)
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            return self._each(result) if inspect.isasyncgen(result) else self._loop.run_until_complete(result)

        return call

    def _each(self, items: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._loop.run_until_complete(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._loop.run_until_complete(items.aclose())

    def __repr__(self) -> str:
        return repr(self._client)

    def end(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


Connect = Callable[..., mayfly.Mayfly]


def skip(why: str) -> None:
    """Says that a case can't run here, and why; `make test` counts these."""
    log = os.environ.get("MAYFLY_SKIP_LOG")
    if log:
        with Path(log).open("a") as lines:
            lines.write(f"python client: {why}\n")
    pytest.skip(why)


def program() -> Path:
    named = os.environ.get("MAYFLY_TEST_PROGRAM")
    return Path(named) if named else REPOSITORY / "target/debug/mayfly"


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MAYFLY_CLIENT__"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    binary = program()
    if not binary.exists():
        skip(f"{binary} is not there: 'cargo build -p mayfly-cli' makes it, MAYFLY_TEST_PROGRAM names another")
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAYFLY_", "XDG_"))}
    environment = kept | {
        "HOME": str(home),
        "MAYFLY_IMAGE__RECIPES": str(REPOSITORY / "deploy/images"),
        "MAYFLY_SERVER__LISTEN": "127.0.0.1:0",
    }
    with (home / "dev.log").open("w+") as log:
        process = subprocess.Popen([binary, "dev"], cwd=home, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield _greeting(process, home / "dev.log")
            assert process.poll() is None, "the server runs until here"
        finally:
            process.terminate()
            process.communicate(timeout=90)


def _greeting(process: subprocess.Popen[str], log: Path) -> Server:
    assert process.stdout is not None
    found = [process.stdout.readline().strip() for _ in range(2)]
    if not all(found):
        code, said = process.wait(timeout=30), log.read_text().strip()
        if code == NO_ENGINE and "MAYFLY_TEST_ENGINE" not in os.environ:
            skip(f"no container engine answers: {said}")
        pytest.fail(f"mayfly dev has ended with {code}: {said}")
    return Server(url=found[0].removeprefix("mayfly dev serves "), key=found[1].rpartition(": ")[2])


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of the one kind and of the other: each case runs on both."""
    made: list[Any] = []

    def one(**options: Any) -> mayfly.Mayfly:
        client = mayfly.Mayfly(**options) if request.param == "sync" else Awaited(**options)
        made.append(client)
        return cast(mayfly.Mayfly, client)

    yield one
    for client in made:
        client.close() if isinstance(client, mayfly.Mayfly) else client.end()


@pytest.fixture
def client(connect: Connect, server: Server) -> mayfly.Mayfly:
    """A client of the server."""
    return connect(server=server.url, key=server.key)
