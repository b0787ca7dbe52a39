"""The accepted schema: a catalogue whose types and properties have numbers that never change.

Tables, columns and composite ids refer to the numbers, so a rename moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph.errors import PlanError, Span
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property, TypeKind
from omnigraph.lang.schema.identity import TypeIdentity, TypeKey, resolve, types_of

_T = TypeVar("_T", InterfaceType, NodeType, EdgeType)

FIRST_ID = 1
_NOWHERE = Span(0, 0)
_FOLDERS = {TypeKind.NODE: "nodes", TypeKind.EDGE: "edges"}


@dataclass(frozen=True, slots=True)
class AcceptedSchema:
    """What a graph is stored under.

    Attributes:
        domain: the ULID under which the numbers are unique; minted once per graph.
        next_id: the number that the next new thing gets.
        catalog: the types, without rename hints and places.
        identities: the numbers of every declaration.
    """

    domain: str
    next_id: int
    catalog: Catalog
    identities: Mapping[TypeKey, TypeIdentity]

    def identity(self, kind: TypeKind, name: str) -> TypeIdentity:
        return self.identities[kind, name]

    def table_path(self, kind: TypeKind, name: str) -> str:
        """Where the table of a node or edge type lies, relative to the graph."""
        identity = self.identities[kind, name]
        if identity.incarnation is None:
            raise ValueError(f"{kind.value} '{name}' has no table")
        return f"{_FOLDERS[kind]}/{identity.type_id:016x}-{identity.incarnation:016x}"

    def key_order(self, kind: TypeKind, name: str) -> tuple[str, ...] | None:
        """The members of a type's key in the order in which they make up the id; None without a key.

        The ends of an edge come first, then properties by number: the order outlives every rename.
        """
        declaration = self.catalog.nodes[name] if kind is TypeKind.NODE else self.catalog.edges[name]
        if declaration.key is None:
            return None
        numbers = {"src": -2, "dst": -1} if kind is TypeKind.EDGE else {}
        numbers |= self.identities[kind, name].properties
        return tuple(sorted(declaration.key, key=numbers.__getitem__))


def accept(catalog: Catalog, domain: str) -> AcceptedSchema:
    """The schema of a new graph. Rename hints have no effect on it; `creation_notes` lists them.

    Args:
        catalog: the compiled schema.
        domain: a fresh ULID.
    """
    return _number(catalog, domain, FIRST_ID, {})


def evolve(accepted: AcceptedSchema, catalog: Catalog) -> AcceptedSchema:
    """The accepted schema after a change. `resolve` tells which hints were ignored.

    Raises:
        PlanError: a rename hint cannot be followed.
    """
    resolution = resolve(accepted.catalog, catalog)
    if resolution.problems:
        first = resolution.problems[0]
        raise PlanError(first.message, diagnostic=first.code, hint=first.hint, span=first.span)
    kept: dict[TypeKey, TypeIdentity] = {}
    for key, old_name in resolution.types.items():
        old = accepted.identities[key[0], old_name]
        numbers = {name: old.properties[former] for name, former in resolution.properties[key].items()}
        kept[key] = TypeIdentity(old.type_id, old.incarnation, numbers)
    return _number(catalog, accepted.domain, accepted.next_id, kept)


def _number(catalog: Catalog, domain: str, next_id: int, kept: Mapping[TypeKey, TypeIdentity]) -> AcceptedSchema:
    """Hand out numbers: to types by kind and name, then to properties, then to tables."""
    counter = next_id
    type_ids: dict[TypeKey, int] = {}
    for key, _ in types_of(catalog):
        known = kept.get(key)
        type_ids[key] = known.type_id if known else counter
        counter += known is None
    by_id = sorted(types_of(catalog), key=lambda item: type_ids[item[0]])
    properties: dict[TypeKey, dict[str, int]] = {}
    for key, declaration in by_id:
        numbers = dict(kept[key].properties) if key in kept else {}
        for name in sorted(declaration.properties):
            if name not in numbers:
                numbers[name] = counter
                counter += 1
        properties[key] = dict(sorted(numbers.items()))
    identities: dict[TypeKey, TypeIdentity] = {}
    for key, _ in by_id:
        incarnation = kept[key].incarnation if key in kept else None
        if key not in kept and key[0] is not TypeKind.INTERFACE:
            incarnation = counter
            counter += 1
        identities[key] = TypeIdentity(type_ids[key], incarnation, properties[key])
    return AcceptedSchema(domain, counter, settled(catalog), identities)


def settled(catalog: Catalog) -> Catalog:
    """The catalogue without what only speaks about one change or one text: hints and places."""
    return Catalog(
        {name: _settled_type(interface) for name, interface in catalog.interfaces.items()},
        {name: _settled_type(node) for name, node in catalog.nodes.items()},
        {name: _settled_type(edge) for name, edge in catalog.edges.items()},
    )


def _settled_type(declaration: _T) -> _T:
    properties = {name: _settled_property(prop) for name, prop in declaration.properties.items()}
    return replace(declaration, properties=properties, rename_from=None, span=_NOWHERE)


def _settled_property(prop: Property) -> Property:
    return replace(prop, rename_from=None, enum_renames=(), span=_NOWHERE)
