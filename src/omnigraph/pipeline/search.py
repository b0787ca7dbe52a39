"""Searches the stored rows of a schema change on Spark for rows that do not fit the new schema.

The constraints are those of `write.rules`. A check of single rows runs in one task per group of fragments. A check that
compares rows shuffles them, so that rows with the same values are in one task.
"""

# See docs/decisions/0199-whole-table-checks-are-searches.md

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.migrate.checks import MigratedColumns, MigratedRows
from omnigraph.pipeline.fragment_groups import grouped
from omnigraph.pipeline.spark.shuffle import Relation, Side, block_schema, combine_first, decode, encode
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.lookup import in_groups
from omnigraph.write.rules.search import Find, FirstRows, GroupedRows
from omnigraph.write.rules.violations import SHOWN

_BLOCK_ROWS = 1 << 16
"""Minimum number of rows that a task converts at once."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of some fragments, as they will be after the change."""

    staging: Staging
    columns: MigratedColumns
    numbers: tuple[int, ...]

    def tables(self) -> Iterator[pa.Table]:
        read = self.columns
        stored = self.staging.tables.at(read.ref).batches(columns=list(read.reads), numbers=self.numbers)
        return in_groups((read.converted(batch) for batch in stored), _BLOCK_ROWS)


class SparkSearch:
    """Searches by tasks.

    Args:
        spark: the context of the work on Spark.
        rows: the stored rows.
    """

    def __init__(self, spark: SparkWork, rows: MigratedRows) -> None:
        self._spark = spark
        self._rows = rows

    def each(self, key: str, columns: Sequence[str], find: Find, order: str) -> FirstRows | None:
        def check(part: _Part) -> tuple[bytes, int] | None:
            first = FirstRows.of((find(rows) for rows in part.tables()), order)
            return None if first is None else (encode(first.rows), first.total)

        done = self._spark.map(f"checking {key}", self._parts(key, columns), check)
        found = [(decode(rows), total) for rows, total in filter(None, done)]
        first = FirstRows.of((rows for rows, _ in found), order)
        return None if first is None else FirstRows(first.rows, sum(total for _, total in found))

    def grouped(self, sides: Sequence[GroupedRows], find: Find, order: str) -> FirstRows | None:
        with self._spark.job(f"checking {sides[-1].key}"):
            shuffle = self._spark.shuffle
            inputs = [Side(self._relation(side), side.by) for side in sides]
            wrong = shuffle.cogroup(inputs, find, self._spark.options.tasks)
            (answers,) = shuffle.collect([wrong.first(order, SHOWN)])
        first, total = combine_first(answers, order, SHOWN)
        return FirstRows(first, total) if total else None

    def repeated(self, rows: GroupedRows, find: Find, order: str) -> FirstRows | None:
        return self.grouped([rows], find, order)

    def _relation(self, side: GroupedRows) -> Relation:
        parts = self._parts(side.key, side.columns)
        pin = self._rows.pin(side.key)
        schema = block_schema(self._rows.empty(side.key, side.columns).schema)
        return self._spark.shuffle.read(parts, schema, 0 if pin is None else pin.row_count).map(side.reduce)

    def _parts(self, key: str, columns: Sequence[str]) -> list[_Part]:
        pin = self._rows.pin(key)
        if pin is None or pin.row_count == 0:
            return []
        chosen = self._rows.migrated(key, columns)
        fragments = self._rows.tables.at(chosen.ref).fragments()
        return [_Part(self._spark.staging, chosen, numbers) for numbers in grouped(fragments)]
