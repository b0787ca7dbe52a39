"""Splits typed lines into statements, makes queries of query bodies, and locates errors in the typed lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from omnigraph.dataclass import dataclass
from omnigraph.errors import CompileError, InputError, OmnigraphError
from omnigraph.errors.source import SourceText, Span

_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\n[ \t\r]*(?=\n)|[{};]|\S', re.DOTALL)
"""Tokens that decide where a statement ends: strings, comments, empty lines, braces and semicolons."""

_QUERY = re.compile(r"query\b")
_BEFORE = r"\s*(?://[^\n]*\s*|/\*.*?\*/\s*)*"
_QUERY_START = re.compile(_BEFORE + r"query\b", re.DOTALL)
_BODY = re.compile(_BEFORE + r"(?:match|insert|create|merge|update|delete)\b", re.DOTALL)
_ACTION = re.compile(r"\b(?:return|insert|create|merge|update|delete)\b")


def is_body(text: str) -> bool:
    """Whether a text starts like the body of a query."""
    return _BODY.match(text) is not None


def as_query(text: str, name: str) -> str:
    r"""The text as a query. Wraps a query body into `query NAME() { … }`."""
    return text if _QUERY_START.match(text) else f"{_head(name)}{text}\n}}"


def _head(name: str) -> str:
    return f"query {name}() {{ "


def without_head(error: CompileError, name: str) -> None:
    """Let a compile error of `as_query(text, name)` show the text without the added head."""
    head = _head(name)
    source = error.source
    if source is None or not source.text.startswith(head):
        return
    text = source.text[len(head) :].removesuffix("\n}")
    if error.span is not None:
        last = len(text.encode())
        error.span = Span(*(min(max(at - len(head), 0), last) for at in error.span))
        if error.span.start == last:  # the brace that ends the query is not in the text
            error.message = error.message.replace("found '}'", "found the end of the query")
    error.source = replace(source, text=text)


def without_name(error: OmnigraphError, name: str, instead: str) -> None:
    """Let an error about a query that has the name of `as_query(text, name)` call it something else."""
    if error.message.startswith(f"'{name}' "):
        error.message = instead + error.message.removeprefix(f"'{name}'")
        error.args = (error.message,)


def is_complete(text: str) -> bool:
    """Whether one line holds a complete query body: its braces are balanced, and it has a `return` or a change."""
    if _QUERY_START.match(text):
        return False  # a `query` ends at its closing brace
    signs = [part[0] for part in _PARTS.finditer(text) if not part[0].startswith(('"', "/"))]
    return signs.count("{") == signs.count("}") > 0 and _ACTION.search(text) is not None


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, or the body of one, as it was typed.

    Attributes:
        text: the statement.
        lines: the lines on which it was typed. They may contain other text before and after it.
        offset: the position of the statement in the lines, in characters.
        first_line: the number of the first of these lines.
        source: the name of the file that the lines are from.
    """

    text: str
    lines: str
    offset: int = 0
    first_line: int = 1
    source: str | None = None

    @classmethod
    def of(cls, text: str, source: str | None = None) -> Statement:
        """A statement that was typed alone."""
        return cls(text, text, source=source)

    def query(self, name: str) -> str:
        """The statement as a query; a query body gets this name."""
        return as_query(self.text, name)

    @contextmanager
    def errors_as_typed(self, name: str) -> Iterator[None]:
        """Let compile errors of `query(name)` show the typed line and its position."""
        try:
            yield
        except CompileError as error:
            self._locate(error, name)
            raise
        except InputError as error:
            without_name(error, name, "this")
            raise

    def _locate(self, error: CompileError, name: str) -> None:
        if error.source is None or error.source.name is not None:
            return  # it is not about this text
        without_head(error, name)
        before = len(self.lines[: self.offset].encode())
        if error.span is not None:
            error.span = Span(error.span.start + before, error.span.end + before)
        error.source = SourceText(self.lines, self.source, self.first_line)


class Statements:
    r"""Collects lines and returns complete statements.

    A `query …` ends at its closing brace. Any other statement, such as `match … return …`, is a query body and ends at
    `;` or at an empty line.

    Args:
        source: the name of the file that the lines are from.

    Attributes:
        line: the number of the last line.

    Example:
        >>> statements = Statements()
        >>> statements.add("query all() { match { $p: Person }")
        []
        >>> found = statements.add("return { $p.name } } match { $p: Person } return { $p.age };")
        >>> [statement.text for statement in found]
        ['query all() { match { $p: Person }\nreturn { $p.name } }', 'match { $p: Person } return { $p.age }']
    """

    def __init__(self, source: str | None = None) -> None:
        self.line = 0
        self._source = source
        self._lines = ""  # the lines of the incomplete statement
        self._first_line = 1
        self._offset = 0  # where the incomplete statement begins in the lines

    @property
    def pending(self) -> str:
        """The incomplete statement."""
        return self._lines[self._offset :]

    def add(self, line: str, offset: int = 0) -> list[Statement]:
        """Add a line. Return the statements that it completes.

        Args:
            line: the line.
            offset: where the statement begins, if text before it is a command.
        """
        self.line += 1
        if not self.pending:
            self._lines, self._first_line, self._offset = "", self.line, offset
        self._lines += line.rstrip("\r\n") + "\n"
        found = []
        while (end := _end(self.pending)) is not None:
            found += self._take(self.pending[:end])
            self._skip_separators()
        self._skip_separators()
        return found

    def finish(self) -> Statement | None:
        """The incomplete statement at the end of the input; None if there is none."""
        found = self._take(self.pending)
        self._lines, self._offset = "", 0
        return found[0] if found else None

    def _take(self, text: str) -> list[Statement]:
        """Take a text off the front of the pending text. The result is empty if the text is blank."""
        begins = self._offset + len(text) - len(text.lstrip())
        self._offset += len(text)
        if not text.strip():
            return []
        return [Statement(text.strip(), self._lines, begins, self._first_line, self._source)]

    def _skip_separators(self) -> None:
        self._offset += len(self.pending) - len(self.pending.lstrip("; \t\r\n"))


def _end(text: str) -> int | None:
    """The offset at which the first statement of a text ends; None if it is incomplete."""
    depth = 0
    begun = is_query = False
    for part in _PARTS.finditer(text):
        sign = part[0]
        if sign.startswith(("//", "/*")):
            continue
        if not begun and not sign.isspace():
            begun, is_query = True, _QUERY.match(text, part.start()) is not None
        if sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if is_query and depth <= 0:
                return part.end()
        elif depth <= 0 and begun and not is_query and (sign == ";" or sign.isspace()):
            return part.start()
    return None
