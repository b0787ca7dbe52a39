"""Edges that lose a node through a merge, and the effect of choices on them.

One branch deleted a node, and the other has an edge to it. If the side with the edge wins, the node stays, or is
restored from that side. If the side without the node wins, the edge is deleted. The edge is also deleted, without a
conflict, if a choice for the node itself deletes the node.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.store import Store
from omnigraph.errors import Violation
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.merge.choices import Choices, Strategy
from omnigraph.merge.compare import Compared
from omnigraph.merge.equality import Mask
from omnigraph.merge.restored_edges import Decisions, unchanged_table
from omnigraph.merge.sides import lookup_rows

_NONE = pa.array([], pa.utf8())


class Orphans:
    """Resolves the orphan edges that one constraint check finds.

    Args:
        store: the graph.
        source: the branch that is merged.
        target: the branch that it is merged into.
        accepted: the schema of the target.
        tables: the changes of each table so far, by type key.
        choices: the choices for conflicts.
        decisions: the decisions so far. This class adds its own.

    Attributes:
        tables: the changes of each table now.
        resolved: number of resolved conflicts: missing endpoints that were restored, or whose edge is deleted.
        changed: whether any table changed.
        named: by type key, the ids of resolved edges for which the caller chose a side individually.
    """

    def __init__(
        self,
        store: Store,
        source: Manifest,
        target: Manifest,
        accepted: AcceptedSchema,
        tables: dict[str, Compared],
        choices: Choices,
        decisions: Decisions,
    ) -> None:
        self._store = store
        self._source = source
        self._target = target
        self._accepted = accepted
        self._choices = choices
        self._decisions = decisions
        self._before = dict(tables)
        self.tables = dict(tables)
        self.resolved = 0
        self.changed = False
        self.named: dict[str, set[str]] = {}

    def resolve(self, rows: pa.Table, violation: Violation) -> pa.Table:
        """Resolve orphan edges among rows that break a constraint.

        Args:
            rows: the rows that break the constraint.
            violation: describes the violation by the first row.

        Returns:
            The rows whose violation no choice resolves.
        """
        if violation.kind != "endpoint" or not self._choices:
            return rows
        edge, _, end = violation.subject.rpartition(".")
        key = edge_key(edge)
        choice = self._choices.of(key)
        theirs, ours = choice.of(rows["id"], Strategy.THEIRS), choice.of(rows["id"], Strategy.OURS)
        from_source = self._from_source(key, rows["id"])
        declared = self._accepted.catalog.edges[edge]
        node = node_key(declared.from_type if end == "src" else declared.to_type)
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

    def _from_source(self, key: str, ids: pa.ChunkedArray) -> Mask:
        """Mask of the edges that the merge takes from the source."""
        compared = self._before.get(key)
        return np.zeros(len(ids), bool) if compared is None else _in(ids, compared.rows["id"])

    def _drop_source_edges(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            compared = self.tables[key]
            dropped = compared.rows["id"].filter(pc.is_in(compared.rows["id"], value_set=ids))
            known = self._store.tables.at(self._target.tables[key].ref).lookup("id", dropped, columns=["id"]).num_rows
            self.tables[key] = compared.without_rows(ids, inserted=len(dropped) - known)
            self._decisions.add(self._decisions.edges, key, ids)

    def _restore_nodes(self, key: str, ids: pa.Array) -> pa.Array:
        """Restore nodes that the target deleted from the source. Returns the ids of all nodes that the merge writes."""
        if len(ids) == 0:
            return ids
        compared = self._table(key)
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=compared.rows["id"]))).unique()
        versions = compared.versions
        rows = lookup_rows(self._store.tables, versions.source, missing, versions.columns)
        self.tables[key] = compared.with_rows(rows.select(versions.schema.names).cast(versions.schema))
        self._decisions.add(self._decisions.theirs, key, rows["id"])
        return self.tables[key].rows["id"].combine_chunks()

    def _keep_nodes(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            self.tables[key] = self._table(key).without_deleted(ids)
            self._decisions.add(self._decisions.ours, key, ids)

    def _delete_edges(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            self.tables[key] = self._table(key).with_deleted(ids)
            self._decisions.add(self._decisions.edges, key, ids)

    def _table(self, key: str) -> Compared:
        """The changes of a table; an empty change if the source did not change it."""
        if key not in self.tables:
            self.tables[key] = unchanged_table(self._store.tables, key, self._source, self._target)
        return self.tables[key]


def _ids(rows: pa.Table, name: str, mask: Mask) -> pa.Array:
    return rows[name].filter(pa.array(mask)).combine_chunks()


def _in(values: pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False)
    return found
