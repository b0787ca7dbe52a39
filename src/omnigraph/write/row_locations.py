"""Where the rows of a load stood in the input, so that a violation can name the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, Violation
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rules.changes import TableChange

MOST = 1_000_000
"""How many rows a load may have for its places to be remembered. They take some twenty bytes a row."""

_COMPARED = ("value", "unique", "endpoint")
"""Violations that are about a row. The others are about a node and all its edges."""


class Places:
    """The places of rows by type key, in the order of the rows. Large loads have none.

    Args:
        most: how many rows are remembered.
    """

    def __init__(self, most: int = MOST) -> None:
        self._room = most
        self._origins: dict[str, list[Origin]] = {}
        self._kept: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}

    def add(self, key: str, origin: Origin) -> None:
        """Remember where the next rows of a type stood."""
        self._room -= len(origin.records)
        if self._room < 0:
            self._origins.clear()
            self._kept.clear()
        elif len(origin.records):
            self._origins.setdefault(key, []).append(origin)

    def keep(self, key: str, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Note that only some of the rows of a type are left."""
        if self._room >= 0:
            self._kept[key] = np.flatnonzero(kept)

    def named(self, error: ConstraintError, changes: Mapping[str, TableChange]) -> ConstraintError:
        """An error whose violations name the places of their rows, as far as these are known."""
        if self._room < 0:
            return error
        about = [v for v in error.violations if v.kind in _COMPARED]
        ids = pa.array([entity_id for v in about for entity_id in (v.entity_id, v.other_id)], pa.utf8())
        found = {key: self._found(key, change.rows["id"], ids) for key, change in changes.items()}
        return ConstraintError(tuple(_placed(v, found) for v in error.violations), error.total)

    def _found(self, key: str, rows: pa.ChunkedArray, ids: pa.Array) -> dict[str, str]:
        """The places of some ids. Of several records with one id, it is the last one that is too many."""
        at = np.flatnonzero(pc.is_in(rows, value_set=ids).to_numpy())
        names = rows.take(pa.array(at)).to_pylist()
        original = self._kept[key][at] if key in self._kept else at
        return {name: self._place(key, row) for name, row in zip(names, original.tolist(), strict=True)}

    def _place(self, key: str, row: int) -> str:
        for origin in self._origins.get(key, ()):
            if row < len(origin.records):
                return origin.place(int(origin.records[row]))
            row -= len(origin.records)
        return ""


def _placed(violation: Violation, found: Mapping[str, Mapping[str, str]]) -> Violation:
    if violation.kind not in _COMPARED:
        return violation
    name = violation.subject.partition(".")[0]
    for entity_id in (violation.entity_id, violation.other_id):
        places = [found[key][entity_id] for key in (node_key(name), edge_key(name)) if entity_id in found.get(key, ())]
        if len(places) == 1:  # a node type and an edge type may share a name, and an id
            return replace(violation, place=places[0])
    return violation
