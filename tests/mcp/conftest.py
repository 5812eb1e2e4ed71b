"""The real thing at both ends: the official client of PyPI, and `mayfly` with the machine's engine, in a home of its own.

MAYFLY_TEST_PROGRAM names the binary; without it the one that `cargo build` makes is taken.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

REPOSITORY = Path(__file__).resolve().parents[2]
#: Exit code of `mayfly` where no engine answers (docs/outcomes.md).
NO_ENGINE = 69
#: How long a call may take here, so that what is longer needs no minute.
WITHIN = 3

#: Each revision of the protocol: the handshake of before, and what came after it.
MODES = ["legacy", "auto"]


def skip(why: str) -> None:
    """Says that a case can't run here, and why; `make test` counts these."""
    log = os.environ.get("MAYFLY_SKIP_LOG")
    if log:
        with Path(log).open("a") as lines:
            lines.write(f"MCP: {why}\n")
    pytest.skip(why)


def program() -> Path:
    named = os.environ.get("MAYFLY_TEST_PROGRAM")
    binary = Path(named) if named else REPOSITORY / "target/debug/mayfly"
    if not binary.exists():
        skip(f"{binary} is not there: 'cargo build -p mayfly-cli' makes it, MAYFLY_TEST_PROGRAM names another")
    return binary


@dataclass(frozen=True)
class Home:
    """A home with an image in its catalog."""

    folder: Path

    def environment(self, **settings: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAYFLY_", "XDG_"))}
        return kept | {
            "HOME": str(self.folder),
            "MAYFLY_IMAGE__RECIPES": str(REPOSITORY / "deploy/images"),
            "MAYFLY_TOOLS__ANSWER_WITHIN": f"{WITHIN}s",
            **settings,
        }

    def stdio(self, *args: str, **settings: str) -> StdioServerParameters:
        return StdioServerParameters(
            command=str(program()), args=["mcp", *args], env=self.environment(**settings), cwd=self.folder
        )


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    ensured = subprocess.run(
        [program(), "image", "ensure", "python"], env=home.environment(), capture_output=True, text=True, check=False
    )
    if ensured.returncode == NO_ENGINE and "MAYFLY_TEST_ENGINE" not in os.environ:
        skip(f"no container engine answers: {ensured.stderr}")
    assert ensured.returncode == 0, ensured.stderr
    return home


@dataclass(frozen=True)
class Server:
    """Where it is, and a key of its admin."""

    url: str
    key: str = field(repr=False)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx2.post(f"{self.url}{path}", json=body, headers=bearer(self.key))
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def key_of(self, tenant: str, role: str) -> str:
        made = self.post("/v1/keys", {"tenant": tenant, "role": role, "name": role})
        secret: str = made["secret"]
        return secret


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def serve(home: Home, **settings: str) -> Iterator[Server]:
    environment = home.environment(MAYFLY_SERVER__LISTEN="127.0.0.1:0", **settings)
    log = home.folder / "dev.log"
    with log.open("w+") as said:
        process = subprocess.Popen(
            [program(), "dev", "--new-key"], env=environment, cwd=home.folder, stdout=subprocess.PIPE, stderr=said, text=True
        )
        try:
            assert process.stdout is not None
            found = [process.stdout.readline().strip() for _ in range(2)]
            assert all(found), f"mayfly dev has ended: {log.read_text()}"
            yield Server(url=found[0].removeprefix("mayfly dev serves "), key=found[1].rpartition(": ")[2])
            assert process.poll() is None, "the server runs until here"
        finally:
            process.terminate()
            process.communicate(timeout=90)


@pytest.fixture(scope="session")
def server(home: Home) -> Iterator[Server]:
    yield from serve(home, MAYFLY_MCP__ALLOWED_ORIGINS="https://app.example:443")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


Connect = Callable[..., AbstractAsyncContextManager[Client]]


def over_http(url: str, key: str, mode: str) -> AbstractAsyncContextManager[Client]:
    client = httpx2.AsyncClient(headers=bearer(key), timeout=60)
    return Client(streamable_http_client(f"{url}/mcp", http_client=client), mode=mode)


@pytest.fixture(params=[(transport, mode) for transport in ("stdio", "http") for mode in MODES], ids="-".join)
def connect(request: pytest.FixtureRequest, home: Home) -> Connect:
    """Makes clients over the one transport and the other, by each revision: each case runs on all."""
    transport, mode = request.param
    if transport == "stdio":
        return lambda: Client(home.stdio(), mode=mode)
    server: Server = request.getfixturevalue("server")
    return lambda: over_http(server.url, server.key, mode)


def text(result: Any) -> str:
    """What a model reads."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def ended(client: Client, job: str) -> Any:
    """The result of a job, however many calls it takes."""
    with anyio.fail_after(60):
        while True:
            result = await client.call_tool("wait", {"job": job})
            if result.structured_content["finished"]:
                return result


async def run(client: Client, source: str, **more: Any) -> Any:
    """The result of a program, however busy the host is."""
    result = await client.call_tool("run_python", {"source": source, **more})
    found = result.structured_content
    return result if found is None or found["finished"] else await ended(client, found["job"])


def written(told: str) -> list[str]:
    """What a program wrote, by the marks around it."""
    return [part for _, part in re.findall(r"<(untrusted-\w+)>\n(.*?)</\1>", told, re.DOTALL)]


def lines(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines()]
