"""A search over whole tables stays within its memory limit, and finds the same rows with every limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.write.rules import search as searching
from omnigraph.write.rules.constraints import MemoryLimit, counts_by, holders_of, shared_tuples, total_counts
from omnigraph.write.rules.search import FirstRows, GroupedRows, LocalSearch

BATCH = 1_000
BATCHES = 40
ROWS = BATCH * BATCHES


class Generated:
    """A type with the columns `id` and `value`, made batch by batch. Records the largest amount of Arrow memory."""

    def __init__(self, values: list[str | None]) -> None:
        self.values = values
        self.most = 0

    def batches(self, key: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        names = list(columns or ["id", "value"])
        schema = pa.schema([(name, pa.utf8()) for name in names])
        before = pa.total_allocated_bytes()

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, len(self.values), BATCH):
                self.most = max(self.most, pa.total_allocated_bytes() - before)
                rows = range(first, min(first + BATCH, len(self.values)))
                cells = {"id": [f"{i:07d}" for i in rows], "value": [self.values[i] for i in rows]}
                yield pa.record_batch([pa.array(cells[name], pa.utf8()) for name in names], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def _shared(stored: Generated, limit: int) -> FirstRows | None:
    rows = GroupedRows("node:P", ("id", "value"), ("value",), lambda rows: holders_of(rows.drop_null(), ("value",)))
    find = lambda holders: shared_tuples(holders, ("value",))  # noqa: E731
    return LocalSearch(stored, MemoryLimit(limit)).repeated(rows, find, "other")


@pytest.mark.parametrize("limit", [64, 1 << 17, 1 << 30])
@pytest.mark.parametrize("ways", ["pairs", "one value", "few", "none"])
def test_shared_values_are_found_with_any_memory_limit(ways: str, limit: int) -> None:
    count = 100 if limit == 64 else ROWS
    values: dict[str, list[str | None]] = {
        "pairs": [f"v{i % (count // 2)}" for i in range(count)],
        "one value": ["same"] * count,
        "few": [None if i % 3 == 0 else f"v{max(i, 5)}" for i in range(count)],
        "none": [f"v{i}" for i in range(count)],
    }
    holders: dict[str, list[int]] = {}
    for i, value in enumerate(values[ways]):
        if value is not None:
            holders.setdefault(value, []).append(i)
    expected = sorted((some[0], some[-1], value) for value, some in holders.items() if len(some) > 1)
    found = _shared(Generated(values[ways]), limit)
    if not expected:
        assert found is None
        return
    assert found is not None
    assert found.total == len(expected)
    said = [(int(row["other"]), int(row["id"]), row["shared"]["value"]) for row in found.rows.to_pylist()]
    assert said == expected[:100]


@pytest.mark.slow
def test_rows_that_all_share_a_value_with_another_do_not_stay_in_memory() -> None:
    stored = Generated([f"a value of some length, number {i % (ROWS // 2)}" for i in range(ROWS)])
    limit = 1 << 19
    found = _shared(stored, limit)
    assert found is not None
    assert found.total == ROWS // 2
    assert stored.most < 3 * limit  # all ids and values take more than 2 MiB


def test_counts_of_batches_add_up_with_any_memory_limit() -> None:
    values = [f"v{i % 997}" for i in range(10_000)]
    rows = GroupedRows("edge:E", ("value",), ("value",), lambda rows: counts_by(rows, "value"))
    find = lambda counted: total_counts(counted, "value")  # noqa: E731
    for limit in (40_000, 1 << 30):
        found = LocalSearch(Generated(list(values)), MemoryLimit(limit)).grouped([rows], find, "value")
        assert found is not None
        numbers, counts = np.unique(values, return_counts=True)
        assert found.total == len(numbers)
        assert found.rows.to_pydict() == {"value": numbers[:100].tolist(), "__count": counts[:100].tolist()}


def test_partitions_of_several_sides_meet_and_fit_the_limit() -> None:
    limit = 20_000
    nodes = pa.table({"node": [f"n{i}" for i in range(3_000)]})
    edges = pa.table({"node": [f"n{i % 4_000}" for i in range(5_000)]})
    sides = [searching._Input(iter([rows]), ("node",), rows.schema, 10) for rows in (nodes, edges)]
    seen: list[set[str]] = []
    counts = np.zeros(2, int)
    for some, others in searching.partitioned(sides, limit):
        assert some.nbytes + others.nbytes + 10 * (some.num_rows + others.num_rows) <= limit
        seen.append({*some["node"].to_pylist(), *others["node"].to_pylist()})
        counts += (some.num_rows, others.num_rows)
    assert counts.tolist() == [3_000, 5_000]
    assert len(seen) > 4
    assert sum(map(len, seen)) == len(set().union(*seen)) == 4_000
