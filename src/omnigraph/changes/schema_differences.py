"""The differences between the schemas of two states, matched by stable ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.schema.identity import AnyType, Resolution, TypeKey, types_of
from omnigraph.lang.schema.migrate.plan import kept_type_steps
from omnigraph.lang.schema.migrate.steps import (
    AddConstraint,
    ChangeCardinality,
    ChangeConstraint,
    ChangeConstraintForm,
    ChangeDefault,
    ChangeEmbed,
    ChangeImplements,
    ChangePropertyOrigin,
    RemoveConstraint,
    Step,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.lang.schema.migrate.wording import (
    cardinality_source,
    constraint_source,
    default_source,
    embed_source,
)
from omnigraph.lang.tokens import quote

_KINDS = (TypeKind.EDGE, TypeKind.NODE, TypeKind.INTERFACE)


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One difference between the schemas of two states.

    Attributes:
        change: `added`, `dropped`, `renamed` or `changed`.
        kind: node, edge or interface.
        type_name: the type, with its name in the second state.
        property: the property; None if the difference is about the type.
        before: the old name, type, ends or part; None for an addition.
        after: the new name, type, ends or part; None if it is dropped.
        part: the part of the declaration that differs: `constraint`, `cardinality`, `implements`, `default`, `embed`,
            `enum value`, `annotations`, or `form` if the same rule is only written elsewhere. None for a whole type or
            property, its name, its value type or its ends.
    """

    change: str
    kind: str
    type_name: str
    property: str | None = None
    before: str | None = None
    after: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        what = f"property {self.type_name}.{self.property}" if self.property else f"{self.kind} {self.type_name}"
        if self.part is not None:
            return f"{what}: {self._part()}"
        if self.change == "renamed":
            return f"{what} renamed from {self.before}"
        if self.change == "changed":
            return f"{what} changed from {self.before} to {self.after}"
        shown = self.after or self.before
        return f"{what}{f': {shown}' if self.property and shown else ''} {self.change}"

    def _part(self) -> str:
        match self.part:
            case "constraint" | "cardinality" if self.change == "changed":
                return f"{self.before} changed to {self.after}"
            case "constraint":
                return f"{self.after or self.before} {self.change}"
            case "implements":
                return f"implements {self.after or self.before} {self.change}"
            case "enum value":
                return f"value {self.after} renamed from {self.before}"
            case "default" | "embed":
                name = "default" if self.part == "default" else "@embed"
                if self.change != "changed":
                    return f"{name} {self.after or self.before} {self.change}"
                return f"{name} changed from {self.before} to {self.after}"
            case "form":
                return self.after or "declared in another place"
            case _:
                return f"{self.part} changed"

    def to_json(self) -> dict[str, str | None]:
        return {
            "change": self.change,
            "kind": self.kind,
            "type_name": self.type_name,
            "property": self.property,
            "part": self.part,
            "before": self.before,
            "after": self.after,
        }


def schema_changes(before: AcceptedSchema, after: AcceptedSchema) -> Iterator[SchemaDifference]:
    """The differences between two schemas of a graph: of edge types, then of node types, then of interfaces.

    Types of a kind are sorted by name. A dropped type or property precedes an added one with its name.
    """
    if before is after:
        return
    old, new = dict(types_of(before.catalog)), dict(types_of(after.catalog))
    names = _former_names(before, after)
    for kind in _KINDS:
        former = {name for (other, _), name in names.types.items() if other is kind}
        dropped = [name for other, name in old if other is kind and name not in former]
        present = [name for other, name in new if other is kind]
        for name, is_present in sorted([*((name, False) for name in dropped), *((name, True) for name in present)]):
            if not is_present:
                yield SchemaDifference("dropped", kind.value, name)
            elif (kind, name) not in names.types:
                yield SchemaDifference("added", kind.value, name)
            else:
                pair = old[kind, names.types[kind, name]], new[kind, name]
                yield from _type_changes(_Pair(before, after, names, (kind, name), *pair))


def _former_names(before: AcceptedSchema, after: AcceptedSchema) -> Resolution:
    """The names in the first schema of all types and properties that both schemas have."""
    known = {_number(before, key): key[1] for key, _ in types_of(before.catalog)}
    found = Resolution()
    for key, _ in types_of(after.catalog):
        former = known.get(_number(after, key))
        found.properties[key] = {}
        if former is None:
            continue
        found.types[key] = former
        old = {number: name for name, number in before.identity(key[0], former).properties.items()}
        numbers = after.identity(*key).properties
        found.properties[key] = {name: old[number] for name, number in numbers.items() if number in old}
    return found


def _number(schema: AcceptedSchema, key: TypeKey) -> tuple[TypeKind, int, int | None]:
    identity = schema.identity(*key)
    return key[0], identity.type_id, identity.incarnation


@dataclass(frozen=True, slots=True)
class _Pair:
    """A type that both schemas have.

    Attributes:
        before: the first schema.
        after: the second schema.
        names: the former names of types and properties.
        key: the kind of the type, and its name in the second schema.
        old: the declaration in the first schema.
        new: the declaration in the second schema.
    """

    before: AcceptedSchema
    after: AcceptedSchema
    names: Resolution
    key: TypeKey
    old: AnyType
    new: AnyType


