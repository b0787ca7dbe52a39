"""Converts Python values, from JSON or from a program, to Arrow columns without loss.

A column with values of one Python type is converted in one call. A mixed column is converted value by value.
"""

# See docs/decisions/0071-a-number-is-rounded-once.md

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import cut
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType


class Fault(StrEnum):
    """The kind of a wrong value."""

    TYPE = "type"
    """The value is of another type."""
    VALUE = "value"
    """The value is of the right type, but not allowed."""
    ITEM = "item"
    """An item of a list is null or of another type. The list is kept, with null as the item."""


_Rows = np.ndarray[tuple[int], np.dtype[np.int64]]

Refuse = Callable[[int, str, Fault], None]
"""Called for a value that does not fit, with its row, a message and the kind of fault. The value becomes null."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT32 = ValueType(Scalar.F32)
_NONE = type(None)
_MOST_DIGITS = 4000
_NULL_ELEMENT = "every element of a vector must be a finite number"
_NULL_ITEM = "an item of the list: null is not allowed"
NO_ID = "; an id is a text, even if the key is a number"
"""Added to the message if an endpoint of an edge is not a text."""


class JsonNumber:
    """A JSON number with a decimal point or an exponent, as text. It is rounded once, to the type of its column."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _RefusedError(Exception):
    def __init__(self, message: str, fault: Fault = Fault.TYPE) -> None:
        super().__init__(message)
        self.message = message
        self.fault = fault


def column(values: Sequence[Any], kind: ValueType, refuse: Refuse, *, null_items: bool = False) -> pa.Array:
    """Convert the values of one property to an Arrow column that `convert` can convert to its type without loss.

    Args:
        values: one per row; None is null.
        kind: the property's type.
        refuse: called with values that do not fit.
        null_items: whether items of lists may be null. Items of another type then become null.
    """
    if kind.list or kind.is_vector:
        return _lists(values, kind, refuse, null_items and not kind.is_vector)
    types = set(map(type, values))
    types.discard(_NONE)
    if not types:
        return pa.nulls(len(values))
    converted = _of_one_type(values, types, kind.scalar)
    return converted if converted is not None else _one_by_one(values, kind.scalar, refuse)


def _of_one_type(values: Sequence[Any], types: set[type], scalar: Scalar) -> pa.Array | None:
    """The column, if all values have the usual Python type of the property; None if they are converted one by one."""
    try:
        if types == {str} and not (scalar is Scalar.BOOL or scalar.is_numeric):
            return pa.array(values, pa.utf8())
        if types == {bool} and scalar is Scalar.BOOL:
            return pa.array(values, pa.bool_())
        if types == {int} and scalar.is_integer:
            return pa.array(values, pa.uint64() if scalar is Scalar.U64 else pa.int64())
        if types == {float} and scalar.is_float:
            return pa.array(values, pa.float64())
        if scalar.is_float and types <= {JsonNumber, int}:
            texts = [v if v is None else v.text if type(v) is JsonNumber else str(v) for v in values]
            return pa.array(texts, pa.utf8()).cast(pa.float32() if scalar is Scalar.F32 else pa.float64())
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        pass
    return None


def _one_by_one(values: Sequence[Any], scalar: Scalar, refuse: Refuse) -> pa.Array:
    take, stored = _CONVERTERS[scalar]
    out: list[Any] = []
    for row, value in enumerate(values):
        try:
            out.append(None if value is None else take(value, scalar))
        except _RefusedError as error:
            out.append(None)
            refuse(row, error.message, error.fault)
    if scalar is Scalar.BLOB:
        return _blobs(out)
    return pa.array(out, stored)


