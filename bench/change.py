"""Changes of a graph: diffs and the change feed, by the number of changed rows and by the size of the table.

Each part is a function in `PARTS`. `--only NAME` runs one of them. The parts share the tables of `changed_tables`: a
small and a large one with the same changes, so that a part can hold the large one against the small one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph
from harness import Benchmark, Work
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

SCHEMA = """\
node Person {
    name: String @key
    city: String?
    age: I32?
    visits: I64?
    score: F64?
}
"""
SMALL, LARGE = 1_000_000, 10_000_000
QUICK_SMALL, QUICK_LARGE = 20_000, 200_000
CHANGED, QUICK_CHANGED = (100, 10_000, 1_000_000), (100, 1_000, 10_000)
LOAD_ROWS = 1_000_000

FLAT = 1.5
"""How many times as long a change may take in the large table."""

FEW_MS = 200
"""How long 100 changed rows may take."""


def people(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], seed: int) -> pa.Table:
    """Rows of some people. Another seed gives other values."""
    random = np.random.default_rng(seed)
    count = len(numbers)
    return pa.table(
        {
            "name": pa.compute.binary_join_element_wise("person-", pa.array(numbers).cast(pa.utf8()), ""),
            "city": pa.array([f"city {i}" for i in range(500)]).take(pa.array(random.integers(0, 500, count))),
            "age": pa.array(random.integers(0, 100, count), pa.int32()),
            "visits": pa.array(random.integers(0, 1 << 40, count)),
            "score": pa.array(random.random(count)),
        }
    )


@dataclass(frozen=True, slots=True)
class Table:
    """A graph with one table, and commits that changed some of its rows.

    Attributes:
        rows: the number of rows.
        commits: for each number of changed rows, the commits before and after the change.
    """

    graph: Graph
    rows: int
    commits: Mapping[int, tuple[str, str]]

    def forget(self) -> None:
        """Drop the cached results of earlier comparisons."""
        self.graph.session.reading.known.discard(lambda _: True)


def changed_table(place: Path, rows: int, changed: Sequence[int]) -> Table:
    """Load a table, then change rows all over it, in one commit for each number."""
    os.environ[FSYNC.name] = "0"
    graph = omnigraph.init(place, SCHEMA)
    for first in range(0, rows, LOAD_ROWS):
        numbers = np.arange(first, min(first + LOAD_ROWS, rows))
        graph.load(people(numbers, 1), mode="append", type_name="Person")
    commits = {}
    for count in changed:
        numbers = np.sort(np.random.default_rng(count).choice(rows, min(count, rows), replace=False))
        before = graph.snapshot().commit.id
        graph.load(people(numbers, count), mode="merge", type_name="Person")
        commits[count] = before, graph.snapshot().commit.id
    return Table(graph, rows, commits)


def changed_tables(bench: Benchmark, root: Path) -> tuple[Table, Table]:
    """The small table and the large one."""
    small = QUICK_SMALL if bench.quick else SMALL
    large = bench.options.rows or (QUICK_LARGE if bench.quick else LARGE)
    changed = QUICK_CHANGED if bench.quick else CHANGED
    return changed_table(root / "small", small, changed), changed_table(root / "large", large, changed)


def diff(table: Table, count: int) -> None:
    """Compare all rows that may differ, and count the changes."""
    table.forget()
    found = table.graph.diff(*table.commits[count]).stat()
    assert found.updates == min(count, table.rows)


def feed(table: Table, count: int) -> None:
    """Read the changes of one commit with their values, page by page; of a large commit, the first page."""
    table.forget()
    page = table.graph.changes.of(table.commits[count][1])
    assert len(page.changes) == min(count, 1_000)


def by_size(
    bench: Benchmark, tables: tuple[Table, Table], what: str, work: Callable[[Table, int], None], rounds: int
) -> None:
    """Time some work on changes of each size, on the large table against the small one."""
    small, large = tables
    for count in large.commits:

        def timed(table: Table, count: int = count) -> Work:
            return lambda: work(table, count)

        name = f"{what} of {count:,} changed rows"
        found = bench.compare(
            f"{name}, of {large.rows:,}",
            ours=timed(large),
            peers={f"of {small.rows:,}": timed(small)},
            rounds=rounds if count < 100_000 else 3,
        )
        bench.goal(f"{name}, by the size of the table", 1 / found.speedup(f"of {small.rows:,}"), FLAT, "×")
        if count == min(large.commits):
            bench.goal(name, found.ours.median * 1000, FEW_MS, "ms")


def diff_part(bench: Benchmark, tables: tuple[Table, Table]) -> None:
    by_size(bench, tables, "a diff", diff, rounds=9)


def feed_part(bench: Benchmark, tables: tuple[Table, Table]) -> None:
    by_size(bench, tables, "the feed", feed, rounds=9)


PARTS: dict[str, Callable[[Benchmark, tuple[Table, Table]], None]] = {
    "diff": diff_part,
    "feed": feed_part,
    # merge: a merge of the same changes, against a bare Lance upsert of the rows
    # schema: add, rename and drop a column of the large table; add a column with a default
    # commits: 10,000 commits of one row; a commit and an open at the end, against those after 100
}
"""The parts of this benchmark."""


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="how many rows the large table has")
    parser.add_argument("--only", choices=sorted(PARTS), help="run one part")


def chosen(bench: Benchmark) -> Iterator[Callable[[Benchmark, tuple[Table, Table]], None]]:
    for name, part in PARTS.items():
        if bench.options.only in (None, name):
            yield part


def main(argv: Sequence[str] | None = None) -> None:
    bench = Benchmark("change", argv, flags=flags)
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        tables = changed_tables(bench, root)
        for part in chosen(bench):
            part(bench, tables)
        for table in tables:
            table.graph.close()
    finally:
        shutil.rmtree(root)
    bench.finish()


if __name__ == "__main__":
    main()
