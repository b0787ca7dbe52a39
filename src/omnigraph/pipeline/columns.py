"""A schema change on Spark: tasks check the stored rows, compute the values of new columns, and write files.

The driver stages the files of all fragments as one table write, and commits.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.migrate.checks import MigratedRows
from omnigraph.pipeline.fragment_groups import grouped
from omnigraph.pipeline.search import SparkSearch
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.column_changes import NewValues, write_columns
from omnigraph.storage.table_view import TableView
from omnigraph.write.rules.constraints import MemoryLimit


@dataclass(frozen=True, slots=True)
class _Written:
    """The result of a task.

    Attributes:
        fragments: descriptions of the written fragments, from `write_columns`.
        failed: the error, if values could not be computed.
    """

    fragments: tuple[str, ...] = ()
    failed: OmnigraphError | None = None


class SparkSchemaWork:
    """Checks rows and writes the new columns of a schema change by tasks.

    Args:
        spark: the context of the work on Spark.
    """

    def __init__(self, spark: SparkWork) -> None:
        self._spark = spark

    def __call__(self, table: TableView, schema: pa.Schema, values: NewValues) -> Sequence[str]:
        staging, ref = self._spark.staging, table.ref

        def write(numbers: tuple[int, ...]) -> _Written:
            try:
                return _Written(write_columns(staging.tables.at(ref), schema, values, numbers))
            except OmnigraphError as error:
                return _Written(failed=error)

        done = self._spark.map("computing columns", list(grouped(table.fragments())), write)
        failed = next((part.failed for part in done if part.failed is not None), None)
        if failed is not None:
            raise failed
        return [fragment for part in done for fragment in part.fragments]

    def search(self, rows: MigratedRows, memory: MemoryLimit) -> SparkSearch:
        return SparkSearch(self._spark, rows)
