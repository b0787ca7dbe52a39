"""Restores edges together with their nodes: keeping a node keeps its edges.

Deleting a node deletes its edges. If a conflict is resolved for the side that kept the node, the edges that were
deleted with the node are restored, if the node at their other end exists.
"""

# See docs/decisions/0143-keeping-a-node-keeps-its-edges.md

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.merge.choices import BY_THEIRS, Choices
from omnigraph.merge.classify import VERDICT, Verdict, classify
from omnigraph.merge.compare import Compared, plain
from omnigraph.merge.equality import Mask
from omnigraph.merge.schema_alignment import Alignment
from omnigraph.merge.sides import Columns, Versions, lookup_rows
from omnigraph.merge.states import State
from omnigraph.storage.tables import TableStorage

_NONE = pa.array([], pa.utf8())


class Decisions:
    """The effects of choices on nodes that one side deleted, and on edges.

    Attributes:
        ours: nodes that stay because the target wins, by type key.
        theirs: nodes that are restored because the source wins.
        deleted: nodes that are deleted because the caller chose a side for them individually.
        edges: edges that are deleted because of a choice. They are not restored with their nodes.
    """

    def __init__(self) -> None:
        self.ours: dict[str, pa.Array] = {}
        self.theirs: dict[str, pa.Array] = {}
        self.deleted: dict[str, pa.Array] = {}
        self.edges: dict[str, pa.Array] = {}

    @classmethod
    def of(cls, tables: Mapping[str, Compared], choices: Choices) -> Decisions:
        """The effects of those choices that resolved conflicts between rows."""
        found = cls()
        for key, one in tables.items():
            verdicts, theirs = one.resolved_deletes[VERDICT], one.resolved_deletes[BY_THEIRS]
            by_source = pc.equal(verdicts, pa.scalar(int(Verdict.DELETED_BY_SOURCE), pa.int8()))
            deleted = pc.equal(by_source, theirs)  # the side that wins the conflict deleted the row
            ids = one.resolved_deletes["id"]
            if TypeKey.parse(key).kind is TypeKind.EDGE:
                found.add(found.edges, key, ids.filter(deleted))
                continue
            found.add(found.deleted, key, choices.of(key).named(ids.filter(deleted)))
            found.add(found.ours, key, ids.filter(pc.and_not(by_source, theirs)))
            found.add(found.theirs, key, ids.filter(pc.and_not(theirs, by_source)))
        return found

    def add(self, into: dict[str, pa.Array], key: str, ids: pa.Array | pa.ChunkedArray) -> None:
        """Add entity ids of the type `key` to `into`, which is `edges`, `deleted`, `ours` or `theirs`."""
        if len(ids):
            array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
            into[key] = pa.concat_arrays([into.get(key, _NONE), array]).unique()


