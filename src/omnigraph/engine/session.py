"""Shared state of the verbs of one open graph: store, schemas, compiled queries, views, embedder and actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.commit import snapshots, transaction_branches
from omnigraph.commit.format_upgrade import upgrade_format
from omnigraph.commit.location import adopt_location
from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.recover_all import recover_all
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.engine.compiled_queries import CompiledQueries
from omnigraph.engine.schemas import Schemas, SchemaVersion
from omnigraph.errors import InputError, NotFoundError, ReadOnlyError, shown
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.read.context.views import View, Views
from omnigraph.storage.objects.disk_space import unless_full

if TYPE_CHECKING:
    from omnigraph.changes.added_properties import AddedProperties
    from omnigraph.changes.aligned_types import GraphState
    from omnigraph.changes.diff import Reading
    from omnigraph.changes.feed import Feed
    from omnigraph.embed import Embedder
    from omnigraph.write.external_blobs import BlobPolicy

At = Snapshot | str | datetime | int
"""A state of the graph: a snapshot, commit id or tag; or a time or manifest version of a branch."""


class Session:
    """One open graph. Safe to use from many threads.

    Opening for writing first migrates the storage format, relocates a moved graph and runs recovery.

    Args:
        store: the graph.
        branch: the default branch of requests.
        read_only: refuse all writes.
        actor: the recorded author of commits.
        embedder: computes vectors from texts; by default from the environment.
        blobs: the allowed locations of external blobs; by default none.

    Attributes:
        format: the storage format of the graph.
        schemas: the schemas of branches and old commits.
        compiled: a cache of compiled queries.
        views: a cache of columns and topologies of recent snapshots.
        reading: access to the tables for diffs and the change feed.
        feed: the change feed.
    """

    def __init__(
        self,
        store: Store,
        *,
        branch: str = MAIN,
        read_only: bool = False,
        actor: str | None = None,
        embedder: Embedder | None = None,
        blobs: BlobPolicy | None = None,
    ) -> None:
        self.store = store
        self.default_branch = branch
        self.read_only = read_only
        self.actor = actor
        self._blobs = blobs
        self._embedder = embedder
        self.format = upgrade_format(store, read_only=read_only)
        if not read_only:
            adopt_location(store)
            transaction_branches.reclaim(store)
            with unless_full():
                recover_all(store)
        self.schemas = Schemas(store)
        self.compiled = CompiledQueries()
        self.views = Views()
        self.schema: SchemaVersion = self.schemas.version_of(store.capture(MAIN))
        """The schema of the default branch, as this session last read it."""
        if branch != MAIN:
            self.schema = self.schemas.version_of(store.capture(branch))

    @cached_property
    def reading(self) -> Reading:
        """Access to the tables for diffs and the change feed."""
        from omnigraph.changes.diff import Reading

        return Reading(self.store.tables, self.store.leases)

    @cached_property
    def feed(self) -> Feed:
        """The change feed."""
        from omnigraph.changes.feed import Feed

        return Feed(self.store, self.graph_state, self.reading)

    @cached_property
    def blobs(self) -> BlobPolicy:
        """The allowed locations of external blobs."""
        from omnigraph.write.external_blobs import BlobPolicy

        return BlobPolicy.allowing((), self.storage_options) if self._blobs is None else self._blobs

    @property
    def uri(self) -> str:
        return str(self.store.objects.uri)

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options of the graph."""
        return self.store.objects.uri.storage_options

    @property
    def accepted(self) -> AcceptedSchema:
        """The schema of the default branch, as this session last read it."""
        return self.schema[1]

    @property
    def embedder(self) -> Embedder:
        """The given embedder, or the embedder that the environment configures.

        Raises:
            EmbeddingError: the configured embedder is not available.
        """
        if self._embedder is None:
            from omnigraph.embed import default_embedder

            self._embedder = default_embedder()
        return self._embedder

    def require_writable(self) -> None:
        """Check that the session can write.

        Raises:
            ReadOnlyError: the session is read-only.
        """
        if self.read_only:
            raise ReadOnlyError("this graph was opened read-only", hint="open it without read_only")

    def branch_or_default(self, branch: str | None) -> str:
        """Validate a branch name. The default is the branch of the session.

        Raises:
            InputError: the name is not valid.
        """
        return branch_name(self.default_branch if branch is None else branch)

    def commit_id(self, text: str | None) -> str | None:
        """The id of a commit, given its id, the beginning of it, or a tag. Unknown ids stay as they are.

        Raises:
            InputError: several commits have ids with this beginning.
        """
        from omnigraph.commit.lineage import full_commit_id

        return full_commit_id(self.store, text) if isinstance(text, str) else text

    def expected_head(self, text: str | None) -> str | None:
        """The id of the commit that a precondition names. Full ids are not searched.

        Raises:
            InputError: several commits have ids with this beginning.
            NotFoundError: there is no such commit and no such tag.
        """
        from omnigraph.commit.lineage import expected_commit_id

        return expected_commit_id(self.store, text) if isinstance(text, str) else text

    def snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> Snapshot:
        """The state of a branch, a commit, a manifest version or a time.

        Raises:
            InputError: more than one of the arguments is given.
            NotFoundError: there is no such state.
            VersionReclaimedError: cleanup has removed the state.
        """
        if sum(given is not None for given in (commit, version, at)) > 1:
            raise InputError("give only one of commit, version and at")
        if commit is not None:
            if branch is not None:
                raise InputError("give commit or branch, not both: a commit already belongs to a branch")
            return snapshots.at_commit(self.store, commit)
        target = branch if branch is not None else self.default_branch
        if version is not None:
            return snapshots.at_version(self.store, target, version)
        if at is not None:
            return snapshots.at_time(self.store, target, _micros(at))
        return snapshots.at_branch(self.store, target)

    def snapshot_at(self, branch: str | None, at: At | None) -> Snapshot:
        """The snapshot to read; by default the newest state of the branch.

        Raises:
            InputError: the snapshot belongs to another graph, or both a branch and a commit are given.
            NotFoundError: there is no such state.
        """
        if at is None:
            return snapshots.at_branch(self.store, self.default_branch if branch is None else branch)
        if isinstance(at, datetime):
            return self.snapshot(branch=branch, at=at)
        if isinstance(at, int):
            return self.snapshot(branch=branch, version=at)
        if branch is not None:
            raise InputError("give 'at' or 'branch', not both: a snapshot or commit already belongs to a branch")
        if isinstance(at, str):
            try:
                return self.snapshot(commit=at)
            except NotFoundError as error:
                if not is_time(at):
                    raise
                raise NotFoundError(error.message, hint="for a time, give a datetime") from None
        if not isinstance(at, Snapshot):
            raise InputError(
                f"{shown(at)} is not a state of a graph",
                hint="give a commit id, a tag, a time, a manifest version or a snapshot",
            )
        if at.uri != self.store.objects.uri:
            raise InputError(f"this snapshot belongs to another graph, {at.uri}")
        return at

    def graph_state(self, view: Manifest) -> GraphState:
        """A state of the graph with its schema."""
        from omnigraph.changes.aligned_types import GraphState

        return GraphState(view, self.schemas.at(Snapshot(self.store, view)))

    def added_properties(self, view: Manifest) -> AddedProperties:
        """The properties that schema changes before a state have added, with the values that they filled in."""
        return self.schemas.added_properties(view)

    def view_of(self, snapshot: Snapshot) -> View:
        """The columns and topologies of a snapshot."""
        return self.views.of(snapshot, self.schemas.at(snapshot))

    def type_key(self, name: str, view: Snapshot | None = None) -> str:
        """The key of a type: `node:<Type>` or `edge:<Type>`. For an ambiguous name, the node type.

        Args:
            name: the name of the type, or its key.
            view: the state in which the type has this name; by default the state that the session last read.
        """
        if not isinstance(name, str):
            raise InputError(f"{shown(name)} is not the name of a type")
        if ":" in name:
            return name
        catalog = (self.accepted if view is None else self.schemas.at(view)).catalog
        return edge_key(name) if name in catalog.edges and name not in catalog.nodes else node_key(name)

    def type_keys(self, branch: str) -> Callable[[str], str]:
        """A function that returns the key of a type by its name on a branch. It reads the branch on its first call."""
        known: list[Snapshot] = []

        def key(name: str) -> str:
            if not known:
                known.append(snapshots.at_branch(self.store, branch))
            return self.type_key(name, known[0])

        return key

    def refresh(self) -> Snapshot:
        """Read the newest state. A writable session also runs recovery."""
        self.store.forget(self.default_branch)
        if not self.read_only:
            transaction_branches.reclaim(self.store)
            recover_all(self.store)
        self.schemas.clear()
        self.schema = self.schemas.version_of(self.store.capture(self.default_branch))
        return self.snapshot()

    def close(self) -> None:
        """Drop all caches, and refuse further reads and writes. Snapshots stay readable. Safe to call twice."""
        self.views.clear()
        self.store.close()


def is_time(text: str) -> bool:
    """Whether a text is a time, such as 2026-03-14T09:30:00Z."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


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
