"""The precondition `unchanged_since`: no data that a write depends on has changed since a commit.

The check compares the rows that the write touches (or their absence), the matches of each condition of the write, and
the results of the queries in `reads`. Other changes do not matter. If a commit changes this data between the check and
the publish, both the write and the check run again.
"""

# See docs/decisions/0146-unchanged-since.md

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.kept_states import has_tables
from omnigraph.commit.lineage import find_ancestor, find_commit
from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.read_set import pins, reads_of, untracked
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store, state_removed
from omnigraph.commit.write_request import Prepared, ReadQuery, Unchanged
from omnigraph.engine.query import query
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import ListedRead, query_text
from omnigraph.engine.session import Session
from omnigraph.errors import ChangedSinceError, InputError, VersionReclaimedError, shown
from omnigraph.merge.classify import classify
from omnigraph.merge.sides import Columns, lookup_rows
from omnigraph.merge.touched import touched
from omnigraph.storage.column_changes import property_number
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

_NONE = pa.array([], pa.utf8())


def unchanged(commit: str | None, reads: Sequence[ListedRead]) -> Unchanged | None:
    """The precondition of a request.

    Raises:
        InputError: queries are given without a commit, or an item is not a query.
    """
    if isinstance(reads, str) or not isinstance(reads, Sequence):
        raise InputError("reads must be a list of queries", hint="put a single query into a list: reads=[query]")
    listed = tuple(_listed(read) for read in reads)
    if commit is None:
        if listed:
            raise InputError("reads also needs unchanged_since, the commit whose results are compared")
        return None
    return Unchanged(commit, listed)


def _listed(read: ListedRead) -> ReadQuery:
    text, *rest = read if isinstance(read, tuple) and read else (read,)
    params = rest[0] if rest else {}
    name = rest[1] if len(rest) > 1 else None
    if len(rest) > 2 or not isinstance(params, Mapping) or not (name is None or isinstance(name, str)):
        raise InputError(
            f"reads: {shown(read)} is not a query", hint="give a text, (text, parameters) or (text, parameters, name)"
        )
    return ReadQuery(query_text(text), params, name)


def check_unchanged(session: Session, view: Manifest, prepared: Prepared, wanted: Unchanged) -> Prepared:
    """Check that no data that a prepared write depends on has changed since a commit.

    Raises:
        ChangedSinceError: data has changed, or the commit is not an ancestor of the head. Nothing was written.
        NotFoundError: there is no such commit.
        VersionReclaimedError: cleanup has removed the commit.
    """
    try:
        return _checked(session, view, prepared, wanted)
    except VersionReclaimedError as error:
        state = _state(session.store, view, wanted.commit)
        if not has_tables(session.store, state):
            raise state_removed(state.head.id) from error
        raise


def _checked(session: Session, view: Manifest, prepared: Prepared, wanted: Unchanged) -> Prepared:
    store = session.store
    _Check(store, view, wanted.commit).run(prepared)
    if not wanted.reads:
        return prepared
    before, now = (Snapshot(store, state) for state in (_state(store, view, wanted.commit), untracked(view)))
    for number, read in enumerate(wanted.reads, 1):
        results = [query(session, QueryRequest(read.text, read.params, read.name, at=state)) for state in (before, now)]
        # A query without an order may return its rows in any order.
        if results[0].columns != results[1].columns or sorted(results[0].json_rows()) != sorted(results[1].json_rows()):
            about = f"the result of read {number} ('{results[0].query_name}')"
            raise ChangedSinceError(view.branch, wanted.commit, view.head.id, about)
    return replace(prepared, on_head=True)  # after a later commit, the queries have to run again


def _state(store: Store, view: Manifest, commit: str) -> Manifest:
    found = find_ancestor(view, commit)
    if found is None:
        find_commit(store, commit)
        raise ChangedSinceError(view.branch, commit, view.head.id, None)
    return store.manifest_of(found)


