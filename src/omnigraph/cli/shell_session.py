"""A session of the shell: runs queries that read and write, and the commands of the shell."""

# See docs/decisions/0366-the-shell-writes-when-asked.md

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.failures import WRITES, report
from omnigraph.cli.interrupts import cancelled_by_interrupt, forget, is_interrupt
from omnigraph.cli.mutate import json_object
from omnigraph.cli.shell_input import Entry, entries_of
from omnigraph.cli.statements import Statement
from omnigraph.errors import CompileError, InputError, ReadOnlyError, cut

if TYPE_CHECKING:
    from omnigraph.commit.manifest import Commit
    from omnigraph.engine.session import At
    from omnigraph.graph import Graph
    from omnigraph.lang.schema.catalog import EdgeType, Property
    from omnigraph.read.result.result import Result

FORMATS = ("table", "kv", "csv", "tsv", "json", "jsonl", "ndjson", "markdown")
"""The formats that are text."""
NAME = "shell"
"""The name of a query that is typed without `query NAME()`."""

_MODES = ("append", "merge")
_MOST_FILES = 20
"""Maximum depth of files that `:run` one another."""

HELP = """\
Type a query. It ends at its closing brace, and may have many lines:
    query older($than: I32) { match { $p: Person  $p.age > $than } return { $p.name } }
A query body also works. It ends at ; or at an empty line:
    match { $p: Person } return { $p.name } limit 5;
    insert Person { name: "ann", age: 30 };
A query that writes is one commit on the current branch.

:help                   show this text
:schema [TYPE]          show the types of the graph, or one of them and its edges
:branch [NAME]          list the branches; with a name, switch to that branch
:diff [A [B]]           show the changes from state A to state B, a branch, a commit or a tag; by default
                        from the parent branch to the current branch, on main those of the last commit
:set NAME VALUE         set the parameter $NAME for queries that declare it; the value is JSON or a text
:params [JSON]          list the parameters; with a JSON object, replace them
:explain [QUERY]        show the plan of a query without running it; by default of the last one
:analyze [QUERY]        run the query, and show the plan with the rows and the time of each step
:load MODE FILE...      load files as one commit; the mode is append or merge
:run FILE               run the queries and commands of a file
:all                    print all rows of the last query; a terminal shows the first 50
:format NAME            print rows as table, kv, csv, tsv, json, jsonl, ndjson or markdown
:timing [on|off]        show how long each query takes
:quit                   leave the shell; the same as Ctrl-D
Tab completes commands, keywords, files, branches and names of the schema. Ctrl-C stops a query."""


