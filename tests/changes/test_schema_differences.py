"""Types and properties are matched by identity, so a change of the schema changes no row by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from tests.lang.strategies_schema import schema_pairs

import omnigraph
from omnigraph.changes.aligned_types import AddedProperty, TypePair, TypeState
from omnigraph.changes.candidates import candidates
from omnigraph.changes.change_json import changed_names
from omnigraph.changes.row_images import OPS, changes_of
from omnigraph.changes.schema_differences import schema_changes
from omnigraph.commit.manifest import TableId, TablePin
from omnigraph.embed.mock import MockEmbedder
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.schema import TypeKind, accept, compile_schema, evolve
from omnigraph.lang.schema.migrate import plan
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.staging import stage_append, stage_upsert
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

TYPES = {
    pa.int32(): ValueType(Scalar.I32, nullable=True),
    pa.int64(): ValueType(Scalar.I64, nullable=True),
    pa.utf8(): ValueType(Scalar.STRING, nullable=True),
}


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={PROPERTY_ID: str(number)})


SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), field("n", pa.int32(), 1), field("text", pa.utf8(), 2)])
NAMES = [f"p{i}" for i in range(6)]


class World:
    """A table whose schema is changed with Lance's own operations."""

    def __init__(self, place: Path) -> None:
        self.tables = TableStorage(str(place))
        self.ref = self.tables.create("nodes/t", SCHEMA)
        rows = pa.table([NAMES, [1] * 6, ["x"] * 6], schema=SCHEMA)
        staged = stage_append(self.tables.at(self.ref), rows)
        assert staged is not None
        self.ref = self.tables.commit_staged(staged)

    def alter(self, *changes: Any) -> None:
        """Rename or cast columns."""
        dataset = self.tables.datasets.open_uncached(self.ref)
        dataset.alter_columns(*changes)
        self.ref = self.ref.at(int(dataset.version))

    def add(self, **expressions: str) -> None:
        dataset = self.tables.datasets.open_uncached(self.ref)
        dataset.add_columns(expressions)
        self.ref = self.ref.at(int(dataset.version))

    def drop(self, name: str) -> None:
        dataset = self.tables.datasets.open_uncached(self.ref)
        dataset.drop_columns([name])
        self.ref = self.ref.at(int(dataset.version))

    def put(self, ref: TableRef, rows: dict[str, list[Any]]) -> TableRef:
        view = self.tables.at(ref)
        columns = {f.name: pa.array(rows.get(f.name, [None] * len(rows["id"])), f.type) for f in view.schema()}
        table = pa.table(list(columns.values()), schema=view.schema())
        staged = stage_upsert(view, table)
        assert staged is not None
        return self.tables.commit_staged(staged)

    def state(self, ref: TableRef, numbers: dict[str, int]) -> TypeState:
        schema = self.tables.at(ref).schema()
        types = {name: TYPES[schema.field(name).type] for name in numbers}
        pin = TablePin("node:T", TableId(1, 1), ref, self.tables.at(ref).count())
        return TypeState(TypeKind.NODE, "T", pin, types, numbers)

    def changes(
        self,
        before: tuple[TableRef, dict[str, int]],
        after: tuple[TableRef, dict[str, int]],
        added: tuple[AddedProperty, ...] = (),
    ) -> tuple[int, list[tuple[str, str, Sequence[str] | None]]]:
        """The number of candidates, and the changes."""
        pair = TypePair(self.state(*before), self.state(*after), added)
        rows = candidates(self.tables, pair)
        found: list[tuple[str, str, Sequence[str] | None]] = []
        for part in changes_of(self.tables, pair, rows):
            ops = [OPS[op].value for op in part.ops.tolist()]
            found += zip(part.ids.to_pylist(), ops, changed_names(part).to_pylist(), strict=True)
        return rows.num_rows, found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


FIRST = {"n": 1, "text": 2}


def test_a_renamed_property_is_followed_and_no_row_is_read(world: World) -> None:
    before = world.ref
    world.alter({"path": "n", "name": "count"})
    renamed = {"count": 1, "text": 2}
    assert world.changes((before, FIRST), (world.ref, renamed)) == (0, [])
    world.ref = world.put(world.ref, {"id": ["p1", "p2"], "count": [5, 1], "text": ["x", "x"]})
    assert world.changes((before, FIRST), (world.ref, renamed)) == (2, [("p1", "update", ["count"])])
    assert world.changes((world.ref, renamed), (before, FIRST)) == (2, [("p1", "update", ["n"])])


