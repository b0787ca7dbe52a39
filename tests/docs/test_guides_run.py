"""Every example of the guides, of the cookbook and of the README runs, in order, and prints the output on the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import omnigraph
from omnigraph.cli.main import cli
from page_examples import (
    TRACEBACK,
    Block,
    blocks,
    is_shown,
    rewrite,
    run_example,
    run_page,
    tabs,
    without_trailing_spaces,
)

DOCS = Path(__file__).parents[2] / "docs"
SPARK = {"guide/spark.md", "guide/spark-frames.md"}
ELSEWHERE = {
    "reference/python.md",  # its examples are those of docstrings, which are tests of their own
    "guide/remote.md",  # its examples need a server: tests/docs/test_remote_page.py
}


def pages() -> list[Any]:
    """Each page with each of its tabs."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        name = page.relative_to(DOCS).as_posix()
        read = list(blocks(page.read_text(encoding="utf-8")))
        if not any(block.language in ("console", "pycon") for block in read):
            continue
        if name in ELSEWHERE:
            continue
        marks = [pytest.mark.spark, pytest.mark.slow] if name in SPARK else []
        found += [pytest.param(page, tab, marks=marks, id=f"{name}[{tab}]" if tab else name) for tab in tabs(read)]
    return found


PAGES = pages()


@pytest.mark.parametrize(("page", "tab"), PAGES)
def test_the_examples_of_a_page_run(
    page: Path, tab: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    for example in run_page(page, tab):
        assert example.is_shown, str(example)


def test_the_pages_with_examples_are_found() -> None:
    named = [str(parameters.id) for parameters in PAGES]
    assert len([name for name in named if name.startswith("guide/")]) > 25
    cookbook = [name for name in named if name.startswith("cookbook/")]
    assert len(cookbook) == 20
    assert all(name.endswith(("[CLI]", "[Python]")) for name in cookbook)


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Write the files of the README, run its commands in order, compare the outputs, and run its Python examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("## Two minutes")[2]
    shown = "".join(re.findall(r"^```sh\n(.*?)^```", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL))
    ran, outputs = set(), ""
    for file, body, command in re.findall(
        r"^cat > (\S+) <<'END'\n(.*?)^END$|^(omnigraph (?:[^\n]*\\\n)*[^\n]*)", shown, re.MULTILINE | re.DOTALL
    ):
        if file:
            Path(file).write_text(body, encoding="utf-8")
            continue
        program, *arguments = shlex.split(command.replace("\\\n", ""))
        result = CliRunner().invoke(cli, arguments, prog_name=program)
        assert result.exit_code == 0, f"{command}: {result.output}"
        ran.add(arguments[0])
        outputs += without_trailing_spaces(result.output)
    shown_outputs = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [part for block in shown_outputs for part in block.split("\n\n") if part not in outputs] == []
    assert len(shown_outputs) == 1
    assert ran >= {"init", "load", "check", "branch", "mutate", "blob", "commit", "tag", "export"}
    local, remote = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    capsys.readouterr()
    exec(local, {})
    for line in capsys.readouterr().out.splitlines():
        assert f"`{line}`" in text
    (serve,) = re.findall(r"^omnigraph (serve .*)$", text, re.MULTILINE)
    with served(serve.split()) as address:
        assert "http://127.0.0.1:8080" in remote
        exec(remote.replace("http://127.0.0.1:8080", address), {"omnigraph": omnigraph})
    assert capsys.readouterr().out == "[{'p.name': 'ada'}, {'p.name': 'grace'}]\n"


@contextmanager
def served(arguments: list[str]) -> Iterator[str]:
    """The address of a server that runs with these arguments, on a free port."""
    command = [sys.executable, "-m", "omnigraph", *arguments, "--bind", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        ready = next(line for line in server.stdout if line.startswith("OMNIGRAPH_LISTEN_ADDR="))
        yield f"http://{ready.strip().partition('=')[2]}"
    finally:
        server.terminate()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


TABBED = """
<!-- file: a.pg -->
```pg
node A { name: String @key }
```

=== "CLI"

    ```console
    $ omnigraph init a.omni \\
        --schema a.pg
    wrong
    ```

=== "Python"

    ```pycon
    >>> 1 + 1
    3
    >>> 2 + 2
    4
    ```

Text.

```pycon
>>> "both"
'both'
```
"""


def test_blocks_of_a_page_are_found_with_their_tabs_and_files() -> None:
    found = list(blocks(TABBED))
    assert found[0] == Block("pg", "a.pg", None, 3, "", "node A { name: String @key }\n")
    assert [(block.language, block.tab, block.indent) for block in found[1:]] == [
        ("console", "CLI", "    "),
        ("pycon", "Python", "    "),
        ("pycon", None, ""),
    ]
    assert tabs(found) == ["CLI", "Python"]
    assert tabs(found[:1]) == [None]


def test_outputs_that_differ_are_reported_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    page = tmp_path / "page.md"
    page.write_text(TABBED, encoding="utf-8")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    differing = [example for tab in ("CLI", "Python") for example in run_page(page, tab) if not example.is_shown]
    assert [(example.line, example.got) for example in differing] == [(10, "initialized …/a.omni\n"), (18, "2\n")]
    assert rewrite(page) == 2
    expected = TABBED.replace("wrong", "initialized …/a.omni").replace("    3\n", "    2\n")
    assert page.read_text(encoding="utf-8") == expected


@pytest.mark.parametrize(
    ("source", "want", "shown"),
    [
        ("print('a b')", "a b\n", True),
        ("1 + 1", "2\n", True),
        ("1 + 1", "3\n", False),
        ("x = 1", "", True),
        ("x", "", False),
        ("print('one two three')", "one ... three\n", True),
        ("print('one two three')", "one ... four\n", False),
        ("raise KeyError('x')", f"{TRACEBACK}\n  ...\nKeyError: 'x'\n", True),
        ("raise KeyError('x')", f"{TRACEBACK}\n  ...\nKeyError: 'y'\n", False),
        ("raise error", f"{TRACEBACK}\n    ...\nValueError: no\nhelp: say yes\n", True),
        ("raise error", f"{TRACEBACK}\n    ...\nValueError: no\n", False),
        ("1", f"{TRACEBACK}\n    ...\nValueError: no\n", False),
    ],
)
def test_the_output_on_a_page_is_compared_with_the_output_of_the_example(source: str, want: str, shown: bool) -> None:
    error = ValueError("no")
    error.add_note("help: say yes")
    assert is_shown(run_example(source, "<page>", {"error": error, "x": 1}), want) is shown
