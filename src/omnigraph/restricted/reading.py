"""Comparison of restricted states: rows that change, and rows that become visible or hidden."""

# See docs/decisions/0312-a-row-that-becomes-hidden-is-a-delete.md

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.aligned_types import TypePair, TypeState
from omnigraph.changes.candidates import candidates
from omnigraph.changes.diff import Reading
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.restricted.refs import RestrictedPin, RestrictedRef
from omnigraph.restricted.store import RestrictedStore
from omnigraph.restricted.table_view import RestrictedView
from omnigraph.restricted.visible_rows import ROW_ID
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.row_pairs import AFTER, BEFORE, ID, PAIRS


@dataclass(frozen=True, slots=True)
class RestrictedReading(Reading):
    """Reads the tables of a graph as an actor sees it, for the comparison of states.

    Attributes:
        store: the graph as the actor sees it.
    """

    store: RestrictedStore | None = None

    def candidates(self, pair: TypePair) -> pa.Table:
        """The rows that may differ: those that were written, and those that became visible or hidden."""
        if not any(isinstance(state.pin, RestrictedPin) for state in (pair.before, pair.after) if state is not None):
            return Reading.candidates(self, pair)
        refs = [(state.pin.ref, tuple(state.columns)) for state in (pair.before, pair.after) if state is not None]
        key = (pair.before is None, *refs, tuple((one.before, one.after, one.is_computed) for one in pair.compared))
        return self._cached(key, lambda: self._candidates(pair))

    def _candidates(self, pair: TypePair) -> pa.Table:
        if pair.is_same_version or pair.before is None or pair.after is None:
            return candidates(self.tables, pair)
        assert self.store is not None
        stored = replace(pair, before=_stored(pair.before), after=_stored(pair.after))
        written = candidates(self.store.base.tables, stored)
        before, after = (self._visible(state) for state in (pair.before, pair.after))
        rows = _masked(_masked(written, BEFORE, before), AFTER, after)
        gone = self._turned(pair.before, written, BEFORE, before, after)
        come = self._turned(pair.after, written, AFTER, after, before)
        found = pa.concat_tables([rows, gone, come])
        return found.filter(pc.or_(found[BEFORE].is_valid(), found[AFTER].is_valid())).sort_by(ID).combine_chunks()

    def _visible(self, state: TypeState) -> pa.Array | None:
        """The row ids of the visible rows; None if all rows are visible."""
        ref = state.pin.ref
        if not isinstance(ref, RestrictedRef) or not ref.visible.filters:
            return None
        view = self.tables.at(ref)
        assert isinstance(view, RestrictedView)
        return view.visible_rows().row_ids

    def _turned(
        self, state: TypeState, written: pa.Table, side: str, here: pa.Array | None, there: pa.Array | None
    ) -> pa.Table:
        """Rows that were not written, and are visible in one state only.

        Args:
            state: the state in which they are visible.
            written: the rows that may have been written.
            side: the column of `written` with the row ids in the state.
            here: the visible rows of the state; None for all.
            there: the visible rows of the other state; None for all.
        """
        if there is None:
            return PAIRS.empty_table()
        if here is None:
            assert self.store is not None
            ref = state.pin.ref.base if isinstance(state.pin.ref, RestrictedRef) else state.pin.ref
            here = self.store.base.tables.at(ref).batches(columns=[ROW_ID]).read_all()[ROW_ID].combine_chunks()
        known = written[side].drop_null().combine_chunks().to_numpy()
        only = np.setdiff1d(here.to_numpy(), np.concatenate([there.to_numpy(), known]))
        row_ids = pa.array(only, pa.uint64())
        found = self.tables.at(state.pin.ref).take_rows(row_ids, columns=[ID, ROW_ID])
        nothing = pa.nulls(len(row_ids), pa.uint64())
        columns = {ID: found[ID], side: found[ROW_ID].cast(pa.uint64())}
        return pa.table({ID: columns[ID], BEFORE: columns.get(BEFORE, nothing), AFTER: columns.get(AFTER, nothing)})


def restricted_reading(store: Store, known: LruCache[pa.Table]) -> Reading:
    """Access to the tables of a restricted store for diffs and the change feed.

    Args:
        store: the restricted store.
        known: the cache of comparisons. Actors may share it: the names of restricted versions identify their rows.
    """
    assert isinstance(store, RestrictedStore)
    return RestrictedReading(store.tables, store.leases, known, store)


def _stored(state: TypeState) -> TypeState:
    """The state with the stored version of its table."""
    return replace(state, pin=state.pin.base) if isinstance(state.pin, RestrictedPin) else state


def _masked(rows: pa.Table, side: str, visible: pa.Array | None) -> pa.Table:
    """The rows without the row ids that are hidden on one side."""
    if visible is None:
        return rows
    shown = pc.is_in(rows[side], value_set=visible)
    place = rows.schema.get_field_index(side)
    return rows.set_column(place, PAIRS.field(side), pc.if_else(shown, rows[side], pa.scalar(None, pa.uint64())))
