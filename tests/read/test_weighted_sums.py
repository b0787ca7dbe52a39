"""Sums and averages of rows with weights are those of the repeated rows, exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ExecutionError
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.shape.groups import Groups, aggregated
from omnigraph.read.shape.weighted_sums import weighted_average, weighted_sum

SMALL = st.integers(-50, 50)
LARGE = st.integers(-(2**63), 2**63 - 1)
I64 = ValueType(Scalar.I64, nullable=True)


@st.composite
def rows(draw: st.DrawFn, values: st.SearchStrategy[int], most: int) -> list[tuple[int, int, int]]:
    """Rows of group, value and weight."""
    return draw(st.lists(st.tuples(st.integers(0, 3), values, st.integers(1, most)), max_size=20))


def arrays(found: list[tuple[int, int, int]]) -> tuple[pa.Array, np.ndarray, Groups]:
    group = np.array([row[0] for row in found], np.int64)
    weights = np.array([row[2] for row in found], np.int64)
    return pa.array([row[1] for row in found], pa.int64()), weights, Groups(len(found), 4, group)


@given(rows(SMALL, 5))
def test_the_results_are_those_of_repeated_rows(found: list[tuple[int, int, int]]) -> None:
    values, weights, groups = arrays(found)
    repeated = [(group, value) for group, value, weight in found for _ in range(weight)]
    plain = pa.array([value for _, value in repeated], pa.int64())
    of_row = Groups(len(repeated), 4, np.array([group for group, _ in repeated], np.int64))
    for function, weighted in ((ir.AggregateFunction.SUM, weighted_sum), (ir.AggregateFunction.AVG, weighted_average)):
        scalar = I64 if function is ir.AggregateFunction.SUM else ValueType(Scalar.F64, nullable=True)
        aggregate = ir.Aggregate(function, ir.Prop("a", "x", I64), distinct=False, type=scalar)
        assert weighted(values, weights, groups).to_pylist() == aggregated(aggregate, plain, of_row).to_pylist()


@pytest.mark.parametrize("values", [[1, 2, 2], [-1, 0, 0], [-1] + [0] * 99_999, [2**62, 2**62 - 1, 3]])
def test_averages_of_integers_are_correctly_rounded(values: list[int]) -> None:
    groups = Groups.one_group(len(values))
    aggregate = ir.Aggregate(
        ir.AggregateFunction.AVG, ir.Prop("a", "x", I64), distinct=False, type=ValueType(Scalar.F64, nullable=True)
    )
    expected = [sum(values) / len(values)]
    array = pa.array(values, pa.int64())
    assert aggregated(aggregate, array, groups).to_pylist() == expected
    assert weighted_average(array, np.ones(len(values), np.int64), groups).to_pylist() == expected


@given(rows(st.one_of(SMALL, LARGE), 2**40))
def test_large_sums_are_exact_or_refused(found: list[tuple[int, int, int]]) -> None:
    values, weights, groups = arrays(found)
    exact = [sum(value * weight for group, value, weight in found if group == number) for number in range(4)]
    counts = [sum(weight for group, _, weight in found if group == number) for number in range(4)]
    if all(-(2**63) <= total < 2**63 for total in exact):
        expected = [total if count else None for total, count in zip(exact, counts, strict=True)]
        assert weighted_sum(values, weights, groups).to_pylist() == expected
    else:
        with pytest.raises(ExecutionError, match="too large for I64"):
            weighted_sum(values, weights, groups)
    averages = weighted_average(values, weights, groups).to_pylist()
    for average, total, count in zip(averages, exact, counts, strict=True):
        assert (average is None) == (count == 0)
        if count:
            assert average == float(Fraction(total, count))
