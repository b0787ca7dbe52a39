"""The catalogue: the checked schema with its types, properties and constraints.

A catalogue is complete: node types contain the properties of their interfaces, an annotation such as `@unique` of a
property is a constraint of the type, and all names are resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span
from omnigraph.lang.types import ValueType


class TypeKind(StrEnum):
    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


class IndexKind(StrEnum):
    """The kind of an index. `AUTO` chooses the kind by the type of the property."""

    AUTO = "auto"
    BTREE = "btree"
    FTS = "fts"
    NGRAM = "ngram"
    BITMAP = "bitmap"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation with its arguments as text. `kwargs` are sorted by name."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Default:
    """The default of a property: a value, or the time of the request (`now()`)."""

    value: str | int | float | bool | None = None
    now: bool = False


@dataclass(frozen=True, slots=True)
class Embed:
    """The declaration of a vector that is computed from a text property of the same node."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a type, declared there or inherited from an interface.

    Attributes:
        annotations: the annotations that have no field of their own here, in canonical order.
        property_constraints: the names of the constraints that are annotations of the property (`key`, `unique`,
            `index`), sorted.
        declared_directly: False if the property is inherited from an interface.
        satisfies: the (interface, property) pairs that this property implements, sorted.
        rename_from: the former name of the property, if `@rename_from` names one.
        enum_renames: (new, old) pairs of enum values, sorted.
        allows: (code, reason) pairs of accepted lint findings.
        span: the location of the declaration.
    """

    name: str
    type: ValueType
    annotations: tuple[Annotation, ...] = ()
    property_constraints: tuple[str, ...] = ()
    embed: Embed | None = None
    default: Default | None = None
    declared_directly: bool = True
    satisfies: tuple[tuple[str, str], ...] = ()
    rename_from: str | None = None
    enum_renames: tuple[tuple[str, str], ...] = ()
    allows: tuple[tuple[str, str], ...] = ()
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Key:
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unique:
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An index declaration. `options` are sorted by name. Only single-property indexes have options."""

    fields: tuple[str, ...]
    kind: IndexKind = IndexKind.AUTO
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a numeric property. None means no bound."""

    property: str
    min: int | float | None
    max: int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """An RE2 pattern that must match a part of a String property."""

    property: str
    pattern: str


Constraint = Key | Unique | Index | Range | Check


@dataclass(frozen=True, slots=True)
class Cardinality:
    """The allowed number of edges per endpoint. None as `max` means unbounded."""

    min: int = 0
    max: int | None = None


@dataclass(frozen=True, slots=True)
class InterfaceType:
    """A set of properties that node types implement. `implementors` are these node types, sorted."""

    name: str
    properties: Mapping[str, Property]
    implementors: tuple[str, ...] = ()
    rename_from: str | None = None
    allows: tuple[tuple[str, str], ...] = ()
    span: Span = field(default=Span(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type. `properties` are in name order, `constraints` in canonical order."""

    name: str
    properties: Mapping[str, Property]
    constraints: tuple[Constraint, ...] = ()
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    rename_from: str | None = None
    allows: tuple[tuple[str, str], ...] = ()
    span: Span = field(default=Span(0, 0), compare=False)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The properties of the key, sorted by name; None if the type has no key."""
        return _key_of(self.constraints)

    @property
    def merges_by_property(self) -> bool:
        """Whether a merge combines changes of different properties of one entity: `@merge(property)`."""
        return _merges_by_property(self.annotations)


@dataclass(frozen=True, slots=True)
class EdgeType:
    """An edge type between two node types."""

    name: str
    from_type: str
    to_type: str
    properties: Mapping[str, Property]
    constraints: tuple[Constraint, ...] = ()
    card: Cardinality = Cardinality()
    card_in: Cardinality = Cardinality()
    annotations: tuple[Annotation, ...] = ()
    rename_from: str | None = None
    allows: tuple[tuple[str, str], ...] = ()
    span: Span = field(default=Span(0, 0), compare=False)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The fields of the key, including `src` and `dst`; None if the type has no key."""
        return _key_of(self.constraints)

    @property
    def merges_by_property(self) -> bool:
        """Whether a merge combines changes of different properties of one entity: `@merge(property)`."""
        return _merges_by_property(self.annotations)

    @property
    def word(self) -> str:
        """The name of the edge in traversals."""
        return self.name[0].lower() + self.name[1:]

    @property
    def same_type(self) -> bool:
        """Whether both endpoints have the same type. If so, the direction does not follow from the types."""
        return self.from_type == self.to_type


def _key_of(constraints: tuple[Constraint, ...]) -> tuple[str, ...] | None:
    return next((c.fields for c in constraints if isinstance(c, Key)), None)


def _merges_by_property(annotations: tuple[Annotation, ...]) -> bool:
    return any(found.name == "merge" and found.value == "property" for found in annotations)


class Catalog:
    """All types of one schema. Iteration and listings are in name order."""

    __slots__ = ("_words", "edges", "interfaces", "nodes")

    def __init__(
        self,
        interfaces: Mapping[str, InterfaceType],
        nodes: Mapping[str, NodeType],
        edges: Mapping[str, EdgeType],
    ) -> None:
        self.interfaces = dict(sorted(interfaces.items()))
        self.nodes = dict(sorted(nodes.items()))
        self.edges = dict(sorted(edges.items()))
        self._words = {edge.name.lower(): edge for edge in self.edges.values()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Catalog):
            return NotImplemented
        return (self.interfaces, self.nodes, self.edges) == (other.interfaces, other.nodes, other.edges)

    __hash__ = None  # type: ignore[assignment]

    def declared(self, kind: TypeKind, name: str) -> NodeType | EdgeType:
        """A node or edge type by name."""
        return self.nodes[name] if kind is TypeKind.NODE else self.edges[name]

    def edge_by_word(self, word: str) -> EdgeType | None:
        """Find an edge type by name, ignoring case. Edge names are unique in lower case."""
        return self._words.get(word.lower())

    def edge_words(self) -> list[str]:
        """The names of all edge types in traversals."""
        return [edge.word for edge in self.edges.values()]

    def edges_of(self, node: str) -> Iterator[EdgeType]:
        """The edge types that start or end at a node type."""
        return (edge for edge in self.edges.values() if node in (edge.from_type, edge.to_type))
