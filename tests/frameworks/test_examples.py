"""Each example of examples/agents, run as it stands with its framework, a scripted model and a real sandbox.

MAYFLY_TEST_FRAMEWORKS names a folder with an environment for each example, by the example's name; scripts/test-frameworks
makes it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mayfly
import pytest

from model import NO_RESULT, NO_TOOL, NONCE, Model, model

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENTS = Path(os.environ["MAYFLY_TEST_FRAMEWORKS"])
EXAMPLES = sorted((REPOSITORY / "examples/agents").glob("*.py"))
# No framework tells anybody about a run.
SILENT = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
}

# Both clients' tests have a file `conftest.py`; the fixture is taken from theirs by its path.
_spec = importlib.util.spec_from_file_location("client_conftest", REPOSITORY / "clients/python/tests/conftest.py")
assert _spec and _spec.loader
_theirs = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _theirs
_spec.loader.exec_module(_theirs)
server = _theirs.server


@pytest.fixture
def scripted() -> Iterator[Model]:
    with model() as one:
        yield one


def ran(program: str, example: Path, server: object, scripted: Model) -> str:
    """What a program prints with the environment of an example. It must end well."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    ours = {"MAYFLY_CLIENT__SERVER": server.url, "MAYFLY_CLIENT__KEY": server.key}
    theirs = {"OPENAI_BASE_URL": scripted.url, "OPENAI_API_KEY": "none"}
    # Whatever goes elsewhere than to this host goes to a port where nothing listens.
    loopback = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
    done = subprocess.run(
        [ENVIRONMENTS / example.stem / "bin/python", "-c", program, "Which nonce does the sandbox print?"],
        env=kept | ours | theirs | SILENT | loopback,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{example.name} has ended with {done.returncode}: {done.stderr}"
    return done.stdout


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_answer_is_what_the_sandbox_printed(example: Path, server: object, scripted: Model) -> None:
    said = NONCE.search(ran(example.read_text(), example, server, scripted))
    assert said, "the answer has a nonce"
    with mayfly.Mayfly(server.url, server.key) as client:
        newest = client.get(next(client.list_jobs()))
    assert newest.stdout.text.strip() == said[0], "a job has printed it"


def test_without_the_tool_there_is_no_answer(example: Path, server: object, scripted: Model) -> None:
    without, count = re.subn(r"tools=\[[^\]]*\]|tools=tools", "tools=[]", example.read_text())
    assert count == 1, "the example gives its tools in one place"
    said = ran(without, example, server, scripted)
    assert NO_TOOL in said and not NONCE.search(said)


def test_without_the_tools_result_there_is_no_answer(example: Path, server: object, scripted: Model) -> None:
    emptied = "import mayfly\nmayfly.PythonTool._told = lambda *_: 'state: succeeded'\n" + example.read_text()
    said = ran(emptied, example, server, scripted)
    assert NO_RESULT in said and not NONCE.search(said)


def test_an_example_is_a_program_under_30_lines(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 30 and "mayfly.PythonTool" in text
