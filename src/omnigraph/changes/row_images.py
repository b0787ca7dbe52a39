"""Reads the rows of candidates in both states, and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.aligned_types import ComparedColumn, TypePair, TypeState
from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError
from omnigraph.merge.equality import Mask, identical
from omnigraph.merge.sides import Columns, with_blob_hashes
from omnigraph.read.export.ordered import MEMORY_BYTES, in_order
from omnigraph.storage.row_pairs import AFTER, BEFORE, ROW_ID, scans
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage

BATCH_ROWS = 8192
"""Maximum number of candidates that are compared at a time."""

_ID = "id"
_INDEX = pa.int64()
_ANY_INTEGER = pa.decimal128(20, 0)


class ChangeOp(StrEnum):
    """The kind of a change."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


OPS = (ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE)
Ops = np.ndarray[tuple[int], np.dtype[np.int8]]


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Changes of rows of one type, sorted by id.

    Attributes:
        pair: the type in both states.
        ids: the ids of the rows.
        ops: the kind of each change, as an index into `OPS`.
        before: the rows before the change, with the stored columns of the type in the first state; null for an insert.
        after: the rows after the change, with the stored columns of the type in the second state; null for a delete.
        changed: for each compared column, the mask of the updates that changed it.
    """

    pair: TypePair
    ids: pa.Array
    ops: Ops
    before: pa.Table
    after: pa.Table
    changed: tuple[tuple[ComparedColumn, Mask], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def filter(self, mask: Mask) -> ChangedRows:
        """Only the changes that a mask selects."""
        if mask.all():
            return self
        chosen = pa.array(mask)
        return ChangedRows(
            self.pair,
            self.ids.filter(chosen),
            self.ops[mask],
            self.before.filter(chosen),
            self.after.filter(chosen),
            tuple((column, changed[mask]) for column, changed in self.changed),
        )

    def of(self, op: ChangeOp) -> ChangedRows:
        """Only the changes of one kind."""
        return self.filter(self.ops == OPS.index(op))

    def changed_names(self) -> pa.Array:
        """For each update, the names of the changed columns in the second state; null for other changes."""
        names = [column.after for column, _ in self.changed]
        masks = np.array([mask for _, mask in self.changed]).reshape(len(names), len(self)).T
        offsets = np.concatenate([[0], np.cumsum(masks.sum(axis=1))]).astype(np.int32)
        values = pa.array(names, pa.utf8()).take(pa.array(np.nonzero(masks)[1], _INDEX))
        update = self.ops == OPS.index(ChangeOp.UPDATE)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(~update))

    def with_content(self, tables: TableStorage) -> Iterator[ChangedRows]:
        """The same changes with the content of blobs, in parts whose blobs fit in memory.

        The rows must have the column `_rowid`.
        """
        sides = [
            (table, None if state is None else tables.at(state.pin.ref), [] if state is None else state.blobs)
            for table, state in ((self.before, self.pair.before), (self.after, self.pair.after))
        ]
        if not any(blobs for _, _, blobs in sides):
            yield self
            return
        # Both sides read their rows in portions. A part ends where the smaller of the two portions ends.
        before, after = (_content(*side) for side in sides)
        first = 0
        while first < len(self):
            count = min(before.available(), after.available())
            assert count, "a side has fewer rows"
            part = self.filter(_range_mask(len(self), first, count))
            yield ChangedRows(part.pair, part.ids, part.ops, before.take(count), after.take(count), part.changed)
            first += count


def _range_mask(count: int, first: int, length: int) -> Mask:
    mask = np.zeros(count, bool)
    mask[first : first + length] = True
    return mask


class _Rows:
    """A stream of tables that is consumed in pieces of any length."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: pa.Table | None = None

    def available(self) -> int:
        """The number of rows that can be taken without reading more. Reads more if there is none; 0 at the end."""
        while self._held is None or self._held.num_rows == 0:
            following = next(self._tables, None)
            if following is None:
                return 0
            self._held = following
        return int(self._held.num_rows)

    def take(self, count: int) -> pa.Table:
        """The next rows; fewer at the end."""
        parts = []
        while count and (part := min(count, self.available())):
            assert self._held is not None
            parts.append(self._held.slice(0, part))
            self._held = self._held.slice(part)
            count -= part
        return pa.concat_tables(parts) if parts else pa.table({_ID: pa.array([], pa.utf8())})


def _content(rows: pa.Table, view: TableView | None, blobs: Sequence[str]) -> _Rows:
    if view is None or not blobs:
        return _Rows(iter([rows]))
    # Null rows have neither blobs nor a row id, but the read requires one: any row id can be used.
    place = rows.schema.get_field_index(ROW_ID)
    filled = rows.set_column(place, ROW_ID, rows[ROW_ID].fill_null(0))
    return _Rows(view.content(filled))


def changes_of(
    tables: TableStorage, pair: TypePair, rows: pa.Table, *, budget: int = MEMORY_BYTES
) -> Iterator[ChangedRows]:
    """The changes among candidates, sorted by id. Rows with equal values in both states are left out.

    Args:
        tables: the table storage.
        pair: the type in both states.
        rows: the candidates, sorted by id.
        budget: approximate number of bytes of rows that are in memory at a time.
    """
    sides = [_Side(tables, state, rows[name], budget) for state, name in ((pair.before, BEFORE), (pair.after, AFTER))]
    for first in range(0, rows.num_rows, BATCH_ROWS):
        part = rows.slice(first, BATCH_ROWS).combine_chunks()
        before, after = (
            side.read(part[_ID].combine_chunks(), part[name].combine_chunks())
            for side, name in zip(sides, (BEFORE, AFTER), strict=True)
        )
        found = _compared(tables, pair, part, before, after)
        if len(found):
            yield found


