"""Restore of single entities: the changes that bring them back to their state in another commit.

An entity that exists in that state gets the row that it has there. An entity that does not exist there is deleted, a
node with its edges. On request, a restored node also gets the edges that it has in that state. An edge is left out if
the node at its other end does not exist.
"""

# See docs/decisions/0175-a-restore-takes-rows-from-a-state.md

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, Models
from omnigraph.commit.store import Store
from omnigraph.errors import MergeSchemaError, NotFoundError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import TypeKey, edge_key, either_kind, node_key
from omnigraph.merge.choices import Choice, resolved
from omnigraph.merge.classify import classify
from omnigraph.merge.compare import Collected, Compared, plain
from omnigraph.merge.schema_alignment import Schemas, alignment_of
from omnigraph.merge.sides import Columns, Versions, lookup_rows
from omnigraph.merge.touched import MAX_LOOKUP_IDS
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.spill import DEFAULT_BUDGET

_NONE = pa.array([], pa.utf8())


class EntityRestore:
    """The changes that bring entities of one type back to their state in a commit.

    If the two states have different schemas, the rows are read with the types and columns of the branch: renames are
    followed, and a property that the other state lacks keeps its present value.

    Args:
        store: the graph.
        schemas: returns the schema of a graph state.
        before: the earlier state that the rows are taken from.
        target: the current state of the branch.
        now: the value of `now()` in defaults, in milliseconds.
        budget: bytes of rows that stay in memory. Further rows are written to temporary files.

    Attributes:
        accepted: the schema of the branch.
        storage: the table storage that the rows are read from.
        tables: the changes of each table, by type key; unchanged tables are left out.
        left_out: properties of the other state that the branch does not have.
        omitted: number of edges that are not restored, because the node at one of their ends does not exist.
    """

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        before: Manifest,
        target: Manifest,
        now: int,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        self.accepted = schemas.of(target)
        self._alignment = alignment = alignment_of(store, schemas, target, [before], now)
        self.storage = self._tables = store.tables if alignment is None else alignment.tables
        self._catalog = self.accepted.catalog
        self._stored_before = before
        self._before = before if alignment is None else alignment.view(before)
        self._target = target
        self.left_out: list[str] = []
        self._budget = budget
        self.tables: dict[str, Compared] = {}
        self.omitted = 0

    def run(self, key: str, ids: pa.Array, *, edges: bool) -> None:
        """Compute the changes.

        Args:
            key: the type key of the entities.
            ids: their ids.
            edges: whether to restore also the edges of restored nodes.

        Raises:
            NotFoundError: the graph has no such type, or an entity exists in neither state.
            MergeSchemaError: the earlier state does not have the type, or its values do not fit the present schema.
        """
        versions = self._versions(key)
        here, there = (self._existing(ref, ids) for ref in (versions.target, versions.source))
        unknown = ids.filter(pc.invert(pc.is_in(ids, value_set=pa.concat_arrays([here, there]))))
        if len(unknown):
            raise NotFoundError(
                f"there is no {TypeKey.parse(key).name} '{cut(unknown[0].as_py())}', neither on branch "
                f"'{self._target.branch}' nor at commit {self._before.head.id}",
                hint="ids are texts, even if the key is a number",
            )
        self._add(key, self._compared(versions, ids))
        if TypeKey.parse(key).kind is TypeKind.EDGE:
            return
        deleted = here.filter(pc.invert(pc.is_in(here, value_set=there)))
        name = TypeKey.parse(key).name
        for edge, ends in self._edges_of(name):
            self._delete_edges(edge, ends, deleted)
            if edges:
                self._restore_edges(edge, ends, there)

    def models(self, key: str) -> Models:
        """The models of a table of the other state, with the property names of the branch."""
        pin = self._before.tables.get(key)
        if pin is None:
            return ()
        return pin.models if self._alignment is None else self._alignment.models(pin)

    def _versions(self, key: str) -> Versions:
        source, target = self._before.tables.get(key), self._target.tables.get(key)
        if target is None:
            former, hint = self._former_type(key)
            raise NotFoundError(f"branch '{self._target.branch}' has no type {cut(former)}", hint=hint)
        if source is None or source.id != target.id:
            raise MergeSchemaError(
                f"{key} does not exist at commit {self._before.head.id}",
                [key],
                hint="the type was added later; choose a later commit, or delete the entities",
            )
        stored = self._tables.at(target.ref).schema()
        columns = Columns.of(stored)
        versions = Versions(key, target.ref, source.ref, target.ref, columns, columns.schema(stored))
        if self._alignment is None:
            return versions
        self.left_out += self._alignment.lacks(key, source.ref)
        lacking, fill = self._alignment.lacking(*versions.all), self._alignment.fill(key)
        return replace(versions, lacking=lacking, fill=fill)

    def _former_type(self, key: str) -> tuple[str, str | None]:
        """The key of a type that the branch does not have, and a hint with its present name.

        The caller may have given only its name, so both kinds are looked up.
        """
        for former in (one for one in either_kind(key) if one not in self._target.tables):
            before = self._stored_before.tables.get(former)
            names = [name for name, pin in self._target.tables.items() if before is not None and pin.id == before.id]
            if names:
                return former, f"it is now named {TypeKey.parse(names[0]).name}"
        return key, did_you_mean(key, list(self._target.tables))

    def _compared(self, versions: Versions, ids: pa.Array) -> Compared:
        """The rows with some ids that differ between the two states."""
        collected = Collected(versions, self._budget)
        for first in range(0, len(ids), MAX_LOOKUP_IDS):
            some = ids.slice(first, MAX_LOOKUP_IDS)
            source, target = (
                plain(lookup_rows(self._tables, ref, some, versions.columns), versions.schema)
                for ref in (versions.source, versions.target)
            )
            _, source, target = versions.completed(target, source, target)
            collected.add(resolved(classify(target, source, target), Choice()))
        return collected.compared()

    def _add(self, key: str, compared: Compared) -> None:
        known = self.tables.get(key)
        if known is not None:
            fresh = compared.rows.filter(pc.invert(pc.is_in(compared.rows["id"], value_set=known.rows["id"])))
            # Both changes compare the same two states. So if both contain a row, it is equal in both.
            inserted = len(self._missing(compared.versions, fresh["id"]))
            both = known.with_more(fresh, inserted).with_deleted(compared.deleted)
            compared = replace(both.without_deleted(both.rows["id"].combine_chunks()), versions=compared.versions)
        if not compared.is_empty:
            self.tables[key] = compared

    def _missing(self, versions: Versions, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        stored = self._tables.at(versions.target).lookup("id", ids, columns=["id"])["id"]
        return ids.filter(pc.invert(pc.is_in(ids, value_set=stored)))

    def _edges_of(self, node: str) -> Iterator[tuple[str, list[str]]]:
        """The edge types that connect a node type, each with the ends (`src`, `dst`) that have this node type."""
        for edge in self._catalog.edges_of(node):
            key = edge_key(edge.name)
            if key in self._target.tables:
                yield key, [end for end, kind in (("src", edge.from_type), ("dst", edge.to_type)) if kind == node]

    def _incident(self, state: Manifest, key: str, ends: list[str], nodes: pa.Array) -> pa.Array:
        """The ids of the edges at some nodes."""
        if len(nodes) == 0 or key not in state.tables:
            return _NONE
        table, wanted = self._tables.at(state.tables[key].ref), pa.chunked_array([nodes], pa.utf8())
        found = [table.lookup(end, wanted, columns=["id"])["id"].combine_chunks() for end in ends]
        return pa.concat_arrays([_NONE, *found]).unique()

    def _delete_edges(self, key: str, ends: list[str], nodes: pa.Array) -> None:
        """Delete the edges of deleted nodes."""
        ids = self._incident(self._target, key, ends, nodes)
        if len(ids):
            versions = self._empty_versions(key)
            self._add(key, Compared(versions, versions.schema.empty_table(), deleted=ids))

    def _empty_versions(self, key: str) -> Versions:
        ref = self._target.tables[key].ref
        stored = self._tables.at(ref).schema()
        columns = Columns.of(stored)
        return Versions(key, ref, ref, ref, columns, columns.schema(stored))

    def _restore_edges(self, key: str, ends: list[str], nodes: pa.Array) -> None:
        """Restore the edges of restored nodes."""
        found = [self._incident(state, key, ends, nodes) for state in (self._before, self._target)]
        ids = pa.concat_arrays(found).unique()
        if len(ids) == 0:
            return
        compared = self._compared(self._versions(key), ids)
        edge = self._catalog.edges[TypeKey.parse(key).name]
        whole = np.ones(compared.rows.num_rows, bool)
        for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
            whole &= self._exists(node_key(node), compared.rows[end])
        left_out = compared.rows["id"].filter(pa.array(~whole)).combine_chunks()
        if len(left_out):
            self.omitted += len(left_out)
            new = len(self._missing(compared.versions, pa.chunked_array([left_out], pa.utf8())))
            compared = compared.without_rows(left_out, inserted=new)
        self._add(key, compared)

    def _exists(self, key: str, ids: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the nodes that exist after the restore."""
        stored = self._tables.at(self._target.tables[key].ref).lookup("id", ids, columns=["id"])["id"]
        found = _in(ids, stored)
        if key in self.tables:
            found &= ~_in(ids, self.tables[key].deleted)
            found |= _in(ids, self.tables[key].rows["id"])
        return found

    def _existing(self, ref: TableRef, ids: pa.Array) -> pa.Array:
        """Those of the ids that exist in a version of the table."""
        found = self._tables.at(ref).lookup("id", pa.chunked_array([ids], pa.utf8()), columns=["id"])
        return found["id"].combine_chunks()


def _in(values: pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_in(values, value_set=others).to_numpy(
        zero_copy_only=False
    )
    return found