class _Check:
    """Compares the data that one write depends on between two states of a branch."""

    def __init__(self, store: Store, view: Manifest, commit: str) -> None:
        self._store = store
        self._tables = store.tables
        self._view = view
        self._now = pins(view)
        self._commit = commit
        self._state = _state(store, view, commit)
        self._before = self._state.tables

    def run(self, prepared: Prepared) -> None:
        ids: dict[str, list[pa.Array]] = {}
        for key, found in self._touched(prepared):
            if found is None:
                self._compare_all(key)
            else:
                ids.setdefault(key, []).append(found)
        if prepared.matched is not None:
            self._compare_matches(prepared, ids)
        for key, parts in sorted(ids.items()):
            self._compare(key, pa.concat_arrays([_NONE, *parts]).unique())

    def _touched(self, prepared: Prepared) -> Iterator[tuple[str, pa.Array | None]]:
        """The ids of the rows that the write touches, by type key; None for all rows of a type."""
        if prepared.touched is not None:
            yield from prepared.touched().items()
            return
        for write in prepared.writes:
            _, now = self._pins(write.key)
            yield write.key, write.touched_ids(self._tables.at(now.ref))

    def _compare_matches(self, prepared: Prepared, ids: dict[str, list[pa.Array]]) -> None:
        """Check that the conditions of the write match the same entities in both states."""
        assert prepared.matched is not None
        now = prepared.matched(Snapshot(self._store, self._view))
        for key, _ in now:
            self._pins(key)  # checks that both states have the columns of the conditions
        before = prepared.matched(Snapshot(self._store, self._state))
        for (key, left), (_, right) in zip(before, now, strict=True):
            if len(left) != len(right) or not pc.all(pc.is_in(left, value_set=right)).as_py():
                raise self._changed(f"the set of matches of a condition on {key}")
            ids.setdefault(key, []).append(right)

    def _compare(self, key: str, ids: pa.Array) -> None:
        """Check that the rows with these ids are equal in both states, or absent in both."""
        old, new = self._pins(key)
        reads_of(self._view).add_lookup(key, "id", pa.chunked_array([ids]))
        possible = touched(self._tables, old.ref, new.ref) if old.ref != new.ref else None
        if possible is not None:
            ids = ids.filter(pa.array(possible.among(pa.chunked_array([ids]))))
        if old.ref != new.ref and len(ids):
            self._compare_rows(key, old.ref, new.ref, ids)

    def _compare_all(self, key: str) -> None:
        """Check that all rows of a table are equal in both states."""
        old, new = self._pins(key)
        reads_of(self._view).whole.add(key)
        if old.ref == new.ref:
            return
        possible = touched(self._tables, old.ref, new.ref)
        if possible is None or possible.ids is None:
            raise self._changed(key)
        self._compare_rows(key, old.ref, new.ref, possible.ids)

    def _compare_rows(self, key: str, old: TableRef, new: TableRef, ids: pa.Array) -> None:
        left, right = (_rows(self._tables, ref, ids) for ref in (old, new))
        differing = classify(left, right, left)["id"]
        if len(differing):
            raise self._changed(f"{key} {shown(pc.min(differing).as_py())}")

    def _pins(self, key: str) -> tuple[TablePin, TablePin]:
        old, new = self._before.get(key), self._now.get(key)
        if old is None or new is None or old.id != new.id:
            raise self._changed(key)
        if old.ref != new.ref and not _alike(*(self._tables.at(pin.ref).schema() for pin in (old, new))):
            raise self._changed(key)
        return old, new

    def _changed(self, about: str) -> ChangedSinceError:
        return ChangedSinceError(self._view.branch, self._commit, self._view.head.id, about)


def _rows(tables: TableStorage, ref: TableRef, ids: pa.Array) -> pa.Table:
    """Rows for the comparison, without the metadata of columns."""
    stored = tables.at(ref).schema()
    columns = Columns.of(stored)
    rows, schema = lookup_rows(tables, ref, ids, columns), columns.schema(stored)
    return pa.table([rows[name] for name in schema.names], schema=schema)


def _alike(left: pa.Schema, right: pa.Schema) -> bool:
    return [(field.name, field.type, property_number(field)) for field in left] == [
        (field.name, field.type, property_number(field)) for field in right
    ]
