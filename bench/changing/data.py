"""Graphs with one table, whose rows are changed in commits of known sizes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

import omnigraph
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

KEY = "node:Person"
SCHEMA = """\
node Person {
    name: String @key
    city: String?
    age: I32?
    visits: I64?
    score: F64?
}
"""
LOAD_ROWS = 1_000_000

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


def people(numbers: Numbers, seed: int) -> pa.Table:
    """Rows of some people. Another seed gives other values."""
    random = np.random.default_rng(seed)
    count = len(numbers)
    return pa.table(
        {
            "name": pc.binary_join_element_wise("person-", pa.array(numbers).cast(pa.utf8()), ""),
            "city": pa.array([f"city {i}" for i in range(500)]).take(pa.array(random.integers(0, 500, count))),
            "age": pa.array(random.integers(0, 100, count), pa.int32()),
            "visits": pa.array(random.integers(0, 1 << 40, count)),
            "score": pa.array(random.random(count)),
        }
    )


def some_people(rows: int, count: int, seed: int) -> Numbers:
    """Numbers of some people all over a table, sorted."""
    return np.sort(np.random.default_rng(seed).choice(rows, min(count, rows), replace=False))


@dataclass(frozen=True, slots=True)
class Change:
    """A commit that changed rows of a table.

    Attributes:
        before: the id of the commit before it.
        after: its id.
        ids: the ids of the changed rows, sorted.
    """

    before: str
    after: str
    ids: pa.Array


@dataclass(frozen=True, slots=True)
class Table:
    """A graph with one table, and commits that changed some of its rows.

    Attributes:
        rows: the number of rows.
        changes: the commits, by the number of changed rows.
    """

    graph: Graph
    rows: int
    changes: Mapping[int, Change]

    def forget(self) -> None:
        """Drop the cached results of earlier comparisons."""
        self.graph.session.reading.known.discard(lambda _: True)

    @property
    def stored(self) -> LanceDataset:
        """The stored table at the head of `main`."""
        return self.graph.snapshot().table(KEY).dataset


def changed_table(place: Path, rows: int, changed: Sequence[int]) -> Table:
    """Load a table, then change rows all over it, in one commit for each number."""
    os.environ[FSYNC.name] = "0"
    graph = omnigraph.init(place, SCHEMA)
    for first in range(0, rows, LOAD_ROWS):
        numbers = np.arange(first, min(first + LOAD_ROWS, rows))
        graph.load(people(numbers, 1), mode="append", type_name="Person")
    changes = {}
    for count in changed:
        before = graph.snapshot().commit.id
        rows_ = people(some_people(rows, count, count), count)
        graph.load(rows_, mode="merge", type_name="Person")
        changes[count] = Change(before, graph.snapshot().commit.id, rows_["name"].combine_chunks().sort())
    return Table(graph, rows, changes)


def bare_copy(table: Table, place: Path) -> LanceDataset:
    """A plain Lance table with the rows and the columns of a table, in as many files as a load writes."""
    reader = table.stored.scanner(batch_size=1 << 16).to_reader()
    return lance.write_dataset(reader, str(place), max_rows_per_file=LOAD_ROWS, enable_stable_row_ids=True)
