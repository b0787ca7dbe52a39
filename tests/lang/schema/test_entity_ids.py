"""Ids: the canonical text of every key type, and composite keys."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.schema import canonical_text, edge_id, entity_id
from omnigraph.lang.schema.entity_id import KeyValue
from omnigraph.lang.types import Scalar


@pytest.mark.parametrize(
    ("scalar", "value", "text"),
    [
        (Scalar.STRING, " As Is é ", " As Is é "),
        (Scalar.STRING, "", ""),
        (Scalar.BOOL, True, "true"),
        (Scalar.BOOL, False, "false"),
        (Scalar.I32, -7, "-7"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.I64, 0, "0"),
        (Scalar.DATE, date(1970, 1, 2), "1"),
        (Scalar.DATE, date(1969, 12, 31), "-1"),
        (Scalar.DATE, 20_000, "20000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC), "1999"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "0"),
        (Scalar.DATETIME, datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), "-1"),
        (Scalar.DATETIME, -5, "-5"),
        (Scalar.F64, 0.0, "0"),
        (Scalar.F64, -0.0, "0"),
        (Scalar.F32, -0.0, "0"),
        (Scalar.F64, 3.0, "3"),
        (Scalar.F64, 0.1, "0.1"),
        (Scalar.F32, struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.1"),
        (Scalar.F64, struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.10000000149011612"),
        (Scalar.F64, 1e21, "1000000000000000000000"),
        (Scalar.F64, 1.5e-7, "0.00000015"),
        (Scalar.F64, -2.5, "-2.5"),
        (Scalar.F32, 16777216.0, "16777216"),
        (Scalar.F32, 1e-45, "0." + "0" * 44 + "1"),
        (Scalar.F64, 100.0, "100"),
        (Scalar.F64, 5, "5"),
    ],
)
def test_key_values_have_a_canonical_text(scalar: Scalar, value: KeyValue, text: str) -> None:
    assert canonical_text(scalar, value) == text


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar.F64, math.nan),
        (Scalar.F32, math.inf),
        (Scalar.STRING, 1),
        (Scalar.I32, True),
        (Scalar.I32, 1.0),
        (Scalar.BOOL, 1),
        (Scalar.DATE, datetime(2020, 1, 1, tzinfo=UTC)),
        (Scalar.BLOB, "x"),
        (Scalar.VECTOR, "x"),
    ],
)
def test_values_without_a_canonical_text_are_refused(scalar: Scalar, value: KeyValue) -> None:
    with pytest.raises(ValueError, match="key"):
        canonical_text(scalar, value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_f64_text_round_trips_without_an_exponent(value: float) -> None:
    text = canonical_text(Scalar.F64, value)
    assert float(text) == value
    assert "e" not in text.lower()


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_f32_text_is_the_shortest_that_round_trips(value: float) -> None:
    expected = np.format_float_positional(np.float32(value), unique=True, trim="-") if value else "0"
    assert canonical_text(Scalar.F32, value) == expected


def test_a_composite_id_is_a_json_array() -> None:
    assert entity_id([(Scalar.U64, 1042)]) == "1042"
    assert entity_id([(Scalar.STRING, "KEW"), (Scalar.U64, 1042)]) == '["KEW","1042"]'
    assert entity_id([(Scalar.STRING, 'é"\n'), (Scalar.BOOL, True)]) == '["é\\"\\n","true"]'
    with pytest.raises(ValueError, match="member"):
        entity_id([])


def test_an_edge_id_contains_both_endpoints_and_the_key() -> None:
    assert edge_id("a", "b") == '["a","b"]'
    assert edge_id("a", "b", [(Scalar.DATE, date(1970, 1, 2))]) == '["a","b","1"]'


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4))
def test_different_members_make_different_ids(texts: list[str]) -> None:
    assert json.loads(entity_id([(Scalar.STRING, text) for text in texts])) == texts
