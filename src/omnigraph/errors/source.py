"""Locations in source text, and how error messages quote source lines and values."""

# See docs/decisions/0006-places-are-bytes.md

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from omnigraph.dataclass import dataclass

_WINDOW = 120
"""Maximum length of a quoted source line, in characters."""

MOST = 200
"""Maximum length of a quoted text, in characters."""

_ITEMS = 20
"""Maximum number of quoted items of a list."""

_MANY_DIGITS = 10**40

_DIRECTIONS = {0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
"""Line separators and characters that change the order in which a terminal shows a line."""

_CONTROLS = dict.fromkeys(
    {*range(32), *range(127, 160), *_DIRECTIONS} - {ord("\t"), ord("\n")}, "\N{REPLACEMENT CHARACTER}"
)
_ESCAPES = {one: f"\\u{one:04x}" for one in _DIRECTIONS} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def printable(text: str) -> str:
    """Replace control characters, so that a quoted text cannot send commands to the terminal or reorder its lines."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    r"""A text on one line, with line breaks and direction marks as escapes, and without other control characters.

    >>> one_line("a\nb\u202ec")
    'a\\nb\\u202ec'
    """
    return text if text.isprintable() else printable(text.translate(_ESCAPES))


def cut(text: str, most: int = MOST) -> str:
    """Quote a text in an error message. A long text is truncated, and its length is added.

    >>> cut("short"), cut("x" * 300, 3)
    ('short', 'xxx… (300 characters)')
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def shown(value: object) -> str:
    """Quote a value in an error message, truncated if it is long.

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
        return "a number with too many digits to print"
    if isinstance(value, date):  # datetime is a subclass
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
        """The span from the start of this one to the end of `other`."""
        return Span(self.start, max(self.end, other.end))


class Location(NamedTuple):
    """Line and column, both counted from 1. The column counts characters, not bytes."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class SourceText:
    """The content of a source file, or a text without a file.

    Attributes:
        text: the text.
        name: the name of the file; None for a text without a file.
        first_line: the number of the first line, if the text is a part of a file.
    """

    text: str
    name: str | None = None
    first_line: int = 1

    def locate(self, offset: int) -> Location:
        """Line and column of a byte offset."""
        before = self.text.encode()[:offset].decode(errors="ignore")
        line_start = before.rfind("\n") + 1
        return Location(before.count("\n") + self.first_line, len(before) - line_start + 1)

    def excerpt(self, span: Span) -> str:
        """The source line with carets under the span, as compilers print it."""
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
        # Repeat tabs in the caret line, so that the carets are aligned with the source line.
        pad = "".join("\t" if c == "\t" else " " for c in prefix + shown[:caret_at])

        gutter = " " * len(str(line_no))
        return (
            f"{gutter}--> {self.name or '<text>'}:{line_no}:{column}\n"
            f"{gutter} |\n"
            f"{line_no} | {prefix}{shown}{suffix}\n"
            f"{gutter} | {pad}{'^' * carets}"
        )
