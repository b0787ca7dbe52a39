"""The handle of a transaction: several writes that become one commit, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Unpack

from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.access import Action
from omnigraph.engine.blob import entity_of
from omnigraph.engine.load import load
from omnigraph.engine.mutate import prepare_mutation
from omnigraph.engine.options import takes
from omnigraph.engine.query import query
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.request_options import QueryOptions, RowOptions
from omnigraph.engine.requests import LoadRequest, MutateRequest, TransactionRequest
from omnigraph.engine.session import Session
from omnigraph.engine.transaction import OpenTransaction, expired, transaction_request
from omnigraph.errors import BranchNotFoundError, InputError, TransactionEndedError
from omnigraph.read.result.result import Result
from omnigraph.write.input.sources import LoadSource
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.receipt import LoadReceipt


class _AlreadyCommitted(BaseException):
    """Ends the block of a transaction that is already committed. `except Exception` does not catch it."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__("the transaction was committed before")
        self.transaction = transaction


class Transaction:
    """Several writes that become one commit at the end of the block. If the block fails, nothing is written.

    The block sees its own writes; other readers do not. Use a transaction once, in a `with` statement.

    Attributes:
        branch: the branch that gets the commit.
        commit: the commit, after the end of the block; None if the block changed nothing.
        repeated: whether a commit with the same idempotency key already existed. The block then ends at its first
            write, without an error, and `commit` is the existing commit. After the block, also whether another
            transaction has committed with the key meanwhile. Then `commit` is that commit, and nothing was written.
    """

    def __init__(self, session: Session, request: TransactionRequest) -> None:
        self._request = transaction_request(session, request)
        self.branch = self._request.branch
        self.commit: Commit | None = None
        self.repeated = False
        self._session = session
        self._open: OpenTransaction | None = None
        self._ended = False

    def mutate(
        self, text: QueryText, params: Mapping[str, object] | None = None, *, name: str | None = None
    ) -> MutationReceipt:
        """Run a query that writes. See `Graph.mutate`. The receipt has no commit: the transaction commits later."""
        with self._writing() as opened:
            return opened.mutate(prepare_mutation(self._session, MutateRequest(text, params, name)))

    @takes(RowOptions)
    def load(self, source: LoadSource, **options: Unpack[RowOptions]) -> LoadReceipt:
        """Load rows. See `Graph.load`. The receipt has no commit: the transaction commits later."""
        with self._writing() as opened:
            request = LoadRequest(branch=opened.work(), engine="local", **options)
            receipt = load(self._session, source, request, transaction_on=opened.begun)
            opened.collect_again()
        return replace(receipt, branch=self.branch, commit=None)

    @takes(QueryOptions)
    def query(
        self, text: QueryText, params: Mapping[str, object] | None = None, **options: Unpack[QueryOptions]
    ) -> Result:
        """Run a query that reads. See `Graph.query`. It sees the writes of the transaction."""
        with self._using() as opened:
            view = self._readable(opened)
            found = query(self._session, QueryRequest(text, params, branch=view.branch, **options), view, opened.begun)
        seen = found.graph_commit_id if self.repeated or found.graph_commit_id == opened.begun.head.id else None
        return replace(found, branch=self.branch, graph_commit_id=seen)

    def snapshot(self) -> Snapshot:
        """The state inside the transaction, with its own writes. Valid until the transaction ends."""
        with self._using() as opened:
            view = self._readable(opened)
            self._session.require_all_rows(Action.READ, opened.begun)
            return view

    def entity(self, type_name: str, entity_id: str) -> dict[str, object] | None:
        """One node or edge by id, as the transaction sees it; None if there is none."""
        with self._using() as opened:
            return entity_of(self._session, self._readable(opened), type_name, entity_id, opened.begun)

    def _readable(self, opened: OpenTransaction) -> Snapshot:
        """The state to read, if the actor may read the branch."""
        if self._session.access is not None:
            self._session.allow(Action.READ, self.branch)
            self._session.refuse_row_limits(Action.READ, opened.begun)
        return self._view(opened)

    def _view(self, opened: OpenTransaction) -> Snapshot:
        """The state to read: for a repeated transaction, that of the branch with its commit."""
        return self._session.snapshot(branch=self.branch) if self.repeated else opened.snapshot()

    @contextmanager
    def _writing(self) -> Iterator[OpenTransaction]:
        with self._using() as opened:
            if self.repeated:
                raise _AlreadyCommitted(self)
            yield opened

    @contextmanager
    def _using(self) -> Iterator[OpenTransaction]:
        if self._open is None or self._ended:
            reason = "the transaction has ended" if self._ended else "the transaction has not begun"
            raise TransactionEndedError(reason, hint="use it inside of its 'with' block")
        try:
            yield self._open
        except BranchNotFoundError as error:
            if error.branch != self._open.name:
                raise
            raise expired() from error

    def __enter__(self) -> Transaction:
        if self._open is not None:
            raise TransactionEndedError("a transaction can be used only once", hint="begin another one")
        self._open = OpenTransaction(self._session, self._request)
        self.commit, self.repeated = self._open.earlier, self._open.earlier is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._open is not None
        self._ended = True
        if self.repeated:
            return isinstance(error, _AlreadyCommitted) and error.transaction is self
        try:
            if kind is None:
                self.commit = self._open.commit()
                self.repeated = self._open.earlier is not None
        finally:
            self._open.end()
        if isinstance(error, _AlreadyCommitted):
            raise InputError(
                "the outer transaction was already committed, so a write to it ended the block of the inner "
                "transaction, and nothing of the inner transaction was written",
                hint="write to the outer transaction before or after the inner one, or give the inner one a key, too",
            ) from None
        return None
