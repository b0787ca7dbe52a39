"""The members of a graph client, written once for blocking and asynchronous clients."""

# See docs/decisions/0321-one-set-of-members-for-all-clients.md

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Unpack

from omnigraph.changes.commit_page import ChangePage
from omnigraph.changes.feed import FeedPage
from omnigraph.client import requests
from omnigraph.client.answers import BlobAnswer, GraphEntry, Health, SchemaApplied, SnapshotTables, StoredQueryEntry
from omnigraph.client.requests import Ndjson
from omnigraph.client.verbs import Ask, LazyVerb, Members, Verb
from omnigraph.commit.manifest import Commit
from omnigraph.engine.options import takes
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.request_options import (
    ChangeOptions,
    CommitChangesOptions,
    ExportOptions,
    LoadOptions,
    MergeOptions,
    MutateOptions,
    PollOptions,
    QueryOptions,
    SchemaApplyOptions,
)
from omnigraph.engine.requests import (
    BaselineRequest,
    CommitChangesRequest,
    ExportRequest,
    LoadRequest,
    MergeRequest,
    MutateRequest,
    PollRequest,
    QueryRequest,
    SchemaApplyRequest,
)
from omnigraph.engine.session import At
from omnigraph.errors import InputError
from omnigraph.graph.collections import CommitPage
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.result.result import Result
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.receipt import LoadReceipt


class GraphMembers(Members):
    """Health, snapshots, queries, writes and exports."""

    @Verb
    def health(self) -> Ask[Health]:
        """Whether the server answers, and its version."""
        return Ask(requests.HealthRequest())

    @Verb
    def snapshot(self, branch: str | None = None, *, at: str | None = None) -> Ask[SnapshotTables]:
        """The version of each table at the head of a branch, by default `main`, or at a commit or tag."""
        return Ask(requests.SnapshotRequest(branch, at))

    @Verb
    @takes(QueryOptions)
    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Ask[Result]:
        """Run a query that reads. `Graph.query` documents the arguments."""
        return Ask(QueryRequest(text, params, branch=branch, at=at, **options))

    @Verb
    @takes(MutateOptions)
    def mutate(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        if_graph_commit: str | None = None,
        **options: Unpack[MutateOptions],
    ) -> Ask[MutationReceipt]:
        """Run a query that writes, as one commit. `Graph.mutate` documents the other arguments.

        Args:
            text: one or more queries, or the path of a `.gq` file.
            params: the values of the parameters.
            branch: the branch, by default `main`.
            if_graph_commit: write only if this commit is the head of the branch. The same as `expect_head`.
            options: the keyword arguments of `Graph.mutate`.
        """
        if if_graph_commit is not None:
            options["expect_head"] = if_graph_commit
        return Ask(MutateRequest(text, params, branch=branch, **options))

    @Verb
    @takes(LoadOptions)
    def load(self, data: Ndjson, *, branch: str | None = None, **options: Unpack[LoadOptions]) -> Ask[LoadReceipt]:
        """Load rows as one commit. Values of a wrong type are converted where possible, unless `lenient=False`.

        Args:
            data: NDJSON, or the path of a file.
            branch: the branch, by default `main`.
            options: the keyword arguments of `Graph.load`; `mode` is required.
        """
        options.setdefault("lenient", True)
        return Ask(requests.LoadCall(data, LoadRequest(branch=branch, **options)))

    @Verb
    @takes(LoadOptions)
    def load_ndjson(
        self, data: Ndjson, *, branch: str | None = None, **options: Unpack[LoadOptions]
    ) -> Ask[LoadReceipt]:
        """Load rows as one commit. A value of a wrong type is an error."""
        return Ask(requests.LoadCall(data, LoadRequest(branch=branch, **options)))

    @LazyVerb
    @takes(ExportOptions)
    def export(
        self, *, branch: str | None = None, at: At | None = None, **options: Unpack[ExportOptions]
    ) -> Ask[bytes]:
        """The entities of a state as lines of NDJSON, each with its line break.

        The request is sent with the first step. An early end of the iteration stops the server. If the export
        fails, the iteration raises the error: discard the lines before it.
        """
        return Ask(ExportRequest(branch=branch, at=at, **options))

    @LazyVerb
    @takes(ExportOptions)
    def export_parts(
        self, *, branch: str | None = None, at: At | None = None, **options: Unpack[ExportOptions]
    ) -> Ask[bytes]:
        """The bytes of `export`, in parts of any size. This is faster, to copy them into a file."""
        return Ask(requests.ExportParts(ExportRequest(branch=branch, at=at, **options)))


class BranchMembers(Members):
    """The branches of a graph."""

    @Verb
    def list(self) -> Ask[tuple[str, ...]]:
        """The names of all branches, sorted."""
        return Ask(requests.BranchesRequest())

    @Verb
    def create(self, name: str, *, source: str | None = None, commit: str | None = None) -> Ask[str]:
        """Create a branch at the head of `source`, by default `main`, or at a commit. Returns its name."""
        return Ask(requests.CreateBranchRequest(name, source, commit))

    @Verb
    def delete(self, name: str) -> Ask[None]:
        """Delete a branch."""
        return Ask(requests.DeleteBranchRequest(name))

    @Verb
    @takes(MergeOptions)
    def merge(self, source: str, into: str = "main", **options: Unpack[MergeOptions]) -> Ask[MergeReceipt]:
        """Merge a branch into another, as one commit. `Graph.merge` documents the arguments."""
        return Ask(MergeRequest(source, into, **options))


