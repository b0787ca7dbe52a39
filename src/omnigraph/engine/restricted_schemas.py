"""The schemas of a graph as an actor sees it."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.schemas import Schemas, SchemaVersion
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.restricted.store import RestrictedStore, as_store


class RestrictedSchemas(Schemas):
    """The schemas of a graph as an actor sees it.

    Args:
        store: the graph as the actor sees it.
    """

    def __init__(self, store: RestrictedStore) -> None:
        self._store = as_store(store)
        self._restricted = store

    def version_of(self, view: Manifest) -> SchemaVersion:
        schema = self._restricted.schema(view)
        return schema.text, schema.accepted

    def version_at(self, snapshot: Snapshot) -> SchemaVersion:
        return self.version_of(snapshot.manifest)

    def checked(self, view: Manifest) -> AcceptedSchema:
        return self.of(view)

    def clear(self) -> None:
        """Do nothing: the schemas belong to states, and states never change."""
