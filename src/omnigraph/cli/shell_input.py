"""The input of the shell: splits lines into queries and commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from omnigraph.cli.statements import Statement, Statements, is_complete
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError

QUERY_COMMANDS = (":explain", ":analyze")
"""Commands that take a query."""

_COMMENTS = re.compile(r"(?:\s|//[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """A query or a command of the shell.

    Attributes:
        place: the file and the line, as in `stdin:12`.
        command: the command, such as `:schema`; empty for a query.
        rest: the text after the command.
        query: the query, or the query after the command.
    """

    place: str
    command: str = ""
    rest: str = ""
    query: Statement | None = None


class ShellInput:
    """Collects lines and returns complete queries and commands. A query after `:explain` may have many lines.

    Args:
        source: the name of the input, for error messages.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._statements = Statements(source)
        self._command = ""  # the command before the incomplete query

    @property
    def pending(self) -> str:
        """The lines of the incomplete query."""
        return self._statements.pending

    @property
    def command(self) -> str:
        """The command before the incomplete query; empty if there is none."""
        return self._command

    def restart_lines(self) -> None:
        """Let the next line be line 1."""
        self._statements.line = 0

    def add(self, line: str) -> list[Entry]:
        """Add a line. Return the queries and commands that it completes."""
        if self.pending and not self._command and _COMMENTS.fullmatch(self.pending) and _command(line):
            self._statements.finish()
        command = None if self.pending or self._command else _command(line)
        if command is None:
            return self._queries(self._statements.add(line))
        word, rest = _split(command)
        if word not in QUERY_COMMANDS or not rest:
            self._statements.line += 1
            return [Entry(self._place(self._statements.line), word, rest)]
        self._command = word
        found = self._statements.add(line, offset=line.index(word) + len(word))
        if not found and is_complete(rest):
            left = self._statements.finish()
            found = [] if left is None else [left]
        return self._queries(found)

    def finish(self) -> Entry | None:
        """The incomplete query at the end of the input; None if there is none."""
        left = self._statements.finish()
        entries = [] if left is None else self._queries([left])
        self._command = ""
        return entries[0] if entries else None

    def _queries(self, statements: Iterable[Statement]) -> list[Entry]:
        entries = []
        for statement in statements:
            line = statement.first_line + statement.lines.count("\n", 0, statement.offset)
            entries.append(Entry(self._place(line), self._command, "", statement))
            self._command = ""
        return entries

    def _place(self, line: int) -> str:
        return f"{self._source}:{line}"


def _command(line: str) -> str | None:
    """The command in a line; None if the line is not a command. `exit`, `quit` and `help` need no colon."""
    words = line.strip()
    if words.startswith(":"):
        return words
    word = words.rstrip("; ").lower()
    return f":{word}" if word in ("exit", "quit", "help") else None


def _split(command: str) -> tuple[str, str]:
    word, *rest = command.split(maxsplit=1)
    return word.rstrip(";") or word, rest[0].strip() if rest else ""


def entries_of(lines: Iterable[bytes], source: str) -> Iterator[Entry]:
    """The queries and commands of a script.

    Raises:
        InputError: a line is not UTF-8.
    """
    found = ShellInput(source)
    for number, data in enumerate(lines, 1):
        try:
            line = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"line {number} of {source} is not UTF-8") from None
        yield from found.add(line)
    left = found.finish()
    if left is not None:
        yield left
