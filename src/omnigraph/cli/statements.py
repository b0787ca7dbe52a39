"""Splits typed lines into statements, and makes a query from a query body."""

from __future__ import annotations

import re

_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\n[ \t\r]*(?=\n)|[{};]|\S', re.DOTALL)
"""Tokens that decide where a statement ends: strings, comments, empty lines, braces and semicolons."""

_QUERY = re.compile(r"query\b")
_BEFORE = r"\s*(?://[^\n]*\s*|/\*.*?\*/\s*)*"
_QUERY_START = re.compile(_BEFORE + r"query\b", re.DOTALL)
_BODY = re.compile(_BEFORE + r"(?:match|insert|update|delete)\b", re.DOTALL)
_ACTION = re.compile(r"\b(?:return|insert|update|delete)\b")


def is_body(text: str) -> bool:
    """Whether a text starts like the body of a query."""
    return _BODY.match(text) is not None


def as_query(text: str, name: str) -> str:
    r"""The text as a query. Wraps a query body into `query NAME() { … }`."""
    return text if _QUERY_START.match(text) else f"query {name}() {{ {text}\n}}"


def is_complete(text: str) -> bool:
    """Whether one line holds a complete query body: its braces are balanced, and it has a `return` or a change."""
    if _QUERY_START.match(text):
        return False  # a `query` ends at its closing brace
    signs = [part[0] for part in _PARTS.finditer(text) if not part[0].startswith(('"', "/"))]
    return signs.count("{") == signs.count("}") > 0 and _ACTION.search(text) is not None


class Statements:
    r"""Collects lines and returns complete statements.

    A `query …` ends at its closing brace. Any other statement, such as `match … return …`, is a query body and ends at
    `;` or at an empty line.

    Example:
        >>> statements = Statements()
        >>> statements.add("query all() { match { $p: Person }")
        []
        >>> statements.add("return { $p.name } } match { $p: Person } return { $p.age };")
        ['query all() { match { $p: Person }\nreturn { $p.name } }', 'match { $p: Person } return { $p.age }']
    """

    def __init__(self) -> None:
        self.pending = ""
        """The lines of the incomplete statement."""

    def add(self, line: str) -> list[str]:
        """Add a line. Return the statements that it completes."""
        self.pending += line.rstrip("\r\n") + "\n"
        found = []
        while (end := _end(self.pending)) is not None:
            statement, self.pending = self.pending[:end], _rest(self.pending[end:])
            if statement.strip():
                found.append(statement.strip())
        self.pending = _rest(self.pending)
        return found

    def finish(self) -> str | None:
        """The incomplete statement at the end of the input; None if there is none."""
        left, self.pending = self.pending.strip(), ""
        return left or None


def _rest(text: str) -> str:
    return text.lstrip("; \t\r\n")


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
