"""SVG pictures. Notebooks show them without JavaScript."""

from __future__ import annotations

import os
from html import escape

from omnigraph.dataclass import dataclass
from omnigraph.errors.source import printable

COLORS = ("#3b78c2", "#d9822b", "#3a9a5b", "#b5485d", "#7d5fb2", "#8a6d4b", "#c45fa0", "#5f7484", "#9aa02c", "#2f9fa8")
"""Colors of series and types. They can be told apart on a light and on a dark page."""

TEXT_SIZE = 12
TEXT_WIDTH = 7.0
"""Estimated width of a character in pixels."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG. A notebook displays it; `print` shows its text.

    Attributes:
        svg: the SVG element.
    """

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file.

        Raises:
            InputError: the file cannot be written.
        """
        from omnigraph.storage.files.local_output import output_file

        with output_file(path) as file:
            file.write(f"{self.svg}\n".encode())

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture of {len(self.svg):,} characters of SVG>"

    def _repr_svg_(self) -> str:
        return self.svg


def svg(width: float, height: float, title: str, *parts: str) -> Picture:
    """A picture with this size in pixels. Lines and texts have the text color of the page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" role="img" '
        f'font-family="sans-serif" font-size="{TEXT_SIZE}" fill="currentColor" stroke="none">'
    )
    return Picture("\n".join([head, f"<title>{text_content(title)}</title>", *parts, "</svg>"]))


def label(x: float, y: float, text: str, *, anchor: str = "start", most: int = 30, extra: str = "") -> str:
    """A text, truncated to a number of characters. `anchor` is start, middle or end."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    title = f"<title>{text_content(text[:1000])}</title>" if shown != text else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{extra}>{text_content(shown)}{title}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, extra: str = "") -> str:
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" stroke="currentColor"{extra}/>'
    )


def text_content(text: str) -> str:
    """A text without markup and without control characters, which XML does not allow."""
    return escape("".join("\N{REPLACEMENT CHARACTER}" if _is_forbidden(c) else c for c in printable(text)))


def _is_forbidden(character: str) -> bool:
    return 0xD800 <= ord(character) <= 0xDFFF or ord(character) in (0xFFFE, 0xFFFF)


def number(value: float) -> str:
    """A coordinate with one decimal."""
    return f"{value:.1f}".removesuffix(".0")
