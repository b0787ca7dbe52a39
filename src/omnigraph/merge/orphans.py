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
from omnigraph.merge.returning import Settled, untouched
from omnigraph.merge.sides import looked_up

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
        decided: the decisions so far. Decisions made here are added.

    Attributes:
        tables: the changes of each table now.
        settled: number of resolved conflicts: endpoints without a node that now have one, or whose edge is deleted.
        moved: whether any table changed.
        named: the ids of the resolved edges with a choice of their own, by type key.
    """

    def __init__(
        self,
        store: Store,
        source: Manifest,
        target: Manifest,
        accepted: AcceptedSchema,
        tables: dict[str, Compared],
        choices: Choices,
        decided: Settled,
    ) -> None:
        self._store = store
        self._source = source
        self._target = target
        self._accepted = accepted
        self._choices = choices
        self._decided = decided
        self._before = dict(tables)
        self.tables = dict(tables)
        self.settled = 0
        self.moved = False
        self.named: dict[str, set[str]] = {}

    def settle(self, rows: pa.Table, said: Violation) -> pa.Table:
        """Resolve orphan edges among rows that break a constraint.

        Args:
            rows: the rows.
            said: the violation of the first row.

        Returns:
            The rows without a choice.
        """
        if said.kind != "endpoint" or not self._choices:
            return rows
        edge, _, end = said.subject.rpartition(".")
        key = edge_key(edge)
        choice = self._choices.of(key)
        theirs, ours = choice.of(rows["id"], Strategy.THEIRS), choice.of(rows["id"], Strategy.OURS)
        brought = self._brought(key, rows["id"])
        declared = self._accepted.catalog.edges[edge]
        node = node_key(declared.from_type if end == "src" else declared.to_type)
        # Precedence: a choice for the edge itself, then a choice for the node, then the strategy.
        gone = _in(rows[end], self._decided.gone.get(node, _NONE)) & ~_in(rows["id"], choice.named(rows["id"]))
        ours, theirs = np.where(gone, brought, ours), np.where(gone, ~brought, theirs)
        # Edges from the source to a node that the target deleted.
        self._without_edges(key, _ids(rows, "id", ours & brought))
        back = self._brings_back(node, _ids(rows, end, theirs & brought))
        # Edges of the target to a node that the source deleted.
        self._keeps(node, _ids(rows, end, ours & ~brought))
        self._without_stored(key, _ids(rows, "id", theirs & ~brought))
        done = ours | (theirs & (~brought | _in(rows[end], back)))
        self.settled += int(np.count_nonzero(done & ~gone))
        self.moved |= bool(done.any())
        self.named.setdefault(key, set()).update(choice.named(_ids(rows, "id", done)).to_pylist())
        return rows.filter(pa.array(~done))

    def _brought(self, key: str, ids: pa.ChunkedArray) -> Mask:
        """Mask of the edges that the merge takes from the source."""
        compared = self._before.get(key)
        return np.zeros(len(ids), bool) if compared is None else _in(ids, compared.rows["id"])

    def _without_edges(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            compared = self.tables[key]
            own = compared.rows["id"].filter(pc.is_in(compared.rows["id"], value_set=ids))
            known = self._store.tables.at(self._target.tables[key].ref).lookup("id", own, columns=["id"]).num_rows
            self.tables[key] = compared.without_rows(ids, inserted=len(own) - known)
            self._decided.note(self._decided.edges, key, ids)

    def _brings_back(self, key: str, ids: pa.Array) -> pa.Array:
        """Restore nodes that the target deleted from the source. Returns the ids that exist now."""
        if len(ids) == 0:
            return ids
        compared = self._table(key)
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=compared.rows["id"]))).unique()
        versions = compared.versions
        rows = looked_up(self._store.tables, versions.source, missing, versions.columns)
        self.tables[key] = compared.with_rows(rows.select(versions.schema.names).cast(versions.schema))
        self._decided.note(self._decided.theirs, key, rows["id"])
        return self.tables[key].rows["id"].combine_chunks()

    def _keeps(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            self.tables[key] = self._table(key).without_deleted(ids)
            self._decided.note(self._decided.ours, key, ids)

    def _without_stored(self, key: str, ids: pa.Array) -> None:
        if len(ids):
            self.tables[key] = self._table(key).with_deleted(ids)
            self._decided.note(self._decided.edges, key, ids)

    def _table(self, key: str) -> Compared:
        """The changes of a table, also of one that the source did not change."""
        if key not in self.tables:
            self.tables[key] = untouched(self._store.tables, key, self._source, self._target)
        return self.tables[key]


def _ids(rows: pa.Table, name: str, mask: Mask) -> pa.Array:
    return rows[name].filter(pa.array(mask)).combine_chunks()


def _in(values: pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False)
    return found
