"""A graph as an actor sees it: a store from which hidden rows, types and properties are missing.

Everything that reads a graph reads it through a store: its manifests and its tables. So queries, exports, diffs, the
change feed and histories need no rule of their own. Writes are denied: they use the stored graph, and check the rows.
"""

# See docs/decisions/0310-a-restricted-graph-is-a-store.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NoReturn, cast

from omnigraph.commit.manifest import Commit, Manifest, Models, TablePin
from omnigraph.commit.refs import BranchRef, TagRef
from omnigraph.commit.store import Store
from omnigraph.errors import AccessDeniedError, BranchNotFoundError
from omnigraph.evaluate import Request
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.restricted.commits import restricted_ledger, visible_commit
from omnigraph.restricted.refs import RestrictedPin, RestrictedRef, Visible
from omnigraph.restricted.row_scope import Rows, RowScope, ScopeOf
from omnigraph.restricted.tables import RestrictedTables, as_tables
from omnigraph.restricted.visible_schema import VisibleSchema, is_hidden_edge, is_hidden_node, visible_schema
from omnigraph.storage.ledger import Ledger
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.tables import TableStorage

_STATES = 16
"""Maximum number of branches whose restricted states are cached."""

_SCHEMAS = 64
"""Maximum number of cached schemas. Each branch with other rules has its own."""


