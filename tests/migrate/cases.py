"""One case per row of the migration tables: the change of the schema text, its steps, and a model of its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.migrate.garden import Content, Model, each


def nothing(found: Content) -> None:
    """The rows stay as they are."""


def setting(name: str, prop: str, value: Callable[[dict[str, Any]], Any]) -> Model:
    return each(name, lambda row: row.update({prop: value(row)}))


def dropping(name: str, prop: str) -> Model:
    return each(name, lambda row: row.pop(prop))


def renaming(name: str, old: str, new: str) -> Model:
    return each(name, lambda row: row.update({new: row.pop(old)}))


def several(*models: Model) -> Model:
    def model(found: Content) -> None:
        for one in models:
            one(found)

    return model


def renamed_type(old: str, new: str) -> Model:
    def model(found: Content) -> None:
        found[new] = found.pop(old)

    return model


def without(*names: str) -> Model:
    def model(found: Content) -> None:
        for name in names:
            found.pop(name, None)

    return model


class ApplyTime:
    """The time of the change: a few minutes old at most, and the same for all rows."""

    def __init__(self) -> None:
        self._earliest = _now()
        self._value: int | None = None

    def __eq__(self, other: object) -> bool:
        if self._value is None and isinstance(other, int) and self._earliest - MINUTES <= other <= _now():
            self._value = other
        return type(other) is int and other == self._value

    __hash__ = object.__hash__


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000)


MINUTES = 5 * 60 * 1_000
"""The oldest time that counts, in milliseconds before the model."""


def timed(name: str, prop: str) -> Model:
    def model(found: Content) -> None:
        at = ApplyTime()
        each(name, lambda row: row.update({prop: at}))(found)

    return model


@dataclass(frozen=True, slots=True)
class Case:
    """A schema change.

    Attributes:
        edits: (old, new) pairs of parts of the schema text.
        kinds: the kinds of its steps.
        model: its effect on the rows.
        metadata_only: whether it neither reads nor writes rows.
        untouched: whether no table gets a new version.
        quick: whether quick runs test it.
    """

    edits: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...]
    model: Model = nothing
    metadata_only: bool = True
    untouched: bool = False
    quick: bool = True

    def schema(self, source: str) -> str:
        for old, new in self.edits:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        return source


def edit(old: str, new: str) -> tuple[tuple[str, str], ...]:
    return ((old, new),)


CASES = {
    "add a node type": Case(edit("node Bed", "node Pot { id2: I64? }\nnode Bed"), ("add_type",), untouched=True),
    "add an edge type": Case(edit("node Bed", "edge Near: Bed -> Bed\nnode Bed"), ("add_type",), untouched=True),
    "add an interface": Case(
        edit("interface Named", "interface Sized { girth: I32? }\ninterface Named"), ("add_type",), untouched=True
    ),
    "rename a node type": Case(
        (("node Plant", 'node Tree @rename_from("Plant")'), ("In: Plant", "In: Tree")),
        ("rename_type",),
        renamed_type("Plant", "Tree"),
        untouched=True,
    ),
    "rename an edge type": Case(
        (("edge In: Plant -> Bed @card(0..3)", 'edge Within: Plant -> Bed @card(0..3) @rename_from("In")'),),
        ("rename_type",),
        renamed_type("In", "Within"),
        untouched=True,
    ),
    "drop an edge type": Case(
        edit("edge In: Plant -> Bed @card(0..3) { since: I32? }", ""), ("drop_type",), without("In"), untouched=True
    ),
    "drop a node type with its edges": Case(
        (
            ("node Bed { name: String @key  size: I64?  kind: String? }", ""),
            ("edge In: Plant -> Bed @card(0..3) { since: I32? }", ""),
        ),
        ("drop_type", "drop_type"),
        without("Bed", "In"),
        untouched=True,
    ),
    "add a nullable property": Case(
        edit("size: I64?", "size: I64?  depth: F64?"), ("add_property",), setting("Bed", "depth", lambda row: None)
    ),
    "add a nullable property with a default": Case(
        edit("size: I64?", 'size: I64?  soil: String? @default("clay")'),
        ("add_property",),
        setting("Bed", "soil", lambda row: None),
    ),
    "add a blob, a list and a vector": Case(
        edit("old: String?", "old: String?  scan: Blob?  marks: [String]?  second: Vector(3)?"),
        ("add_property",) * 3,
        each("Plant", lambda row: row.update(scan=None, marks=None, second=None)),
    ),
    "add a required property with a default": Case(
        edit(
            "old: String?",
            'old: String?  soil: String @default("clay")  rank: I64 @default(-7)  ok: Bool @default(true)',
        ),
        ("add_property",) * 3,
        each("Plant", lambda row: row.update(soil="clay", rank=-7, ok=True)),
        metadata_only=False,
    ),
    "add a required enum, date and float with defaults": Case(
        edit(
            "old: String?",
            "old: String?  form: enum(tree, bush) @default(bush)  f: F32 @default(0.5)"
            '  born: Date @default("2020-02-29")',
        ),
        ("add_property",) * 3,
        each("Plant", lambda row: row.update(form="bush", born=18321, f=0.5)),
        metadata_only=False,
    ),
    "add a required property to edges": Case(
        edit("since: I32?", 'since: I32?  kind: String @default("in")'),
        ("add_property",),
        setting("In", "kind", lambda row: "in"),
        metadata_only=False,
    ),
    "rename a property": Case(
        edit("old: String?", 'former: String? @rename_from("old")'),
        ("rename_property",),
        renaming("Plant", "old", "former"),
    ),
    "rename the key property": Case(
        edit("code: String @key", 'name: String @key @rename_from("code")'),
        ("rename_property",),
        renaming("Plant", "code", "name"),
    ),
    "rename properties with an index, a blob and a vector": Case(
        (
            ("height: I32? @index", 'tall: I32? @index @rename_from("height")'),
            ("@range(height, 0..1000)", "@range(tall, 0..1000)"),
            ("picture: Blob?", 'photo: Blob? @rename_from("picture")'),
            ("vector: Vector(4)?", 'place: Vector(4)? @rename_from("vector")'),
        ),
        ("rename_property",) * 3,
        several(
            renaming("Plant", "height", "tall"),
            renaming("Plant", "picture", "photo"),
            renaming("Plant", "vector", "place"),
        ),
    ),
    "rename a property of an interface": Case(
        edit("label: String?", 'title: String? @rename_from("label")'),
        ("rename_property", "rename_property"),
        renaming("Plant", "label", "title"),
    ),
    "drop a property": Case(edit("old: String?", ""), ("drop_property",), dropping("Plant", "old")),
    "drop a property with its constraints": Case(
        (("height: I32? @index\n", ""), ("@range(height, 0..1000)", "")),
        ("drop_property", "remove_constraint", "remove_constraint"),
        dropping("Plant", "height"),
    ),
    "drop a blob and a vector": Case(
        (("picture: Blob?", ""), ("vector: Vector(4)?", "")),
        ("drop_property", "drop_property"),
        several(dropping("Plant", "picture"), dropping("Plant", "vector")),
    ),
    "replace a property by another of the same name": Case(
        (
            ("old: String?", 'before: String? @rename_from("old")'),
            ("seen: DateTime?", "seen: DateTime?  aged: String?"),
        ),
        ("add_property", "rename_property"),
        several(renaming("Plant", "old", "before"), setting("Plant", "aged", lambda row: None)),
    ),
    "required to nullable": Case(
        edit("state: enum(seed, grown, dead)", "state: enum(seed, grown, dead)?"), ("change_nullability",)
    ),
    "nullable to required": Case(edit("old: String?", "old: String"), ("change_nullability",), metadata_only=False),
    "widen I32, U32 and F32": Case(
        (
            ("height: I32?", "height: I64?"),
            ("count: U32?", "count: U64?"),
            ("weight: F32?", "weight: F64?"),
            ("sizes: [I32]?", "sizes: [I64]?"),
            ("since: I32?", "since: I64?"),
        ),
        ("widen_property",) * 5,
        metadata_only=False,
    ),
    "widen U32 to I64": Case(edit("count: U32?", "count: I64?"), ("widen_property",), metadata_only=False),
    "add enum values": Case(
        edit("enum(seed, grown, dead)", "enum(seed, grown, dead, cut)"), ("extend_enum",), untouched=True
    ),
    "rename an enum value": Case(
        edit("enum(seed, grown, dead)", 'enum(seed, adult @rename_from("grown"), dead)'),
        ("rename_enum_value",),
        setting("Plant", "state", lambda row: {"grown": "adult"}.get(row["state"], row["state"])),
        metadata_only=False,
    ),
    "rename enum values in a list": Case(
        edit("enum(happy, sad, odd)", 'enum(glad @rename_from("happy"), sorry @rename_from("sad"), odd)'),
        ("rename_enum_value", "rename_enum_value"),
        setting(
            "Plant",
            "moods",
            lambda row: None if row["moods"] is None else [{"happy": "glad", "sad": "sorry"}[m] for m in row["moods"]],
        ),
        metadata_only=False,
    ),
    "enum to String": Case(
        edit("state: enum(seed, grown, dead) @index", "state: String"),
        ("change_property_type", "remove_constraint"),
        metadata_only=False,
        untouched=True,
    ),
    "String to enum": Case(
        edit("kind: String?", "kind: enum(raised, flat, sunk)?"),
        ("change_property_type",),
        metadata_only=False,
        untouched=True,
    ),
    "remove an unused enum value": Case(
        edit("enum(happy, sad, odd)", "enum(happy, sad)"), ("narrow_enum",), metadata_only=False, untouched=True
    ),
    "add, change and remove an index": Case(
        (
            ("state: enum(seed, grown, dead) @index", "state: enum(seed, grown, dead)"),
            ('@index(note, kind="fts")', '@index(note, kind="fts", stem=false)'),
            ("old: String?", "old: String? @index"),
        ),
        ("change_constraint", "remove_constraint", "add_constraint"),
        untouched=True,
    ),
    "add @unique, @range and @check": Case(
        edit(
            "@range(height, 0..1000)", '@range(height, 0..1000)\n@unique(old)\n@range(count, 0..)\n@check(old, "^old")'
        ),
        ("add_constraint",) * 3,
        metadata_only=False,
        untouched=True,
    ),
    "remove @range and @check": Case(
        (("@range(height, 0..1000)", ""), ('@check(note, "[a-z]")', "")),
        ("remove_constraint", "remove_constraint"),
        untouched=True,
    ),
    "wider @range": Case(
        edit("@range(height, 0..1000)", "@range(height, -5..2000)"), ("change_constraint",), untouched=True
    ),
    "narrower @range and another @check": Case(
        (("@range(height, 0..1000)", "@range(height, 1..100)"), ('@check(note, "[a-z]")', '@check(note, "note")')),
        ("change_constraint", "change_constraint"),
        metadata_only=False,
        untouched=True,
    ),
    "wider @card": Case(edit("@card(0..3)", "@card(0..9)"), ("change_cardinality",), untouched=True),
    "narrower @card, new @card_in": Case(
        edit("@card(0..3)", "@card(0..2) @card_in(0..5)"),
        ("change_cardinality", "change_cardinality"),
        metadata_only=False,
        untouched=True,
    ),
    "property form to body form": Case(
        edit("height: I32? @index\n", "height: I32?\n@index(height)\n"), ("change_constraint_form",), untouched=True
    ),
    "no longer implements an interface": Case(
        edit("node Plant implements Named {", "node Plant { label: String?"),
        ("change_implements", "change_property_origin"),
        untouched=True,
    ),
    "change a default": Case(edit("old: String?", 'old: String? @default("x")'), ("change_default",), untouched=True),
    "change annotations": Case(
        (("node Bed {", 'node Bed @description("a bed") {'), ("size: I64?", 'size: I64? @description("in metres")')),
        ("update_type_metadata", "update_property_metadata"),
        untouched=True,
    ),
    "rename an interface": Case(
        (("interface Owned", "interface Held"), ("implements Owned", "implements Held")),
        ("add_type", "drop_type", "change_implements", "change_property_origin"),
        untouched=True,
        quick=False,
    ),
    "drop an interface": Case(
        (("interface Owned { owner: String? }\n", ""), (" implements Owned", ""), ("mark:", "owner: String?  mark:")),
        ("drop_type", "change_implements", "change_property_origin"),
        untouched=True,
        quick=False,
    ),
    "newly implements an interface": Case(
        edit("node Bed {", "node Bed implements Owned {"),
        ("change_implements", "add_property"),
        setting("Bed", "owner", lambda row: None),
    ),
    "newly implements an interface whose property it has": Case(
        (
            ("node Bed {", "node Bed implements Sized {"),
            ("interface Owned", "interface Sized { size: I64? }\ninterface Owned"),
        ),
        ("add_type", "change_implements", "change_property_origin"),
        untouched=True,
        quick=False,
    ),
    "remove @unique": Case(
        (("mark: String? @unique", "mark: String?"), ("@unique(maker, made)", "")),
        ("remove_constraint", "remove_constraint"),
        untouched=True,
        quick=False,
    ),
    "add @unique of several properties": Case(
        edit("@unique(maker, made)", "@unique(maker, made)\n@unique(batch, maker, other)"),
        ("add_constraint",),
        metadata_only=False,
        untouched=True,
        quick=False,
    ),
    "remove and change a default": Case(
        (('maker: String? @default("acme")', "maker: String?"), ("batch: I64?", "batch: I64? @default(3)")),
        ("change_default", "change_default"),
        untouched=True,
        quick=False,
    ),
    "add a required property with the current time": Case(
        edit("batch: I64?", "batch: I64?  at: DateTime @default(now())"),
        ("add_property",),
        timed("Tool", "at"),
        metadata_only=False,
    ),
    "add a nullable property with the current time": Case(
        edit("batch: I64?", "batch: I64?  at: DateTime? @default(now())"),
        ("add_property",),
        setting("Tool", "at", lambda row: None),
        quick=False,
    ),
    "merge by property": Case(
        edit("@merge(row)", "@merge(property)"), ("update_type_metadata",), untouched=True, quick=False
    ),
    "remove @card and @card_in": Case(
        edit(" @card(0..2) @card_in(0..4)", ""),
        ("change_cardinality", "change_cardinality"),
        untouched=True,
        quick=False,
    ),
    "remove constraints of an edge": Case(
        (("@unique(slot)", ""), ("@range(grade, 0..10)", "")),
        ("remove_constraint", "remove_constraint"),
        untouched=True,
        quick=False,
    ),
    "add and tighten constraints of an edge": Case(
        (("@unique(slot)", '@unique(slot)\n@unique(grade, note2)\n@check(note2, "^[xy]$")'), ("0..10)", "1..10)")),
        ("add_constraint", "add_constraint", "change_constraint"),
        metadata_only=False,
        untouched=True,
    ),
    "drop constrained properties of an edge": Case(
        (("slot: String?", ""), ("@unique(slot)", ""), ("grade: I64?", ""), ("@range(grade, 0..10)", "")),
        ("drop_property", "drop_property", "remove_constraint", "remove_constraint"),
        several(dropping("Fits", "slot"), dropping("Fits", "grade")),
        quick=False,
    ),
    "another source of @embed": Case(edit('@embed("text")', '@embed("other")'), ("change_embed",), untouched=True),
    "another model of @embed": Case(
        edit('@embed("text")', '@embed("text", model="mock")'), ("change_embed",), untouched=True, quick=False
    ),
    "remove and add @embed": Case(
        ((' @embed("text")', ""), ("vector: Vector(4)?", 'vector: Vector(4)? @embed("note")')),
        ("change_embed", "change_embed"),
        untouched=True,
        quick=False,
    ),
    "rename the source of @embed": Case(
        (("text: String?", 'words: String? @rename_from("text")'), ('@embed("text")', '@embed("words")')),
        ("rename_property",),
        renaming("Tool", "text", "words"),
        quick=False,
    ),
    "add a value to the enum of a key": Case(
        edit("enum(axe, hoe, rake)", "enum(axe, hoe, rake, saw)"), ("extend_enum",), untouched=True, quick=False
    ),
    "everything at once": Case(
        (
            ("node Plant", 'node Tree @rename_from("Plant")'),
            ("In: Plant", "In: Tree"),
            ("height: I32? @index", 'tall: I64? @index @rename_from("height")'),
            ("@range(height, 0..1000)", "@range(tall, 0..1000)"),
            ("old: String?", 'soil: String @default("clay")  scan: Blob?'),
            ("enum(seed, grown, dead)", 'enum(seed, adult @rename_from("grown"), dead)'),
            ("picture: Blob?", 'photo: Blob? @rename_from("picture")'),
            ("label: String?", "label: String"),
            ("node Bed", "node Pot { id2: I64? }\nnode Bed"),
        ),
        (),
        several(
            renaming("Plant", "height", "tall"),
            renaming("Plant", "picture", "photo"),
            dropping("Plant", "old"),
            each("Plant", lambda row: row.update(soil="clay", scan=None)),
            setting("Plant", "state", lambda row: {"grown": "adult"}.get(row["state"], row["state"])),
            renamed_type("Plant", "Tree"),
        ),
        metadata_only=False,
    ),
}


def parameters() -> list[object]:
    """The cases as parameters of a test. Quick runs have some of them."""
    return [pytest.param(case, id=name, marks=() if case.quick else pytest.mark.slow) for name, case in CASES.items()]
