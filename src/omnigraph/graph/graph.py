"""The handle of an open graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from omnigraph.commit import snapshots
from omnigraph.commit.create import create_graph, created_at, record_place
from omnigraph.commit.formats import bring_up_to_date
from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.names import branch_name
from omnigraph.commit.recovery import recover_all
from omnigraph.commit.registry import check_tables
from omnigraph.commit.schema_files import read_contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.commit.writer import Prepare, TableWrite, WriteRequest, write
from omnigraph.errors import InputError, MovedGraphError, NotFoundError, ReadOnlyError, ReadSetChangedError
from omnigraph.graph.collections import Branches, Commits, Recovery, Tags
from omnigraph.lang.schema import AcceptedSchema, Catalog, ir_hash
from omnigraph.storage.objects import probe_create_if_absent
from omnigraph.storage.uri import GraphUri, Scheme
from omnigraph.write.load import Load, LoadMode, LoadReceipt
from omnigraph.write.sources import ArrowStream, open_files, open_tables

FSYNC_VARIABLE = "OMNIGRAPH_FSYNC"
"""Set to `0`, commits to a local directory are not forced to disk: for tests and measurements."""


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Graph:
    """Create a graph and open it.

    Args:
        uri: where: a directory, or `s3://bucket/prefix`.
        schema: the schema's source text, or the path of a `.pg` file.
        force: replace schema files that a failed creation left. Never touches a graph.
        actor: who the commits through this handle are by.
        storage_options: how to reach the place.

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
    store = _store(uri, storage_options)
    create_graph(store, _schema_text(schema), force=force)
    return Graph(store, branch=MAIN, read_only=False, actor=actor)


