"""What is special about stdin and stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import Home, program, run, text
from mcp.client.client import Client

pytestmark = pytest.mark.anyio

BEGIN = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def start(home: Home, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [program(), "mcp"],
        env=home.environment(**settings),
        cwd=home.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call(number: int, source: str, token: str | None = None) -> dict[str, Any]:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    params = {"name": "run_python", "arguments": {"source": source}, **meta}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def send(process: subprocess.Popen[str], *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    message: dict[str, Any] = json.loads(process.stdout.readline())
    assert message["jsonrpc"] == "2.0"
    return message


def states(home: Home) -> dict[str, str]:
    listed = subprocess.run(
        [program(), "job", "list", "--json", "--limit", "1000"],
        env=home.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    jobs = [json.loads(line) for line in listed.stdout.splitlines()]
    return {job["job"]: job["state"] for job in jobs}


def test_stdout_is_the_protocol_and_nothing_else(home: Home) -> None:
    with start(home, MAYFLY_LOG__FILTER="trace") as process:
        send(process, *BEGIN, call(1, "print('\\n{not json')"))
        out, err = process.communicate(timeout=60)
    messages = [json.loads(line) for line in out.splitlines()]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert [message["id"] for message in messages][0] == 0
    assert "DEBUG" in err, "there were log lines, and they went elsewhere"
    assert "{not json" not in err, "a program is in no log line"
    assert process.returncode == 0


@pytest.mark.parametrize("how", ["stdin is closed", "SIGTERM"])
def test_what_runs_ends_with_the_client(home: Home, how: str) -> None:
    with start(home) as process:
        send(process, *BEGIN)
        assert read(process)["id"] == 0
        send(process, call(1, "import time\ntime.sleep(25)", "t"))
        notice = read(process)
        assert notice["method"] == "notifications/progress"
        job = notice["params"]["message"].split()[1].rstrip(",")
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert states(home)[job] == "canceled"


def test_who_does_not_speak_the_protocol_is_told(home: Home) -> None:
    with start(home) as process:
        out, err = process.communicate("hello?\n", timeout=30)
    assert out == "" or json.loads(out)["error"], out
    assert process.returncode in (0, 76), err


async def test_shell_scripts_are_run_only_where_that_is_allowed(home: Home) -> None:
    async with Client(home.stdio("--shell", MAYFLY_TOOLS__ANSWER_WITHIN="50s"), mode="auto") as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("run_shell", {"script": "```sh\necho $((6 * 7)); exit 4\n```"})
    assert "run_shell" in tools
    assert (result.structured_content["stdout"], result.structured_content["exit_code"]) == ("42\n", 4)


async def test_programs_run_at_the_server_that_the_settings_name(home: Home, server: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(server.key)
    settings = {"MAYFLY_CLIENT__SERVER": server.url, "MAYFLY_CLIENT__KEY_FILE": str(key)}
    # No engine is asked for here.
    settings["DOCKER_HOST"] = "unix:///nowhere"
    async with Client(home.stdio(**settings), mode="auto") as client:
        result = await run(client, "6 * 7")
    assert result.structured_content["stdout"] == "42\n"


@pytest.mark.skipif("MAYFLY_TEST_LONG" not in os.environ, reason="takes more than a minute; `make test-long` runs it")
async def test_a_job_of_more_than_a_minute_with_the_usual_settings(home: Home) -> None:
    async with Client(home.stdio(MAYFLY_TOOLS__ANSWER_WITHIN="50s"), mode="auto") as client:
        begun = anyio.current_time()
        source = "import time\ntime.sleep(61)\nprint('late')"
        result = await client.call_tool("run_python", {"source": source, "timeout_seconds": 90})
        assert 49 < anyio.current_time() - begun < 55
        assert not result.structured_content["finished"], text(result)
        result = await client.call_tool("wait", {"job": result.structured_content["job"]})
    assert result.structured_content["stdout"] == "late\n"
