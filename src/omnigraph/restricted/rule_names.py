"""Names in rules: those of a reference schema. Types and properties of other states are found by their numbers.

So a rule applies to a type or a property under its former names, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import cast

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key, type_key


def all_keys(accepted: AcceptedSchema) -> list[str]:
    """The keys of all types of a schema, nodes first."""
    catalog = accepted.catalog
    return [*map(node_key, catalog.nodes), *map(edge_key, catalog.edges)]


def rule_key(key: str, accepted: AcceptedSchema, reference: AcceptedSchema) -> str:
    """The key that rules have for a type: its key in the reference schema, or its own if that has no such type."""
    if accepted is reference:
        return key
    kind, name = TypeKey.parse(key)
    number = accepted.identity(kind, name).type_id
    for (other, found), identity in reference.identities.items():
        if identity.type_id == number and other is kind:
            return type_key(kind, found)
    return key


class DroppedNames:
    """Names of types and properties that a schema no longer has. Rules may keep them, for the states that have them.

    Args:
        accepted: the present schema.
        former: reads all schemas that the graph has had. Called once, if it is needed.
    """

    def __init__(self, accepted: AcceptedSchema, former: Callable[[], Iterable[AcceptedSchema]]) -> None:
        self._accepted = accepted
        self._read = former

    @cached_property
    def _former(self) -> list[AcceptedSchema]:
        return list(self._read())

    def types(self, name: str) -> list[tuple[str, AcceptedSchema]]:
        """The dropped types with a name, or with a key: their keys, each with a schema that has the type."""
        present = {(kind, one.type_id) for (kind, _), one in self._accepted.identities.items()}
        return [
            (key, schema)
            for schema in self._former
            for key in all_keys(schema)
            if is_about(name, key)
            and (TypeKey.parse(key).kind, schema.identity(*TypeKey.parse(key)).type_id) not in present
        ]

    def has_property(self, key: str, name: str) -> bool:
        """Whether a type of the present schema had a property that was dropped."""
        kind, _ = TypeKey.parse(key)
        present = self._accepted.identity(*TypeKey.parse(key))
        earlier = (
            one.properties.get(name)
            for schema in self._former
            for (other, _), one in schema.identities.items()
            if other is kind and one.type_id == present.type_id
        )
        numbers = {number for number in earlier if number is not None}
        return bool(numbers - {*present.properties.values()})


def is_about(name: str, key: str) -> bool:
    """Whether a name in a rule is that of a type, or its key."""
    return name in (key, key.partition(":")[2])


def hidden_properties(
    names: Collection[str], key: str, named: str, accepted: AcceptedSchema, reference: AcceptedSchema
) -> set[str]:
    """The properties of a type that rules hide, and the vectors that are computed from them.

    Args:
        names: the names in the rules.
        key: the key of the type in the state.
        named: its key in the rules.
        accepted: the schema of the state.
        reference: the reference schema.
    """
    kind, name = TypeKey.parse(key)
    numbers = accepted.identity(kind, name).properties
    hidden = {prop for prop in names if prop in numbers}
    known = reference.identities.get(TypeKey.parse(named))
    if known is not None:
        masked = {known.properties[prop] for prop in names if prop in known.properties}
        hidden |= {prop for prop, number in numbers.items() if number in masked}
    properties = accepted.catalog.declared(kind, name).properties
    return hidden | {
        prop for prop, declared in properties.items() if declared.embed is not None and declared.embed.source in hidden
    }


def condition_in(
    condition: ir.Expr, key: str, named: str, accepted: AcceptedSchema, reference: AcceptedSchema
) -> ir.Expr | None:
    """A condition with the names of the reference schema, for the schema of a state.

    Args:
        condition: the condition.
        key: the key of the type in the state.
        named: its key in the reference schema.
        accepted: the schema of the state.
        reference: the reference schema.

    Returns:
        The condition; None if the state does not have a property of the condition, or has it with another type.
    """
    known = reference.identities[TypeKey.parse(named)]
    identity, declared = accepted.identity(*TypeKey.parse(key)), accepted.catalog.declared(*TypeKey.parse(key))
    present = {number: name for name, number in identity.properties.items()}
    names: dict[str, str] = {}
    for one in walk(condition):
        if isinstance(one, ir.Prop):
            name = present.get(known.properties[one.name])
            if name is None or declared.properties[name].type != one.type:
                return None
            names[one.name] = name
    return cast(ir.Expr, _renamed(condition, names))


def _renamed(part: object, names: Mapping[str, str]) -> object:
    """A part of a condition with other names of properties."""
    if isinstance(part, ir.Prop):
        return replace(part, name=names[part.name])
    if isinstance(part, tuple):
        return tuple(_renamed(one, names) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{one.name: _renamed(getattr(part, one.name), names) for one in fields(part)})
    return part
