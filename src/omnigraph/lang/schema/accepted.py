"""The accepted schema: a catalogue whose types and properties have stable numbers.

Tables, columns and composite ids use the numbers, so a rename changes no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.errors import PlanError, Span
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property, TypeKind
from omnigraph.lang.schema.identity import EnumIdentity, Resolution, TypeIdentity, TypeKey, resolve, types_of

_T = TypeVar("_T", InterfaceType, NodeType, EdgeType)

FIRST_ID = 1
_NOWHERE = Span(0, 0)
_FOLDERS = {TypeKind.NODE: "nodes", TypeKind.EDGE: "edges"}


@dataclass(frozen=True, slots=True)
class AcceptedSchema:
    """The schema of a graph with stable identities.

    Attributes:
        domain: a ULID that is created once per graph. Numbers are unique within a domain.
        next_id: the next unused number.
        catalog: the types, without rename hints and spans.
        identities: the numbers of all types and properties.
    """

    domain: str
    next_id: int
    catalog: Catalog
    identities: Mapping[TypeKey, TypeIdentity]

    def identity(self, kind: TypeKind, name: str) -> TypeIdentity:
        return self.identities[kind, name]

    def table_path(self, kind: TypeKind, name: str) -> str:
        """The path of the table of a node or edge type, relative to the graph."""
        identity = self.identities[kind, name]
        if identity.incarnation is None:
            raise ValueError(f"{kind.value} '{name}' has no table")
        return f"{_FOLDERS[kind]}/{identity.type_id:016x}-{identity.incarnation:016x}"

    def key_order(self, kind: TypeKind, name: str) -> tuple[str, ...] | None:
        """The fields of the key in the order in which they form the id; None without a key.

        The endpoints of an edge come first, then the properties by number. A rename does not change this order.
        """
        declaration = self.catalog.declared(kind, name)
        if declaration.key is None:
            return None
        numbers = {"src": -2, "dst": -1} if kind is TypeKind.EDGE else {}
        numbers |= self.identities[kind, name].properties
        return tuple(sorted(declaration.key, key=numbers.__getitem__))


def accept(catalog: Catalog, domain: str) -> AcceptedSchema:
    """The accepted schema of a new graph. Rename hints (`@rename_from`) have no effect; `creation_notes` lists them.

    Args:
        catalog: the compiled schema.
        domain: a new ULID.
    """
    return _number(catalog, domain, FIRST_ID, {})


def evolve(accepted: AcceptedSchema, catalog: Catalog) -> AcceptedSchema:
    """The accepted schema after a change to `catalog`. Unchanged and renamed declarations keep their numbers.

    Raises:
        PlanError: a rename hint is not valid.
    """
    resolution = resolve(accepted.catalog, catalog)
    if resolution.problems:
        first = resolution.problems[0]
        raise PlanError(first.message, diagnostic=first.code, hint=first.hint, span=first.span)
    existing: dict[TypeKey, TypeIdentity] = {}
    for key, old_name in resolution.types.items():
        old = accepted.identities[key[0], old_name]
        numbers = {name: old.properties[former] for name, former in resolution.properties[key].items()}
        existing[key] = TypeIdentity(old.type_id, old.incarnation, numbers)
    after = _number(catalog, accepted.domain, accepted.next_id, existing)
    return _with_enum_values(accepted, after, catalog, resolution)


def _with_enum_values(
    before: AcceptedSchema, after: AcceptedSchema, catalog: Catalog, resolution: Resolution
) -> AcceptedSchema:
    """Add the identities of enum values. Interfaces have no rows, so their enums have none.

    Args:
        before: the schema before the change.
        after: the schema after it.
        catalog: the schema after it, with rename hints.
        resolution: the former names.
    """
    counter = after.next_id
    identities = dict(after.identities)
    for key, identity in sorted(after.identities.items(), key=lambda item: item[1].type_id):
        if key[0] is TypeKind.INTERFACE or key not in resolution.types:
            continue
        old = before.catalog.declared(key[0], resolution.types[key])
        known = before.identities[key[0], old.name]
        enums: dict[str, EnumIdentity] = {}
        for name, former in sorted(resolution.properties[key].items()):
            properties = old.properties[former], catalog.declared(*key).properties[name]
            found, counter = known.enum(former).evolved(*properties, counter)
            if found:
                enums[name] = found
        identities[key] = replace(identity, enums=enums)
    return replace(after, next_id=counter, identities=identities)


def _number(catalog: Catalog, domain: str, next_id: int, existing: Mapping[TypeKey, TypeIdentity]) -> AcceptedSchema:
    """Assign numbers: to types by kind and name, then to properties, then to tables."""
    counter = next_id
    type_ids: dict[TypeKey, int] = {}
    for key, _ in types_of(catalog):
        known = existing.get(key)
        type_ids[key] = known.type_id if known else counter
        counter += known is None
    by_id = sorted(types_of(catalog), key=lambda item: type_ids[item[0]])
    properties: dict[TypeKey, dict[str, int]] = {}
    for key, declaration in by_id:
        numbers = dict(existing[key].properties) if key in existing else {}
        for name in sorted(declaration.properties):
            if name not in numbers:
                numbers[name] = counter
                counter += 1
        properties[key] = dict(sorted(numbers.items()))
    identities: dict[TypeKey, TypeIdentity] = {}
    for key, _ in by_id:
        incarnation = existing[key].incarnation if key in existing else None
        if key not in existing and key[0] is not TypeKind.INTERFACE:
            incarnation = counter
            counter += 1
        identities[key] = TypeIdentity(type_ids[key], incarnation, properties[key])
    return AcceptedSchema(domain, counter, without_hints(catalog), identities)


def without_hints(catalog: Catalog) -> Catalog:
    """The catalogue without rename hints and spans, which belong to one schema text and are not stored."""
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
