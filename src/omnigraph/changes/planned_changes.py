"""The changes of a branch by a commit that is not published yet: adopted table versions, and rows to write to them."""

# See docs/decisions/0196-a-branch-update-adopts-tables.md

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.changes.added_properties import AddedProperties
from omnigraph.changes.aligned_types import GraphState, TypePair, aligned_types
from omnigraph.changes.candidates import candidates
from omnigraph.changes.change_json import END_NAMES
from omnigraph.changes.count_changes import Counted, count_changes
from omnigraph.changes.overlay import Overlay, overlaid_tables, without_ids
from omnigraph.changes.row_images import OPS, ChangedRows, ChangeOp, changes_of
from omnigraph.changes.schema_differences import SchemaDifference, schema_changes
from omnigraph.commit.manifest import TypeCounts
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.compare import Compared
from omnigraph.merge.conflicts import shown_rows
from omnigraph.merge.preview import MOST_CHANGES, PreviewedChange
from omnigraph.merge.sides import Columns, with_blob_hashes
from omnigraph.storage.row_pairs import BEFORE, ID, ROW_ID, paired
from omnigraph.storage.tables import TableStorage

_NO_IDS = pa.array([], pa.utf8())


class _PlannedType:
    """The changes of one type.

    Args:
        tables: the table storage.
        pair: the type in both states.
        overlay: the rows that are written to the table of the new state, and the deleted ids.
        left_out: ids of entities that are not compared.

    Attributes:
        key: the type key in the new state; in the old state, if the new one does not have the type.
        pair: the type in both states. The new state includes the overlay.
    """

    def __init__(self, tables: TableStorage, pair: TypePair, overlay: Overlay | None, left_out: pa.Array) -> None:
        self._tables = tables
        self._stored = pair
        self._overlay = overlay
        self._left_out = left_out
        self.key = pair.newest.key
        self.pair = pair
        if overlay is not None and pair.after is not None:
            pin = replace(pair.after.pin, ref=overlay.overlaid_ref)
            self.pair = replace(pair, after=replace(pair.after, pin=pin))

    @cached_property
    def rows(self) -> pa.Table:
        """The rows that may differ, sorted by id."""
        rows = candidates(self._tables, self._stored)
        if self._overlay is not None:
            ids = self._overlay.written_ids
            former = candidates(self._tables, TypePair(self._stored.before, None), ids)
            before = former.select([ID, BEFORE]).rename_columns([ID, ROW_ID])
            rows = pa.concat_tables([without_ids(rows, ids), paired(before, self._overlay.row_ids)]).sort_by(ID)
        return without_ids(rows, self._left_out)

    def counts(self, tables: TableStorage) -> Counted:
        """The numbers of inserts, updates and deletes. `tables` reads the overlay."""
        pair = self.pair
        if pair.is_same_version:
            return 0, 0, 0
        if self._overlay is None and len(self._left_out) == 0 and (pair.before is None or pair.after is None):
            count = pair.newest.pin.row_count
            return (count, 0, 0) if pair.before is None else (0, 0, count)
        return count_changes(tables, pair, self.rows)


