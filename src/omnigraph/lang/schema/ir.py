"""Accepted schemas as JSON: the content of `_schema.ir.json`, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from omnigraph.errors import CatalogError
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.canonical import Json, annotation_json, compact, index_options
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    Constraint,
    Default,
    EdgeType,
    Embed,
    Index,
    IndexKind,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    TypeKind,
    Unique,
)
from omnigraph.lang.schema.identity import AnyType, TypeIdentity, TypeKey
from omnigraph.lang.schema.owner import ENDPOINTS
from omnigraph.lang.schema.shape import (
    allows_json,
    bound_json,
    card_in_json,
    cardinality_json,
    default_json,
    digest,
    type_json,
)
from omnigraph.lang.types import Scalar, ValueType

IR_VERSION = 2


def ir_hash(accepted: AcceptedSchema) -> str:
    """`sha256:` and the hash of the stored schema's compact JSON."""
    return digest(compact(to_json(accepted)))


def dump_ir(accepted: AcceptedSchema) -> str:
    """The content of `_schema.ir.json`."""
    return json.dumps(to_json(accepted), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def load_ir(text: str | bytes) -> AcceptedSchema:
    """The accepted schema that a `_schema.ir.json` holds.

    Raises:
        CatalogError: it is no stored schema, or its parts contradict each other.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"it is not JSON ({error})") from None
    return from_json(value)


def _damaged(reason: str) -> CatalogError:
    return CatalogError(
        f"the stored schema is damaged: {reason}",
        diagnostic="OG-SC-040",
        hint="restore _schema.pg, _schema.ir.json and __schema_state.json together from a backup",
    )


# ---- writing ----


def to_json(accepted: AcceptedSchema) -> dict[str, Json]:
    """The accepted schema as JSON, its members in their fixed order."""
    write = _Writer(accepted)
    catalog = accepted.catalog
    return {
        "ir_version": IR_VERSION,
        "schema_identity_domain": accepted.domain,
        "next_identity_id": accepted.next_id,
        "interfaces": [write.interface(interface) for interface in catalog.interfaces.values()],
        "nodes": [write.node(node) for node in catalog.nodes.values()],
        "edges": [write.edge(edge) for edge in catalog.edges.values()],
    }


class _Writer:
    def __init__(self, accepted: AcceptedSchema) -> None:
        self.identities = accepted.identities

    def interface(self, interface: InterfaceType) -> Json:
        key = TypeKind.INTERFACE, interface.name
        return {
            "name": interface.name,
            "type_id": self.identities[key].type_id,
            "properties": self._properties(key, interface),
        }

    def node(self, node: NodeType) -> Json:
        key = TypeKind.NODE, node.name
        identity = self.identities[key]
        entry: dict[str, Json] = {
            "name": node.name,
            "type_id": identity.type_id,
            "table_incarnation_id": identity.incarnation,
            "annotations": [annotation_json(annotation) for annotation in node.annotations],
            "implements": [self._type_ref(TypeKind.INTERFACE, name) for name in node.implements],
            "properties": self._properties(key, node),
            "constraints": [self._constraint(key, constraint) for constraint in node.constraints],
        }
        return entry | allows_json(node.allows)

    def edge(self, edge: EdgeType) -> Json:
        key = TypeKind.EDGE, edge.name
        identity = self.identities[key]
        entry: dict[str, Json] = {
            "name": edge.name,
            "type_id": identity.type_id,
            "table_incarnation_id": identity.incarnation,
            "from_type": self._type_ref(TypeKind.NODE, edge.from_type),
            "to_type": self._type_ref(TypeKind.NODE, edge.to_type),
            "cardinality": cardinality_json(edge.card),
            "annotations": [annotation_json(annotation) for annotation in edge.annotations],
            "properties": self._properties(key, edge),
            "constraints": [self._constraint(key, constraint) for constraint in edge.constraints],
        }
        return entry | card_in_json(edge.card_in) | allows_json(edge.allows)

    def _type_ref(self, kind: TypeKind, name: str) -> Json:
        return {"type_id": self.identities[kind, name].type_id, "type_name": name}

    def _property_ref(self, owner: TypeKey, name: str) -> dict[str, Json]:
        identity = self.identities[owner]
        return {
            "owner_type_id": identity.type_id,
            "owner_type_name": owner[1],
            # An interface may embed a property that only its implementors have.
            "property_id": identity.properties.get(name),
            "property_name": name,
        }

    def _properties(self, owner: TypeKey, declaration: AnyType) -> Json:
        return [self._property(owner, prop) for prop in declaration.properties.values()]

    def _property(self, owner: TypeKey, prop: Property) -> Json:
        embed: Json = None
        if prop.embed is not None:
            embed = {"source": self._property_ref(owner, prop.embed.source), "model": prop.embed.model}
        entry: dict[str, Json] = {
            "name": prop.name,
            "property_id": self.identities[owner].properties[prop.name],
            "prop_type": type_json(prop.type),
            "annotations": [annotation_json(annotation) for annotation in prop.annotations],
            "property_constraints": list(prop.property_constraints),
            "embed_source": embed,
            "declared_directly": prop.declared_directly,
            "satisfies_interface_properties": [
                self._property_ref((TypeKind.INTERFACE, interface), name) for interface, name in prop.satisfies
            ],
        }
        return entry | default_json(prop.default) | allows_json(prop.allows)

    def _constraint(self, owner: TypeKey, constraint: Constraint) -> Json:
        match constraint:
            case Key(fields):
                return {"kind": "key", "fields": self._fields(owner, fields)}
            case Unique(fields):
                return {"kind": "unique", "fields": self._fields(owner, fields)}
            case Index(fields):
                options = index_options(constraint)
                entry: dict[str, Json] = {"kind": "index", "fields": self._fields(owner, fields)}
                return entry | ({"options": dict(options)} if options else {})
            case Range(name, least, most):
                field = self._field(owner, name)
                return {"kind": "range", "field": field, "min": bound_json(least), "max": bound_json(most)}
            case Check(name, pattern):
                return {"kind": "check", "field": self._field(owner, name), "pattern": pattern}

    def _fields(self, owner: TypeKey, names: Iterable[str]) -> Json:
        return [self._field(owner, name) for name in names]

    def _field(self, owner: TypeKey, name: str) -> Json:
        if owner[0] is TypeKind.EDGE and name in ENDPOINTS:
            identity = self.identities[owner]
            return {
                "kind": "system",
                "stable_table_id": identity.type_id,
                "table_type_name": owner[1],
                "table_incarnation_id": identity.incarnation,
                "role": name,
            }
        entry: dict[str, Json] = {"kind": "property"}
        return entry | self._property_ref(owner, name)


# ---- reading ----

_Raw = dict[str, Any]
"""JSON that is still to be judged."""


def from_json(value: object) -> AcceptedSchema:
    """The accepted schema of a JSON value.

    Raises:
        CatalogError: it is no stored schema, or its parts contradict each other.
    """
    if not isinstance(value, dict) or value.get("ir_version") != IR_VERSION:
        raise _damaged(f"it is not of version {IR_VERSION}")
    try:
        accepted = _read(value)
        again = to_json(accepted)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(f"{type(error).__name__} {error}") from None
    # Whatever is superfluous, misnumbered or out of order does not come back the same.
    if again != value:
        raise _damaged("its parts do not agree")
    _check_numbers(accepted)
    return accepted


def _read(raw: _Raw) -> AcceptedSchema:
    identities: dict[TypeKey, TypeIdentity] = {}

    def named(kind: TypeKind, entry: _Raw) -> str:
        numbers = {str(prop["name"]): int(prop["property_id"]) for prop in entry["properties"]}
        identities[kind, entry["name"]] = TypeIdentity(entry["type_id"], entry.get("table_incarnation_id"), numbers)
        return str(entry["name"])

    nodes = {named(TypeKind.NODE, entry): _read_node(entry) for entry in raw["nodes"]}
    edges = {named(TypeKind.EDGE, entry): _read_edge(entry) for entry in raw["edges"]}
    implementors: dict[str, list[str]] = {}
    for name, node in sorted(nodes.items()):
        for interface in node.implements:
            implementors.setdefault(interface, []).append(name)
    interfaces = {
        named(TypeKind.INTERFACE, entry): InterfaceType(
            entry["name"], _read_properties(entry), tuple(implementors.get(entry["name"], ()))
        )
        for entry in raw["interfaces"]
    }
    catalog = Catalog(interfaces, nodes, edges)
    return AcceptedSchema(raw["schema_identity_domain"], raw["next_identity_id"], catalog, identities)


def _check_numbers(accepted: AcceptedSchema) -> None:
    numbers: list[int] = []
    for (kind, _), identity in accepted.identities.items():
        numbers += [identity.type_id, *identity.properties.values()]
        if kind is not TypeKind.INTERFACE:
            numbers.append(-1 if identity.incarnation is None else identity.incarnation)
    if any(type(number) is not int for number in [*numbers, accepted.next_id]):
        raise _damaged("an identity is not a number")
    if len(set(numbers)) != len(numbers) or (numbers and not 1 <= min(numbers) <= max(numbers) < accepted.next_id):
        raise _damaged("its identities are not distinct")


def _read_node(raw: _Raw) -> NodeType:
    return NodeType(
        raw["name"],
        _read_properties(raw),
        _read_constraints(raw),
        tuple(ref["type_name"] for ref in raw["implements"]),
        _read_annotations(raw),
        allows=_read_allows(raw),
    )


def _read_edge(raw: _Raw) -> EdgeType:
    return EdgeType(
        raw["name"],
        raw["from_type"]["type_name"],
        raw["to_type"]["type_name"],
        _read_properties(raw),
        _read_constraints(raw),
        _read_cardinality(raw["cardinality"]),
        _read_cardinality(raw["cardinality_in"]) if "cardinality_in" in raw else Cardinality(),
        _read_annotations(raw),
        allows=_read_allows(raw),
    )


def _read_properties(raw: _Raw) -> dict[str, Property]:
    return {entry["name"]: _read_property(entry) for entry in raw["properties"]}


def _read_property(raw: _Raw) -> Property:
    embed, default = raw["embed_source"], raw.get("default")
    return Property(
        raw["name"],
        _read_type(raw["prop_type"]),
        _read_annotations(raw),
        tuple(raw["property_constraints"]),
        Embed(embed["source"]["property_name"], embed["model"]) if embed else None,
        Default(default.get("value"), default.get("now", False)) if default else None,
        raw["declared_directly"],
        tuple((ref["owner_type_name"], ref["property_name"]) for ref in raw["satisfies_interface_properties"]),
        allows=_read_allows(raw),
    )


def _read_type(raw: _Raw) -> ValueType:
    scalar, values = raw["scalar"], raw["enum_values"]
    enum_values = None if values is None else tuple(values)
    if isinstance(scalar, dict):
        return ValueType(Scalar.VECTOR, raw["nullable"], raw["list"], enum_values, scalar["Vector"])
    return ValueType(Scalar(scalar), raw["nullable"], raw["list"], enum_values)


def _read_annotations(raw: _Raw) -> tuple[Annotation, ...]:
    return tuple(
        Annotation(entry["name"], entry["value"], tuple(sorted(entry.get("kwargs", {}).items())))
        for entry in raw["annotations"]
    )


def _read_allows(raw: _Raw) -> tuple[tuple[str, str], ...]:
    return tuple((entry["code"], entry["reason"]) for entry in raw.get("allows", ()))


def _read_cardinality(raw: _Raw) -> Cardinality:
    return Cardinality(raw["min"], raw["max"])


def _read_constraints(raw: _Raw) -> tuple[Constraint, ...]:
    return tuple(_CONSTRAINTS[entry["kind"]](entry) for entry in raw["constraints"])


def _read_field(raw: _Raw) -> str:
    return str(raw["role"] if raw["kind"] == "system" else raw["property_name"])


def _read_fields(raw: _Raw) -> tuple[str, ...]:
    return tuple(map(_read_field, raw["fields"]))


def _read_index(raw: _Raw) -> Index:
    options: dict[str, str] = dict(raw.get("options", {}))
    kind = IndexKind(options.pop("kind", IndexKind.AUTO))
    return Index(_read_fields(raw), kind, tuple(sorted(options.items())))


def _read_bound(raw: _Raw | None) -> int | float | None:
    if raw is None:
        return None
    return int(raw["Integer"]) if "Integer" in raw else float(raw["Float"])


_CONSTRAINTS: dict[str, Callable[[_Raw], Constraint]] = {
    "key": lambda raw: Key(_read_fields(raw)),
    "unique": lambda raw: Unique(_read_fields(raw)),
    "index": _read_index,
    "range": lambda raw: Range(_read_field(raw["field"]), _read_bound(raw["min"]), _read_bound(raw["max"])),
    "check": lambda raw: Check(_read_field(raw["field"]), raw["pattern"]),
}
