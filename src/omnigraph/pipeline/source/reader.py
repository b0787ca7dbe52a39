"""Reading one type of one commit in the tasks of a Spark job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.pipeline.fragment_groups import BATCH_ROWS, PARTITION_BYTES, grouped
from omnigraph.pipeline.source.pinned import Pinned
from omnigraph.pipeline.source.types import batch_schema, for_spark, stored_name

_WORTH_A_TASK = 8 * 1024 * 1024
_WORTH_A_FILTER = 64 * 1024 * 1024
"""With less than this, a task costs more than it reads; the second is for tasks that give few of the rows to Spark."""

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
"""About how many bytes values take in a file, and how many a list has."""


@dataclass
class Part(InputPartition):
    """What one task reads: some fragments of the table."""

    fragments: tuple[int, ...]


class Reader(DataSourceReader):
    """Reads a type.

    Args:
        pinned: what is read.
        schema: the columns that Spark wants.
    """

    def __init__(self, pinned: Pinned, schema: StructType) -> None:
        check_schema(schema, pinned.schema)
        self._pinned = pinned
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        pinned = self._pinned
        found = pinned.place.tables().at(pinned.ref).fragments()
        read = {name: pinned.columns[name] for name in self._schema.names}
        share = width(read.values()) / width(pinned.declared.values())
        # As Spark divides files: for all cores, but not into crumbs. These are the cores of the driver.
        all_cores = sum(fragment.size for fragment in found) * share / (os.cpu_count() or 1)
        worth = _WORTH_A_TASK if pinned.where is None else _WORTH_A_FILTER
        most = min(PARTITION_BYTES, max(worth, all_cores))
        return [Part(group) for group in grouped(found, most / share)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return  # a table without rows has no fragments
        with reading_if_long(self._pinned.place.objects(), WorkKind.SPARK_READ, [self._pinned.ref]):
            yield from self._read(partition)

    def _read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        pinned, schema = self._pinned, batch_schema(self._schema)
        names = [stored_name(name, pinned.kind) for name in schema.names]
        where = pinned.where
        batches = (
            pinned.place.tables()
            .at(pinned.ref)
            .read_fragments(
                partition.fragments,
                columns=names if where is None else list(dict.fromkeys([*names, *where.columns])),
                filter=None if where is None else where.scanned(),
                batch_rows=BATCH_ROWS,
            )
        )
        if where is None:
            for batch in batches:
                yield for_spark(batch.columns, schema)
            return
        for batch in batches:
            rows = where.kept(pa.Table.from_batches([batch])).select(names).combine_chunks()
            for part in rows.to_batches():
                yield for_spark(part.columns, schema)


def width(types: Iterable[ValueType]) -> int:
    """About how many bytes a row of such columns takes in a file."""
    found = 0
    for type_ in types:
        if type_.is_vector:
            found += 4 * (type_.dim or 1)
        else:
            found += _WIDTHS.get(type_.scalar, 8) * (_LIST if type_.list else 1)
    return max(found, 1)


def check_schema(schema: StructType, own_schema: StructType) -> None:
    """Spark may have been told what the columns are: then they must be what they are.

    Raises:
        InputError: they are not.
    """
    known = {field.name: field for field in own_schema}
    for field in schema:
        own = known.get(field.name)
        if own is None:
            raise InputError(f"there is no column '{cut(field.name)}'", hint=did_you_mean(field.name, list(known)))
        if own.dataType != field.dataType:
            said, is_ = field.dataType.simpleString(), own.dataType.simpleString()
            raise InputError(f"column '{field.name}' is {is_}, not {cut(said)}", hint="leave out .schema(...)")
        if own.nullable and not field.nullable:
            raise InputError(f"column '{field.name}' may be null", hint="leave out .schema(...)")