def open(
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    read_only: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Graph:
    """Open a graph.

    Opening for writing first settles what interrupted writers left. Opening to read changes nothing at all.

    Args:
        uri: where the graph is.
        branch: the branch that reads and writes mean when they name none.
        read_only: refuse every write through this handle.
        actor: who the commits through this handle are by.
        storage_options: how to reach the place.

    Raises:
        NotFoundError: there is no graph, or a schema file is missing.
        BranchNotFoundError: there is no such branch.
        FormatError: the graph is in a format that this release does not read.
    """
    store = _store(uri, storage_options)
    if store.manifest.open() is None:
        raise NotFoundError(f"there is no graph at {store.objects.uri}", hint="create one with 'omnigraph init'")
    if not read_only:
        probe_create_if_absent(store.objects)
    return Graph(store, branch=branch, read_only=read_only, actor=actor)


def _store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Store:
    address = GraphUri.parse(os.fspath(uri), storage_options)
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
        branch: the branch that is meant when none is named.
        actor: who the commits through this handle are by.
        branches: the branches of the graph.
        commits: its history.
        tags: named commits.
        recovery: the interrupted writes that were settled.
    """

    def __init__(self, store: Store, *, branch: str, read_only: bool, actor: str | None) -> None:
        self._store = store
        self.read_only = read_only
        self.actor = actor
        self.branch = branch
        bring_up_to_date(store, read_only=read_only)
        self._check_place()
        if not read_only:
            recover_all(store)
        self._schemas: dict[str, tuple[str, AcceptedSchema]] = {}
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
        at: datetime | None = None,
    ) -> Snapshot:
        """A view that never changes.

        Args:
            branch: the newest state of a branch; by default the handle's.
            commit: the state that a commit left; a tag's name works too.
            version: a manifest version of the branch.
            at: the branch as it was at a time; without a zone, UTC.

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
        target = branch if branch is not None else self.branch
        if version is not None:
            return snapshots.at_version(self._store, target, version)
        if at is not None:
            return snapshots.at_time(self._store, target, _micros(at))
        return snapshots.at_branch(self._store, target)

    def entity(self, type_name: str, entity_id: str, *, at: Snapshot | str | None = None) -> dict[str, object] | None:
        """One node or edge by id, or None.

        Args:
            type_name: a node type, or an edge type; where both share a name, `node:<Type>` or `edge:<Type>`.
            entity_id: its id.
            at: a snapshot, a commit id or a tag; by default the newest state of the handle's branch.
        """
        view = at if isinstance(at, Snapshot) else self.snapshot(commit=at)
        return view.entity(self._type_key(type_name), entity_id)

    def _type_key(self, name: str) -> str:
        if ":" in name:
            return name
        return f"edge:{name}" if name in self.catalog.edges and name not in self.catalog.nodes else f"node:{name}"

    def refresh(self) -> Snapshot:
        """See what others have committed, and settle what they left half done."""
        self._store.forget(self.branch)
        if not self.read_only:
            recover_all(self._store)
        self._schemas.clear()
        self._source, self._accepted = self._schema_of(self._store.capture(self.branch))
        return self.snapshot()

    def load(
        self,
        source: str | os.PathLike[str] | Mapping[str, ArrowStream],
        *,
        mode: LoadMode | str,
        type_name: str | None = None,
        branch: str | None = None,
        expect_head: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
    ) -> LoadReceipt:
        """Load rows as one commit. Everything is checked first; one wrong record, and nothing is written.

        Args:
            source: an NDJSON, Parquet or Arrow file, a directory of them, or tables by type name from any library
                that speaks Arrow.
            mode: `append` (every id is new), `merge` (replaces what exists) or `overwrite` (replaces whole types).
            type_name: the type in a Parquet or Arrow file whose name does not say it.
            branch: where to; by default the handle's branch.
            expect_head: load only if this commit is the branch head.
            idempotency_key: a load with a key that a commit of the branch carries is not repeated.
            message: the commit's.

        Example:
            >>> import pyarrow, tempfile
            >>> with init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }") as graph:
            ...     graph.load({"Person": pyarrow.table({"name": ["ann", "bob"]})}, mode="append").total
            2

        Raises:
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id exists that should be new.
        """
        try:
            mode = LoadMode(mode)
        except ValueError:
            raise InputError(f"'{mode}' is not a mode", hint="append, merge or overwrite") from None
        self._writable()
        target = branch_name(branch if branch is not None else self.branch)
        _, accepted = self._schema_of(self._store.capture(target))
        load = Load(accepted, mode)
        if isinstance(source, Mapping):
            load.read(open_tables(source, accepted))
        else:
            load.read(open_files(Path(source), accepted, type_name))
        changes = load.changes()

        def prepare(view: Manifest) -> Sequence[TableWrite]:
            if self._schema_of(view)[1] is not accepted:
                raise ReadSetChangedError("schema", ir_hash(accepted), view.schema_hash)
            return load.prepare(Snapshot(self._store, view), changes)

        request = WriteRequest(
            branch=target,
            kind=WriterKind.LOAD,
            actor=self.actor,
            message=message,
            replayable=mode is not LoadMode.OVERWRITE,
            expect_head=expect_head,
            idempotency_key=idempotency_key,
        )
        return load.receipt(target, changes, self.write_tables(request, prepare))

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

        def prepare_checked(view: Manifest) -> Sequence[TableWrite]:
            schema = self._schema_of(view)
            if view.branch == self.branch:
                self._source, self._accepted = schema
            return prepare(view)

        commit = write(self._store, request, prepare_checked)
        if request.schema is not None and request.branch == self.branch:
            self._source, self._accepted = self._schema_of(self._store.capture(self.branch))
        return commit

    def _schema_of(self, view: Manifest) -> tuple[str, AcceptedSchema]:
        """The schema that a branch follows now: another handle may have changed it, and branches may differ."""
        found = self._schemas.get(view.schema_hash)
        if found is None:
            found = read_contract(self._store.objects, view)
            check_tables(found[1], view)
            self._schemas[view.schema_hash] = found
        return found

    def close(self) -> None:
        """Forget everything that is cached. Closing twice is harmless."""
        self._store.forget_all()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError("this graph was opened to read only", hint="open it without read_only")

    def _check_place(self) -> None:
        """Branches hold absolute paths, so a local graph that was moved has lost them."""
        here, there = self._store.objects.uri, created_at(self._store)
        if here.scheme is not Scheme.LOCAL or there is None or _same_place(here.path, there):
            return
        if self._store.manifest.branches():
            raise MovedGraphError(
                f"this graph was created at {there} and is now at {here}: its branches point at the old place",
                hint="move it back, delete the branches there, and move it again; 'main' loses nothing",
            )
        if not self.read_only:
            record_place(self._store)  # branches that are made from now on point here


def _same_place(left: str, right: str) -> bool:
    return os.path.realpath(left) == os.path.realpath(right)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _micros(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
