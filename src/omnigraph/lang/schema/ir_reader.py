"""Decode `_schema.ir.json`, and check that it is complete and consistent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from omnigraph.errors import CatalogError
from omnigraph.lang.schema.accepted import AcceptedSchema
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
from omnigraph.lang.schema.identity import EnumIdentity, TypeIdentity, TypeKey
from omnigraph.lang.schema.ir import IR_VERSION, to_json
from omnigraph.lang.types import Scalar, ValueType


def load_ir(text: str | bytes) -> AcceptedSchema:
    """Decode the accepted schema of a `_schema.ir.json`.

    Raises:
        CatalogError: the content is not a stored schema, or is inconsistent.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"it is not JSON ({error})") from None
    return from_json(value)


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _damaged(reason: str) -> CatalogError:
    return CatalogError(
        f"the stored schema is damaged: {reason}",
        diagnostic="OG-SC-040",
        hint="restore _schema.pg, _schema.ir.json and __schema_state.json together from a backup",
    )


_Raw = dict[str, Any]
"""JSON that is not validated yet."""


def from_json(value: object) -> AcceptedSchema:
    """Decode the accepted schema of a JSON value.

    Raises:
        CatalogError: the content is not a stored schema, or is inconsistent.
    """
    if not isinstance(value, dict) or value.get("ir_version") != IR_VERSION:
        raise _damaged(f"it is not of version {IR_VERSION}")
    try:
        accepted = _read(value)
        again = to_json(accepted)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(f"{type(error).__name__} {error}") from None
    # Encode again and compare: this detects unknown members, wrong numbers and wrong order.
    if again != value:
        raise _damaged("its parts are inconsistent")
    _check_numbers(accepted)
    return accepted


def _read(raw: _Raw) -> AcceptedSchema:
    identities: dict[TypeKey, TypeIdentity] = {}

    def named(kind: TypeKind, entry: _Raw) -> str:
        numbers = {str(prop["name"]): int(prop["property_id"]) for prop in entry["properties"]}
        enums = {str(prop["name"]): _read_enum(prop) for prop in entry["properties"] if "enum_identity" in prop}
        identities[kind, entry["name"]] = TypeIdentity(
            entry["type_id"], entry.get("table_incarnation_id"), numbers, enums
        )
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
        for enum in identity.enums.values():
            numbers += [one for one in enum.ids.values() if not isinstance(one, str)]
            if len(set(enum.ids.values())) != len(enum.ids):
                raise _damaged("two enum values have the same identity")
    if any(type(number) is not int for number in [*numbers, accepted.next_id]):
        raise _damaged("an identity is not a number")
    if len(set(numbers)) != len(numbers) or (numbers and not 1 <= min(numbers) <= max(numbers) < accepted.next_id):
        raise _damaged("it has duplicate identities")


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
    return {
        entry["name"]: _read_property(entry) for entry in sorted(raw["properties"], key=lambda entry: entry["name"])
    }


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


def _read_enum(raw: _Raw) -> EnumIdentity:
    entry = raw["enum_identity"]
    ids, dropped = dict(entry["ids"]), tuple(entry["dropped"])
    if not all(type(one) in (str, int) for one in ids.values()) or not all(type(one) is str for one in dropped):
        raise TypeError("enum_identity")
    return EnumIdentity(ids, dropped)


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
