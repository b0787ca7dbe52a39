"""The locations of the rows of a load in the input, for messages about violations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, KeyConflictError, Violation
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rules.changes import TableChange

MOST = 1_000_000
"""Maximum number of rows for which locations are recorded. A location takes about twenty bytes."""

_ROW_KINDS = ("value", "unique", "endpoint")
"""The kinds of violations that concern a single row. The other kinds concern a node and all its edges."""


class RowLocations:
    """The input locations of rows by type key, in row order. A load with more than `most` rows records none.

    Args:
        most: maximum number of rows of a load.
    """

    def __init__(self, most: int = MOST) -> None:
        self._capacity = most
        self._origins: dict[str, list[Origin]] = {}
        self._remaining: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}

    def add(self, key: str, origin: Origin) -> None:
        """Record the locations of the next rows of a type."""
        self._capacity -= len(origin.records)
        if self._capacity < 0:
            self._origins.clear()
            self._remaining.clear()
        elif len(origin.records):
            self._origins.setdefault(key, []).append(origin)

    def keep_rows(self, key: str, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Keep only the locations of the rows that a mask selects."""
        if self._capacity >= 0:
            self._remaining[key] = np.flatnonzero(mask)

    def with_locations(self, error: ConstraintError, changes: Mapping[str, TableChange]) -> ConstraintError:
        """The error with the input location of each violation, where it is known."""
        if self._capacity < 0:
            return error
        about = [v for v in error.violations if v.kind in _ROW_KINDS]
        ids = pa.array([entity_id for v in about for entity_id in (v.entity_id, v.other_id)], pa.utf8())
        found = {key: self._last_rows(key, change.rows["id"], ids) for key, change in changes.items()}
        return ConstraintError(
            tuple(self._located(v, found) for v in error.violations), error.total, counts=error.counts
        )

    def conflict_with_locations(self, error: KeyConflictError, changes: Mapping[str, TableChange]) -> KeyConflictError:
        """The error with the input location of each id, in the order of the input, where they are known."""
        change = changes.get(error.table_key)
        if self._capacity < 0 or change is None:
            return error
        rows = self._last_rows(error.table_key, change.rows["id"], pa.array(error.ids, pa.utf8()))
        ids = tuple(sorted((found for found in error.ids if found in rows), key=rows.__getitem__))
        places = tuple(self._location(error.table_key, rows[found]) for found in ids)
        if not ids or not all(places):
            return error
        return KeyConflictError(
            error.table_key, ids[0], ids=ids, total=error.total, places=places, repeated=error.repeated
        )

    def _last_rows(self, key: str, rows: pa.ChunkedArray, ids: pa.Array) -> dict[str, int]:
        """For each id, the number of the last input row that has it."""
        rows_found = np.flatnonzero(pc.is_in(rows, value_set=ids).to_numpy())
        names = rows.take(pa.array(rows_found)).to_pylist()
        original = self._remaining[key][rows_found] if key in self._remaining else rows_found
        return dict(zip(names, original.tolist(), strict=True))

    def _located(self, violation: Violation, found: Mapping[str, Mapping[str, int]]) -> Violation:
        """The violation with its location. If its row is unknown, the last record with the id counts."""
        if violation.kind not in _ROW_KINDS:
            return violation
        name = violation.subject.partition(".")[0]
        for entity_id in (violation.entity_id, violation.other_id):
            keys = [key for key in (node_key(name), edge_key(name)) if entity_id in found.get(key, ())]
            # There can be two: a node type and an edge type may have the same name, and entities with the same id.
            if len(keys) == 1:
                row = found[keys[0]][entity_id] if violation.row is None else violation.row
                return replace(violation, place=self._location(keys[0], row))
        return violation

    def _location(self, key: str, row: int) -> str:
        for origin in self._origins.get(key, ()):
            if row < len(origin.records):
                return origin.place(int(origin.records[row]))
            row -= len(origin.records)
        return ""
