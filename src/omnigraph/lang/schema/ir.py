"""JSON encoding of accepted schemas: the content of `_schema.ir.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.canonical import Json, annotation_json, compact, index_options
from omnigraph.lang.schema.catalog import (
    Check,
    Constraint,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    TypeKind,
    Unique,
)
from omnigraph.lang.schema.identity import AnyType, EnumIdentity, TypeKey
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

IR_VERSION = 2


def ir_hash(accepted: AcceptedSchema) -> str:
    """`sha256:` and the hash of the compact JSON of a stored schema."""
    return digest(compact(to_json(accepted)))


def dump_ir(accepted: AcceptedSchema) -> str:
    """The content of `_schema.ir.json`."""
    return json.dumps(to_json(accepted), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def to_json(accepted: AcceptedSchema) -> dict[str, Json]:
    """Encode an accepted schema as JSON, with members in a fixed order."""
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
            # The source property of an interface's `@embed` may exist only in its node types.
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
        values = _enum_json(self.identities[owner].enum(prop.name))
        return entry | default_json(prop.default) | allows_json(prop.allows) | values

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


def _enum_json(identity: EnumIdentity) -> dict[str, Json]:
    """The identities of enum values; nothing if all values are identified by their names."""
    if not identity:
        return {}
    return {"enum_identity": {"ids": dict(sorted(identity.ids.items())), "dropped": list(identity.dropped)}}
