"""Identity of declarations across schema changes.

A declaration keeps its identity if it keeps its name, or if `@rename_from` gives the old name. Numbers are never
reused, so a type that is dropped and declared again is a new type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.errors import Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property, TypeKind

AnyType = InterfaceType | NodeType | EdgeType
MAX_SUGGESTIONS = 100

TypeKey = tuple[TypeKind, str]
"""A declaration: its kind and its name."""


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """The numbers of one declaration.

    Attributes:
        type_id: the number of the type.
        incarnation: the number of its table; None for an interface, which has no table.
        properties: the number of each property, by name.
    """

    type_id: int
    incarnation: int | None
    properties: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IdentityProblem:
    """A rename hint that is not valid."""

    code: str
    entity: str
    message: str
    hint: str
    owner: TypeKey
    span: Span
    property_name: str | None = None


@dataclass(slots=True)
class Resolution:
    """The mapping from the names of a desired schema to those of the accepted schema.

    Attributes:
        types: the former name of every declaration that already existed.
        properties: for each declaration, the former name of every property that already existed.
        notes: `@rename_from` hints that were ignored, with the reason.
        problems: `@rename_from` hints that are not valid.
    """

    types: dict[TypeKey, str] = field(default_factory=dict)
    properties: dict[TypeKey, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[IdentityProblem] = field(default_factory=list)

    def suggest(self, written: str, known: Iterable[str]) -> str:
        """A hint for an unknown name. The search for a similar name is slow, so it runs only for the first problems."""
        near = did_you_mean(written, known) if len(self.problems) < MAX_SUGGESTIONS else None
        return near or "remove @rename_from"


def types_of(catalog: Catalog) -> Iterator[tuple[TypeKey, AnyType]]:
    """All declarations: interfaces, then nodes, then edges."""
    for interface in catalog.interfaces.values():
        yield (TypeKind.INTERFACE, interface.name), interface
    for node in catalog.nodes.values():
        yield (TypeKind.NODE, node.name), node
    for edge in catalog.edges.values():
        yield (TypeKind.EDGE, edge.name), edge


def property_label(owner: TypeKey, name: str) -> str:
    """The name of a property in plans and notes."""
    return f"{owner[0].value} property '{owner[1]}.{name}'"


def creation_notes(catalog: Catalog) -> list[str]:
    """Notes about the rename hints in the schema of a new graph. They have no effect."""
    notes = []
    for key, declaration in types_of(catalog):
        hints = [(f"{key[0].value} '{key[1]}'", declaration.rename_from)]
        hints += [
            (property_label(key, prop.name), prop.rename_from)
            for prop in declaration.properties.values()
            if prop.declared_directly
        ]
        notes += [f'{entity}: @rename_from("{hint}") has no effect: the graph is new' for entity, hint in hints if hint]
    return notes


def resolve(accepted: Catalog, desired: Catalog) -> Resolution:
    """Match every declaration and property of `desired` with its former version in `accepted`."""
    result = Resolution()
    former = dict(types_of(accepted))
    current = dict(types_of(desired))
    _match_types(former, current, result)
    for key, declaration in current.items():
        old_name = result.types.get(key)
        old = former[key[0], old_name] if old_name is not None else None
        result.properties[key] = _match_properties(key, declaration, old, former, result)
    return result


def _match_types(former: Mapping[TypeKey, AnyType], current: Mapping[TypeKey, AnyType], result: Resolution) -> None:
    claimed = {key for key in current if key in former}
    for key, declaration in current.items():
        kind, name = key
        hint = declaration.rename_from
        if key in former:
            result.types[key] = name
            if hint and hint != name:
                result.notes.append(_ignored(f"{kind.value} '{name}'", hint))
            continue
        if hint is None:
            continue
        if (kind, hint) not in former:
            _report_unknown_type(key, declaration, hint, former, result)
        elif (kind, hint) in claimed:
            _report_claimed(f"{kind.value} '{name}'", f"{kind.value} '{hint}'", key, declaration.span, result)
        else:
            claimed.add((kind, hint))
            result.types[key] = hint


def _match_properties(
    key: TypeKey, declaration: AnyType, old: AnyType | None, former: Mapping[TypeKey, AnyType], result: Resolution
) -> dict[str, str]:
    known: Mapping[str, Property] = old.properties if old is not None else {}
    matched = {name: name for name in declaration.properties if name in known}
    claimed = set(matched)
    for name, prop in declaration.properties.items():
        hint = prop.rename_from
        if hint is None or hint == name:
            continue
        entity = property_label(key, name)
        if name in matched:
            result.notes.append(_ignored(entity, hint))
        elif hint in known and hint not in claimed:
            claimed.add(hint)
            matched[name] = hint
        elif not prop.declared_directly:
            # The hint of an interface applies to all its node types. This node type did not have the old property.
            result.notes.append(f'{entity}: @rename_from("{hint}") of its interface has no effect here')
        elif hint in known:
            _report_claimed(entity, f"'{hint}'", key, prop.span, result, name)
        else:
            _report_unknown_property(entity, key, prop, hint, old, former, result)
    return matched


def _ignored(entity: str, hint: str) -> str:
    return f'{entity}: @rename_from("{hint}") is ignored: the name existed before and keeps its identity'


def _report_claimed(
    entity: str, claim: str, owner: TypeKey, span: Span, result: Resolution, property_name: str | None = None
) -> None:
    result.problems.append(
        IdentityProblem(
            "OG-NM-103",
            entity,
            f"{entity} cannot be renamed from {claim}: another declaration has this name or is renamed from it",
            "remove this @rename_from, or remove the other declaration",
            owner,
            span,
            property_name,
        )
    )


def _report_unknown_type(
    key: TypeKey, declaration: AnyType, hint: str, former: Mapping[TypeKey, AnyType], result: Resolution
) -> None:
    kind, name = key
    entity = f"{kind.value} '{name}'"
    others = [other for other in TypeKind if (other, hint) in former]
    if others:
        code, message = "OG-NM-102", f"{entity} cannot be renamed from the {others[0].value} '{hint}'"
        advice = "a rename cannot change the kind; drop the old declaration and add the new one"
    else:
        code, message = "OG-NM-101", f"{entity}: there was no {kind.value} '{hint}'"
        advice = result.suggest(hint, _names(former, kind))
    result.problems.append(IdentityProblem(code, entity, message, advice, key, declaration.span))


def _report_unknown_property(
    entity: str,
    owner: TypeKey,
    prop: Property,
    hint: str,
    old: AnyType | None,
    former: Mapping[TypeKey, AnyType],
    result: Resolution,
) -> None:
    elsewhere = [key for key, declaration in former.items() if hint in declaration.properties]
    if old is None:
        code, message = "OG-OW-102", f"{entity}: the type is new, so the property cannot have had another name"
        advice = "remove @rename_from"
    elif elsewhere:
        kind, name = elsewhere[0]
        code, message = "OG-OW-101", f"{entity}: '{hint}' was a property of {kind.value} '{name}', not of this type"
        advice = "a property cannot move to another type; remove @rename_from"
    else:
        code, message = "OG-NM-101", f"{entity}: there was no property '{hint}'"
        advice = result.suggest(hint, old.properties)
    result.problems.append(IdentityProblem(code, entity, message, advice, owner, prop.span, prop.name))


def _names(types: Iterable[TypeKey], kind: TypeKind) -> list[str]:
    return [name for other, name in types if other is kind]
