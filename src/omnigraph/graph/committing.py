"""The end of a transaction: its row changes become one commit on the branch that it began from.

If the branch is as it was, they are taken over as they are: every step was checked when it ran. Otherwise they are
merged three-way: each row is compared as it was when the transaction began, as the transaction has it, and as the
branch has it now, and all constraints are checked on the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.ref_names import SystemBranch
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import Change, TableWrite
from omnigraph.commit.write_request import GRAPH_HEAD, Prepared, WriteRequest
from omnigraph.errors import ReadSetChangedError, TransactionConflictError
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import LocalComparer
from omnigraph.merge.merge import Merge
from omnigraph.write.checks import Room
from omnigraph.write.mutation import Mutation
from omnigraph.write.spill import memory_budget

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


def commit_transaction(
    graph: Graph, work: SystemBranch, begun: Manifest, request: WriteRequest, mutations: list[Mutation]
) -> Commit | None:
    """Bring what a transaction did to its branch. None means that it changed nothing.

    Args:
        graph: the graph.
        work: the hidden branch that the transaction worked on.
        begun: the state of the branch that it was made from.
        request: what is said about the commit; its branch gets it.
        mutations: the queries that the transaction ran.

    Raises:
        TransactionConflictError: the branch has moved, and both cannot be kept. Nothing happened.
        PreconditionFailedError: a precondition does not hold.
    """
    store, budget = graph._store, memory_budget(None)
    view = store.capture(work)
    if view.head.id == begun.head.id:
        return None
    comparer = LocalComparer(store.tables, budget)
    merge = Merge(
        store,
        view,
        lambda state: graph._schema_of(state)[1],
        Choices(),
        comparer,
        Room(budget),
        "the transaction",
    )

    def matched(state: Snapshot) -> list[tuple[str, pa.Array]]:
        return [found for mutation in mutations for found in mutation.matched(state)]

    def prepare(target: Manifest) -> Prepared:
        if target.incarnation != begun.incarnation:
            raise ReadSetChangedError(GRAPH_HEAD, begun.head.id, target.head.id)
        if target.head.id == begun.head.id:
            return Prepared(_brought(store, view, begun), on_head=True, matched=matched)
        merged = merge.against(target, begun)
        if merged.total:
            raise TransactionConflictError(target.branch, merged.conflicts, merged.total, begun.head.id, target.head.id)
        return Prepared(merge.writes(merged, target), matched=matched)

    return graph.write_tables(replace(request, kind=WriterKind.BRANCH_MERGE), prepare)


def _brought(store: Store, view: Manifest, begun: Manifest) -> list[TableWrite]:
    """The writes that make a state from the one that it began at."""
    writes: list[TableWrite] = []
    for key, pin in view.tables.items():
        before = begun.tables[key]
        if pin.ref != before.ref:
            found = store.tables.at(pin.ref).changes_since(before.ref)
            if not found.is_empty:
                writes.append(Change(key, found.rows, found.deleted, models=pin.models))
    return writes
