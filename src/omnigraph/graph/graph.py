"""The handle of an open graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, overload

import pyarrow as pa

from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.retention import ORPHANS_OLDER_THAN
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine import opening
from omnigraph.engine.access import AccessPolicy, Action
from omnigraph.engine.options import takes
from omnigraph.engine.prepared_query import PreparedQuery
from omnigraph.engine.query import async_query, explain, query
from omnigraph.engine.query_requests import ExplainRequest, QueryRequest
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.request_options import (
    DiffOptions,
    EmbedOptions,
    ExplainOptions,
    ExportOptions,
    HistoryOptions,
    LoadOptions,
    MergeOptions,
    MutateOptions,
    OptimizeOptions,
    PickOptions,
    QueryOptions,
    RestoreOptions,
)
from omnigraph.engine.session import At, Session
from omnigraph.errors import InputError

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import HeteroData

    from omnigraph.changes.diff import Diff
    from omnigraph.commit.write_request import Prepare, WriteRequest
    from omnigraph.embed import Embedder
    from omnigraph.engine.maintenance import UpkeepReport
    from omnigraph.engine.row_scope import RowRules
    from omnigraph.graph.branch import BranchHandle
    from omnigraph.graph.changes import Changes
    from omnigraph.graph.collections import Branches, Commits, Recovery, Tags
    from omnigraph.graph.pipelines import Pipeline
    from omnigraph.graph.schema import Schema
    from omnigraph.history.entity import BlamedValue, EntityLog
    from omnigraph.lang.schema import AcceptedSchema, Catalog
    from omnigraph.merge.pick_receipt import PickReceipt
    from omnigraph.merge.receipt import MergeReceipt
    from omnigraph.merge.restore_receipt import RestoreReceipt
    from omnigraph.read.blobs import Blob
    from omnigraph.read.export.files import ExportFormat, ExportReceipt, Target
    from omnigraph.read.plan.explanation import Explanation
    from omnigraph.read.result.arrays import GraphArrays
    from omnigraph.read.result.picture import Picture
    from omnigraph.read.result.result import Result
    from omnigraph.upkeep.backup import CopyReceipt
    from omnigraph.upkeep.cleanup import CleanupReport
    from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt
    from omnigraph.upkeep.optimize import OptimizeReceipt
    from omnigraph.upkeep.repair import RepairReport
    from omnigraph.upkeep.status import GraphStatus, Thresholds
    from omnigraph.upkeep.vectors import EmbedReceipt
    from omnigraph.write.input.sources import LoadSource
    from omnigraph.write.mutation import MutationReceipt
    from omnigraph.write.receipt import LoadReceipt
    from omnigraph.write.rules.verify import IntegrityReport


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
    blob_sources: Sequence[str] = (),
    policy: AccessPolicy | str | os.PathLike[str] | None = None,
) -> Graph:
    """Create a graph and open it.

    Args:
        uri: the location: a directory, or `s3://bucket/prefix`.
        schema: the schema's source text, or the path of a `.pg` file.
        force: replace schema files of an earlier, failed creation. Never changes an existing graph.
        actor: the recorded author of commits through this handle.
        storage_options: options of the object store, such as credentials and endpoint.
        embedder: computes vectors from texts; by default from the environment, else the offline model.
        blob_sources: the allowed locations of external blobs, `s3://bucket/prefix/` or `file:///directory/`; by default
            none.
        policy: the policy that all verbs of the handle obey, as for `open`.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> with init(directory + "/people", "node Person { name: String @key }") as graph:
        ...     [branch.name for branch in graph.branches]
        ['main']

    Raises:
        CompileError: the schema does not compile.
        AlreadyInitializedError: there is already a graph at this location.
    """
    session = opening.create_session(
        uri,
        schema,
        force=force,
        actor=actor,
        storage_options=storage_options,
        embedder=embedder,
        blob_sources=blob_sources,
        policy=_policy(policy),
    )
    return Graph(session)


def open(
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    read_only: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
    blob_sources: Sequence[str] = (),
    policy: AccessPolicy | str | os.PathLike[str] | None = None,
) -> Graph:
    """Open a graph.

    Opening for writing first runs recovery of interrupted writes. Opening read-only changes nothing.

    Args:
        uri: the location of the graph.
        branch: the default branch of reads and writes.
        read_only: refuse all writes through this handle.
        actor: the recorded author of commits through this handle.
        storage_options: options of the object store, such as credentials and endpoint.
        embedder: computes vectors from texts; by default from the environment, else the offline model.
        blob_sources: the allowed locations of external blobs, `s3://bucket/prefix/` or `file:///directory/`; by default
            none.
        policy: the policy that all verbs of the handle obey: the path of a bundle, or an `omnigraph.Policy`. The actor
            is the one that its rules name; without an actor, everything is denied. By default, everything is allowed.

    Raises:
        PolicyError: the policy is not valid, or does not fit the schema.
        NotFoundError: there is no graph, or a schema file is missing.
        BranchNotFoundError: there is no such branch.
        FormatError: this release does not read the format of the graph.
        IncompleteCopyError: a backup or a restore to this location was interrupted.
    """
    session = opening.open_session(
        uri,
        branch=branch,
        read_only=read_only,
        actor=actor,
        storage_options=storage_options,
        embedder=embedder,
        blob_sources=blob_sources,
        policy=_policy(policy),
    )
    return Graph(session)


def _policy(given: AccessPolicy | str | os.PathLike[str] | None) -> AccessPolicy | None:
    """The policy of a handle. Reads the bundle if a path is given.

    Raises:
        InputError: the policy has a wrong type.
    """
    if isinstance(given, str | os.PathLike):
        # Imported by name, because policies are in a higher layer.
        return cast("AccessPolicy", import_module("omnigraph.policy").Policy.read(given))
    if given is not None and (isinstance(given, type) or not isinstance(given, AccessPolicy)):
        raise InputError(
            f"policy: a value of type {type(given).__name__} is not a policy",
            hint="give the path of a policy file, or an omnigraph.Policy; omnigraph.Policy.read makes one from a dict",
        )
    return given


class Graph:
    """A handle of an open graph. It is thread-safe, and a context manager.

    Args:
        session: the engine session.

    Attributes:
        session: the engine session: store, schemas, caches. For code that does not use the handles.
        branches: the branches of the graph.
        commits: the history of the graph.
        tags: the tags of the graph.
        recovery: interrupted writes, pending and recovered.
        schema: the schema of the graph: its text, plans and changes.
        changes: the changes of commits, and the change feed.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def branches(self) -> Branches:
        from omnigraph.graph.collections import Branches

        return Branches(self.session)

    @cached_property
    def commits(self) -> Commits:
        from omnigraph.graph.collections import Commits

        return Commits(self.session, self.session.default_branch)

    @cached_property
    def tags(self) -> Tags:
        from omnigraph.graph.collections import Tags

        return Tags(self.session)

    @cached_property
    def recovery(self) -> Recovery:
        from omnigraph.graph.collections import Recovery

        return Recovery(self.session)

    @cached_property
    def schema(self) -> Schema:
        from omnigraph.graph.schema import Schema

        return Schema(self.session)

    @cached_property
    def changes(self) -> Changes:
        from omnigraph.graph.changes import Changes

        return Changes(self.session)

    @property
    def uri(self) -> str:
        return self.session.uri

    @property
    def default_branch(self) -> str:
        """The default branch of reads and writes."""
        return self.session.default_branch

    @property
    def read_only(self) -> bool:
        """Whether the handle refuses writes."""
        return self.session.read_only

    @property
    def actor(self) -> str | None:
        """The recorded author of commits through this handle."""
        return self.session.actor

    @property
    def embedder(self) -> Embedder:
        """Computes vectors from texts: the given embedder, or the embedder that the environment configures.

        Raises:
            EmbeddingError: the configured embedder is not available.
        """
        return self.session.embedder

    @property
    def catalog(self) -> Catalog:
        """The types of the accepted schema."""
        return self.accepted_schema.catalog

    @property
    def accepted_schema(self) -> AcceptedSchema:
        """The accepted schema with its stable identities."""
        from omnigraph.engine.schema import known_schema

        return known_schema(self.session)[1]

    @property
    def schema_source(self) -> str:
        """The source text of the accepted schema."""
        from omnigraph.engine.schema import known_schema

        return known_schema(self.session)[0]

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> Snapshot:
        """A fixed view of the graph at one commit.

        Args:
            branch: read the newest state of this branch; by default the handle's branch.
            commit: read this commit. A tag name works, too.
            version: read this manifest version of the branch.
            at: read the branch at this time, a datetime or a text: `2026-03-14T09:30:00Z`. The default time zone is
                UTC.

        Raises:
            NotFoundError: there is no such commit or branch, or the branch has no commit that early.
            VersionReclaimedError: cleanup has removed the state.
        """
        return self.session.whole_snapshot(branch=branch, commit=commit, version=version, at=at)

    def entity(self, type_name: str, entity_id: str, *, at: At | None = None) -> dict[str, object] | None:
        """One node or edge by id, or None.

        Args:
            type_name: a node type or edge type. If both have this name: `node:<Type>` or `edge:<Type>`.
            entity_id: the id.
            at: a snapshot, a commit id or a tag; by default the newest state of the handle's branch.
        """
        from omnigraph.engine.blob import entity

        return entity(self.session, type_name, entity_id, at=at)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property: str,
        *,
        branch: str | None = None,
        at: At | None = None,
    ) -> Blob:
        """A blob. It can be read in ranges.

        Args:
            type_name: a node type or edge type. If both have this name: `node:<Type>` or `edge:<Type>`.
            entity_id: the entity.
            property: a Blob property.
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Ship { name: String @key  photo: Blob? }") as graph:
            ...     rows = pyarrow.table({"name": ["argo"], "photo": [b"a picture"]})
            ...     _ = graph.load({"Ship": rows}, mode="append")
            ...     photo = graph.blob("Ship", "argo", "photo")
            ...     photo.size, photo.read(2, 9)
            (9, b'picture')

        Raises:
            NotFoundError: there is no such type or entity, or the property is null.
            InputError: the property is not a Blob.
        """
        from omnigraph.engine.blob import blob

        return blob(self.session, type_name, entity_id, property, branch, at)

    @takes(HistoryOptions)
    def log(self, type_name: str, entity_id: str, **options: Unpack[HistoryOptions]) -> EntityLog:
        """All changes of one entity, newest first: each commit that inserted, updated or deleted it, with the values.

        Reads only the commits that changed the entity. Commits that cleanup has removed are reported as not kept.

        Args:
            type_name: a node type or edge type. If both have this name: `node:<Type>` or `edge:<Type>`.
            entity_id: the entity.
            branch: the changes that lead to this branch; by default the handle's branch.
            at: the changes that lead to another state: a snapshot, commit id or tag; or a time or manifest version of
                the branch.
            follow: for a change that a merge brought, also list the commits of the merged branch. On by default.
            options: the keyword arguments `branch`, `at` and `follow`.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I32? }") as graph:
            ...     _ = graph.mutate('query q() { insert Person { name: "ann", age: 30 } }')
            ...     _ = graph.mutate('query q() { update Person set { age: 31 } where name = "ann" }')
            ...     [(change.operation.value, change.properties) for change in graph.log("Person", "ann")]
            [('update', ('age',)), ('insert', ('id', 'age', 'name'))]

        Raises:
            NotFoundError: there is no such type or state, or the entity never existed.
            VersionReclaimedError: cleanup has removed the state.
        """
        from omnigraph.engine.history import log
        from omnigraph.engine.requests import LogRequest

        return log(self.session, LogRequest(type_name, entity_id, **options))

    @takes(HistoryOptions)
    def blame(
        self, type_name: str, entity_id: str, property: str | None = None, **options: Unpack[HistoryOptions]
    ) -> tuple[BlamedValue, ...]:
        """The commit and the actor that set each value of an entity.

        Args:
            type_name: a node type or edge type. If both have this name: `node:<Type>` or `edge:<Type>`.
            entity_id: the entity.
            property: only this property; by default all.
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.
            follow: for a value that a merge brought, name the commit of the merged branch. On by default.
            options: the keyword arguments `branch`, `at` and `follow`.

        Example:
            >>> import tempfile
            >>> schema = "node Person { name: String @key  age: I32? }"
            >>> with init(tempfile.mkdtemp() + "/g", schema, actor="kim") as graph:
            ...     _ = graph.mutate('query q() { insert Person { name: "ann", age: 30 } }')
            ...     [(value.property, value.value, value.actor) for value in graph.blame("Person", "ann", "age")]
            [('age', 30, 'kim')]

        Raises:
            NotFoundError: there is no such type, entity or state.
            InputError: the type has no such property.
            VersionReclaimedError: cleanup has removed the state.
        """
        from omnigraph.engine.history import blame
        from omnigraph.engine.requests import BlameRequest

        return blame(self.session, BlameRequest(type_name, entity_id, property, **options))

    @overload
    def export(
        self,
        target: None = None,
        *,
        format: Literal["ndjson"] = "ndjson",
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
    ) -> Iterator[bytes]: ...

    @overload
    def export(
        self,
        target: None = None,
        *,
        format: Literal["arrow"],
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
    ) -> Iterator[tuple[str, pa.RecordBatch]]: ...

    @overload
    def export(
        self,
        target: Target,
        *,
        format: ExportFormat | str = "ndjson",
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[ExportOptions],
    ) -> ExportReceipt: ...

    @takes(ExportOptions)
    def export(
        self,
        target: Target | None = None,
        *,
        format: ExportFormat | str = "ndjson",
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[ExportOptions],
    ) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
        """Export one snapshot. Equal content gives equal bytes, independent of the history.

        Args:
            target: for NDJSON, a path or a binary file object; for Parquet and Arrow, a new directory, which gets one
                file per type. A path may be `s3://bucket/path`; it uses the storage options of the handle. Without a
                target, the result is an iterator: over chunks of NDJSON, or over pairs of type key and Arrow batch.
            format: `ndjson`, `csv`, `parquet` or `arrow`. `load` reads all of them.
            types: one type name or several; by default all types. A name of both a node type and an edge type
                selects both.
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.
            engine: with a target: `local`, `spark`, or `auto`, which chooses Spark for large tables.
            spark: the settings of Spark jobs.
            cancel: cancels the Spark jobs from another thread.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments `types`, `engine`, `spark`, `cancel` and `chosen`.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I32? }") as graph:
            ...     _ = graph.load({"Person": pyarrow.table({"name": ["bob", "ann"]})}, mode="append")
            ...     b"".join(graph.export()).decode().splitlines()[0]
            '{"type":"Person","data":{"id":"ann","age":null,"name":"ann"}}'

        Raises:
            InputError: there is no such type, or the target cannot be written.
            NotFoundError: there is no such commit.
            StorageError: a bucket cannot be written to.
        """
        from omnigraph.engine.export import export
        from omnigraph.engine.requests import ExportRequest

        return export(self.session, ExportRequest(target, format, branch=branch, at=at, **options))

    def to_networkx(
        self, types: str | Sequence[str] | None = None, *, branch: str | None = None, at: At | None = None
    ) -> networkx.MultiDiGraph[Any]:
        """The nodes and edges of a state as a networkx graph, without blobs. It has to fit in memory.

        A node is the tuple `(type, id)`, the key of an edge is `(type, id)`, too, and their attributes are the
        properties. `Result.to_networkx` converts the part of a graph that a query returns.

        Args:
            types: one type name or several; by default all. The node types of named edge types are included.
            branch: the newest state of this branch; by default the handle's branch.
            at: another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Raises:
            InputError: there is no such type, or networkx is not installed.
            NotFoundError: there is no such state.
        """
        from omnigraph.engine.networks import network_rows
        from omnigraph.read.result.result import wanted

        wanted("networkx")
        from omnigraph.read.result.networkx_graph import whole_networkx_graph

        rows = network_rows(self.session, types, branch, at)
        return whole_networkx_graph(rows, rows.catalog)

    def to_numpy(
        self, types: str | Sequence[str] | None = None, *, branch: str | None = None, at: At | None = None
    ) -> GraphArrays:
        """The nodes and edges of a state as numpy arrays, without blobs. It has to fit in memory.

        Args:
            types: one type name or several; by default all. The node types of named edge types are included.
            branch: the newest state of this branch; by default the handle's branch.
            at: another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import tempfile
            >>> schema = "node Person { name: String @key  age: I32 }  edge Knows: Person -> Person"
            >>> with init(tempfile.mkdtemp() + "/g", schema) as graph:
            ...     add = 'insert Person { name: "ann", age: 41 } insert Person { name: "bob", age: 27 }'
            ...     _ = graph.mutate("query q() { " + add + ' insert Knows { from: "bob", to: "ann" } }')
            ...     arrays = graph.to_numpy()
            >>> arrays.nodes["Person"]["age"].tolist()
            [41, 27]
            >>> arrays.edges["Person", "Knows", "Person"]["edge_index"].tolist()
            [[1], [0]]

        Raises:
            InputError: there is no such type.
            NotFoundError: there is no such state.
        """
        from omnigraph.engine.networks import network_rows
        from omnigraph.read.result.arrays import graph_arrays

        rows = network_rows(self.session, types, branch, at)
        return graph_arrays(rows, rows.catalog)

    def to_pyg(
        self, types: str | Sequence[str] | None = None, *, branch: str | None = None, at: At | None = None
    ) -> HeteroData:
        """The nodes and edges of a state as `HeteroData` of PyTorch Geometric: `to_numpy` with tensors.

        Raises:
            InputError: there is no such type, or torch_geometric is not installed.
            NotFoundError: there is no such state.
        """
        return self.to_numpy(types, branch=branch, at=at).to_pyg()

    def draw(
        self,
        types: str | Sequence[str] | None = None,
        *,
        limit: int = 60,
        branch: str | None = None,
        at: At | None = None,
    ) -> Picture:
        """A picture of some nodes and the edges between them, as SVG. A notebook displays it.

        Args:
            types: one type name or several; by default all. The node types of named edge types are included.
            limit: the maximum number of nodes. `Result.draw` draws the nodes of a query.
            branch: the newest state of this branch; by default the handle's branch.
            at: another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Raises:
            InputError: there is no such type, or the limit is not from 1 to 500.
            NotFoundError: there is no such state.
        """
        from omnigraph.engine.networks import network_rows
        from omnigraph.read.result.drawing import check_limit, draw

        check_limit(limit)
        return draw(network_rows(self.session, types, branch, at).sample(limit))

    @contextmanager
    def pin(self, *, branch: str | None = None, at: At | None = None) -> Iterator[Snapshot]:
        """A snapshot that cleanup does not remove while the block runs.

        Exports, merges and loads pin their snapshots themselves. A query pins its snapshot after some seconds. Use this
        for other long reads: several queries on one state, or Spark jobs.

        Args:
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     with graph.pin() as before:
            ...         _ = graph.load({"Person": pyarrow.table({"name": ["ann"]})}, mode="append")
            ...         _ = graph.cleanup(keep=1)
            ...         len(before.scan("node:Person"))
            0

        Raises:
            NotFoundError: there is no such commit or branch, or the branch has no commit that early.
            VersionReclaimedError: cleanup has removed the state.
            StorageError: the work record of the pin cannot be written.
        """
        view = self.session.readable(branch, at)
        self.session.require_all_rows(Action.READ, view.manifest)
        from omnigraph.commit.work_records import WorkKind, at_work

        with at_work(self.session.store.leases, WorkKind.PIN, view.manifest):
            yield view

    @takes(QueryOptions)
    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a query that reads, on one snapshot.

        Args:
            text: one query, or several queries of which `name` selects one; or the path of a `.gq` file.
            params: the parameters by name, without `$`.
            name: the name of the query in the text.
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.
            budget: the limits of time, memory and rows.
            cancel: cancels the query from another thread.
            options: the keyword arguments `name`, `budget` and `cancel`.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I32? }") as graph:
            ...     people = pyarrow.table({"name": ["ann", "bob", "cid"], "age": [41, 27, None]})
            ...     _ = graph.load({"Person": people}, mode="append")
            ...     older = "query older($than: I32) { match { $p: Person  $p.age > $than } return { $p.name } }"
            ...     graph.query(older, {"than": 30}).to_pylist()
            [{'p.name': 'ann'}]

        Raises:
            CompileError: the query does not compile.
            InputError: the query writes.
            ParameterError: a parameter is missing or has the wrong type.
            NotFoundError: there is no such branch or commit.
            BudgetExceededError: the query exceeds its budget.
            CancelledError: the query was cancelled.
        """
        return query(self.session, QueryRequest(text, params, branch=branch, at=at, **options))

    def prepare(
        self, text: QueryText, *, name: str | None = None, branch: str | None = None, at: At | None = None
    ) -> PreparedQuery:
        """Compile a query once, to call it many times. See `PreparedQuery`.

        Args:
            text: one or more queries, or the path of a `.gq` file. The file is read once.
            name: the query to run, if the text has several.
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I32? }") as graph:
            ...     _ = graph.mutate('query add() { insert Person { name: "Ada", age: 36 } }')
            ...     age = graph.prepare("query age($n: String) { match { $p: Person { name: $n } } return { $p.age } }")
            ...     age({"n": "Ada"}).to_pylist()
            [{'p.age': 36}]

        Raises:
            CompileError: the query does not compile.
            InputError: the query writes.
            NotFoundError: there is no such state or query.
        """
        return PreparedQuery(self.session, QueryRequest(text, name=name, branch=branch, at=at))

    @takes(QueryOptions)
    async def async_query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run `query` in a separate thread. Cancelling the task cancels the query."""
        return await async_query(self.session, QueryRequest(text, params, branch=branch, at=at, **options))

    @takes(ExplainOptions)
    def explain(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[ExplainOptions],
    ) -> Explanation:
        """Explain a query: its IR, the steps of the physical plan, and the estimated number of rows after each step.

        Planning counts the nodes that satisfy the conditions on each single variable, because the join order depends on
        these counts. With `analyze`, the query also runs, and the output has the actual rows, time and memory of each
        step. The other arguments are those of `query`.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     print(graph.explain("query all() { match { $p: Person } return { $p.name } }"))
            read all()
              match
                node $p: Person
              return
                p.name: String = $p.name
              ties $p.id
            <BLANKLINE>
            step             estimate  rows
            scan $p: Person         0
            sort by $p.id           0
            project p.name          0

        Raises:
            CompileError: the query does not compile.
            InputError: the query writes.
            ParameterError: a parameter is missing or has the wrong type.
        """
        return explain(self.session, ExplainRequest(text, params, branch=branch, at=at, **options))

    def branch(self, name: str | None = None) -> BranchHandle:
        """A handle of one branch. All its reads and writes apply to that branch.

        Args:
            name: the branch; by default the handle's branch.

        Raises:
            InputError: the name is not a valid branch name.
        """
        from omnigraph.graph.branch import BranchHandle

        return BranchHandle(self.session, self.session.branch_or_default(name))

    def restricted(self, rules: RowRules, change: RowRules | None = None) -> Graph:
        """A handle that sees only a part of the graph, as if the hidden rows, types and properties did not exist.

        It shares the storage and the settings of this handle. Work that needs the whole graph is refused.

        Args:
            rules: the visible rows and properties. The actor of the rules is the recorded author of commits.
            change: the rows and properties that may be changed; by default, all that are visible.

        Example:
            >>> import omnigraph, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Task { name: String @key  owner: String? }") as graph:
            ...     _ = graph.mutate('query q() { insert Task { name: "a", owner: "kim" }  insert Task { name: "b" } }')
            ...     kim = graph.restricted(omnigraph.RowRules({"node:Task": "$.owner = $actor"}, actor="kim"))
            ...     kim.query("query q() { match { $t: Task } return { $t.name } }").to_pylist()
            [{'t.name': 'a'}]

        Raises:
            AccessDeniedError: this handle is restricted already.
            InputError: a rule names a type or property that the graph does not have.
        """
        session = self.session
        session.require_whole("another restriction")
        reference = session.schemas.of(session.store.capture(MAIN))
        former = session.former_schemas
        change_of = None if change is None else change.scope_of(reference, former)
        return Graph(session.restricted(rules.scope_of(reference, former), change_of, actor=rules.actor))

    def refresh(self) -> Snapshot:
        """Read the newest state. A writable handle also runs recovery of interrupted writes."""
        self.session.allow(Action.READ, self.default_branch)
        view = self.session.refresh()
        return self.session.whole_snapshot(branch=view.branch)

    @takes(LoadOptions)
    def load(self, source: LoadSource, *, branch: str | None = None, **options: Unpack[LoadOptions]) -> LoadReceipt:
        """Load rows as one commit. All rows are checked first. If one record is invalid, nothing is written.

        Args:
            source: one or several NDJSON, CSV, Parquet or Arrow files, a directory or a glob pattern; a mapping of
                type names to Arrow-compatible tables, lists of mappings or files; a list of records; or a stream of
                NDJSON.
            mode: `append` (all ids must be new), `merge` (an upsert) or `overwrite` (replaces all rows of the types).
            branch: the target; by default the handle's branch.
            type_name: the type of a table, or of a CSV, Parquet or Arrow file whose name does not contain it.
            mapping: a YAML or JSON file, or its content, that maps columns with other names to properties.
            format: `ndjson`, `csv`, `tsv`, `parquet` or `arrow`: the format of files and streams, whatever their names
                are.
            lenient: repair common mistakes in the input. The receipt lists the repairs.
            base: if the target does not exist, create it as a branch of this branch. If the load fails, the new branch
                is deleted.
            expect_head: load only if this commit is the branch head.
            unchanged_since: write only if the data that the load depends on is unchanged since this commit. This data
                is the rows that it touches, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the actor on the branch has this key, nothing is written, and the receipt is
                that of the first load.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            embed: compute the `@embed` vectors that are missing in the input. Otherwise they stay null, and a missing
                required vector is an error.
            memory_budget: the memory for rows, in bytes or as in `"2 GiB"`. Rows beyond it spill to temporary files.
                By default `OMNIGRAPH_LOAD_MEMORY`, else 1 GiB.
            progress: a callback for the progress. An error that it raises stops the load.
            check: check all rows, but write nothing. The receipt has no commit.
            engine: `local`, `spark`, or `auto`, which chooses Spark for a large input.
            spark: the settings of Spark jobs.
            cancel: cancels the load from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above, from `mode` to `chosen`.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append").total
            2

        Raises:
            BadRowsError: records cannot become rows of their type.
            EmbeddingError: missing vectors cannot be computed.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id already exists, and the mode is `append`.
            ResourceLimitError: the memory budget is too small to check the rows.
        """
        from omnigraph.engine.load import load
        from omnigraph.engine.requests import LoadRequest

        return load(self.session, source, LoadRequest(branch=branch, **options))

    @takes(MergeOptions)
    def merge(self, source: str, into: str = MAIN, **options: Unpack[MergeOptions]) -> MergeReceipt:
        """Merge a branch into another, as one commit.

        This is a three-way merge. Rows are compared by id in three versions: in the best common ancestor of both heads,
        and in each branch. Several best common ancestors are first merged into a virtual base. A change of only one
        branch is applied. Different changes of the same row are a conflict. Changes that together break a constraint
        are a conflict, too. With an unresolved conflict, nothing is written.

        Args:
            source: the branch to merge. The merge uses the head at its start.
            into: the branch that gets the commit.
            strategy: the side that wins every conflict: `ours` is the target, `theirs` the source.
            resolutions: a mapping that gives single conflicts their winning side, `ours` or `theirs`. A key is a
                conflict from a preview, or a pair of type and id. These choices override the strategy.
            level: `row` takes whole rows, `property` combines changes of different properties of an entity. By default,
                the schema decides for each type (`@merge(property)`).
            preview: report the changes and conflicts, but write nothing.
            delete_branch: delete the source afterwards. A failure to delete it does not undo the merge.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            expect_head: merge only if this commit is the head of the target.
            unchanged_since: write only if the data that the merge depends on is unchanged since this commit. This data
                is the rows that it touches, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the target has this key, nothing is written.
            memory_budget: the memory for rows. Rows beyond it spill to temporary files.
            engine: `local`, `spark`, or `auto`, which chooses Spark if many rows have to be compared.
            spark: the settings of Spark jobs.
            cancel: cancels the Spark jobs from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above, from `strategy` to `chosen`.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
            >>> graph.merge("draft").outcome
            <MergeOutcome.FAST_FORWARD: 'fast_forward'>

        Raises:
            BranchNotFoundError: there is no such branch.
            MergeConflictsError: there are unresolved conflicts.
            MergeSchemaError: the schemas of the branches are incompatible.
            PreconditionFailedError: the head of the target is not the expected one.
        """
        from omnigraph.engine.merge import merge
        from omnigraph.engine.requests import MergeRequest

        return merge(self.session, MergeRequest(source, into, **options))

    @takes(PickOptions)
    def revert(
        self, commit: str, *, branch: str | None = None, member: str | None = None, **options: Unpack[PickOptions]
    ) -> PickReceipt:
        """Undo the changes of one commit on a branch, as a new commit. Later changes stay.

        This is a three-way merge. Its base is the commit, and the parent of the commit is merged into the branch. If
        the branch has changed a row of the commit since then, this is a conflict. Restoring a node restores its edges,
        unless the node at their other end no longer exists.

        Args:
            commit: the commit to undo, or a tag.
            branch: the branch that gets the new commit; by default the handle's branch.
            member: undo only this member of the commit: its id, or the beginning of its id. By default, all changes.
            parent: for a merge commit, the parent that its changes are relative to: 1 is the head of the branch before
                the merge, 2 the head of the merged branch.
            strategy: the side that wins every conflict: `ours` is the branch, `theirs` the parent of the commit.
            resolutions: a mapping that gives single conflicts their winning side, `ours` or `theirs`. A key is a
                conflict from a preview, or a pair of type and id. These choices override the strategy.
            level: `row` takes whole rows, `property` combines changes of different properties of an entity. By default,
                the schema decides for each type (`@merge(property)`).
            preview: report the changes and conflicts, but write nothing.
            message: the message of the commit; by default `Revert "<message>"`.
            labels: the labels of the commit, a mapping of names to texts. The label `reverted_commit` has the id of
                the given commit.
            expect_head: write only if this commit is the head of the branch.
            unchanged_since: write only if the data that the request depends on is unchanged since this commit. This
                data is the rows that it touches, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the actor on the branch has this key, nothing is written.
            memory_budget: the memory for rows. Rows beyond it spill to temporary files.
            engine: `local`, `spark`, or `auto`, which chooses Spark if many rows have to be compared.
            spark: the settings of Spark jobs.
            cancel: cancels the Spark jobs from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above, from `parent` to `chosen`.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> wrong = graph.mutate('query q() { insert Person { name: "ann" } }', message="add ann").commit
            >>> graph.revert(wrong.id).commit.message
            'Revert "add ann"'
            >>> graph.entity("Person", "ann") is None
            True

        Raises:
            NotFoundError: there is no such branch, commit or member.
            InputError: the commit is the first of the graph, or it is a merge and no parent is given.
            PickConflictsError: there are unresolved conflicts.
            MergeSchemaError: the commit changed the schema, or the schemas of commit and branch are incompatible.
            PreconditionFailedError: the head of the branch is not the expected one.
            VersionReclaimedError: cleanup has removed the commit or its parent.
        """
        from omnigraph.engine.pick import revert
        from omnigraph.engine.requests import RevertRequest

        return revert(self.session, RevertRequest(commit, branch, member, **options))

    @takes(PickOptions)
    def cherry_pick(self, commit: str, into: str | None = None, **options: Unpack[PickOptions]) -> PickReceipt:
        """Apply the changes of one commit to a branch, as a new commit.

        This is a three-way merge. Its base is the parent of the commit, and the commit is merged into the branch. Only
        its own changes are applied, not those of earlier commits.

        Args:
            commit: the commit to apply, or a tag.
            into: the branch that gets the new commit; by default the handle's branch.
            parent: for a merge commit, the parent that its changes are relative to: 1 is the head of the branch before
                the merge, 2 the head of the merged branch.
            strategy: the side that wins every conflict: `ours` is the branch, `theirs` the commit.
            resolutions: a mapping that gives single conflicts their winning side, `ours` or `theirs`. A key is a
                conflict from a preview, or a pair of type and id. These choices override the strategy.
            level: `row` takes whole rows, `property` combines changes of different properties of an entity. By default,
                the schema decides for each type (`@merge(property)`).
            preview: report the changes and conflicts, but write nothing.
            message: the message of the commit; by default that of the commit.
            labels: the labels of the commit, a mapping of names to texts. The label `picked_commit` has the id of
                the given commit.
            expect_head: write only if this commit is the head of the branch.
            unchanged_since: write only if the data that the request depends on is unchanged since this commit. This
                data is the rows that it touches, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the actor on the branch has this key, nothing is written.
            memory_budget: the memory for rows. Rows beyond it spill to temporary files.
            engine: `local`, `spark`, or `auto`, which chooses Spark if many rows have to be compared.
            spark: the settings of Spark jobs.
            cancel: cancels the Spark jobs from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above, from `parent` to `chosen`.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
            >>> fix = graph.mutate('query q() { insert Person { name: "bob" } }', branch="draft").commit
            >>> _ = graph.cherry_pick(fix.id)
            >>> graph.entity("Person", "ann") is None, graph.entity("Person", "bob") is None
            (True, False)

        Raises:
            NotFoundError: there is no such branch or commit.
            InputError: the commit is the first of the graph, or it is a merge and no parent is given.
            PickConflictsError: there are unresolved conflicts.
            MergeSchemaError: the commit changed the schema, or the schemas of commit and branch are incompatible.
            PreconditionFailedError: the head of the branch is not the expected one.
            VersionReclaimedError: cleanup has removed the commit or its parent.
        """
        from omnigraph.engine.pick import cherry_pick
        from omnigraph.engine.requests import CherryPickRequest

        return cherry_pick(self.session, CherryPickRequest(commit, into, **options))

    @takes(RestoreOptions)
    def restore(
        self,
        type_name: str,
        ids: str | Sequence[str],
        at: At,
        *,
        branch: str | None = None,
        **options: Unpack[RestoreOptions],
    ) -> RestoreReceipt:
        """Bring single entities of a branch back to their state in a commit, a tag or a time, as one commit.

        An entity that exists in that state gets the row that it has there. An entity that does not exist there is
        deleted, a node with its edges. All constraints are checked.

        Args:
            type_name: the node type or edge type.
            ids: the ids of the entities.
            at: the state to take the rows from: a snapshot, commit id or tag; or a time or manifest version of the
                branch.
            branch: the branch that gets the commit; by default the handle's branch.
            edges: give the nodes the edges that they have in that state: missing ones return, changed ones are
                restored, and later ones are deleted. An edge whose other node does not exist is left out.
            preview: report the changes, but write nothing.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts. The label `restored_from` has the id of the
                commit that the rows were taken from.
            expect_head: write only if this commit is the head of the branch.
            unchanged_since: write only if the data that the request depends on is unchanged since this commit. This
                data is the rows that it touches, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the actor on the branch has this key, nothing is written.
            memory_budget: the memory for rows. Rows beyond it spill to temporary files.
            options: the keyword arguments listed above, from `edges` to `memory_budget`.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> good = graph.mutate('query q() { insert Person { name: "ann", age: 41 } }').commit
            >>> _ = graph.mutate('query q() { update Person set { age: 14 } where name = "ann" }')
            >>> _ = graph.restore("Person", ["ann"], good.id)
            >>> graph.entity("Person", "ann")["age"]
            41

        Raises:
            InputError: there are no ids, or `edges` is given for an edge type.
            NotFoundError: there is no such branch, commit or type, or an entity exists in neither state.
            ConstraintError: the result breaks a constraint of the schema.
            MergeSchemaError: the type does not exist in that state, or values do not fit the schema of the branch.
            PreconditionFailedError: the head of the branch is not the expected one.
            VersionReclaimedError: cleanup has removed the state.
        """
        from omnigraph.engine.requests import RestoreRequest
        from omnigraph.engine.restore import restore_entities

        return restore_entities(self.session, RestoreRequest(type_name, ids, at, branch, **options))

    @takes(DiffOptions)
    def diff(self, before: At, after: At, **options: Unpack[DiffOptions]) -> Diff:
        """The difference between two states of the graph. Reads only rows that may differ, when they are needed.

        Types and properties are matched by identity, so renames are followed. A row that was rewritten with equal
        values is no change, and a property that only one state has changes no row.

        Args:
            before: the first state: a branch, a commit id, a tag, a time or a snapshot. A name of a branch takes
                precedence. A time selects a state of the handle's branch.
            after: the second state.
            types: one type name or several; by default all types.
            ids: one id or several; only entities with these ids are compared.
            ops: kinds of changes: `insert`, `update`, `delete`; by default all.
            options: the keyword arguments `types`, `ids` and `ops`.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann", age: 41 } }')
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.mutate('query q() { update Person set { age: 42 } where name = "ann" }', branch="draft")
            >>> diff = graph.diff("main", "draft")
            >>> diff.stat().updates
            1
            >>> diff["Person"].updated().select(["id", "changed"]).to_pylist()
            [{'id': 'ann', 'changed': ['age']}]

        Raises:
            InputError: there is no such type or kind of change.
            NotFoundError: there is no such state.
            VersionReclaimedError: cleanup has removed a state.
        """
        from omnigraph.engine.diff import diff
        from omnigraph.engine.requests import DiffRequest

        return diff(self.session, DiffRequest(before, after, **options))

    @property
    def pipeline(self) -> Pipeline:
        """The verbs that run on Spark: load, merge, export, embed, optimize, graph algorithms and declared pipelines.

        Raises:
            SparkUnavailableError: Spark is not installed.
        """
        # Imported by name, because the pipeline is in a higher layer.
        from omnigraph.graph.pipelines import Pipeline

        return cast(Pipeline, import_module("omnigraph.pipeline.pipeline").Pipeline(self))

    @takes(MutateOptions)
    def mutate(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        **options: Unpack[MutateOptions],
    ) -> MutationReceipt:
        """Run a query that writes, as one commit.

        Args:
            text: one query, or several queries of which `name` selects one; or the path of a `.gq` file.
            params: the parameters by name, without `$`.
            name: the name of the query in the text.
            branch: the branch to write to; by default the handle's branch.
            expect_head: write only if this commit is the branch head.
            unchanged_since: write only if the data that the query depends on is unchanged since this commit. This data
                is the rows that it touches, the matches of each of its conditions, and the results of `reads`.
            reads: a list of queries for `unchanged_since`, each as a text or as (text, parameters).
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            idempotency_key: if a commit of the actor on the branch has this key, nothing is written, and the receipt is
                that of the first request.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            options: the keyword arguments listed above, from `name` to `labels`.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     add = "query add($name: String) { insert Person { name: $name } }"
            ...     graph.mutate(add, {"name": "ann"}).affected_nodes
            1

        Raises:
            CompileError: the query does not compile.
            PreconditionFailedError: the branch head is another commit.
            ChangedSinceError: data that the query depends on has changed since the named commit.
            ParameterError: a parameter is missing or has the wrong type.
            BadRowsError: a value does not fit the type of its property.
            ConstraintError: the result would break a constraint of the schema.
            KeyConflictError: `create` found an existing entity with the same key.
            WriteTimeoutError: other writers delayed the commit past its timeout.
        """
        from omnigraph.engine.mutate import mutate
        from omnigraph.engine.requests import MutateRequest

        return mutate(self.session, MutateRequest(text, params, branch=branch, **options))

    def verify(self, *, branch: str | None = None, commit: str | None = None, at: At | None = None) -> IntegrityReport:
        """Check all files of a state, and all constraints of the schema on all its rows.

        Every file that the state needs must exist and be readable, and on a local disk its length and checksum must be
        those that were recorded when it was written. This includes the files of tables, history, references, the audit,
        sidecars and schemas. If a file is damaged, the constraints are not checked. Writes check only the rows that
        they change, so this finds more violations: nodes without the edges that `@card(1..)` requires, and changes by
        other programs.

        Args:
            branch: check the newest state of this branch; by default the handle's branch.
            commit: check this commit or tag.
            at: check another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import pyarrow, tempfile
            >>> schema = "node Person { name: String @key } edge Owns: Person -> Person @card(1..)"
            >>> with init(tempfile.mkdtemp() + "/g", schema) as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann"]})}, mode="append")
            ...     [str(violation) for violation in graph.verify().violations]
            ["Owns @card: 'ann': has 0 edges, allowed are 1.."]

        Raises:
            InputError: both a commit and a state are given.
        """
        from omnigraph.engine import maintenance

        return maintenance.verify(self.session, branch=branch, commit=commit, at=at)

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Compare every table of every branch with the manifest, and repair differences with `confirm`.

        It handles three problems: a table has newer versions than the manifest, and no sidecar belongs to them; a table
        cannot be read; an interrupted write can be neither completed nor undone. Without `confirm`, nothing is changed.
        No file is deleted: a file that blocks other work is renamed. If the graph cannot be opened for writing, use
        `omnigraph.repair`.

        Args:
            confirm: enter table versions that only maintenance added in the manifest, rename files that the graph does
                not need, and drop damaged indexes.
            force: with `confirm`: also enter versions that other programs wrote, return unreadable tables to an older
                version, and abandon writes that recovery cannot complete or undo.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     [(row.type_key, row.classification.value) for row in graph.repair().rows]
            [('node:Person', 'no_drift')]

        Raises:
            ReadOnlyError: with `confirm`, the handle is read-only.
        """
        from omnigraph.engine import maintenance

        return maintenance.repair(self.session, confirm=confirm, force=force)

    def indexes(self, *, branch: str | None = None, at: At | None = None) -> list[IndexCoverage]:
        """The declared indexes, and the number of rows that each covers. Queries find uncovered rows with a scan.

        Args:
            branch: read the newest state of this branch; by default the handle's branch.
            at: read another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append")
            ...     [(index.property, index.kind, index.uncovered) for index in graph.indexes()]
            [('id', 'btree', 2), ('name', 'fts', 2)]
        """
        from omnigraph.engine import maintenance

        return maintenance.index_coverage(self.session, branch, at)

    def ensure_indexes(self, *, branch: str | None = None) -> IndexReceipt:
        """Build missing parts of the declared indexes, as one commit. Query results do not change.

        Writes do not update indexes: an index covers the rows that existed at its last update. A small number of
        vectors gets no index, because a full scan is as fast.

        Also builds the topologies of all edge types in the disk cache of this machine, for later processes.

        Args:
            branch: the branch; by default the handle's branch.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append")
            ...     [(index.property, index.covered) for index in graph.ensure_indexes().built]
            [('id', 2), ('name', 2)]
        """
        from omnigraph.engine import maintenance

        return maintenance.ensure_indexes(self.session, branch)

    @takes(OptimizeOptions)
    def optimize(self, **options: Unpack[OptimizeOptions]) -> OptimizeReceipt:
        """Compact the tables of a branch into few files, and update its indexes, as one commit.

        Query results and row ids do not change, and the change feed reports no changes. If there is nothing to do,
        there is no commit. The old files stay until `cleanup`. Tables that the branch has not written to belong to the
        branch that it was created from, and are not changed.

        Args:
            branch: the branch; by default the handle's branch.
            rows_per_fragment: the approximate number of rows per file after the compaction.
            engine: `local`, `spark`, or `auto`, which chooses Spark if much has to be rewritten.
            spark: the settings of Spark jobs.
            cancel: cancels the Spark jobs from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     for name in ("ann", "bob", "eve"):
            ...         _ = graph.load({"Person": pyarrow.table({"name": [name]})}, mode="append")
            ...     done = graph.optimize().tables[0]
            ...     done.fragments_removed, done.fragments_added, graph.optimize().commit
            (3, 1, None)

        Raises:
            WriteTimeoutError: other writers delayed the commit past its timeout.
        """
        from omnigraph.engine import maintenance
        from omnigraph.engine.requests import OptimizeRequest

        return maintenance.optimize(self.session, OptimizeRequest(**options))

    def status(self, thresholds: Thresholds | None = None) -> GraphStatus:
        """The condition of the graph, and the commands that improve it.

        For each branch and table: files, versions, rows, deleted rows, rows without an index, and sizes. Also
        interrupted writes, running work, the size of the manifest, and the space that each branch and tag holds.
        Changes nothing.

        Args:
            thresholds: the thresholds above which a command is advised; by default the settings of upkeep.

        Example:
            >>> import pyarrow, tempfile
            >>> from omnigraph import Thresholds
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     for name in ("ann", "bob", "eve"):
            ...         _ = graph.load({"Person": pyarrow.table({"name": [name]})}, mode="append")
            ...     found = graph.status(Thresholds(fragments=2))
            ...     found.branches[0].tables[0].fragments, found.advice[0].reason
            (3, 'node:Person has 3 small files')

        Raises:
            InputError: a setting is not a number.
        """
        from omnigraph.engine import maintenance

        return maintenance.status(self.session, thresholds)

    def upkeep(self, thresholds: Thresholds | None = None) -> UpkeepReport:
        """Run the maintenance that the condition of the graph demands: recovery, `optimize` and `cleanup`.

        A command runs if a threshold is exceeded. Cleanup keeps `thresholds.keep` commits of each branch, all commits
        that are younger than `thresholds.older_than`, and everything that branches and tags need. Hard drops of schema
        changes that were interrupted are always completed.

        Args:
            thresholds: the thresholds above which a command runs; by default the settings of upkeep.

        Raises:
            ReadOnlyError: the handle is read-only.
        """
        from omnigraph.engine import maintenance

        return maintenance.upkeep(self.session, thresholds)

    def watch_upkeep(
        self, stop: Event, *, interval: float = 60.0, thresholds: Thresholds | None = None
    ) -> Iterator[UpkeepReport]:
        """Run `upkeep` again and again. Yields the report of each round.

        One process per graph is enough. Several do no harm.

        Args:
            stop: ends the loop after the current command.
            interval: seconds between two rounds.
            thresholds: the thresholds above which a command runs; by default the settings of upkeep.

        Raises:
            ReadOnlyError: the handle is read-only.
        """
        from omnigraph.engine import maintenance

        return maintenance.watch(self.session, thresholds, interval, stop)

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        orphans_older_than: timedelta = ORPHANS_OLDER_THAN,
        preview: bool = False,
    ) -> CleanupReport:
        """Remove table and manifest versions that are no longer needed, and files of crashed writers.

        All versions of branch heads, tags and kept commits stay. So do the bases of later merges, and the versions that
        running work needs: loads, merges, exports, transactions. Reading a removed commit raises
        `VersionReclaimedError`. Its entry in the history stays.

        Args:
            keep: the number of newest commits of each branch that stay readable. The head always stays.
            older_than: commits younger than this stay readable. With both arguments, a commit is removed only if both
                allow it.
            orphans_older_than: the minimum age of removed orphan files. Files of running work always stay.
            preview: report the removals, but change nothing.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     for name in ("ann", "bob", "eve"):
            ...         _ = graph.load({"Person": pyarrow.table({"name": [name]})}, mode="append")
            ...     graph.cleanup(keep=2).versions_removed
            2

        Raises:
            InputError: neither `keep` nor `older_than` is given.
            DriftError: a table has newer versions than the manifest, and no sidecar belongs to them.
            CorruptionError: an interrupted write can be neither completed nor undone.
        """
        from omnigraph.upkeep.reachable import Policy

        policy = Policy(keep, older_than, orphans_older_than)
        from omnigraph.engine import maintenance

        return maintenance.cleanup(self.session, policy, preview=preview)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        keep: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> CopyReceipt:
        """Copy the graph to another location: one consistent state of all branches, tags and their history.

        Other processes can write during the backup. The copy is a graph and can be opened. `omnigraph.restore` copies
        it to an empty location. A second backup to the same location copies only new files. To continue an interrupted
        backup, run it again.

        Args:
            target: an empty directory or `s3://bucket/prefix`, or an earlier backup of this graph.
            keep: the number of newest commits of each branch that are readable in the copy; by default all commits that
                are readable here. Heads and tags are always readable.
            storage_options: the storage options of the target; by default those of the graph.

        Example:
            >>> import tempfile
            >>> directory = tempfile.mkdtemp()
            >>> with init(directory + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.backup(directory + "/backup")
            ...     sorted(done.branches), graph.backup(directory + "/backup").files_copied
            (['main'], 0)

        A read-only handle writes no work record to the graph, so a concurrent cleanup can remove versions before they
        are copied.

        Raises:
            ConflictError: the target holds other files, or was changed since the last backup.
            VersionReclaimedError: cleanup removed versions during the backup, repeatedly.
        """
        from omnigraph.engine import maintenance

        return maintenance.backup(self.session, target, keep=keep, storage_options=storage_options)

    @takes(EmbedOptions)
    def embed(self, *, branch: str | None = None, **options: Unpack[EmbedOptions]) -> EmbedReceipt:
        """Update the vectors of `@embed` properties as one commit, for example after a change of the model.

        Vectors that are up to date do not change. Vectors of texts in the cache are not requested again.

        Args:
            which: `stale` (missing vectors, and all vectors of a property that were computed by another model or from
                another source property), `missing`, or `all`.
            types: one node type or several; by default all.
            properties: one vector property or several; by default all.
            branch: the branch; by default the handle's branch.
            expect_head: write only if this commit is the branch head.
            timeout: the maximum time in seconds to wait for other writers and to retry; by default 60.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            memory_budget: the memory for vectors. Vectors beyond it spill to temporary files.
            progress: a callback for the progress. An error that it raises stops the work.
            check: compute the vectors, but write nothing.
            engine: `local`, `spark`, or `auto`, which chooses Spark for large tables.
            spark: the settings of Spark jobs.
            cancel: cancels the work from another thread, until the commit.
            chosen: a callback for the chosen engine and the reason.
            options: the keyword arguments listed above, from `which` to `chosen`.

        Example:
            >>> import pyarrow, tempfile
            >>> schema = 'node Note { name: String @key  text: String  vec: Vector(64)? @embed("text") }'
            >>> with init(tempfile.mkdtemp() + "/g", schema) as graph:
            ...     notes = pyarrow.table({"name": ["a", "b"], "text": ["Hello.", "Good-bye."]})
            ...     done = graph.load({"Note": notes}, mode="append", embed=False)
            ...     graph.embed().total.changed, graph.embed().total.changed
            (2, 0)

        Raises:
            InputError: there is no such type or vector.
            EmbeddingModelError: the configured model is not the model that the schema records.
            EmbeddingError: vectors cannot be computed. Nothing was written.
            CancelledError: the caller cancelled the work.
        """
        from omnigraph.engine.embed import embed
        from omnigraph.engine.requests import EmbedRequest

        return embed(self.session, EmbedRequest(branch=branch, **options))

    def write_tables(self, request: WriteRequest, prepare: Prepare) -> Commit | None:
        """Write Arrow batches to tables as one commit, without checks of values.

        Args:
            request: the metadata and the preconditions of the commit.
            prepare: creates the table writes from the state of the branch.

        Raises:
            ReadOnlyError: the handle is read-only.
        """
        from omnigraph.engine.commit import commit_tables

        self.session.require_whole("write tables")
        return commit_tables(self.session, request, prepare)

    def close(self) -> None:
        """Drop all caches, and refuse further reads and writes. Snapshots stay readable. Safe to call twice."""
        self.session.close()

    def __repr__(self) -> str:
        return f"<Graph '{self.uri}' on {self.default_branch}>"

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import state_html

        view = self.session.readable(None, None, Action.READ)
        return state_html(f"{self.uri} on branch {self.default_branch}", view, self.session.schemas.at(view))

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
