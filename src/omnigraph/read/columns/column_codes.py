"""Column codes: the values of a column as narrow numbers, so that the values of many rows are compared without Arrow.

Codes are computed once for all entities of a table, and cached. Numbers, dates and booleans are stored in the smallest
integer type that fits. Texts are replaced by their ranks, which have the same order.
"""

# See docs/decisions/0260-conditions-compare-narrow-codes.md

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.query.ir import CompareOp
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Integers, Mask, Numbers
from omnigraph.read.columns.sort_keys import ranks

WHOLE_COLUMN_RATIO = 4
"""If the number of rows is at least 1 / `WHOLE_COLUMN_RATIO` of the entities, codes are computed for a whole column."""

_BYTES_PER_CODE = 8

_EXACT_FLOAT = 2**53
"""Integers up to this number are exact as floats."""

_KERNELS: dict[CompareOp, Callable[..., Mask]] = {
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
}

COMPARED = frozenset(_KERNELS)
"""The operators that compare codes."""

Column = tuple[EntityTable, str]


@dataclass(frozen=True, slots=True)
class ColumnCodes:
    """Codes of a column.

    Attributes:
        values: the code of each entity, by number. An additional last element is the code of null, for `NOTHING`.
        null: the code of null: an integer that is not the code of a value. In floats, null is NaN.
        exact: whether all codes are exact as 64-bit floats.
    """

    values: npt.NDArray[Any]
    null: int = 0
    exact: bool = True

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def is_float(self) -> bool:
        return self.values.dtype.kind == "f"

    def present(self, codes: npt.NDArray[Any]) -> Mask:
        """Mask of the codes that are not null."""
        found: Mask = codes == codes if self.is_float else codes != self.null
        return found


_NONE = ColumnCodes(np.empty(0, np.int8))
"""In the cache, stands for a column whose values cannot be compared as codes."""


def column_ranks(table: EntityTable, name: str) -> Integers:
    """Rank of the value of each entity, by number: 1 or more, and 0 for null. An additional last element is 0."""
    with table.slot(_ranks_label(name)) as slot:
        if slot.value is None:
            return slot.keep(_narrowest(np.append(ranks_from_one(table.whole(name)), 0)))
        found: Integers = slot.value
        return found


def _ranks_label(name: str) -> str:
    return f"ranks of {name}"


