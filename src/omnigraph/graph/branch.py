"""One branch of an open graph, as a handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, overload

import pyarrow as pa

from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.graph.collections import Commits
from omnigraph.graph.preconditions import ListedRead, unchanged
from omnigraph.graph.reading import QueryText
from omnigraph.graph.transaction import Transaction
from omnigraph.merge.choices import Resolutions, Strategy
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.blobs import Blob
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.export.files import ExportFormat, ExportReceipt, Target
from omnigraph.read.result.result import Result
from omnigraph.upkeep.vectors import EmbedProgress, EmbedReceipt, Which
from omnigraph.write.load import LoadMode, LoadProgress, LoadReceipt
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.sources import LoadSource
from omnigraph.write.table_mapping import MappingSource

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


class BranchHandle:
    """A branch of a graph: what is read and written through it is that branch's. Costs nothing to make.

    Attributes:
        name: the branch.
        commits: its history.
    """

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph = graph
        self.name = name
        self.commits = Commits(graph._store, name)

    @property
    def head(self) -> Commit:
        """The newest commit.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        return self.snapshot().commit

    def snapshot(self, *, version: int | None = None, at: datetime | None = None) -> Snapshot:
        """A view of the branch that never changes: the newest, or as `Graph.snapshot` chooses it."""
        return self._graph.snapshot(branch=self.name, version=version, at=at)

    def entity(self, type_name: str, entity_id: str) -> dict[str, object] | None:
        """One node or edge of the branch by id, or None."""
        return self._graph.entity(type_name, entity_id, at=self.snapshot())

    def blob(self, type_name: str, entity_id: str, property: str) -> Blob:
        """A blob of the newest state, to be read in ranges, as `Graph.blob` gives it."""
        return self._graph.blob(type_name, entity_id, property, branch=self.name)

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
        self, target: Target, *, format: ExportFormat | str = "ndjson", types: str | Sequence[str] | None = None
    ) -> ExportReceipt: ...

    def export(
        self,
        target: Target | None = None,
        *,
        format: ExportFormat | str = "ndjson",
        types: str | Sequence[str] | None = None,
    ) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
        """Export the newest state of the branch, as `Graph.export` does."""
        return self._graph.export(target, format=format, types=types, branch=self.name)  # type: ignore[arg-type]  # as given

    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        at: datetime | int | None = None,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run a query that reads, as `Graph.query` does: the newest state, or that of a time or a manifest version."""
        return self._graph.query(text, params, name=name, branch=self.name, at=at, budget=budget, cancel=cancel)

    async def async_query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        at: datetime | int | None = None,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run a query that reads, as `Graph.async_query` does."""
        return await self._graph.async_query(
            text, params, name=name, branch=self.name, at=at, budget=budget, cancel=cancel
        )

    def mutate(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a query that writes, as `Graph.mutate` does."""
        return self._graph.mutate(
            text,
            params,
            name=name,
            branch=self.name,
            expect_head=expect_head,
            unchanged_since=unchanged_since,
            reads=reads,
            timeout=timeout,
            idempotency_key=idempotency_key,
            message=message,
        )

    def embed(
        self,
        *,
        which: Which | str = Which.STALE,
        types: str | Sequence[str] = (),
        properties: str | Sequence[str] = (),
        expect_head: str | None = None,
        message: str | None = None,
        memory_budget: int | str | None = None,
        progress: Callable[[EmbedProgress], None] | None = None,
        cancel: Cancellation | None = None,
        check: bool = False,
    ) -> EmbedReceipt:
        """Bring the vectors of the branch up to date, as `Graph.embed` does."""
        return self._graph.embed(
            which=which,
            types=types,
            properties=properties,
            branch=self.name,
            expect_head=expect_head,
            message=message,
            memory_budget=memory_budget,
            progress=progress,
            cancel=cancel,
            check=check,
        )

    def load(
        self,
        source: LoadSource,
        *,
        mode: LoadMode | str,
        type_name: str | None = None,
        mapping: MappingSource | None = None,
        lenient: bool = False,
        base: str | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        embed: bool = True,
        memory_budget: int | str | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
        check: bool = False,
    ) -> LoadReceipt:
        """Load rows as one commit, as `Graph.load` does."""
        return self._graph.load(
            source,
            mode=mode,
            type_name=type_name,
            mapping=mapping,
            lenient=lenient,
            branch=self.name,
            base=base,
            expect_head=expect_head,
            unchanged_since=unchanged_since,
            reads=reads,
            timeout=timeout,
            idempotency_key=idempotency_key,
            message=message,
            embed=embed,
            memory_budget=memory_budget,
            progress=progress,
            check=check,
        )

    def merge(
        self,
        source: str,
        *,
        strategy: Strategy | str | None = None,
        resolutions: Resolutions | None = None,
        preview: bool = False,
        delete_branch: bool = False,
        message: str | None = None,
        labels: Mapping[str, str] | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        memory_budget: int | str | None = None,
    ) -> MergeReceipt:
        """Bring what another branch has done to this one, as `Graph.merge` does."""
        return self._graph.merge(
            source,
            self.name,
            strategy=strategy,
            resolutions=resolutions,
            preview=preview,
            delete_branch=delete_branch,
            message=message,
            labels=labels,
            expect_head=expect_head,
            unchanged_since=unchanged_since,
            reads=reads,
            timeout=timeout,
            idempotency_key=idempotency_key,
            memory_budget=memory_budget,
        )

    def transaction(
        self,
        *,
        message: str | None = None,
        labels: Mapping[str, str] | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> Transaction:
        """Several writes as one commit: all of them when the block ends, none when it ends with an error.

        Args:
            message: the commit's.
            labels: the commit's.
            expect_head: begin only if this commit is the branch head, and end only if it still is.
            unchanged_since: end only if nothing that the transaction depends on has changed since this commit: the
                rows that it touches, what each condition of its queries matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that the end of the block may wait for its turn; by default 60.
            idempotency_key: a transaction with a key that a commit of the branch carries is not repeated: its block
                ends at its first write, and its commit is the first one.

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
            TransactionConflictError: at the end of the block: others have changed the same rows since it began, or
                both together break a constraint.
            PreconditionFailedError: the branch head is not the expected one.
        """
        return Transaction(
            self._graph,
            self.name,
            message=message,
            labels=labels,
            expect_head=expect_head,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
            idempotency_key=idempotency_key,
        )
