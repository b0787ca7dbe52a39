"""Identity of declarations across schema changes.

A declaration keeps its identity if it keeps its name, or if `@rename_from` gives the old name. Numbers are never
reused, so a type that is dropped and declared again is a new type. The same holds for the values of an enum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property, TypeKind
from omnigraph.lang.types import Scalar

AnyType = InterfaceType | NodeType | EdgeType
MAX_SUGGESTIONS = 100

TypeKey = tuple[TypeKind, str]
"""A declaration: its kind and its name."""


ValueId = str | int
"""The identity of an enum value: its first name; or, if an earlier value of the enum had that name first, a number, or
for a text of a String the text with an addition (`EnumIdentity.of_text`)."""

TEXT = " (text)"
"""The addition. It contains a space, so no enum value has such a name."""


@dataclass(frozen=True, slots=True)
class EnumIdentity:
    """The identities of the values of an enum. A property that became a String keeps those of its former enum.

    Attributes:
        ids: the identities of values that are not identified by their name.
        dropped: the identities of removed values, without numbers. They are never used again.
    """

    ids: Mapping[str, ValueId] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ids or self.dropped)

    def of(self, value: str) -> ValueId:
        """The identity of a value of the enum."""
        return self.ids.get(value, value)

    def is_used(self, name: str) -> bool:
        """Whether a name is the identity of a value with another name, or of a removed value."""
        return name in self.dropped or name in self.ids.values()

    def of_text(self, text: str) -> ValueId:
        """The identity of a text of a String. If the String becomes an enum, the value with this name has it, too.

        A text that is a value of the former enum has the identity of this value. If the name was first that of another
        value, the text has an identity of its own.
        """
        if text in self.ids:
            return self.ids[text]
        while self.is_used(text):
            text += TEXT
        return text

    def evolved(self, old: Property, new: Property, next_id: int) -> tuple[EnumIdentity, int]:
        """The identities after a change of the property, and the next unused number.

        Args:
            old: the property before the change.
            new: the property after it, with its rename hints.
            next_id: the next unused number.
        """
        if new.type.enum_values is None:
            return (self if new.type.scalar is Scalar.STRING else EnumIdentity()), next_id
        renamed = renamed_enum_values(old, new)
        # The texts of a String keep their meaning if the property becomes an enum.
        is_text = old.type.enum_values is None
        kept = {value for value in old.type.enum_values or () if value not in renamed.values()}
        former = set(old.type.enum_values or self.ids)
        ids: dict[str, ValueId] = {}
        for value in sorted(new.type.enum_values):
            if is_text:
                ids[value] = self.of_text(value)
            elif value in renamed or value in kept:
                ids[value] = self.of(renamed.get(value, value))
            elif self.is_used(value) or value in former:
                ids[value], next_id = next_id, next_id + 1
            else:
                ids[value] = value
        gone = {self.of(value) for value in former} - set(ids.values())
        dropped = {*self.dropped, *(one for one in gone if isinstance(one, str))}
        return EnumIdentity({v: one for v, one in ids.items() if one != v}, tuple(sorted(dropped))), next_id


def renamed_enum_values(old: Property, new: Property) -> dict[str, str]:
    """The values of an enum that a change renames: the old name of each new name. Hints without effect are left out."""
    before = set(old.type.enum_values or ())
    found: dict[str, str] = {}
    for value, former in new.enum_renames:
        if value not in before and former in before and former not in found.values():
            found[value] = former
    return found


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """The numbers of one declaration.

    Attributes:
        type_id: the number of the type.
        incarnation: the number of its table; None for an interface, which has no table.
        properties: the number of each property, by name.
        enums: the identities of enum values, by property. Properties whose values are all identified by their names
            have no entry.
    """

    type_id: int
    incarnation: int | None
    properties: Mapping[str, int]
    enums: Mapping[str, EnumIdentity] = field(default_factory=dict)

    def enum(self, name: str) -> EnumIdentity:
        """The identities of the values of a property."""
        return self.enums.get(name, _BY_NAME)


_BY_NAME = EnumIdentity()


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