def ranks_from_one(values: pa.Array) -> Numbers:
    """Ranks of values from 1; 0 for null."""
    found = ranks(values) + 1
    found[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def comparable_codes(left: Column, right: Column, rows: int) -> tuple[ColumnCodes, ColumnCodes] | None:
    """Codes of two columns that compare like their values.

    None if there are none: if values are not exact as codes, if codes cost more than comparing the values of the rows,
    or if a column is not in memory.

    Args:
        left: a table and the name of a column.
        right: the other table and column.
        rows: number of rows to compare.
    """
    if not _is_simple(left) or not _is_simple(right):
        return None
    kinds = [table.schema.field(name).type for table, name in (left, right)]
    if all(map(_is_text, kinds)):
        return _rank_codes(left, rows) if left == right else _merged_codes(left, right, rows)
    if kinds[0] != kinds[1] and not all(map(_is_number, kinds)):
        return None
    a, b = _cached_numbers(left, rows), _cached_numbers(right, rows)
    if a is None or b is None or (a.is_float != b.is_float and not (a.exact and b.exact)):
        return None
    return a, b


def compare_rows(
    op: CompareOp, left: ColumnCodes, left_numbers: Numbers, right: ColumnCodes, right_numbers: Numbers
) -> Mask:
    """Mask of the rows for which a comparison is true. It is not true if a side is null.

    Args:
        op: the comparison operator.
        left: codes of the left column.
        left_numbers: for each row, the entity whose value is on the left side.
        right: codes of the right column.
        right_numbers: for each row, the entity whose value is on the right side.
    """
    found = np.empty(len(left_numbers), bool)
    for first, last in chunks(len(found)):
        # `NOTHING` (-1) wraps around to the last element.
        a = left.values.take(left_numbers[first:last], mode="wrap")
        b = right.values.take(right_numbers[first:last], mode="wrap")
        here = _KERNELS[op](a, b, out=found[first:last])
        here &= left.present(a)
        here &= right.present(b)
    return found


def _should_build(column: Column, rows: int) -> bool:
    """Whether codes should be computed. A column is not read into memory for them."""
    table, name = column
    if rows * WHOLE_COLUMN_RATIO < table.count or not table.fits(table.slots * _BYTES_PER_CODE):
        return False
    return table.is_cached(name)


def _rank_codes(column: Column, rows: int) -> tuple[ColumnCodes, ColumnCodes] | None:
    """Ranks of a text column, for both sides of a comparison."""
    table, name = column
    if not table.is_cached(_ranks_label(name)) and not _should_build(column, rows):
        return None
    found = ColumnCodes(column_ranks(table, name))
    return found, found


def _merged_codes(left: Column, right: Column, rows: int) -> tuple[ColumnCodes, ColumnCodes] | None:
    """Ranks of two text columns among the values of both."""
    (table, name), (other, other_name) = left, right
    label = f"ranks of {name} with {other.key} {other_name} {other.fingerprint} {other.ref}"
    if not table.is_cached(label) and not (_should_build(left, rows) and _should_build(right, rows)):
        return None
    size = table.slots
    with table.slot(label, f"ranks of {name} with {other.place} {other_name}") as slot:
        if slot.value is None:
            both = pa.concat_arrays([table.whole(name), other.whole(other_name)])
            found = slot.keep(_narrowest(np.insert(ranks_from_one(both), [size, len(both)], 0)))
        else:
            found = slot.value
    return ColumnCodes(found[: size + 1]), ColumnCodes(found[size + 1 :])


def _cached_numbers(column: Column, rows: int) -> ColumnCodes | None:
    table, name = column
    return whole_codes(table, name) if table.is_cached(_numbers_label(name)) or _should_build(column, rows) else None


def _numbers_label(name: str) -> str:
    return f"numbers of {name}"


def whole_codes(table: EntityTable, name: str) -> ColumnCodes | None:
    """Codes of a column of numbers, dates or booleans, which are cached; None if values are not exact as codes."""
    with table.slot(_numbers_label(name)) as slot:
        found: ColumnCodes = slot.value or slot.keep(number_codes(table.whole(name)) or _NONE)
    return None if found is _NONE else found


def number_codes(values: pa.Array) -> ColumnCodes | None:
    """Codes of numbers, dates or booleans; None if a number is NaN, or does not fit 64-bit integers with null."""
    missing: Mask = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        if np.isnan(numbers[~missing]).any():
            return None
        return ColumnCodes(np.append(numbers, numbers.dtype.type(np.nan)))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    bounds = pc.min_max(values).as_py()
    least, most = bounds["min"] or 0, bounds["max"] or 0
    if not np.iinfo(np.int64).min < least <= most <= np.iinfo(np.int64).max:
        return None
    codes = values.fill_null(least).to_numpy(zero_copy_only=False).astype(np.int64)
    codes[missing] = least - 1
    exact = least > -_EXACT_FLOAT and most <= _EXACT_FLOAT
    return ColumnCodes(_narrowest(np.append(codes, least - 1)), least - 1, exact)


def _narrowest(codes: Integers) -> Integers:
    """Codes in the smallest integer type that fits."""
    least, most = int(codes.min()), int(codes.max())
    kinds = (np.int8, np.int16, np.int32, np.int64)
    kind = next(kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return codes.astype(kind)


def _is_simple(column: Column) -> bool:
    table, name = column
    return table.count > 0 and table.has_column(name) and _is_comparable(table.schema.field(name).type)


def _is_comparable(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
