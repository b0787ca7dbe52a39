"""Shared state of the verbs of one open graph: store, schemas, compiled queries, views, embedder and actor."""

# See docs/decisions/0306-limited-actors-get-restricted-sessions.md

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.commit import snapshots, transaction_branches
from omnigraph.commit.format_upgrade import upgrade_format
from omnigraph.commit.location import adopt_location
from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.recover_all import recover_all
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.engine.access import Access, AccessPolicy, Action, Denial
from omnigraph.engine.compiled_queries import CompiledQueries
from omnigraph.engine.schemas import Schemas, SchemaVersion
from omnigraph.errors import (
    AccessDeniedError,
    InputError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
    shown,
)
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.read.context.views import View, Views
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects.disk_space import unless_full

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.changes.added_properties import AddedProperties
    from omnigraph.changes.aligned_types import GraphState
    from omnigraph.changes.diff import Reading
    from omnigraph.changes.feed import Feed
    from omnigraph.embed import Embedder
    from omnigraph.restricted.row_scope import RowScope, ScopeOf
    from omnigraph.write.external_blobs import BlobPolicy

_BOUND = 256
"""Maximum number of cached sessions of policies and actors."""

_COMPARED, _COMPARED_BYTES = 8, 64 << 20
"""Number of cached comparisons of tables, and the limit of their size. All actors of a graph share them."""

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
        access: the access of the actor to the graph; None without a policy, which allows everything.
        whole: for a restricted session, the session that sees the whole graph; else None.
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
        self.whole: Session | None = None
        self._rules_digest: str | None = None
        self._change_of: ScopeOf | None = None
        self._is_limited = False
        self._owns_whole = False
        self._bound: LruCache[Session] = LruCache(_BOUND)
        self._compared: LruCache[pa.Table] = LruCache(_COMPARED, _COMPARED_BYTES)
        self._blobs = blobs
        self._embedder = embedder
        self.access: Access | None = None
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

    def bound_to(self, policy: AccessPolicy, actor: str | None) -> Session:
        """A session whose verbs obey a policy, with the same store. Sessions of the same policy and actor are cached.

        If the policy limits what the actor reads, or the rows that it changes, the session sees only the visible part
        of the graph, as `restricted` describes. Closing it closes the store of both.

        Args:
            policy: the policy.
            actor: the actor. Without one, the session may do nothing.

        Raises:
            AccessDeniedError: this session has a policy or sees only a part of the graph.
            PolicyError: a rule does not fit the schema of `main`.
        """
        self.require_whole("another restriction")
        main = self.store.capture(MAIN)
        key = (policy.digest, actor, main.schema_hash)
        found = self._bound.get(key)
        if found is not None and found.access is not None and found.access.policy is policy:
            return found
        bound = copy.copy(self)
        for name in ("reading", "feed", "exporting"):
            bound.__dict__.pop(name, None)  # they refer to this session
        bound._bound = LruCache(_BOUND)
        bound.actor = actor
        reference = self.schemas.version_of(main)[1]
        bound.access = access = Access(policy, actor, self.uri, reference, self.former_schemas)
        if not access.reads(None):
            bound.store = self.store.showing(access.reads, access.knows)
        if access.limits:
            bound = bound._limited(access, Action.READ)
        return self._bound.put(key, bound)

    def former_schemas(self) -> Iterable[AcceptedSchema]:
        """All schemas that the graph has had."""
        return self.schemas.former()

    def _limited(self, access: Access, action: Action) -> Session:
        """A session that sees what the actor may read or export, and that changes what the actor may change."""
        made = self.restricted(access.scope_of(action), access.scope_of(Action.CHANGE))
        made._is_limited = made._owns_whole = True
        return made

    @cached_property
    def exporting(self) -> Session:
        """The session that exports read: it sees what the actor may export."""
        if not self._is_limited or self.whole is None or self.access is None:
            return self
        made = self.whole._limited(self.access, Action.EXPORT)
        made.__dict__["exporting"] = made
        return made

    def allow(
        self,
        action: Action,
        branch: str | None = None,
        target_branch: str | None = None,
        *,
        names_branch: bool = True,
    ) -> None:
        """Check that the actor may do something. Without a policy, everything is allowed.

        `Access.require` documents the arguments.

        Raises:
            AccessDeniedError: the policy does not allow it.
        """
        if self.access is not None:
            self.access.require(action, branch, target_branch, names_branch=names_branch)

    def scope(self, action: Action, view: Manifest) -> RowScope | None:
        """The rows and properties of a state that the actor may use; None if the verb does not have to check them.

        So it is without a policy, and in a session that sees only what the policy allows.

        Args:
            action: `read`, `export` or `change`. The caller has checked that it is allowed.
            view: the state.
        """
        if self.access is None or self._is_limited:
            return None
        accepted = self.schemas.at(Snapshot(self.store, view))
        return self.access.scope(action, view.branch, accepted, view.schema_hash)

    def readable(self, branch: str | None, at: At | None, action: Action = Action.READ) -> Snapshot:
        """The snapshot to read, as `snapshot_at`, if the actor may read it.

        Args:
            branch: the branch; by default that of the session.
            at: the state; by default the newest. Exports of a limited actor see another part of a snapshot.
            action: `read` or `export`.

        Raises:
            AccessDeniedError: the policy does not allow it.
        """
        if self.access is None:
            return self.snapshot_at(branch, at)
        if at is None or isinstance(at, datetime | int):
            # Before the branch is looked up, so that a denial does not show whether it exists.
            self.access.require(action, self.branch_or_default(branch))
            view = self.snapshot_at(branch, at)
            self._require_inherited(action, branch, view)
        else:
            with self.hiding_existence(action):
                view = self.snapshot_at(branch, at)
            self.access.require(action, view.branch, names_branch=isinstance(at, Snapshot))
        self.refuse_row_limits(action, view.manifest)
        return view

    def _require_inherited(self, action: Action, branch: str | None, view: Snapshot) -> None:
        """Check that the actor may read a state of a branch from before it was created: that of another branch.

        Raises:
            AccessDeniedError: the policy does not allow it. The error does not name the other branch and its types.
        """
        if self.access is not None and view.branch != self.branch_or_default(branch):
            self.access.require(action, view.branch, names_branch=False)

    @contextmanager
    def hiding_existence(self, action: Action, target_branch: str | None = None) -> Iterator[None]:
        """Look up a commit or tag. If there is none, an actor who is limited to some branches gets a denial instead.

        So such an actor cannot find out whether there are commits on other branches.
        """
        try:
            yield
        except OmnigraphError:
            self.allow(action, target_branch=target_branch)
            raise

    @property
    def lists_branches(self) -> bool:
        """Whether the actor may read all branches, and so may see the names of all branches and tags."""
        return self.access is None or self.access.reads(None)

    @property
    def unrestricted(self) -> Session:
        """The session of the same actor that sees all rows: for work on whole states that shows no rows.

        The actor still needs the actions of the work.
        """
        if self.whole is None:
            return self
        made = copy.copy(self.whole)
        made.actor = self.actor
        return made

    def stored_state(self, view: Manifest) -> Manifest:
        """A state of this session with all rows and types, to make a branch or a tag of it."""
        if self.whole is None:
            return view
        found = self.whole.store.manifest_in(view.ledger.branch, view.branch, view.version)
        return self.whole.store.capture(view.branch) if found is None else found

    def refuse_wider(self, action: Action, view: Manifest, target: str) -> None:
        """Deny to copy the rows of a state to a branch on which the actor may use more of them.

        Raises:
            AccessDeniedError: the actor may read or export more of these rows on the branch than in the state.
        """
        access = self.access
        if access is None or view.branch == target or access.sees_everything:
            return
        accepted = self.schemas.at(Snapshot(self.store, view))
        if access.is_wider(target, view.branch, accepted, view.schema_hash):
            why = f"the actor may see more on branch '{target}' than on '{view.branch}'"
            raise access.denied(action, why, branch=view.branch, target_branch=target)

    def require_known(self, branch: str) -> None:
        """Check that the actor may know of a branch. If not, the error is that for a branch that does not exist.

        Raises:
            BranchNotFoundError: the actor may read other branches only.
        """
        if self.access is not None and not self.access.knows(branch):
            raise self.store.no_branch(branch)

    def shown_commit(self, commit: Commit) -> Commit:
        """A commit as the actor sees it in the history of a branch that it may read."""
        if self.access is None or self.lists_branches:
            return commit
        from omnigraph.restricted.commits import known_commit

        return known_commit(commit, self.access.knows)

    def shown_branch(self, name: str) -> str:
        """The name of a branch, or a word that stands for a branch that the actor may not know."""
        if self.access is None or self.access.knows(name):
            return name
        from omnigraph.restricted.commits import HIDDEN_BRANCH

        return HIDDEN_BRANCH

    def whole_snapshot(
        self,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> Snapshot:
        """The snapshot of a state, as `snapshot`, if the actor may read all of it.

        Raises:
            AccessDeniedError: the policy does not allow it, or it limits the types, rows or properties.
        """
        if self.access is not None and commit is None:
            self.access.require(Action.READ, self.branch_or_default(branch))
        if self.access is None or commit is None:
            view = self.snapshot(branch=branch, commit=commit, version=version, at=at)
            self._require_inherited(Action.READ, branch, view)
        else:
            with self.hiding_existence(Action.READ):
                view = self.snapshot(branch=branch, commit=commit, version=version, at=at)
            self.access.require(Action.READ, view.branch, names_branch=False)
        self.require_all_rows(Action.READ, view.manifest)
        head = self.shown_commit(view.commit)
        return view if head is view.commit else Snapshot(self.store, replace(view.manifest, head=head))

    def require_all_rows(self, action: Action, view: Manifest) -> None:
        """Check that the actor may use all rows of all types, for verbs that give access to a whole state.

        Raises:
            AccessDeniedError: the policy limits the types, rows or properties.
        """
        scope = self.scope(action, view)
        if scope is not None and self.access is not None:
            self.access.require_all_rows(action, view.branch, scope)

    def require_types(self, action: Action, view: Manifest, keys: Iterable[str]) -> None:
        """Check that the actor may use types.

        Raises:
            AccessDeniedError: a type is hidden from the actor.
        """
        scope = self.scope(action, view)
        if scope is not None and self.access is not None:
            self.access.require_types(action, view.branch, scope, keys)

    def refuse_row_limits(self, action: Action, view: Manifest) -> None:
        """Deny a verb that does not apply row rules and masks, if the actor has some.

        Raises:
            AccessDeniedError: the policy limits the rows or properties.
        """
        scope = self.scope(action, view)
        if scope is not None and scope.limits_rows:
            self.require_all_rows(action, view)

    def restricted(self, scope_of: ScopeOf, change_of: ScopeOf | None = None, *, actor: str | None = None) -> Session:
        """A session that sees only a part of the graph, as if hidden rows, types and properties did not exist.

        It shares the store of this session. Reads nothing but the schema.

        Args:
            scope_of: returns the visible rows and properties for a state of the graph and its schema.
            change_of: returns those that may be changed: rows before and after a change have to satisfy their
                conditions. By default, all that is visible.
            actor: the recorded author of commits; by default that of this session, and always if there is a policy.
        """
        from omnigraph.engine.restricted_schemas import RestrictedSchemas
        from omnigraph.restricted.store import RestrictedStore, as_store

        self.require_whole("another restriction")
        whole = self.store
        made = copy.copy(self)
        for name in ("reading", "feed", "exporting"):
            made.__dict__.pop(name, None)  # they refer to this session
        made._bound = LruCache(_BOUND)
        store = RestrictedStore(whole, lambda view: self.schemas.version_at(Snapshot(whole, view)), scope_of)
        made.store = as_store(store)
        made.whole = self
        made.actor = self.actor if actor is None or self.access is not None else actor
        made._rules_digest = scope_of.digest
        made._change_of = scope_of if change_of is None else change_of
        made.schemas = RestrictedSchemas(store)
        made.compiled = CompiledQueries()
        made.views = Views()
        made.schema = made.schemas.version_of(made.store.capture(made.default_branch))
        return made

    def recovered(self, branch: str) -> Manifest:
        """The newest state of a branch, after recovery of interrupted writes."""
        from omnigraph.commit.recovery import recovered_view

        if self.whole is None:
            return recovered_view(self.store, branch)
        from omnigraph.restricted.store import RestrictedStore

        assert isinstance(self.store, RestrictedStore)
        return self.store.restricted(recovered_view(self.whole.store, branch))

    def stored(self, view: Manifest) -> Manifest:
        """A state with all that its commits record, to find the receipt of an earlier request of the actor."""
        from omnigraph.restricted.commits import stored_commits

        return view if self.whole is None else stored_commits(view)

    def changeable(self, view: Manifest, accepted: AcceptedSchema) -> RowScope:
        """The rows and properties that the actor of a restricted session may change, for a stored state."""
        assert self._change_of is not None
        return self._change_of(view, accepted)

    def require_whole(self, work: str) -> None:
        """Check that the session sees the whole graph, for work that does not restrict itself to visible rows.

        Args:
            work: the work, for the error.

        Raises:
            AccessDeniedError: the session sees only a part of the graph.
        """
        if self.whole is not None:
            hint = "this needs the whole graph, and the actor may see only a part of it"
            if self.access is not None:
                self.access.policy.record(Denial(self.uri, self.actor, work, None, None, (), None, hint))
            raise AccessDeniedError(self.actor, work, hint=hint)

    @cached_property
    def reading(self) -> Reading:
        """Access to the tables for diffs and the change feed."""
        from omnigraph.changes.diff import Reading

        if self.whole is not None:
            from omnigraph.restricted.reading import restricted_reading

            return restricted_reading(self.store, self._compared)
        return Reading(self.store.tables, self.store.leases, self._compared)

    @cached_property
    def feed(self) -> Feed:
        """The change feed."""
        from omnigraph.changes.feed import Feed

        return Feed(self.store, self.graph_state, self.reading, self._rules_digest, self.shown_commit)

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
        if not at.is_of(self.store) and (self.whole is not None or not at.is_whole):
            raise InputError("this snapshot belongs to another session", hint="give its commit id")
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
        if self.whole is not None:
            self.whole.refresh()
        elif not self.read_only:
            transaction_branches.reclaim(self.store)
            recover_all(self.store)
        self.schemas.clear()
        self.schema = self.schemas.version_of(self.store.capture(self.default_branch))
        return self.snapshot()

    def close(self) -> None:
        """Drop all caches, and refuse further reads and writes. Snapshots stay readable. Safe to call twice."""
        self.views.clear()
        self.store.close()
        if self._owns_whole and self.whole is not None:
            self.whole.close()


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