def _text(value: Any, _: Scalar) -> str:
    if not isinstance(value, str):
        raise _RefusedError(f"expected a text, found {type_label(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _RefusedError("the text contains half of a surrogate pair", Fault.VALUE) from None
    return str(value)


def _boolean(value: Any, _: Scalar) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise _RefusedError(f"expected true or false, found {type_label(value)}")
    return bool(value)


def _integer(value: Any, scalar: Scalar) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise _RefusedError(f"expected a whole number, found {type_label(value)}")
    number = operator.index(value)
    low, high = INTEGER_RANGES[scalar]
    if not low <= number <= high:
        raise _RefusedError(f"out of range for {scalar.value}", Fault.VALUE)
    return number


def _float(value: Any, scalar: Scalar) -> float:
    if isinstance(value, JsonNumber):
        return _rounded(value.text, scalar)
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise _RefusedError(f"expected a number, found {type_label(value)}")
    try:
        return float(value)
    except OverflowError:
        raise _RefusedError("the number is not finite, or too large", Fault.VALUE) from None


def _rounded(text: str, scalar: Scalar) -> float:
    number: float = pa.scalar(text).cast(pa.float32() if scalar is Scalar.F32 else pa.float64()).as_py()
    return number


def _date(value: Any, scalar: Scalar) -> int | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH.date()).days
    millis = _moment(value, scalar, parse_date)
    if millis is None or not isinstance(value, datetime | np.datetime64):
        return millis
    return millis // 86_400_000


def _datetime(value: Any, scalar: Scalar) -> int | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH.date()).days * 86_400_000
    return _moment(value, scalar, parse_datetime)


def _moment(value: Any, scalar: Scalar, parse: Callable[[str], int]) -> int | None:
    """A date or time as a number: parsed from a text, the number itself, or the milliseconds of a Python datetime."""
    if isinstance(value, datetime | np.datetime64):
        if value != value:  # NaT of pandas and numpy
            return None
        if isinstance(value, np.datetime64):
            return int(value.astype("datetime64[ms]").astype(np.int64))
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            raise _RefusedError(f"{cut(repr(value))}: {error}", Fault.VALUE) from None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = operator.index(value)
        if not -(2**63) <= number < 2**63:
            raise _RefusedError("outside the years 1 to 9999", Fault.VALUE)
        return number
    raise _RefusedError(f"expected a {scalar.value} as text or a whole number, found {type_label(value)}")


def _blob(value: Any, _: Scalar) -> str | bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return _text(value, _)


def _blobs(values: list[str | bytes | None]) -> pa.Array:
    """A binary column; if some values are texts, a text column with bytes as `base64:` texts."""
    if any(isinstance(value, str) for value in values):
        from base64 import b64encode

        return pa.array([f"base64:{b64encode(v).decode()}" if isinstance(v, bytes) else v for v in values], pa.utf8())
    return pa.array(values, pa.large_binary())


_CONVERTERS: dict[Scalar, tuple[Callable[[Any, Scalar], Any], pa.DataType]] = {
    Scalar.STRING: (_text, pa.utf8()),
    Scalar.BLOB: (_blob, pa.utf8()),
    Scalar.BOOL: (_boolean, pa.bool_()),
    Scalar.I32: (_integer, pa.int64()),
    Scalar.I64: (_integer, pa.int64()),
    Scalar.U32: (_integer, pa.int64()),
    Scalar.U64: (_integer, pa.uint64()),
    Scalar.F32: (_float, pa.float64()),
    Scalar.F64: (_float, pa.float64()),
    Scalar.DATE: (_date, pa.int64()),
    Scalar.DATETIME: (_datetime, pa.int64()),
}


def _lists(values: Sequence[Any], kind: ValueType, refuse: Refuse, null_items: bool) -> pa.Array:
    """Lists and vectors: converts all items as one column, then splits them into rows."""
    if kind.is_vector and values and all(type(v) is np.ndarray and v.ndim == 1 for v in values):
        return _arrays(values)
    items: list[Any] = []
    rows: list[int] = []
    ends = np.zeros(len(values) + 1, np.int32)
    absent = np.zeros(len(values), bool)
    for row, value in enumerate(values):
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = list(value)
        if isinstance(value, list | tuple):
            items += value
            rows += [row] * len(value)
        else:
            absent[row] = True
            if value is not None:
                refuse(row, f"expected a list, found {type_label(value)}", Fault.TYPE)
        ends[row + 1] = len(items)

    def refuse_item(item: int, message: str, fault: Fault) -> None:
        row = rows[item]
        if null_items and fault is Fault.TYPE:
            refuse(row, message, Fault.ITEM)
        elif not absent[row]:
            absent[row] = True
            refuse(row, message, Fault.VALUE)

    for item, value in enumerate(items):
        if value is None:
            refuse_item(item, _NULL_ELEMENT if kind.is_vector else _NULL_ITEM, Fault.TYPE)
    converted = column(items, _FLOAT32 if kind.is_vector else kind.item, refuse_item)
    if pa.types.is_null(converted.type):
        converted = converted.cast(pa.float32() if kind.is_vector else _CONVERTERS[kind.scalar][1])
    return pa.ListArray.from_arrays(pa.array(ends), converted, mask=pa.array(absent))