class CommitMembers(Members):
    """The commits of a graph."""

    @Verb
    def list(
        self,
        *,
        branch: str | None = None,
        actor: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[CommitPage]:
        """A page of the commits of a branch, newest first. With `actor`, only commits of this actor."""
        return Ask(requests.CommitsRequest(branch, actor, limit, cursor))

    @Verb
    def retrieve(self, commit_id: str) -> Ask[Commit]:
        """A commit of any branch."""
        return Ask(requests.CommitRequest(commit_id))

    @Verb
    @takes(CommitChangesOptions)
    def changes(self, commit_id: str, **options: Unpack[CommitChangesOptions]) -> Ask[ChangePage]:
        """A page of the changes of a commit since its first parent. `Changes.of` documents the arguments."""
        return Ask(CommitChangesRequest(commit=commit_id, **options))


class ChangeMembers(Members):
    """The change feed of a graph."""

    @Verb
    @takes(PollOptions)
    def poll(self, *, branch: str | None = None, **options: Unpack[PollOptions]) -> Ask[FeedPage]:
        """A page of the change feed of a branch. `Changes.poll` documents the arguments."""
        return Ask(PollRequest(branch=branch, **options))

    @LazyVerb
    @takes(ChangeOptions)
    def baseline(self, *, branch: str | None = None, **options: Unpack[ChangeOptions]) -> Ask[bytes]:
        """The entities of the head of a branch as lines of NDJSON, and a last line with the cursor of the feed.

        The last line comes only after all entities have arrived. If it is missing, the iteration raises an error.
        """
        return Ask(requests.BaselineCall(BaselineRequest(branch=branch, **options)))


class SchemaMembers(Members):
    """The schema of a graph."""

    @Verb
    def get(self, *, branch: str | None = None, at: str | None = None) -> Ask[str]:
        """The source text of the schema of a branch, by default `main`, or of a commit or tag."""
        return Ask(requests.SchemaRequest(branch, at))

    @Verb
    @takes(SchemaApplyOptions)
    def apply(self, schema: str | os.PathLike[str], **options: Unpack[SchemaApplyOptions]) -> Ask[SchemaApplied]:
        """Change the schema of `main`, as one commit. `Schema.apply` documents the arguments."""
        return Ask(SchemaApplyRequest(schema, **options))


class QueryMembers(Members):
    """The stored queries of a graph. A graph that is open in this process has none."""

    @Verb
    def list(self) -> Ask[tuple[StoredQueryEntry, ...]]:
        """The stored queries, by name."""
        return Ask(requests.StoredQueriesRequest())

    @Verb
    @takes(QueryOptions)
    def invoke(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Ask[Result]:
        """Run a stored query that reads."""
        options["name"] = _stored_name(query, options.get("name"))
        return Ask(requests.InvokeRequest(QueryRequest("", params, branch=branch, at=at, **options)))

    @Verb
    @takes(MutateOptions)
    def invoke_mutation(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        if_graph_commit: str | None = None,
        **options: Unpack[MutateOptions],
    ) -> Ask[MutationReceipt]:
        """Run a stored query that writes. The arguments are those of `mutate`."""
        if if_graph_commit is not None:
            options["expect_head"] = if_graph_commit
        options["name"] = _stored_name(query, options.get("name"))
        return Ask(requests.InvokeRequest(MutateRequest("", params, branch=branch, **options)))


class ServerMembers(Members):
    """The graphs of a server. A graph that is open in this process is the only one."""

    @Verb
    def list(self) -> Ask[tuple[GraphEntry, ...]]:
        """The graphs, by id."""
        return Ask(requests.GraphsRequest())


class BlobMembers(Members):
    """The blobs of a graph."""

    @Verb
    def stat(
        self, type_name: str, entity_id: str, property: str, *, branch: str | None = None, snapshot: str | None = None
    ) -> Ask[BlobAnswer]:
        """The size and the entity tag of a blob, or the address of a reference.

        Args:
            type_name: `node:<Type>` or `edge:<Type>`; a name alone is that of a node type.
            entity_id: the entity.
            property: a Blob property.
            branch: the branch, by default `main`.
            snapshot: the id of a commit.
        """
        return Ask(requests.BlobRequest(type_name, entity_id, property, branch, snapshot))

    @Verb
    def get(
        self,
        type_name: str,
        entity_id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        start: int = 0,
        end: int | None = None,
    ) -> Ask[BlobAnswer]:
        """The bytes of a blob, or of its range from `start` to `end`. A reference is an answer without bytes."""
        return Ask(requests.BlobRequest(type_name, entity_id, property, branch, snapshot, start, end, with_data=True))


def _stored_name(query: str, name: str | None) -> str:
    """The name of a stored query. Its file has one query, so no other name chooses one of several.

    Raises:
        InputError: another name is given, too.
    """
    if name is not None:
        raise InputError("a stored query has one name", hint="leave name out")
    return query
