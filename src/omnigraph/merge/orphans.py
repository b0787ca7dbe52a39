"""Edges that lose a node through a merge, and the effect of choices on them.

One branch deleted a node, and the other branch has an edge to it. If the branch with the edge wins, the node stays, or
is restored from this branch. If the branch that deleted the node wins, the edge is deleted. If the caller chose a side
for the node itself, and this deletes the node, the edge is deleted, too, and this is no conflict.

A merge by property can take the endpoints of an edge from one side and its properties from the other. The side with the
endpoints counts as the side with the edge. If the other side wins, and it has the edge, too, the edge gets its
endpoints. The other properties stay combined.

A revert that restores a node also restores its edges. An edge whose other node no longer exists is not restored.
"""

# See docs/decisions/0171-a-revert-leaves-out-edges-without-nodes.md

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.errors import Violation
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.merge.choices import Choices, Strategy
from omnigraph.merge.classify import classify
from omnigraph.merge.compare import Compared
from omnigraph.merge.equality import Mask
from omnigraph.merge.restored_edges import Decisions
from omnigraph.storage.tables import TableStorage

_NONE = pa.array([], pa.utf8())


class Orphans:
    """Resolves the orphan edges that one constraint check finds.

    Args:
        storage: the table storage.
        unchanged: the empty change of a table that the source did not change, by type key.
        target: the branch that it is merged into.
        accepted: the schema of the target.
        tables: the changes of each table so far, by type key.
        choices: the choices for conflicts.
        decisions: the effects of the choices on nodes and edges so far. This class adds more.

    Attributes:
        tables: the changes of each table, including those that this class made.
        resolved: number of resolved conflicts: missing endpoints that were restored, or whose edge is deleted.
        changed: whether any table changed.
        restoring: whether the merge undoes a commit.
        omitted: number of edges that are not restored, because one of their nodes no longer exists.
        named: by type key, the ids of edges with resolved conflicts for which the caller chose a side individually.
    """

    def __init__(
        self,
        storage: TableStorage,
        unchanged: Callable[[str], Compared],
        target: Manifest,
        accepted: AcceptedSchema,
        tables: dict[str, Compared],
        choices: Choices,
        decisions: Decisions,
    ) -> None:
        self._storage = storage
        self._unchanged = unchanged
        self._target = target
        self._accepted = accepted
        self._choices = choices
        self._decisions = decisions
        self._before = dict(tables)
        self.tables = dict(tables)
        self.resolved = 0
        self.changed = False
        self.restoring = False
        self.omitted = 0
        self.named: dict[str, set[str]] = {}

    def resolve(self, rows: pa.Table, violation: Violation) -> pa.Table:
        """Resolve orphan edges among rows that break a constraint.

        Args:
            rows: the rows that break the constraint.
            violation: describes the violation by the first row.

        Returns:
            The rows whose violation no choice resolves.
        """
        if violation.kind != "endpoint":
            return rows
        edge, _, end = violation.subject.rpartition(".")
        key = edge_key(edge)
        if self.restoring:
            rows = self._omit(edge, end, rows)
        if not self._choices:
            return rows
        choice = self._choices.of(key)
        theirs, ours = choice.of(rows["id"], Strategy.THEIRS), choice.of(rows["id"], Strategy.OURS)
        declared = self._accepted.catalog.edges[edge]
        node = node_key(declared.from_type if end == "src" else declared.to_type)
        from_source = self._from_source(key, rows["id"]) & ~self._deleted_by_source(node, rows[end])
        # A choice for the edge itself has precedence over a choice for the node, and this over the strategy.
        deleted = _in(rows[end], self._decisions.deleted.get(node, _NONE)) & ~_in(rows["id"], choice.named(rows["id"]))
        ours, theirs = np.where(deleted, from_source, ours), np.where(deleted, ~from_source, theirs)
        # First, edges of the source to a node that the target deleted.
        self._drop_source_edges(key, _ids(rows, "id", ours & from_source))
        restored = self._restore_nodes(node, _ids(rows, end, theirs & from_source))
        # Then, edges of the target to a node that the source deleted.
        self._keep_nodes(node, _ids(rows, end, ours & ~from_source))
        self._delete_edges(key, _ids(rows, "id", theirs & ~from_source))
        done = ours | (theirs & (~from_source | _in(rows[end], restored)))
        self.resolved += int(np.count_nonzero(done & ~deleted))
        self.changed |= bool(done.any())
        self.named.setdefault(key, set()).update(choice.named(_ids(rows, "id", done)).to_pylist())
        return rows.filter(pa.array(~done))

    def _omit(self, edge: str, end: str, rows: pa.Table) -> pa.Table:
        """Leave out edges that are restored only because one of their nodes is restored, if the node at `end` is gone.

        Returns:
            The rows of all other edges.
        """
        declared = self._accepted.catalog.edges[edge]
        other_end, other = ("dst", declared.to_type) if end == "src" else ("src", declared.from_type)
        nodes, key = self._before.get(node_key(other)), edge_key(edge)
        if nodes is None or key not in self._before:
            return rows
        taken = self._before[key].rows.select(["id", other_end])
        stored = self._storage.at(self._target.tables[node_key(other)].ref)
        restored = nodes.rows["id"].filter(pc.is_in(nodes.rows["id"], value_set=taken[other_end]))
        known = stored.lookup("id", restored, columns=["id"])["id"]
        restored = restored.filter(pc.invert(pc.is_in(restored, value_set=known)))
        edges = taken["id"].filter(pc.is_in(taken[other_end], value_set=restored))
        mask = _in(rows["id"], edges)
        ids = _ids(rows, "id", mask)
        self._drop_source_edges(key, ids)
        self.omitted += len(ids)
        self.changed |= bool(mask.any())
        return rows.filter(pa.array(~mask))

    def _from_source(self, key: str, ids: pa.ChunkedArray) -> Mask:
        """Mask of the edges that the merge takes from the source."""
        compared = self._before.get(key)
        return np.zeros(len(ids), bool) if compared is None else _in(ids, compared.rows["id"])

    def _deleted_by_source(self, key: str, ids: pa.ChunkedArray) -> Mask:
        """Mask of the nodes that the source deleted. An edge to such a node has the endpoints of the target."""
        compared = self._before.get(key)
        return np.zeros(len(ids), bool) if compared is None else _in(ids, compared.deleted)

    def _drop_source_edges(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            compared = self.tables[key]
            dropped = compared.rows["id"].filter(pc.is_in(compared.rows["id"], value_set=ids))
            known = self._storage.at(self._target.tables[key].ref).lookup("id", dropped, columns=["id"])["id"]
            without = compared.without_rows(ids, inserted=len(dropped) - len(known))
            self.tables[key] = without.with_more(self._with_ends_of_target(compared, known), 0)
            self._decisions.add(self._decisions.edges, key, ids)

    def _with_ends_of_target(self, compared: Compared, ids: pa.ChunkedArray) -> pa.Table:
        """Edges with the endpoints of the target, and properties of the source. Empty if whole rows are merged."""
        versions = compared.versions
        if versions.groups is None or len(ids) == 0:
            return versions.schema.empty_table()
        target = versions.target_rows(self._storage, ids.combine_chunks())
        rows = _with_ends(compared.whole_rows(ids.combine_chunks()), target)
        return rows.filter(pc.is_in(rows["id"], value_set=classify(target, rows, target)["id"]))

    def _restore_nodes(self, key: str, ids: pa.Array) -> pa.Array:
        """Restore nodes that the target deleted from the source. Returns the ids of all nodes that the merge writes."""
        if len(ids) == 0:
            return ids
        compared = self._table(key)
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=compared.rows["id"]))).unique()
        versions = compared.versions
        rows = versions.source_rows(self._storage, missing)
        self.tables[key] = compared.with_rows(rows)
        self._decisions.add(self._decisions.theirs, key, rows["id"])
        return self.tables[key].rows["id"].combine_chunks()

    def _keep_nodes(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            self.tables[key] = self._table(key).without_deleted(ids)
            self._decisions.add(self._decisions.ours, key, ids)

    def _delete_edges(self, key: str, ids: pa.Array) -> None:
        """Delete edges of the target. Those with properties of both sides get the endpoints of the source instead."""
        if len(ids) == 0:
            return
        compared = self._table(key)
        combined = _in(ids, compared.rows["id"])
        if combined.any():
            both, ids = ids.filter(pa.array(combined)), ids.filter(pa.array(~combined))
            rows = _with_ends(compared.whole_rows(both), compared.versions.source_rows(self._storage, both))
            compared = compared.without_rows(both, inserted=0).with_more(rows, 0)
        self.tables[key] = compared.with_deleted(ids)
        self._decisions.add(self._decisions.edges, key, ids)

    def _table(self, key: str) -> Compared:
        """The changes of a table; an empty change if the source did not change it."""
        if key not in self.tables:
            self.tables[key] = self._unchanged(key)
        return self.tables[key]


def _with_ends(rows: pa.Table, ends: pa.Table) -> pa.Table:
    """Edges with the endpoints that they have in another table. Both tables have the same edges."""
    places = pc.index_in(rows["id"], value_set=ends["id"]).combine_chunks()
    for name in ("src", "dst"):
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), ends[name].take(places))
    return rows


def _ids(rows: pa.Table, name: str, mask: Mask) -> pa.Array:
    return rows[name].filter(pa.array(mask)).combine_chunks()


def _in(values: pa.Array | pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False)
    return found
