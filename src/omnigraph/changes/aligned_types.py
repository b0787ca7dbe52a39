"""Matches the types and properties of two states of a graph by their stable ids, so that renamed ones match, too."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.commit.manifest import Manifest, TableId, TablePin
from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import type_key
from omnigraph.lang.types import Scalar, ValueType

ENDS = {"from": "src", "to": "dst"}
"""The ends of an edge, with their column names."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """A state of the graph with its schema."""

    manifest: Manifest
    accepted: AcceptedSchema


@dataclass(frozen=True, slots=True)
class TypeState:
    """One type in one state.

    Attributes:
        kind: node or edge.
        name: the name of the type in this state.
        pin: the version of its table.
        types: the value types of its properties, by name.
        numbers: the stable numbers of its properties, by name.
        ends: for an edge type, the node types of its ends.
        end_columns: those of the columns `src` and `dst` that are read.
    """

    kind: TypeKind
    name: str
    pin: TablePin
    types: Mapping[str, ValueType]
    numbers: Mapping[str, int]
    ends: tuple[str, str] | None = None
    end_columns: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return type_key(self.kind, self.name)

    @property
    def columns(self) -> list[str]:
        """The stored columns: `id`, for edges `src` and `dst`, and the properties by name."""
        return ["id", *self.end_columns, *self.types]

    @property
    def blobs(self) -> list[str]:
        return [name for name, type_ in self.types.items() if type_.scalar is Scalar.BLOB]


@dataclass(frozen=True, slots=True)
class AddedProperty:
    """A property that only the second state has.

    Attributes:
        name: its name.
        value: the value that the schema change has given to all rows; None for null.
        text: for vectors that are computed from a text, the property with the text. Then the vectors are not compared:
            they count as changed where the text has changed.
    """

    name: str
    value: pa.Scalar | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column to compare.

    Attributes:
        before: its name in the first state; None if it does not have the column.
        after: its name in the second state.
        before_type: its type in the first state; None for the ends of an edge, and without a name.
        after_type: its type in the second state; None for the ends of an edge.
        added: how the column was filled, if the first state does not have it.
    """

    before: str | None
    after: str
    before_type: ValueType | None = None
    after_type: ValueType | None = None
    added: AddedProperty | None = None

    @property
    def is_computed(self) -> bool:
        """Whether the values of a new column are computed from another one, so they are not compared."""
        return self.added is not None and self.added.text is not None

    @property
    def is_blob(self) -> bool:
        """Whether the column stores blobs, in both states. The type of a property cannot change to or from Blob."""
        return self.after_type is not None and self.after_type.scalar is Scalar.BLOB


@dataclass(frozen=True, slots=True)
class TypePair:
    """One type in both states; None in a state that does not have it. At least one state has it.

    Attributes:
        added: properties that only the second state has, and that are compared with the values that a schema change
            filled them with.
    """

    before: TypeState | None
    after: TypeState | None
    added: tuple[AddedProperty, ...] = ()

    @property
    def newest(self) -> TypeState:
        """The type in the second state; if it does not exist there, the type in the first state."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def id(self) -> TableId:
        return self.newest.pin.id

    @property
    def compared(self) -> tuple[ComparedColumn, ...]:
        """The columns to compare: the ends of edges, the properties that both states have, and those in `added`."""
        if self.before is None or self.after is None:
            return ()
        found = [ComparedColumn(end, end) for end in self.after.end_columns]
        names = {number: name for name, number in self.before.numbers.items()}
        added = {one.name: one for one in self.added}
        for name, type_ in self.after.types.items():
            old = names.get(self.after.numbers[name])
            if old is not None:
                found.append(ComparedColumn(old, name, self.before.types[old], type_))
            elif name in added:
                found.append(ComparedColumn(None, name, None, type_, added[name]))
        return tuple(found)

    @property
    def is_same_version(self) -> bool:
        """Whether both states have the same version of the table."""
        return self.before is not None and self.after is not None and self.before.pin.ref == self.after.pin.ref


def types_of(state: GraphState) -> dict[TableId, TypeState]:
    """The types of a state by their stable ids: first edge types, then node types, each sorted by name."""
    catalog, found = state.accepted.catalog, {}
    for kind, declared in ((TypeKind.EDGE, catalog.edges), (TypeKind.NODE, catalog.nodes)):
        for name in sorted(declared):
            one = _type_state(state, kind, declared[name])
            found[one.pin.id] = one
    return found


def _type_state(state: GraphState, kind: TypeKind, declared: NodeType | EdgeType) -> TypeState:
    numbers = state.accepted.identity(kind, declared.name).properties
    types = {name: prop.type for name, prop in declared.properties.items()}
    ends = (declared.from_type, declared.to_type) if isinstance(declared, EdgeType) else None
    pin = state.manifest.tables[type_key(kind, declared.name)]
    return TypeState(kind, declared.name, pin, types, numbers, ends, tuple(ENDS.values()) if ends else ())


def aligned_types(before: GraphState, after: GraphState) -> list[TypePair]:
    """All types of both states, matched by their stable ids: first edge types, then node types, each sorted by name."""
    old, new = types_of(before), types_of(after)
    pairs = [TypePair(old.get(identity), one) for identity, one in new.items()]
    pairs += [TypePair(one, None) for identity, one in old.items() if identity not in new]
    return sorted(pairs, key=lambda pair: (pair.newest.kind is TypeKind.NODE, pair.newest.name, pair.after is None))
