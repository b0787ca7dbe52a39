"""The shape of a schema: its meaning, without order, comments, former names and identities.

Two texts with the same shape are the same schema. Members without a value (defaults, incoming cardinalities, index
options, accepted findings) are omitted, so a new language feature does not change the hashes of schemas without it.
"""

# See docs/decisions/0010-the-shape-grows-only-where-it-is-used.md

from __future__ import annotations

import hashlib

from omnigraph.lang.schema.canonical import Json, annotation_json, compact, index_options
from omnigraph.lang.schema.catalog import (
    Cardinality,
    Catalog,
    Check,
    Constraint,
    Default,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    NodeType,
    Property,
    Range,
    Unique,
)
from omnigraph.lang.types import Scalar, ValueType


def shape_hash(catalog: Catalog) -> str:
    """`sha256:` and the hash of the compact JSON of the shape."""
    return digest(compact(shape(catalog)))


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def shape(catalog: Catalog) -> dict[str, Json]:
    """The shape as JSON, with members in a fixed order."""
    return {
        "interfaces": [_interface(interface) for interface in catalog.interfaces.values()],
        "nodes": [_node(node) for node in catalog.nodes.values()],
        "edges": [_edge(edge) for edge in catalog.edges.values()],
    }


def _interface(interface: InterfaceType) -> Json:
    return {"name": interface.name, "properties": _properties(interface)}


def _node(node: NodeType) -> Json:
    entry: dict[str, Json] = {
        "name": node.name,
        "annotations": [annotation_json(annotation) for annotation in node.annotations],
        "implements": list(node.implements),
        "properties": _properties(node),
        "constraints": [constraint_json(constraint) for constraint in node.constraints],
    }
    return entry | allows_json(node.allows)


def _edge(edge: EdgeType) -> Json:
    entry: dict[str, Json] = {
        "name": edge.name,
        "from_type": edge.from_type,
        "to_type": edge.to_type,
        "cardinality": cardinality_json(edge.card),
        "annotations": [annotation_json(annotation) for annotation in edge.annotations],
        "properties": _properties(edge),
        "constraints": [constraint_json(constraint) for constraint in edge.constraints],
    }
    return entry | card_in_json(edge.card_in) | allows_json(edge.allows)


def _properties(owner: InterfaceType | NodeType | EdgeType) -> Json:
    return [_property(prop) for prop in owner.properties.values()]


def _property(prop: Property) -> Json:
    embed: Json = None
    if prop.embed is not None:
        embed = {"property_name": prop.embed.source, "model": prop.embed.model}
    entry: dict[str, Json] = {
        "name": prop.name,
        "prop_type": type_json(prop.type),
        "annotations": [annotation_json(annotation) for annotation in prop.annotations],
        "property_constraints": list(prop.property_constraints),
        "embed_source": embed,
        "declared_directly": prop.declared_directly,
        "satisfies_interface_properties": [
            {"owner_name": owner, "property_name": name} for owner, name in prop.satisfies
        ],
    }
    return entry | default_json(prop.default) | allows_json(prop.allows)


# ---- parts that stored schemas encode in the same way ----


def type_json(type_: ValueType) -> dict[str, Json]:
    scalar: Json = {"Vector": type_.dim} if type_.scalar is Scalar.VECTOR else type_.scalar.value
    return {
        "scalar": scalar,
        "nullable": type_.nullable,
        "list": type_.list,
        "enum_values": None if type_.enum_values is None else list(type_.enum_values),
    }


def bound_json(bound: int | float | None) -> Json:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def cardinality_json(cardinality: Cardinality) -> dict[str, Json]:
    return {"min": cardinality.min, "max": cardinality.max}


def card_in_json(cardinality: Cardinality) -> dict[str, Json]:
    return {} if cardinality == Cardinality() else {"cardinality_in": cardinality_json(cardinality)}


def default_json(default: Default | None) -> dict[str, Json]:
    if default is None:
        return {}
    return {"default": {"now": True} if default.now else {"value": default.value}}


def allows_json(allows: tuple[tuple[str, str], ...]) -> dict[str, Json]:
    return {"allows": [{"code": code, "reason": reason} for code, reason in allows]} if allows else {}


def constraint_json(constraint: Constraint) -> Json:
    match constraint:
        case Key(fields):
            return {"Key": list(fields)}
        case Unique(fields):
            return {"Unique": list(fields)}
        case Index(fields):
            options = index_options(constraint)
            entry: dict[str, Json] = {"Index": list(fields)}
            return entry | ({"options": dict(options)} if options else {})
        case Range(name, least, most):
            return {"Range": {"property": name, "min": bound_json(least), "max": bound_json(most)}}
        case Check(name, pattern):
            return {"Check": {"property": name, "pattern": pattern}}
