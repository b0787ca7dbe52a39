"""History and Tab completion of the shell on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from glob import escape, iglob
from itertools import islice

import click

from omnigraph.cli.operator_config import home
from omnigraph.cli.shell_input import ShellInput
from omnigraph.cli.shell_session import FORMATS, ShellSession, describe_types

_HISTORY = "shell_history"
_MOST_ENTRIES = 10_000
_MOST_FILES = 500
"""Maximum number of files that Tab offers."""


class LineEditing:
    """History and completion of a terminal, if Python has the readline module. A context manager.

    The history is a file in the home directory of the program, which only the user can read. A query of several lines
    is one entry of it.
    """

    def __init__(self, session: ShellSession, lines: ShellInput) -> None:
        self._session = session
        self._lines = lines
        self._choices: list[str] = []
        self._path = home() / _HISTORY
        self._loaded = 0  # entries that were in the history before this session
        self._typed: list[str] = []  # the lines of the incomplete query

    def __enter__(self) -> LineEditing:
        try:
            import readline
        except ImportError:  # some builds of Python have no readline
            return self
        from omnigraph.cli.completion import DELIMITERS

        readline.set_completer_delims(DELIMITERS)
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.set_history_length(_MOST_ENTRIES)
        readline.set_auto_history(False)
        readline.clear_history()
        try:
            readline.read_history_file(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:
            click.echo(f"cannot read the history {self._path}: {error.strerror}", err=True)
        self._loaded = readline.get_current_history_length()
        return self

    def __exit__(self, *error: object) -> None:
        readline = sys.modules.get("readline")
        if readline is None:
            return
        readline.set_completer(None)
        readline.set_auto_history(True)
        added = readline.get_current_history_length() - self._loaded
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))  # only the user may read the history
            # Another shell may have added entries meanwhile.
            readline.append_history_file(added, self._path)
        except OSError as problem:
            click.echo(f"cannot write the history {self._path}: {problem.strerror}", err=True)

    def remember(self, line: str, *, complete: bool) -> None:
        """Add a line to the history.

        Args:
            line: the line.
            complete: whether a query ends with the line. The lines of a query become one entry.
        """
        if line.strip():
            self._typed.append(line.strip())
        readline = sys.modules.get("readline")
        if readline is None or not complete:
            return
        typed, self._typed = self._typed, []
        has_comment = any("//" in one for one in typed)  # it would end only at the end of the joined line
        for entry in typed if has_comment or not typed else [" ".join(typed)]:
            last = readline.get_current_history_length()
            if readline.get_history_item(last) != entry:
                readline.add_history(entry)

    def _complete(self, text: str, state: int) -> str | None:
        import readline

        if state == 0:
            before = self._lines.pending + readline.get_line_buffer()[: readline.get_endidx()]
            self._choices = completions(self._session, before)
        return self._choices[state] if state < len(self._choices) else None


def completions(session: ShellSession, before: str) -> list[str]:
    """The completions of the last word of a text.

    Args:
        session: the session.
        before: the text up to the cursor.
    """
    from omnigraph.cli.completion import Completer

    graph = session.graph
    known = dict.fromkeys(session.commands, _nothing)
    words: dict[str, Callable[[str], Sequence[str]]] = known | {
        ":schema": lambda _: [name for name, _ in describe_types(graph)],
        ":branch": lambda _: [branch.name for branch in graph.branches],
        ":diff": lambda _: [*(branch.name for branch in graph.branches), *(tag.name for tag in graph.tags)],
        ":format": lambda _: FORMATS,
        ":timing": lambda _: ("on", "off"),
        ":run": _files,
        ":load": lambda word: ["append", "merge", *_files(word)],
    }
    return Completer(graph.catalog, words).complete(before)


def _nothing(word: str) -> Sequence[str]:
    return ()


def _files(start: str) -> Sequence[str]:
    """The files and directories whose path begins with a text."""
    found = islice(iglob(escape(start) + "*"), _MOST_FILES)
    return [path + os.sep if os.path.isdir(path) else path for path in found]
