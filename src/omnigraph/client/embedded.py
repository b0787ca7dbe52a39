"""A graph that is open in this process: each request of the client runs in the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields, replace
from functools import singledispatchmethod
from importlib.metadata import version
from typing import Any, TypeVar, cast

from omnigraph.client import answers, requests
from omnigraph.client.call_threads import CallThreads
from omnigraph.client.protocol import Settings
from omnigraph.commit.alarms import ALARMS
from omnigraph.commit.manifest import MAIN
from omnigraph.engine.blob import blob
from omnigraph.engine.branches import create_branch, delete_branch, list_branches
from omnigraph.engine.changes import baseline, commit_changes, poll
from omnigraph.engine.export import export
from omnigraph.engine.load import load
from omnigraph.engine.merge import merge
from omnigraph.engine.mutate import mutate
from omnigraph.engine.query import query
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.requests import (
    CommitChangesRequest,
    ExportRequest,
    MergeRequest,
    MutateRequest,
    PollRequest,
    SchemaApplyRequest,
)
from omnigraph.engine.schema import apply_schema, schema_source
from omnigraph.engine.session import Session
from omnigraph.errors import CancelledError, ConfigurationError, InputError, NotFoundError, RequestTimeoutError
from omnigraph.graph.collections import Commits
from omnigraph.read.budget import Cancellation

T = TypeVar("T")


class Embedded:
    """The requests of a client to a graph that is open in this process.

    Args:
        session: the graph.
        threads: run the calls of asynchronous clients.
    """

    def __init__(self, session: Session, threads: CallThreads) -> None:
        self._session = session
        self._threads = threads
        self._closed = False

    @property
    def threads(self) -> CallThreads:
        return self._threads

    def of_graph(self, graph_id: str) -> Embedded:
        raise ConfigurationError(
            f"there is no graph '{graph_id}': the client has opened one graph in this process",
            hint="connect to a server, or open the other graph with connect()",
        )

    def close(self) -> None:
        self._closed = True
        self._threads.close()
        self._session.close()

    def answer(self, request: Any, settings: Settings) -> Any:
        self._check_open()
        with requests.of_valid_text():
            return _limited(request, settings, lambda limited: self._answer(limited))

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigurationError("the client is closed", hint="connect again")

    def stream(self, request: Any, settings: Settings) -> Generator[bytes, None, None]:
        self._check_open()
        deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
        if isinstance(request, requests.BaselineCall):
            lines: Iterator[bytes] = baseline(self._session, request.request).lines()
        else:
            given = request.request if isinstance(request, requests.ExportParts) else request
            assert isinstance(given, ExportRequest)
            given = given if settings.cancel is None else replace(given, cancel=settings.cancel)
            lines = cast("Iterator[bytes]", export(self._session, given))
        for part in lines:
            if settings.cancel is not None and settings.cancel.cancelled:
                raise CancelledError("the call was cancelled")
            if deadline is not None and time.monotonic() > deadline:
                raise RequestTimeoutError("the work did not end in time", hint="give a longer timeout")
            if isinstance(request, requests.ExportParts):
                yield part
            else:
                yield from part.splitlines(keepends=True)

    @singledispatchmethod
    def _answer(self, request: Any) -> Any:
        raise AssertionError(f"no verb for {type(request).__name__}")

    @_answer.register
    def _(self, request: requests.HealthRequest) -> answers.Health:
        return answers.Health("ok", version("omnigraph"), self._session.format)

    @_answer.register
    def _(self, request: requests.GraphsRequest) -> tuple[answers.GraphEntry, ...]:
        return (answers.GraphEntry("default", self._session.uri),)

    @_answer.register
    def _(self, request: requests.SnapshotRequest) -> answers.SnapshotTables:
        view = self._session.readable(request.branch, request.at)
        return answers.snapshot(view.to_json(self._session.format))

    @_answer.register
    def _(self, request: QueryRequest) -> Any:
        return query(self._session, request)

    @_answer.register
    def _(self, request: MutateRequest) -> Any:
        return mutate(self._session, request)

    @_answer.register
    def _(self, request: requests.LoadCall) -> Any:
        return load(self._session, request.lines(), request.load)

    @_answer.register
    def _(self, request: requests.BranchesRequest) -> tuple[str, ...]:
        return tuple(sorted(branch.name for branch in list_branches(self._session)))

    @_answer.register
    def _(self, request: requests.CreateBranchRequest) -> str:
        if request.source is not None and request.commit is not None:
            raise InputError("give source or commit, not both: a branch starts at the head of a branch or at a commit")
        if request.commit is None:
            return create_branch(self._session, request.name, source=request.source or MAIN).name
        return create_branch(self._session, request.name, commit=request.commit).name

    @_answer.register
    def _(self, request: requests.DeleteBranchRequest) -> None:
        delete_branch(self._session, request.name)

    @_answer.register
    def _(self, request: MergeRequest) -> Any:
        return merge(self._session, request)

    @_answer.register
    def _(self, request: requests.CommitsRequest) -> Any:
        branch = self._session.branch_or_default(request.branch)
        commits = Commits(self._session, branch)
        return commits.list(branch=branch, actor=request.actor, limit=request.limit, cursor=request.cursor)

    @_answer.register
    def _(self, request: requests.CommitRequest) -> Any:
        return Commits(self._session, self._session.default_branch).get(request.commit_id)

    @_answer.register
    def _(self, request: CommitChangesRequest) -> Any:
        return commit_changes(self._session, request)

    @_answer.register
    def _(self, request: PollRequest) -> Any:
        return poll(self._session, request)

    @_answer.register
    def _(self, request: requests.SchemaRequest) -> str:
        branch = MAIN if request.branch is None and request.at is None else request.branch
        return schema_source(self._session, branch, request.at)

    @_answer.register
    def _(self, request: SchemaApplyRequest) -> answers.SchemaApplied:
        receipt = apply_schema(self._session, request)
        return answers.schema_applied(receipt.to_json() | {"lines": receipt.lines(), "warnings": receipt.warnings})

    @_answer.register
    def _(self, request: requests.StoredQueriesRequest) -> tuple[answers.StoredQueryEntry, ...]:
        return ()

    @_answer.register
    def _(self, request: requests.InvokeRequest) -> Any:
        raise NotFoundError(
            f"there is no stored query '{request.call.name}'", hint="stored queries belong to a server: run the text"
        )

    @_answer.register
    def _(self, request: requests.BlobRequest) -> answers.BlobAnswer:
        if request.branch is not None and request.snapshot is not None:
            raise InputError("give branch or snapshot, not both: a snapshot already belongs to a branch")
        kind, _, name = request.type_name.rpartition(":")
        key, at = f"{kind or 'node'}:{name}", request.snapshot
        found = blob(self._session, key, request.entity_id, request.property, request.branch, at)
        if found.uri is not None:
            return answers.BlobAnswer(None, None, found.uri, found.snapshot_id, found.commit_id)
        data = b"".join(found.iter(request.start, request.end)) if request.with_data else None
        return answers.BlobAnswer(found.size, found.etag, None, found.snapshot_id, found.commit_id, data)


def _limited(request: Any, settings: Settings, work: Callable[[Any], T]) -> T:
    """Run a request with the cancellation and the timeout of its call, as far as its verb can be stopped.

    Raises:
        RequestTimeoutError: the time is over.
    """
    names = {field.name for field in fields(request)}
    if settings.cancel is not None and settings.cancel.cancelled:
        raise CancelledError("the call was cancelled")
    if "timeout" in names and request.timeout is None and settings.timeout is not None:
        request = replace(request, timeout=settings.timeout)
    if isinstance(request, requests.LoadCall):
        return _limited(request.load, settings, lambda load: work(replace(request, load=load)))
    if "cancel" not in names:
        return work(request)
    cancel = request.cancel or settings.cancel or (None if settings.timeout is None else Cancellation())
    if settings.timeout is None or cancel is None:
        return work(request if cancel is request.cancel else replace(request, cancel=cancel))
    late = Cancellation()
    with cancel.calling(late.cancel):
        ALARMS.set(late.cancel, settings.timeout)
        try:
            return work(replace(request, cancel=late))
        except CancelledError as error:
            if cancel.cancelled:
                raise
            raise RequestTimeoutError("the work did not end in time", hint="give a longer timeout") from error
        finally:
            ALARMS.cancel(late.cancel)
