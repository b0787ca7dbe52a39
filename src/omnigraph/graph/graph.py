"""The handle of an open graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Unpack, overload

import pyarrow as pa

from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import Prepare, WriteRequest
from omnigraph.embed import Embedder
from omnigraph.engine import maintenance, opening
from omnigraph.engine.commit import write_tables
from omnigraph.engine.embed import embed
from omnigraph.engine.export import export
from omnigraph.engine.load import load
from omnigraph.engine.merge import merge
from omnigraph.engine.mutate import mutate
from omnigraph.engine.query import explain, in_thread, query
from omnigraph.engine.query_text import QueryText
from omnigraph.engine.requests import (
    EmbedOptions,
    EmbedRequest,
    ExplainOptions,
    ExplainRequest,
    ExportOptions,
    ExportRequest,
    LoadOptions,
    LoadRequest,
    MergeOptions,
    MergeRequest,
    MutateOptions,
    MutateRequest,
    OptimizeOptions,
    OptimizeRequest,
    QueryOptions,
    QueryRequest,
)
from omnigraph.engine.session import At, Session
from omnigraph.graph.branch import BranchHandle
from omnigraph.graph.collections import Branches, Commits, Recovery, Tags
from omnigraph.graph.pipelines import Pipeline, pipeline_of
from omnigraph.lang.schema import AcceptedSchema, Catalog
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.blobs import Blob, find_blob
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.files import ExportFormat, ExportReceipt, Target
from omnigraph.read.plan.explanation import Explanation
from omnigraph.read.result.result import Result
from omnigraph.upkeep.backup import CopyReceipt
from omnigraph.upkeep.cleanup import ORPHANS_OLDER_THAN, CleanupReport
from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt
from omnigraph.upkeep.reachable import Policy
from omnigraph.upkeep.repair import RepairReport
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
) -> Graph:
    """Create a graph and open it.

    Args:
        uri: where: a directory, or `s3://bucket/prefix`.
        schema: the schema's source text, or the path of a `.pg` file.
        force: replace schema files that a failed creation left. Never touches a graph.
        actor: who the commits through this handle are by.
        storage_options: how to reach the place.
        embedder: turns texts into vectors; by default what the environment asks for, else the offline model.
        blob_sources: where external blobs may come from, `s3://bucket/prefix/` or `file:///directory/`; by default
            nowhere.

    Example:
        >>> import tempfile
        >>> place = tempfile.mkdtemp()
        >>> with init(place + "/people", "node Person { name: String @key }") as graph:
        ...     [branch.name for branch in graph.branches]
        ['main']

    Raises:
        CompileError: the schema does not compile.
        AlreadyInitializedError: there is a graph at this place.
    """
    session = opening.create_session(
        uri,
        schema,
        force=force,
        actor=actor,
        storage_options=storage_options,
        embedder=embedder,
        blob_sources=blob_sources,
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
) -> Graph:
    """Open a graph.

    Opening for writing first settles what interrupted writers left. Opening to read changes nothing at all.

    Args:
        uri: where the graph is.
        branch: the branch that reads and writes mean when they name none.
        read_only: refuse every write through this handle.
        actor: who the commits through this handle are by.
        storage_options: how to reach the place.
        embedder: turns texts into vectors; by default what the environment asks for, else the offline model.
        blob_sources: where external blobs may come from, `s3://bucket/prefix/` or `file:///directory/`; by default
            nowhere.

    Raises:
        NotFoundError: there is no graph, or a schema file is missing.
        BranchNotFoundError: there is no such branch.
        FormatError: the graph is in a format that this release does not read.
        IncompleteCopyError: a backup or a restore to this place was interrupted.
    """
    session = opening.open_session(
        uri,
        branch=branch,
        read_only=read_only,
        actor=actor,
        storage_options=storage_options,
        embedder=embedder,
        blob_sources=blob_sources,
    )
    return Graph(session)


class Graph:
    """An open graph. Safe to use from many threads; a context manager.

    Args:
        session: the engine session that the handle works on.

    Attributes:
        session: the engine session: store, schemas, caches. For code that works below the handles.
        branches: the branches of the graph.
        commits: its history.
        tags: named commits.
        recovery: the interrupted writes that were settled.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.branches = Branches(session)
        self.commits = Commits(session, session.default_branch)
        self.tags = Tags(session)
        self.recovery = Recovery(session)

    @property
    def uri(self) -> str:
        return self.session.uri

    @property
    def default_branch(self) -> str:
        """The branch of reads and writes that name none."""
        return self.session.default_branch

    @property
    def read_only(self) -> bool:
        """Whether the handle refuses to write."""
        return self.session.read_only

    @property
    def actor(self) -> str | None:
        """The author of commits through this handle."""
        return self.session.actor

    @property
    def embedder(self) -> Embedder:
        """The embedder that turns texts into vectors: the one given, or the one that the environment configures.

        Raises:
            EmbeddingError: the environment configures one that is not available.
        """
        return self.session.embedder

    @property
    def catalog(self) -> Catalog:
        """The types of the accepted schema."""
        return self.session.accepted.catalog

    @property
    def accepted_schema(self) -> AcceptedSchema:
        """The accepted schema with its stable identities."""
        return self.session.accepted

    @property
    def schema_source(self) -> str:
        """The accepted schema as it was written."""
        return self.session.schema[0]

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> Snapshot:
        """A view that never changes.

        Args:
            branch: the newest state of a branch; by default the handle's.
            commit: the state that a commit left; a tag's name works too.
            version: a manifest version of the branch.
            at: the branch as it was at a time, also as a text: `2026-03-14T09:30:00Z`. Without a zone, UTC.

        Raises:
            NotFoundError: there is no such commit, branch or time.
            VersionReclaimedError: cleanup has removed it.
        """
        return self.session.snapshot(branch=branch, commit=commit, version=version, at=at)

    def entity(self, type_name: str, entity_id: str, *, at: At | None = None) -> dict[str, object] | None:
        """One node or edge by id, or None.

        Args:
            type_name: a node type, or an edge type; where both share a name, `node:<Type>` or `edge:<Type>`.
            entity_id: its id.
            at: a snapshot, a commit id or a tag; by default the newest state of the handle's branch.
        """
        return self.session.snapshot_at(None, at).entity(self.session.type_key(type_name), entity_id)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property: str,
        *,
        branch: str | None = None,
        at: At | None = None,
    ) -> Blob:
        """A blob, to be read in ranges.

        Args:
            type_name: a node type, or an edge type; where both share a name, `node:<Type>` or `edge:<Type>`.
            entity_id: the entity.
            property: a Blob property.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Ship { name: String @key  photo: Blob? }") as graph:
            ...     rows = pyarrow.table({"name": ["argo"], "photo": [b"a picture"]})
            ...     _ = graph.load({"Ship": rows}, mode="append")
            ...     photo = graph.blob("Ship", "argo", "photo")
            ...     photo.size, photo.read(2, 9)
            (9, b'picture')

        Raises:
            NotFoundError: there is no such type or entity, or the property is null there.
            InputError: the property is not a Blob.
        """
        session, view = self.session, self.session.snapshot_at(branch, at)
        return find_blob(view, session.schemas.at(view), session.type_key(type_name), entity_id, property)

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

    def export(
        self,
        target: Target | None = None,
        *,
        format: ExportFormat | str = "ndjson",
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[ExportOptions],
    ) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
        """Export one snapshot. The same content gives the same bytes, however the graph came to it.

        Args:
            target: a file for NDJSON, or a file that is open for writing bytes; a new directory for Parquet and
                Arrow, which have a file for each type. A path, or `s3://bucket/path`, which is reached with the storage
                options of the handle. Without it, what would be written comes as an iterator: of pieces of NDJSON, or
                of type keys and Arrow batches.
            format: `ndjson`, `parquet` or `arrow`. `load` takes each of them back.
            types: a name or several; a name that a node type and an edge type share means both. By default all.
            branch: the newest state of a branch; by default that of the handle.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
            engine: for a target: `local`, `spark`, or `auto`, which chooses Spark for large tables.
            spark: the settings of work on Spark.
            cancel: stops the work on Spark from another thread.
            chosen: is called with the engine that was chosen, and the reason.
            options: the arguments `types`, and from `engine` on.

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
        return export(self.session, ExportRequest(target, format, branch=branch, at=at, **options))

    @contextmanager
    def pin(self, *, branch: str | None = None, at: At | None = None) -> Iterator[Snapshot]:
        """A snapshot that no cleanup takes away while the block lasts.

        Exports, merges and loads do this by themselves, and so does a query once it has run for some seconds. It is for
        reads that go on for long through other ways: several queries of one state, or jobs on Spark.

        Args:
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     with graph.pin() as before:
            ...         _ = graph.load({"Person": pyarrow.table({"name": ["ann"]})}, mode="append")
            ...         _ = graph.cleanup(keep=1)
            ...         len(before.scan("node:Person"))
            0

        Raises:
            NotFoundError: there is no such commit, branch or time.
            VersionReclaimedError: cleanup has removed it.
            StorageError: the record cannot be written, which says that the snapshot is needed.
        """
        view = self.session.snapshot_at(branch, at)
        with at_work(self.session.store.leases, WorkKind.PIN, view.manifest):
            yield view

    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a query that reads. All of it sees one snapshot.

        Args:
            text: a query, or several of which `name` says one; or the path of a `.gq` file.
            params: its parameters by name, without `$`.
            name: the query.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
            budget: the limits of time, memory and rows.
            cancel: stops it from another thread.
            options: the arguments `name`, `budget` and `cancel`.

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
            InputError: it writes.
            ParameterError: a parameter is missing or does not fit.
            NotFoundError: there is no such branch or commit.
            BudgetExceededError: it would take more than it may.
            CancelledError: it was stopped.
        """
        return query(self.session, QueryRequest(text, params, branch=branch, at=at, **options))

    async def async_query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a query that reads, as `query` does, in a thread of its own. Cancelling the task cancels the query."""
        cancel = options.get("cancel") or Cancellation()
        options["cancel"] = cancel
        request = QueryRequest(text, params, branch=branch, at=at, **options)
        return await in_thread(lambda: query(self.session, request), cancel)

    def explain(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[ExplainOptions],
    ) -> Explanation:
        """Say how a query is answered: what it means, the steps in their order, and about how many rows each leaves.

        The order depends on how many nodes satisfy the conditions on each variable alone, so those are counted. With
        `analyze` the query is run, and the rows, time and memory of each step stand beside the estimates. The other
        arguments are those of `query`.

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
            InputError: it writes.
            ParameterError: a parameter is missing or does not fit.
        """
        return explain(self.session, ExplainRequest(text, params, branch=branch, at=at, **options))

    def branch(self, name: str | None = None) -> BranchHandle:
        """One branch, as a handle: what is read and written through it is that branch's.

        Args:
            name: the branch; by default the handle's own.

        Raises:
            InputError: no branch can be called that.
        """
        return BranchHandle(self, self.session.branch_or_default(name))

    def refresh(self) -> Snapshot:
        """Read the newest state, and settle the interrupted writes of other processes."""
        return self.session.refresh()

    def load(self, source: LoadSource, *, branch: str | None = None, **options: Unpack[LoadOptions]) -> LoadReceipt:
        """Load rows as one commit. Everything is checked first; one wrong record, and nothing is written.

        Args:
            source: an NDJSON, CSV, Parquet or Arrow file, several of them, a directory or a pattern; a mapping of
                type names to tables of any library that speaks Arrow, to lists of mappings, or to files; a list of
                records; or a stream of NDJSON.
            mode: `append` (every id is new), `merge` (replaces what exists) or `overwrite` (replaces whole types).
            branch: the target; by default the branch of the handle.
            type_name: the type of a table, or of a CSV, Parquet or Arrow file whose name does not contain it.
            mapping: a YAML or JSON file, or its content, that maps columns of other names to properties.
            lenient: repair common mistakes in the input; the receipt lists the repairs.
            base: the branch to fork the target from if the target does not exist. If the load fails, the new branch is
                deleted.
            expect_head: load only if this commit is the branch head.
            unchanged_since: write only if nothing that the load depends on has changed since this commit: the rows
                that it touches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: how many seconds it may wait for its turn and retry after other commits; by default 60.
            idempotency_key: if a commit of the branch carries this key, nothing is written, and the receipt is that of
                the first load.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            embed: compute the `@embed` vectors that the input leaves out. Otherwise they stay null, and a required
                vector is an error.
            memory_budget: the memory for rows, in bytes or as in `"2 GiB"`; rows beyond it spill to temporary files.
                By default `OMNIGRAPH_LOAD_MEMORY`, else one GiB.
            progress: is called with the progress. An error that it raises ends the load.
            check: check everything, and write nothing. The receipt has no commit.
            engine: `local`, `spark`, or `auto`, which chooses Spark for a large input.
            spark: the settings of work on Spark.
            cancel: stops the load from another thread, until it is committed.
            chosen: is called with the engine that was chosen, and the reason.
            options: the arguments from `mode` on.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append").total
            2

        Raises:
            BadRowsError: records cannot become rows of their type.
            EmbeddingError: vectors that are left out cannot be computed.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id exists that should be new.
            ResourceLimitError: the memory is not enough to check the rows.
        """
        return load(self.session, source, LoadRequest(branch=branch, **options))

    def merge(self, source: str, into: str = MAIN, **options: Unpack[MergeOptions]) -> MergeReceipt:
        """Bring what a branch has done to another, as one commit.

        Rows are compared by id in three versions: as they were at the best common ancestor of both heads, and as each
        branch has them now. Several best ancestors are merged with each other first. What only one branch has changed
        is taken. What both have changed in different ways is a conflict, and so is what breaks a constraint once it
        comes together; with one conflict, nothing is written.

        Args:
            source: the branch to merge. Its head is fixed when the merge begins.
            into: the branch that gets the commit.
            strategy: the side that wins every conflict: `ours` is the target, `theirs` the source.
            resolutions: the side that wins single conflicts, by conflict, as a preview lists them, or by type and id.
                They come before the strategy.
            preview: report the changes and conflicts, and write nothing.
            delete_branch: delete the source afterwards. A failure to delete it does not undo the merge.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            expect_head: merge only if this commit is the head of the target.
            unchanged_since: write only if nothing that the merge depends on has changed since this commit: the rows
                that it touches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: how many seconds it may wait for its turn and retry after other commits; by default 60.
            idempotency_key: if a commit of the target carries this key, nothing is written.
            memory_budget: the memory for rows; rows beyond it spill to temporary files.
            engine: `local`, `spark`, or `auto`, which chooses Spark when much has to be compared.
            spark: the settings of work on Spark.
            cancel: stops the work on Spark from another thread, until it is committed.
            chosen: is called with the engine that was chosen, and the reason.
            options: the arguments from `strategy` on.

        Example:
            >>> import tempfile
            >>> graph = init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I64? }")
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
            >>> graph.merge("draft").outcome
            <MergeOutcome.FAST_FORWARD: 'fast_forward'>

        Raises:
            BranchNotFoundError: there is no such branch.
            MergeConflictsError: the branches disagree.
            MergeSchemaError: rows cannot be carried between their schemas.
            PreconditionFailedError: the head of the target is not the expected one.
        """
        return merge(self.session, MergeRequest(source, into, **options))

    @property
    def pipeline(self) -> Pipeline:
        """The graph on Spark: loads of any volume, and what else is done by many machines.

        Raises:
            SparkUnavailableError: what it needs is not installed.
        """
        return pipeline_of(self)

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
            text: a query, or several of which `name` says one; or the path of a `.gq` file.
            params: its parameters by name.
            name: the query.
            branch: where to; by default the handle's branch.
            expect_head: write only if this commit is the branch head.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, the matches of each of its conditions, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: how many seconds it may wait for its turn and retry after other commits; by default 60.
            idempotency_key: if a commit of the branch carries this key, nothing is written, and the receipt is that of
                the first request.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            options: the arguments from `name` on.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     add = "query add($name: String) { insert Person { name: $name } }"
            ...     graph.mutate(add, {"name": "ann"}).affected_nodes
            1

        Raises:
            CompileError: the query does not compile.
            PreconditionFailedError: the branch head is another commit.
            ChangedSinceError: what the query depends on has changed since the commit that was named.
            ParameterError: a parameter is missing or does not fit.
            BadRowsError: a value does not fit its property.
            ConstraintError: the result would break a constraint of the schema.
            KeyConflictError: an entity exists that should be new.
            WriteTimeoutError: it did not get its turn in time.
        """
        return mutate(self.session, MutateRequest(text, params, branch=branch, **options))

    def verify(self, *, branch: str | None = None, commit: str | None = None) -> IntegrityReport:
        """Check all files, and every constraint of the schema on everything that is stored.

        Every file that the state needs has to be there, with its recorded length and checksum, and to read back: those
        of tables, of the history of the branch, references, the audit, sidecars and schemas. If one is damaged,
        constraints are not looked at. Writes check what they change, so the rest is for what no write can see: nodes
        that `@card(1..)` wants edges of and that never had one, and what was changed by other hands.

        Args:
            branch: what to check; by default the newest state of the handle's branch.
            commit: another state: a commit or a tag.

        Example:
            >>> import pyarrow, tempfile
            >>> schema = "node Person { name: String @key } edge Owns: Person -> Person @card(1..)"
            >>> with init(tempfile.mkdtemp() + "/g", schema) as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann"]})}, mode="append")
            ...     [str(violation) for violation in graph.verify().violations]
            ["Owns @card: 'ann': has 0 edges, allowed are 1.."]

        Raises:
            ResourceLimitError: a check does not fit the memory; `OMNIGRAPH_LOAD_MEMORY` says how much there is.
        """
        return maintenance.verify(self.session, branch=branch, commit=commit)

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Classify every table of every branch against what the graph points at, and repair it with consent.

        A table may be ahead of the graph with no write that explains it, or not be readable, or a write may have
        stopped that can be neither finished nor undone. Without `confirm`, nothing is changed. No file is ever deleted:
        what blocks others gets another name. A graph that cannot be opened for writing is repaired by
        `omnigraph.repair`.

        Args:
            confirm: adopt tables that only maintenance has moved, set files aside that the graph does not need, drop
                damaged indexes.
            force: with `confirm`: also adopt what others wrote, go back to an older version of what cannot be read, and
                go on without a write that cannot be settled.

        Example:
            >>> import tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     [(row.type_key, row.classification.value) for row in graph.repair().rows]
            [('node:Person', 'no_drift')]

        Raises:
            ReadOnlyError: with `confirm`, the handle was opened to read.
        """
        return maintenance.repair(self.session, confirm=confirm, force=force)

    def indexes(self, *, branch: str | None = None, at: At | None = None) -> list[IndexCoverage]:
        """The indexes that the schema asks for, and the rows that each covers. Rows without an index are found too.

        Args:
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append")
            ...     [(index.property, index.kind, index.uncovered) for index in graph.indexes()]
            [('id', 'btree', 2), ('name', 'fts', 2)]
        """
        return maintenance.index_coverage(self.session, branch, at)

    def ensure_indexes(self, *, branch: str | None = None) -> IndexReceipt:
        """Build what is missing of the indexes that the schema asks for, as one commit. No answer changes by it.

        Writes never do this: an index covers the rows that were there when it was last brought up to date. A few
        vectors get none, because it is as quick to look at all of them.

        The topologies of all edge types are made ready as well, in this machine's cache: the next process that walks
        edges finds them there.

        Args:
            branch: where to; by default the handle's branch.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append")
            ...     [(index.property, index.covered) for index in graph.ensure_indexes().built]
            [('id', 2), ('name', 2)]
        """
        return maintenance.ensure_indexes(self.session, branch)

    def optimize(self, **options: Unpack[OptimizeOptions]) -> OptimizeReceipt:
        """Pack the rows of `main` into few files, and bring its indexes up to date, as one commit.

        No answer changes by it, no row id, and no feed of changes has anything to tell. When there is nothing to do,
        there is no commit. What rows were packed from stays until `cleanup`.

        Args:
            rows_per_fragment: the approximate number of rows of a file afterwards.
            engine: `local`, `spark`, or `auto`, which chooses Spark when much has to be rewritten.
            spark: the settings of work on Spark.
            cancel: stops the work on Spark from another thread, until it is committed.
            chosen: is called with the engine that was chosen, and the reason.
            options: the arguments above.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     for name in ("ann", "bob", "eve"):
            ...         _ = graph.load({"Person": pyarrow.table({"name": [name]})}, mode="append")
            ...     done = graph.optimize().tables[0]
            ...     done.fragments_removed, done.fragments_added, graph.optimize().commit
            (3, 1, None)

        Raises:
            WriteTimeoutError: it did not get its turn in time.
        """
        return maintenance.optimize(self.session, OptimizeRequest(**options))

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        orphans_older_than: timedelta = ORPHANS_OLDER_THAN,
        preview: bool = False,
    ) -> CleanupReport:
        """Remove what nobody can read any more, and what writers that died left behind.

        Whatever a branch, a tag or a kept commit points at stays, byte for byte. So do the states that later merges
        compare with, and the versions that work in progress needs: loads, merges, exports, transactions. Reading a
        commit that was removed raises `VersionReclaimedError`; its line in the history stays.

        Args:
            keep: how many of the newest commits of each branch stay readable. Its head always does.
            older_than: commits that are younger stay readable. With both, a commit goes only if both let it go.
            orphans_older_than: how old a file has to be that nothing points at. Files of work that is seen to be alive
                stay, however old they are.
            preview: say what would go, and change nothing.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     for name in ("ann", "bob", "eve"):
            ...         _ = graph.load({"Person": pyarrow.table({"name": [name]})}, mode="append")
            ...     graph.cleanup(keep=2).versions_removed
            2

        Raises:
            InputError: neither `keep` nor `older_than` is given.
            DriftError: a table has moved, and nobody knows why.
            CorruptionError: an interrupted write cannot be settled.
        """
        policy = Policy(keep, older_than, orphans_older_than)
        return maintenance.cleanup(self.session, policy, preview=preview)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        keep: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> CopyReceipt:
        """Copy the whole graph to another place, beside writers: one state of all branches, tags and their history.

        The copy is a graph: it can be opened where it is, and `omnigraph.restore` copies it to an empty place. A
        second backup to the same place copies what is new. What is interrupted goes on where it stopped.

        Args:
            target: an empty directory or `s3://bucket/prefix`, or an earlier backup of this graph.
            keep: how many of the newest commits of each branch can be read in the copy; by default all that can be
                read here. Heads and tags always can.
            storage_options: how to reach the target; by default as the graph is reached.

        Example:
            >>> import tempfile
            >>> place = tempfile.mkdtemp()
            >>> with init(place + "/g", "node Person { name: String @key }") as graph:
            ...     done = graph.backup(place + "/backup")
            ...     sorted(done.branches), graph.backup(place + "/backup").files_copied
            (['main'], 0)

        A handle that only reads copies without writing to the graph: then cleanup may take what is to be copied.

        Raises:
            ConflictError: something else is at the place, or it was written to since the last backup.
            VersionReclaimedError: cleanup took what was to be copied, again and again.
        """
        return maintenance.backup(self.session, target, keep=keep, storage_options=storage_options)

    def embed(self, *, branch: str | None = None, **options: Unpack[EmbedOptions]) -> EmbedReceipt:
        """Bring the vectors of `@embed` properties up to date, as one commit: after the model has changed, say.

        What is right stays as it is. A text that was embedded before is not asked for again.

        Args:
            which: `stale` (what is missing, and all vectors of a property that another model made, or that were made
                from the texts of another property), `missing`, or `all`.
            types: node types, one or several; by default all.
            properties: vectors, one or several; by default all.
            branch: the branch; by default that of the handle.
            expect_head: write only if this commit is the branch head.
            timeout: how many seconds it may wait for its turn and retry after other commits; by default 60.
            message: the message of the commit.
            labels: the labels of the commit, a mapping of names to texts.
            memory_budget: the memory for vectors; vectors beyond it spill to temporary files.
            progress: is called with the progress. An error that it raises ends the work.
            check: compute the vectors, and write nothing.
            engine: `local`, `spark`, or `auto`, which chooses Spark for large tables.
            spark: the settings of work on Spark.
            cancel: stops the work from another thread, until it is committed.
            chosen: is called with the engine that was chosen, and the reason.
            options: the arguments from `which` on.

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
            EmbeddingModelError: the schema records another model than the one that is configured.
            EmbeddingError: vectors cannot be computed. Nothing was written.
            CancelledError: it was told to stop.
        """
        return embed(self.session, EmbedRequest(branch=branch, **options))

    def write_tables(self, request: WriteRequest, prepare: Prepare) -> Commit | None:
        """Write Arrow batches to tables as one commit, without any check of values.

        Args:
            request: the metadata and the preconditions of the commit.
            prepare: makes the table writes from the state of the branch.

        Raises:
            ReadOnlyError: the handle was opened to read.
        """
        return write_tables(self.session, request, prepare)

    def close(self) -> None:
        """Drop all caches, and refuse further reads and writes. Snapshots stay readable. May be called twice."""
        self.session.close()

    def __repr__(self) -> str:
        return f"<Graph '{self.uri}' on {self.default_branch}>"

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
