"""HTML for notebooks. Every text is escaped, and control characters are made visible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

from omnigraph.errors.source import printable

_LONGEST = 200
"""Maximum number of characters of a value."""

_RIGHT = ' style="text-align:right"'


def html_text(text: str) -> str:
    """A text as HTML, truncated if it is long.

    >>> html_text("<b>&")
    '&lt;b&gt;&amp;'
    """
    return escape(printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"))


def html_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    *,
    numbers: Collection[int] = (),
    below: str = "",
) -> str:
    """A table.

    Args:
        names: the header.
        rows: the cells; None for null.
        numbers: the positions of right-aligned columns.
        below: a line of text below the table.
    """
    styles = [_RIGHT if position in numbers else "" for position in range(len(names))]
    head = "".join(f"<th{style}>{html_text(name)}</th>" for name, style in zip(names, styles, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell(cell, style) for cell, style in zip(row, styles, strict=True))}</tr>" for row in rows
    )
    line = f"<p>{html_text(below)}</p>" if below else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{line}"


def html_members(title: str, members: Mapping[str, str | None]) -> str:
    """A title, and a table with one line per member. Members without a value are left out."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html_text(name)}</th><td>{html_text(value)}</td></tr>'
        for name, value in members.items()
        if value is not None
    )
    return f"<p><b>{html_text(title)}</b></p><table><tbody>{rows}</tbody></table>"


def html_code(text: str) -> str:
    """A source text."""
    return f"<pre>{escape(printable(text))}</pre>"


def _cell(text: str | None, style: str) -> str:
    return f"<td{style}><i>null</i></td>" if text is None else f"<td{style}>{html_text(text)}</td>"
