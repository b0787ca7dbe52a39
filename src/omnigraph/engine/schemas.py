"""Cache of the accepted schemas of an open graph, for branches and for old commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.commit.manifest import MAIN, Manifest, TableId
from omnigraph.commit.schema_files import ContractWatch, archived_schemas, past_contract
from omnigraph.commit.schema_tables import check_tables
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.errors import OmnigraphError, ReadSetChangedError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.lru_cache import LruCache

if TYPE_CHECKING:
    from omnigraph.changes.added_properties import AddedProperties
    from omnigraph.changes.aligned_types import AddedProperty

SchemaVersion = tuple[str, AcceptedSchema]
"""The source text of a schema and its accepted form."""

_SCHEMAS = 64
"""Maximum number of cached schemas of branches, and of old commits."""

_ARCHIVES = 2
"""Maximum number of cached archives, each as it was for one schema of `main`."""


class Schemas:
    """Reads and caches the schemas of one graph.

    Args:
        store: the graph.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = ContractWatch(store.objects, lambda: store.capture(MAIN))
        self._current: LruCache[SchemaVersion] = LruCache(_SCHEMAS)
        self._past: LruCache[SchemaVersion] = LruCache(_SCHEMAS)
        self._archives: LruCache[tuple[AcceptedSchema, ...]] = LruCache(_ARCHIVES)

    def version_of(self, view: Manifest) -> SchemaVersion:
        """The source text and the accepted form of the schema of a branch state.

        Raises:
            CatalogError: the schema files do not match the manifest.
        """
        found = self._current.get(view.schema_hash)
        if found is None:
            found = self._files.read(view)
            check_tables(found[1], view)
            self._current.put(view.schema_hash, found)
        return found

    def of(self, view: Manifest) -> AcceptedSchema:
        """The schema of a branch state. Branches can have different schemas, and other processes can change them."""
        return self.version_of(view)[1]

    def at(self, snapshot: Snapshot) -> AcceptedSchema:
        """The schema of a snapshot. It may be older than the schema of the branch."""
        return self.version_at(snapshot)[1]

    def version_at(self, snapshot: Snapshot) -> SchemaVersion:
        """The source text and the accepted form of the schema of a snapshot."""
        key = snapshot.schema_hash
        found = self._current.get(key) or self._past.get(key)
        if found is None:
            found = past_contract(self._store.objects, key) or self.version_of(snapshot.manifest)
            self._past.put(key, found)
        return found

    def former(self) -> tuple[AcceptedSchema, ...]:
        """All schemas that the graph has had. The archive is read once for each schema of `main`.

        Raises:
            DamagedFileError: a file of one of them is missing or damaged.
        """
        key = self._store.capture(MAIN).schema_hash
        found = self._archives.get(key)
        return self._archives.put(key, tuple(archived_schemas(self._store.objects))) if found is None else found

    def added_properties(self, view: Manifest) -> AddedProperties:
        """The properties that schema changes before a state have added, with the values that they filled in."""
        from omnigraph.changes.added_properties import AddedProperties

        return AddedProperties(self._store, lambda one: self.version_at(Snapshot(self._store, one)), view)

    def filled(self, view: Manifest, table: TableId, name: str, number: int) -> AddedProperty | None:
        """How a schema change before a state filled a new property; None if it cannot be known."""
        return self.added_properties(view).filled(table, name, number)

    def checked(self, view: Manifest) -> AcceptedSchema:
        """The schema of a branch state. Checks that the schema files were not edited by hand.

        Raises:
            CatalogError: the files were edited.
            ReadSetChangedError: another commit has just changed the schema.
        """
        try:
            self._files.check(view)
        except OmnigraphError:
            now = self._store.capture(view.branch)
            if now.version != view.version:
                raise ReadSetChangedError("schema", view.schema_hash, now.schema_hash) from None
            raise
        return self.of(view)

    def clear(self) -> None:
        """Drop the cached schemas of branches. The next use reads the files again."""
        self._current.clear()
