"""Schema changes of a large table: steps that only change metadata, and a new column with a default.

The peer of the new column writes only that column with bare Lance: to the same number of rows, as a new table.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc

from changing.data import KEY, LOAD_ROWS, SCHEMA, Table
from changing.turns import Turn, in_turns
from harness import Benchmark, Work

METADATA_MS = 100
LIMIT = 1.5


def with_property(line: str) -> str:
    return SCHEMA.replace("}", f"    {line}\n}}")


SCHEMAS = {
    "add": with_property("note: String?"),
    "rename": with_property('remark: String? @rename_from("note")'),
    "drop": SCHEMA,
}
"""The schema after each step that changes only metadata."""


def step(table: Table, name: str) -> Turn:
    """One step in every round. The steps that lead to its first state are not timed."""
    graph = table.graph

    def work() -> None:
        assert graph.schema.apply(SCHEMAS[name]).applied

    def prepare() -> Work:
        graph.schema.apply(SCHEMA)
        if name != "add":
            graph.schema.apply(SCHEMAS["add"])
        return work

    return Turn(prepare)


class Defaults:
    """A new required property with a default, which is dropped before the next round."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __call__(self) -> Work:
        graph = self._table.graph
        graph.schema.apply(SCHEMA)

        def work() -> None:
            assert graph.schema.apply(with_property("level: I64 @default(7)")).applied

        return work


def column_alone(root: Path, rows: int) -> Work:
    """Write the new column as a table of its own."""
    place = root / "column"
    shutil.rmtree(place, ignore_errors=True)
    schema = pa.schema([pa.field("level", pa.int64(), nullable=False)])
    batch = pa.record_batch([pa.repeat(pa.scalar(7, pa.int64()), 1 << 15)], schema=schema)

    def work() -> None:
        batches = (batch.slice(0, min(batch.num_rows, rows - first)) for first in range(0, rows, batch.num_rows))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        lance.write_dataset(reader, str(place), max_rows_per_file=LOAD_ROWS)

    return work


def schemas(bench: Benchmark, tables: tuple[Table, Table], root: Path) -> None:
    table = tables[1]
    for part, what in (("add", "add a nullable property"), ("rename", "rename it"), ("drop", "drop it")):
        found = in_turns(bench, f"{what}, {table.rows:,} rows", step(table, part), {}, rounds=5)
        bench.goal(f"{what}, {table.rows:,} rows", found.ours.median * 1000, METADATA_MS, "ms")
    peer = Turn(lambda: column_alone(root, table.rows))
    name = f"add a property with a default, {table.rows:,} rows"
    found = in_turns(bench, name, Turn(Defaults(table)), {"bare column": peer}, rounds=5)
    stored = table.graph.snapshot().scan(KEY, columns=["level"])["level"]
    assert len(stored) == table.rows
    assert pc.all(pc.equal(stored, 7)).as_py()
    bench.goal(f"{name}, compared with the column alone", 1 / found.speedup("bare column"), LIMIT, "×")
