"""Hazards of the read language that must not fail silently, each with the rows that it must give.

H10 to H12 and H17 to H25 are about schemas and writes; they are in tests/write/test_hazards.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.read.test_hard_reads import edge, loaded, node

from omnigraph.errors import CompileError, ParameterError
from omnigraph.graph import Graph
from omnigraph.lang.query import compile_query, describe

SCHEMA = """
node Person { n: I64?  score: F64?  seen: DateTime?  text: String?  more: String?  vec: Vector(2)? }
node City { name: String?  text: String? }
edge Knows: Person -> Person { weight: I32? }
edge LivesIn: Person -> City { since: I64? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Ann knows Bob twice and Cid once, Bob knows Cid; Ann and Bob live in Bern, Cid has no city."""
    opened = loaded(
        tmp_path,
        SCHEMA,
        node("Person", "ann", n=1, score=1.5, text="red fox", more="old dog", vec=[0.0, 0.0]),
        node("Person", "bob", n=2, score=2.0, text="red dog", more="new fox", vec=[1.0, 0.0]),
        node("Person", "cid", n=None, score=None, text=None, more="red", vec=[2.0, 0.0]),
        node("City", "bern", name="Bern", text="old town"),
        node("City", "rome", name="Rome", text="old ruins"),
        edge("Knows", "k1", "ann", "bob", weight=2),
        edge("Knows", "k2", "ann", "bob", weight=3),
        edge("Knows", "k3", "ann", "cid", weight=None),
        edge("Knows", "k4", "bob", "cid", weight=5),
        edge("LivesIn", "l1", "ann", "bern", since=2000),
        edge("LivesIn", "l2", "bob", "bern", since=2010),
    )
    with opened:
        yield opened


def rows(graph: Graph, body: str, head: str = "", params: Mapping[str, object] | None = None) -> list[Any]:
    """The rows of a query; plain values if there is one column."""
    found = [list(row.values()) for row in graph.query(f"query q({head}) {{ {body} }}", params).to_pylist()]
    return [row[0] if len(row) == 1 else row for row in found]


def refused(graph: Graph, body: str, code: str, head: str = "") -> None:
    with pytest.raises(CompileError, match=rf"\b{code}\b"):
        graph.query(f"query q({head}) {{ {body} }}")


def test_h1_a_required_parameter_that_is_omitted_is_an_error(graph: Graph) -> None:
    """The hazard: the matcher is dropped, and everything matches."""
    for body in (
        "match { $p: Person { n: $x } } return { $p.id }",
        "match { $p: Person  $p.n = $x } return { $p.id }",
        "match { $p: Person } return { $p.id, $x as x }",
        "match { $p: Person } return { $p.id } limit $x",
    ):
        with pytest.raises(ParameterError, match="x: not given"):
            graph.query(f"query q($x: I64) {{ {body} }}")
    # An omitted nullable parameter is null, which equals nothing.
    assert rows(graph, "match { $p: Person { n: $x } } return { $p.id }", "$x: I64?") == []
    assert rows(graph, "match { $p: Person { n: $x } } return { $p.id }", "$x: I64 = 2") == ["bob"]


def test_h2_a_matcher_value_that_would_be_ignored_is_refused(graph: Graph) -> None:
    refused(graph, "match { $p: Person { n: $nowhere } } return { $p.id }", "T26")
    refused(graph, "match { $p: Person  $q: Person { n: $p } } return { $q.id }", "T3")
    refused(graph, "match { $p: Person { vec: [1.0, 0.0] } } return { $p.id }", "T3")
    refused(graph, "match { $p: Person { vec: $v } } return { $p.id }", "T3", "$v: Vector(2)")


def test_h3_now_is_the_same_time_everywhere_in_a_read(graph: Graph) -> None:
    graph.mutate('query q() { update Person set { seen: now() } where id = "ann" }')
    past = rows(graph, "match { $p: Person  $p.seen <= now() } return { $p.id }")
    assert past == ["ann"]
    assert rows(graph, "match { $p: Person { seen: now() } } return { $p.id }") == []
    found = rows(graph, "match { $p: Person  now() = now() } return { now() as a, now() as b }")
    assert len(found) == 3
    assert len({time for row in found for time in row}) == 1


def test_h4_variables_of_a_traversal_are_filtered_and_ranked(graph: Graph) -> None:
    walk = 'match { $a: Person { id: "ann" }  $a knows $b'
    assert rows(graph, f'{walk}  search($b.text, "red") }} return {{ $b.id }}') == ["bob"]
    assert rows(graph, f'{walk}  search($b.more, "red") }} return {{ $b.id }}') == ["cid"]
    by_distance = "order { nearest($b.vec, [9.0, 0.0]) } limit 5"
    assert rows(graph, f"{walk} }} return {{ $b.id }} {by_distance}") == ["cid", "bob"]
    assert rows(graph, f'{walk} }} return {{ $b.id }} order {{ bm25($b.more, "fox") }} limit 5') == ["bob"]


def test_h5_text_clauses_are_a_conjunction_and_null_is_no_match(graph: Graph) -> None:
    both = 'match { $p: Person  search($p.text, "red")  search($p.more, "fox") } return { $p.id }'
    assert rows(graph, both) == ["bob"]
    assert rows(graph, both.replace('"fox"', '"dog"')) == ["ann"]
    # A rank does not disable the filters.
    ranked = both.replace('"fox"', '"dog"') + ' order { bm25($p.text, "dog fox red") } limit 9'
    assert rows(graph, ranked) == ["ann"]
    assert rows(graph, "match { $p: Person  search($p.text, $t) } return { $p.id }", "$t: String?", {"t": None}) == []
    refused(graph, 'match { $p: Person  search($p.text, "red") = false } return { $p.id }', "T33")
    without = 'match { $p: Person  not { search($p.text, "dog") } } return { $p.id }'
    assert rows(graph, without) == ["ann", "cid"]


def test_h6_nearest_ranks_only_rows_of_the_match(graph: Graph) -> None:
    """The two nearest of all are Ann and Bob; of the people that somebody knows, Bob and Cid."""
    body = "match { $x: Person  $x $e:knows $p } return distinct { $p.id, nearest($p.vec, [0.0, 0.0]) as d }"
    assert rows(graph, f"{body} order {{ d }} limit 2") == [["bob", 1.0], ["cid", 2.0]]
    ranked = (
        "match { $p: Person  not { $p livesIn $c } } return { $p.id } order { nearest($p.vec, [0.0, 0.0]) } limit 1"
    )
    assert rows(graph, ranked) == ["cid"]


def test_h7_blocks_inside_not_follow_the_ordinary_rules(graph: Graph) -> None:
    """A traversal against its edge, a pattern on an outer variable, and a text clause, each inside `not`."""
    assert rows(graph, "match { $c: City  not { $c livesIn $p } } return { $c.id }") == ["rome"]
    assert rows(graph, "match { $c: City  not { $p livesIn $c } } return { $c.id }") == ["rome"]
    assert rows(graph, "match { $p: Person  not { $p: Person { n: 1 } } } return { $p.id }") == ["bob", "cid"]
    assert rows(graph, 'match { $p: Person  not { $p knows $q  search($q.text, "dog") } } return { $p.id }') == [
        "bob",
        "cid",
    ]
    # Null is not a solution.
    assert rows(graph, "match { $p: Person  not { $p.n > 0 } } return { $p.id }") == ["cid"]


def test_h8_a_match_without_a_pattern_scans(graph: Graph) -> None:
    assert rows(graph, "match { $a livesIn $c } return { $a.id, $c.id as c }") == [["ann", "bern"], ["bob", "bern"]]


def test_h8_patterns_on_one_variable_are_a_conjunction(graph: Graph) -> None:
    body = "match { $p: Person { n: 2 }  $p: Person { score: 2.0 } } return { $p.id, count(*) as rows }"
    assert rows(graph, body) == [["bob", 1]]
    assert rows(graph, body.replace("2.0", "1.5")) == []


def test_h8_each_anonymous_variable_is_a_separate_variable(graph: Graph) -> None:
    """Ann knows two people and lives in one city: these are different nodes."""
    body = "match { $p: Person  $p knows $_  $p livesIn $_ } return { $p.id, count(*) as rows }"
    assert rows(graph, body) == [["ann", 2], ["bob", 1]]
    assert rows(graph, "match { $p: Person  $p knows $_  $_ knows $p } return { $p.id, count(*) as rows }") == [
        ["bob", 1]
    ]


def test_h9_numbers_compare_exactly_between_variables_and_on_edges(graph: Graph) -> None:
    """The hazard: 1.5 is truncated to 1 before it is compared with an integer of another variable."""
    pairs = "match { $a: Person  $b: Person  $a.n = $b.score } return { $a.id, $b.id as b }"
    assert rows(graph, pairs) == [["bob", "bob"]]
    less = "match { $a: Person  $b: Person  $a.n < $b.score } return { $a.id, $b.id as b }"
    assert rows(graph, less) == [["ann", "ann"], ["ann", "bob"]]
    walk = "match { $a: Person  $a $e:knows $b"
    assert rows(graph, f"{walk}  $e.weight = 2.5 }} return {{ $e.id }}") == []
    assert rows(graph, f"{walk}  $e.weight < 2.5 }} return {{ $e.id }}") == ["k1"]
    assert rows(graph, f"{walk}  $e.weight > $a.score }} return {{ $e.id }}") == ["k1", "k2", "k4"]
    assert rows(graph, "match { $p: Person  $p.n = 9007199254740993.0 } return { $p.id }") == []


def test_h10_an_integer_beside_a_float_is_converted(graph: Graph) -> None:
    assert rows(graph, "match { $p: Person { score: 2 } } return { $p.id }") == ["bob"]
    assert rows(graph, "match { $p: Person { score: $x } } return { $p.id }", "$x: F64", {"x": 2}) == ["bob"]


def test_h13_every_query_that_compiles_can_run(graph: Graph) -> None:
    """Ranks and aliases work as columns and sort keys; other uses are compile errors."""
    ranked = "match { $p: Person } return { $p.id, nearest($p.vec, [2.0, 0.0]) as d, d * 2.0 as twice }"
    assert rows(graph, f"{ranked} order {{ d desc }} limit 5") == [
        ["ann", 2.0, 4.0],
        ["bob", 1.0, 2.0],
        ["cid", 0.0, 0.0],
    ]
    refused(graph, "match { $p: Person } return { $p.id } order { nothing }", "T30")
    refused(graph, "match { $p: Person } return { sum(count($p.n)) as s }", "T30")
    refused(graph, "match { $p: Person  count($p.n) > 1 } return { $p.id }", "T30")
    refused(graph, 'match { $p: Person } return { search($p.text, "red") = true as s }', "T33")


def test_h14_duplicate_column_and_parameter_names_are_refused(graph: Graph) -> None:
    refused(graph, "match { $p: Person } return { $p.n as x, $p.score as x }", "T29")
    refused(graph, "match { $p: Person } return { $p.n, $p.n }", "T29")
    refused(graph, "match { $p: Person } return { $p.id }", "T27", "$a: I64, $a: I64")
    refused(graph, "match { $p: Person } return { $p.id }", "T27", "$p: String")
    two = "query q() { match { $p: Person } return { $p.id } } query q() { match { $c: City } return { $c.id } }"
    with pytest.raises(CompileError, match="T40"):
        graph.query(two)


def test_h15_a_result_has_the_columns_that_describe_reports(graph: Graph) -> None:
    text = """query q($x: I64) {
        match { $p: Person  optional { $p livesIn $c } }
        return { $p, $p.n, $c.name as city, $x, now(), 3, "t" as t, type($p) as kind }
    }"""
    catalog = graph.accepted_schema.catalog
    described = describe(compile_query(text, catalog), catalog)
    table = graph.query(text, {"x": 7}).to_arrow()
    assert [field.name for field in described.result] == table.column_names
    assert [field.nullable for field in described.result] == [field.nullable for field in table.schema]
    assert sorted(table["p"].to_pylist()) == ["ann", "bob", "cid"]


def test_h16_tied_groups_are_ordered_by_their_keys(graph: Graph) -> None:
    body = "match { $p: Person  $q: Person } return { $p.id as p, $q.n as n, count(*) as rows } order { rows desc }"
    expected = [[p, n, 1] for p in ("ann", "bob", "cid") for n in (None, 1, 2)]
    assert rows(graph, body) == expected
    assert rows(graph, f"{body} limit 2 offset 1") == expected[1:3]
    for more in (", $p.id", " desc"):
        ranked = f"match {{ $p: Person }} return {{ $p.id }} order {{ nearest($p.vec, [0.0, 0.0]){more} }} limit 3"
        refused(graph, ranked, "T32")
