"""The `shell` command: runs queries one after another, from a terminal or from stdin."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.failures import report
from omnigraph.cli.interrupts import forget, is_interrupt
from omnigraph.cli.mutate import json_object
from omnigraph.cli.scope import address, address_options, state_options
from omnigraph.cli.statements import Statements, as_query, is_complete
from omnigraph.cli.streams import at_terminal, stdin
from omnigraph.errors import InputError
from omnigraph.settings import HOME

if TYPE_CHECKING:
    from omnigraph.graph import Graph

_HISTORY = "shell_history"
_HISTORY_LINES = 10_000
_FORMATS = ("table", "kv", "csv", "json", "jsonl")

HELP = """\
Type a query. It ends at its closing brace, and may have many lines:
    query older($than: I32) { match { $p: Person  $p.age > $than } return { $p.name } }
A query body also works. It ends at ; or at an empty line:
    match { $p: Person } return { $p.name } limit 5;

:help                show this text
:schema [TYPE]       show the types of the graph, or one of them
:branch [NAME]       list the branches; with a name, switch to that branch
:set NAME VALUE      set the parameter $NAME for queries that declare it; the value is JSON or a text
:params [JSON]       list the parameters; with a JSON object, replace them
:format NAME         print rows as table, kv, csv, json or jsonl
:explain [QUERY]     show the plan of a query without running it; by default of the last one
:analyze [QUERY]     run the query, and show the plan with the rows and the time of each step
:quit                leave the shell; the same as Ctrl-D
Tab completes keywords and names of the schema. Ctrl-C stops a query."""


@click.command()
@address_options(positional=True)
@state_options()
@click.option("--format", type=click.Choice(_FORMATS), default="table", help="Output format.  [default: table]")
def shell(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | datetime | None,
    format: str,
) -> None:
    """Run queries one after another.

    On a terminal, the shell has a history and Tab completion; :help shows its commands. Otherwise it reads queries from
    stdin and prints their results in order; the exit code is 1 if one of them fails.
    """
    session = Session(address(uri, uri_option, store), branch or "main", at, format)
    with session:
        if at_terminal():
            _run_interactive(session)
        else:
            _run_script(session)
    if session.failed and not at_terminal():
        click.get_current_context().exit(1)


def _shown(at: str | datetime | None) -> str | None:
    return at.isoformat() if isinstance(at, datetime) else at


class Session:
    """A shell session: the graph, the snapshot to read, the parameters and the output format. A context manager.

    Attributes:
        failed: whether a statement failed.
    """

    def __init__(self, uri: str, branch: str, at: str | datetime | None, format: str) -> None:
        self._uri = uri
        self._at = at
        self._format = format
        self._params: dict[str, Any] = {}
        self._last: str | None = None
        self.failed = False
        self.graph = self._open(branch)

    def _open(self, branch: str) -> Graph:
        from omnigraph.graph import open

        return open(self._uri, branch=branch, read_only=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.graph.close()

    @property
    def prompt(self) -> str:
        return f"{_shown(self._at) or self.graph.default_branch}> "

    def run(self, text: str) -> bool:
        """Run a statement or a command. Return False if the session ends."""
        try:
            if text.startswith(":"):
                return self._command(text)
            self._query(text)
        except (Exception, KeyboardInterrupt) as error:
            if is_interrupt(error):
                click.echo("stopped", err=True)
            else:
                self.failed = True
                report(error)
        return True

    def _query(self, text: str) -> None:
        from omnigraph.cli.formats import print_result

        self._last = as_query(text, "shell")
        print_result(self.graph.query(self._last, self._parameters_for(self._last), at=self._at), self._format)

    def _parameters_for(self, text: str) -> dict[str, Any]:
        """Those parameters of the session that a query mentions."""
        mentioned = set(re.findall(r"\$(\w+)", text))
        return {name: value for name, value in self._params.items() if name in mentioned}

    def _command(self, text: str) -> bool:
        word, rest = _split(text)
        if word in (":quit", ":q", ":exit"):
            return False
        known = self.commands.get(word)
        if known is None:
            raise InputError(f"there is no command {word}", hint=":help lists the commands")
        known(rest)
        return True

    @property
    def commands(self) -> dict[str, Callable[[str], None]]:
        return {
            ":help": lambda _: click.echo(HELP),
            ":schema": self._schema,
            ":branch": self._branch,
            ":set": self._set,
            ":params": self._show_or_set_params,
            ":format": self._set_format,
            ":explain": lambda text: self._explain(text, analyze=False),
            ":analyze": lambda text: self._explain(text, analyze=True),
        }

    def _schema(self, name: str) -> None:
        from omnigraph.lang.names import did_you_mean

        types = list(describe_types(self.graph))
        shown = [lines for type_name, lines in types if name in ("", type_name)]
        if name and not shown:
            near = did_you_mean(name, [type_name for type_name, _ in types])
            raise InputError(f"there is no type {name}", hint=near or ":schema lists the types")
        for lines in shown:
            click.echo("\n".join(lines))

    def _branch(self, name: str) -> None:
        if not name:
            for branch in self.graph.branches:
                here = self._at is None and branch.name == self.graph.default_branch
                click.echo(f"{'*' if here else ' '} {branch.name}")
            return
        graph = self._open(name)
        self.graph.close()
        self.graph, self._at = graph, None
        click.echo(f"reading {name}")

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        name = name.removeprefix("$")
        if not name or not value.strip():
            raise InputError(":set needs a parameter and its value", hint="for example :set name ann")
        try:
            self._params[name] = json.loads(value)
        except json.JSONDecodeError:
            self._params[name] = value.strip()

    def _show_or_set_params(self, text: str) -> None:
        if text:
            self._params = json_object(text.encode(), ":params")
            return
        if not self._params:
            click.echo("none")
        for name, value in self._params.items():
            click.echo(f"${name}: {json.dumps(value, ensure_ascii=False)}")

    def _set_format(self, name: str) -> None:
        if name not in _FORMATS:
            raise InputError(f"'{name}' is not an output format", hint=f"use {', '.join(_FORMATS)}")
        self._format = name

    def _explain(self, text: str, *, analyze: bool) -> None:
        if text:
            self._last = as_query(text.rstrip("; \t"), "shell")
        if self._last is None:
            raise InputError("there is no earlier query", hint="give a query: :explain match { … } return { … }")
        click.echo(str(self.graph.explain(self._last, self._parameters_for(self._last), at=self._at, analyze=analyze)))


def describe_types(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """The types of a graph, each with lines that describe it."""
    catalog = graph.catalog
    for interface in catalog.interfaces.values():
        yield interface.name, _declared(f"interface {interface.name}", interface.properties)
    for node in catalog.nodes.values():
        of = f" implements {', '.join(node.implements)}" if node.implements else ""
        yield node.name, _declared(f"node {node.name}{of}", node.properties)
    for edge in catalog.edges.values():
        yield edge.name, _declared(f"edge {edge.name}: {edge.from_type} -> {edge.to_type}", edge.properties)


def _declared(head: str, properties: Any) -> list[str]:
    return [head, *(f"    {name}: {prop.type}" for name, prop in properties.items())]


# Lines


def _command(line: str) -> str | None:
    """The command in a line; None if the line is not a command. `exit`, `quit` and `help` need no colon."""
    words = line.strip()
    if words.startswith(":"):
        return words
    word = words.rstrip("; ").lower()
    return f":{word}" if word in ("exit", "quit", "help") else None


def _split(command: str) -> tuple[str, str]:
    word, *rest = command.split(maxsplit=1)
    return word, rest[0].strip() if rest else ""


class Lines:
    """Collects lines and returns complete statements and commands. A query after `:explain` may have many lines."""

    def __init__(self) -> None:
        self._statements = Statements()
        self._command = ""

    @property
    def pending(self) -> str:
        """The lines of the incomplete statement."""
        return self._statements.pending

    def add(self, line: str) -> list[str]:
        """Add a line. Return the statements and commands that it completes."""
        command = None if self.pending else _command(line)
        if command is not None:
            word, rest = _split(command)
            if word not in (":explain", ":analyze") or not rest or is_complete(rest):
                return [command]
            self._command, line = f"{word} ", rest
        found = self._statements.add(line)
        if found:
            found[0], self._command = self._command + found[0], ""
        return found

    def finish(self) -> str | None:
        """The incomplete statement at the end of the input; None if there is none."""
        left, command, self._command = self._statements.finish(), self._command, ""
        return None if left is None else command + left


def _run_script(session: Session) -> None:
    """Run the statements of a file or a pipe."""
    lines = Lines()
    for number, data in enumerate(stdin(), 1):
        try:
            line = data.decode()
        except UnicodeDecodeError:
            raise InputError(f"line {number} of stdin is not UTF-8") from None
        if not all(session.run(statement) for statement in lines.add(line)):
            return
    left = lines.finish()
    if left is not None:
        session.run(left)


def _run_interactive(session: Session) -> None:
    """Run the statements that a user types on a terminal."""
    lines = Lines()
    with _Editing(session, lines):
        while True:
            try:
                line = input("… " if lines.pending else session.prompt)
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                forget()
                lines.finish()
                click.echo()
                continue
            except UnicodeDecodeError:
                click.echo("this line is not UTF-8", err=True)
                continue
            if not all(session.run(statement) for statement in lines.add(line)):
                return


class _Editing:
    """History and completion of a terminal, if Python has the readline module."""

    def __init__(self, session: Session, lines: Lines) -> None:
        self._session = session
        self._lines = lines
        self._choices: list[str] = []
        self._path = Path(HOME.get() or Path.home() / ".omnigraph") / _HISTORY

    def __enter__(self) -> None:
        try:
            import readline
        except ImportError:  # some builds of Python have no readline
            return
        from omnigraph.cli.completion import DELIMITERS

        readline.set_completer_delims(DELIMITERS)
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.set_history_length(_HISTORY_LINES)
        try:
            readline.read_history_file(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:
            click.echo(f"cannot read the history {self._path}: {error.strerror}", err=True)

    def __exit__(self, *error: object) -> None:
        readline = sys.modules.get("readline")
        if readline is None:
            return
        readline.set_completer(None)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))  # only the user may read the history
            readline.write_history_file(self._path)
        except OSError as problem:
            click.echo(f"cannot write the history {self._path}: {problem.strerror}", err=True)

    def _complete(self, text: str, state: int) -> str | None:
        import readline

        if state == 0:
            from omnigraph.cli.completion import Completer

            graph = self._session.graph
            after = {
                ":schema": [name for name, _ in describe_types(graph)],
                ":branch": [branch.name for branch in graph.branches],
                ":format": _FORMATS,
            }
            commands = {word: after.get(word, ()) for word in (*self._session.commands, ":quit")}
            before = self._lines.pending + readline.get_line_buffer()[: readline.get_endidx()]
            self._choices = Completer(graph.catalog, commands).complete(before)
        return self._choices[state] if state < len(self._choices) else None
