"""Aggregates of groups: rows in group order and in any order give the same results, for all types and values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

from omnigraph.errors import ExecutionError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.budget import chunks
from omnigraph.read.shape import distinct_counts as counting
from omnigraph.read.shape import groups as grouping
from omnigraph.read.shape.distinct_counts import EntityCodes, RowCodes, distinct_counts
from omnigraph.read.shape.group_codes import Codes
from omnigraph.read.shape.groups import Groups, aggregated

ROWS, GROUPS = 200, 17
DAY = dt.date(1969, 12, 20)

VALUES: dict[str, tuple[pa.DataType, Scalar, Callable[[Random], object]]] = {
    "small integers": (pa.int32(), Scalar.I32, lambda rng: rng.randrange(-5, 5)),
    "large integers": (pa.int64(), Scalar.I64, lambda rng: rng.choice([-(2**63), 2**62, 7, 2**40])),
    "unsigned integers": (pa.uint64(), Scalar.U64, lambda rng: rng.choice([0, 2**63, 2**64 - 1, 3])),
    "floats": (pa.float64(), Scalar.F64, lambda rng: rng.choice([1.5, -2.25, 1e300, 0.1])),
    "narrow floats": (pa.float32(), Scalar.F32, lambda rng: rng.choice([1.5, -2.25, 0.5])),
    "zeros": (pa.float64(), Scalar.F64, lambda rng: rng.choice([0.0, -0.0, 1.0])),
    "nan": (pa.float64(), Scalar.F64, lambda rng: rng.choice([math.nan, -1.0, 1.0])),
    "dates": (pa.date32(), Scalar.DATE, lambda rng: DAY + dt.timedelta(rng.randrange(30))),
    "times": (arrow_type(ValueType(Scalar.DATETIME)), Scalar.DATETIME, lambda rng: rng.randrange(-(10**9), 10**9)),
    "texts": (pa.utf8(), Scalar.STRING, lambda rng: rng.choice(["", "b", "ab", "ä"])),
    "booleans": (pa.bool_(), Scalar.BOOL, lambda rng: rng.random() < 0.5),
}
SUMMED = ("small integers", "floats", "narrow floats", "zeros")


def _result(name: str, function: AggregateFunction) -> ValueType:
    scalar = VALUES[name][1]
    match function:
        case AggregateFunction.COUNT:
            return ValueType(Scalar.I64)
        case AggregateFunction.AVG:
            return ValueType(Scalar.F64, nullable=True)
        case AggregateFunction.SUM:
            return ValueType(Scalar.F64 if scalar in (Scalar.F32, Scalar.F64) else Scalar.I64, nullable=True)
        case AggregateFunction.COLLECT:
            return ValueType(scalar, list=True)
    return ValueType(scalar, nullable=True)


def _aggregate(name: str, function: AggregateFunction, *, distinct: bool = False) -> ir.Aggregate:
    kind = VALUES[name][1]
    return ir.Aggregate(function, ir.Column("x", ValueType(kind, nullable=True)), distinct, _result(name, function))


def _made(name: str, seed: int, nulls: float) -> tuple[np.ndarray[Any, Any], pa.Array]:
    """Codes of groups in any order, and values. Some codes do not occur, and some groups have only nulls."""
    rng = Random(seed)
    kind, _, make = VALUES[name]
    codes = [rng.randrange(GROUPS) * 3 for _ in range(ROWS)]
    values = [None if nulls and (rng.random() < nulls or code == 6) else make(rng) for code in codes]
    made = pa.array(values, pa.int64()).view(kind) if name == "times" else pa.array(values, kind)
    return np.array(codes, np.int64), made


def _plain(values: pa.Array) -> list[Any]:
    """Python values. Times are milliseconds, because Python has no such type."""
    plain: list[Any] = (values.view(pa.int64()) if values.type == VALUES["times"][0] else values).to_pylist()
    return plain


def _text(values: pa.Array) -> list[str]:
    """The values, so that NaN is equal to NaN, and 0.0 differs from -0.0."""
    return [repr(value) for value in _plain(values)]


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("function", list(AggregateFunction))
@pytest.mark.parametrize("name", VALUES)
def test_clustered_rows_aggregate_like_others(
    thresholds: Thresholds, name: str, function: AggregateFunction, nulls: float
) -> None:
    if function in (AggregateFunction.SUM, AggregateFunction.AVG) and name not in SUMMED:
        return
    for distinct in (False, True):
        codes, values = _made(name, 3, nulls)
        order = np.argsort(codes, kind="stable")
        aggregate = _aggregate(name, function, distinct=distinct)
        codes, values = codes[order], values.take(pa.array(order))
        thresholds(chunks, CHUNK_ROWS=7)
        thresholds(grouping, MIN_CLUSTERED_ROWS=0)
        clustered = Groups.of(Codes(codes, GROUPS * 3))
        assert clustered.is_clustered
        found = aggregated(aggregate, values, clustered)
        thresholds(grouping, MIN_CLUSTERED_ROWS=10**9)
        plain = Groups.of(Codes(codes, GROUPS * 3))
        assert not plain.is_clustered
        expected = aggregated(aggregate, values, plain)
        assert found.type == expected.type
        assert _text(found) == _text(expected)
        assert clustered.first.tolist() == plain.first.tolist()
        assert clustered.of_row.tolist() == plain.of_row.tolist()
        assert clustered.sizes.tolist() == plain.sizes.tolist()


def _rank(value: Any) -> tuple[bool, Any]:
    return (value != value, 0 if value != value else value)


@pytest.mark.parametrize("name", VALUES)
def test_min_and_max_are_the_first_and_last_in_order(name: str) -> None:
    """Of equal values, `min` is the one of the first row and `max` the one of the last row, as after a stable sort."""
    codes, values = _made(name, 4, 0.2)
    groups = Groups.of(Codes(codes, GROUPS * 3))
    lowest = aggregated(_aggregate(name, AggregateFunction.MIN), values, groups)
    highest = aggregated(_aggregate(name, AggregateFunction.MAX), values, groups)
    for number, code in enumerate(sorted(set(codes.tolist()))):
        mine = [v for c, v in zip(codes.tolist(), _plain(values), strict=True) if c == code and v is not None]
        ordered = sorted(mine, key=_rank)
        assert repr(_plain(lowest)[number]) == repr(ordered[0] if ordered else None)
        assert repr(_plain(highest)[number]) == repr(ordered[-1] if ordered else None)


@pytest.mark.parametrize("stray", [None, 0, 7, ROWS - 1])
def test_distinct_values_that_occur_in_one_group_are_counted(
    thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch, stray: int | None
) -> None:
    """Without sorting, unless a value occurs in a second group."""
    thresholds(chunks, CHUNK_ROWS=5)
    thresholds(counting, MARKS_PER_ROW=0, MIN_MARKS=100)
    is_sorted: list[bool] = []

    def sort(keys: Any) -> Any:
        is_sorted.append(True)
        return np.sort(keys)

    monkeypatch.setattr(counting, "in_order", sort)
    rng = Random(2)
    entity = np.array([rng.randrange(-1, 20) for _ in range(ROWS)], np.int64)
    codes = entity % 7
    if stray is not None:
        entity[stray] = 19
        codes[stray] = 8
    groups = Groups.of(Codes(codes, 9))
    found = distinct_counts(groups.rows, groups.count, groups.part, EntityCodes(entity, None, 21, 0))
    pairs = {(c, e) for c, e in zip(codes.tolist(), entity.tolist(), strict=True) if e != -1}
    assert found.tolist() == [sum(c == code for c, _ in pairs) for code in sorted(set(codes.tolist()))]
    assert bool(is_sorted) == (stray is not None)


@pytest.mark.parametrize("marks", [0, 1 << 16])
@pytest.mark.parametrize("clustered", [0, 10**9])
@pytest.mark.parametrize("null", [None, 0, 4])
def test_distinct_values_are_counted(thresholds: Thresholds, marks: int, clustered: int, null: int | None) -> None:
    thresholds(chunks, CHUNK_ROWS=5)
    thresholds(counting, MARKS_PER_ROW=0, MIN_MARKS=marks)
    thresholds(grouping, MIN_CLUSTERED_ROWS=clustered)
    rng = Random(1)
    codes = np.sort(np.array([rng.randrange(30) for _ in range(ROWS)], np.int64))
    entity = np.array([rng.randrange(-1, 20) for _ in range(ROWS)], np.int64)
    groups = Groups.of(Codes(codes, 30))
    if null is None:
        values, of_row = RowCodes(Codes(entity + 1, 21)), (entity + 1).tolist()
        found = distinct_counts(groups.rows, groups.count, groups.part, values)
    elif null == 0:
        of_row = [None if e == -1 else e for e in entity.tolist()]
        found = distinct_counts(groups.rows, groups.count, groups.part, EntityCodes(entity, None, 21, 0))
    else:
        table = np.array([n % 5 for n in range(20)] + [null], np.int32)
        of_row = [None if table[e] == null else int(table[e]) for e in entity.tolist()]
        found = distinct_counts(groups.rows, groups.count, groups.part, EntityCodes(entity, table, 5, null))
    expected = [
        len({v for c, v in zip(codes.tolist(), of_row, strict=True) if c == code and v is not None})
        for code in sorted(set(codes.tolist()))
    ]
    assert found.tolist() == expected


@pytest.mark.parametrize("clustered", [0, 10**9])
def test_sums_are_exact_and_overflow_is_an_error(thresholds: Thresholds, clustered: int) -> None:
    thresholds(grouping, MIN_CLUSTERED_ROWS=clustered)
    groups = Groups.of(Codes(np.array([0, 0, 0, 1]), 2))
    aggregate = _aggregate("large integers", AggregateFunction.SUM)
    values = pa.array([2**62, 2**62 - 1, -(2**60), 5])
    assert aggregated(aggregate, values, groups).to_pylist() == [2**63 - 1 - 2**60, 5]
    with pytest.raises(ExecutionError, match="too large"):
        aggregated(aggregate, pa.array([2**62, 2**62, 0, 5]), groups)
    assert aggregated(aggregate, pa.array([], pa.int64()), Groups.one_group(0)).to_pylist() == [None]
    assert groups.total(np.array([2**61, 2**61, 1, 3])).to_pylist() == [2**62 + 1, 3]
    with pytest.raises(ExecutionError, match="too large"):
        groups.total(np.array([2**62, 2**62, 2**62, 3]))


def test_no_rows_have_no_distinct_values() -> None:
    for groups, expected in ((Groups.one_group(0), [0]), (Groups.of(Codes(np.array([], np.int64), 5)), [])):
        values = EntityCodes(np.array([], np.int64), None, 3, 0)
        assert distinct_counts(0, groups.count, groups.part, values).tolist() == expected
    apart = Groups.of(Codes(np.array([], np.int64), 0, apart=True))
    assert distinct_counts(0, apart.count, apart.part, EntityCodes(np.array([], np.int64), None, 3, 0)).tolist() == []


def test_one_group_exists_without_rows() -> None:
    groups = Groups.one_group(0)
    assert (groups.count, groups.sizes.tolist(), groups.of_row.tolist()) == (1, [0], [])
    lowest = aggregated(_aggregate("dates", AggregateFunction.MIN), pa.array([], pa.date32()), groups)
    assert lowest.to_pylist() == [None]


@pytest.mark.parametrize("size", [1, 3, 7, ROWS])
def test_parts_of_groups_are_their_rows(thresholds: Thresholds, size: int) -> None:
    thresholds(grouping, MIN_CLUSTERED_ROWS=0)
    codes = np.sort(np.array([Random(2).randrange(9) for _ in range(ROWS)] + [100] * 30, np.int64))
    groups = Groups.of(Codes(codes, 101))
    kept = np.arange(len(codes)) % 3 == 0
    kept[codes == 100] = False
    for each in (groups, groups.filter(kept)):
        parts = [each.part(first, min(first + size, each.rows)) for first in range(0, each.rows, size)]
        assert np.concatenate(parts).tolist() == each.of_row.tolist()
    assert groups.filter(kept).sizes.tolist() == np.bincount(groups.of_row[kept], minlength=groups.count).tolist()
