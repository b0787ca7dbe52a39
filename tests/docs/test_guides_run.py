"""Every example of the guides runs, in order, and prints the output on the page."""

from __future__ import annotations

import doctest
import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from click.testing import CliRunner

from omnigraph.cli.main import cli

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [
    "guide/graphs.md",
    "guide/history.md",
    "guide/queries.md",
    "guide/results.md",
    "guide/durability.md",
    "guide/loading.md",
    "guide/mapping.md",
    "guide/export.md",
    "guide/blobs.md",
    "guide/mutations.md",
    "guide/embeddings.md",
    "guide/search.md",
    "guide/transactions.md",
    "guide/merging.md",
    "guide/migrations.md",
    "guide/diff.md",
    "guide/following-changes.md",
    "guide/undo.md",
    "guide/analytics.md",
    "guide/upkeep.md",
    "guide/pipelines.md",
    "guide/cluster.md",
    pytest.param("guide/spark.md", marks=[pytest.mark.spark, pytest.mark.slow]),
    pytest.param("guide/spark-frames.md", marks=[pytest.mark.spark, pytest.mark.slow]),
]

BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIES = [
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"(?<=\"created_at\": )\d{16}"), "MICROS"),
    (re.compile(r"(?<=-)[0-9a-hjkmnp-tv-z]{26}\b"), "…"),
    (re.compile(r"(?<=etag: \")[0-9a-f]{32}"), "…"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{8,25}(?=  \d{4}-\d\d-\d\d )"), "SHORT"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d)? (?:B|KiB|MiB)\b"), "SIZE"),
]


def comparable(text: str, here: Path) -> str:
    """Replace ids, times and directories, which differ between runs."""
    text = text.replace(str(here), "…")
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text.strip()


def run_console(text: str, here: Path) -> None:
    """Run the lines with `$`, and compare their output with the lines that follow."""
    for session in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = session.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "omnigraph"
        result = CliRunner().invoke(cli, arguments, prog_name=program)
        assert comparable(result.output, here) == comparable(expected, here), command


def run_python(text: str, page: str, line: int, names: dict[str, object]) -> None:
    """Run the examples of a block, and compare the output or exception of each with the page.

    `doctest` finds the examples. It does not compare them: versions of Python print exceptions with notes differently.
    """
    for example in doctest.DocTestParser().get_examples(text):
        got = run_example(example.source, f"<{page}>", names)
        place = f"{page}:{line + example.lineno + 1}: {example.source}"
        assert is_shown(got, example.want), f"{place}expected:\n{example.want}\ngot:\n{got}"


def run_example(source: str, name: str, names: dict[str, object]) -> str:
    """The output of one example in an interactive session; for an exception, its name, text and notes."""
    printed = io.StringIO()
    code = compile(source, name, "single", dont_inherit=True, flags=0)
    with redirect_stdout(printed):
        try:
            exec(code, names)
        except Exception as error:
            kind = type(error)
            prefix = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
            said = f"{prefix}{kind.__qualname__}: {error}" if str(error) else f"{prefix}{kind.__qualname__}"
            notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
            return f"{TRACEBACK}\n{said}{notes}\n"
    return printed.getvalue()


TRACEBACK = "Traceback (most recent call last):"


def is_shown(got: str, want: str) -> bool:
    """Whether the output on a page matches the output of an example. `...` on the page matches any text."""
    if want.startswith(TRACEBACK):
        lines = want.splitlines()[1:]
        while lines and lines[0].startswith((" ", "...")):  # the frames, which a page shows as dots
            lines.pop(0)
        want = "\n".join([TRACEBACK, *lines])
    parts = [re.escape(part) for part in want.rstrip().split("...")]
    return re.fullmatch(".*".join(parts), got.rstrip(), re.DOTALL) is not None


@pytest.mark.parametrize("page", GUIDES)
def test_the_examples_of_a_guide_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    text = (DOCS / page).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        file, language, body = block.groups()
        if file:
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_text(body, encoding="utf-8")
        elif language == "console":
            run_console(body, tmp_path)
        elif language == "pycon":
            run_python(body, page, text.count("\n", 0, block.start(3)), names)


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Write the files of the README, run its commands in order, and then its Python examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("## Two minutes")[2]
    shown = "".join(re.findall(r"^```sh\n(.*?)^```", text.partition("\n## ")[0], re.MULTILINE | re.DOTALL))
    ran = set()
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
    assert ran >= {"init", "load", "check", "branch", "mutate", "blob", "commit", "tag", "export"}
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    capsys.readouterr()
    exec(program, {})
    for line in capsys.readouterr().out.splitlines():
        assert f"`{line}`" in text


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
