"""Messages in protocol buffers, field by field: as much of the format as Lance's manifests need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from omnigraph.errors import CorruptionError

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


class Field(NamedTuple):
    """Where a field lies in its message.

    Attributes:
        number: which field it is.
        begin: where it begins, its number included.
        start: where its content begins.
        end: where it ends.
    """

    number: int
    begin: int
    start: int
    end: int


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in order.

    Raises:
        CorruptionError: it is not whole, or of a newer kind.
    """
    place = 0
    while place < len(message):
        begin = place
        key, place = varint(message, place)
        kind = key & 7
        if kind == _BYTES:
            length, place = varint(message, place)
        elif kind == _VARINT:
            length = varint(message, place)[1] - place
        elif kind in (_FIXED_64, _FIXED_32):
            length = 8 if kind == _FIXED_64 else 4
        else:
            raise torn()
        end = place + length
        if end > len(message):
            raise torn()
        yield Field(key >> 3, begin, place, end)
        place = end


def varint(message: bytes, place: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
    raise torn()


def encoded(number: int, content: bytes) -> bytes:
    """A field that holds bytes: a text or another message."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(content)) + content


def _varint_bytes(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def torn() -> CorruptionError:
    """The error for a message that cannot be read."""
    return CorruptionError(
        "a manifest of Lance cannot be read", hint="it is damaged, or was written by a newer release"
    )
