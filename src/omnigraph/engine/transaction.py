"""Transactions: several writes that become one commit, or nothing.

The changes of queries are collected in memory, and later queries of the transaction see them. The rows of plain inserts
are built together, when a later step reads them or at the end. A read after a write, a load or very many rows need
tables: then the changes are committed to the transaction branch, which only the transaction sees, and the next ones are
collected on top of it.

If the target branch has no new commits, the row changes are committed without another check: each step was checked when
it ran. Otherwise a three-way merge combines the state at the start, the transaction and the branch, and all constraints
are checked on the result.
"""

# See docs/decisions/0145-transactions-merge-at-commit.md
# See docs/decisions/0216-a-transaction-collects-its-changes.md
# See docs/decisions/0280-plain-inserts-are-built-together.md

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

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
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import GRAPH_HEAD, Prepared, WriteRequest
from omnigraph.engine.access import Action
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.prepare import PrepareMutation
from omnigraph.engine.requests import TransactionRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    PreconditionFailedError,
    ReadSetChangedError,
    TransactionConflictError,
    TransactionEndedError,
)
from omnigraph.evaluate import bind
from omnigraph.lang.query import ir
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import LocalComparer
from omnigraph.merge.merge import Merge
from omnigraph.merge.property_level import MergeLevel
from omnigraph.write.changed_state import ChangedState
from omnigraph.write.collected_inserts import CollectedInserts, PlainInsert, plain_insert
from omnigraph.write.mutation import Mutation, MutationReceipt, staged_receipt
from omnigraph.write.receipt import other_request
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget


def transaction_request(session: Session, request: TransactionRequest) -> WriteRequest:
    """The metadata and the preconditions of the commit of a transaction.

    Raises:
        InputError: the message, the labels or another field is invalid.
    """
    return write_request(session, session.branch_or_default(request.branch), WriterKind.BRANCH_MERGE, request)


MOST_ROWS = 50_000
"""Maximum number of rows to collect in memory. With more, they are written to the transaction branch."""

_SHARE = 4
"""The collected rows take at most this part of the memory budget of a load."""


