"""Columns become the same JSON as from a standard encoder, and numbers round-trip."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import json_text

TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))


def texts(column: pa.Array, type_: ValueType) -> list[str | None]:
    found: list[str | None] = json_text(column, type_).to_pylist()
    return found


@given(st.lists(TEXTS), st.integers(0, 3))
def test_strings_are_encoded_as_by_orjson(values: list[str | None], skipped: int) -> None:
    column = pa.array(values, pa.utf8()).slice(skipped)
    expected = [None if value is None else orjson.dumps(value).decode() for value in values[skipped:]]
    assert texts(column, ValueType(Scalar.STRING)) == expected


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))))
def test_f64_values_round_trip(values: list[float | None]) -> None:
    for value, text in zip(values, texts(pa.array(values, pa.float64()), ValueType(Scalar.F64)), strict=True):
        assert (text is None) == (value is None)
        if text is not None and value is not None:
            assert isinstance(json.loads(text), float)
            assert str(json.loads(text)) == str(value)


@given(st.lists(st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False))))
def test_f32_values_round_trip_through_an_f64_parser(values: list[float | None]) -> None:
    for value, text in zip(values, texts(pa.array(values, pa.float32()), ValueType(Scalar.F32)), strict=True):
        assert (text is None) == (value is None)
        if text is not None and value is not None:
            assert str(np.float32(json.loads(text))) == str(np.float32(value))
            digits = text.lower().partition("e")[0].lstrip("-0.").replace(".", "")
            assert len(digits.rstrip("0")) <= 9, "nine digits tell all singles apart"


LISTS: list[tuple[Scalar, pa.DataType, st.SearchStrategy[Any]]] = [
    (Scalar.STRING, pa.utf8(), st.text(st.characters(exclude_categories=["Cs"]))),
    (Scalar.U64, pa.uint64(), st.integers(0, 2**64 - 1)),
    (Scalar.I32, pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (Scalar.BOOL, pa.bool_(), st.booleans()),
    (Scalar.F64, pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
]


@given(st.data())
def test_lists_round_trip_through_json(data: st.DataObject) -> None:
    scalar, kind, items = data.draw(st.sampled_from(LISTS))
    values = data.draw(st.lists(st.one_of(st.none(), st.lists(items, max_size=4)), max_size=6))
    skipped = data.draw(st.integers(0, 2))
    column = pa.array(values, pa.list_(kind)).slice(skipped)
    for value, text in zip(values[skipped:], texts(column, ValueType(scalar, list=True)), strict=True):
        assert (None if text is None else json.loads(text)) == value


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -5.0, 1e10, 1e15, 1e16, 1e21, 1e22, 0.1, 1e-7, 5e-324])
def test_a_float_is_parsed_as_a_float(value: float) -> None:
    (text,) = texts(pa.array([value]), ValueType(Scalar.F64))
    assert text is not None
    found = json.loads(text)
    assert isinstance(found, float)
    assert math.copysign(1, found) == math.copysign(1, value)
    assert found == value


def test_vectors_keep_their_nulls() -> None:
    column = pa.array([[1, 2.5], None, [-0.0, 0.1]], pa.list_(pa.float32(), 2))
    assert texts(column, ValueType(Scalar.VECTOR, dim=2)) == ["[1.0,2.5]", None, "[-0.0,0.1]"]
    assert texts(column.slice(1), ValueType(Scalar.VECTOR, dim=2)) == [None, "[-0.0,0.1]"]
