"""One type at one commit: what every task of a read is told, so that all of them read the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pyspark.sql.types import StructType

from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import InputError, cut
from omnigraph.graph.graph import Graph
from omnigraph.graph.graph import open as open_graph
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, Catalog, TypeKind
from omnigraph.lang.schema.type_key import type_key
from omnigraph.lang.types import ValueType
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.types import spark_schema, value_types
from omnigraph.pipeline.source.where import Where
from omnigraph.storage.objects import ObjectStore, open_store
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.storage.uri import GraphUri, Scheme


@dataclass(frozen=True, slots=True)
class Place:
    """Where a graph is, for processes on other machines.

    Attributes:
        uri: the address, in one spelling.
        storage: what the user said about reaching it. What the environment says is asked of each process itself.
    """

    uri: str
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Options) -> Place:
        """The place that options name.

        Raises:
            InputError: no other process can reach it.
        """
        uri = GraphUri.parse(options.path, options.storage)
        if uri.scheme is Scheme.MEMORY:
            raise InputError("a graph in memory belongs to one process", hint="Spark has several: give a path or s3://")
        return cls(str(uri), tuple(sorted(options.storage.items())))

    def open(self, *, read_only: bool = True) -> Graph:
        """The graph."""
        return open_graph(self.uri, read_only=read_only, storage_options=dict(self.storage))

    def tables(self) -> TableStorage:
        """Its tables. A process opens them once."""
        return _tables(self)

    def objects(self) -> ObjectStore:
        """Its objects. A process opens them once."""
        return _objects(self)


@lru_cache(maxsize=8)
def _objects(place: Place) -> ObjectStore:
    return open_store(GraphUri.parse(place.uri, dict(place.storage)), fsync=False)


@lru_cache(maxsize=8)
def _tables(place: Place) -> TableStorage:
    uri = GraphUri.parse(place.uri, dict(place.storage))
    return TableStorage(uri.lance_uri(), uri.lance_storage_options)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The entities of a type as a commit left them.

    Attributes:
        place: the graph.
        commit_id: the newest commit that is seen.
        kind: whether they are nodes or edges.
        ref: the version of their table.
        columns: what is read of them, in order.
        declared: what they have.
        where: which of them; None for all.
    """

    place: Place
    commit_id: str
    kind: TypeKind
    ref: TableRef
    columns: Mapping[str, ValueType]
    declared: Mapping[str, ValueType]
    where: Where | None = None

    @property
    def schema(self) -> StructType:
        """All columns."""
        return spark_schema(self.columns)


def pinned(options: Options) -> Pinned:
    """What options mean now.

    Raises:
        InputError: they name no type or column of the graph, or contradict each other.
        NotFoundError: there is no such graph, branch, commit or time.
    """
    place = Place.of(options)
    graph = place.open()
    view = graph.snapshot(
        branch=options.text("branch"),
        commit=options.text("commit"),
        version=options.number("version"),
        at=options.text("timestamp"),
    )
    return pinned_at(place, view, graph.session.schemas.at(view), options)


def pinned_at(place: Place, view: Snapshot, accepted: AcceptedSchema, options: Options) -> Pinned:
    """The type that options name, in a snapshot.

    Raises:
        InputError: it has no such type or column.
        CompileError: the condition is none.
    """
    kind, name = type_of(accepted.catalog, options.type)
    catalog = accepted.catalog
    declared = catalog.nodes[name] if kind is TypeKind.NODE else catalog.edges[name]
    every = value_types(kind, declared)
    columns = _chosen(every, options.columns, name)
    said = options.text("where")
    where = None if said is None else Where.read(said, catalog, kind, name)
    return Pinned(place, view.commit.id, kind, view.pin(type_key(kind, name)).ref, columns, every, where)


def type_of(catalog: Catalog, said: str) -> tuple[TypeKind, str]:
    """The type that a name means: `Person`, or `node:Person` where a node type and an edge type share the name.

    Raises:
        InputError: none, or both.
    """
    kind, colon, name = said.partition(":")
    if colon and kind in (TypeKind.NODE.value, TypeKind.EDGE.value):
        kinds = [TypeKind(kind)]
    else:
        kinds, name = [TypeKind.NODE, TypeKind.EDGE], said
    found = [k for k in kinds if name in (catalog.nodes if k is TypeKind.NODE else catalog.edges)]
    if not found:
        hint = did_you_mean(name, [*catalog.nodes, *catalog.edges])
        raise InputError(f"there is no type '{cut(said)}'", hint=hint)
    if len(found) > 1:
        raise InputError(f"'{name}' is a node type and an edge type", hint=f"say node:{name} or edge:{name}")
    return found[0], name


def _chosen(columns: Mapping[str, ValueType], wanted: tuple[str, ...] | None, type_name: str) -> dict[str, ValueType]:
    if wanted is None:
        return dict(columns)
    for name in wanted:
        if name not in columns:
            raise InputError(f"{type_name} has no column '{cut(name)}'", hint=did_you_mean(name, list(columns)))
    return {name: columns[name] for name in wanted}
