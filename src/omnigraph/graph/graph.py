"""The handle of an open graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar, overload

import pyarrow as pa

from omnigraph.commit import hidden, snapshots
from omnigraph.commit.attempts import write
from omnigraph.commit.copy_record import refuse_half_copy
from omnigraph.commit.create import create_graph
from omnigraph.commit.formats import bring_up_to_date
from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.names import branch_name
from omnigraph.commit.place import settle_place
from omnigraph.commit.recovery import recover_all
from omnigraph.commit.registry import check_tables
from omnigraph.commit.said import check_actor
from omnigraph.commit.schema_files import ContractWatch, past_contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.commit.writer import Prepare, Prepared, TableWrite, WriteRequest
from omnigraph.embed import Embedder, default_embedder
from omnigraph.errors import (
    CorruptionError,
    InputError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
    ReadSetChangedError,
    shown,
)
from omnigraph.graph.branch import BranchHandle
from omnigraph.graph.collections import Branches, Commits, Recovery, Tags
from omnigraph.graph.compiled import CompiledQueries
from omnigraph.graph.embedding import EmbedRequest, embed, several, which_of
from omnigraph.graph.loading import LoadRequest, load, load_mode
from omnigraph.graph.merging import MergeRequest, merge
from omnigraph.graph.mutating import mutate
from omnigraph.graph.pipelines import Pipeline, pipeline_of
from omnigraph.graph.preconditions import ListedRead, check_unchanged, unchanged
from omnigraph.graph.reading import QueryText, ReadRequest, aside, explain, query, query_text
from omnigraph.lang.schema import AcceptedSchema, Catalog
from omnigraph.merge.choices import Resolutions, Strategy
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.blobs import Blob, find_blob
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.context.views import Views
from omnigraph.read.export.export import exported
from omnigraph.read.export.files import ExportFormat, ExportReceipt, Target, write_export
from omnigraph.read.plan.explanation import Explanation
from omnigraph.read.result.result import Result
from omnigraph.storage.objects import probe_create_if_absent
from omnigraph.storage.objects.room import unless_full
from omnigraph.storage.uri import GraphUri, check_directory
from omnigraph.upkeep.backup import CopyReceipt, backup
from omnigraph.upkeep.cleanup import ORPHANS_OLDER_THAN, CleanupReport, cleanup
from omnigraph.upkeep.indexes import IndexCoverage, IndexReceipt, ensure_indexes
from omnigraph.upkeep.indexes import coverage as index_coverage
from omnigraph.upkeep.optimize import ROWS_PER_FRAGMENT, OptimizeReceipt, optimize
from omnigraph.upkeep.reachable import Policy
from omnigraph.upkeep.repair import RepairReport
from omnigraph.upkeep.repair import repair as repair_store
from omnigraph.upkeep.vectors import EmbedProgress, EmbedReceipt, Which
from omnigraph.upkeep.verify_files import verify_files
from omnigraph.write.blobs import BlobPolicy
from omnigraph.write.checks import Room
from omnigraph.write.load import LoadMode, LoadProgress, LoadReceipt
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.sources import LoadSource
from omnigraph.write.spill import memory_budget
from omnigraph.write.table_mapping import MappingSource, TableMapping
from omnigraph.write.verify import IntegrityReport, verify

Piece = TypeVar("Piece")

FSYNC_VARIABLE = "OMNIGRAPH_FSYNC"
"""Set to `0`, commits to a local directory are not forced to disk: for tests and measurements."""

At = Snapshot | str | datetime | int
"""A state of the graph: a snapshot, a commit id or a tag; or of a branch, a time or a manifest version."""


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
    check_actor(actor)
    blobs = BlobPolicy.allowing(blob_sources, storage_options)
    store = _store(uri, storage_options)
    create_graph(store, _schema_text(schema), force=force)
    return Graph(store, branch=MAIN, read_only=False, actor=actor, embedder=embedder, blobs=blobs)


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
    check_actor(actor)
    blobs = BlobPolicy.allowing(blob_sources, storage_options)
    store = _store(uri, storage_options)
    if store.newest(MAIN, None) is None:
        refuse_half_copy(store.objects)
        raise NotFoundError(
            f"there is no graph at {store.objects.uri}",
            hint="create one with 'omnigraph init'; if there was one, put its __manifest back from a backup",
        )
    if not read_only:
        with unless_full():
            probe_create_if_absent(store.objects)
    try:
        return Graph(store, branch=branch, read_only=read_only, actor=actor, embedder=embedder, blobs=blobs)
    except (NotFoundError, CorruptionError):
        refuse_half_copy(store.objects)  # a copy gets its schema files last
        raise


def repair(
    uri: str | os.PathLike[str],
    *,
    confirm: bool = False,
    force: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> RepairReport:
    """Repair a graph that may be too damaged to be opened: nothing is settled first. See `Graph.repair`.

    Raises:
        NotFoundError: there is no graph.
    """
    store = _store(uri, storage_options)
    if not store.objects.list(store.manifest.path):
        raise NotFoundError(
            f"there is no graph at {store.objects.uri}", hint="if there was one, put its __manifest back from a backup"
        )
    return repair_store(store, confirm=confirm, force=force)


def _store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Store:
    address = GraphUri.parse(os.fspath(uri), storage_options)
    check_directory(address)
    return Store.at(address, durable=os.environ.get(FSYNC_VARIABLE) != "0")


def _schema_text(schema: str | os.PathLike[str]) -> str:
    """The source, given as text or as the path of a `.pg` file."""
    if isinstance(schema, str) and ("{" in schema or "\n" in schema or not schema.strip()):
        return schema
    path = Path(schema)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the schema {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the schema {path} is not UTF-8") from error


class Graph:
    """An open graph. Safe to use from many threads; a context manager.

    Attributes:
        default_branch: the branch that is meant when none is named.
        actor: who the commits through this handle are by.
        branches: the branches of the graph.
        commits: its history.
        tags: named commits.
        recovery: the interrupted writes that were settled.
    """

    def __init__(
        self,
        store: Store,
        *,
        branch: str,
        read_only: bool,
        actor: str | None,
        embedder: Embedder | None = None,
        blobs: BlobPolicy | None = None,
    ) -> None:
        self._store = store
        self.read_only = read_only
        self.actor = actor
        self._embedder = embedder
        self._blobs = blobs or BlobPolicy()
        self.default_branch = branch
        bring_up_to_date(store, read_only=read_only)
        if not read_only:
            settle_place(store)
            hidden.reclaim(store)
            with unless_full():
                recover_all(store)
        self._contract = ContractWatch(store.objects, lambda: store.capture(MAIN))
        self._schemas: dict[str, tuple[str, AcceptedSchema]] = {}
        self._past_schemas: dict[str, tuple[str, AcceptedSchema]] = {}
        self._compiled = CompiledQueries()
        self._views = Views()
        self._source, self._accepted = self._schema_of(store.capture(MAIN))
        if branch != MAIN:
            self._source, self._accepted = self._schema_of(store.capture(branch))
        self.branches = Branches(store, self._writable, branch)
        self.commits = Commits(store, branch)
        self.tags = Tags(store, self._writable)
        self.recovery = Recovery(store)

    @property
    def uri(self) -> str:
        return str(self._store.objects.uri)

    @property
    def embedder(self) -> Embedder:
        """What turns texts into vectors here: the embedder that was given, or the one the environment asks for.

        Raises:
            EmbeddingError: the environment asks for something that cannot be had.
        """
        if self._embedder is None:
            self._embedder = default_embedder()
        return self._embedder

    @property
    def catalog(self) -> Catalog:
        """The types of the accepted schema."""
        return self._accepted.catalog

    @property
    def accepted_schema(self) -> AcceptedSchema:
        """The accepted schema with its stable identities."""
        return self._accepted

    @property
    def schema_source(self) -> str:
        """The accepted schema as it was written."""
        return self._source

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
        if sum(given is not None for given in (commit, version, at)) > 1:
            raise InputError("name one of commit, version and at")
        if commit is not None:
            if branch is not None:
                raise InputError("a commit belongs to one branch already: name only the commit")
            return snapshots.at_commit(self._store, commit)
        target = branch if branch is not None else self.default_branch
        if version is not None:
            return snapshots.at_version(self._store, target, version)
        if at is not None:
            return snapshots.at_time(self._store, target, _micros(at))
        return snapshots.at_branch(self._store, target)

    def entity(self, type_name: str, entity_id: str, *, at: At | None = None) -> dict[str, object] | None:
        """One node or edge by id, or None.

        Args:
            type_name: a node type, or an edge type; where both share a name, `node:<Type>` or `edge:<Type>`.
            entity_id: its id.
            at: a snapshot, a commit id or a tag; by default the newest state of the handle's branch.
        """
        return self._view(None, at).entity(self._type_key(type_name), entity_id)

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
        view = self._view(branch, at)
        return find_blob(view, self._schema_at(view), self._type_key(type_name), entity_id, property)

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
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
    ) -> ExportReceipt: ...

    def export(
        self,
        target: Target | None = None,
        *,
        format: ExportFormat | str = "ndjson",
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
    ) -> ExportReceipt | Iterator[bytes] | Iterator[tuple[str, pa.RecordBatch]]:
        """Export one snapshot. The same content gives the same bytes, however the graph came to it.

        Args:
            target: a file for NDJSON, or a file that is open for writing bytes; a new directory for Parquet and
                Arrow, which have a file for each type. A path, or `s3://bucket/path`, which is reached with the storage
                options of the handle. Without it, what would be written comes as an iterator: of pieces of NDJSON, or
                of type keys and Arrow batches.
            format: `ndjson`, `parquet` or `arrow`. `load` takes each of them back.
            types: a name or several; a name that a node type and an edge type share means both. By default all.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.

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
        try:
            format = ExportFormat(format)
        except ValueError:
            raise InputError(f"'{format}' is not a format", hint="ndjson, parquet or arrow") from None
        view = self._view(branch, at)
        parts = exported(view, self._schema_at(view), types)
        if target is not None:
            with reading(self._store.leases, WorkKind.EXPORT, view.manifest):
                return write_export(view, parts, target, format)
        if format is ExportFormat.NDJSON:
            return self._exporting(view, (text for part in parts for text in part.lines()))
        if format is ExportFormat.ARROW:
            return self._exporting(view, ((part.key, batch) for part in parts for batch in part.batches()))
        raise InputError("Parquet is written to a directory", hint="name one, or take format arrow for batches")

    def _exporting(self, view: Snapshot, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Pieces of an export, with a record from the first one until the last one is taken."""
        with reading(self._store.leases, WorkKind.EXPORT, view.manifest):
            yield from pieces

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
        view = self._view(branch, at)
        with at_work(self._store.leases, WorkKind.PIN, view.manifest):
            yield view

    def query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run a query that reads. All of it sees one snapshot.

        Args:
            text: a query, or several of which `name` says one; or the path of a `.gq` file.
            params: its parameters by name, without `$`.
            name: the query.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
            budget: what it may take of time, memory and rows.
            cancel: stops it from another thread.

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
        request = ReadRequest(query_text(text), params or {}, name, budget or Budget(), cancel or Cancellation())
        return query(self, request, self._view(branch, at), named=at is not None)

    async def async_query(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run a query that reads, as `query` does, in a thread of its own. Cancelling the task stops it."""
        stop = cancel or Cancellation()
        work = partial(self.query, text, params, name=name, branch=branch, at=at, budget=budget, cancel=stop)
        return await aside(work, stop)

    def explain(
        self,
        text: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        analyze: bool = False,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
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
        request = ReadRequest(query_text(text), params or {}, name, budget or Budget(), cancel or Cancellation())
        return explain(self, request, self._view(branch, at), named=at is not None, analyze=analyze)

    def _view(self, branch: str | None, at: At | None) -> Snapshot:
        """The snapshot that a read means."""
        if at is None:
            return self.snapshot(branch=branch)
        if isinstance(at, datetime):
            return self.snapshot(branch=branch, at=at)
        if isinstance(at, int):
            return self.snapshot(branch=branch, version=at)
        if branch is not None:
            raise InputError("a snapshot or commit belongs to one branch already: name only that")
        if isinstance(at, str):
            return self.snapshot(commit=at)
        if at.uri != self._store.objects.uri:
            raise InputError(f"this snapshot is of another graph, {at.uri}")
        return at

    def _schema_at(self, view: Snapshot) -> AcceptedSchema:
        """The schema that a snapshot was written with; other schemas may have followed it."""
        found = self._schemas.get(view.schema_hash) or self._past_schemas.get(view.schema_hash)
        if found is None:
            found = past_contract(self._store.objects, view.schema_hash) or self._schema_of(view.manifest)
            self._past_schemas[view.schema_hash] = found
        return found[1]

    def _type_key(self, name: str) -> str:
        if ":" in name:
            return name
        return f"edge:{name}" if name in self.catalog.edges and name not in self.catalog.nodes else f"node:{name}"

    def branch(self, name: str | None = None) -> BranchHandle:
        """One branch, as a handle: what is read and written through it is that branch's.

        Args:
            name: the branch; by default the handle's own.

        Raises:
            InputError: no branch can be called that.
        """
        return BranchHandle(self, branch_name(self.default_branch if name is None else name))

    def refresh(self) -> Snapshot:
        """See what others have committed, and settle what they left half done."""
        self._store.forget(self.default_branch)
        if not self.read_only:
            hidden.reclaim(self._store)
            recover_all(self._store)
        self._schemas.clear()
        self._source, self._accepted = self._schema_of(self._store.capture(self.default_branch))
        return self.snapshot()

    def load(
        self,
        source: LoadSource,
        *,
        mode: LoadMode | str,
        type_name: str | None = None,
        mapping: MappingSource | None = None,
        lenient: bool = False,
        branch: str | None = None,
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
        """Load rows as one commit. Everything is checked first; one wrong record, and nothing is written.

        Args:
            source: an NDJSON, CSV, Parquet or Arrow file, several of them, a directory or a pattern; a mapping of
                type names to tables of any library that speaks Arrow, to lists of mappings, or to files; a list of
                records; or a stream of NDJSON.
            mode: `append` (every id is new), `merge` (replaces what exists) or `overwrite` (replaces whole types).
            type_name: the type in a CSV, Parquet or Arrow file whose name does not say it, or in a table.
            mapping: what tables are whose columns are not named like the properties: a YAML or JSON file, or what
                would be in it.
            lenient: read what the strict reader would refuse, as far as that makes sense; the receipt says what was
                changed.
            branch: where to; by default the handle's branch.
            base: a branch to fork the target from if there is no such branch yet. When the load then fails, the
                target is gone again.
            expect_head: load only if this commit is the branch head.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, what each of its conditions matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that it may wait for its turn, and be run again after others; by default 60.
            idempotency_key: a load with a key that a commit of the branch carries is not repeated: it gets the
                receipt of the first.
            message: the commit's.
            embed: compute the `@embed` vectors that the input leaves out. Without it, those stay null, and one that is
                required is missed.
            memory_budget: how much memory the rows may take, in bytes or as in `"2 GiB"`; what exceeds it is put aside
                in temporary files. By default what `OMNIGRAPH_LOAD_MEMORY` says, else one GiB.
            progress: is told how far the load has come. An error that it raises ends the load.
            check: check everything, and write nothing. The receipt has no commit.

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
        self._writable()
        request = LoadRequest(
            load_mode(mode),
            self.default_branch if branch is None else branch,
            base=base,
            type_name=type_name,
            mapping=self._mapping(mapping),
            lenient=lenient,
            expect_head=expect_head,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
            idempotency_key=idempotency_key,
            message=message,
            embed=embed,
            memory_budget=memory_budget,
            progress=progress,
            check=check,
        )
        return load(self, source, request)

    def _mapping(self, given: MappingSource | None) -> TableMapping | None:
        return None if given is None else TableMapping.read(given, self._store.objects.uri.storage_options)

    def merge(
        self,
        source: str,
        into: str = MAIN,
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
        """Bring what a branch has done to another, as one commit.

        Rows are compared by id in three versions: as they were at the best common ancestor of both heads, and as each
        branch has them now. Several best ancestors are merged with each other first. What only one branch has changed
        is taken. What both have changed in different ways is a conflict, and so is what breaks a constraint once it
        comes together; with one conflict, nothing is written.

        Args:
            source: the branch to merge. Its head is fixed when the merge begins.
            into: the branch that gets the commit.
            strategy: which side is right in every conflict: `ours` is the target, `theirs` the source.
            resolutions: which side is right in single conflicts: by conflict, as a preview gives them, or by type and
                id. It comes before the strategy.
            preview: say what would happen, conflicts included, and write nothing.
            delete_branch: delete the source afterwards. That it cannot be deleted does not undo the merge.
            message: the commit's.
            labels: the commit's.
            expect_head: merge only if this commit is the head of the target.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, what each of its conditions matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that it may wait for its turn, and be run again after others; by default 60.
            idempotency_key: a merge with a key that a commit of the target carries is not repeated.
            memory_budget: how much memory rows may take; beyond it they are put into temporary files.

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
        request = MergeRequest(
            source,
            into,
            strategy,
            resolutions,
            preview,
            delete_branch,
            message,
            labels,
            expect_head,
            idempotency_key,
            memory_budget,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
        )
        return merge(self, request)

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
        name: str | None = None,
        branch: str | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a query that writes, as one commit.

        Args:
            text: a query, or several of which `name` says one; or the path of a `.gq` file.
            params: its parameters by name.
            name: the query.
            branch: where to; by default the handle's branch.
            expect_head: write only if this commit is the branch head.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, what each of its conditions matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that it may wait for its turn, and be run again after others; by default 60.
            idempotency_key: a request with a key that a commit of the branch carries is not repeated: it gets the
                receipt of the first.
            message: the commit's.

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
        self._writable()
        request = WriteRequest(
            branch=branch_name(branch if branch is not None else self.default_branch),
            kind=WriterKind.MUTATION,
            actor=self.actor,
            message=message,
            expect_head=expect_head,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
            idempotency_key=idempotency_key,
        )
        return mutate(self, query_text(text), {} if params is None else params, name, request)

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
        view = self.snapshot(branch=branch, commit=commit)
        entities = {key: pin.row_count for key, pin in view.tables.items()}
        with reading(self._store.leases, WorkKind.VERIFY, view.manifest):
            files = verify_files(self._store, view.manifest)
            if files.lost:
                return IntegrityReport(view.branch, view.commit, entities, (), 0, files)
            found = verify(self._schema_at(view), view, Room(memory_budget(None)))
        return IntegrityReport(view.branch, view.commit, entities, tuple(found.first), found.total, files)

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
        if confirm:
            self._writable()
        return repair_store(self._store, confirm=confirm, force=force)

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
        view = self._view(branch, at)
        return index_coverage(view, self._schema_at(view).catalog)

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
        self._writable()
        target = branch_name(self.default_branch if branch is None else branch)
        receipt = ensure_indexes(self._store, target, lambda view: self._checked_schema(view).catalog)
        view = self._view(target, None)
        self._views.of(view, self._schema_at(view)).topologies.make_all()
        return receipt

    def optimize(self, *, rows_per_fragment: int = ROWS_PER_FRAGMENT) -> OptimizeReceipt:
        """Pack the rows of `main` into few files, and bring its indexes up to date, as one commit.

        No answer changes by it, no row id, and no feed of changes has anything to tell. When there is nothing to do,
        there is no commit. What rows were packed from stays until `cleanup`.

        Args:
            rows_per_fragment: about how many rows a file has afterwards.

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
        self._writable()
        receipt = optimize(
            self._store, lambda view: self._checked_schema(view).catalog, rows_per_fragment=rows_per_fragment
        )
        return replace(receipt, why="in this process")

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
        if not preview:
            self._writable()
        return cleanup(self._store, policy, preview=preview)

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
        options = dict(self._store.objects.uri.storage_options) if storage_options is None else storage_options
        return backup(self._store, _store(target, options), keep=keep, hold=not self.read_only)

    def embed(
        self,
        *,
        which: Which | str = Which.STALE,
        types: str | Sequence[str] = (),
        properties: str | Sequence[str] = (),
        branch: str | None = None,
        expect_head: str | None = None,
        message: str | None = None,
        memory_budget: int | str | None = None,
        progress: Callable[[EmbedProgress], None] | None = None,
        cancel: Cancellation | None = None,
        check: bool = False,
    ) -> EmbedReceipt:
        """Bring the vectors of `@embed` properties up to date, as one commit: after the model has changed, say.

        What is right stays as it is. A text that was embedded before is not asked for again.

        Args:
            which: `stale` (what is missing, and all vectors of a property that another model made, or that were made
                from the texts of another property), `missing`, or `all`.
            types: node types, one or several; by default all.
            properties: vectors, one or several; by default all.
            branch: where; by default the handle's branch.
            expect_head: do it only if this commit is the branch head.
            message: the commit's.
            memory_budget: how much memory vectors may take; what exceeds it is put aside in temporary files.
            progress: is told how far it has come. An error that it raises ends the work.
            cancel: stops it from another thread, until it is committed.
            check: compute what there is to compute, and write nothing.

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
        self._writable()
        asked = EmbedRequest(
            branch_name(self.default_branch if branch is None else branch),
            which_of(which),
            several(types),
            several(properties),
            expect_head=expect_head,
            message=message,
            memory_budget=memory_budget,
            progress=progress,
            cancel=cancel or Cancellation(),
            check=check,
        )
        return embed(self, asked)

    def write_tables(self, request: WriteRequest, prepare: Prepare) -> Commit | None:
        """Write Arrow batches to tables as one commit: the engine's own way in, below all checks of values.

        Args:
            request: what is said about the write; without an actor, it is by the handle's.
            prepare: makes the batches from what the branch holds.

        Raises:
            ReadOnlyError: the handle was opened to read.
        """
        self._writable()
        if request.actor is None:
            request = replace(request, actor=self.actor)

        def prepare_checked(view: Manifest) -> Sequence[TableWrite] | Prepared:
            self._check_contract(view)
            schema = self._schema_of(view)
            if view.branch == self.default_branch:
                self._source, self._accepted = schema
            prepared = prepare(view)
            if request.unchanged is None:
                return prepared
            if not isinstance(prepared, Prepared):
                prepared = Prepared(prepared)
            return check_unchanged(self, view, prepared, request.unchanged)

        commit = write(self._store, request, prepare_checked)
        if request.schema is not None and request.branch == self.default_branch:
            self._source, self._accepted = self._schema_of(self._store.capture(self.default_branch))
        return commit

    def _check_contract(self, view: Manifest) -> None:
        """Notice that the schema files were changed from outside, unless another commit has just changed the schema."""
        try:
            self._contract.check(view)
        except OmnigraphError:
            now = self._store.capture(view.branch)
            if now.version != view.version:
                raise ReadSetChangedError("schema", view.schema_hash, now.schema_hash) from None
            raise

    def _checked_schema(self, view: Manifest) -> AcceptedSchema:
        """The schema that a branch follows, for a write that needs nothing else of the graph."""
        self._check_contract(view)
        return self._schema_of(view)[1]

    def _schema_of(self, view: Manifest) -> tuple[str, AcceptedSchema]:
        """The schema that a branch follows now: another handle may have changed it, and branches may differ."""
        found = self._schemas.get(view.schema_hash)
        if found is None:
            found = self._contract.read(view)
            check_tables(found[1], view)
            self._schemas[view.schema_hash] = found
        return found

    def close(self) -> None:
        """Forget everything that is cached, and refuse to read or write through this handle from now on.

        Snapshots that were taken before can still be read. Closing twice is harmless.
        """
        self._views.clear()
        self._store.close()

    def __repr__(self) -> str:
        return f"<Graph '{self.uri}' on {self.default_branch}>"

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("this graph was opened to read only", hint="open it without read_only")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(at: object) -> int:
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InputError(f"at: {shown(at)} is not a time", hint="give a datetime, or a text: 2026-03-14T09:30:00Z")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
