"""Every command and option that a hint, a help text or a page names exists in the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from omnigraph.cli.main import cli
from omnigraph.cli.scope import GLOBAL_FLAGS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
MODULES = sorted(ROOT.glob("src/**/*.py"))

OTHER_PROGRAMS = {"--py-files", "--work-dir"}
"""Options of `spark-submit` and of a Spark worker."""

FENCE = re.compile(r"^( *)```\w*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
QUOTED = re.compile(r"'([a-z][^']*)'|`([a-z][^`]*)`")
CALL = re.compile(r"(?<![\w./$:-])(?<!from )omnigraph ((?:\\\n|[^\n])*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
END = re.compile(r"^(?:[|;&>#→…(].*|\d?>.*)$")
WORD = re.compile(r"^[a-z][a-z-]*$")


def subcommands(command: click.Command) -> dict[str, click.Command]:
    return dict(command.commands) if isinstance(command, click.Group) else {}


def options(command: click.Command) -> set[str]:
    with click.Context(command) as context:
        found = {name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
    return found | {"-h", "--help"}


def walk(command: click.Command = cli, name: str = "omnigraph") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for word, each in subcommands(command).items():
        yield from walk(each, f"{name} {word}")


COMMANDS = dict(walk())


@cache
def script_options() -> frozenset[str]:
    """The options of the benchmarks, scripts and examples of the repository."""
    scripts = [path for folder in ("bench", "examples", "scripts") for path in (ROOT / folder).rglob("*.py")]
    return frozenset(
        option
        for script in scripts
        for option in re.findall(r"add_argument\(\s*\"(--[a-z-]+)\"", script.read_text(encoding="utf-8"))
    )


@cache
def all_options() -> frozenset[str]:
    return frozenset().union(*map(options, COMMANDS.values()))


def problem(arguments: str) -> str | None:
    """The first unknown word of a command line, given without `omnigraph`."""
    command: click.Command = cli
    words = [word.strip("`'\",.:;)…") for word in arguments.replace("\\\n", " ").split() if word != "…"]
    for place, word in enumerate(words):
        if END.match(word) or not word:
            return None
        if word.startswith("--") or re.match(r"^-[a-zA-Z]$", word):
            flag = word.partition("=")[0]
            if flag not in options(command) and not (command is cli and flag in GLOBAL_FLAGS):
                return f"{flag} in 'omnigraph {arguments}'"
        elif word in subcommands(command):
            command = subcommands(command)[word]
        elif isinstance(command, click.Group) and WORD.match(word) and not words[place - 1].startswith("-"):
            return f"{word} in 'omnigraph {arguments}'"
    return None


def is_call(text: str) -> bool:
    """Whether a quoted text is a command without its `omnigraph`: `load --lenient`."""
    words = text.split()
    if len(words) < 2 or "\n" in text or words[0] not in subcommands(cli):
        return False
    return "--" in text or bool(subcommands(subcommands(cli)[words[0]]))


def problems(text: str) -> Iterator[str]:
    """Unknown commands and options in a piece of code or a quoted text."""
    calls = [call.rstrip() for call in CALL.findall(text)]
    if is_call(text):
        calls.append(text)
    for call in calls:
        if found := problem(call):
            yield found


def code(page: str) -> Iterator[str]:
    """Fenced blocks and code spans of a page."""
    yield from (text for _, text in FENCE.findall(page))
    yield from SPAN.findall(FENCE.sub("", page))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_on_pages_exist(page: Path) -> None:
    found: list[str] = []
    known = all_options() | script_options() | OTHER_PROGRAMS
    for text in code(page.read_text(encoding="utf-8")):
        found += problems(text)
        if text.startswith("--"):
            found += [option for option in OPTION.findall(text) if option not in known]
    assert found == []


def strings(module: Path) -> Iterator[tuple[int, str]]:
    """Every string literal of a module, f-strings with `X` for their values."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            text = "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X"
                for part in node.values
            )
            yield node.lineno, text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def test_commands_in_messages_exist() -> None:
    found = []
    for module in MODULES:
        for line, text in strings(module):
            where = f"{module.relative_to(ROOT)}:{line}"
            quoted = [one or other for one, other in QUOTED.findall(text)]
            calls = [*quoted, text] if "--" in text else quoted
            found += [f"{where}: {each}" for part in calls for each in problems(part)]
            unknown = set(OPTION.findall(text)) - all_options() - OTHER_PROGRAMS - GLOBAL_FLAGS.keys()
            found += [f"{where}: {option}" for option in sorted(unknown)]
    assert found == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_in_a_help_text_are_options_of_the_command(name: str) -> None:
    command = COMMANDS[name]
    with click.Context(command) as context:
        params = command.get_params(context)
    texts = [command.help or "", *(getattr(param, "help", None) or "" for param in params)]
    own = options(command) | (GLOBAL_FLAGS.keys() if command is cli else set())
    for text in texts:
        quoted = [one or other for one, other in QUOTED.findall(text)]
        assert [each for part in quoted for each in problems(part)] == []
        plain = QUOTED.sub(lambda match: "" if is_call(match[1] or match[2]) else match[0], text)
        assert set(OPTION.findall(plain)) <= own, text


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("load --data rows.jsonl --lenient", None),
        ("branch merge --strategy ours", None),
        ("--store g.omni query", None),
        ("listen", "listen in"),
        ("branch rename a b", "rename in"),
        ("load --fast", "--fast in"),
        ("load g.omni --mode=merge | head --lines 3", None),
    ],
)
def test_unknown_commands_and_options_are_reported(arguments: str, found: str | None) -> None:
    result = problem(arguments)
    assert (result is None) if found is None else (result or "").startswith(found)
