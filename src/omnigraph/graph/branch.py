"""The handle of one branch of an open graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Unpack, overload

import pyarrow as pa

from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.access import Action
from omnigraph.engine.options import takes
from omnigraph.engine.prepared_query import PreparedQuery
from omnigraph.engine.query import async_query, query
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.request_options import (
    EmbedOptions,
    ExportOptions,
    LoadOptions,
    MergeOptions,
    MutateOptions,
    PickOptions,
    QueryOptions,
    RestoreOptions,
    WriteOptions,
)
from omnigraph.engine.session import At, Session
from omnigraph.graph.collections import Commits
from omnigraph.read.result.result import Result

if TYPE_CHECKING:
    from omnigraph.graph.transaction import Transaction
    from omnigraph.history.entity import BlamedValue, EntityLog
    from omnigraph.merge.pick_receipt import PickReceipt
    from omnigraph.merge.receipt import MergeReceipt
    from omnigraph.merge.restore_receipt import RestoreReceipt
    from omnigraph.read.blobs import Blob
    from omnigraph.read.export.files import ExportFormat, ExportReceipt, Target
    from omnigraph.upkeep.vectors import EmbedReceipt
    from omnigraph.write.input.sources import LoadSource
    from omnigraph.write.mutation import MutationReceipt
    from omnigraph.write.receipt import LoadReceipt


class BranchHandle:
    """A handle of one branch. All its reads and writes apply to that branch. Creating a handle reads nothing.

    The methods take the same options as the methods of `Graph` with the same names.

    Attributes:
        name: the branch.
        commits: its history.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self.name = name
        self.commits = Commits(session, name)

    def __repr__(self) -> str:
        return f"<branch {self.name}>"

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import state_html

        view = self._session.readable(self.name, None, Action.READ)
        return state_html(f"branch {self.name}", view, self._session.schemas.at(view))

    @property
    def head(self) -> Commit:
        """The newest commit.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        self._session.allow(Action.READ, self.name)
        return self._session.shown_commit(self._session.snapshot(branch=self.name).commit)

    def snapshot(self, *, version: int | None = None, at: datetime | None = None) -> Snapshot:
        """A snapshot of the branch: the newest state, or the state of a manifest version or a time."""
        return self._session.whole_snapshot(branch=self.name, version=version, at=at)

    def entity(self, type_name: str, entity_id: str) -> dict[str, object] | None:
        """One node or edge of the branch by id, or None."""
        from omnigraph.engine.blob import entity

        return entity(self._session, type_name, entity_id, self.name)

    def log(self, type_name: str, entity_id: str, *, follow: bool = True) -> EntityLog:
        """All changes of one entity that lead to the branch, newest first. See `Graph.log`."""
        from omnigraph.engine.history import log
        from omnigraph.engine.requests import LogRequest

        return log(self._session, LogRequest(type_name, entity_id, branch=self.name, follow=follow))

    def blame(
        self, type_name: str, entity_id: str, property: str | None = None, *, follow: bool = True
    ) -> tuple[BlamedValue, ...]:
        """The commit that set each value of an entity of the branch. See `Graph.blame`."""
        from omnigraph.engine.history import blame
        from omnigraph.engine.requests import BlameRequest

        return blame(self._session, BlameRequest(type_name, entity_id, property, branch=self.name, follow=follow))

    def blob(self, type_name: str, entity_id: str, property: str) -> Blob:
        """A blob of the newest state. It can be read in ranges."""
        from omnigraph.engine.blob import blob

        return blob(self._session, type_name, entity_id, property, self.name)

    @overload
    def export(
        self, target: None = None, *, format: Literal["ndjson"] = "ndjson", types: str | Sequence[str] | None = None
    ) -> Iterator[bytes]: ...

    @overload
    def export(
        self, target: None = None, *, format: Literal["arrow"], types: str | Sequence[str] | None = None
    ) -> Iterator[tuple[str, pa.RecordBatch]]: ...

    @overload
    def export(
        self, target: Target, *, format: ExportFormat | str = "ndjson", **options: Unpack[ExportOptions]
    ) -> ExportReceipt: ...

    @takes(ExportOptions)
    def export(
        self, target: Target | None = None, *, format: ExportFormat | str = "ndjson", **options: Unpack[ExportOptions]
    ) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
        """Export the newest state of the branch. See `Graph.export`."""
        from omnigraph.engine.export import export
        from omnigraph.engine.requests import ExportRequest

        return export(self._session, ExportRequest(target, format, branch=self.name, **options))

    @takes(QueryOptions)
    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        at: datetime | int | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a query on the newest state, or on the state of a time or a manifest version."""
        return query(self._session, QueryRequest(text, params, branch=self.name, at=at, **options))

    def prepare(self, text: QueryText, *, name: str | None = None, at: datetime | int | None = None) -> PreparedQuery:
        """Compile a query once, to call it many times on the branch. See `Graph.prepare`."""
        return PreparedQuery(self._session, QueryRequest(text, name=name, branch=self.name, at=at))

    @takes(QueryOptions)
    async def async_query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        at: datetime | int | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a query in a thread. See `Graph.async_query`."""
        return await async_query(self._session, QueryRequest(text, params, branch=self.name, at=at, **options))

    @takes(MutateOptions)
    def mutate(
        self, text: QueryText, params: Mapping[str, object] | None = None, **options: Unpack[MutateOptions]
    ) -> MutationReceipt:
        """Run a query that writes. See `Graph.mutate`."""
        from omnigraph.engine.mutate import mutate
        from omnigraph.engine.requests import MutateRequest

        return mutate(self._session, MutateRequest(text, params, branch=self.name, **options))

    @takes(EmbedOptions)
    def embed(self, **options: Unpack[EmbedOptions]) -> EmbedReceipt:
        """Update the vectors of the branch. See `Graph.embed`."""
        from omnigraph.engine.embed import embed
        from omnigraph.engine.requests import EmbedRequest

        return embed(self._session, EmbedRequest(branch=self.name, **options))

    @takes(LoadOptions)
    def load(self, source: LoadSource, **options: Unpack[LoadOptions]) -> LoadReceipt:
        """Load rows as one commit. See `Graph.load`."""
        from omnigraph.engine.load import load
        from omnigraph.engine.requests import LoadRequest

        return load(self._session, source, LoadRequest(branch=self.name, **options))

    @takes(MergeOptions)
    def merge(self, source: str, **options: Unpack[MergeOptions]) -> MergeReceipt:
        """Merge another branch into this one. See `Graph.merge`."""
        from omnigraph.engine.merge import merge
        from omnigraph.engine.requests import MergeRequest

        return merge(self._session, MergeRequest(source, self.name, **options))

    @takes(PickOptions)
    def revert(self, commit: str, *, member: str | None = None, **options: Unpack[PickOptions]) -> PickReceipt:
        """Undo the changes of one commit on this branch. See `Graph.revert`."""
        from omnigraph.engine.pick import revert
        from omnigraph.engine.requests import RevertRequest

        return revert(self._session, RevertRequest(commit, self.name, member, **options))

    @takes(PickOptions)
    def cherry_pick(self, commit: str, **options: Unpack[PickOptions]) -> PickReceipt:
        """Apply the changes of one commit to this branch. See `Graph.cherry_pick`."""
        from omnigraph.engine.pick import cherry_pick
        from omnigraph.engine.requests import CherryPickRequest

        return cherry_pick(self._session, CherryPickRequest(commit, self.name, **options))

    @takes(RestoreOptions)
    def restore(
        self, type_name: str, ids: str | Sequence[str], at: At, **options: Unpack[RestoreOptions]
    ) -> RestoreReceipt:
        """Bring single entities of this branch back to an earlier state. See `Graph.restore`."""
        from omnigraph.engine.requests import RestoreRequest
        from omnigraph.engine.restore import restore_entities

        return restore_entities(self._session, RestoreRequest(type_name, ids, at, self.name, **options))

    @takes(WriteOptions)
    def transaction(self, **options: Unpack[WriteOptions]) -> Transaction:
        """Run several writes as one commit. If the block ends with an error, nothing is written.

        Args:
            message: the message of the commit.
            labels: the labels of the commit.
            expect_head: begin only if this commit is the branch head, and commit only if it still is.
            unchanged_since: commit only if the data that the transaction depends on is unchanged since this commit.
                This data is the rows that it touches, the matches of each condition of its queries, and the results of
                `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers at the end of the block; by default 60.
            idempotency_key: if a commit of the branch has this key, the block ends at its first write, and
                `commit` is that commit.
            options: the keyword arguments listed above.

        Example:
            >>> import omnigraph, tempfile
            >>> graph = omnigraph.init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }")
            >>> add = "query add($name: String) { insert Person { name: $name } }"
            >>> with graph.branch("main").transaction(message="two at once") as tx:
            ...     first = tx.mutate(add, {"name": "ann"})
            ...     second = tx.mutate(add, {"name": "bob"})
            >>> tx.commit.message
            'two at once'

        Raises:
            TransactionConflictError: at the end of the block: a concurrent commit changed the same rows, or both
                changes together break a constraint.
            PreconditionFailedError: the branch head is not the expected one.
        """
        from omnigraph.engine.requests import TransactionRequest
        from omnigraph.graph.transaction import Transaction

        return Transaction(self._session, TransactionRequest(branch=self.name, **options))