def test_an_added_property_that_is_not_compared_changes_no_row_and_no_row_is_read(world: World) -> None:
    """Lance records an update of every row."""
    before = world.ref
    world.add(extra="7")
    added = {**FIRST, "extra": 3}
    assert world.changes((before, FIRST), (world.ref, added)) == (0, [])
    world.ref = world.put(world.ref, {"id": ["p1", "p2"], "n": [1, 9], "text": ["x", "x"], "extra": [8, 7]})
    assert world.changes((before, FIRST), (world.ref, added)) == (2, [("p2", "update", ["n"])])


def test_an_added_property_is_compared_with_the_value_it_was_filled_with(world: World) -> None:
    before = world.ref
    world.add(extra="cast(7 as int)")
    added = {**FIRST, "extra": 3}
    filled = (AddedProperty("extra", pa.scalar(7, pa.int32())),)
    assert world.changes((before, FIRST), (world.ref, added), filled)[1] == []
    world.ref = world.put(world.ref, {"id": ["p1", "p2"], "n": [1, 9], "text": ["x", "x"], "extra": [8, 7]})
    assert world.changes((before, FIRST), (world.ref, added), filled)[1] == [
        ("p1", "update", ["extra"]),
        ("p2", "update", ["n"]),
    ]


def test_an_added_nullable_property_reads_only_rows_that_were_written_since(world: World) -> None:
    before = world.ref
    side = world.tables.fork(before, "side")
    dataset = world.tables.datasets.open_uncached(world.ref)
    dataset.add_columns(pa.field("extra", pa.int32()))
    world.ref = world.ref.at(int(dataset.version))
    added, nulls = {**FIRST, "extra": 3}, (AddedProperty("extra"),)
    assert world.changes((before, FIRST), (world.ref, added), nulls) == (0, [])
    world.ref = world.put(world.ref, {"id": ["p1", "p2"], "n": [1, 1], "text": ["x", "x"], "extra": [8, None]})
    wanted = (2, [("p1", "update", ["extra"])])
    assert world.changes((before, FIRST), (world.ref, added), nulls) == wanted
    assert world.changes((side, FIRST), (world.ref, added), nulls) == wanted


def test_values_of_a_dropped_property_are_changes_only_in_the_other_direction(world: World) -> None:
    before = world.ref
    world.drop("text")
    assert world.changes((before, FIRST), (world.ref, {"n": 1})) == (0, [])
    nulls = (AddedProperty("text"),)
    found = world.changes((world.ref, {"n": 1}), (before, FIRST), nulls)
    assert found == (6, [(name, "update", ["text"]) for name in NAMES])


def test_a_widened_property_changes_only_rows_with_another_value(world: World) -> None:
    before = world.ref
    world.alter({"path": "n", "data_type": pa.int64()})
    assert world.changes((before, FIRST), (world.ref, FIRST))[1] == []
    world.ref = world.put(world.ref, {"id": ["p1", "p3"], "n": [1 << 40, 1], "text": ["x", "x"]})
    assert world.changes((before, FIRST), (world.ref, FIRST))[1] == [("p1", "update", ["n"])]
    assert world.changes((world.ref, FIRST), (before, FIRST))[1] == [("p1", "update", ["n"])]


def test_a_property_that_is_dropped_and_added_again_is_another_one(world: World) -> None:
    before = world.ref
    world.drop("text")
    world.add(text="'y'")
    again = {"n": 1, "text": 4}
    assert world.changes((before, FIRST), (world.ref, again)) == (0, [])


def test_branches_with_different_schemas_are_compared_through_their_ancestor(world: World) -> None:
    side = world.tables.fork(world.ref, "side")
    side = world.put(side, {"id": ["p1", "new"], "n": [3, 4], "text": ["x", "x"]})
    world.alter({"path": "n", "name": "count"})
    world.ref = world.put(world.ref, {"id": ["p1", "p2"], "count": [3, 6], "text": ["x", "z"]})
    renamed = {"count": 1, "text": 2}
    assert world.changes((side, FIRST), (world.ref, renamed)) == (
        3,
        [("new", "delete", None), ("p2", "update", ["count", "text"])],
    )
    assert world.changes((world.ref, renamed), (side, FIRST)) == (
        3,
        [("new", "insert", None), ("p2", "update", ["n", "text"])],
    )


# Differences of schemas

OLD = """
node Person { name: String @key  age: I32?  mail: String? }
node Town { name: String @key }
edge Knows: Person -> Town
edge Likes: Person -> Person
"""
NEW = """
node Human @rename_from("Person") { name: String @key  years: I64? @rename_from("age")  phone: String? }
node City { name: String @key }
edge Knows: Human -> Human
edge Likes: Human -> Human
"""


DOMAIN = "01J00000000000000000000000"


