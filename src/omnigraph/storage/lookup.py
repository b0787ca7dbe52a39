"""Finding the rows of a table that have one of some values in a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.storage.scans import filtered, scanner

_ID, _ROW_ID = "id", "_rowid"
_FEW = 1_000
_SHARE = 100
"""Up to one value for so many rows, rows are looked up; above it, reading the whole column once is cheaper."""

_TOGETHER = 1_000_000
"""How many rows of a table are compared at once, at least."""


def matching(dataset: LanceDataset, by: str, values: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
    """The rows whose column `by` has one of some values, in no order. Only those are kept in memory."""
    rows = dataset.count_rows()
    schema = pa.schema([_field(dataset, name) for name in columns])
    if rows == 0 or len(values) == 0:
        return schema.empty_table()
    if len(values) <= max(_FEW, rows // _SHARE):
        # An id is there once, so the search may end when all are found.
        most = len(values) if by == _ID else None
        return filtered(dataset, columns, pc.field(by).isin(values.combine_chunks()), most, few=True)
    wanted = pa.table({by: values})
    reader = scanner(dataset, columns=list(dict.fromkeys([*columns, by]))).to_reader()
    # The values are prepared anew for every comparison, so there should be few of those.
    groups = in_groups(reader, max(_TOGETHER, len(values)))
    found = [group.join(wanted, by, join_type="left semi") for group in groups]
    return pa.concat_tables(found).select(list(columns)).cast(schema)  # a join forgets which columns may be null


def _field(dataset: LanceDataset, name: str) -> pa.Field:
    return pa.field(_ROW_ID, pa.uint64()) if name == _ROW_ID else dataset.schema.field(name)


def in_groups(reader: pa.RecordBatchReader, rows: int) -> Iterator[pa.Table]:
    """A stream in tables of at least so many rows, but for the last."""
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