class _Side:
    """Reads the rows of candidates in one state, by lookups or by a scan of the table."""

    def __init__(self, tables: TableStorage, state: TypeState | None, row_ids: pa.ChunkedArray, budget: int) -> None:
        self._state = state
        self._scan: _Rows | None = None
        if state is None:
            return
        self._view = tables.at(state.pin.ref)
        self._columns = [*state.columns, ROW_ID]
        count = len(row_ids) - row_ids.null_count
        if scans(count, state.pin.row_count):
            wanted = row_ids.drop_null().combine_chunks()
            self._scan = _Rows(in_order(_Scanned(self._view, wanted, self._columns, count), budget))

    def read(self, ids: pa.Array, row_ids: pa.Array) -> pa.Table:
        """The rows with the given ids and row ids, in this order; null for a null row id. Call it in the order of ids.

        Raises:
            CorruptionError: the table has other rows under these row ids.
        """
        if self._state is None:
            return pa.table({_ID: pa.nulls(len(row_ids), pa.utf8()), ROW_ID: pa.nulls(len(row_ids), pa.uint64())})
        wanted = row_ids.drop_null()
        if self._scan is None or len(wanted) == 0:
            found = self._view.take_rows(wanted, columns=self._columns)
        else:
            found = self._scan.take(len(wanted))
        if not found[_ID].combine_chunks().equals(ids.filter(row_ids.is_valid())):
            raise CorruptionError(
                f"the rows of {self._state.key} do not match the records of their changes",
                hint="check the graph with 'verify'",
            )
        known = row_ids.is_valid().to_numpy(zero_copy_only=False)
        place = pa.array(np.cumsum(known) - 1, _INDEX)
        chosen = pc.if_else(pa.array(known), place, pa.scalar(None, _INDEX))
        return found.select(self._columns).combine_chunks().take(chosen)


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The rows with some row ids, read by a scan. `batches` can be called several times; each call scans."""

    view: TableView
    row_ids: pa.Array
    columns: Sequence[str]
    count: int

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.columns if columns is None else columns)
        read = wanted if ROW_ID in wanted else [*wanted, ROW_ID]
        for batch in self.view.rows_of(self.row_ids, columns=read):
            yield batch.select(wanted)


def _compared(
    tables: TableStorage, pair: TypePair, candidates: pa.Table, before: pa.Table, after: pa.Table
) -> ChangedRows:
    had, has = (candidates[name].is_valid().to_numpy() for name in (BEFORE, AFTER))
    both = had & has
    masks = {
        column.after: _differs(tables, pair, column, before, after, both)
        for column in pair.compared
        if not column.is_computed
    }
    changed = [(column, masks[name]) for column in pair.compared if (name := _deciding(column)) in masks]
    any_changed = np.any([mask for _, mask in changed], axis=0) if changed else np.zeros(len(both), bool)
    inserted, updated, deleted = (OPS.index(op) for op in (ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE))
    ops = np.where(both, updated, np.where(has, inserted, deleted)).astype(np.int8)
    ids = candidates[_ID].combine_chunks()
    found = ChangedRows(pair, ids, ops, before, after, tuple(changed))
    return found.filter(~both | any_changed)


def _deciding(column: ComparedColumn) -> str:
    """The column that decides whether a column has changed: the text of computed vectors, or the column itself."""
    text = None if column.added is None else column.added.text
    return column.after if text is None else text


def _differs(
    tables: TableStorage, pair: TypePair, column: ComparedColumn, before: pa.Table, after: pa.Table, both: Mask
) -> Mask:
    """Mask of the rows in which a column differs."""
    found = np.zeros(len(both), bool)
    if not both.any():
        return found
    chosen = pa.array(np.flatnonzero(both))

    def values(state: TypeState | None, name: str, rows: pa.Table) -> pa.Array:
        assert state is not None
        if column.is_blob:
            return blob_hashes(tables, state, name, rows.take(chosen))
        return _array(rows, name).take(chosen)

    right = values(pair.after, column.after, after)
    left = filled(column, right) if column.before is None else values(pair.before, column.before, before)
    found[both] = differs(left, right)
    return found


def filled(column: ComparedColumn, values: pa.Array) -> pa.Array:
    """The values of a column that only the second state has, in the first state. `values` are the later ones."""
    assert column.added is not None
    value = column.added.value
    return pa.nulls(len(values), values.type) if value is None else pa.repeat(value, len(values))


def differs(left: pa.Array, right: pa.Array) -> Mask:
    """Mask of the values that differ between two columns, which may have different types."""
    if left.type != right.type:
        left, right = _common_type(left, right)
    return ~identical(left, right)


def blob_hashes(tables: TableStorage, state: TypeState, name: str, rows: pa.Table) -> pa.Array:
    """Hashes of the content of blobs, for rows with their `_rowid`."""
    return _array(with_blob_hashes(tables, state.pin.ref, rows.select([ROW_ID]), Columns((), (name,))), name)


def _common_type(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Convert values of a property whose type has changed to a common type. Values that cannot be converted differ."""
    for wider in _wider_types(left.type, right.type):
        try:
            return left.cast(wider), right.cast(wider)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    # There is no common type: replace the values so that two nulls are equal, and two values always differ.
    return _presence(left, BEFORE), _presence(right, AFTER)


def _wider_types(left: pa.DataType, right: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        yield _ANY_INTEGER
    elif _is_number(left) and _is_number(right):
        yield pa.float64()
    yield right
    yield left


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _presence(column: pa.Array, name: str) -> pa.Array:
    return pc.if_else(column.is_valid(), pa.scalar(name), pa.scalar(None, pa.utf8()))


def _array(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()
