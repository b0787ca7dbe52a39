"""Reads one type at one commit, by the tasks of a Spark job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.pipeline.fragment_groups import BATCH_ROWS, PARTITION_BYTES, balanced
from omnigraph.pipeline.source.pinned import Pinned
from omnigraph.pipeline.source.types import batch_schema, for_spark, stored_name

_MIN_TASK_BYTES = 8 * 1024 * 1024
_MIN_FILTER_TASK_BYTES = 64 * 1024 * 1024
"""Minimum number of bytes that a task reads, without and with a filter. To read less, starting a task would take longer
than reading.

A task with a filter returns fewer rows, so it should read more.
"""

# The approximate size of a value in a file, in bytes.
_WIDTHS = {
    Scalar.BOOL: 1,
    Scalar.I32: 4,
    Scalar.U32: 4,
    Scalar.F32: 4,
    Scalar.DATE: 4,
    Scalar.STRING: 24,
    Scalar.BLOB: 4096,
}
_LIST = 8
"""Approximate number of items in a list."""


@dataclass
class FragmentPartition(InputPartition):
    """The fragments that one task reads."""

    fragments: tuple[int, ...]


class Reader(DataSourceReader):
    """Reads the rows of a type.

    Args:
        pinned: the type, its version and its columns.
        schema: the columns that Spark needs.
    """

    def __init__(self, pinned: Pinned, schema: StructType) -> None:
        check_schema(schema, pinned.schema)
        self._pinned = pinned
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        pinned = self._pinned
        found = pinned.location.tables().at(pinned.ref).fragments()
        read = {name: pinned.columns[name] for name in self._schema.names}
        share = row_width(read.values()) / row_width(pinned.declared.values())
        # At least one partition per core of the driver, but not too small: the same rule as that of Spark for files.
        cores = os.cpu_count() or 1
        all_cores = sum(fragment.size for fragment in found) * share / cores
        least = _MIN_TASK_BYTES if pinned.where is None else _MIN_FILTER_TASK_BYTES
        most = min(PARTITION_BYTES, max(least, all_cores))
        return [FragmentPartition(group) for group in balanced(found, most / share, cores)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FragmentPartition):
            return  # Spark passes an empty partition if a table has no fragments
        with reading_if_long(self._pinned.location.objects(), WorkKind.SPARK_READ, [self._pinned.ref]):
            yield from self._read(partition)

    def _read(self, partition: FragmentPartition) -> Iterator[pa.RecordBatch]:
        pinned, schema = self._pinned, batch_schema(self._schema)
        names = [stored_name(name, pinned.kind) for name in schema.names]
        where = pinned.where
        batches = (
            pinned.location.tables()
            .at(pinned.ref)
            .read_fragments(
                partition.fragments,
                columns=names if where is None else list(dict.fromkeys([*names, *where.columns])),
                filter=None if where is None else where.pushdown(),
                batch_rows=BATCH_ROWS,
            )
        )
        if where is None:
            for batch in batches:
                yield for_spark(batch.columns, schema)
            return
        for batch in batches:
            rows = where.matching(pa.Table.from_batches([batch])).select(names).combine_chunks()
            for part in rows.to_batches():
                yield for_spark(part.columns, schema)


def row_width(types: Iterable[ValueType]) -> int:
    """Approximate bytes that a row with columns of these types has in a file."""
    found = 0
    for type_ in types:
        if type_.is_vector:
            found += 4 * (type_.dim or 1)
        else:
            found += _WIDTHS.get(type_.scalar, 8) * (_LIST if type_.list else 1)
    return max(found, 1)


def check_schema(schema: StructType, stored_schema: StructType) -> None:
    """Check a schema that the user gave against the stored columns.

    Raises:
        InputError: the schema differs from the stored columns.
    """
    known = {field.name: field for field in stored_schema}
    for field in schema:
        stored = known.get(field.name)
        if stored is None:
            raise InputError(f"there is no column '{cut(field.name)}'", hint=did_you_mean(field.name, list(known)))
        if stored.dataType != field.dataType:
            given, is_ = field.dataType.simpleString(), stored.dataType.simpleString()
            raise InputError(f"column '{field.name}' has type {is_}, not {cut(given)}", hint="omit .schema(...)")
        if stored.nullable and not field.nullable:
            raise InputError(
                f"column '{field.name}' may contain nulls, but the given schema does not allow them",
                hint="omit .schema(...)",
            )
