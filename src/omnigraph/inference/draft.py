"""The types that are inferred from tables, and the columns that their values come from."""

from __future__ import annotations

from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.inference.table_profile import TableProfile
from omnigraph.lang.types import ValueType


@dataclass(slots=True)
class PropertyDraft:
    """A property and its column.

    Attributes:
        format: the format of dates and times in the column, if the mapping has to name it.
        reason: why it has this type, if that is not obvious.
    """

    name: str
    kind: ValueType
    column: str
    format: str | None = None
    reason: str = ""


@dataclass(slots=True)
class NodeDraft:
    """A node type.

    Attributes:
        table: the table of its rows.
        key: its key properties; empty if its ids come from `id_column`.
        id_column: the column of its ids, for a type without a key.
        derived: whether the nodes are those that edges mention, and have no table of their own.
        reasons: why there is such a type, and why it has this key.
        ignored: columns of its table that are left out.
    """

    name: str
    table: TableProfile
    properties: list[PropertyDraft]
    key: tuple[str, ...] = ()
    id_column: str | None = None
    derived: bool = False
    reasons: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def property_of(self, column: str) -> PropertyDraft:
        return next(prop for prop in self.properties if prop.column == column)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of its key or id."""
        if self.id_column is not None:
            return (self.id_column,)
        return tuple(prop.column for name in self.key for prop in self.properties if prop.name == name)


@dataclass(slots=True)
class End:
    """An endpoint of an edge: the node type, and the columns that contain the members of its key or its id."""

    node: NodeDraft
    columns: tuple[str, ...]


@dataclass(slots=True)
class EdgeDraft:
    """An edge type.

    Attributes:
        table: the table of its rows.
        start: the node that it comes from.
        end: the node that it goes to.
        unique: whether no two edges have the same endpoints.
        id_column: the column of its ids, if there is one.
        optional: whether rows without a value for an endpoint have no edge.
        main: whether the table contains these edges, and not nodes that refer to other nodes.
    """

    name: str
    table: TableProfile
    start: End
    end: End
    properties: list[PropertyDraft] = field(default_factory=list)
    unique: bool = False
    id_column: str | None = None
    optional: bool = False
    main: bool = True
    reasons: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """All inferred types."""

    nodes: list[NodeDraft] = field(default_factory=list)
    edges: list[EdgeDraft] = field(default_factory=list)

    @property
    def derives(self) -> bool:
        """Whether nodes occur in several rows. Such tables have to be loaded with the mode `merge`."""
        return any(node.derived for node in self.nodes)
