"""The changes of one property: name, type, default, embedding and annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.catalog import EdgeType, InterfaceType, NodeType, Property, TypeKind
from omnigraph.lang.schema.migrate.change import TypeChange, refuse
from omnigraph.lang.schema.migrate.steps import (
    AddProperty,
    ChangeDefault,
    ChangeEmbed,
    ChangeNullability,
    ChangePropertyOrigin,
    ChangePropertyType,
    DropProperty,
    ExtendEnum,
    NarrowEnum,
    RenameEnumValue,
    RenameProperty,
    Step,
    Tier,
    UpdatePropertyMetadata,
    WidenProperty,
)
from omnigraph.lang.types import Scalar, ValueType

Change = TypeChange[InterfaceType] | TypeChange[NodeType] | TypeChange[EdgeType]

WIDENINGS = frozenset(
    {
        (Scalar.I32, Scalar.I64),
        (Scalar.U32, Scalar.U64),
        (Scalar.U32, Scalar.I64),
        (Scalar.F32, Scalar.F64),
    }
)
"""Lossless conversions of number types: the second type can hold every value of the first."""


def property_steps(change: Change) -> Iterator[Step]:
    """The steps for new and changed properties, in the order of names, then for dropped properties."""
    for name, new in sorted(change.new.properties.items()):
        if name in change.former:
            yield from _changed(change, change.old.properties[change.former[name]], new)
        elif name not in change.refused:
            yield _added(change, new)
    for name, old in sorted(change.old.properties.items()):
        if name not in change.current:
            yield _dropped(change, old)


def _added(change: Change, new: Property) -> Step:
    where = change.kind, change.new.name, new.name
    if new.type.nullable or not change.has_data:
        return AddProperty(*where, new.type)
    if new.default is not None:
        return AddProperty(*where, new.type, new.default, tier=Tier.VALIDATED)
    label = change.property_label(new.name)
    return refuse(
        "OG-MF-103",
        label,
        f"{label} is new, required and has no default: existing rows would have no value",
        _advice_for_required(new),
        new.name,
    )


def _advice_for_required(new: Property) -> str:
    if new.type.is_plain_scalar:
        return f"give it a @default, or declare it {new.type}? first, set it everywhere, and then remove the '?'"
    return f"declare it {new.type}? first, set it everywhere, and then remove the '?'"


def _dropped(change: Change, old: Property) -> Step:
    step = DropProperty(change.kind, change.new.name, old.name, change.mode)
    return replace(step, tier=Tier.DESTRUCTIVE, code="OG-DS-104") if change.has_data else step


def _changed(change: Change, old: Property, new: Property) -> Iterator[Step]:
    where = change.kind, change.new.name, new.name
    if old.name != new.name:
        yield RenameProperty(change.kind, change.new.name, old.name, new.name)
    yield from _type_steps(change, old, new)
    if old.default != new.default:
        yield ChangeDefault(*where, old.default, new.default)
    yield from _embed_steps(change, old, new)
    yield from _origin_steps(change, old, new)
    if (old.annotations, old.allows) != (new.annotations, new.allows):
        yield UpdatePropertyMetadata(*where, new.annotations)


# ---- types ----


def _type_steps(change: Change, old: Property, new: Property) -> Iterator[Step]:
    before, after = old.type, new.type.with_nullable(old.type.nullable)
    if before != after:
        steps = list(_base_type_steps(change, old, new))
        yield from steps
        if any(step.kind == "unsupported_change" for step in steps):
            return
    if old.type.nullable != new.type.nullable:
        step = ChangeNullability(change.kind, change.new.name, new.name, new.type.nullable)
        tightens = change.has_data and not new.type.nullable
        yield replace(step, tier=Tier.VALIDATED, code="OG-MF-104") if tightens else step


def _base_type_steps(change: Change, old: Property, new: Property) -> Iterator[Step]:
    """The type changes, apart from nullability."""
    where = change.kind, change.new.name, new.name
    before, after = old.type, new.type.with_nullable(old.type.nullable)
    if not change.has_data:
        yield ChangePropertyType(*where, before, after)
    elif before.list != after.list:
        yield _refuse_type(change, old, new)
    elif before.is_enum and after.is_enum:
        yield from _enum_steps(change, old, new)
    elif before.scalar is after.scalar is Scalar.STRING:
        yield ChangePropertyType(*where, before, after, tier=Tier.VALIDATED)
    elif (before.scalar, after.scalar) not in WIDENINGS:
        yield _refuse_type(change, old, new)
    elif before.scalar.is_float and new.name in _key(change):
        yield _refuse_id(
            change,
            new,
            "the text of its values would change",
            "keep F32: the id contains the text of the value, and F64 has another text",
        )
    else:
        yield WidenProperty(*where, before, after)


def _enum_steps(change: Change, old: Property, new: Property) -> Iterator[Step]:
    where = change.kind, change.new.name, new.name
    before, after = set(old.type.enum_values or ()), set(new.type.enum_values or ())
    label = change.property_label(new.name)
    stored = frozenset(before)
    for to, from_ in new.enum_renames:
        if to in stored:
            continue
        if from_ not in stored or from_ not in before:
            reason = f"{label}: there was no value '{from_}' that could become '{to}'"
            yield refuse("OG-NM-101", label, reason, did_you_mean(from_, before) or "remove @rename_from", new.name)
        elif new.name in _key(change):
            yield _refuse_id(
                change, new, f"the ids of stored entities contain the value '{from_}'", f"keep the value '{from_}'"
            )
        else:
            yield RenameEnumValue(*where, from_, to, tier=Tier.VALIDATED)
        before = before - {from_} | {to}
    if after - before:
        yield ExtendEnum(*where, tuple(sorted(after - before)))
    if before - after:
        yield NarrowEnum(*where, tuple(sorted(before - after)), tier=Tier.VALIDATED)


def _refuse_type(change: Change, old: Property, new: Property) -> Step:
    label = change.property_label(new.name)
    reason = f"{label} cannot change from {old.type} to {new.type} in place"
    return refuse("OG-MF-106", label, reason, _advice_for_type(old.type, new.type), new.name)


def _advice_for_type(old: ValueType, new: ValueType) -> str:
    if old.is_vector and new.is_vector:
        return (
            "vectors of two dimensions cannot be compared: add a second Vector property, fill it, "
            "and drop this one when nothing reads it"
        )
    return "add a property of the new type under another name, load an export into it, and drop this one"


def _refuse_id(change: Change, new: Property, reason: str, hint: str) -> Step:
    label = change.property_label(new.name)
    return refuse("OG-BC-102", label, f"{label} is part of the key, and {reason}", hint, new.name)


def _key(change: Change) -> tuple[str, ...]:
    new = change.new
    return () if isinstance(new, InterfaceType) else new.key or ()


# ---- the rest ----


def _embed_steps(change: Change, old: Property, new: Property) -> Iterator[Step]:
    before = old.embed
    if before is not None:
        # A rename of the source property is not a change of `@embed`.
        before = replace(before, source=change.current.get(before.source, before.source))
    if before == new.embed:
        return
    step = ChangeEmbed(change.kind, change.new.name, new.name, old.embed, new.embed)
    yield replace(step, code="OG-VE-101") if change.has_data and new.embed is not None else step


def _origin_steps(change: Change, old: Property, new: Property) -> Iterator[Step]:
    satisfied = set()
    for interface, name in new.satisfies:
        former = change.resolution.types.get((TypeKind.INTERFACE, interface))
        names = change.resolution.properties.get((TypeKind.INTERFACE, interface), {})
        satisfied.add((former, names.get(name)))
    if old.declared_directly != new.declared_directly or set(old.satisfies) != satisfied:
        interfaces = tuple(sorted({interface for interface, _ in new.satisfies}))
        yield ChangePropertyOrigin(change.kind, change.new.name, new.name, new.declared_directly, interfaces)
