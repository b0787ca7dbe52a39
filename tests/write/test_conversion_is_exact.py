"""Columns are converted to the declared type exactly, and every value that does not fit is reported."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.write.rows.convert import convert, row_type
from omnigraph.write.rows.values import Fault


def run(column: pa.Array, target: ValueType) -> tuple[pa.Array, dict[int, str]]:
    """The converted column, and the problems by row."""
    wrong: dict[int, str] = {}

    def report(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
            wrong.setdefault(row, message)

    converted = convert(column, target, report)
    converted.validate(full=target.scalar is not Scalar.DATETIME)
    assert converted.type == row_type(target)
    assert len(converted) == len(column)
    assert all(not converted[row].is_valid for row in wrong)
    return converted, wrong


def millis(converted: pa.Array) -> list[int | None]:
    numbers: list[int | None] = converted.view(pa.int64()).to_pylist()
    return numbers


S = ValueType


@pytest.mark.parametrize(
    ("column", "target", "wrong"),
    [
        (pa.array(["a", None]), S(Scalar.STRING), []),
        (pa.array(["a"], pa.large_string()), S(Scalar.STRING), []),
        (pa.array(["a", "a"]).dictionary_encode(), S(Scalar.STRING), []),
        (pa.array([1, None]), S(Scalar.STRING), [0]),
        (pa.array([True, None]), S(Scalar.BOOL), []),
        (pa.array([1]), S(Scalar.BOOL), [0]),
        (pa.array([3.0]), S(Scalar.I64), [0]),
        (pa.array(["3"]), S(Scalar.I64), [0]),
        (pa.array([2**31 - 1, 2**31, None, -(2**31), -(2**31) - 1]), S(Scalar.I32), [1, 4]),
        (pa.array([2**64 - 1], pa.uint64()), S(Scalar.I64), [0]),
        (pa.array([-1, 1]), S(Scalar.U64), [0]),
        (pa.array([2**64 - 1, None, 0], pa.decimal128(20, 0)), S(Scalar.U64), []),
        (pa.array([2**64, -1, 7], pa.decimal128(20, 0)), S(Scalar.U64), [0, 1]),
        (pa.array([2**63, 2**63 - 1, -(2**63)], pa.decimal256(40, 0)), S(Scalar.I64), [0]),
        (pa.array([2**32 - 1, 10**17], pa.decimal64(18, 0)), S(Scalar.U32), [1]),
        (pa.array([-(2**31), -(2**31) - 1], pa.decimal128(10, 0)), S(Scalar.I32), [1]),
        (pa.array([Decimal("3.00"), None], pa.decimal128(5, 2)), S(Scalar.I64), [0]),
        (pa.array([[3, 2**64 - 1], [-1]], pa.list_(pa.decimal128(20, 0))), S(Scalar.U64, list=True), [1]),
        (pa.array([1.5, math.nan, math.inf, None]), S(Scalar.F64), [1, 2]),
        (pa.array([1e39, 1.0]), S(Scalar.F32), [0]),
        (pa.array([1, 2]), S(Scalar.F64), []),
        (pa.array(["2020-02-29", "2021-02-29", "x", None]), S(Scalar.DATE), [1, 2]),
        (pa.array([0, 2**31]), S(Scalar.DATE), [1]),
        (pa.array([1.5]), S(Scalar.DATE), [0]),
        (pa.array(["2020-01-01T00:00:00Z", "2020-01-01 24:00:00"]), S(Scalar.DATETIME), [1]),
        (pa.array([[1.0, 2.0], [1.0], None, [1.0, None], [1.0, math.nan]]), S(Scalar.VECTOR, dim=2), [1, 3, 4]),
        (pa.array(["x"]), S(Scalar.VECTOR, dim=2), [0]),
        (pa.array([["a"], [], None, ["a", None]]), S(Scalar.STRING, list=True), [3]),
        (pa.array([[1, 2**40], [3]]), S(Scalar.I32, list=True), [0]),
        (pa.array(["a"]), S(Scalar.STRING, list=True), [0]),
        (pa.array(["base64:aGk=", "base64:", "base64:!", "https://x/y", None]), S(Scalar.BLOB), [2]),
        (pa.array([b"hi", None]), S(Scalar.BLOB), []),
        (pa.nulls(3), S(Scalar.VECTOR, dim=4), []),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_reported_by_row(column: pa.Array, target: ValueType, wrong: list[int]) -> None:
    converted, reported = run(column, target)
    assert sorted(reported) == wrong
    for row in range(len(column)):
        assert converted[row].is_valid == (column[row].is_valid and row not in wrong)


def test_integers_in_decimal_columns_are_exact() -> None:
    """Spark's representation of unsigned 64-bit numbers, and other decimals without a fraction."""
    numbers = [2**64 - 1, 2**53 + 1, None, 0]
    for kind in (pa.decimal128(20, 0), pa.decimal128(38, 0), pa.decimal256(76, 0)):
        converted, wrong = run(pa.array(numbers, kind), S(Scalar.U64))
        assert (converted.to_pylist(), wrong) == (numbers, {})
    _, wrong = run(pa.array([Decimal("3.5")], pa.decimal128(5, 2)), S(Scalar.U64))
    assert wrong == {0: "expected a whole number, found decimal(5, 2)"}


