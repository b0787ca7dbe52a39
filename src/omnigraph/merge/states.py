"""The input states of a merge: a stored state of the graph, or a virtual state, which is the merge of several states.

A virtual state consists of a stored state and overlays. An overlay has the rows of a table that differ from the stored
rows. A virtual state is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.dataclass import dataclass
from omnigraph.merge.sides import Columns, lookup_rows
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

_NONE = pa.array([], pa.utf8())


@dataclass(frozen=True, slots=True)
class Overlay:
    """The difference between a table of a virtual state and a stored version.

    Attributes:
        rows: rows whose values differ from the stored row, and rows that the stored version does not have.
        absent: ids of stored rows that the virtual state does not have.
        undecided: ids of rows that have no value, because they are in conflict between the merged states.
    """

    rows: pa.Table
    absent: pa.Array = field(default_factory=lambda: _NONE)
    undecided: pa.Array = field(default_factory=lambda: _NONE)

    @property
    def ids(self) -> pa.Array:
        """The ids of all rows in the overlay."""
        return pa.concat_arrays([_NONE, *self.rows["id"].chunks, self.absent, self.undecided]).unique()


@dataclass(frozen=True, slots=True)
class State:
    """A state of the graph.

    Attributes:
        manifest: the stored state that the overlays change; None if the state is unknown.
        overlays: the differences between tables of this state and of the stored state, by type key.
        unknown: the type keys of tables whose rows are unknown.
    """

    manifest: Manifest | None
    overlays: Mapping[str, Overlay] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    def is_unknown(self, key: str) -> bool:
        return self.manifest is None or key in self.unknown

    def pin(self, key: str) -> TablePin | None:
        return None if self.manifest is None else self.manifest.tables.get(key)

    def undecided(self, key: str) -> pa.Array:
        overlay = self.overlays.get(key)
        return _NONE if overlay is None else overlay.undecided

    def overlay_ids(self, key: str) -> pa.Array:
        overlay = self.overlays.get(key)
        return _NONE if overlay is None else overlay.ids

    def rows(self, tables: TableStorage, key: str, ref: TableRef, ids: pa.Array, columns: Columns) -> pa.Table:
        """The rows with the given ids, with the columns to compare.

        Leaves out undecided rows: the ancestors of a virtual base disagree about them, so they have no agreed content.

        Args:
            tables: the table storage.
            key: the type key.
            ref: the stored version of the table.
            ids: the ids.
            columns: the columns to compare.
        """
        schema = columns.schema(tables.at(ref).schema())
        overlay = self.overlays.get(key)
        stored = ids if overlay is None else _without(ids, overlay.ids)
        found = lookup_rows(tables, ref, stored, columns) if len(stored) else schema.empty_table()
        found = found.select(schema.names).cast(schema)
        if overlay is None:
            return found
        overlay_rows = overlay.rows.select(schema.names).filter(pc.is_in(overlay.rows["id"], value_set=ids))
        return pa.concat_tables(
            [found, overlay_rows.filter(pc.invert(pc.is_in(overlay_rows["id"], value_set=overlay.undecided)))]
        )


def _without(ids: pa.Array, others: pa.Array) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
