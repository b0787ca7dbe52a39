"""Layout of formatted source text. Preserves the comments of the original."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from omnigraph.errors import Span
from omnigraph.lang.tokens import Comment, Tokens

INDENT = "    "
WIDTH = 100
"""Maximum length of a printed line. Longer items are split."""

_REST_OF_LINE = re.compile(rb"[ \t\r,]*")


class Layout:
    """Collects printed lines. Without an original text, the result depends only on the syntax tree.

    With an original text, its comments are kept. A comment before or inside an item becomes a separate line above the
    item. A comment after an item stays at the end of its line. Single blank lines between items are kept.
    """

    def __init__(self, original: Tokens | None = None) -> None:
        self._lines: list[str] = []
        self._level = 0
        self._original = original
        self._comments: Sequence[Comment] = original.comments if original else ()
        self._starts = [comment.span.start for comment in self._comments]
        self._next = 0
        self._bytes = original.source.text.encode() if original else b""
        self._last_end = 0
        self._fresh = True

    def line(self, text: str, span: Span | None = None) -> None:
        """Add an item on a separate line. `span` is its location in the original."""
        self._place(text, span)
        if span is not None:
            self._trailing_comments()

    def open(self, text: str, span: Span | None = None) -> None:
        """Add the first line of a block. Later lines are indented until `close`. `span` covers the opening only."""
        self._place(text, span)
        self._level += 1
        if span is not None:
            self._trailing_comments()
        self._fresh = True

    def close(self, text: str = "}", end: int | None = None) -> None:
        """Add the last line of a block. `end` is the offset after the closing brace in the original."""
        if end is not None:
            self._flush(end - 1)
        self._level -= 1
        self._fresh = True
        self._emit(text)
        self._fresh = False
        if end is not None:
            self._last_end = max(self._last_end, end)
            self._trailing_comments()

    def blank(self) -> None:
        """Add a blank line, except at the start of a block or after another blank line."""
        if self._lines and self._lines[-1] and not self._fresh:
            self._lines.append("")

    def text(self) -> str:
        """All lines as a text, with the remaining comments at the end."""
        self._flush(len(self._bytes) + 1)
        while self._lines and not self._lines[-1]:
            self._lines.pop()
        return "\n".join(self._lines) + "\n" if self._lines else ""

    def opening(self, span: Span) -> Span:
        """The part of the span of a block up to its opening brace, in the original."""
        if self._original is None:
            return span
        kinds = self._original.kinds
        brace = bisect_left(self._original.starts, span.start)
        while kinds[brace] != "{":
            brace += 1
        return Span(span.start, self._original.ends[brace])

    def has_comment(self, span: Span) -> bool:
        """Whether the span contains a comment. If so, the item cannot be printed on one line."""
        first = bisect_left(self._starts, span.start, self._next)
        return first < len(self._starts) and self._starts[first] < span.end

    def _emit(self, text: str) -> None:
        self._lines.append(INDENT * self._level + text if text else "")
        self._fresh = False

    def _place(self, text: str, span: Span | None) -> None:
        """Add an item, after the comments before it and inside it."""
        if span is not None:
            self._flush(span.start)
            if self._blank_between(self._last_end, span.start):
                self.blank()
            while self._next < len(self._comments) and self._starts[self._next] < span.end:
                self._emit(self._comments[self._next].text.rstrip())
                self._next += 1
            self._last_end = max(self._last_end, span.end)
        self._emit(text)

    def _flush(self, until: int) -> None:
        """Add the comments before an offset, each on a separate line."""
        while self._next < len(self._comments) and self._starts[self._next] < until:
            comment = self._comments[self._next]
            self._next += 1
            if self._blank_between(self._last_end, comment.span.start):
                self.blank()
            self._emit(comment.text.rstrip())
            self._last_end = max(self._last_end, comment.span.end)

    def _trailing_comments(self) -> None:
        """Append the comments after the item to its last line."""
        while self._next < len(self._comments):
            comment = self._comments[self._next]
            gap = _REST_OF_LINE.match(self._bytes, self._last_end)
            if gap is None or gap.end() != comment.span.start:
                return
            self._lines[-1] += "  " + comment.text.rstrip()
            self._next += 1
            self._last_end = max(self._last_end, comment.span.end)

    def _blank_between(self, start: int, end: int) -> bool:
        return self._bytes[start:end].count(b"\n") > 1
