"""Thresholds of modules are changed for a while, and only if they are public."""

from __future__ import annotations

import pytest
from tests.thresholds import Thresholds

from omnigraph.read.columns import sorting
from omnigraph.testing import thresholds as changed


def test_thresholds_are_restored_after_an_error() -> None:
    before = (sorting.SORT_CHUNK_ROWS, sorting.BLOCK_ROWS)
    seen = []

    def fail() -> None:
        seen.append((sorting.SORT_CHUNK_ROWS, sorting.BLOCK_ROWS))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), changed(sorting, SORT_CHUNK_ROWS=1, BLOCK_ROWS=2):
        fail()
    seen.append((sorting.SORT_CHUNK_ROWS, sorting.BLOCK_ROWS))
    assert seen == [(1, 2), before]


@pytest.mark.parametrize("name", ["_WORD_BITS", "NO_SUCH_ROWS", "order_of"])
def test_other_names_are_refused_and_nothing_changes(name: str) -> None:
    before = sorting.BLOCK_ROWS
    with (
        pytest.raises(ValueError, match=f"omnigraph.read.columns.sorting has no public constant {name}"),
        changed(sorting, BLOCK_ROWS=2, **{name: 1}),
    ):
        raise AssertionError("the block runs")
    assert before == sorting.BLOCK_ROWS


def test_the_fixture_can_change_the_same_threshold_again(thresholds: Thresholds) -> None:
    for size in (5, 7):
        thresholds(sorting, BLOCK_ROWS=size)
        assert size == sorting.BLOCK_ROWS
