"""The pool of visited arrays: walks reuse them across threads, and the pool is bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.thresholds import Thresholds

from omnigraph.read.match import marks


@pytest.fixture(autouse=True)
def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_mark_pool", marks.MarkPool())


def test_mark_arrays_are_reused() -> None:
    with marks.mark_arrays(100) as (first, _):
        pass
    with ThreadPoolExecutor(1) as other, marks.mark_arrays(50) as (second, marked):
        assert second.base is first.base
        assert len(second) == len(marked) == 50
        assert other.submit(lambda: marks.mark_arrays(50).__enter__()[0].base).result() is not first.base


def test_mark_arrays_of_a_failed_walk_are_discarded() -> None:
    def walk() -> None:
        with marks.mark_arrays(100) as (seen, _):
            seen[3] = True
            raise OSError("stop")

    with pytest.raises(OSError, match="stop"):
        walk()
    with marks.mark_arrays(100) as (seen, marked):
        assert not seen.any()
        assert not marked.any()


def test_the_pool_of_mark_arrays_is_bounded(thresholds: Thresholds) -> None:
    thresholds(marks, MAX_POOLED_MARK_BYTES=500)
    together = Barrier(8)

    def walk(_: int) -> None:
        with marks.mark_arrays(100):
            together.wait()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(walk, range(8)))
    assert marks._mark_pool.nbytes == 400
    with marks.mark_arrays(1_000):
        pass
    assert marks._mark_pool.nbytes == 400, "what is too large pushes nothing out"