def _type_changes(pair: _Pair) -> Iterator[SchemaDifference]:
    kind, name = pair.key[0].value, pair.key[1]
    old, new = pair.old, pair.new
    if old.name != name:
        yield SchemaDifference("renamed", kind, name, before=old.name, after=name)
    if isinstance(old, EdgeType) and isinstance(new, EdgeType):
        ends = [pair.names.types.get((TypeKind.NODE, end)) for end in (new.from_type, new.to_type)]
        if ends != [old.from_type, old.to_type]:
            yield SchemaDifference("changed", kind, name, before=_ends(old), after=_ends(new))
    steps = list(kept_type_steps(pair.key[0], old, new, pair.names))
    parts = list(_parts(kind, name, steps))
    yield from (part for part in parts if part.property is None and part.part != "constraint")
    former = pair.names.properties[pair.key]
    kept = set(former.values())
    dropped = [(prop, False) for prop in old.properties if prop not in kept]
    for prop, is_present in sorted([*dropped, *((prop, True) for prop in new.properties)]):
        if not is_present:
            yield SchemaDifference("dropped", kind, name, prop, before=str(old.properties[prop].type))
        elif prop not in former:
            yield SchemaDifference("added", kind, name, prop, after=str(new.properties[prop].type))
        else:
            yield from _property_changes(pair, former[prop], prop)
            yield from (part for part in parts if part.property == prop)
    yield from (part for part in parts if part.part == "constraint")


def _ends(edge: EdgeType) -> str:
    return f"{edge.from_type} -> {edge.to_type}"


def _property_changes(pair: _Pair, former: str, prop: str) -> Iterator[SchemaDifference]:
    kind, name = pair.key[0].value, pair.key[1]
    old, new = pair.old.properties[former].type, pair.new.properties[prop].type
    if former != prop:
        yield SchemaDifference("renamed", kind, name, prop, before=former, after=prop)
    if old != new:
        yield SchemaDifference("changed", kind, name, prop, before=str(old), after=str(new))
    if old.enum_values is not None and new.enum_values is not None:
        ids = pair.before.identity(pair.key[0], pair.old.name).enum(former)
        values = {ids.of(value): value for value in old.enum_values}
        ids = pair.after.identity(*pair.key).enum(prop)
        for value in sorted(new.enum_values):
            was = values.get(ids.of(value), value)
            if was != value:
                yield SchemaDifference("renamed", kind, name, prop, quote(was), quote(value), "enum value")


def _parts(kind: str, name: str, steps: Iterable[Step]) -> Iterator[SchemaDifference]:
    """The differences in other parts than names, value types and ends, from the steps of a migration."""
    for step in steps:
        match step:
            case ChangeCardinality(from_=old, to=new, side=side):
                word = "@card" if side == "src" else "@card_in"
                was, now = f"{word}({cardinality_source(old)})", f"{word}({cardinality_source(new)})"
                yield SchemaDifference("changed", kind, name, None, was, now, "cardinality")
            case ChangeImplements(added=added, removed=removed):
                for one in removed:
                    yield SchemaDifference("dropped", kind, name, None, one, None, "implements")
                for one in added:
                    yield SchemaDifference("added", kind, name, None, None, one, "implements")
            case AddConstraint(constraint=new_constraint):
                yield SchemaDifference("added", kind, name, None, None, constraint_source(new_constraint), "constraint")
            case RemoveConstraint(constraint=old_constraint):
                was = constraint_source(old_constraint)
                yield SchemaDifference("dropped", kind, name, None, was, None, "constraint")
            case ChangeConstraint(from_=old_one, to=new_one):
                was, now = constraint_source(old_one), constraint_source(new_one)
                yield SchemaDifference("changed", kind, name, None, was, now, "constraint")
            case ChangeConstraintForm(constraint=same, form=form):
                where = "as an annotation of its property" if form == "property" else "as a line of the body"
                yield SchemaDifference(
                    "changed", kind, name, None, None, f"{constraint_source(same)} is written {where}", "form"
                )
            case ChangeDefault(property_name=prop, from_=old_default, to=new_default):
                was_default = None if old_default is None else default_source(old_default)
                now_default = None if new_default is None else default_source(new_default)
                yield _optional(kind, name, prop, was_default, now_default, "default")
            case ChangeEmbed(property_name=prop, from_=old_embed, to=new_embed):
                was_embed = None if old_embed is None else embed_source(old_embed)
                now_embed = None if new_embed is None else embed_source(new_embed)
                yield _optional(kind, name, prop, was_embed, now_embed, "embed")
            case ChangePropertyOrigin(property_name=prop, declared_directly=direct, interfaces=interfaces):
                how = "declared by the type" if direct else "inherited from an interface"
                contracts = f", for {', '.join(interfaces)}" if interfaces else ""
                yield SchemaDifference("changed", kind, name, prop, None, how + contracts, "form")
            case UpdateTypeMetadata():
                yield SchemaDifference("changed", kind, name, part="annotations")
            case UpdatePropertyMetadata(property_name=prop):
                yield SchemaDifference("changed", kind, name, prop, part="annotations")


def _optional(kind: str, name: str, prop: str, was: str | None, now: str | None, part: str) -> SchemaDifference:
    change = "added" if was is None else "dropped" if now is None else "changed"
    return SchemaDifference(change, kind, name, prop, was, now, part)