class RestrictedStore:
    """The reads of `Store`, as an actor sees the graph. All other methods are denied.

    Args:
        base: the stored graph.
        schema_of: returns the source text and the accepted schema of a stored state.
        scope_of: returns the scope of the actor for a stored state.
        cache: caches the visible rows; by default the cache of the process.

    Attributes:
        rules: the rules of the actor.
    """

    def __init__(
        self,
        base: Store,
        schema_of: Callable[[Manifest], tuple[str, AcceptedSchema]],
        scope_of: ScopeOf,
        cache: ColumnCache | None = None,
    ) -> None:
        self.base = base
        self._schema_of = schema_of
        self.rules = scope_of
        self._tables = RestrictedTables(base.tables, cache)
        self._schemas: LruCache[VisibleSchema] = LruCache(_SCHEMAS)
        """Restricted schemas by branch and hash of the stored schema."""
        self._by_hash: LruCache[VisibleSchema] = LruCache(_SCHEMAS)
        self._states: LruCache[tuple[Manifest, Manifest]] = LruCache(_STATES)
        """The stored and the restricted state of each branch that was read last."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AccessDeniedError(None, name, hint="this needs the whole graph, and the actor may see only a part of it")

    # States

    def capture(self, branch: str) -> Manifest:
        return self.restricted(self.base.capture(branch))

    def manifest_at(self, branch: str, version: int) -> Manifest:
        return self.restricted(self.base.manifest_at(branch, version))

    def manifest_of(self, commit: Commit) -> Manifest:
        return self.restricted(self.base.manifest_of(commit))

    def manifest_in(self, ledger: str | None, branch: str, version: int) -> Manifest | None:
        found = self.base.manifest_in(ledger, branch, version)
        return None if found is None else self.restricted(found)

    def restricted(self, view: Manifest) -> Manifest:
        """A stored state as the actor sees it."""
        known = self._states.get(view.branch)
        if known is not None and known[0] is view:
            return known[1]
        text, accepted = self._schema_of(view)
        schema = self._visible_schema(view, text, accepted)
        made = replace(
            view,
            schema_hash=schema.hash,
            ledger=restricted_ledger(view),
            head=visible_commit(view.head),
            recent=tuple(map(visible_commit, view.recent)),
            tables=_Pins(self._tables, accepted, schema.scope, view),
            dropped=(),
            dropped_data=tuple(one for one in view.dropped_data if one.key in schema.scope.types),
        )
        self._states.put(view.branch, (view, made))
        return made

    def _visible_schema(self, view: Manifest, text: str, accepted: AcceptedSchema) -> VisibleSchema:
        key = (view.branch, view.schema_hash)
        found = self._schemas.get(key)
        if found is None:
            found = self._schemas.put(key, visible_schema(text, accepted, self.rules(view, accepted), view.schema_hash))
        self._by_hash.put(found.hash, found)
        return found

    def stored_schema(self, view: Manifest) -> tuple[AcceptedSchema, RowScope]:
        """The whole schema of a stored state, and what the actor sees of it."""
        text, accepted = self._schema_of(view)
        return accepted, self._visible_schema(view, text, accepted).scope

    def schema(self, view: Manifest) -> VisibleSchema:
        """The schema of a restricted state.

        Raises:
            VersionReclaimedError: it is no longer cached, and cleanup has removed the state.
        """
        found = self._by_hash.get(view.schema_hash)
        if found is None:
            stored = self.base.manifest_in(view.ledger.branch, view.branch, view.version)
            if stored is None:
                raise self.no_branch(view.branch)
            text, accepted = self._schema_of(stored)
            found = self._visible_schema(stored, text, accepted)
        return found

    # The parts of a store that readers use

    @property
    def tables(self) -> TableStorage:
        return as_tables(self._tables)

    @property
    def objects(self) -> ObjectStore:
        return self.base.objects

    @property
    def leases(self) -> ObjectStore:
        return self.base.leases

    @property
    def manifest(self) -> Ledger:
        return self.base.manifest

    @property
    def closed(self) -> bool:
        return self.base.closed

    def close(self) -> None:
        """Drop the cached states. The stored graph stays open."""
        self._states.clear()

    def forget(self, branch: str) -> None:
        self.base.forget(branch)

    def has_version(self, ledger: str | None, version: int) -> bool:
        return self.base.has_version(ledger, version)

    def find_branch(self, name: str) -> BranchRef | None:
        return self.base.find_branch(name)

    def branch_refs(self) -> dict[str, BranchRef]:
        return self.base.branch_refs()

    def current(self, ref: BranchRef) -> BranchRef:
        return self.base.current(ref)

    def branch_names(self) -> list[str]:
        return self.base.branch_names()

    @property
    def shows(self) -> Callable[[str], bool] | None:
        return self.base.shows

    def shown_branches(self) -> list[str]:
        return self.base.shown_branches()

    def shown_tags(self) -> list[str]:
        return self.base.shown_tags()

    def found_branches(self) -> list[str]:
        return self.base.found_branches()

    def found_tags(self) -> list[TagRef]:
        return self.base.found_tags()

    def found_tag(self, name: str) -> TagRef | None:
        return self.base.found_tag(name)

    def finds_commit(self, commit: Commit) -> bool:
        return self.base.finds_commit(commit)

    def no_branch(self, branch: str) -> BranchNotFoundError:
        return self.base.no_branch(branch)

    def branch_identifier(self, branch: str) -> str | None:
        return self.base.branch_identifier(branch)

    def ledger_of(self, branch: str) -> str | None:
        return self.base.ledger_of(branch)

    def is_closed(self, ref: BranchRef) -> bool:
        return self.base.is_closed(ref)


def as_store(store: RestrictedStore) -> Store:
    """The store with the type of the stored one."""
    return cast(Store, store)


class _Pins(Mapping[str, TablePin]):
    """The pins of a restricted state. A stored pin is accessed when its restricted pin is.

    So a write that reads one visible type depends on this type and, for edges, on those of its ends.

    Args:
        tables: the restricted tables.
        accepted: the whole schema.
        scope: the scope.
        view: the stored state.
    """

    def __init__(self, tables: RestrictedTables, accepted: AcceptedSchema, scope: RowScope, view: Manifest) -> None:
        self._tables = tables
        self._catalog = accepted.catalog
        self._scope = scope
        self._stored = view.tables
        self._version = view.version
        self._keys = tuple(key for key in view.tables if self._is_shown(key))
        self._made: dict[str, TablePin] = {}

    def __getitem__(self, key: str) -> TablePin:
        found = self._made.get(key)
        if found is None:
            if key not in self._keys:
                raise KeyError(key)
            found = self._made[key] = self._pin(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _is_shown(self, key: str) -> bool:
        name = TypeKey.parse(key).name
        hides = is_hidden_edge if key == edge_key(name) else is_hidden_node
        return not hides(self._catalog, self._scope, name)

    def _pin(self, key: str) -> TablePin:
        stored = self._stored[key]
        visible = self._visible(key)
        if visible is None:
            self._tables.open_table(stored.ref.path)
            return stored
        base = stored.ref
        ref = RestrictedRef(base.path, base.branch, base.version, base.seal, visible=visible)
        tables = self._tables
        models = _models(stored.models, visible.hidden)
        return RestrictedPin(stored, ref, models, lambda: tables.at(ref).count(), self._version)

    def _visible(self, key: str) -> Visible | None:
        """The visible rows and columns of a type that is shown; None for all."""
        name = TypeKey.parse(key).name
        rows, hidden = self._scope.rows_of(key), self._scope.masked(key)
        condition = None if isinstance(rows, Rows) else rows
        ends: list[tuple[str, RestrictedRef]] = []
        if key == edge_key(name):
            edge = self._catalog.edges[name]
            for column, end in (("src", edge.from_type), ("dst", edge.to_type)):
                ref = self[node_key(end)].ref
                if isinstance(ref, RestrictedRef) and ref.visible.filters:
                    ends.append((column, ref))
        if condition is None and not hidden and not ends:
            return None
        digest = self._scope.digest_of(key)
        return Visible(digest, name, condition, Request(self._scope.params, 0), hidden, tuple(ends))


def _models(models: Models, hidden: frozenset[str]) -> Models:
    """The embedding models of visible vectors, without the names of hidden texts."""
    return tuple(
        (name, tuple((model, "" if source in hidden else source) for model, source in pairs))
        for name, pairs in models
        if name not in hidden
    )