class EdgeRestorer:
    """Restores edges of nodes that stay or are restored.

    Args:
        tables: the table storage.
        base: the state of the base.
        source: the branch that is merged.
        target: the branch that it is merged into.
        accepted: the schema of the target.
        alignment: aligns the states to this schema; None if all have the same one.
    """

    def __init__(
        self,
        tables: TableStorage,
        base: State,
        source: Manifest,
        target: Manifest,
        accepted: AcceptedSchema,
        alignment: Alignment | None = None,
    ) -> None:
        self._alignment = alignment
        self._tables = tables
        self._base = base
        self._source = source
        self._target = target
        self._accepted = accepted
        self._kept: dict[str, list[pa.Array]] = {}
        self._taken: dict[str, list[pa.Array]] = {}

    def restore(self, tables: dict[str, Compared], decisions: Decisions) -> None:
        """Restore edges in `tables`."""
        for edge, end, node, other_end, other in self._ends():
            key = edge_key(edge)
            if node in decisions.ours and key in tables:
                self._keep(tables, decisions, key, end, node, other_end, other)
            if node in decisions.theirs and key in self._source.tables and key in self._target.tables:
                self._take(tables, decisions, key, end, node, other_end, other)

    def count(self, tables: Mapping[str, Compared], conflicting: Mapping[str, pa.Array]) -> int:
        """The number of restored edges in the merged state. Later choices and checks may have left some out.

        Args:
            tables: the final changes of each table, by type key.
            conflicting: the entities that take part in unresolved conflicts, by type key.
        """
        count = 0
        for key, found in self._kept.items():
            ids = _without(pa.concat_arrays(found).unique(), conflicting.get(key, _NONE))
            count += len(_without(ids, tables[key].deleted))
        for key, found in self._taken.items():
            ids = _without(pa.concat_arrays(found).unique(), conflicting.get(key, _NONE))
            count += int(np.count_nonzero(_in(ids, tables[key].rows["id"])))
        return count

    def _ends(self) -> Iterator[tuple[str, str, str, str, str]]:
        for name, edge in sorted(self._accepted.catalog.edges.items()):
            ends = (("src", node_key(edge.from_type)), ("dst", node_key(edge.to_type)))
            yield (name, *ends[0], *ends[1])
            yield (name, *ends[1], *ends[0])

    def _keep(
        self,
        tables: dict[str, Compared],
        decisions: Decisions,
        key: str,
        end: str,
        node: str,
        other_end: str,
        other: str,
    ) -> None:
        """Keep edges of the target that the source deleted with their nodes."""
        ref = self._target.tables[key].ref
        nodes = pa.chunked_array([decisions.ours[node]], pa.utf8())
        rows = self._tables.at(ref).lookup(end, nodes, columns=["id", other_end])
        deleted_edges = _in(rows["id"], tables[key].deleted) & ~_in(rows["id"], decisions.edges.get(key, _NONE))
        rows = rows.filter(pa.array(deleted_edges))
        restored = rows.filter(pa.array(self._exists(tables, other, rows[other_end])))["id"].combine_chunks()
        if len(restored):
            tables[key] = tables[key].without_deleted(restored)
            self._kept.setdefault(key, []).append(restored)

    def _take(
        self,
        tables: dict[str, Compared],
        decisions: Decisions,
        key: str,
        end: str,
        node: str,
        other_end: str,
        other: str,
    ) -> None:
        """Take edges from the source that the target deleted with their nodes."""
        source, target = self._source.tables[key].ref, self._target.tables[key].ref
        nodes = pa.chunked_array([decisions.theirs[node]], pa.utf8())
        rows = self._tables.at(source).lookup(end, nodes, columns=["id", other_end])
        known = self._tables.at(target).lookup("id", rows["id"], columns=["id"])["id"]
        compared = tables.get(key)
        excluded = _in(rows["id"], known) | _in(rows["id"], decisions.edges.get(key, _NONE))
        if compared is not None:
            excluded |= _in(rows["id"], compared.rows["id"]) | _in(rows["id"], compared.conflict_rows["id"])
        rows = rows.filter(pa.array(~excluded))
        rows = rows.filter(pa.array(self._exists(tables, other, rows[other_end])))
        ids = rows["id"].combine_chunks()
        if len(ids) == 0:
            return
        if compared is None:
            compared = self.unchanged_table(key)
        restored = self._unchanged_rows(compared.versions, ids)
        if restored.num_rows:
            tables[key] = compared.with_rows(restored)
            self._taken.setdefault(key, []).append(restored["id"].combine_chunks())

    def _unchanged_rows(self, versions: Versions, ids: pa.Array) -> pa.Table:
        """The rows of the source that did not change since the base."""
        key, columns = versions.key, versions.columns
        before = self._base.pin(key)
        if before is None or self._base.is_unknown(key) or not self._tables.at(before.ref).exists():
            return versions.schema.empty_table()
        source_rows = plain(lookup_rows(self._tables, versions.source, ids, columns), versions.schema)
        base = self._base.rows(self._tables, key, before.ref, ids, columns)
        # The target does not have these edges.
        base, source_rows, target = versions.completed(base, source_rows, source_rows.slice(0, 0))
        undecided = versions.undecided(base, source_rows, target)
        known = source_rows.filter(pc.is_in(source_rows["id"], value_set=base["id"]))
        changed = pa.concat_arrays([classify(base, known, base)["id"].combine_chunks(), undecided])
        return known.filter(pc.invert(pc.is_in(known["id"], value_set=changed)))

    def unchanged_table(self, key: str) -> Compared:
        """The empty change of a table that the source did not change."""
        source, target, before = self._source.tables[key].ref, self._target.tables[key].ref, self._base.pin(key)
        stored = self._tables.at(source).schema()
        columns = Columns.of(stored)
        is_known = before is not None and not self._base.is_unknown(key) and self._tables.at(before.ref).exists()
        refs = before.ref if before is not None and is_known else source, source, target
        versions = Versions(key, *refs, columns, columns.schema(stored))
        if self._alignment is not None:
            versions = replace(versions, lacking=self._alignment.lacking(*refs), fill=self._alignment.fill(key))
        return Compared(versions, versions.schema.empty_table())

    def _exists(self, tables: Mapping[str, Compared], key: str, ids: pa.ChunkedArray) -> Mask:
        """Mask of the nodes that exist in the merged state."""
        stored = self._tables.at(self._target.tables[key].ref).lookup("id", ids, columns=["id"])["id"]
        found = _in(ids, stored)
        if key in tables:
            found &= ~_in(ids, tables[key].deleted)
            found |= _in(ids, tables[key].rows["id"])
        return found


def _without(ids: pa.Array, others: pa.Array) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))


def _in(values: pa.Array | pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False)
    return found
