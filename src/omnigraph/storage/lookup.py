"""Lookups: the rows of a table whose column has one of some values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.storage.id_fragments import MOST_LOOKUPS, IdFragments
from omnigraph.storage.scans import filtered, scanner

_ID, _ROW_ID = "id", "_rowid"
MAX_LOOKUP_VALUES = 1_000
"""Maximum number of values that are always looked up. For more values, see `LOOKUP_RATIO`."""

LOOKUP_RATIO = 100
"""More values are looked up if there are at least this many rows per value. Otherwise the whole column is read."""

COMPARE_ROWS = 1_000_000
"""Minimum number of rows that are compared at once."""


def matching(
    dataset: LanceDataset, by: str, values: pa.ChunkedArray, columns: Sequence[str], ids: IdFragments
) -> pa.Table:
    """The rows whose column `by` has one of some values, in no order. Only matching rows are kept in memory.

    Args:
        dataset: the version.
        by: the column.
        values: the values.
        columns: the columns to return.
        ids: where the ids of the table are.
    """
    rows = dataset.count_rows()
    schema = pa.schema([_field(dataset, name) for name in columns])
    if rows == 0 or len(values) == 0:
        return schema.empty_table()
    if by == _ID and len(values) <= MOST_LOOKUPS:
        return ids.rows(dataset, values.combine_chunks().unique(), columns)
    if len(values) <= max(MAX_LOOKUP_VALUES, rows // LOOKUP_RATIO):
        # Ids are unique, so the search can stop when all are found.
        most = len(values) if by == _ID else None
        return filtered(dataset, columns, pc.field(by).isin(values.combine_chunks()), most, few=True)
    wanted = pa.table({by: values})
    reader = scanner(dataset, columns=list(dict.fromkeys([*columns, by]))).to_reader()
    # The hash table of the values is built for every group, so there should be few groups.
    groups = in_groups(reader, max(COMPARE_ROWS, len(values)))
    found = [group.join(wanted, by, join_type="left semi") for group in groups]
    return pa.concat_tables(found).select(list(columns)).cast(schema)  # a join loses the nullability of columns


def _field(dataset: LanceDataset, name: str) -> pa.Field:
    return pa.field(_ROW_ID, pa.uint64()) if name == _ROW_ID else dataset.schema.field(name)


def in_groups(reader: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Regroup a stream into tables of at least `rows` rows, except the last."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in reader:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)
