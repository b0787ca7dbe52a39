"""Transactions: any number of writes that become one commit, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from omnigraph.commit import transaction_branches
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import SystemBranch
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.write_request import Unchanged, WriteRequest
from omnigraph.errors import BranchNotFoundError, InputError, PreconditionFailedError, TransactionEndedError
from omnigraph.graph.committing import commit_transaction
from omnigraph.graph.mutating import mutate
from omnigraph.graph.reading import QueryText, query_text
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.result.result import Result
from omnigraph.write.load import LoadMode, LoadProgress, LoadReceipt
from omnigraph.write.mutation import Mutation, MutationReceipt
from omnigraph.write.sources import LoadSource
from omnigraph.write.table_mapping import MappingSource

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


class _Done(BaseException):
    """Ends the block of a transaction that was committed before. No handler of errors is meant to see it."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__("the transaction was committed before")
        self.transaction = transaction


def _pairs(labels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if labels is not None and not isinstance(labels, Mapping):
        raise InputError(f"labels are a mapping of names to texts, not a {type(labels).__name__}")
    return tuple((labels or {}).items())


class Transaction:
    """Several writes that become one commit when the block ends, or nothing when it ends with an error.

    The block works on a hidden branch: it sees what it wrote, and nobody else does. Use it once, in a `with`.

    Attributes:
        branch: the branch that gets the commit.
        commit: the commit, once the block has ended; None when the block changed nothing.
        repeated: whether a commit with the same idempotency key was there already. The block then ends, without an
            error, at its first write, and `commit` is the one that was there.
    """

    def __init__(
        self,
        graph: Graph,
        branch: str,
        *,
        message: str | None,
        labels: Mapping[str, str] | None,
        expect_head: str | None,
        unchanged: Unchanged | None,
        idempotency_key: str | None,
        timeout: float | None,
    ) -> None:
        self.branch = branch
        self.commit: Commit | None = None
        self.repeated = False
        self._graph = graph
        self._store = graph._store
        self._request = WriteRequest(
            branch=branch,
            actor=graph.actor,
            message=message,
            labels=_pairs(labels),
            timeout=timeout,
            expect_head=expect_head,
            unchanged=unchanged,
            idempotency_key=idempotency_key,
        )
        self._mutations: list[Mutation] = []
        self._begun: Manifest | None = None
        self._work: SystemBranch | None = None
        self._ended = False

    def mutate(
        self, text: QueryText, params: Mapping[str, object] | None = None, *, name: str | None = None
    ) -> MutationReceipt:
        """Run a query that writes, as `Graph.mutate` does. Its receipt has no commit: the transaction will."""
        with self._writing() as work:
            receipt = mutate(
                self._graph,
                query_text(text),
                {} if params is None else params,
                name,
                WriteRequest(branch=work, kind=WriterKind.MUTATION, actor=self._graph.actor),
                self._mutations.append,
            )
        return replace(receipt, branch=self.branch, commit=None)

    def load(
        self,
        source: LoadSource,
        *,
        mode: LoadMode | str,
        type_name: str | None = None,
        mapping: MappingSource | None = None,
        lenient: bool = False,
        embed: bool = True,
        memory_budget: int | str | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> LoadReceipt:
        """Load rows, as `Graph.load` does. The receipt has no commit: the transaction will."""
        with self._writing() as work:
            receipt = self._graph.load(
                source,
                mode=mode,
                type_name=type_name,
                mapping=mapping,
                lenient=lenient,
                branch=work,
                embed=embed,
                memory_budget=memory_budget,
                progress=progress,
            )
        return replace(receipt, branch=self.branch, commit=None)

    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run a query that reads, as `Graph.query` does. It sees what the transaction wrote."""
        with self._open() as work:
            found = self._graph.query(text, params, name=name, branch=work, budget=budget, cancel=cancel)
        assert self._begun is not None
        seen = found.graph_commit_id if self._work is None or found.graph_commit_id == self._begun.head.id else None
        return replace(found, branch=self.branch, graph_commit_id=seen)

    def snapshot(self) -> Snapshot:
        """What the transaction sees now, its own writes included. Good until the transaction ends."""
        with self._open() as work:
            return self._graph.snapshot(branch=work)

    def entity(self, type_name: str, entity_id: str) -> dict[str, object] | None:
        """One node or edge by id as the transaction sees it, or None."""
        return self._graph.entity(type_name, entity_id, at=self.snapshot())

    @contextmanager
    def _writing(self) -> Iterator[str]:
        with self._open() as work:
            if self.repeated:
                raise _Done(self)
            yield work

    @contextmanager
    def _open(self) -> Iterator[str]:
        """The branch to work on: the hidden one, or for a repeated transaction the one that has its commit."""
        if self._begun is None or self._ended:
            reason = "the transaction has ended" if self._ended else "the transaction has not begun"
            raise TransactionEndedError(reason, hint="use it inside of its 'with' block")
        try:
            yield self.branch if self._work is None else self._work
        except BranchNotFoundError as error:
            if error.branch != self._work:
                raise
            raise TransactionEndedError(
                "the transaction was given up: its process was out of sight for too long", hint="begin another"
            ) from error

    def __enter__(self) -> Transaction:
        if self._begun is not None:
            raise TransactionEndedError("a transaction is used once", hint="begin another")
        self._graph._writable()
        request = self._request
        view = recovered_view(self._store, self.branch)
        earlier = find_idempotent(view, request.idempotency_key)
        if earlier is not None:
            self._check_kind(earlier)
            self.commit, self.repeated = earlier, True
        elif request.expect_head not in (None, view.head.id):
            raise PreconditionFailedError(self.branch, str(request.expect_head), view.head.id)
        else:
            self._work = transaction_branches.begin(self._store, view)
        self._begun = view
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._ended = True
        if self._work is None:
            return isinstance(error, _Done) and error.transaction is self
        try:
            if kind is None:
                assert self._begun is not None
                self.commit = commit_transaction(self._graph, self._work, self._begun, self._request, self._mutations)
                reach(Failpoint.TRANSACTION_MERGED)
        finally:
            transaction_branches.end(self._store, self._work)
        if isinstance(error, _Done):
            raise InputError(
                "a write to a transaction that was committed before ended the block of another one inside of it, and "
                "nothing of that was written",
                hint="write to the outer transaction before or after the inner one, or give the inner one a key too",
            ) from None
        return None

    def _check_kind(self, earlier: Commit) -> None:
        """An idempotency key means one request, and that was a transaction."""
        if earlier.writer != WriterKind.BRANCH_MERGE:
            raise InputError(
                f"the idempotency key '{earlier.idempotency_key}' belongs to commit {earlier.id}, which was made by "
                f"a write of kind {earlier.writer}",
                hint="use another key",
            )
