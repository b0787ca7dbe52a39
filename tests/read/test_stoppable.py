"""Operations on large arrays give the results of NumPy, and can be stopped between two chunks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.read.limits import Countdown
from tests.thresholds import Thresholds

from omnigraph.errors import CancelledError
from omnigraph.read.budget import Budget, Spending
from omnigraph.read.columns import sorting, stoppable
from omnigraph.read.columns.sorting import groups_of, order_of
from omnigraph.read.columns.stoppable import (
    changes,
    gather,
    join_arrays,
    occurrences,
    running_counts,
    scatter,
    weight_sums,
)
from omnigraph.read.rows.frame import Binding, Path

ROWS = 100
NUMBERS = np.random.default_rng(2).integers(0, 7, ROWS)


def scattered() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.zeros(ROWS, np.int64)
    scatter(found, np.arange(ROWS)[::-1], NUMBERS)
    return found


def taken() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The nodes of paths of lengths 1 to 7, in the reverse order of the paths."""
    firsts = np.concatenate([[0], np.cumsum(NUMBERS + 1)])
    nodes = Binding((), np.arange(firsts[-1]))
    return Path(nodes, firsts, nodes, firsts).take(np.arange(ROWS)[::-1]).nodes.numbers


OPERATIONS: dict[str, tuple[Callable[[], object], object]] = {
    "gather": (lambda: gather(NUMBERS, NUMBERS - 1), NUMBERS[NUMBERS - 1]),
    "scatter": (scattered, NUMBERS[::-1]),
    "join": (lambda: join_arrays([NUMBERS, NUMBERS]), np.concatenate([NUMBERS, NUMBERS])),
    "running counts": (lambda: running_counts(NUMBERS > 3), np.cumsum(NUMBERS > 3)),
    "changes": (lambda: changes(NUMBERS), np.diff(NUMBERS, prepend=-1) != 0),
    "occurrences": (lambda: occurrences(NUMBERS, 7), np.bincount(NUMBERS)),
    "weight sums": (lambda: weight_sums(NUMBERS, NUMBERS, 7), np.bincount(NUMBERS, NUMBERS)),
    "order": (lambda: order_of(NUMBERS, -NUMBERS), np.argsort(NUMBERS, kind="stable")),
    "paths": (taken, np.concatenate(np.split(np.arange(ROWS + NUMBERS.sum()), np.cumsum(NUMBERS + 1)[:-1])[::-1])),
    "groups": (lambda: groups_of(NUMBERS)[1], np.unique(NUMBERS, return_inverse=True)[1]),
}


@pytest.mark.parametrize("size", [1, 3, 40, ROWS, 1 << 20])
@pytest.mark.parametrize("name", OPERATIONS)
def test_chunks_do_not_change_the_result(thresholds: Thresholds, name: str, size: int) -> None:
    operation, expected = OPERATIONS[name]
    thresholds(stoppable, ARRAY_CHUNK_ROWS=size)
    thresholds(sorting, SORT_CHUNK_ROWS=size, MAX_UNPACKED_ROWS=0, NUMBERS_PER_ROW=0)
    assert np.array_equal(operation(), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cancelled_read_stops_between_chunks(thresholds: Thresholds, name: str) -> None:
    operation, _ = OPERATIONS[name]
    thresholds(stoppable, ARRAY_CHUNK_ROWS=1)
    thresholds(sorting, SORT_CHUNK_ROWS=1, MAX_UNPACKED_ROWS=0, NUMBERS_PER_ROW=0)
    checks = 3 if name == "occurrences" else ROWS // 2  # its chunks are at least four times as long as its result
    with Spending(Budget(seconds=None), Countdown(checks)).running(), pytest.raises(CancelledError):
        operation()
