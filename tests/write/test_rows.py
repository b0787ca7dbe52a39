"""Rows are complete and have ids, and every problem names its location."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.errors import BadRowsError
from omnigraph.lang.schema import AcceptedSchema, TypeKind, accept, compile_schema
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin
from papers import EDGES, NODES, generate

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    status: enum(active, gone) @default("active")
    seen: DateTime @default(now())
}
node Note { text: String }
node Visit { place: String  day: Date  @key(place, day) }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
edge Likes: Person -> Note
"""

NOW = 1_700_000_000_123


@pytest.fixture
def accepted() -> AcceptedSchema:
    return accept(compile_schema(SCHEMA), "0" * 26)


def build(accepted: AcceptedSchema, name: str, raw: dict[str, pa.Array]) -> tuple[pa.Table, Problems]:
    problems = Problems()
    kind = TypeKind.NODE if name in accepted.catalog.nodes else TypeKind.EDGE
    count = len(next(iter(raw.values())))
    table = RowBuilder(accepted, kind, name, NOW, problems).build(
        raw, Origin.consecutive(count, lambda record: f"line {record}")
    )
    return table, problems


def refused(accepted: AcceptedSchema, name: str, raw: dict[str, pa.Array]) -> list[str]:
    _, problems = build(accepted, name, raw)
    with pytest.raises(BadRowsError) as caught:
        problems.check()
    assert caught.value.total == problems.total
    return [str(problem) for problem in caught.value.problems]


def test_missing_properties_get_their_defaults(accepted: AcceptedSchema) -> None:
    table, problems = build(accepted, "Person", {"name": pa.array(["ann"])})
    assert not problems
    assert table.select(["id", "age", "name", "status"]).to_pylist() == [
        {"id": "ann", "age": None, "name": "ann", "status": "active"}
    ]
    assert table["seen"].combine_chunks().view(pa.int64()).to_pylist() == [NOW]


def test_ids_are_derived_given_or_generated(accepted: AcceptedSchema) -> None:
    visits, _ = build(accepted, "Visit", {"place": pa.array(["Kew"]), "day": pa.array(["1970-01-03"])})
    assert visits["id"].to_pylist() == ['["2","Kew"]']
    knows, _ = build(accepted, "Knows", {"from": pa.array(["a"]), "to": pa.array(["b"])})
    assert knows.select(["id", "src", "dst"]).to_pylist() == [{"id": '["a","b"]', "src": "a", "dst": "b"}]
    notes, _ = build(accepted, "Note", {"text": pa.array(["x", "y"]), "id": pa.array(["mine", None])})
    mine, generated = notes["id"].to_pylist()
    assert mine == "mine"
    assert len(generated) == 26


def test_an_id_that_contradicts_the_key_is_refused(accepted: AcceptedSchema) -> None:
    build(accepted, "Person", {"name": pa.array(["ann"]), "id": pa.array(["ann"])})[1].check()
    assert refused(accepted, "Person", {"name": pa.array(["ann"]), "id": pa.array(["bob"])}) == [
        "line 1: Person.id: differs from the id derived from the key"
    ]


def test_problems_are_in_input_order_with_their_lines(accepted: AcceptedSchema) -> None:
    raw = {"name": pa.array(["a", None, "c"]), "age": pa.array([1, 2, 2**40]), "agee": pa.array([1, 1, 1])}
    assert refused(accepted, "Person", raw) == [
        "line 1: Person.agee: there is no such property; did you mean 'age'?",
        "line 2: Person.agee: there is no such property; did you mean 'age'?",
        "line 2: Person.name: is required",
        "line 3: Person.age: out of range for I32",
        "line 3: Person.agee: there is no such property; did you mean 'age'?",
    ]


def test_edges_need_both_endpoints(accepted: AcceptedSchema) -> None:
    assert refused(accepted, "Likes", {"from": pa.array(["a", None])}) == [
        "line 1: Likes.to: is required",
        "line 2: Likes.from: is required",
        "line 2: Likes.to: is required",
    ]


def test_a_million_problems_give_a_short_error(accepted: AcceptedSchema) -> None:
    _, problems = build(accepted, "Note", {"text": pa.nulls(1_000_000)})
    with pytest.raises(BadRowsError) as caught:
        problems.check()
    assert caught.value.total == 1_000_000
    assert len(caught.value.problems) == 100
    assert caught.value.render().splitlines() == [
        "line 1: Note.text: is required (and 999,999 more of this kind: lines 2, 3, 4, …)",
        "  help: nothing was written; correct the input and send it again",
    ]


def test_the_rows_of_the_example_are_valid() -> None:
    with open("examples/papers/schema.pg", encoding="utf-8") as file:
        accepted = accept(compile_schema(file.read()), "0" * 26)
    seen = set()
    for name, batch in generate(500, 3):
        raw = {column: batch[column] for column in batch.schema.names}
        table, problems = build(accepted, name, raw)
        problems.check()
        assert table.num_rows == batch.num_rows
        seen.add(name)
    assert seen == {*NODES, *EDGES}
