"""Ids that are computed for whole columns equal those of the definition, value by value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid_transform import ulid_to_bytes

from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema import entity_id
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.write.rows.identity import Ulids, derived_ids, generated_ids

_VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(),
    Scalar.BOOL: st.booleans(),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False),
    Scalar.DATE: st.integers(-700_000, 2_000_000),
    Scalar.DATETIME: st.integers(-(10**13), 10**13),
    **{scalar: st.integers(*limits) for scalar, limits in INTEGER_RANGES.items()},
}


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[Scalar], list[tuple[Any, ...]]]:
    scalars = draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*(_VALUES[scalar] for scalar in scalars)), min_size=1, max_size=8))
    return scalars, rows


def column(scalar: Scalar, values: list[Any]) -> pa.Array:
    kind = arrow_type(ValueType(scalar))
    if scalar is Scalar.DATETIME:
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, pa.int32()).cast(kind) if scalar is Scalar.DATE else pa.array(values, kind)


@given(keys())
def test_derived_ids_agree_with_their_definition(key: tuple[list[Scalar], list[tuple[Any, ...]]]) -> None:
    scalars, rows = key
    columns = [(column(s, [row[i] for row in rows]), ValueType(s)) for i, s in enumerate(scalars)]
    expected = [entity_id(list(zip(scalars, row, strict=True))) for row in rows]
    assert derived_ids(columns).to_pylist() == expected


def test_generated_ids_are_ulids_of_the_current_time() -> None:
    first, ids, last = generated_ids(1)[0].as_py(), generated_ids(10_000).to_pylist(), generated_ids(1)[0].as_py()
    assert len(set(ids)) == len(ids)
    assert all(len(ulid_to_bytes(text)) == 16 for text in ids)
    assert all(first[:10] <= text[:10] <= last[:10] for text in ids)
    assert generated_ids(0).to_pylist() == []


@pytest.mark.parametrize("seed", [0, 31, (1 << 127) - 1, 0x0197_5E2B_1D2C_8FFF_FFFF_FFFF_FFFF_FFF0])
def test_ids_one_by_one_are_those_of_one_call(seed: int) -> None:
    """They increase by one from the seed, whose bit 63 is cleared."""
    together, single = Ulids(seed), Ulids(seed)
    ids = together.take(40).to_pylist()
    assert [single.take(1)[0].as_py() for _ in range(40)] == ids
    first = seed & ~(1 << 63)
    assert [int.from_bytes(ulid_to_bytes(text)) for text in ids] == list(range(first, first + 40))
