"""Schema changes of a large table: steps that only change metadata, and a new column with a default.

The peer of the new column adds it with bare Lance to a copy of the table. A second peer, without a goal, writes the
column as a new table: no deleted rows, and no commit to a table with many fragments.
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


class BareColumn:
    """The same column, added to a copy of the table by Lance itself. It is dropped before the next round."""

    def __init__(self, table: Table, place: Path) -> None:
        shutil.copytree(table.stored.uri, place)
        self._dataset = lance.dataset(str(place))

    def __call__(self) -> Work:
        if "level" in self._dataset.schema.names:
            self._dataset.drop_columns(["level"])
        return lambda: self._dataset.add_columns({"level": "cast(7 as bigint)"})


def column_alone(place: Path, rows: int) -> Work:
    """The column as a new table, without the rows that it belongs to."""
    shutil.rmtree(place, ignore_errors=True)
    schema = pa.schema([pa.field("level", pa.int64(), nullable=False)])
    batch = pa.record_batch([pa.repeat(pa.scalar(7, pa.int64()), 1 << 15)], schema=schema)
    full, rest = divmod(rows, batch.num_rows)
    batches = [*[batch] * full, batch.slice(0, rest)]

    def work() -> None:
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        lance.write_dataset(reader, str(place), max_rows_per_file=LOAD_ROWS)

    return work


def schemas(bench: Benchmark, tables: tuple[Table, Table], root: Path) -> None:
    table = tables[1]
    for part, what in (("add", "add a nullable property"), ("rename", "rename it"), ("drop", "drop it")):
        found = in_turns(bench, f"{what}, {table.rows:,} rows", step(table, part), {}, rounds=5)
        bench.goal(f"{what}, {table.rows:,} rows", found.ours.median * 1000, METADATA_MS, "ms")
    name = f"add a property with a default, {table.rows:,} rows"
    peers = {
        "bare add_columns": Turn(BareColumn(table, root / "bare-columns")),
        "column as a table": Turn(lambda: column_alone(root / "column", table.rows)),
    }
    found = in_turns(bench, name, Turn(Defaults(table)), peers, rounds=5)
    stored = table.graph.snapshot().scan(KEY, columns=["level"])["level"]
    assert len(stored) == table.rows
    assert pc.all(pc.equal(stored, 7)).as_py()
    bench.goal(f"{name}, compared with bare Lance", 1 / found.speedup("bare add_columns"), LIMIT, "×")
    table.graph.schema.apply(SCHEMA)
