"""A mutation applies its statements in order as one commit, or changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.engine import compiled_queries as compiled
from omnigraph.errors import (
    BadRowsError,
    BranchNotFoundError,
    ConstraintError,
    InputError,
    KeyConflictError,
    NotFoundError,
    ParameterError,
    ParseError,
    PreconditionFailedError,
    ReadOnlyError,
    ResourceLimitError,
    TypeCheckError,
)
from omnigraph.graph import Graph
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import Catalog
from omnigraph.settings import LOAD_MEMORY
from omnigraph.write import mutation
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.raw_rows import Origin

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    mail: String? @unique
    score: F64 @default(1.5)
    mood: enum(calm, cross)? @default("calm")
    born: Date?
    seen: DateTime?
    tags: [String]?
    vec: Vector(3)?
    face: Blob?
    @range(age, 0..150)
}
node Parcel { depot: String  serial: U64  weight: F32  @key(depot, serial) }
node Note { text: String  at: DateTime @default(now()) }
edge Knows: Person -> Person { since: Date?  how: String?  @key(src, dst) }
edge Wrote: Person -> Note @card(0..2) { stars: I32? }
edge Sent: Person -> Parcel
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA, actor="act-kim") as made:
        yield made


def run(graph: Graph, body: str, params: str = "", **given: object) -> mutation.MutationReceipt:
    """Run a query with this body."""
    return graph.mutate(f"query q({params}) {{ {body} }}", given)


def affected(receipt: mutation.MutationReceipt) -> tuple[int, int]:
    return receipt.affected_nodes, receipt.affected_edges


def rows(graph: Graph, key: str, *columns: str) -> dict[str, object]:
    """The entities of a type by id: the value of one column, or a tuple of several."""
    found = graph.snapshot().scan(key, columns=["id", *columns]).to_pylist()
    values = {row["id"]: tuple(row[name] for name in columns) for row in found}
    return dict(sorted((key, value[0] if len(columns) == 1 else value) for key, value in values.items()))


def state(graph: Graph) -> object:
    """The state that a failed mutation must not change."""
    view = graph.snapshot()
    return view.commit, {key: (pin.ref, view.scan(key).to_pylist()) for key, pin in view.tables.items()}


def fails(graph: Graph, error: type[Exception], match: str, body: str, params: str = "", **given: object) -> None:
    before = state(graph)
    with pytest.raises(error, match=match):
        run(graph, body, params, **given)
    assert state(graph) == before


# Inserting


def test_the_statements_of_a_query_are_one_commit(graph: Graph) -> None:
    text = """
    query meet($name: String, $on: Date) {
        insert Person { name: $name, age: 31 }
        insert Person { name: "bob" }
        insert Knows { from: $name, to: "bob", since: $on }
    }
    """
    receipt = graph.mutate(text, {"name": "ann", "on": "2020-01-31"}, message="they met")
    assert (receipt.branch, receipt.query_name, receipt.actor) == ("main", "meet", "act-kim")
    assert affected(receipt) == (2, 1)
    commit = receipt.commit
    assert commit is not None
    assert (commit.writer, commit.actor, commit.message) == ("Mutation", "act-kim", "they met")
    assert dict(commit.labels) == {"query": "meet", "affected_nodes": "2", "affected_edges": "1"}
    assert next(made.id for made in graph.commits) == commit.id
    assert len(list(graph.commits)) == 2
    assert rows(graph, "node:Person", "age") == {"ann": 31, "bob": None}
    assert rows(graph, "edge:Knows", "src", "dst", "since") == {'["ann","bob"]': ("ann", "bob", date(2020, 1, 31))}


def test_the_receipt_has_the_documented_json_form(graph: Graph) -> None:
    receipt = run(graph, 'insert Person { name: "ann" }')
    commit = receipt.commit
    assert commit is not None
    assert receipt.to_json() == {
        "branch": "main",
        "query_name": "q",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": "act-kim",
        "commit": {
            "graph_commit_id": commit.id,
            "graph_branch": None,
            "graph_manifest_version": 2,
            "parent_commit_id": commit.parent,
            "merged_parent_commit_id": None,
            "actor_id": "act-kim",
            "created_at": commit.created_at,
            "message": None,
            "labels": {"query": "q", "affected_nodes": "1", "affected_edges": "0"},
            "kind": "Mutation",
            "counts": {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
        },
    }
    assert run(graph, 'delete Person where name = "nobody"').to_json()["commit"] is None


def test_insert_replaces_all_properties_of_a_keyed_node(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", age: 31, mail: "a@x", score: 4.0, mood: "cross", tags: ["a"] }')
    assert affected(run(graph, 'insert Person { name: "ann", age: 32 }')) == (1, 0)
    # Properties that are not assigned become null, or their default.
    assert rows(graph, "node:Person", "age", "mail", "score", "mood", "tags") == {"ann": (32, None, 1.5, "calm", None)}


def test_an_explicit_null_overrides_the_default(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", mood: null } insert Person { name: "bob" }')
    assert rows(graph, "node:Person", "mood") == {"ann": None, "bob": "calm"}


def test_defaults_of_every_type_are_stored(tmp_path: Path) -> None:
    schema = """
    node All {
        k: String @key
        s: String @default("x")
        b: Bool? @default(true)
        i: I32 @default(-3)
        u: U64 @default(18446744073709551615)
        f: F32 @default(2)
        e: enum(one, two) @default("two")
        d: Date @default("2020-02-29")
        t: DateTime @default("2020-02-29T12:00:00.5+01:00")
        today: Date @default(now())
        now: DateTime? @default(now())
    }
    """
    with omnigraph.init(tmp_path / "graph", schema) as graph:
        run(graph, 'insert All { k: "made" } merge All { k: "merged" }')
        graph.load({"All": pa.table({"k": ["loaded"]})}, mode="append")
        rows = graph.snapshot().scan("node:All")
    for name, value in {"s": "x", "b": True, "i": -3, "u": 2**64 - 1, "f": 2.0, "e": "two"}.items():
        assert rows[name].to_pylist() == [value] * 3
    assert rows["d"].to_pylist() == [date(2020, 2, 29)] * 3
    moments = rows["t"].combine_chunks().view(pa.int64()).to_pylist()
    assert moments == [int(datetime(2020, 2, 29, 11, tzinfo=UTC).timestamp() * 1000) + 500] * 3
    days, times = rows["today"].combine_chunks().view(pa.int32()), rows["now"].combine_chunks().view(pa.int64())
    assert [time // 86_400_000 for time in times.to_pylist()] == days.to_pylist()


def test_an_id_is_derived_from_a_composite_key(graph: Graph) -> None:
    run(graph, 'insert Parcel { depot: "KEW", serial: 18446744073709551615, weight: 2 }')
    assert rows(graph, "node:Parcel", "serial", "weight") == {'["KEW","18446744073709551615"]': (2**64 - 1, 2.0)}


def test_a_node_without_a_key_is_always_new(graph: Graph) -> None:
    run(graph, 'insert Note { text: "x" }')
    run(graph, 'create Note { text: "x" } insert Note { text: "x" }')
    ids = list(rows(graph, "node:Note", "text"))
    assert len(ids) == 3
    assert all(len(entity) == 26 for entity in ids)


def test_an_edge_without_a_key_is_always_new(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann" } insert Parcel { depot: "A", serial: 1, weight: 1 }')
    edge = 'insert Sent { from: "ann", to: "[\\"A\\",\\"1\\"]" }'
    assert affected(run(graph, edge)) == (0, 1)
    run(graph, f"{edge} {edge}")
    assert len(rows(graph, "edge:Sent", "src")) == 3


def test_an_edge_with_a_key_is_replaced(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann" } insert Knows { from: "ann", to: "ann", how: "self", since: null }')
    run(graph, 'insert Knows { from: "ann", to: "ann", since: date("2020-01-01") }')
    assert rows(graph, "edge:Knows", "how", "since") == {'["ann","ann"]': (None, date(2020, 1, 1))}


def test_an_edge_and_its_nodes_may_be_inserted_in_any_order(graph: Graph) -> None:
    run(graph, 'insert Knows { from: "ann", to: "ann" } insert Person { name: "ann" }')
    assert list(rows(graph, "edge:Knows", "src")) == ['["ann","ann"]']
    fails(graph, ConstraintError, "dst 'cid' not found in Person", 'insert Knows { from: "ann", to: "cid" }')


def test_create_refuses_existing_entities(graph: Graph) -> None:
    run(graph, 'create Person { name: "ann", age: 1 }')
    fails(graph, KeyConflictError, "node:Person: 'ann' exists", 'create Person { name: "ann" }')
    body = 'create Person { name: "zed" } create Person { name: "bob" } create Person { name: "bob" }'
    fails(graph, KeyConflictError, "'bob'", body)
    fails(graph, KeyConflictError, "'bob'", 'insert Person { name: "bob" } create Person { name: "bob" }')
    fails(graph, KeyConflictError, "'ann'", 'insert Person { name: "ann" } create Person { name: "ann" }')
    run(graph, 'create Person { name: "bob" } insert Person { name: "bob", age: 2 }')
    assert rows(graph, "node:Person", "age") == {"ann": 1, "bob": 2}
    run(graph, 'create Knows { from: "ann", to: "bob" }')
    fails(graph, KeyConflictError, "edge:Knows", 'create Knows { from: "ann", to: "bob" }')


def test_merge_sets_only_the_listed_properties(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", age: 31, mail: "a@x", score: 4.0, vec: [1, 2, 3], face: "base64:AAEC" }')
    assert affected(run(graph, 'merge Person { name: "ann", age: 32, mood: null }')) == (1, 0)
    found = graph.snapshot().scan("node:Person").to_pylist()[0]
    assert (found["age"], found["mail"], found["score"], found["mood"]) == (32, "a@x", 4.0, None)
    assert found["vec"] == [1, 2, 3]
    assert graph.blob("Person", "ann", "face").read() == b"\x00\x01\x02"


def test_merge_creates_with_defaults(graph: Graph) -> None:
    run(graph, 'merge Person { name: "ann", age: 3 } merge Person { name: "ann", mail: "a@x" }')
    assert rows(graph, "node:Person", "age", "mail", "score", "mood") == {"ann": (3, "a@x", 1.5, "calm")}


def test_merge_needs_all_required_properties_to_create(graph: Graph) -> None:
    body = 'insert Note { text: "x" } merge Parcel { depot: "A", serial: 1 }'
    fails(graph, BadRowsError, "statement 2: Parcel.weight: is required", body)
    # The second statement finds the entity that the first one creates.
    fails(graph, BadRowsError, r"statement 1: Parcel.weight: is required(\n|$)", f"{body[25:]} {body[25:]}")
    run(graph, 'insert Parcel { depot: "A", serial: 1, weight: 3 }')
    run(graph, 'merge Parcel { depot: "A", serial: 1 } merge Parcel { depot: "A", serial: 1, weight: 4 }')
    assert rows(graph, "node:Parcel", "weight") == {'["A","1"]': 4.0}


def test_merge_updates_an_edge_with_a_key(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann" } merge Knows { from: "ann", to: "ann", how: "self" }')
    run(graph, 'merge Knows { from: "ann", to: "ann", since: date("2020-01-01") }')
    assert rows(graph, "edge:Knows", "how", "since") == {'["ann","ann"]': ("self", date(2020, 1, 1))}


# Values


def test_values_of_every_type_are_stored(graph: Graph) -> None:
    params = (
        "$name: String, $age: I64, $score: F32, $mood: Person.mood, $born: Date, $seen: DateTime, $tags: [String], "
        "$vec: Vector(3), $face: Blob"
    )
    body = (
        "insert Person { name: $name, age: $age, score: $score, mood: $mood, born: $born, seen: $seen, tags: $tags, "
        "vec: $vec, face: $face }"
    )
    given = {
        "name": "ann",
        "age": "31",
        "score": 0.5,
        "mood": "cross",
        "born": "1990-02-03",
        "seen": "2026-03-14T09:30:00.123+01:00",
        "tags": ["a", "b"],
        "vec": [1, 0.5, -2],
        "face": "base64:AAEC",
    }
    graph.mutate(f"query q({params}) {{ {body} }}", given)
    found = graph.snapshot().scan("node:Person").to_pylist()[0]
    assert found.pop("face") is not None
    assert graph.blob("Person", "ann", "face").read() == b"\x00\x01\x02"
    assert found == {
        "id": "ann",
        "name": "ann",
        "age": 31,
        "mail": None,
        "score": 0.5,
        "mood": "cross",
        "born": date(1990, 2, 3),
        "seen": found["seen"],
        "tags": ["a", "b"],
        "vec": [1.0, 0.5, -2.0],
    }
    seen = graph.snapshot().scan("node:Person", columns=["seen"])["seen"].combine_chunks().view(pa.int64())
    assert seen.to_pylist() == [int(datetime(2026, 3, 14, 8, 30, 0, 123000, UTC).timestamp() * 1000)]


@pytest.mark.parametrize(
    ("params", "assigned", "value", "message"),
    [
        ("$v: I64", "age: $v", 2**31, "Person.age: out of range for I32"),
        ("$v: F64", "age: $v", 1.5, "Person.age: expected a whole number"),
        ("$v: F64", "age: $v", 1e30, "Person.age: expected a whole number"),
        ("$v: F64", "age: $v", 3e9, "Person.age: out of range for I32"),
        ("$v: Blob", "face: $v", "base64:?", "Person.face: the text after base64: is not base64"),
        ("$v: F64?", "score: $v", None, "Person.score: is required"),
        ("$v: String?", "name: $v", None, "Person.name: is required"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    graph: Graph, params: str, assigned: str, value: object, message: str
) -> None:
    name = "" if assigned.startswith("name") else 'name: "ann", '
    fails(graph, BadRowsError, f"^{message}", f"insert Person {{ {name}{assigned} }}", params, v=value)
    if assigned.startswith("name"):
        return
    run(graph, 'insert Person { name: "ann" }')
    fails(graph, BadRowsError, f"^{message}", f'update Person set {{ {assigned} }} where name = "ann"', params, v=value)
    fails(graph, BadRowsError, f"^{message}", f'merge Person {{ name: "ann", {assigned} }}', params, v=value)


def test_a_float_without_a_fraction_fits_an_integer(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", age: $v }', "$v: F64", v=31.0)
    run(graph, 'insert Parcel { depot: "A", serial: $v, weight: 1 }', "$v: F64", v=2.0**63)
    assert rows(graph, "node:Person", "age") == {"ann": 31}
    assert rows(graph, "node:Parcel", "serial") == {f'["A","{2**63}"]': 2**63}


def test_every_problem_names_its_statement(graph: Graph) -> None:
    body = (
        'insert Person { name: "a", age: $v } insert Person { name: "b", age: 1 } insert Person { name: $n, age: $v }'
    )
    with pytest.raises(BadRowsError) as caught:
        run(graph, body, "$v: I64, $n: String?", v=2**40)
    assert [str(problem) for problem in caught.value.problems] == [
        "statement 1: Person.age: out of range for I32",
        "statement 3: Person.age: out of range for I32",
        "statement 3: Person.name: is required",
    ]


def test_an_enum_is_checked_with_the_constraints(graph: Graph) -> None:
    fails(graph, ConstraintError, "Person.mood", 'insert Person { name: "a", mood: $v }', "$v: String", v="glad")
    with pytest.raises(ParameterError, match=r"\$v"):
        run(graph, 'insert Person { name: "a", mood: $v }', "$v: Person.mood", v="glad")


# Updating


def test_update_sets_only_the_listed_properties(graph: Graph) -> None:
    run(
        graph, 'insert Person { name: "ann", age: 31, mail: "a@x", vec: [1, 2, 3], face: "base64:AAEC", mood: "cross" }'
    )
    run(graph, 'insert Person { name: "bob", age: 45 }')
    assert affected(run(graph, 'update Person set { age: 32, mood: null } where name = "ann"')) == (1, 0)
    assert rows(graph, "node:Person", "age", "mail", "mood", "vec") == {
        "ann": (32, "a@x", None, [1, 2, 3]),
        "bob": (45, None, "calm", None),
    }
    assert graph.blob("Person", "ann", "face").read() == b"\x00\x01\x02"
    run(
        graph,
        'update Person set { face: $new } where name = "ann" merge Person { name: "ann", age: 1 }',
        "$new: Blob",
        new=b"!",
    )
    assert graph.blob("Person", "ann", "face").read() == b"!"


def test_update_accepts_any_condition(graph: Graph) -> None:
    people = " ".join(f'insert Person {{ name: "p{i}", age: {i} }}' for i in range(10))
    run(graph, people + ' insert Person { name: "none" }')
    body = 'update Person set { mail: name } where age >= 3 and not (age = 5 or name ends_with "7")'
    with pytest.raises(ParseError):
        run(graph, body)  # values are never computed
    body = "update Person set { tags: $t } where age >= $low and not (age = 5 or name ends_with $end) and id != $skip"
    params = "$t: [String], $low: I32, $end: String, $skip: String"
    assert affected(run(graph, body, params, t=["x"], low=3, end="7", skip="p9")) == (4, 0)
    tagged = [entity for entity, tags in rows(graph, "node:Person", "tags").items() if tags == ["x"]]
    assert tagged == ["p3", "p4", "p6", "p8"]
    assert affected(run(graph, "update Person set { age: 0 } where age is null")) == (1, 0)


def test_edges_can_be_updated(graph: Graph) -> None:
    run(graph, 'insert Person { name: "a" } insert Person { name: "b" } insert Knows { from: "a", to: "b" }')
    run(graph, 'insert Knows { from: "b", to: "a", how: "work" }')
    receipt = run(graph, 'update Knows set { since: date("2020-01-01") } where from = "b" and to = "a"')
    assert affected(receipt) == (0, 1)
    assert rows(graph, "edge:Knows", "since", "how") == {
        '["a","b"]': (None, None),
        '["b","a"]': (date(2020, 1, 1), "work"),
    }


def test_an_update_sees_earlier_statements(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", age: 1 } insert Person { name: "bob", age: 1 }')
    body = """
        insert Person { name: "cid", age: 1 }
        update Person set { age: 2 } where age = 1
        insert Person { name: "dee", age: 1 }
        update Person set { age: 3 } where age = 2 and name != "bob"
    """
    assert affected(run(graph, body)) == (7, 0)
    assert rows(graph, "node:Person", "age") == {"ann": 3, "bob": 2, "cid": 3, "dee": 1}


def test_a_mutation_that_matches_nothing_makes_no_commit(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann" }')
    before = state(graph)
    for body in ('update Person set { age: 1 } where name = "bob"', 'delete Person where name = "bob"'):
        receipt = run(graph, body)
        assert (affected(receipt), receipt.commit, receipt.actor) == ((0, 0), None, "act-kim")
    assert state(graph) == before


# Deleting


def test_deleting_a_node_deletes_its_edges(graph: Graph) -> None:
    body = " ".join(f'insert Person {{ name: "{name}" }}' for name in "abc")
    edges = ["ab", "ba", "bc", "ca", "aa"]
    body += " ".join(f' insert Knows {{ from: "{e[0]}", to: "{e[1]}" }}' for e in edges)
    body += ' insert Parcel { depot: "A", serial: 1, weight: 1 } insert Sent { from: "a", to: "[\\"A\\",\\"1\\"]" }'
    run(graph, body)
    receipt = run(graph, 'delete Person where name = "a"')
    assert affected(receipt) == (1, 5)  # the self-loop aa is one edge
    assert list(rows(graph, "node:Person", "age")) == ["b", "c"]
    assert list(rows(graph, "edge:Knows", "src")) == ['["b","c"]']
    assert rows(graph, "edge:Sent", "src") == {}
    assert len(rows(graph, "node:Parcel", "serial")) == 1


def test_deleting_a_node_keeps_edges_of_another_type_with_the_same_id(graph: Graph) -> None:
    """Ids are unique only per type: a person may have the id of a parcel."""
    name = '[\\"A\\",\\"1\\"]'
    run(graph, f'insert Person {{ name: "{name}" }} insert Parcel {{ depot: "A", serial: 1, weight: 1 }}')
    run(graph, f'insert Person {{ name: "x" }} insert Sent {{ from: "{name}", to: "{name}" }}')
    run(graph, f'insert Knows {{ from: "{name}", to: "x" }}')
    assert affected(run(graph, "delete Parcel where serial = 1")) == (1, 1)
    assert len(rows(graph, "edge:Knows", "src")) == 1


def test_overlapping_deletes_count_each_entity_once(graph: Graph) -> None:
    people = " ".join(f'insert Person {{ name: "p{i}", age: {i} }}' for i in range(4)) + ' insert Person { name: "n" }'
    run(graph, people + ' insert Knows { from: "p1", to: "p2" } insert Knows { from: "n", to: "p1" }')
    body = """
        delete Knows where from = "p1"
        delete Person where age >= 1
        delete Person where age < 3
        delete Person where age != 3
        delete Knows where to = "p1"
    """
    assert affected(run(graph, body)) == (4, 2)
    assert list(rows(graph, "node:Person", "age")) == ["n"]  # no comparison with null is true


def test_edges_can_be_deleted(graph: Graph) -> None:
    run(graph, 'insert Person { name: "a" } insert Person { name: "b" } insert Knows { from: "a", to: "b", how: "x" }')
    run(graph, 'insert Knows { from: "b", to: "a" }')
    assert affected(run(graph, 'delete Knows where to = "b" or how is not null')) == (0, 1)
    assert list(rows(graph, "edge:Knows", "src")) == ['["b","a"]']


# Constraints and the order of checks


def test_constraints_are_checked_after_all_statements(graph: Graph) -> None:
    run(graph, 'insert Person { name: "ann", mail: "a@x" } insert Person { name: "bob" }')
    fails(graph, ConstraintError, "Person.mail", 'update Person set { mail: "a@x" } where name = "bob"')
    fails(graph, ConstraintError, "Person.age", 'update Person set { age: $v } where name = "bob"', "$v: I32", v=200)
    # A violation that a later statement of the query fixes is no error.
    body = 'update Person set { mail: "a@x" } where name = "bob" update Person set { mail: null } where name = "ann"'
    run(graph, body)
    assert rows(graph, "node:Person", "mail") == {"ann": None, "bob": "a@x"}


def test_a_delete_checks_cardinalities(tmp_path: Path) -> None:
    schema = "node A { k: String @key } node B { k: String @key } edge E: A -> B @card(1..1)"
    with omnigraph.init(tmp_path / "graph", schema) as graph:
        run(graph, 'insert A { k: "a" } insert B { k: "b" } insert E { from: "a", to: "b" }')
        fails(graph, ConstraintError, "E @card: 'a'", 'delete B where k = "b"')
        assert affected(run(graph, 'delete A where k = "a" delete B where k = "b"')) == (2, 1)


def test_checks_run_in_the_documented_order(graph: Graph) -> None:
    """The query violates all remaining checks, and the first one is reported."""
    run(graph, 'insert Person { name: "ann" }')
    head = graph.snapshot().commit.id
    conflict = 'create Person { name: "ann" }'
    broken = 'insert Knows { from: "ann", to: "x" }'
    wrong = 'insert Person { name: "bob", age: $age }'
    query = f"query q($age: I64) {{ {conflict} {broken} {wrong} }}"
    with pytest.raises(ParseError):
        graph.mutate(query[:-1], {}, expect_head="0" * 26)
    with pytest.raises(TypeCheckError):
        graph.mutate(query.replace("age: $age", "aeg: $age"), {}, expect_head="0" * 26)
    with pytest.raises(TypeCheckError, match="either writes or deletes"):
        graph.mutate(query[:-1] + ' delete Person where name = "ann" }', {}, expect_head="0" * 26)
    with pytest.raises(PreconditionFailedError):
        graph.mutate(query, {}, expect_head="0" * 26)
    with pytest.raises(ParameterError):
        graph.mutate(query, {}, expect_head=head)
    with pytest.raises(BadRowsError):
        graph.mutate(query, {"age": 2**40}, expect_head=head)
    with pytest.raises(ConstraintError, match="not found in Person"):
        graph.mutate(query, {"age": 1}, expect_head=head)
    with pytest.raises(KeyConflictError):
        graph.mutate(query.replace('to: "x"', 'to: "bob"'), {"age": 1}, expect_head=head)
    assert graph.snapshot().commit.id == head


# Requests


def test_one_of_several_queries_is_selected_by_name(graph: Graph) -> None:
    text = """
    query one() { insert Person { name: "one" } }
    query two() { insert Person { name: "two" } }
    query look() { match { $p: Person } return { $p.name } }
    """
    assert graph.mutate(text, name="two").query_name == "two"
    assert list(rows(graph, "node:Person", "age")) == ["two"]
    with pytest.raises(InputError, match="3 queries"):
        graph.mutate(text)
    with pytest.raises(NotFoundError, match="there is no query 'tow'"):
        graph.mutate(text, name="tow")
    with pytest.raises(InputError, match="'look' is a query that reads"):
        graph.mutate(text, name="look")


def test_a_mutation_can_write_to_a_branch(graph: Graph) -> None:
    graph.branches.create("draft")
    receipt = graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
    assert receipt.branch == "draft"
    assert receipt.to_json()["commit"]["graph_branch"] == "draft"
    assert graph.snapshot().pin("node:Person").row_count == 0
    assert graph.snapshot(branch="draft").pin("node:Person").row_count == 1
    with pytest.raises(BranchNotFoundError):
        graph.mutate('query q() { insert Person { name: "ann" } }', branch="darft")


def test_a_read_only_handle_cannot_mutate(graph: Graph) -> None:
    with omnigraph.open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        run(reader, 'insert Person { name: "ann" }')


def test_an_outdated_expected_head_is_refused(graph: Graph) -> None:
    first = run(graph, 'insert Person { name: "ann" }').commit
    assert first is not None
    text = "query q() { update Person set { age: 1 } where age is null }"
    assert graph.mutate(text, expect_head=first.id).affected_nodes == 1
    with pytest.raises(PreconditionFailedError) as caught:
        graph.mutate(text, expect_head=first.id)
    assert (caught.value.branch, caught.value.expected) == ("main", first.id)
    assert caught.value.actual == graph.snapshot().commit.id


def test_a_repeated_request_returns_the_first_receipt(graph: Graph) -> None:
    text = 'query q($age: I32) { merge Person { name: "ann", age: $age } insert Note { text: "x" } }'
    first = graph.mutate(text, {"age": 1}, idempotency_key="k")
    run(graph, 'update Person set { age: 7 } where name = "ann"')
    with omnigraph.open(graph.uri, actor="act-kim") as other:
        assert other.mutate(text, {"age": "1", "unused": 2}, idempotency_key="k") == first
    assert rows(graph, "node:Person", "age") == {"ann": 7}
    assert len(rows(graph, "node:Note", "text")) == 1


def test_an_idempotency_key_belongs_to_its_actor(graph: Graph) -> None:
    text = 'query q() { insert Note { text: "x" } }'
    first = graph.mutate(text, idempotency_key="k")
    with omnigraph.open(graph.uri, actor="act-lee") as other:
        second = other.mutate(text, idempotency_key="k")
        assert second != first
        assert other.mutate(text, idempotency_key="k") == second
    assert len(rows(graph, "node:Note", "text")) == 2


def test_an_idempotency_key_belongs_to_one_query(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["ann"]})}, mode="append", idempotency_key="load")
    graph.mutate('query one() { insert Person { name: "bob" } }', idempotency_key="one")
    for key, made_by in (("load", "a write of kind Load"), ("one", "the query 'one'")):
        with pytest.raises(InputError, match=f"'{key}' belongs to commit .*, made by {made_by}"):
            graph.mutate('query two() { insert Person { name: "cid" } }', idempotency_key=key)
    assert rows(graph, "node:Person", "age") == {"ann": None, "bob": None}


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("query q($n: String, $a: I32?) { insert Person { name: $n, age: $a } }", {"n": "bob", "a": 1}),
        ("query q($n: String, $a: I32?) { insert Person { name: $n, age: $a } }", {"n": "ann", "a": 2}),
        ("query q($n: String, $a: I32?) { insert Person { name: $n, age: $a } }", {"n": "ann"}),
        ("query q($n: String, $a: I32?) { merge Person { name: $n, age: $a } }", {"n": "ann", "a": 1}),
    ],
)
def test_an_idempotency_key_is_refused_for_another_text_or_parameters(
    graph: Graph, text: str, params: dict[str, object]
) -> None:
    first = "query q($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
    graph.mutate(first, {"n": "ann", "a": 1}, idempotency_key="k")
    with pytest.raises(InputError, match="the query 'q' with another text or other parameters"):
        graph.mutate(text, params, idempotency_key="k")
    assert rows(graph, "node:Person", "age") == {"ann": 1}


def test_generated_times_and_ids_are_not_part_of_a_request(graph: Graph) -> None:
    text = 'query q($v: Vector(3)?) { insert Note { text: "x" } insert Person { name: "ann", vec: $v, seen: now() } }'
    first = graph.mutate(text, {"v": [1, 0, 0]}, idempotency_key="k")
    assert graph.mutate(text, {"v": np.array([1.0, 0, 0])}, idempotency_key="k") == first
    assert len(rows(graph, "node:Note", "text")) == 1


def test_only_commits_with_an_idempotency_key_record_the_request(graph: Graph) -> None:
    plain, keyed = (
        graph.mutate('query q() { insert Note { text: "x" } }', idempotency_key=key).commit for key in (None, "k")
    )
    assert plain is not None
    assert keyed is not None
    assert dict(keyed.labels).keys() - dict(plain.labels).keys() == {"request"}


@pytest.mark.parametrize(
    ("params", "said"), [([1], "not a list"), ("ann", "not a str"), ({1: 2}, "a text, not a int"), (0, "not a int")]
)
def test_parameters_must_be_a_mapping(graph: Graph, params: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        graph.mutate("query q($n: String) { insert Person { name: $n } }", params)


def test_a_query_must_be_a_string(graph: Graph) -> None:
    text: Any = 5
    with pytest.raises(InputError, match="a query must be a text or a path, not 5 of type int"):
        graph.mutate(text)


def racing(monkeypatch: pytest.MonkeyPatch, graph: Graph, body: str) -> list[int]:
    """Commit with another handle during the first preparation of the next mutation. Counts the preparations."""
    calls: list[int] = []
    prepare = mutation.Mutation.prepare

    def overtaken(self: mutation.Mutation, snapshot: omnigraph.Snapshot) -> object:
        prepared = prepare(self, snapshot)
        calls.append(len(calls))
        if len(calls) == 1:
            monkeypatch.setattr(mutation.Mutation, "prepare", prepare)
            with omnigraph.open(graph.uri) as other:
                run(other, body)
            monkeypatch.setattr(mutation.Mutation, "prepare", overtaken)
        return prepared

    monkeypatch.setattr(mutation.Mutation, "prepare", overtaken)
    return calls


def test_inserts_are_prepared_again_after_another_commit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    run(graph, 'insert Person { name: "ann", age: 1, mail: "a@x" }')
    calls = racing(monkeypatch, graph, 'update Person set { mail: "b@x" } where name = "ann"')
    ticks = iter(range(1_000, 100_000, 1_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks) * 1_000_000_000_000)
    receipt = run(graph, 'merge Person { name: "ann", age: 2, seen: now() } insert Note { text: "x" }')
    assert affected(receipt) == (2, 0)
    # A writer that lost once locks the branch before it prepares again, so that it cannot lose twice.
    assert len(calls) == 2
    assert rows(graph, "node:Person", "age", "mail") == {"ann": (2, "b@x")}
    seen, at = (
        graph.snapshot().scan(key, columns=[name])[name].combine_chunks().view(pa.int64())[0].as_py()
        for key, name in (("node:Person", "seen"), ("node:Note", "at"))
    )
    assert seen == at  # one time per request, also after a retry


@pytest.mark.parametrize(
    "body", ["update Person set { age: 2 } where age = 1", "delete Person where age = 1"], ids=["update", "delete"]
)
def test_updates_and_deletes_see_rows_of_a_concurrent_commit(
    graph: Graph, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(graph, 'insert Person { name: "ann", age: 1 }')
    calls = racing(monkeypatch, graph, 'insert Person { name: "bob", age: 1 }')
    assert affected(run(graph, body)) == (2, 0)
    assert len(calls) == 2
    assert rows(graph, "node:Person", "age") == ({"ann": 2, "bob": 2} if "update" in body else {})


@pytest.mark.parametrize(
    "body", ["update Person set { age: 2 } where age = 1", "delete Person where age = 1"], ids=["update", "delete"]
)
@pytest.mark.parametrize("other", ['insert Note { text: "x" }', 'insert Person { name: "bob", age: 3 }'])
def test_a_concurrent_commit_without_matching_rows_causes_no_retry(
    graph: Graph, body: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(graph, 'insert Person { name: "ann", age: 1 }')
    calls = racing(monkeypatch, graph, other)
    assert affected(run(graph, body)) == (1, 0)
    assert len(calls) == 1, "it is not prepared again"
    left = {"bob": 3} if "bob" in other else {}
    assert rows(graph, "node:Person", "age") == ({"ann": 2} | left if "update" in body else left)


@pytest.mark.parametrize("body", ['insert Person { name: "cid" }', "delete Person where age = 1"])
def test_an_expected_head_that_changes_during_the_write_is_refused(
    graph: Graph, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is compared again before the publish, with the same error as at the start."""
    first = run(graph, 'insert Person { name: "ann", age: 1 }').commit
    assert first is not None
    calls = racing(monkeypatch, graph, 'insert Person { name: "bob", age: 1 }')
    with pytest.raises(PreconditionFailedError) as caught:
        graph.mutate(f"query q() {{ {body} }}", expect_head=first.id)
    assert caught.value.actual == graph.snapshot().commit.id
    assert len(calls) == 1