def test_vectors_lists_and_blobs_keep_their_values() -> None:
    vectors, _ = run(pa.array([[1.5, 2.5], None, [3.0, 4.0]]), S(Scalar.VECTOR, dim=2))
    assert vectors.to_pylist() == [[1.5, 2.5], None, [3.0, 4.0]]
    lists, _ = run(pa.array([["a", "b"], None, []]), S(Scalar.STRING, list=True))
    assert lists.to_pylist() == [["a", "b"], None, []]
    blobs, _ = run(pa.array(["base64:aGk=", "base64:", None]), S(Scalar.BLOB))
    assert blobs.to_pylist() == [{"data": b"hi", "uri": None}, {"data": b"", "uri": None}, None]


@pytest.mark.parametrize("scalar", list(INTEGER_RANGES))
@given(values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_out_of_range_are_reported(scalar: Scalar, values: list[int | None]) -> None:
    low, high = INTEGER_RANGES[scalar]
    converted, wrong = run(pa.array(values, pa.int64()), S(scalar))
    for row, value in enumerate(values):
        fits = value is None or low <= value <= high
        assert (row in wrong) is not fits
        assert converted[row].as_py() == (value if fits else None)


@given(values=st.lists(st.floats(width=64), min_size=1))
def test_f32_values_are_rounded_once(values: list[float]) -> None:
    converted, wrong = run(pa.array(values, pa.float64()), S(Scalar.F32))
    for row, value in enumerate(values):
        try:
            rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            rounded = math.inf
        assert (row in wrong) is not math.isfinite(rounded)
        assert converted[row].as_py() == (rounded if math.isfinite(rounded) else None)


_TEXTS = st.one_of(
    st.dates().map(date.isoformat),
    st.datetimes().map(lambda d: d.isoformat(timespec="milliseconds")),
    st.datetimes(timezones=st.just(UTC)).map(lambda d: d.isoformat(sep=" ", timespec="seconds")),
    st.datetimes().map(lambda d: d.isoformat(timespec="microseconds") + "+05:30"),
    st.text(max_size=12),
)


@given(texts=st.lists(st.none() | _TEXTS, min_size=1))
def test_times_as_text_are_parsed_as_literals_are(texts: list[str | None]) -> None:
    """Each text is parsed by the rules of the languages, on the fast path for a whole column and without it."""
    readings: list[tuple[ValueType, Any]] = [(S(Scalar.DATE), parse_date), (S(Scalar.DATETIME), parse_datetime)]
    for target, parse in readings:
        converted, wrong = run(pa.array(texts, pa.utf8()), target)
        numbers = converted.cast(pa.int32()).to_pylist() if target.scalar is Scalar.DATE else millis(converted)
        for row, text in enumerate(texts):
            try:
                expected = None if text is None else parse(text)
            except ValueError:
                assert row in wrong
                continue
            assert row not in wrong
            assert numbers[row] == expected


_WITHIN_NANOSECONDS = st.integers(-8_000_000_000_000_000, 8_000_000_000_000_000)


@given(micros=st.lists(_WITHIN_NANOSECONDS, min_size=1))
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_keep_their_milliseconds(unit: str, micros: list[int]) -> None:
    per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    stored = [value // per_unit for value in micros]
    column = pa.array([value * (1000 if unit == "ns" else 1) for value in stored], pa.int64()).view(pa.timestamp(unit))
    converted, wrong = run(column, S(Scalar.DATETIME))
    assert not wrong
    assert millis(converted) == [value * per_unit // 1000 for value in stored]
