"""The nodes whose ids a result contains, and the matched edges between these nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.query import ir
from omnigraph.lang.schema import Catalog

Row = Mapping[str, Any]
NodeKey = tuple[str, str]
"""The type and the id of a node."""
EdgeKey = tuple[str, str | None]
"""The type and the id of an edge; without an id, the id is None."""
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entities:
    """Nodes and edges with their properties, in the order in which they were found.

    Attributes:
        nodes: the properties of each node.
        edges: the properties of each edge, by source, target and key. Both ends are among the nodes.
        is_complete: whether no row was left out.
    """

    nodes: dict[NodeKey, Values]
    edges: dict[tuple[NodeKey, NodeKey, EdgeKey], Values]
    is_complete: bool = True

    def add_node(self, key: NodeKey, values: Values) -> None:
        self.nodes.setdefault(key, {}).update(values)

    def add_edge(self, source: NodeKey, target: NodeKey, key: EdgeKey, values: Values) -> None:
        self.add_node(source, {})
        self.add_node(target, {})
        self.edges.setdefault((source, target, key), {}).update(values)

    def update(self, other: Entities) -> None:
        """Add the nodes and edges of other rows."""
        for node, values in other.nodes.items():
            self.add_node(node, values)
        for (source, target, key), values in other.edges.items():
            self.add_edge(source, target, key, values)


@dataclass(frozen=True, slots=True)
class _Entity:
    """The result columns that describe the entities of a variable.

    Attributes:
        var: the variable.
        types: node or edge types that the variable can have.
        type_column: name of the column with the type of the entity; None if there is none.
        columns: names of the columns with the id, and for an edge with the ids of its nodes (`from`, `to`).
        properties: names of the columns with properties, by property name.
    """

    var: str
    types: tuple[str, ...]
    type_column: str | None = None
    columns: dict[ir.Role, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def type_name(self, row: Row) -> str:
        if len(self.types) == 1:
            return self.types[0]
        if self.type_column is None:
            raise InputError(
                f"${self.var} is one of {', '.join(self.types)}, and the result does not contain its type",
                hint=f"return type(${self.var}) as well",
            )
        return str(row[self.type_column])

    def attributes(self, row: Row) -> dict[str, Any]:
        return {name: row[column] for name, column in self.properties.items()}


@dataclass(frozen=True, slots=True)
class Network:
    """The nodes and edges that the result columns of a query contain.

    Args:
        read: the IR of the query.
        catalog: the schema.
    """

    read: ir.Read
    catalog: Catalog

    def entities(self, rows: Iterator[Row], limit: int | None = None) -> Entities:
        """Collect the nodes and edges of rows.

        Args:
            rows: the rows.
            limit: the maximum number of nodes. The first row that exceeds it and later rows are left out.

        Raises:
            InputError: no column has node ids, or the type of a node or edge is unknown.
        """
        nodes = [node for node in self._described(_visible_nodes(self.read)) if ir.Role.ID in node.columns]
        by_name = {node.var: node for node in nodes}
        links = [link for link in self._links(by_name) if link.is_known]
        if not nodes and not links:
            raise InputError(
                "the result has no column with node ids, so it has no nodes and edges",
                hint="return ids of nodes, as in: return { $a.id as a, $b.id as b }",
            )
        found = Entities({}, {})
        for row in rows:
            of_row = found if limit is None else Entities({}, {})
            for node in nodes:
                key = _node(node, row)
                if key is not None:
                    of_row.add_node(key, node.attributes(row))
            for link in links:
                link.add_to(of_row, row)
            if limit is not None:
                if len(found.nodes | of_row.nodes) > limit:
                    return replace(found, is_complete=False)
                found.update(of_row)
        return found

    def _described(self, variables: Mapping[str, tuple[str, ...]]) -> Iterator[_Entity]:
        """The result columns of each given variable."""
        type_columns = {c.expr.var: c.name for c in self.read.columns if isinstance(c.expr, ir.TypeOf)}
        for var, types in variables.items():
            found = _Entity(var, types, type_columns.get(var))
            for column in self.read.columns:
                match column.expr:
                    case ir.Ident(var=name, role=role) if name == var:
                        found.columns.setdefault(role, column.name)
                    case ir.Entity(var=name) if name == var:
                        found.columns.setdefault(ir.Role.ID, column.name)
                    case ir.Prop(var=name, name=property) if name == var:
                        found.properties.setdefault(property, column.name)
            yield found

    def _links(self, nodes: Mapping[str, _Entity]) -> Iterator[_Link]:
        expands = list(_expands(self.read.match))
        edge_vars = {e.edge_var.name: e.edge_var.types for e in expands if e.edge_var is not None}
        described = {edge.var: edge for edge in self._described(edge_vars)}
        for expand in expands:
            edge = described[expand.edge_var.name] if expand.edge_var is not None else None
            yield _Link(expand, nodes.get(expand.left), nodes.get(expand.right), edge, self.catalog)


@dataclass(frozen=True, slots=True)
class _Link:
    """An edge of the match, with the result columns of its two nodes and of its edge variable, if there are any."""

    expand: ir.Expand
    left: _Entity | None
    right: _Entity | None
    edge: _Entity | None
    catalog: Catalog

    @property
    def is_known(self) -> bool:
        """Whether the result has the ids of both nodes of the edge."""
        return self._has_ends or (self.left is not None and self.right is not None)

    @property
    def _has_ends(self) -> bool:
        return self.edge is not None and {ir.Role.FROM, ir.Role.TO} <= self.edge.columns.keys()

    def add_to(self, found: Entities, row: Row) -> None:
        if self._has_ends:
            source, target = self._ends(row)
        else:
            assert self.left is not None
            assert self.right is not None
            source, target = _node(self.left, row), _node(self.right, row)
            if all(step.direction is ir.Direction.IN for step in self.expand.steps):
                source, target = target, source
        if source is None or target is None:
            return
        edge = self.edge
        types = tuple(dict.fromkeys(step.edge for step in self.expand.steps))
        if edge is None:
            found.add_edge(source, target, ("|".join(types), None), {})
            return
        id_column = edge.columns.get(ir.Role.ID)
        key = (edge.type_name(row), None if id_column is None else row[id_column])
        found.add_edge(source, target, key, edge.attributes(row))

    def _ends(self, row: Row) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
        assert self.edge is not None
        source, target = (row[self.edge.columns[role]] for role in (ir.Role.FROM, ir.Role.TO))
        if source is None or target is None:
            return None, None
        declared = self.catalog.edges[self.edge.type_name(row)]
        return (declared.from_type, source), (declared.to_type, target)


def _node(node: _Entity, row: Row) -> tuple[str, str] | None:
    entity_id = row[node.columns[ir.Role.ID]]
    return None if entity_id is None else (node.type_name(row), entity_id)


def _visible_nodes(read: ir.Read) -> dict[str, tuple[str, ...]]:
    """The node variables of the last match, and those that its stages pass on to it, with their types."""
    found: dict[str, tuple[str, ...]] = {}
    for stage in read.stages:
        known = found | _node_vars(stage.read.match)
        found = {name: known[name] for name in stage.carried if name in known}
    return found | _node_vars(read.match)


def _node_vars(block: ir.Block) -> dict[str, tuple[str, ...]]:
    found = {node.name: node.types for node in block.nodes}
    for inner in block.optionals:
        found |= _node_vars(inner)
    return found


def _expands(block: ir.Block, *, optional: bool = False) -> Iterator[ir.Expand]:
    """Single-hop edges of the query that exist in every row in which both nodes exist.

    Edges of an optional block are left out if both nodes are variables of the outer block: such an edge may be missing
    although both nodes exist.
    """
    introduced = {node.name for node in block.nodes}
    for expand in block.expands:
        if expand.hops is None and (not optional or {expand.left, expand.right} & introduced):
            yield expand
    for inner in block.optionals:
        yield from _expands(inner, optional=True)
