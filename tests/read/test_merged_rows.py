"""Duplicate rows of a frame are merged into rows with weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.thresholds import Thresholds

from omnigraph.read.rows import frame as module
from omnigraph.read.rows.frame import Binding, Frame


def a_frame(seed: int, rows: int, values: int, columns: int, *, origin: bool, weighted: bool) -> Frame:
    random = np.random.default_rng(seed)
    bindings = {f"v{place}": Binding((), random.integers(-1, values, rows) * 7) for place in range(columns)}
    found = Frame(rows, bindings, origin=random.integers(0, 3, rows) if origin else None)
    return replace(found, weight=random.integers(1, 9, rows)) if weighted else found


def weights(frame: Frame) -> Counter[tuple[int, ...]]:
    columns = [binding.numbers for binding in frame.bindings.values()]
    columns += [] if frame.origin is None else [frame.origin]
    counts = np.ones(frame.count, np.int64) if frame.weight is None else frame.weight
    found: Counter[tuple[int, ...]] = Counter()
    for *key, count in zip(*(column.tolist() for column in (*columns, counts)), strict=True):
        found[tuple(key)] += count
    return found


@pytest.mark.parametrize("rows", [0, 1, 2, 50, 3_000])
@pytest.mark.parametrize("columns", [0, 1, 3])
@pytest.mark.parametrize("origin", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hashes", [False, True])
def test_duplicates_are_merged(
    thresholds: Thresholds, rows: int, columns: int, *, origin: bool, weighted: bool, hashes: bool
) -> None:
    if hashes:
        thresholds(module, KEYS_PER_ROW=0, MIN_KEYS=0, MIN_HASHED_ROWS=0, MAX_DISTINCT_SHARE=1.0)
    else:
        thresholds(module, MIN_KEYS=10**7)
    frame = a_frame(rows + columns, rows, 9, columns, origin=origin, weighted=weighted)
    counted = frame.merged(counting=True)
    assert weights(counted) == weights(frame)
    assert counted.count == len(weights(frame))
    distinct = frame.merged(counting=False)
    assert weights(replace(distinct, weight=None)).keys() == weights(frame).keys()
    assert distinct.count == len(weights(frame))


def test_many_possible_rows_are_merged_if_there_are_duplicates() -> None:
    few = a_frame(1, 20_000, 60, 2, origin=False, weighted=False)
    wide = Frame(few.count, {name: Binding((), each.numbers * 10**6) for name, each in few.bindings.items()})
    assert wide.merged(counting=True).count == len(weights(wide))
    different = Frame(20_000, {"v": Binding((), np.random.default_rng(2).permutation(20_000) * 10**6)})
    assert different.merged(counting=True) is different


def test_hashing_keeps_the_rows_of_a_node_together() -> None:
    nodes = np.sort(np.random.default_rng(4).integers(0, 5_000, 60_000))
    others = np.random.default_rng(5).integers(0, 2, 60_000) * 10**9
    merged = Frame(60_000, {"a": Binding((), nodes), "b": Binding((), others)}).merged(counting=True)
    assert merged.count < 11_000
    assert (np.diff(merged.bindings["a"].numbers) >= 0).all()


def test_keys_that_do_not_fit_an_integer_are_not_merged() -> None:
    numbers = np.tile(np.array([0, 2**40]), 1_000)
    frame = Frame(2_000, {"a": Binding((), numbers), "b": Binding((), numbers)})
    assert frame.merged(counting=True) is frame
