"""A type at one commit. This object is sent to every task of a read, so that all tasks read the same table version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from pyspark.sql.types import StructType

from omnigraph.commit.manifest import TableId
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.graph.graph import Graph
from omnigraph.graph.graph import open as open_graph
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import Catalog, TypeKind
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
class GraphLocation:
    """The location of a graph, for processes on other machines.

    Attributes:
        uri: the normalized address.
        storage: the storage options that the user gave. Each process adds the options of its own environment.
    """

    uri: str
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Options) -> GraphLocation:
        """The location of the graph that the options name.

        Raises:
            InputError: the graph is in the memory of this process, where other processes cannot reach it.
        """
        uri = GraphUri.parse(options.path, options.storage)
        if uri.scheme is Scheme.MEMORY:
            raise InputError(
                "Spark tasks cannot reach a graph in the memory of this process",
                hint="use a graph in a directory or in s3://",
            )
        return cls(str(uri), tuple(sorted(options.storage.items())))

    def open(self, *, read_only: bool = True) -> Graph:
        """Open the graph."""
        return open_graph(self.uri, read_only=read_only, storage_options=dict(self.storage))

    def tables(self) -> TableStorage:
        """The tables of the graph. Opened once per process."""
        return _tables(self)

    def objects(self) -> ObjectStore:
        """The object store of the graph. Opened once per process."""
        return _objects(self)


@lru_cache(maxsize=8)
def _objects(location: GraphLocation) -> ObjectStore:
    return open_store(GraphUri.parse(location.uri, dict(location.storage)), fsync=False)


@lru_cache(maxsize=8)
def _tables(location: GraphLocation) -> TableStorage:
    uri = GraphUri.parse(location.uri, dict(location.storage))
    return TableStorage(uri.lance_uri(), uri.lance_storage_options)


@dataclass(frozen=True, slots=True)
class Pinned:
    """The entities of a type at one commit.

    Attributes:
        location: the location of the graph.
        commit_id: the commit.
        kind: node or edge.
        id: the identity of the type. A rename does not change it.
        ref: the version of the table.
        columns: the columns to read, in order.
        declared: all columns of the type.
        numbers: the stable numbers of the properties among the columns to read, by name.
        where: the condition that rows must meet; None for all rows.
    """

    location: GraphLocation
    commit_id: str
    kind: TypeKind
    id: TableId
    ref: TableRef
    columns: Mapping[str, ValueType]
    declared: Mapping[str, ValueType]
    numbers: Mapping[str, int]
    where: Where | None = None

    @property
    def schema(self) -> StructType:
        """The Spark schema of the columns to read."""
        return spark_schema(self.columns)


def pinned(options: Options) -> Pinned:
    """Resolve options to a type at a commit.

    Raises:
        InputError: the graph has no such type or column, or the options contradict each other.
        NotFoundError: there is no such graph, branch, commit or time.
        CompileError: the condition is not valid.
    """
    location = GraphLocation.of(options)
    graph = location.open()
    view = graph.snapshot(
        branch=options.text("branch"),
        commit=options.text("commit"),
        version=options.number("version"),
        at=options.text("timestamp"),
    )
    accepted = graph.session.schemas.at(view)
    catalog = accepted.catalog
    kind, name = type_of(catalog, options.type)
    declared = catalog.declared(kind, name)
    every = value_types(kind, declared)
    columns = _chosen(every, options.columns, name)
    condition = options.text("where")
    where = None if condition is None else Where.read(condition, catalog, kind, name)
    pin, numbers = view.pin(type_key(kind, name)), accepted.identity(kind, name).properties
    read = {name: number for name, number in numbers.items() if name in columns}
    return Pinned(location, view.commit.id, kind, pin.id, pin.ref, columns, every, read, where)


def type_of(catalog: Catalog, given: str) -> tuple[TypeKind, str]:
    """The type of a name: `Person`, or `node:Person` if a node type and an edge type have this name.

    Raises:
        InputError: there is no such type, or a node type and an edge type have this name.
    """
    kind, colon, name = given.partition(":")
    if colon and kind in (TypeKind.NODE.value, TypeKind.EDGE.value):
        kinds = [TypeKind(kind)]
    else:
        kinds, name = [TypeKind.NODE, TypeKind.EDGE], given
    found = [k for k in kinds if name in (catalog.nodes if k is TypeKind.NODE else catalog.edges)]
    if not found:
        hint = did_you_mean(name, [*catalog.nodes, *catalog.edges])
        raise InputError(f"there is no type '{cut(given)}'", hint=hint)
    if len(found) > 1:
        raise InputError(f"'{name}' is a node type and an edge type", hint=f"use node:{name} or edge:{name}")
    return found[0], name


def _chosen(columns: Mapping[str, ValueType], wanted: tuple[str, ...] | None, type_name: str) -> dict[str, ValueType]:
    if wanted is None:
        return dict(columns)
    for name in wanted:
        if name not in columns:
            raise InputError(f"{type_name} has no column '{cut(name)}'", hint=did_you_mean(name, list(columns)))
    return {name: columns[name] for name in wanted}
