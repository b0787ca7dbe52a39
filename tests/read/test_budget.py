"""Budgets: accounting and refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from tests.patience import PATIENCE
from tests.read.cached import cached

from omnigraph.errors import BudgetExceededError, CancelledError, InputError
from omnigraph.read.budget import Budget, Cancellation, Spending, checkpoint, query_memory
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.topology.adjacency import Adjacency


def test_memory_in_use_and_requested_memory_count_together() -> None:
    spending = Spending(Budget(memory=1000))
    spending.hold(600)
    spending.need(400)
    assert spending.peak == 1000
    with pytest.raises(BudgetExceededError, match="memory") as caught:
        spending.need_arrays(51, 1)
    assert (caught.value.limit, caught.value.actual) == (1000, 1008)
    spending.hold(0)
    spending.spend(125, columns=1)


def test_an_unlimited_budget_refuses_nothing() -> None:
    spending = Spending(Budget(seconds=None, memory=None, rows=None, returned=None))
    spending.spend(10**15, columns=100)
    spending.note_returned(10**15)
    assert spending.rows == 10**15


def test_the_default_query_memory_is_half_of_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1 << 18, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert query_memory({}) == 1 << 29
    assert query_memory({"OMNIGRAPH_QUERY_MEMORY": "3 GiB"}) == 3 << 30
    with pytest.raises(InputError, match="OMNIGRAPH_QUERY_MEMORY"):
        query_memory({"OMNIGRAPH_QUERY_MEMORY": "plenty"})


def test_memory_for_edges_is_checked_before_they_are_gathered() -> None:
    """A node with a million edges: gathering them for a million such nodes would take terabytes."""
    wide = Adjacency(np.array([0, 10**6]), np.zeros(10**6, np.int32), np.zeros(10**6, np.int32), 1)
    with (
        Spending(Budget(memory=10**9)).running(),
        pytest.raises(BudgetExceededError, match="memory") as caught,
    ):
        wide.walk(np.zeros(10**6, np.int64))
    assert caught.value.actual > 10**12


def test_a_checkpoint_stops_only_the_query_of_its_thread() -> None:
    stopped = Spending(cancel=Cancellation())
    stopped.cancel.cancel()
    with stopped.running():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(checkpoint).result(PATIENCE)
        with Spending().running():
            checkpoint()
        with pytest.raises(CancelledError):
            checkpoint()
    checkpoint()


def test_a_query_that_waits_for_another_can_be_cancelled() -> None:
    cache, begun, finish = ColumnCache(), Event(), Event()
    cancel = Cancellation()

    def slow() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        begun.set()
        assert finish.wait(PATIENCE)
        return np.zeros(1, np.int64)

    def waits() -> object:
        with Spending(Budget(seconds=None), cancel).running():
            return cached(cache, "column", slow)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cached, cache, "column", slow)
        assert begun.wait(PATIENCE)
        second = pool.submit(waits)
        cancel.cancel()
        with pytest.raises(CancelledError):
            second.result(PATIENCE)
        finish.set()
        assert len(first.result(PATIENCE)) == 1
