"""A snapshot with changes that are not written yet. Later statements read it like a snapshot.

A transaction collects the changes of its statements here, and writes them to the tables once, at its end.
"""

# See docs/decisions/0216-a-transaction-collects-its-changes.md

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Models
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import Append, Change, DeleteIds, TableWrite, Upsert
from omnigraph.storage.blobs import blob_columns, has_no_content

_ID = "id"
PARTS = 64
"""Number of tables after which the rows of a type are brought together in one table."""

FEW = 1_000
"""Maximum number of rows that are compared one by one with the changed ids."""


class State(Protocol):
    """A state of the graph that statements read: a snapshot, or one with changes."""

    def scan(
        self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.Table: ...

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table: ...

    def is_without(self, key: str, ids: pa.ChunkedArray) -> bool: ...

    def models(self, key: str) -> Models: ...


class ChangedState:
    """A snapshot and the changes of statements.

    Args:
        snapshot: the state before the changes.

    Attributes:
        rows: number of rows that were written so far, including those that later statements replaced.
        size: their bytes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.rows = 0
        self.size = 0
        self._snapshot = snapshot
        self._types: dict[str, _TypeChanges] = {}

    @property
    def is_changed(self) -> bool:
        return bool(self._types)

    # Reads

    def scan(self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """The entities of a type that match a filter."""
        changes = self._types.get(key)
        if changes is None:
            return self._snapshot.scan(key, columns=columns, filter=filter)
        read = None if columns is None else list(dict.fromkeys([*columns, _ID]))
        stored = changes.unchanged(self._snapshot.scan(key, columns=read, filter=filter))
        own = changes.table
        return _together(stored, own if own is None or filter is None else own.filter(filter), columns)

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The entities of a type whose column `by` has one of some values, in no order."""
        changes = self._types.get(key)
        if changes is None:
            return self._snapshot.lookup(key, by, values, columns=columns)
        read = list(dict.fromkeys([*columns, _ID]))
        if by == _ID:
            own, left = changes.find(values)
            return _together(self._snapshot.lookup(key, by, left, columns=read), own, columns)
        stored = changes.unchanged(self._snapshot.lookup(key, by, values, columns=read))
        own = changes.table
        return _together(stored, None if own is None else own.filter(pc.is_in(own[by], value_set=values)), columns)

    def is_without(self, key: str, ids: pa.ChunkedArray) -> bool:
        """Whether a type has no entities at all."""
        return key not in self._types and self._snapshot.is_without(key, ids)

    def models(self, key: str) -> Models:
        """The embedding models that computed the vectors of a type."""
        changes = self._types.get(key)
        found = None if changes is None else changes.models
        return self._snapshot.models(key) if found is None else found

    # Changes

    def apply(self, writes: Iterable[TableWrite]) -> None:
        """Add the writes of a statement, which were prepared on this state."""
        for write in writes:
            changes = self._types.setdefault(write.key, _TypeChanges())
            match write:
                case Append() | Upsert():
                    changes.put(write.rows, new=isinstance(write, Append))
                    self.rows += write.rows.num_rows
                    self.size += write.rows.nbytes
                case DeleteIds():
                    changes.remove(write.ids)
                    self.rows += len(write.ids)
                    self.size += write.ids.nbytes
                case _:
                    raise AssertionError(f"a statement makes no {type(write).__name__}")
            if write.models is not None:
                changes.models = write.models

    def writes(self) -> list[TableWrite]:
        """The net changes since the snapshot, one write per table."""
        return [changes.write(key) for key, changes in sorted(self._types.items())]


class _TypeChanges:
    """The changes of one type: the rows that it gets, and the ids that it loses."""

    def __init__(self) -> None:
        self.models: Models | None = None
        self._parts: list[pa.Table] = []
        self._places: dict[str, tuple[int, int]] = {}
        """The part and the row of each changed entity."""
        self._deleted: set[str] = set()
        self._only_new = True
        """Whether no stored entity is replaced or deleted."""

    def put(self, rows: pa.Table, *, new: bool) -> None:
        """Add whole rows with distinct ids. They replace earlier rows with the same ids."""
        self._only_new = self._only_new and new
        self._parts.append(self._with_blobs(rows))
        part = len(self._parts) - 1
        ids = rows[_ID].to_pylist()
        self._places |= {one: (part, row) for row, one in enumerate(ids)}
        self._deleted.difference_update(ids)
        if len(self._parts) > PARTS:
            self._compact()

    def _with_blobs(self, rows: pa.Table) -> pa.Table:
        """Rows with the blobs of earlier rows, where they keep them. Later blobs are those of the stored rows."""
        for name in blob_columns(rows):
            kept = has_no_content(cells := rows[name].combine_chunks()).to_pylist()
            earlier = [
                self._places.get(one) if keep else None for one, keep in zip(rows[_ID].to_pylist(), kept, strict=True)
            ]
            if any(earlier):
                parts = [
                    cells.slice(row, 1)
                    if place is None
                    else self._parts[place[0]][name].slice(place[1], 1).combine_chunks()
                    for row, place in enumerate(earlier)
                ]
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), pa.concat_arrays(parts))
        return rows

    def remove(self, ids: pa.Array) -> None:
        self._only_new = False
        for one in ids.to_pylist():
            self._places.pop(one, None)
            self._deleted.add(one)

    def find(self, ids: pa.ChunkedArray) -> tuple[pa.Table | None, pa.ChunkedArray]:
        """The rows with some ids, and the ids that are not changed."""
        known = [one for one in ids.to_pylist() if one in self._places]
        rows = [self._parts[part].slice(row, 1) for part, row in (self._places[one] for one in dict.fromkeys(known))]
        left = [one for one in ids.to_pylist() if one not in self._places and one not in self._deleted]
        return pa.concat_tables(rows) if rows else None, pa.chunked_array([left], pa.utf8())

    def unchanged(self, stored: pa.Table) -> pa.Table:
        """The stored rows that are neither replaced nor deleted."""
        if stored.num_rows <= FEW:
            ids = stored[_ID].to_pylist()
            return stored.filter(pa.array([i not in self._places and i not in self._deleted for i in ids], pa.bool_()))
        changed = pa.array([*self._places, *self._deleted], pa.utf8())
        return stored.filter(pc.invert(pc.is_in(stored[_ID], value_set=changed)))

    @property
    def table(self) -> pa.Table | None:
        """The rows of all changed entities, in the order in which they were written; None if there were none."""
        self._compact()
        return self._parts[0] if self._parts else None

    def _compact(self) -> None:
        """Bring all rows together in one part, without those that were replaced or deleted."""
        if not self._parts or (len(self._parts) == 1 and len(self._places) == self._parts[0].num_rows):
            return
        starts = np.cumsum([0, *(part.num_rows for part in self._parts)])
        rows = np.sort(np.array([starts[part] + row for part, row in self._places.values()], np.int64))
        whole = pa.concat_tables(self._parts).take(pa.array(rows)).combine_chunks()
        self._parts = [whole]
        self._places = {one: (0, row) for row, one in enumerate(whole[_ID].to_pylist())}

    def write(self, key: str) -> TableWrite:
        rows = self.table
        deleted = pa.array(sorted(self._deleted), pa.utf8())
        if rows is None:
            return DeleteIds(key, deleted, models=self.models)
        if self._only_new:
            return Append(key, rows, models=self.models)
        return Change(key, rows, deleted, models=self.models)


def _together(stored: pa.Table, own: pa.Table | None, columns: Sequence[str] | None) -> pa.Table:
    """Stored and changed rows in the columns of the stored ones."""
    if own is not None and own.num_rows:
        own = own.select(stored.column_names).cast(stored.schema)
        stored = pa.concat_tables([stored, own]) if stored.num_rows else own
    return stored if columns is None else stored.select(list(columns))
