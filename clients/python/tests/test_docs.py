"""The examples of the documentation, run on a real server as they stand there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import REPOSITORY, Server

PAGES = ("docs/python.md", "clients/python/README.md")
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def examples() -> Sequence[object]:
    found = []
    for page in PAGES:
        text = (REPOSITORY / page).read_text()
        for example in EXAMPLE.finditer(text):
            line = text.count("\n", 0, example.start()) + 1
            found.append(pytest.param(example["code"], example["printed"], id=f"{page}:{line}"))
    return found


@pytest.mark.parametrize(("code", "printed"), examples())
def test_each_example_runs_and_prints_what_it_says(
    code: str,
    printed: str | None,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MAYFLY_CLIENT__SERVER", server.url)
    monkeypatch.setenv("MAYFLY_CLIENT__KEY", server.key)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a,1\nb,2\n")
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    assert said, "an example shows something"
    assert printed is None or said == printed
