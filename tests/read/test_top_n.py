"""The first rows of an order are a prefix of the full order: the shortcuts drop no row."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.read.columns import sorting
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import Key, in_order
from omnigraph.testing import thresholds

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [None, -(2**63), -3, 0, 1, 2, 2**63 - 1]),
    "large": (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    "float": (pa.float64(), [None, 0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf")]),
    "text": (pa.utf8(), [None, "", "a", "b", "ä", "zz", "😀", "￿"]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, 1, 5, 9]),
    "time": (pa.date64(), [None, 0, 86_400_000]),
    "list": (pa.list_(pa.int64()), [None, [], [1], [1, None], [None, 1], [2]]),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[pa.Array], list[tuple[bool, bool]], int, int | None]:
    rows = draw(st.integers(0, 60))
    columns, directions = [], []
    for name in draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=3)):
        kind, values = KINDS[name]
        chosen = draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))
        columns.append(pa.array(chosen, kind))
        directions.append((draw(st.booleans()), draw(st.booleans())))
    last = draw(st.permutations(range(rows)))
    columns.append(pa.array(last, pa.int64()))
    directions.append((False, True))
    return columns, directions, draw(st.integers(0, 5)), draw(st.none() | st.integers(0, 12))


def _less(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return bool(left.encode() < right.encode())
    if isinstance(left, list):
        keys = [[(item is not None, item or 0) for item in side] for side in (left, right)]
        return bool(keys[0] < keys[1])
    return bool(left < right)


def expected(columns: list[pa.Array], directions: list[tuple[bool, bool]], offset: int, limit: int | None) -> list[int]:
    plain = [column.to_pylist() for column in columns]

    def compare(a: int, b: int) -> int:
        for values, (descending, nulls_first) in zip(plain, directions, strict=True):
            left, right = values[a], values[b]
            if left == right:
                continue
            if left is None or right is None:
                return -1 if (left is None) == nulls_first else 1
            sign = -1 if _less(left, right) else 1
            return -sign if descending else sign
        return 0

    ordered = sorted(range(len(plain[-1])), key=cmp_to_key(compare))
    return ordered[offset:] if limit is None else ordered[offset : offset + limit]


def _values(column: pa.Array) -> Callable[[Numbers | None], pa.Array]:
    def values(rows: Numbers | None) -> pa.Array:
        return column if rows is None else column.take(pa.array(rows))

    return values


@given(cases())
def test_the_top_rows_are_a_prefix_of_the_full_order(
    case: tuple[list[pa.Array], list[tuple[bool, bool]], int, int | None],
) -> None:
    columns, directions, offset, limit = case
    keys = [Key(_values(column), *direction) for column, direction in zip(columns, directions, strict=True)]
    with thresholds(sorting, BLOCK_ROWS=3):
        found = in_order(keys, len(columns[-1]), offset, limit)
    assert found.tolist() == expected(*case)


def test_later_sort_keys_are_computed_for_ties_only() -> None:
    numbers = np.arange(10_000) // 2
    asked: list[int] = []

    def tie(rows: Numbers | None) -> pa.Array:
        assert rows is not None
        asked.append(len(rows))
        return pa.array([str(row) for row in rows])

    first = Key(_values(pa.array(numbers)), descending=True)
    assert in_order([first, Key(tie)], 10_000, 0, 3).tolist() == [9998, 9999, 9996]
    assert asked == [4]
