"""Bare Lance commits: the least that a write of one row to a table and to a manifest can cost.

A bare commit writes the row with Lance's own calls, without checks, and flushes every file that it writes and the
directories of these files.
"""

from __future__ import annotations

import os
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, Transaction
from lance.fragment import write_fragments

NODE = pa.schema([("id", pa.utf8()), ("age", pa.int32()), ("city", pa.utf8()), ("name", pa.utf8())])
EDGE = pa.schema(
    [("id", pa.utf8()), ("src", pa.utf8()), ("dst", pa.utf8()), ("since", pa.date32()), ("weight", pa.float32())]
)
MANIFEST = pa.schema([("object_id", pa.utf8()), ("object_type", pa.utf8()), ("metadata", pa.utf8())])


def names(rows: int) -> pa.Array:
    return pc.binary_join_element_wise("person-", pa.array(np.arange(rows)).cast(pa.utf8()), "")


class BareTable:
    """A bare table with indexes of its ids, and of the endpoints of edges."""

    def __init__(self, place: Path, schema: pa.Schema, rows: int, history: int = 0) -> None:
        ids = names(rows)
        columns = [ids if pa.types.is_string(field.type) else pa.nulls(rows, field.type) for field in schema]
        self._schema = schema
        self._place = place
        self._dataset = lance.write_dataset(pa.table(columns, schema=schema), str(place), enable_stable_row_ids=True)
        for name in ("id", "src", "dst"):
            if name in schema.names:
                self._dataset.create_scalar_index(name, "BTREE")
        for number in range(history):
            self.append(f"early-{number}")

    def append(self, name: str) -> None:
        """Commit one new row."""
        row = self._row(name)
        self._commit(write_fragments(row, self._dataset, mode="append", return_transaction=True))

    def merge(self, name: str) -> None:
        """Commit one row that replaces the row with its id."""
        merge = self._dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        self._commit(merge.execute_uncommitted(self._row(name))[0])

    def _row(self, name: str) -> pa.Table:
        columns = [[name if pa.types.is_string(field.type) else None] for field in self._schema]
        return pa.table(columns, schema=self._schema)

    def _commit(self, transaction: Transaction) -> None:
        self._flush(transaction)
        self._dataset = LanceDataset.commit(self._dataset, transaction, max_retries=0)
        versions = self._place / "_versions"
        flush(versions / f"{2**64 - 1 - int(self._dataset.version):020d}.manifest")
        flush(versions)

    def _flush(self, transaction: Transaction) -> None:
        """Flush the data and deletion files of a transaction."""
        operation = transaction.operation
        added = getattr(operation, "fragments", None) or getattr(operation, "new_fragments", None) or []
        for fragment in added:
            for file in fragment.files:
                flush(self._place / "data" / file.path)
        for fragment in getattr(operation, "updated_fragments", None) or []:
            if fragment.deletion_file is not None:
                flush(self._place / fragment.deletion_file.path(fragment.id))
                flush(self._place / "_deletions")
        flush(self._place / "data")


def flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
