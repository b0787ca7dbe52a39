"""Converts columns of any origin to a declared type without loss.

Usually one Arrow function converts a whole column. Only a column with wrong values is examined value by value, for the
error messages.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import cut
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.temporal import MS_PER_DAY, parse_date, parse_datetime
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.blobs import CELL
from omnigraph.write.rows.values import Fault, parents


class Report(Protocol):
    """A function that reports wrong rows. Its arguments are a mask (true for wrong rows) and a message."""

    def __call__(self, wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None: ...


_DATE = r"^\d{4}-\d\d-\d\d$"
_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,3})?"
_TIMES = ((_TIME + r"$", None), (_TIME + r"(Z|[+-]\d\d:\d\d)$", "UTC"))
"""The standard formats of a timestamp, with and without an offset. Arrow reads them exactly as specified."""

_MOMENT = r"^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:(\.\d{1,3})\d{0,6})?"
_OTHER_TIMES = (
    (_MOMENT + r" ?([+-]\d\d):?(\d\d)$", r"\1T\2\3\4:\5"),
    (_MOMENT + r" ?([+-]\d\d)$", r"\1T\2\3\4:00"),
    (_MOMENT + r" ?(?:[Zz]|UTC)$", r"\1T\2\3Z"),
    (_MOMENT + r"$", r"\1T\2\3"),
)
"""Other formats of a timestamp that databases print: for each, a pattern, and the replacement that produces the
standard format. Digits below a millisecond are dropped."""

_YEARS_IN_DAYS = (parse_date("0001-01-01"), parse_date("9999-12-31"))
_YEARS_IN_MS = (parse_datetime("0001-01-01"), parse_datetime("9999-12-31T23:59:59.999Z"))
_BOUNDED = {Scalar.F32, Scalar.F64, Scalar.DATE, Scalar.DATETIME}
"""Types that allow only a part of the values of their Arrow type: finite numbers, and the years 1 to 9999."""

_WHOLE = pa.decimal256(76, 0)
"""The Arrow type for range checks. It can store the integers of all other Arrow types."""

_MANAGED = "base64:"


def convert(column: pa.Array, target: ValueType, report: Report, *, null_items: bool = False) -> pa.Array:
    """Convert a column to the declared type. Reports rows that do not fit, and returns null for them.

    Args:
        column: the input values.
        target: the declared type.
        report: called with the rows that do not fit.
        null_items: whether items of lists may be null. Items of another type then become null without a report.
    """
    wanted = row_type(target)
    if target.scalar is not Scalar.BLOB:
        column = _plain(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    if column.type == wanted and target.is_plain_scalar and target.scalar not in _BOUNDED:
        return column
    if target.is_vector:
        return _vector(column, target, report)
    if target.list:
        return _list(column, target, report, null_items)
    return _SCALARS[target.scalar](column, wanted, report)


def _plain(column: pa.Array) -> pa.Array:
    """Decode dictionaries and string views to plain arrays of the same values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.utf8())
    if pa.types.is_binary(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column


def _refuse(column: pa.Array, wanted: pa.DataType, report: Report, expected: str, found: str | None = None) -> pa.Array:
    """Report all values, because their type cannot be converted."""
    report(column.is_valid(), f"expected {expected}, found {found or _kind(column.type)}", Fault.TYPE)
    return pa.nulls(len(column), wanted)


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return "a text"
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "a number"
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return "a list"
    if pa.types.is_struct(kind):
        return "an object"
    return str(kind)


def _string(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    return column if pa.types.is_string(column.type) else _refuse(column, wanted, report, "a text")


def _boolean(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    return column if pa.types.is_boolean(column.type) else _refuse(column, wanted, report, "true or false")


def _integer(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    kind = column.type
    if pa.types.is_decimal(kind):
        if kind.scale != 0:
            return _refuse(column, wanted, report, "a whole number", f"decimal({kind.precision}, {kind.scale})")
        column = column.cast(_WHOLE)
    elif not pa.types.is_integer(kind):
        return _refuse(column, wanted, report, "a whole number")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        low, high = _integer_range(wanted)
        numbers = column.cast(_WHOLE)
        wrong = pc.or_(pc.less(numbers, low), pc.greater(numbers, high)).fill_null(False)
        report(wrong, f"out of range for {_INTEGER_NAMES[wanted]}")
        return pc.if_else(wrong, pa.scalar(None, column.type), column).cast(wanted)


_INTEGER_NAMES = {pa.int32(): "I32", pa.int64(): "I64", pa.uint32(): "U32", pa.uint64(): "U64"}


def _integer_range(kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    info = np.iinfo(kind.to_pandas_dtype())
    return pa.scalar(int(info.min), _WHOLE), pa.scalar(int(info.max), _WHOLE)


def _float(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return _refuse(column, wanted, report, "a number")
    numbers = column.cast(wanted, safe=False)
    wrong = pc.invert(pc.is_finite(numbers)).fill_null(False)
    if pc.any(wrong).as_py():
        report(wrong, "the number is not finite, or too large")
        return pc.if_else(wrong, pa.scalar(None, wanted), numbers)
    return numbers


def _date(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    return _within_years(_days(column, wanted, report), pa.int32(), _YEARS_IN_DAYS, report)


def _days(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    kind = column.type
    if pa.types.is_date32(kind):
        return column
    if pa.types.is_string(kind):
        if _all_match(column, _DATE):
            try:
                return column.cast(pa.date32())
            except pa.ArrowInvalid:
                pass
        return _by_value(column, parse_date, pa.int32(), report).cast(pa.int32()).cast(wanted)
    if pa.types.is_integer(kind):
        return _within_years(_signed(column), pa.int64(), _YEARS_IN_DAYS, report).cast(pa.int32()).cast(wanted)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return pc.floor_temporal(_utc(column), unit="day").cast(pa.date32(), safe=False)
    return _refuse(column, wanted, report, "a date")


def _datetime(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    return _within_years(_millis(column, wanted, report), pa.int64(), _YEARS_IN_MS, report)


def _millis(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    kind = column.type
    if pa.types.is_date64(kind):
        return column
    if pa.types.is_string(kind):
        usual = column
        if not any(_all_match(column, pattern) for pattern, _ in _TIMES):
            for pattern, rewritten in _OTHER_TIMES:
                usual = pc.replace_substring_regex(usual, pattern, rewritten)
        for pattern, zone in _TIMES:
            if _all_match(usual, pattern):
                try:
                    return usual.cast(pa.timestamp("ms", zone)).cast(pa.int64()).view(wanted)
                except pa.ArrowInvalid:
                    break
        return _by_value(column, parse_datetime, pa.int64(), report).view(wanted)
    if pa.types.is_integer(kind):
        return _signed(column).view(wanted)
    if pa.types.is_timestamp(kind):
        return _utc(column).cast(pa.int64()).view(wanted)
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, MS_PER_DAY).view(wanted)
    return _refuse(column, wanted, report, "a time")


def _signed(column: pa.Array) -> pa.Array:
    """The values as signed 64-bit integers. Larger values become the largest integer, which range checks refuse."""
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(2**63 - 1, pa.uint64()), skip_nulls=False)
    return column.cast(pa.int64())


def _within_years(column: pa.Array, number: pa.DataType, years: tuple[int, int], report: Report) -> pa.Array:
    """Report values outside the years 1 to 9999, and return null for them."""
    numbers = column.view(number)
    wrong = pc.or_(pc.less(numbers, years[0]), pc.greater(numbers, years[1])).fill_null(False)
    if not pc.any(wrong).as_py():
        return column
    report(wrong, "outside the years 1 to 9999")
    return pc.if_else(wrong, pa.scalar(None, column.type), column)


def _all_match(column: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False


def _utc(column: pa.Array) -> pa.Array:
    """Timestamps in milliseconds; finer digits are dropped. A timestamp without a zone is in UTC."""
    if pa.types.is_date64(column.type):
        return column.view(pa.int64()).view(pa.timestamp("ms"))
    if column.type.unit in ("us", "ns"):
        column = pc.floor_temporal(column, unit="millisecond")
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False)


def _by_value(column: pa.Array, parse: Callable[[str], int], kind: pa.DataType, report: Report) -> pa.Array:
    """Parse each distinct text once. Reports texts that cannot be parsed, and returns null for them."""
    encoded = column.dictionary_encode()
    parsed: list[int | None] = []
    wrong: dict[int, str] = {}
    for i, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            parsed.append(parse(text))
        except ValueError as error:
            parsed.append(None)
            wrong[i] = str(error)
    for i, message in wrong.items():
        report(pc.equal(encoded.indices, i).fill_null(False), f"{cut(repr(encoded.dictionary[i].as_py()))}: {message}")
    return pa.array(parsed, kind).take(encoded.indices)


def row_type(type_: ValueType) -> pa.DataType:
    """The Arrow type of a property in rows to write. A blob is a struct with its content or with a reference."""
    return CELL if type_.scalar is Scalar.BLOB else arrow_type(type_)


def _blob(column: pa.Array, wanted: pa.DataType, report: Report) -> pa.Array:
    """Blob structs from bytes, from `base64:` texts, from URIs, or from structs of this form."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _cells(column.cast(pa.large_binary()), pa.nulls(len(column), pa.utf8()), column.is_null())
    if pa.types.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == {"data", "uri"}:
        return _given_cells(column, report)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return _refuse(column, wanted, report, "base64:…, the address of a source, or bytes")
    text = column.cast(pa.large_string())
    managed = pc.starts_with(text, _MANAGED).fill_null(False)
    bad = np.zeros(len(text), bool)
    content = _decoded(text.filter(managed), bad, np.flatnonzero(managed.to_numpy(zero_copy_only=False)).tolist())
    report(pa.array(bad), "the text after base64: is not base64")
    place = pa.array(np.cumsum(managed.to_numpy(zero_copy_only=False)) - 1)
    data = content.take(pc.if_else(managed, place, pa.scalar(None, place.type)))
    uri = pc.if_else(managed, pa.scalar(None, text.type), text).cast(pa.utf8())
    return _cells(data, uri, pc.or_(text.is_null(), pa.array(bad)))


def _decoded(texts: pa.Array, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], rows: Sequence[int]) -> pa.Array:
    """Decode the text after `base64:`. Marks the rows that are not valid in `bad`."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist()
    encoded = memoryview(texts.buffers()[2] or b"")
    decoded: list[bytes | None] = []
    for row, start, end in zip(rows, offsets, offsets[1:], strict=False):
        try:
            decoded.append(binascii.a2b_base64(encoded[start + len(_MANAGED) : end], strict_mode=True))
        except binascii.Error:
            decoded.append(None)
            bad[row] = True
    return pa.array(decoded, pa.large_binary())


def _given_cells(column: pa.Array, report: Report) -> pa.Array:
    """Blob structs as an export writes them, with either content or a URI."""
    data = pc.struct_field(column, "data").cast(pa.large_binary())
    uri = pc.struct_field(column, "uri").cast(pa.utf8())
    wrong = pc.and_(column.is_valid(), pc.equal(data.is_valid(), uri.is_valid()))
    report(wrong, "a blob needs either data or a uri, and not both")
    return _cells(data, uri, pc.or_(column.is_null(), wrong))


def _cells(data: pa.Array, uri: pa.Array, absent: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([data, uri], fields=list(CELL), mask=absent)


def _vector(column: pa.Array, target: ValueType, report: Report) -> pa.Array:
    """Convert to vectors. Reports lists of another length, and numbers that are not finite."""
    wanted = arrow_type(target)
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return _refuse(column, wanted, report, f"a list of {target.dim} numbers")
    lengths = pc.list_value_length(column)
    wrong = pc.not_equal(lengths, target.dim).fill_null(False)
    report(wrong, f"a vector must have {target.dim} numbers")
    column = pc.if_else(wrong, pa.scalar(None, kind), column) if pc.any(wrong).as_py() else column
    valid = column.is_valid()
    items = pc.list_flatten(column)
    numbers = _float(items, pa.float32(), ignore_report)
    broken = pc.is_null(numbers)
    if pc.any(broken).as_py():
        rows = np.repeat(np.flatnonzero(valid.to_numpy(zero_copy_only=False)), target.dim or 0)
        mask = np.zeros(len(column), bool)
        mask[rows[broken.to_numpy(zero_copy_only=False)]] = True
        report(pa.array(mask), "every element of a vector must be a finite number")
        column = pc.if_else(pa.array(mask), pa.scalar(None, kind), column)
        valid = column.is_valid()
        numbers = _float(pc.list_flatten(column), pa.float32(), ignore_report)
    return _fixed_lists(numbers, valid, wanted)


def ignore_report(wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
    """Ignore a report, because another check reports the same rows."""


def _fixed_lists(numbers: pa.Array, valid: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Vectors from their numbers, with null for rows without a vector."""
    if pc.all(valid).as_py() is not False:
        return pa.FixedSizeListArray.from_arrays(numbers, type=wanted)
    present = valid.to_numpy(zero_copy_only=False)
    dense = np.zeros((len(present), wanted.list_size), np.float32)
    dense[present] = numbers.to_numpy(zero_copy_only=False).reshape(-1, wanted.list_size)
    return pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), type=wanted, mask=pa.array(~present))


def _list(column: pa.Array, target: ValueType, report: Report, null_items: bool) -> pa.Array:
    """Convert to lists. Reports lists with an item that does not fit the type."""
    wanted = arrow_type(target)
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_field))
    elif not pa.types.is_list(kind):
        return _refuse(column, wanted, report, "a list")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    owners = parents(column)
    absent = column.is_null().to_numpy(zero_copy_only=False).copy()

    def report_items(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        if null_items and fault is Fault.TYPE:
            return
        rows = np.zeros(len(column), bool)
        rows[owners[mask.to_numpy(zero_copy_only=False)]] = True
        absent[rows] = True
        report(pa.array(rows), f"an item of the list: {message}")

    items = pc.list_flatten(column)
    if not null_items:
        report_items(items.is_null(), "null is not allowed")
    converted = convert(items, target.item, report_items)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), converted, type=wanted, mask=pa.array(absent))


_SCALARS: dict[Scalar, Callable[[pa.Array, pa.DataType, Report], pa.Array]] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _boolean,
    Scalar.I32: _integer,
    Scalar.I64: _integer,
    Scalar.U32: _integer,
    Scalar.U64: _integer,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.BLOB: _blob,
}