# Cost


def operations(graph: Graph, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> dict[str, str]:
    """The operation of a write on each table."""
    seen: dict[str, str] = {}
    prepare = mutation.Mutation.prepare

    def watched(self: mutation.Mutation, snapshot: omnigraph.Snapshot) -> object:
        prepared = prepare(self, snapshot)
        seen.update({made.key: type(made).__name__ for made in prepared.writes})
        return prepared

    with monkeypatch.context() as patched:
        patched.setattr(mutation.Mutation, "prepare", watched)
        write()
    return seen


def test_rows_that_must_be_new_are_appended(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def did(body: str) -> dict[str, str]:
        return operations(graph, monkeypatch, lambda: run(graph, body))

    append, upsert = "Append", "Upsert"
    assert did('insert Person { name: "ann" } insert Note { text: "x" }') == {
        "node:Note": append,
        "node:Person": append,
    }
    assert did('create Person { name: "cid" }') == {"node:Person": append}
    assert did('insert Note { text: "y" }') == {"node:Note": append}
    # The upsert itself finds out which rows exist.
    assert did('insert Person { name: "bob" }') == {"node:Person": upsert}
    assert did('insert Person { name: "ann" }') == {"node:Person": upsert}
    assert did('merge Person { name: "dee" }') == {"node:Person": upsert}
    assert did('merge Person { name: "ann", age: 1 }') == {"node:Person": upsert}
    assert did('create Person { name: "eve" } update Person set { age: 3 } where name = "ann"') == {
        "node:Person": upsert
    }
    assert did('insert Note { text: "z" } update Note set { text: "w" } where text = "z"') == {"node:Note": append}
    assert did('delete Person where name = "ann"') == {"node:Person": "DeleteIds"}


def test_an_update_has_a_memory_budget(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load({"Person": pa.table({"name": [f"p{i}" for i in range(1000)]})}, mode="append")
    monkeypatch.setenv(LOAD_MEMORY.name, "20KiB")
    fails(
        graph,
        ResourceLimitError,
        "bytes of the rows written to node:Person",
        "update Person set { age: 1 } where score > 0",
    )
    assert affected(run(graph, 'update Person set { age: 1 } where name starts_with "p99"')) == (11, 0)


def test_many_statements_are_built_in_few_batches(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = RowBuilder.build

    def counted(self: RowBuilder, raw: Mapping[str, pa.Array], origin: Origin) -> pa.Table:
        built.append(len(origin.records))
        return build(self, raw, origin)

    monkeypatch.setattr(RowBuilder, "build", counted)
    body = " ".join(
        f'insert Person {{ name: "p{i}", age: {i % 100} }} insert Knows {{ from: "p{i}", to: "p{(i * 7) % 1000}" }}'
        for i in range(1000)
    )
    assert affected(run(graph, body)) == (1000, 1000)
    assert built == [1000, 1000]
    assert graph.snapshot().pin("node:Person").row_count == 1000


def test_a_query_is_compiled_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def counted(text: str, catalog: Catalog, name: str | None) -> ir.Query:
        texts.append(text)
        return compile_query(text, catalog, name)

    monkeypatch.setattr(compiled, "compile_query", counted)
    for i in range(3):
        run(graph, "insert Person { name: $n }", "$n: String", n=f"p{i}")
    assert len(texts) == 1
    for i in range(compiled.CACHED_QUERIES):
        run(graph, f'delete Person where name = "x{i}"')
    run(graph, "insert Person { name: $n }", "$n: String", n="last")
    assert len(texts) == compiled.CACHED_QUERIES + 2


def test_the_texts_of_compiled_queries_have_a_limit(graph: Graph, thresholds: Thresholds) -> None:
    """A caller may write large values into the text of each query."""
    thresholds(compiled, CACHED_CHARACTERS=20_000)
    queries = compiled.CompiledQueries()
    schemas = graph.session.schemas
    view = graph.session.store.capture("main")
    for number in range(20):
        text = (
            f'query q() {{ match {{ $p: Person {{ name: "{number}{"x" * 5_000}" }} }} return {{ $p.name as name }} }}'
        )
        assert queries.get(text, None, schemas.of(view).catalog, view.schema_hash).name == "q"
    assert 0 < sum(len(key[0]) for key in queries._queries._held if isinstance(key, tuple)) <= 20_000