class ShellSession:
    """A session of the shell. A context manager.

    Args:
        uri: the graph.
        branch: the branch to read and write.
        at: the state to read instead of the head of the branch; then nothing can be written.
        format: the output format.
        actor: the actor of commits.
        read_only: whether all writes are refused.
        interactive: whether a user types the queries. Then Ctrl-C stops a query and not the session.

    Attributes:
        graph: the open graph. It is opened for writing when the first query writes.
        failed: whether a query or a command failed.
    """

    def __init__(
        self,
        uri: str,
        branch: str,
        at: str | datetime | None,
        format: str,
        *,
        actor: str | None = None,
        read_only: bool = False,
        interactive: bool = False,
    ) -> None:
        self._uri = uri
        self._at: At | None = at
        self._format = format
        self._actor = actor
        self._read_only = read_only
        self._interactive = interactive
        self._timing = interactive
        self._params: dict[str, Any] = {}
        self._last: Statement | None = None
        self._cut: Result | None = None  # the last result, if the terminal did not show all of its rows
        self._files: list[str] = []  # the files that `:run` is running
        self._head_before: str | None = None  # the head of the branch before a write that has not ended
        self.failed = False
        self.graph = self._open(branch, read_only=True)

    def _open(self, branch: str, *, read_only: bool) -> Graph:
        from omnigraph.cli.scope import blob_sources
        from omnigraph.graph import open

        if read_only:
            return open(self._uri, branch=branch, actor=self._actor, read_only=True)
        return open(self._uri, branch=branch, actor=self._actor, blob_sources=blob_sources())

    def _reopen(self, branch: str, *, read_only: bool) -> None:
        before, self.graph = self.graph, self._open(branch, read_only=read_only)
        before.close()

    def __enter__(self) -> ShellSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.graph.close()

    @property
    def prompt(self) -> str:
        return f"{self._state}> "

    @property
    def _state(self) -> str:
        return self.graph.default_branch if self._at is None else _named(self._at)

    def run(self, entry: Entry) -> bool:
        """Run a query or a command. Return False if the session ends.

        Raises:
            KeyboardInterrupt: Ctrl-C, if the session is not interactive.
        """
        forget()
        try:
            if entry.command:
                return self._command(entry)
            assert entry.query is not None
            self._run_query(entry.query)
        except (Exception, KeyboardInterrupt) as error:
            self.failed = True
            if not is_interrupt(error):
                self._report(error, entry)
            elif self._interactive:
                self._report_stopped(entry)
            else:
                raise KeyboardInterrupt from error
        finally:
            self._head_before = None
        return True

    def _report(self, error: BaseException, entry: Entry) -> None:
        report(error)
        is_located = isinstance(error, CompileError) and error.source is not None
        if not is_located and (self._files or not self._interactive):
            click.echo(f"  --> {entry.place}", err=True)

    def _report_stopped(self, entry: Entry) -> None:
        """Report Ctrl-C, and its effect on a write."""
        before = self._head_before
        if before is None:
            click.echo("stopped", err=True)
            return
        try:
            # Opening the graph recovers the interrupted write: it is completed or undone.
            self._reopen(self.graph.default_branch, read_only=False)
            head = self._head().id
        except Exception as error:
            click.echo("stopped: it is not known whether the write is done", err=True)
            self._report(error, entry)
            return
        if head == before:
            click.echo("stopped: nothing was written", err=True)
        else:
            click.echo(f"stopped: the branch has a new commit, {head}", err=True)

    # ---- queries

    def _run_query(self, query: Statement) -> None:
        from omnigraph.lang.query import parse_queries, select_query
        from omnigraph.lang.query.ast import Write

        self._last = query
        text = query.query(NAME)
        with query.errors_as_typed(NAME):
            writes = isinstance(select_query(parse_queries(text), None).body, Write)
            if writes:
                self._mutate(text)
            else:
                self._read(text)

    def _read(self, text: str) -> None:
        from omnigraph.cli.formats import FIRST_ROWS

        self._cut = None
        began = time.perf_counter()
        with cancelled_by_interrupt() as cancel:
            found = self.graph.query(text, self._parameters_for(text), at=self._at, cancel=cancel)
        seconds = time.perf_counter() - began
        if cancel.cancelled:  # the query ended before it noticed
            raise KeyboardInterrupt
        self._cut = found if found.row_count > FIRST_ROWS else None
        self._print(found, seconds)

    def _print(self, result: Result, seconds: float | None, *, everything: bool = False) -> None:
        """Print a result, and the time that the query took: in the line below the rows, if there is one."""
        from omnigraph.cli.formats import has_footer, print_result

        shown = seconds if self._timing else None
        print_result(result, self._format, everything=everything, seconds=shown, all_by=":all shows them")
        if seconds is not None and not has_footer(self._format):
            self._print_time(seconds)

    def _mutate(self, text: str) -> None:
        from omnigraph.cli.mutate import inserts_only, print_receipt

        graph = self._begin_write()
        began = time.perf_counter()
        done = graph.mutate(text, self._parameters_for(text))
        self._head_before = None
        print_receipt(done, replaces=inserts_only(text, None))
        self._print_time(time.perf_counter() - began)

    def _begin_write(self) -> Graph:
        """The graph, opened for writing.

        Raises:
            ReadOnlyError: the session is read-only.
            InputError: the session reads a state that is not the head of a branch.
        """
        if self._read_only:
            raise ReadOnlyError("the shell is read-only, so nothing was written", hint="start it without --read-only")
        if self._at is not None:
            raise InputError(
                f"the shell reads the state {self._state}, which cannot change",
                hint=":branch NAME switches to the head of a branch",
            )
        context = click.get_current_context(silent=True)
        if context is not None:
            context.meta[WRITES] = True
        if self.graph.read_only:
            self._reopen(self.graph.default_branch, read_only=False)
        self._head_before = self._head().id
        return self.graph

    def _head(self) -> Commit:
        return self.graph.branch(self.graph.default_branch).head

    def _parameters_for(self, text: str) -> dict[str, Any]:
        """Those parameters of the session that a query mentions."""
        mentioned = set(re.findall(r"\$(\w+)", text))
        return {name: value for name, value in self._params.items() if name in mentioned}

    def _print_time(self, seconds: float) -> None:
        if self._timing:
            click.echo(f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s", err=True)

    # ---- commands

    def _command(self, entry: Entry) -> bool:
        command = self.commands.get(entry.command)
        if command is None:
            from omnigraph.lang.names import did_you_mean

            near = did_you_mean(entry.command, list(self.commands))
            hint = f"{near}; :help lists the commands" if near else ":help lists the commands"
            raise InputError(f"there is no command {cut(entry.command)}", hint=hint)
        return command(entry) is not False

    @property
    def commands(self) -> dict[str, Callable[[Entry], bool | None]]:
        """The commands by name. A command returns False if the session ends."""
        return {
            ":help": lambda _: click.echo(HELP),
            ":schema": self._schema,
            ":branch": self._branch,
            ":diff": self._diff,
            ":set": self._set,
            ":params": self._show_or_set_params,
            ":explain": self._explain,
            ":analyze": self._explain,
            ":load": self._load,
            ":run": self._run_file,
            ":all": self._print_all,
            ":format": self._set_format,
            ":timing": self._set_timing,
            ":quit": _end,
            ":exit": _end,
            ":q": _end,
        }

    def _schema(self, entry: Entry) -> None:
        from omnigraph.lang.names import did_you_mean

        name = entry.rest
        types = list(describe_types(self.graph))
        shown = [lines for type_name, lines in types if name in ("", type_name)]
        if name and not shown:
            near = did_you_mean(name, [type_name for type_name, _ in types])
            raise InputError(f"there is no type {cut(name)}", hint=near or ":schema lists the types")
        for lines in shown:
            click.echo("\n".join(lines))
        edges = [one for one in self.graph.catalog.edges.values() if name in (one.from_type, one.to_type)]
        for edge in edges:
            click.echo(_edge_head(edge))

    def _branch(self, entry: Entry) -> None:
        name = entry.rest
        if not name:
            for branch in self.graph.branches:
                here = self._at is None and branch.name == self.graph.default_branch
                click.echo(f"{'*' if here else ' '} {branch.name}")
            return
        self._reopen(name, read_only=self.graph.read_only)
        self._at = None
        click.echo(f"on branch {name}")

    def _diff(self, entry: Entry) -> None:
        from omnigraph.cli.diff import DEFAULT_LIMIT, print_diff

        rest = entry.rest
        states = rest.split()
        if len(states) > 2:
            raise InputError(":diff compares two states", hint=":diff A B; a state is a branch, a commit or a tag")
        current: At = self.graph.default_branch if self._at is None else self._at
        compared: tuple[At, At] | None
        compared = (states[0], states[1] if len(states) == 2 else current) if states else self._default_states()
        if compared is None:
            click.echo("no changes: this is the first commit")
            return
        names = [_named(state) for state in compared]
        click.echo(" → ".join(names))
        print_diff(self.graph.diff(*compared), DEFAULT_LIMIT, f"omnigraph diff {' '.join(names)} --limit N shows more")

    def _default_states(self) -> tuple[At, At] | None:
        """A branch is compared with its parent, and the head of `main` with the commit before it."""
        if self._at is not None:
            raise InputError(":diff needs a state to compare with", hint=f":diff main compares main with {self._state}")
        here = self.graph.default_branch
        parent = next((branch.parent for branch in self.graph.branches if branch.name == here), None)
        if parent is not None:
            return parent, here
        newest = self.graph.commits.list(limit=2).commits
        return (newest[1].id, newest[0].id) if len(newest) == 2 else None

    def _set(self, entry: Entry) -> None:
        rest = entry.rest
        name, _, value = rest.partition(" ")
        name = name.removeprefix("$")
        if not name or not value.strip():
            raise InputError(":set needs a parameter and its value", hint="for example :set name ann")
        try:
            self._params[name] = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            self._params[name] = value.strip()

    def _show_or_set_params(self, entry: Entry) -> None:
        text = entry.rest
        if text:
            self._params = json_object(text.encode(), ":params")
            return
        if not self._params:
            click.echo("none")
        for name, value in self._params.items():
            click.echo(f"${name}: {json.dumps(value, ensure_ascii=False)}")

    def _set_format(self, entry: Entry) -> None:
        name = entry.rest
        if name not in FORMATS:
            raise InputError(f"'{cut(name)}' is not an output format", hint=f"use {', '.join(FORMATS)}")
        self._format = name

    def _print_all(self, entry: Entry) -> None:
        if self._cut is None:
            raise InputError("all rows of the last query were printed", hint="run a query with more rows")
        self._print(self._cut, None, everything=True)

    def _set_timing(self, entry: Entry) -> None:
        word = entry.rest
        states = {"on": True, "off": False, "": not self._timing}
        if word not in states:
            raise InputError(f"'{cut(word)}' is neither on nor off", hint=":timing on, or :timing off")
        self._timing = states[word]
        click.echo(f"timing is {'on' if self._timing else 'off'}")

    def _explain(self, entry: Entry) -> None:
        self._last = entry.query or self._last
        if self._last is None:
            raise InputError("there is no earlier query", hint="give a query: :explain match { … } return { … }")
        from omnigraph.engine.query import USE_MUTATE

        text, analyze = self._last.query(NAME), entry.command == ":analyze"
        with self._last.errors_as_typed(NAME), cancelled_by_interrupt() as cancel:
            given = self._parameters_for(text)
            try:
                explained = self.graph.explain(text, given, at=self._at, analyze=analyze, cancel=cancel)
            except InputError as error:
                if error.hint == USE_MUTATE:
                    error.hint = "only a query that reads has a plan"
                raise
        click.echo(str(explained))

    def _load(self, entry: Entry) -> None:
        from omnigraph.cli.load import print_receipt

        rest = entry.rest
        mode, *files = _words(rest) or [""]
        if mode not in _MODES or not files:
            hint = f"for example :load append people.jsonl; the modes are {' and '.join(_MODES)}"
            raise InputError(":load needs a mode and a file", hint=hint)
        graph = self._begin_write()
        began = time.perf_counter()
        with cancelled_by_interrupt() as cancel:
            receipt = graph.load(list(files), mode=mode, engine="local", cancel=cancel)
            self._head_before = None
        print_receipt(graph.uri, receipt, checked=False)
        self._print_time(time.perf_counter() - began)

    def _run_file(self, entry: Entry) -> bool:
        words = _words(entry.rest)
        if len(words) != 1:
            raise InputError(":run needs a file", hint="for example :run queries.gq")
        if len(self._files) >= _MOST_FILES:
            raise InputError(f"{_MOST_FILES} files run one another", hint="a file must not run itself")
        (file,) = words
        try:
            lines = Path(file).read_bytes().splitlines(keepends=True)
        except OSError as error:
            raise InputError(f"cannot read {cut(file)}: {error.strerror}") from error
        self._files.append(file)
        try:
            return all(self.run(one) for one in entries_of(lines, file))
        finally:
            self._files.pop()


def _end(entry: Entry) -> bool:
    return False


def _named(state: At) -> str:
    return state.isoformat() if isinstance(state, datetime) else str(state)


def _words(text: str) -> list[str]:
    """The words of a command, which may be quoted as in a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"a quotation mark is missing: {error}") from None


def describe_types(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """The types of a graph, each with lines that describe it."""
    catalog = graph.catalog
    for interface in catalog.interfaces.values():
        yield interface.name, _declared(f"interface {interface.name}", interface.properties)
    for node in catalog.nodes.values():
        of = f" implements {', '.join(node.implements)}" if node.implements else ""
        yield node.name, _declared(f"node {node.name}{of}", node.properties, node.key)
    for edge in catalog.edges.values():
        yield edge.name, _declared(_edge_head(edge), edge.properties, edge.key)


def _edge_head(edge: EdgeType) -> str:
    return f"edge {edge.name}: {edge.from_type} -> {edge.to_type}"


def _declared(head: str, properties: Mapping[str, Property], key: Sequence[str] | None = None) -> list[str]:
    marks = {key[0]: " @key"} if key is not None and len(key) == 1 else {}
    lines = [f"    {name}: {prop.type}{marks.get(name, '')}" for name, prop in properties.items()]
    return [head, *lines, *([f"    @key({', '.join(key)})"] if key is not None and len(key) > 1 else [])]
