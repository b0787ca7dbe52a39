"""Statements that are typed: lines put together, and bodies made to queries."""

from __future__ import annotations

import re

_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\n[ \t\r]*(?=\n)|[{};]|\S', re.DOTALL)
"""Texts, comments, empty lines and signs: what decides where a statement ends."""

_QUERY = re.compile(r"query\b")
_BEFORE = r"\s*(?://[^\n]*\s*|/\*.*?\*/\s*)*"
_WHOLE = re.compile(_BEFORE + r"query\b", re.DOTALL)
_BODY = re.compile(_BEFORE + r"(?:match|insert|update|delete)\b", re.DOTALL)
_DOES = re.compile(r"\b(?:return|insert|update|delete)\b")


def is_body(text: str) -> bool:
    """Whether a text is the body of a query: it begins as one does."""
    return _BODY.match(text) is not None


def whole(text: str, name: str) -> str:
    r"""A query, of which there may be only the body.

    >>> whole("match { $p: Person } return { $p.name }", "given")
    'query given() { match { $p: Person } return { $p.name }\n}'
    """
    return text if _WHOLE.match(text) else f"query {name}() {{ {text}\n}}"


def is_complete(text: str) -> bool:
    """Whether one line holds all of a query that is given without an end: its braces are closed, and it does something.

    >>> is_complete("match { $p: Person } return { $p.name }"), is_complete("match { $p: Person }")
    (True, False)
    """
    if _WHOLE.match(text):
        return False  # it says itself where it ends
    signs = [part[0] for part in _PARTS.finditer(text) if not part[0].startswith(('"', "/"))]
    return signs.count("{") == signs.count("}") > 0 and _DOES.search(text) is not None


class Statements:
    r"""Takes lines and gives whole statements.

    A `query …` ends with its closing brace. What begins otherwise, as `match … return …` does, is the body of one, and
    ends with `;` or with an empty line.

    Example:
        >>> statements = Statements()
        >>> statements.add("query all() { match { $p: Person }")
        []
        >>> statements.add("return { $p.name } } match { $p: Person } return { $p.age };")
        ['query all() { match { $p: Person }\nreturn { $p.name } }', 'match { $p: Person } return { $p.age }']
    """

    def __init__(self) -> None:
        self.pending = ""
        """What belongs to a statement that is not complete."""

    def add(self, line: str) -> list[str]:
        """Take in a line, and give the statements that it completes."""
        self.pending += line.rstrip("\r\n") + "\n"
        found = []
        while (end := _end(self.pending)) is not None:
            statement, self.pending = self.pending[:end], _rest(self.pending[end:])
            if statement.strip():
                found.append(statement.strip())
        self.pending = _rest(self.pending)
        return found

    def finish(self) -> str | None:
        """The text that is left at the end of the input."""
        left, self.pending = self.pending.strip(), ""
        return left or None


def _rest(text: str) -> str:
    return text.lstrip("; \t\r\n")


def _end(text: str) -> int | None:
    """Where the first statement of a text ends; None when it does not."""
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
