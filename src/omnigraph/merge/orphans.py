"""Edges that a merge would leave without a node, and what choosing a side means for them.

One branch has removed a node, and the other has an edge there. Where the side with the edge is right, the node stays,
or comes back as that side has it. Where the side without the node is right, the edge goes. It also goes, without a
conflict, where the node was decided to be gone by name.
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
    """Resolves what one check of the constraints finds.

    Args:
        store: the graph.
        source: the branch that is merged.
        target: the branch that it is merged into.
        accepted: the schema of that.
        tables: what becomes of each table so far, by type key.
        choices: which side is right.
        decided: what that has decided before. What is decided here is noted there.

    Attributes:
        tables: what becomes of each table now.
        settled: how many conflicts were resolved: ends of edges that had no node, and have one or are gone.
        moved: whether anything became of a table.
        named: the ids of those edges for which a side was chosen by name, by type key.
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
        """Resolve what can be resolved of the rows that break a constraint.

        Args:
            rows: the rows.
            said: what is said about the first of them.

        Returns:
            Those for which nothing is said.
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
        # A side that was chosen for the node comes before the strategy, and after a side for the edge itself.
        gone = _in(rows[end], self._decided.gone.get(node, _NONE)) & ~_in(rows["id"], choice.named(rows["id"]))
        ours, theirs = np.where(gone, brought, ours), np.where(gone, ~brought, theirs)
        # An edge that the source brings, to a node that the target has removed.
        self._without_edges(key, _ids(rows, "id", ours & brought))
        back = self._brings_back(node, _ids(rows, end, theirs & brought))
        # An edge that the target has, at a node that the source has removed.
        self._keeps(node, _ids(rows, end, ours & ~brought))
        self._without_stored(key, _ids(rows, "id", theirs & ~brought))
        done = ours | (theirs & (~brought | _in(rows[end], back)))
        self.settled += int(np.count_nonzero(done & ~gone))
        self.moved |= bool(done.any())
        self.named.setdefault(key, set()).update(choice.named(_ids(rows, "id", done)).to_pylist())
        return rows.filter(pa.array(~done))

    def _brought(self, key: str, ids: pa.ChunkedArray) -> Mask:
        """Which edges the merge brings."""
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
        """Take nodes from the source that the target has removed. Returns those that are there now."""
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
        """What becomes of a table, also of one that the source has not changed."""
        if key not in self.tables:
            self.tables[key] = untouched(self._store.tables, key, self._source, self._target)
        return self.tables[key]


def _ids(rows: pa.Table, name: str, mask: Mask) -> pa.Array:
    return rows[name].filter(pa.array(mask)).combine_chunks()


def _in(values: pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = pc.is_in(values, value_set=others).to_numpy(zero_copy_only=False)
    return found
