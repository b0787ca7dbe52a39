"""Run the examples of documentation pages, and rewrite the outputs that a page shows.

    .venv/bin/python scripts/page_examples.py docs/cookbook/fraud.md

replaces every output that differs by the actual one. Read the difference before you commit it.

A page is a sequence of fenced blocks. `<!-- file: NAME -->` directly above a block makes it a file. `console` and
`pycon` blocks are run in their order, and `omnigraph` blocks are sessions of the shell. Blocks below `=== "CLI"` and
`=== "Python"` are alternatives: the page is run once for each tab.
"""

# See docs/decisions/0356-a-page-runs-once-per-tab.md

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from omnigraph.cli.main import cli

TAB = re.compile(r'^=== "(.+)"$')
FENCE = re.compile(r"^( *)```(\w+)(?: .*)?$")
FILE = re.compile(r"^ *<!-- file: (\S+) -->$")
TYPED = re.compile(r"(?:[\w-]+> |…)(.*)")
"""A line that is typed in the shell, after its prompt."""
TIME = re.compile(r"[\d.]+ m?s")
TRACEBACK = "Traceback (most recent call last):"
VARIES = [
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"(?<=\"created_at\": )\d{16}"), "MICROS"),
    (re.compile(r"(?<=-)[0-9a-hjkmnp-tv-z]{26}\b"), "…"),
    (re.compile(r"(?<=etag: \")[0-9a-f]{32}"), "…"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{8,25}(?=  \d{4}-\d\d-\d\d )"), "SHORT"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"), "TIME"),
    (re.compile(r"\beyJ[\w-]+…?"), "CURSOR"),
    (re.compile(r"\b\d+(?:\.\d)? (?:B|KiB|MiB)\b"), "SIZE"),
]


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: the word behind the fence.
        file: the name of the file that the block is, or None.
        tab: the title of the tab that contains the block, or None.
        line: the number of the line of the fence, counted from one.
        indent: the indentation of the block, which `text` does not have.
        text: the lines of the block.
    """

    language: str
    file: str | None
    tab: str | None
    line: int
    indent: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    lines = page.splitlines(keepends=True)
    tab: str | None = None
    number = 0
    while number < len(lines):
        line = lines[number].rstrip("\n")
        if title := TAB.match(line):
            tab = title[1]
        elif line.strip() and not line.startswith("    "):
            tab = None
        fence = FENCE.match(line)
        if fence is None:
            number += 1
            continue
        indent, language = fence.groups()
        end = next(place for place in range(number + 1, len(lines)) if lines[place].rstrip("\n") == f"{indent}```")
        file = FILE.match(lines[number - 1]) if number else None
        text = "".join(each.removeprefix(indent) for each in lines[number + 1 : end])
        yield Block(language, file[1] if file else None, tab, number + 1, indent, text)
        number = end + 1


def tabs(found: Iterable[Block]) -> list[str | None]:
    """The titles of the tabs, in their order; `[None]` for a page without tabs."""
    titles = list(dict.fromkeys(block.tab for block in found if block.tab))
    return [*titles] or [None]


@dataclass(frozen=True)
class Example:
    """One example with the output on the page and the actual one.

    Attributes:
        page: the name of the page.
        line: the number of its line, counted from one.
        source: the command or the statement.
        want: the output on the page.
        got: the actual output.
        is_shown: whether the page shows the actual output.
        is_session: whether it is a session of the shell, whose outputs stand between the lines that are typed.
    """

    page: str
    line: int
    source: str
    want: str
    got: str
    is_shown: bool
    is_session: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.source.rstrip()}\non the page:\n{self.want}\nactual:\n{self.got}"


def run_page(page: Path, tab: str | None) -> Iterator[Example]:
    """Run the examples of a page in the working directory, with those of one tab."""
    names: dict[str, object] = {}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.tab not in (None, tab):
            continue
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            yield from run_console(block, page.name)
        elif block.language == "omnigraph":
            yield run_shell(block, page.name)
        elif block.language == "pycon":
            yield from run_python(block, page.name, names)


def run_console(block: Block, page: str) -> Iterator[Example]:
    """Run the commands behind `$`. The lines after a command are its output."""
    here = Path.cwd()
    line = block.line + 1 + block.text.partition("$ ")[0].count("\n")
    for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, want = split_command(session)
        got = run_command(shlex.split(command.replace("\\\n", " "))).replace(str(here), "…")
        yield Example(page, line, command, want, got, comparable(got) == comparable(want))
        line += session.count("\n")


def run_command(words: list[str]) -> str:
    """The output of a command; those of `omnigraph` run in this process."""
    program, *arguments = words
    if program == "omnigraph":
        stdin = None
        if arguments[-2:-1] == ["<"]:
            stdin = Path(arguments[-1]).read_text(encoding="utf-8")
            arguments = arguments[:-2]
        return CliRunner().invoke(cli, arguments, prog_name=program, input=stdin).output
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def run_shell(block: Block, page: str) -> Example:
    """Run the lines behind the prompts of the shell. The other lines are their outputs, and times."""
    command, *lines = block.text.splitlines()
    typed = [found[1] for line in lines if (found := TYPED.fullmatch(line))]
    want = "\n".join(line for line in lines if not TYPED.fullmatch(line) and not TIME.fullmatch(line))
    arguments = shlex.split(command.removeprefix("$ omnigraph "))
    got = CliRunner().invoke(cli, arguments, prog_name="omnigraph", input="\n".join(typed)).output
    got = got.replace(str(Path.cwd()), "…")
    return Example(page, block.line + 1, command, want, got, comparable(got) == comparable(want), is_session=True)


def split_command(session: str) -> tuple[str, str]:
    """A command, which goes on in the next line after a backslash, and its output."""
    lines = session.splitlines(keepends=True)
    length = next(number for number, line in enumerate(lines) if not line.endswith("\\\n")) + 1
    return "".join(lines[:length]), "".join(lines[length:])


def comparable(text: str) -> str:
    """Replace ids, times and sizes, which differ between runs, and remove spaces at the ends of lines."""
    text = without_trailing_spaces(text)
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text.strip()


def without_trailing_spaces(text: str) -> str:
    """The text without spaces at the ends of its lines, which editors remove from pages."""
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def run_python(block: Block, page: str, names: dict[str, object]) -> Iterator[Example]:
    """Run the examples of a block.

    `doctest` finds the examples. It does not compare them: versions of Python print exceptions with notes differently.
    """
    for example in doctest.DocTestParser().get_examples(block.text):
        got = run_example(example.source, f"<{page}>", names)
        yield Example(
            page, block.line + example.lineno + 1, example.source, example.want, got, is_shown(got, example.want)
        )


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


def is_shown(got: str, want: str) -> bool:
    """Whether the output on a page matches the output of an example. `...` on the page matches any text."""
    if want.startswith(TRACEBACK):
        lines = want.splitlines()[1:]
        while lines and lines[0].startswith((" ", "...")):  # the frames, which a page shows as dots
            lines.pop(0)
        want = "\n".join([TRACEBACK, *lines])
    parts = [re.escape(part) for part in without_trailing_spaces(want).rstrip().split("...")]
    return re.fullmatch(".*".join(parts), without_trailing_spaces(got).rstrip(), re.DOTALL) is not None


def rewrite(page: Path) -> int:
    """Replace the outputs of a page that differ; return their number."""
    text = page.read_text(encoding="utf-8")
    changed = []
    for tab in tabs(blocks(text)):
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            found = [example for example in run_page(page, tab) if not example.is_shown]
            for example in found:
                if example.is_session:
                    print(f"correct this session yourself: {example}")
            changed += [example for example in found if not example.is_session]
    lines = text.splitlines(keepends=True)
    for example in sorted(changed, key=lambda each: each.line, reverse=True):
        first = example.line - 1 + example.source.count("\n")
        indent = re.match(" *", lines[example.line - 1])
        assert indent is not None
        got = example.got.replace(f"{TRACEBACK}\n", f"{TRACEBACK}\n    ...\n", 1)
        shown = [f"{indent[0]}{line}".rstrip() + "\n" for line in got.rstrip().splitlines()]
        lines[first : first + example.want.count("\n")] = shown
    page.write_text("".join(lines), encoding="utf-8")
    return len(changed)


def main() -> int:
    """Rewrite the pages of the command line."""
    os.environ["OMNIGRAPH_FSYNC"] = "0"
    for page in [Path(argument).resolve() for argument in sys.argv[1:]]:
        print(f"{page.name}: {rewrite(page)} outputs changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