class OpenTransaction:
    """An open transaction: its start state, its collected changes and its transaction branch.

    Args:
        session: the session.
        request: the branch, the metadata and the preconditions, from `transaction_request`.

    Attributes:
        branch: the branch that gets the commit.
        begun: the state of the branch at the start of the transaction.
        name: the name of the transaction branch; None for a repeated transaction.
        earlier: an existing commit with the same idempotency key. It may also come while the transaction is open.

    Raises:
        PreconditionFailedError: the head of the branch is not the expected one.
        InputError: the idempotency key belongs to another kind of write.
    """

    def __init__(self, session: Session, request: WriteRequest) -> None:
        session.require_writable()
        session.allow(Action.CHANGE, request.branch)
        session.require_whole("transaction")
        self._session = session
        self.branch = request.branch
        self._request = request
        self._mutations: list[Mutation] = []
        self._held = ExitStack()
        self._has_branch = False
        self._is_open = False
        self.begun = recovered_view(session.store, self.branch)
        self._state = ChangedState(Snapshot(session.store, self.begun))
        self._inserts = CollectedInserts()
        self._on = self.begun.head.id
        """The commit on which changes are collected."""
        self.name: SystemBranch | None = None
        self.earlier: Commit | None = None
        earlier = find_idempotent(self.begun, request.idempotency_key, request.actor)
        if earlier is not None:
            self._found_earlier(earlier)
        elif request.expect_head not in (None, self.begun.head.id):
            raise PreconditionFailedError(self.branch, str(request.expect_head), self.begun.head.id)
        else:
            self.name = transaction_branches.begin(session.store, self.begun)
            try:
                # Until there is a branch, the record keeps cleanup away from the state at the start.
                self._held.enter_context(at_work(session.store.leases, WorkKind.PIN, self.begun))
            except BaseException:
                self.end()
                raise

    def _found_earlier(self, commit: Commit) -> None:
        """Take over the commit of an earlier transaction with the same idempotency key.

        Raises:
            InputError: the key belongs to another kind of write.
        """
        if commit.writer != WriterKind.BRANCH_MERGE or commit.merged_parent is not None:
            kind = "Merge" if commit.merged_parent is not None else commit.writer
            raise other_request(commit, f"a write of kind {kind}")
        self.earlier = commit

    def mutate(self, prepare: PrepareMutation) -> MutationReceipt:
        """Run a query that writes. Its changes are collected, and later steps see them.

        Raises:
            CompileError: the query does not compile.
            InputError: the query does not write.
            ParameterError: a parameter is missing or of the wrong type.
            ConstraintError: the result would break a constraint of the schema.
        """
        if self._state.rows + self._inserts.rows > MOST_ROWS or self._state.size > memory_budget(None) // _SHARE:
            self.work()  # before this query, so that an error means that the query has changed nothing
        query = prepare.query(self.begun)  # no step changes the schema
        insert = plain_insert(self._session.schemas.of(self.begun), query)
        if insert is not None and self._collect(insert, prepare, query):
            return MutationReceipt(self.branch, query.name, 1, 0, self._session.actor, None)
        mutation = prepare.mutation(self.begun)
        prepared = mutation.prepare(self._changes())
        self._state.apply(prepared.writes)
        self._mutations.append(mutation)
        return staged_receipt(self.branch, query.name, self._session.actor, prepared)

    def _collect(self, insert: PlainInsert, prepare: PrepareMutation, query: ir.Query) -> bool:
        """Collect the row of a plain insert. Returns False if a value may be wrong: then nothing is collected."""
        row = insert.row(bind(query.params, prepare.params), prepare.now)
        if row is None:
            return False
        if self._inserts.is_full:
            self._changes()
        if not self._inserts.add(insert, row):
            self._changes()
            self._inserts.add(insert, row)
        return True

    def _changes(self) -> ChangedState:
        """The state with all changes. Builds the rows of collected inserts."""
        if self._inserts.rows:
            self._state.apply(self._inserts.take(self._state))
        return self._state

    def snapshot(self) -> Snapshot:
        """The state inside the transaction, with its own writes."""
        store = self._session.store
        if self._changes().is_changed or self._has_branch:
            return Snapshot(store, store.capture(self.work()))
        return Snapshot(store, self.begun)

    def work(self) -> SystemBranch:
        """The transaction branch, with all changes. Creates it and writes the collected changes, if necessary.

        Raises:
            TransactionEndedError: an earlier step failed after it had changed the branch.
        """
        store = self._session.store
        assert self.name is not None
        if not self._is_open:
            self._has_branch = True  # from here on, `end` has to look for it
            transaction_branches.open_branch(store, self.name, self.begun)
            self._is_open = True
            self._held.close()  # the branch keeps its state from here on
        if self._changes().is_changed:
            request = WriteRequest(self.name, WriterKind.MUTATION, self._session.actor, healed=True)
            write_tables(self._session, request, self._collected)
            self.collect_again()
        else:
            self._check_branch(store.capture(self.name))
        return self.name

    def _collected(self, view: Manifest) -> Prepared:
        """The collected changes, for the transaction branch."""
        self._check_branch(view)
        return Prepared(self._state.writes(), on_head=True)

    def _check_branch(self, view: Manifest) -> None:
        """Check that only steps that succeeded have changed the transaction branch.

        A write can fail after its commit, for example if the answer of the storage is lost. If the caller handles the
        error and goes on, its rows must not be written again.
        """
        if view.head.id != self._on:
            raise TransactionEndedError(
                "an earlier step of the transaction failed, and its outcome is unknown",
                hint="run the whole block again",
            )

    def collect_again(self) -> None:
        """Collect the next changes on top of the transaction branch. Call it after a write to the branch."""
        assert self.name is not None
        store = self._session.store
        view = store.capture(self.name)
        self._state, self._on = ChangedState(Snapshot(store, view)), view.head.id

    def commit(self) -> Commit | None:
        """Commit the changes to the branch. Return None if there are none.

        Raises:
            InputError: meanwhile, another kind of write has used the idempotency key. Nothing was written.
            TransactionConflictError: a concurrent commit conflicts with the transaction. Nothing was written.
            TransactionEndedError: another process has removed the transaction, because it seemed abandoned.
            PreconditionFailedError: a precondition failed.
        """
        assert self.name is not None
        store = self._session.store
        if not self._has_branch and not transaction_branches.exists(store, self.name):
            raise expired()
        if self._has_branch or store.capture(self.branch).head.id != self.begun.head.id:
            self.work()
        commit = self._commit()
        reach(Failpoint.TRANSACTION_MERGED)
        return commit

    def _commit(self) -> Commit | None:
        session, store, begun = self._session, self._session.store, self.begun
        merge: Merge | None = None

        def prepare(target: Manifest) -> Prepared:
            nonlocal merge
            if target.incarnation != begun.incarnation:
                raise ReadSetChangedError(GRAPH_HEAD, begun.head.id, target.head.id)
            if target.head.id == begun.head.id:
                return Prepared(self._net_writes(), on_head=True, matched=self._matched)
            if merge is None:
                merge = self._merge()
            merged = merge.against(target, begun)
            if merged.total:
                conflicts = merged.conflicts
                raise TransactionConflictError(target.branch, conflicts, merged.total, begun.head.id, target.head.id)
            return Prepared(merge.writes(merged, target), matched=self._matched)

        if not self._has_branch and not self._changes().is_changed:
            return None
        if self._has_branch and store.capture(self.work()).head.id == begun.head.id:
            return None
        return write_tables(session, replace(self._request, on_repeat=self._found_earlier), prepare)

    def _net_writes(self) -> list[TableWrite]:
        """The writes that repeat the changes of the transaction on the state where it began."""
        if not self._has_branch:
            return self._changes().writes()
        store = self._session.store
        return _table_writes(store, store.capture(self.work()), self.begun)

    def _merge(self) -> Merge:
        session, budget = self._session, memory_budget(None)
        store = session.store
        comparer, memory = LocalComparer(store.tables, budget), MemoryLimit(budget)
        view = store.capture(self.work())
        # Two transactions that both count a number up from 1 to 2 make the same change, and one of them must run again.
        return Merge(
            store,
            view,
            session.schemas,
            Choices(),
            comparer,
            memory,
            "the transaction",
            level=MergeLevel.ROW,
            exclusive=True,
        )

    def _matched(self, state: Snapshot) -> list[tuple[str, pa.Array]]:
        return [found for mutation in self._mutations for found in mutation.matched(state)]

    def end(self) -> None:
        """Remove everything that the transaction has made outside of the branch."""
        self._held.close()
        if self.name is not None:
            transaction_branches.end(self._session.store, self.name, has_branch=self._has_branch)


def expired() -> TransactionEndedError:
    """The error for a transaction that another process has removed."""
    return TransactionEndedError(
        "the transaction has expired: its process sent no heartbeat for too long", hint="begin another one"
    )


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
