"""The tool of a model, on a real server."""

from __future__ import annotations

import asyncio
import inspect
import re

import pytest
from conftest import Server

import mayfly
from mayfly import JobSpec, Limits, PythonTool


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each case runs with the call that waits and with the one of asyncio."""
    return str(request.param)


def call(tool: PythonTool, kind: str, source: str) -> str:
    return tool.run_python(source) if kind == "sync" else asyncio.run(tool.arun_python(source))


def reach(server: Server) -> dict[str, str]:
    return {"server": server.url, "key": server.key}


def test_a_model_reads_how_a_program_ended_and_what_it_printed(server: Server, kind: str) -> None:
    told = call(PythonTool(client=reach(server)), kind, "import sys\nprint(6 * 7)\nprint('oh', file=sys.stderr)\nsys.exit(3)")
    mark = re.search(r"marks ([0-9a-f]{16}) is untrusted", told)
    assert mark, told
    word = mark[1]
    assert told.startswith("state: failed\nexit code: 3\nwhy: failed: its program ended with exit code 3\n")
    assert f"stdout:\n<{word}>\n42\n\n</{word}>\nstderr:\n<{word}>\noh\n" in told
    assert "truncated" not in told


def test_no_two_calls_have_the_same_mark(server: Server) -> None:
    tool = PythonTool(client=reach(server))
    first, second = (re.findall(r"<([0-9a-f]{16})>", tool.run_python("print(1)")) for _ in range(2))
    assert first and second and first != second


def test_long_output_keeps_its_ends_and_says_so(server: Server, kind: str) -> None:
    told = call(PythonTool(client=reach(server), characters=20), kind, "print('a' * 50 + 'm' * 50 + 'z' * 50)")
    assert "stdout, truncated, of 151 bytes:" in told
    assert f"{'a' * 10}\n[" in told and f"cut here]\n{'z' * 9}\n" in told and "stderr: empty" in told


def test_what_the_model_can_mend_is_told_and_the_rest_is_raised(server: Server, kind: str) -> None:
    tool = PythonTool(spec=JobSpec(limits=Limits(memory="1KiB")), client=reach(server))
    assert "limits.memory" in call(tool, kind, "pass")
    slow = PythonTool(timeout=0.5, client=reach(server))
    assert "has not ended within 0.5 s" in call(slow, kind, "while True: pass")
    with pytest.raises(mayfly.Unauthorized):
        call(PythonTool(client=reach(server) | {"key": "mayfly_wrong"}), kind, "pass")


def test_both_calls_and_the_schema_say_the_same() -> None:
    tool = PythonTool()
    assert inspect.getdoc(tool.run_python) == inspect.getdoc(tool.arun_python)
    assert inspect.signature(tool.run_python) == inspect.signature(tool.arun_python)
    assert tool.name == tool.run_python.__name__
    assert list(tool.parameters["properties"]) == list(inspect.signature(tool.run_python).parameters)
    described = tool.parameters["properties"]["source"]["description"]
    assert described in (tool.run_python.__doc__ or "") and "Args" not in tool.description


def test_a_tool_that_has_a_program_already_is_refused() -> None:
    with pytest.raises(mayfly.UsageError, match="leave source and command out"):
        PythonTool(spec=JobSpec(source="pass"))
    with pytest.raises(mayfly.UsageError, match="characters is 0"):
        PythonTool(characters=0)