class PlannedChanges:
    """The changes from the state of a branch to the state that a commit is going to publish.

    The new state has the tables of `adopted` with the rows of `written`. The changes are found as in a diff of both
    states, so they are those that the diff of the commit shows.

    Args:
        tables: the table storage.
        before: the state of the branch.
        adopted: the state whose tables the branch takes over.
        added: the properties that schema changes before `adopted` have added.
        written: the changes that are written to these tables, by type key of `adopted`.
        aligned: the table storage that reads blobs for these changes, with the columns of `adopted`.
        left_out: entities that are not compared, by type key of `adopted`, because they have unresolved conflicts.

    Attributes:
        schema: the differences between the schemas.
    """

    def __init__(
        self,
        tables: TableStorage,
        before: GraphState,
        adopted: GraphState,
        added: AddedProperties,
        written: Mapping[str, Compared],
        aligned: TableStorage,
        left_out: Mapping[str, pa.Array] | None = None,
    ) -> None:
        pins = adopted.manifest.tables
        self._stored = tables
        self._overlays = {
            key: Overlay(pins[key].ref, compared, aligned) for key, compared in written.items() if not compared.is_empty
        }
        self._tables = overlaid_tables(tables, list(self._overlays.values()))
        pairs = aligned_types(before, adopted)
        self.schema: tuple[SchemaDifference, ...] = tuple(schema_changes(before.accepted, adopted.accepted))
        self._types = [self._planned(added.completed(pair), left_out or {}) for pair in pairs]

    def _planned(self, pair: TypePair, left_out: Mapping[str, pa.Array]) -> _PlannedType:
        if pair.after is None:  # the key may be that of another type in the new state
            return _PlannedType(self._stored, pair, None, _NO_IDS)
        key = pair.after.key
        return _PlannedType(self._stored, pair, self._overlays.get(key), left_out.get(key, _NO_IDS))

    @cached_property
    def counts(self) -> tuple[TypeCounts, ...]:
        """The number of inserted, updated and deleted entities of each type that changes, by type key."""
        found: dict[str, tuple[int, int, int]] = {}
        for one in self._types:
            inserted, updated, deleted = one.counts(self._tables)
            # A dropped type and a new type can have the same name.
            earlier = found.get(one.key, (0, 0, 0))
            found[one.key] = earlier[0] + inserted, earlier[1] + updated, earlier[2] + deleted
        return tuple(TypeCounts(key, *numbers) for key, numbers in sorted(found.items()) if any(numbers))

    def touched(self) -> dict[str, pa.Array | None]:
        """The ids of the entities that change, by type key of the old state; None for all entities of a dropped type.

        Reads the rows that may differ.
        """
        found: dict[str, pa.Array | None] = {}
        for one in self._types:
            before = one.pair.before
            if before is None or one.pair.is_same_version:
                continue
            if one.pair.after is None:
                found[before.key] = None
                continue
            changes = [changed.ids for changed in changes_of(self._tables, one.pair, one.rows)]
            if changes:
                found[before.key] = pa.concat_arrays(changes)
        return found

    def previewed(self, limit: int = MOST_CHANGES) -> tuple[PreviewedChange, ...]:
        """The first changes with their values, by type key and id."""
        changes: list[PreviewedChange] = []
        for one in sorted(self._types, key=lambda one: one.key):
            if one.pair.is_same_version:
                continue
            for found in changes_of(self._tables, one.pair, one.rows):
                changes += self._shown(one, found.filter(np.arange(len(found)) < limit - len(changes)))
                if len(changes) >= limit:
                    return tuple(changes)
        return tuple(changes)

    def _shown(self, planned: _PlannedType, found: ChangedRows) -> Iterator[PreviewedChange]:
        kind, name = TypeKey.parse(planned.key)
        pair = planned.pair
        old, new = self._images(pair, found, ChangeOp.INSERT), self._images(pair, found, ChangeOp.DELETE)
        changed = found.changed_names().to_pylist()
        for entity, op, names in zip(found.ids.to_pylist(), found.ops, changed, strict=True):
            before, after = old.get(entity), new.get(entity)
            if before is not None and after is not None:
                before = {each: before.get(each) for each in (names or ())} | before
            shown = tuple(END_NAMES.get(each, each) for each in names or ())
            yield PreviewedChange(kind.value, name, entity, OPS[op].value, shown, _named(before), _named(after))

    def _images(self, pair: TypePair, found: ChangedRows, absent: ChangeOp) -> dict[str, dict[str, Any]]:
        """The rows of one side by id, with the property names of the new state."""
        is_old = absent is ChangeOp.INSERT
        state, rows = (pair.before, found.before) if is_old else (pair.after, found.after)
        rows = rows.filter(pa.array(found.ops != OPS.index(absent)))
        if state is None or rows.num_rows == 0:
            return {}
        plain = tuple(name for name in state.columns if name not in state.blobs)
        columns = Columns(plain, tuple(state.blobs))
        hashed = with_blob_hashes(self._tables, state.pin.ref, rows.select([*plain, ROW_ID]), columns).drop([ROW_ID])
        if is_old and pair.after is not None:
            names = {column.before: column.after for column in pair.compared if column.before is not None}
            taken = set(names.values())
            kept = [name for name in hashed.column_names if name == ID or name in names or name not in taken]
            hashed = hashed.select(kept).rename_columns([names.get(name, name) for name in kept])
        return shown_rows(hashed)


def _named(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else {END_NAMES.get(name, name): value for name, value in values.items()}
