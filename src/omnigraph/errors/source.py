"""Places in source text: what an error points at, and how it is shown."""

# See docs/decisions/0006-places-are-bytes.md

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

_WINDOW = 120
"""Widest excerpt of a source line that is shown, in characters."""

MOST = 200
"""How much of a text that came from outside is shown, in characters."""

_ITEMS = 20
"""How many items of a list are shown."""

_MANY_DIGITS = 10**40

_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\t"), ord("\n")}, "\N{REPLACEMENT CHARACTER}")


def printable(text: str) -> str:
    """The text without characters that would steer a terminal: errors quote what others wrote."""
    return text.translate(_CONTROLS)


def cut(text: str, most: int = MOST) -> str:
    """A text that came from outside, as an error shows it: its beginning, when it is long, and how long it is.

    >>> cut("short"), cut("x" * 300, 3)
    ('short', 'xxx… (300 characters)')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def shown(value: object) -> str:
    """A value that came from outside, as an error shows it: never long.

    >>> shown("ann"), shown(True), shown(["a", None])
    ("'ann'", 'true', "['a', null]")
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{cut(value)}'"
    if isinstance(value, int) and abs(value) >= _MANY_DIGITS:
        return "a number of very many digits"
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    if isinstance(value, list | tuple):
        more = f", … ({len(value):,} items)" if len(value) > _ITEMS else ""
        return cut(f"[{', '.join(map(shown, value[:_ITEMS]))}{more}]")
    return cut(str(value))


class Span(NamedTuple):
    """A half-open range of UTF-8 byte offsets into a source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The smallest span that begins here and covers `other`."""
        return Span(self.start, max(self.end, other.end))


class Location(NamedTuple):
    """A place for people: both numbers count from 1, the column counts characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source file, or a piece of text that came without one."""

    text: str
    name: str | None = None

    def locate(self, offset: int) -> Location:
        """Line and column of a byte offset."""
        before = self.text.encode()[:offset].decode(errors="ignore")
        line_start = before.rfind("\n") + 1
        return Location(before.count("\n") + 1, len(before) - line_start + 1)

    def excerpt(self, span: Span) -> str:
        """The source line with a caret under the span, as compilers show it."""
        data = self.text.encode()
        start = len(data[: span.start].decode(errors="ignore"))
        width = len(data[span.start : span.end].decode(errors="ignore"))
        line_no, column = self.locate(span.start)
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        line = self.text[line_start : len(self.text) if line_end < 0 else line_end].rstrip("\r")

        left = max(0, column - 1 - _WINDOW // 2)
        shown = line[left : left + _WINDOW]
        caret_at = column - 1 - left
        carets = max(1, min(width, len(shown) - caret_at))
        prefix = "…" if left else ""
        suffix = "…" if left + _WINDOW < len(line) else ""
        # Tabs keep their width in the caret line, so that the caret stays under its word.
        pad = "".join("\t" if c == "\t" else " " for c in prefix + shown[:caret_at])

        gutter = " " * len(str(line_no))
        return (
            f"{gutter}--> {self.name or '<text>'}:{line_no}:{column}\n"
            f"{gutter} |\n"
            f"{line_no} | {prefix}{shown}{suffix}\n"
            f"{gutter} | {pad}{'^' * carets}"
        )
