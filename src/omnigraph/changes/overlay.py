"""Reads table versions together with rows that a commit is going to write to them, as if they were stored already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.merge.compare import Compared
from omnigraph.storage.row_pairs import ID, IDS, ROW_ID
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage

FIRST_ROW_ID = 1 << 63
"""The row id of the first row of an overlay. Row ids of Lance are smaller."""

_OVERLAY = "overlay"


@dataclass(frozen=True, slots=True)
class Overlay:
    """Rows that a commit writes to a table, and ids of rows that it deletes.

    Attributes:
        ref: the version that the rows are written to.
        compared: the rows and the deleted ids.
        tables: the table storage that reads the blobs of the rows, with the columns of the version.
    """

    ref: TableRef
    compared: Compared
    tables: TableStorage

    @property
    def overlaid_ref(self) -> TableRef:
        """A name for the version with the rows of the overlay. There is no stored version with this name."""
        return replace(self.ref, branch=f"{self.ref.branch or ''}/{_OVERLAY}")

    @property
    def written_ids(self) -> pa.Array:
        """The ids of all rows that are written or deleted."""
        compared = self.compared
        return pa.concat_arrays([compared.rows[ID].combine_chunks(), compared.deleted]).unique()

    @property
    def row_ids(self) -> pa.Table:
        """The id and the row id of each row of the overlay."""
        rows = self.compared.rows
        numbers = np.arange(rows.num_rows, dtype=np.uint64) + np.uint64(FIRST_ROW_ID)
        return pa.table([rows[ID], pa.array(numbers)], schema=IDS)

    def rows(self, row_ids: pa.Array) -> pa.Table:
        """The rows with the given row ids of the overlay."""
        places = row_ids.to_numpy(zero_copy_only=False) - np.uint64(FIRST_ROW_ID)
        return self.compared.rows.take(pa.array(places.astype(np.int64)))

    def blobs(self, rows: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The content of the blobs of some rows of the overlay."""
        return replace(self.compared.source(self.tables, list(names)), rows=rows).batches(names)


@dataclass(frozen=True, slots=True)
class OverlaidView:
    """A table version with the rows of an overlay. Provides those read methods of `TableView` that comparisons use."""

    _view: TableView
    _overlay: Overlay

    def schema(self) -> pa.Schema:
        return self._view.schema()

    def take_rows(self, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        ours = _in_overlay(row_ids)
        stored = self._view.take_rows(row_ids.filter(pa.array(~ours)), columns=columns)
        if not ours.any():
            return stored
        added = self._added(row_ids.filter(pa.array(ours)), stored.schema)
        order = np.empty(len(ours), np.int64)
        order[~ours] = np.arange(stored.num_rows)
        order[ours] = stored.num_rows + np.arange(added.num_rows)
        return pa.concat_tables([stored, added]).take(pa.array(order))

    def rows_of(self, row_ids: pa.Array, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        ours = _in_overlay(row_ids)
        stored = row_ids.filter(pa.array(~ours))
        if len(stored):
            yield from self._view.rows_of(stored, columns=columns)
        if ours.any():
            schema = self._view.take_rows(row_ids.slice(0, 0), columns=columns).schema
            yield from self._added(row_ids.filter(pa.array(ours)), schema).to_batches()

    def content(self, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
        ours = _in_overlay(rows[ROW_ID].combine_chunks())
        blobs = set(self._overlay.compared.versions.columns.blobs)
        names = [name for name in rows.column_names if name in blobs]
        bounds = [0, *(np.flatnonzero(np.diff(ours)) + 1), rows.num_rows]
        for first, end in pairwise(bounds):
            part = rows.slice(first, end - first)
            if first == end or not ours[first]:
                yield from self._view.content(part, largest)
                continue
            done = 0
            for batch in self._overlay.blobs(self._overlay.rows(part[ROW_ID].combine_chunks()), names):
                some = part.slice(done, batch.num_rows)
                done += batch.num_rows
                for name in names:
                    some = some.set_column(some.column_names.index(name), name, batch.column(name))
                yield some

    def _added(self, row_ids: pa.Array, schema: pa.Schema) -> pa.Table:
        """Rows of the overlay with the columns of stored rows. Blobs are null: `content` reads them by row id."""
        rows = self._overlay.rows(row_ids)
        blobs = self._overlay.compared.versions.columns.blobs
        columns = []
        for field in schema:
            if field.name == ROW_ID:
                columns.append(row_ids.cast(field.type))
            elif field.name in blobs:
                columns.append(pa.nulls(len(row_ids), field.type))
            else:
                columns.append(rows[field.name].cast(field.type))
        return pa.table(columns, schema=schema)


class OverlaidTables:
    """The tables of the graph, with the overlays of a commit that is not published yet."""

    def __init__(self, tables: TableStorage, overlays: Mapping[TableRef, Overlay]) -> None:
        self._tables = tables
        self._overlays = overlays

    def at(self, ref: TableRef) -> TableView:
        overlay = self._overlays.get(ref)
        if overlay is None:
            return self._tables.at(ref)
        return cast(TableView, OverlaidView(self._tables.at(overlay.ref), overlay))


def overlaid_tables(tables: TableStorage, overlays: Sequence[Overlay]) -> TableStorage:
    """The table storage that reads each overlay under its `overlaid_ref`, with the methods that comparisons use."""
    return cast(TableStorage, OverlaidTables(tables, {one.overlaid_ref: one for one in overlays}))


def without_ids(rows: pa.Table, ids: pa.Array) -> pa.Table:
    """The rows whose id is not among some ids."""
    return rows.filter(pc.invert(pc.is_in(rows[ID], value_set=ids))) if len(ids) else rows


def _in_overlay(row_ids: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(row_ids.to_numpy(zero_copy_only=False) >= np.uint64(FIRST_ROW_ID))
