"""The clients of a graph: blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import EllipsisType, TracebackType
from typing import Self

from omnigraph.client import members
from omnigraph.client.protocol import Backend, Settings
from omnigraph.client.verbs import Ask, Awaiting, Blocking, Members, Verb
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import QueryText, query_text
from omnigraph.engine.session import At
from omnigraph.read.budget import Cancellation
from omnigraph.read.result.result import Result


class Bound(Members):
    """The members of both clients that need no request."""

    def graph(self, graph_id: str) -> Self:
        """A client of another graph of the same server. It uses the same connections: closing one closes both."""
        return type(self)(self._backend.of_graph(graph_id), self._settings)

    def with_options(
        self, *, timeout: float | EllipsisType | None = ..., cancel: Cancellation | EllipsisType | None = ...
    ) -> Self:
        """The same client with other settings: `client.with_options(timeout=2).query(…)`.

        It uses the same connections. A setting that is left out stays.

        Args:
            timeout: seconds after which each call fails; None for no limit. A read raises `RequestTimeoutError`. A
                write that was sent raises `OutcomeUnknownError`.
            cancel: stops the calls from another thread.
        """
        settings = self._settings
        if timeout is not ...:
            settings = replace(settings, timeout=timeout)
        if cancel is not ...:
            settings = replace(settings, cancel=cancel)
        return type(self)(self._backend, settings)


class PreparedMembers(Members):
    """A query that is called several times. It is compiled with its first call, and kept by the graph."""

    def __init__(self, backend: Backend, settings: Settings, request: QueryRequest) -> None:
        super().__init__(backend, settings)
        self._request = request

    @Verb
    def call(self, params: Mapping[str, object] | None = None) -> Ask[Result]:
        """Run the query."""
        request = self._request
        return Ask(QueryRequest(request.text, params, request.name, request.branch, request.at))


class Prepared(PreparedMembers, Blocking):
    """`PreparedMembers` of a blocking client. Call it with the parameters."""

    def __call__(self, params: Mapping[str, object] | None = None) -> Result:
        return self.call(params)


class AsyncPrepared(PreparedMembers, Awaiting):
    """`PreparedMembers` of an asynchronous client. Call it with the parameters."""

    async def __call__(self, params: Mapping[str, object] | None = None) -> Result:
        return await self.call(params)


class Branches(members.BranchMembers, Blocking):
    """Branches of a blocking client."""


class AsyncBranches(members.BranchMembers, Awaiting):
    """Branches of an asynchronous client."""


class Commits(members.CommitMembers, Blocking):
    """Commits of a blocking client."""


class AsyncCommits(members.CommitMembers, Awaiting):
    """Commits of an asynchronous client."""


class Changes(members.ChangeMembers, Blocking):
    """The change feed of a blocking client."""


class AsyncChanges(members.ChangeMembers, Awaiting):
    """The change feed of an asynchronous client."""


class Schema(members.SchemaMembers, Blocking):
    """The schema of a blocking client."""


class AsyncSchema(members.SchemaMembers, Awaiting):
    """The schema of an asynchronous client."""


class Queries(members.QueryMembers, Blocking):
    """Stored queries of a blocking client."""


class AsyncQueries(members.QueryMembers, Awaiting):
    """Stored queries of an asynchronous client."""


class Graphs(members.ServerMembers, Blocking):
    """Graphs of a blocking client."""


class AsyncGraphs(members.ServerMembers, Awaiting):
    """Graphs of an asynchronous client."""


class Blobs(members.BlobMembers, Blocking):
    """Blobs of a blocking client."""


class AsyncBlobs(members.BlobMembers, Awaiting):
    """Blobs of an asynchronous client."""


class GraphClient(members.GraphMembers, Bound, Blocking):
    """A graph: on a server, or open in this process. Thread-safe, and a context manager.

    Attributes:
        branches: the branches of the graph.
        commits: its history.
        changes: its change feed.
        schema: its schema.
        queries: its stored queries.
        graphs: the graphs of the server.
        blobs: its blobs.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        super().__init__(backend, settings)
        self.branches = Branches(backend, settings)
        self.commits = Commits(backend, settings)
        self.changes = Changes(backend, settings)
        self.schema = Schema(backend, settings)
        self.queries = Queries(backend, settings)
        self.graphs = Graphs(backend, settings)
        self.blobs = Blobs(backend, settings)

    def prepare(
        self, text: QueryText, *, name: str | None = None, branch: str | None = None, at: At | None = None
    ) -> Prepared:
        """A query to call several times with different parameters. A file is read once."""
        request = QueryRequest(query_text(text), None, name, branch, at)
        return Prepared(self._backend, self._settings, request)

    def close(self) -> None:
        """Close the connections, or the graph."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncGraphClient(members.GraphMembers, Bound, Awaiting):
    """As `GraphClient`, for programs with asyncio: the same members, and each is awaited. A context manager."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        super().__init__(backend, settings)
        self.branches = AsyncBranches(backend, settings)
        self.commits = AsyncCommits(backend, settings)
        self.changes = AsyncChanges(backend, settings)
        self.schema = AsyncSchema(backend, settings)
        self.queries = AsyncQueries(backend, settings)
        self.graphs = AsyncGraphs(backend, settings)
        self.blobs = AsyncBlobs(backend, settings)

    def prepare(
        self, text: QueryText, *, name: str | None = None, branch: str | None = None, at: At | None = None
    ) -> AsyncPrepared:
        """A query to call several times with different parameters. A file is read once."""
        request = QueryRequest(query_text(text), None, name, branch, at)
        return AsyncPrepared(self._backend, self._settings, request)

    async def aclose(self) -> None:
        """Close the connections, or the graph."""
        self._backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