def listed(*texts: str) -> list[str]:
    """The differences between the first and the last of several schemas, each of which evolves into the next one."""
    schemas = [accept(compile_schema(texts[0]), DOMAIN)]
    for text in texts[1:]:
        schemas.append(evolve(schemas[-1], compile_schema(text)))
    return [str(change) for change in schema_changes(schemas[0], schemas[-1])]


def test_differences_of_schemas_are_listed() -> None:
    assert listed(OLD, NEW) == [
        "edge Knows changed from Person -> Town to Human -> Human",
        "node City added",
        "node Human renamed from Person",
        "property Human.mail: String? dropped",
        "property Human.phone: String? added",
        "property Human.years renamed from age",
        "property Human.years changed from I32? to I64?",
        "node Town dropped",
    ]


T = "node T { k: String @key  n: I32?  m: String?  v: Vector(2)? }\n"
E = "edge E: T -> T"
PARTS = [
    (
        T.replace("I32?", "I32?  @range(n, 1..15)"),
        T.replace("I32?", "I32?  @range(n, 1..16)"),
        "node T: @range(n, 1..15) changed to @range(n, 1..16)",
    ),
    (T, T.replace("I32?", "I32? @default(3)"), "property T.n: default 3 added"),
    (
        T.replace("I32?", "I32? @default(3)"),
        T.replace("I32?", "I32? @default(4)"),
        "property T.n: default changed from 3 to 4",
    ),
    (T.replace("I32?", "I32? @default(3)"), T, "property T.n: default 3 dropped"),
    (T, T.replace("m: String?", "m: String? @unique"), "node T: @unique(m) added"),
    (T.replace("m: String?", "m: String? @index"), T, "node T: @index(m) dropped"),
    (T, T.replace("m: String?", 'm: String?  @check(m, "a+")'), 'node T: @check(m, "a+") added'),
    (T + E, T + E + " @card(0..2)", "edge E: @card(0..) changed to @card(0..2)"),
    (T + E, T + E + " @card_in(0..2)", "edge E: @card_in(0..) changed to @card_in(0..2)"),
    (T, T.replace("Vector(2)?", 'Vector(2)? @embed("m")'), 'property T.v: @embed "m" added'),
    (T, T.replace("n: I32?", 'n: I32? @description("x")'), "property T.n: annotations changed"),
    (T, T.replace("node T", "node T @merge(property)"), "node T: annotations changed"),
    (
        T.replace("m: String?", "m: String? @unique"),
        T.replace("m: String?", "m: String? @unique(m)"),
        "node T: @unique(m) is written as a line of the body",
    ),
]


@pytest.mark.parametrize(("before", "after", "wanted"), PARTS, ids=[wanted for *_, wanted in PARTS])
def test_a_difference_in_one_part_of_a_declaration_is_listed(before: str, after: str, wanted: str) -> None:
    assert listed(before, after) == [wanted]
    assert listed(before, before) == []


def test_differences_of_interfaces_are_listed() -> None:
    node = "node T%s { k: String @key  m: String? }"
    shaped = "interface I { m: String? }\n" + node % " implements I"
    assert listed(node % "", shaped) == [
        "node T: implements I added",
        "property T.m: declared by the type, for I",
        "interface I added",
    ]
    assert listed(shaped, shaped.replace("interface I {", "interface I { w: I32?")) == [
        "property T.w: I32? added",
        "property I.w: I32? added",
    ]


def test_a_dropped_property_precedes_an_added_one_with_its_name() -> None:
    assert listed(T, T.replace("n: I32?", ""), T) == [
        "property T.n: I32? dropped",
        "property T.n: I32? added",
    ]
    assert listed(T, "node U { k: String @key }", T) == ["node T dropped", "node T added"]


def test_renamed_enum_values_are_listed_even_if_the_names_are_the_same() -> None:
    mood = "node T { k: String @key  mood: enum(%s)? }"
    assert listed(mood % "calm, angry", mood % 'calm, wild @rename_from("angry")') == [
        "property T.mood changed from enum(angry, calm)? to enum(calm, wild)?",
        'property T.mood: value "wild" renamed from "angry"',
    ]
    swapped = ['x @rename_from("a"), b', 'x, a @rename_from("b")', 'b @rename_from("x"), a']
    assert listed(mood % "a, b", *(mood % one for one in swapped)) == [
        'property T.mood: value "a" renamed from "b"',
        'property T.mood: value "b" renamed from "a"',
    ]


@given(schema_pairs())
def test_schemas_have_differences_exactly_if_a_plan_has_steps(pair: tuple[str, str]) -> None:
    before, desired = accept(compile_schema(pair[0]), DOMAIN), compile_schema(pair[1])
    planned = plan(before, desired)
    if planned.supported:
        assert bool(planned.steps) == bool(list(schema_changes(before, evolve(before, desired))))


