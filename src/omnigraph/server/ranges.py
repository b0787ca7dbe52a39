"""The headers of conditional and partial requests: ranges and entity tags."""

from __future__ import annotations

import re

from omnigraph.dataclass import dataclass

_RANGE = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
_EACH_TAG = re.compile(_TAG)
_LONGEST = 18
"""Maximum number of digits of a position. Longer ones are beyond every blob."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of bytes, `end` exclusive."""

    start: int
    end: int


class UnsatisfiableRangeError(Exception):
    """No byte of a blob is in the range."""

    def __init__(self, start: int, end: int | None) -> None:
        super().__init__()
        self.start = start
        self.end = end


def byte_range(header: str | None, length: int) -> ByteRange | None:
    """The one range of a header; None for no header, several ranges, other units, and invalid ranges.

    >>> byte_range("bytes=2-4", 10), byte_range("bytes=-3", 10), byte_range("bytes=5-2", 10)
    (ByteRange(start=2, end=5), ByteRange(start=7, end=10), None)

    Raises:
        UnsatisfiableRangeError: the range is valid, but has no byte.
    """
    found = None if header is None else _RANGE.fullmatch(header)
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (_position(text) for text in found.groups())
    if first is None:
        assert last is not None
        if last == 0 or length == 0:
            raise UnsatisfiableRangeError(length, None)
        return ByteRange(max(0, length - last), length)
    if last is not None and first > last:
        return None
    if first >= length:
        raise UnsatisfiableRangeError(first, None if last is None else last + 1)
    return ByteRange(first, length if last is None else min(last + 1, length))


def _position(text: str) -> int | None:
    if not text:
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= _LONGEST else 10**_LONGEST


def matches_strongly(header: str, etag: str) -> bool:
    """Whether the header `If-Match` names a tag. A malformed header names none.

    >>> matches_strongly('"a", "b"', '"b"'), matches_strongly('W/"b"', '"b"'), matches_strongly("*", '"b"')
    (True, False, True)
    """
    return header.strip() == "*" or etag in _tags(header)


def matches_weakly(header: str, etag: str) -> bool:
    """Whether the header `If-None-Match` names a tag, weak or strong. A malformed header names none."""
    return header.strip() == "*" or etag in [tag.removeprefix("W/") for tag in _tags(header)]


def allows_range(if_range: str | None, etag: str) -> bool:
    """Whether the header `If-Range` allows a partial answer: there is none, or it is the strong tag."""
    return if_range is None or if_range.strip() == etag


def _tags(header: str) -> list[str]:
    return _EACH_TAG.findall(header) if _TAGS.fullmatch(header) else []
