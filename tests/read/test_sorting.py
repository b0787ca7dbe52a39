"""Sorting in pieces gives the same order as sorting at once, and checks for cancellation in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph import testing
from omnigraph.errors import CancelledError
from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.read.columns import sorting
from omnigraph.read.columns.sorting import dense_ranks, float_keys, groups_of, order_of

WHOLE = st.sampled_from([-(2**63), -(2**40), -3, 0, 1, 2, 2**33, 2**63 - 1])
SMALL = st.integers(0, 3)


SIZES = [(2, 2, 2, 1), (5, 5, 3, 2), (1 << 10, 1 << 17, 1 << 15, 8)]


@pytest.fixture(autouse=True, params=SIZES, ids=["two", "five", "default"])
def _pieces(request: pytest.FixtureRequest, thresholds: Thresholds) -> None:
    names = ("MAX_UNPACKED_ROWS", "SORT_CHUNK_ROWS", "RANK_CHUNK_ROWS", "SAMPLES_PER_BOUND")
    thresholds(sorting, **dict(zip(names, request.param, strict=True)))


@given(st.lists(st.tuples(SMALL, WHOLE, SMALL), min_size=1, max_size=60))
def test_rows_are_ordered_by_several_numbers(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    assert order_of(*keys).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1, max_size=40))
def test_unsigned_numbers_are_ordered(numbers: list[int]) -> None:
    assert order_of(np.array(numbers, np.uint64)).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@given(st.one_of(st.lists(WHOLE, max_size=40), st.lists(st.integers(-9, 9), max_size=40)), st.sampled_from([0, 4]))
def test_equal_numbers_are_in_one_group(numbers: list[int], numbers_per_row: int) -> None:
    with testing.thresholds(sorting, NUMBERS_PER_ROW=numbers_per_row):
        first, group = groups_of(np.array(numbers, np.int64))
    distinct = sorted(set(numbers))
    assert [numbers[row] for row in first.tolist()] == distinct
    assert first.tolist() == [numbers.index(number) for number in distinct]
    assert [distinct[place] for place in group.tolist()] == numbers


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.utf8(), [None, "", "a", "ab", "b", "ä", "😀"]),
        (pa.float64(), [None, -1.5, 0.0, 2.5, float("inf"), float("-inf")]),
        (pa.date32(), [None, 1, 5, 9]),
        (pa.bool_(), [None, True, False]),
    ],
    ids=str,
)
@given(chosen=st.lists(st.integers(0, 6), max_size=50))
def test_dense_ranks_agree_with_a_sort_of_all_values(kind: pa.DataType, values: list[Any], chosen: list[int]) -> None:
    column = pa.array([values[place % len(values)] for place in chosen], kind)
    present = column.drop_null().unique()
    order = {value: rank for rank, value in enumerate(present.take(pc.sort_indices(present)).to_pylist(), 1)}
    assert dense_ranks(column).tolist() == [0 if v is None else order[v] for v in column.to_pylist()]


@given(st.lists(st.floats(allow_nan=False), max_size=30))
def test_integer_keys_of_floats_keep_their_order(numbers: list[float]) -> None:
    floats = np.array(numbers, np.float64)
    assert floats[np.argsort(float_keys(floats), kind="stable")].tolist() == sorted(numbers)


class Counting(Cancellation):
    """Counts the checks for cancellation, and cancels after a number of them."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.asked = 0
        self.patience = patience

    @property
    def cancelled(self) -> bool:
        self.asked += 1
        return self.asked > self.patience


@pytest.mark.parametrize("what", ["numbers", "texts"])
def test_sorting_checks_for_cancellation_in_each_piece(what: str) -> None:
    piece = sorting.SORT_CHUNK_ROWS if what == "numbers" else sorting.RANK_CHUNK_ROWS
    count = min(20 * piece, 20_000) if piece < 100 else 3 * piece
    numbers = np.arange(count)[::-1].copy()

    def work() -> None:
        order_of(numbers) if what == "numbers" else dense_ranks(pa.array(numbers).cast(pa.utf8()))

    cancel = Counting(10**9)
    with Spending(Budget(seconds=None), cancel).running():
        work()
    assert cancel.asked >= count // piece
    stopped = Counting(cancel.asked // 2)
    with Spending(Budget(seconds=None), stopped).running(), pytest.raises(CancelledError):
        work()
