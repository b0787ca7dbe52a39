"""Merges of branches with changed rows, against a bare Lance upsert of the same rows.

Both sides have changed since the base, so it is a merge of three states and not a fast-forward. The bare upsert has the
rows already, and finds neither the rows that differ, nor conflicts, nor broken constraints.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from lance import LanceDataset

from changing.data import Table, bare_copy, people, some_people
from changing.turns import Turn, in_turns
from harness import Benchmark, Work

LIMIT = 3.0
TOUCH = "query touch($name: String) { insert Person { name: $name, age: 1 } }"


class Branches:
    """Branches with changed rows, each merged once."""

    def __init__(self, table: Table, count: int) -> None:
        self._table = table
        self._count = count
        self._numbers = itertools.count(1)

    def __call__(self) -> Work:
        graph, seed = self._table.graph, 1_000 * self._count + next(self._numbers)
        name = f"changes-{seed}"
        graph.branches.create(name)
        changed = some_people(self._table.rows, self._count, seed)
        graph.load(people(changed, seed), mode="merge", type_name="Person", branch=name)
        # The target writes another row, so that the merge is no fast-forward.
        other = np.setdiff1d(np.arange(len(changed) + 1), changed)[0]
        graph.mutate(TOUCH, {"name": f"person-{other}"})

        def merge() -> None:
            done = graph.merge(name)
            assert sum(one.updated for one in done.changes.values()) == len(changed)

        return merge


class Upserts:
    """Upserts of the same numbers of rows into a bare table."""

    def __init__(self, dataset: LanceDataset, rows: int, count: int) -> None:
        self.dataset = dataset
        self._rows = rows
        self._count = count
        self._numbers = itertools.count(1)

    def __call__(self) -> Work:
        seed = 1_000 * self._count + next(self._numbers)
        rows = people(some_people(self._rows, self._count, seed), seed)
        rows = rows.append_column("id", rows["name"]).select(self.dataset.schema.names).cast(self.dataset.schema)

        def upsert() -> None:
            merge = self.dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows)

        return upsert


def merges(bench: Benchmark, tables: tuple[Table, Table], root: Path) -> None:
    table = tables[1]
    bare = bare_copy(table, root / "bare")
    for count in table.changes:
        found = in_turns(
            bench,
            f"a merge of {count:,} changed rows, of {table.rows:,}",
            Turn(Branches(table, count)),
            {"bare upsert": Turn(Upserts(bare, table.rows, count))},
            rounds=5 if count < 100_000 else 3,
        )
        bench.goal(
            f"a merge of {count:,} changed rows, compared with a bare upsert",
            1 / found.speedup("bare upsert"),
            LIMIT,
            "×",
        )