def _arrays(values: Sequence[np.ndarray[Any, Any]]) -> pa.Array:
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(values)))


def parents(lists: pa.Array) -> _Rows:
    """For each item of the lists, the number of its row. Unlike `list_parent_indices` of Arrow, skips null lists."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths)


def with_null_items(column: pa.Array) -> _Rows:
    """For each null item of the lists, the number of its row."""
    items = pc.list_flatten(column) if pa.types.is_list(column.type) else None
    if items is None or items.null_count == 0:
        return np.array([], np.int64)
    rows: _Rows = parents(column)[items.is_null().to_numpy(zero_copy_only=False)]
    return rows


def without_gaps(converted: pa.Array, kind: ValueType, refused: Sequence[int]) -> pa.Array:
    """Put a placeholder into rows of a required column whose value was refused.

    The placeholder is never stored. Without it, the wrong value would also be reported as missing.
    """
    if kind.nullable or not refused:
        return converted
    if pa.types.is_null(converted.type):
        converted = converted.cast(arrow_type(kind))
    refused_rows = np.zeros(len(converted), bool)
    refused_rows[list(refused)] = True
    return pc.if_else(pa.array(refused_rows), _placeholder(converted.type, kind), converted)


def without_ids(ids: pa.Array, refused: Sequence[int]) -> pa.Array:
    """Set the id to null in rows whose key was refused, so that a wrong key is not reported twice."""
    if not refused or pa.types.is_null(ids.type):
        return ids
    refused_rows = np.zeros(len(ids), bool)
    refused_rows[list(refused)] = True
    return pc.if_else(pa.array(refused_rows), pa.scalar(None, ids.type), ids)


def _placeholder(stored: pa.DataType, kind: ValueType) -> pa.Scalar:
    if pa.types.is_list(stored) or pa.types.is_fixed_size_list(stored):
        return pa.scalar([0.0] * (kind.dim or 0), stored)
    if pa.types.is_string(stored):
        texts = {Scalar.DATE: "1970-01-01", Scalar.DATETIME: "1970-01-01", Scalar.BLOB: "base64:"}
        return pa.scalar(texts.get(kind.scalar, ""))
    if pa.types.is_large_binary(stored):
        return pa.scalar(b"", stored)
    return pa.scalar(0, pa.int32()).cast(stored)


def type_label(value: Any) -> str:
    """The name of the type of a value for messages."""
    if isinstance(value, bool | np.bool_):
        return "true or false"
    if isinstance(value, int | float | np.number | JsonNumber):
        return "a number"
    names = {str: "a text", list: "a list", tuple: "a list", dict: "an object", _NONE: "null"}
    return names.get(type(value), type(value).__name__)


def json_integer(text: str) -> int:
    """Parse a JSON integer. A number with too many digits for Python becomes one that is out of range for all types."""
    if len(text) <= _MOST_DIGITS:
        return int(text)
    number: int = 10**_MOST_DIGITS
    return -number if text.startswith("-") else number


_JSON_TYPES = {
    Scalar.STRING: pa.utf8(),
    Scalar.BLOB: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.VECTOR: pa.list_(pa.float32()),
}


def json_type(kind: ValueType, times_as_text: bool) -> pa.DataType:
    """The Arrow type for reading a value from JSON. Dates are read as text or as numbers."""
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        item = pa.utf8() if times_as_text else pa.int64()
    else:
        item = _JSON_TYPES[kind.scalar]
    return pa.list_(item) if kind.list else item