# Whole graphs

HULL = "node Hull { name: String @key  note: String?  %s }"


def changed_in(graph: omnigraph.Graph, before: str, after: str) -> dict[str, list[str]]:
    return {row["id"]: row["changed"] for row in graph.diff(before, after)["Hull"].updated().to_pylist()}


def test_later_schemas_do_not_change_what_a_property_was_filled_with(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", HULL % "") as graph:
        graph.load({"Hull": [{"name": name} for name in "abc"]}, mode="append")
        graph.tags.create("first")
        graph.schema.apply(HULL % 'w: I32 @default(7)  kind: enum(big, small) @default("small")')
        graph.mutate('query q() { update Hull set { w: 8 } where name = "a" }')
        graph.mutate('query q() { update Hull set { note: "x" } where name = "b" }')
        wanted = {"a": ["w"], "b": ["note"]}
        assert changed_in(graph, "first", "main") == wanted
        later = (
            'w: I32 @default(8)  kind: enum(big, tiny @rename_from("small")) @default("tiny")',
            'weight: I64? @rename_from("w")  kind: enum(big, tiny)? @default("big")',
        )
        graph.schema.apply(HULL % later[0])
        assert changed_in(graph, "first", "main") == wanted
        graph.schema.apply(HULL % later[1])
        graph.optimize()
        assert changed_in(graph, "first", "main") == {"a": ["weight"], "b": ["note"]}
        assert graph.diff("first", "main")["Hull"].filled == {"kind": "tiny", "weight": 7}
        graph.cleanup(keep=1)
        # The commit that added them is removed, and later schemas fill them in another way: they are not compared.
        assert changed_in(graph, "first", "main") == {"b": ["note"]}


def test_a_property_that_all_schemas_fill_alike_is_compared_after_cleanup(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", HULL % "") as graph:
        graph.load({"Hull": [{"name": name} for name in "abc"]}, mode="append")
        graph.tags.create("first")
        graph.schema.apply(HULL % "w: I32 @default(7)  flag: String?  at: DateTime @default(now())")
        graph.mutate('query q() { update Hull set { w: 8 } where name = "a" }')
        graph.mutate(
            'query q() { update Hull set { flag: "gr", at: datetime("2020-01-01T00:00:00Z") } where name = "b" }'
        )
        assert changed_in(graph, "first", "main") == {"a": ["w"], "b": ["at", "flag"]}
        graph.cleanup(keep=1)
        assert changed_in(graph, "first", "main") == {"a": ["w"], "b": ["flag"]}, "the time is no longer known"


def test_a_new_computed_vector_changes_where_its_text_changes(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", HULL % "", embedder=MockEmbedder()) as graph:
        graph.load({"Hull": [{"name": name, "note": f"note {name}"} for name in "abc"]}, mode="append")
        graph.tags.create("first")
        graph.schema.apply(HULL % 'v: Vector(8)? @embed("note")')
        assert changed_in(graph, "first", "main") == {}
        graph.mutate('query q() { update Hull set { note: "other" } where name = "b" }')
        assert changed_in(graph, "first", "main") == {"b": ["note", "v"]}
        assert graph.diff("first", "main").stat().updates == 1


def test_a_property_that_is_added_again_counts_as_new(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", HULL % "flag: String?") as graph:
        graph.load({"Hull": [{"name": name, "flag": "gr"} for name in "abc"]}, mode="append")
        graph.tags.create("first")
        graph.schema.apply(HULL % "")
        assert changed_in(graph, "first", "main") == {}
        assert changed_in(graph, "main", "first") == {name: ["flag"] for name in "abc"}
        graph.schema.apply(HULL % "flag: String?")
        graph.mutate('query q() { update Hull set { flag: "gr" } where name = "b" }')
        assert changed_in(graph, "first", "main") == {"b": ["flag"]}
        assert changed_in(graph, "main", "first") == {name: ["flag"] for name in "abc"}
        assert [str(change) for change in graph.diff("first", "main").schema] == [
            "property Hull.flag: String? dropped",
            "property Hull.flag: String? added",
        ]


def test_times_of_a_type_that_had_the_property_from_the_start_are_not_filled_ones(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "g", HULL % "at: DateTime @default(now())") as graph:
        graph.load({"Hull": [{"name": name} for name in "abc"]}, mode="append")
        graph.tags.create("first")
        graph.schema.apply(HULL % "")
        assert changed_in(graph, "main", "first") == {name: ["at"] for name in "abc"}
