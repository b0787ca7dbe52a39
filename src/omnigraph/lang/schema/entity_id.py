"""Entity ids: the canonical text of a key value, and the id of a key.

These functions are the reference. The vectorised implementation must give the same ids.
"""

# See docs/decisions/0013-an-edge-key-names-both-ends.md

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from omnigraph.lang.schema.canonical import compact
from omnigraph.lang.types import Scalar

if TYPE_CHECKING:
    from fractions import Fraction

KeyValue = str | bool | int | float | date
"""A value of a key property. A date or time can also be given as a number of days or milliseconds since 1970."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def entity_id(members: Sequence[tuple[Scalar, KeyValue]]) -> str:
    """The id of an entity from the values of its key, in key order.

    The id of a single value is its text. The id of several values is a JSON array of their texts.

    >>> entity_id([(Scalar.STRING, "KEW"), (Scalar.U64, 1042)])
    '["KEW","1042"]'

    Raises:
        ValueError: a value has no canonical text.
    """
    if not members:
        raise ValueError("a key has at least one member")
    texts = [canonical_text(scalar, value) for scalar, value in members]
    return texts[0] if len(texts) == 1 else compact([*texts])


def edge_id(src: str, dst: str, members: Sequence[tuple[Scalar, KeyValue]] = ()) -> str:
    """The id of an edge with a key: a composite key that starts with the ids of both endpoints.

    >>> edge_id("ash", "oak")
    '["ash","oak"]'
    """
    return entity_id([(Scalar.STRING, src), (Scalar.STRING, dst), *members])


def canonical_text(scalar: Scalar, value: KeyValue) -> str:
    """The canonical text of a key value.

    >>> canonical_text(Scalar.F32, 0.1), canonical_text(Scalar.F64, 1e21), canonical_text(Scalar.F64, -0.0)
    ('0.1', '1000000000000000000000', '0')

    Raises:
        ValueError: the value does not have the type, is not finite, or its type is not allowed in keys.
    """
    match scalar:
        case Scalar.STRING if isinstance(value, str):
            return value
        case Scalar.BOOL if isinstance(value, bool):
            return "true" if value else "false"
        case Scalar.DATE if isinstance(value, date | int) and not isinstance(value, bool | datetime):
            return str(value if isinstance(value, int) else (value - _EPOCH.date()).days)
        case Scalar.DATETIME if isinstance(value, datetime | int) and not isinstance(value, bool):
            return str(value if isinstance(value, int) else _milliseconds(value))
        case _ if scalar.is_integer and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case _ if scalar.is_float and isinstance(value, int | float) and not isinstance(value, bool):
            return _float_text(float(value), scalar)
    raise ValueError(f"{value!r} is not a valid key value of type {scalar.value}")


def _milliseconds(value: datetime) -> int:
    # The default zone is UTC, as in both languages.
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _float_text(value: float, scalar: Scalar) -> str:
    if not math.isfinite(value):
        raise ValueError("a key is a finite number")
    if value == 0:
        return "0"
    text = _shortest_f32(value) if scalar is Scalar.F32 else repr(value)
    fixed = format(Decimal(text), "f")
    return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed


def _shortest_f32(value: float) -> str:
    """The shortest decimal that parses to a 32-bit float. Of several, the nearest one; on a tie, the even one."""
    from fractions import Fraction

    bits = _f32_bits(abs(value))
    exact = _f32_value(bits)
    if bits == 0:
        return "0"
    low, high = (exact + _f32_value(bits - 1)) / 2, (exact + _f32_value(bits + 1)) / 2
    even = bits % 2 == 0
    for digits in range(1, 10):
        mantissa, _, exponent = format(Decimal(float(exact)), f".{digits - 1}e").partition("e")
        step = Fraction(10) ** (int(exponent) - digits + 1)
        near = int(mantissa.replace(".", ""))
        # At a power of two, the rounding interval is asymmetric: the nearest decimal can be outside, the next inside.
        inside = [
            number
            for number in (near - 1, near, near + 1)
            if low < number * step < high or (even and number * step in (low, high))
        ]
        if inside:
            best = min(inside, key=lambda number: (abs(number * step - exact), number % 2))
            return f"{'-' if value < 0 else ''}{best}e{int(exponent) - digits + 1}"
    raise AssertionError("nine digits name every 32-bit float")


def _f32_bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _f32_value(bits: int) -> Fraction:
    from fractions import Fraction

    if bits >= 0x7F800000:
        return Fraction(2) ** 128
    return Fraction(float(struct.unpack("<f", struct.pack("<I", bits))[0]))
