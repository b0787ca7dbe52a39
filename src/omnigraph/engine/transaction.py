"""Transactions: several writes on a transaction branch that become one commit, or nothing.

If the target branch has no new commits, the row changes are committed without another check: each step was checked when
it ran. Otherwise a three-way merge combines the state at the start, the transaction and the branch, and all constraints
are checked on the result.
"""

# See docs/decisions/0145-transactions-merge-at-commit.md

from __future__ import annotations

import pyarrow as pa

from omnigraph.commit import transaction_branches
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import SystemBranch
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import Change, TableWrite
from omnigraph.commit.write_request import GRAPH_HEAD, Prepared, WriteRequest
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.requests import TransactionRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, PreconditionFailedError, ReadSetChangedError, TransactionConflictError
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import LocalComparer
from omnigraph.merge.merge import Merge
from omnigraph.merge.property_level import MergeLevel
from omnigraph.write.mutation import Mutation
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget


def transaction_request(session: Session, request: TransactionRequest) -> WriteRequest:
    """The metadata and the preconditions of the commit of a transaction.

    Raises:
        InputError: the message, the labels or another field is invalid.
    """
    return write_request(session, session.branch_or_default(request.branch), WriterKind.BRANCH_MERGE, request)


class OpenTransaction:
    """An open transaction: its start state and its transaction branch.

    Args:
        session: the session.
        request: the branch, the metadata and the preconditions, from `transaction_request`.

    Attributes:
        branch: the branch that gets the commit.
        begun: the state of the branch at the start of the transaction.
        work: the transaction branch; None for a repeated transaction.
        earlier: an existing commit with the same idempotency key.
        mutations: the queries that the transaction ran.

    Raises:
        PreconditionFailedError: the head of the branch is not the expected one.
        InputError: the idempotency key belongs to another kind of write.
    """

    def __init__(self, session: Session, request: WriteRequest) -> None:
        session.require_writable()
        self._session = session
        self.branch = request.branch
        self._request = request
        self.mutations: list[Mutation] = []
        self.begun = recovered_view(session.store, self.branch)
        self.work: SystemBranch | None = None
        self.earlier = find_idempotent(self.begun, request.idempotency_key)
        if self.earlier is not None:
            _check_kind(self.earlier)
        elif request.expect_head not in (None, self.begun.head.id):
            raise PreconditionFailedError(self.branch, str(request.expect_head), self.begun.head.id)
        else:
            self.work = transaction_branches.begin(session.store, self.begun)

    def commit(self) -> Commit | None:
        """Commit the changes to the branch. Return None if there are none.

        Raises:
            TransactionConflictError: a concurrent commit conflicts with the transaction. Nothing was written.
            PreconditionFailedError: a precondition failed.
        """
        assert self.work is not None
        commit = _commit(self._session, self.work, self.begun, self._request, self.mutations)
        reach(Failpoint.TRANSACTION_MERGED)
        return commit

    def end(self) -> None:
        """Delete the transaction branch."""
        if self.work is not None:
            transaction_branches.end(self._session.store, self.work)


def _check_kind(earlier: Commit) -> None:
    """Reject an idempotency key that belongs to another kind of write."""
    if earlier.writer != WriterKind.BRANCH_MERGE:
        raise InputError(
            f"the idempotency key '{earlier.idempotency_key}' belongs to commit {earlier.id}, which was made by "
            f"a write of kind {earlier.writer}",
            hint="use another key",
        )


def _commit(
    session: Session, work: SystemBranch, begun: Manifest, request: WriteRequest, mutations: list[Mutation]
) -> Commit | None:
    store, budget = session.store, memory_budget(None)
    view = store.capture(work)
    if view.head.id == begun.head.id:
        return None
    comparer = LocalComparer(store.tables, budget)
    merge = Merge(
        store,
        view,
        session.schemas,
        Choices(),
        comparer,
        MemoryLimit(budget),
        "the transaction",
        level=MergeLevel.ROW,
    )

    def matched(state: Snapshot) -> list[tuple[str, pa.Array]]:
        return [found for mutation in mutations for found in mutation.matched(state)]

    def prepare(target: Manifest) -> Prepared:
        if target.incarnation != begun.incarnation:
            raise ReadSetChangedError(GRAPH_HEAD, begun.head.id, target.head.id)
        if target.head.id == begun.head.id:
            return Prepared(_table_writes(store, view, begun), on_head=True, matched=matched)
        merged = merge.against(target, begun)
        if merged.total:
            raise TransactionConflictError(target.branch, merged.conflicts, merged.total, begun.head.id, target.head.id)
        return Prepared(merge.writes(merged, target), matched=matched)

    return write_tables(session, request, prepare)


def _table_writes(store: Store, view: Manifest, begun: Manifest) -> list[TableWrite]:
    """The table writes that repeat the changes from `begun` to `view`."""
    writes: list[TableWrite] = []
    for key, pin in view.tables.items():
        before = begun.tables[key]
        if pin.ref != before.ref:
            found = store.tables.at(pin.ref).changes_since(before.ref)
            if not found.is_empty:
                writes.append(Change(key, found.rows, found.deleted, models=pin.models))
    return writes
