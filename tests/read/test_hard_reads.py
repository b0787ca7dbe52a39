"""Reads that are easily answered wrong, each with its answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import ExecutionError, TypeCheckError
from omnigraph.graph import Graph


def node(type_name: str, id_: str, **values: object) -> dict[str, object]:
    return {"type": type_name, "data": {"id": id_, **values}}


def edge(type_name: str, id_: str, source: str, target: str, **values: object) -> dict[str, object]:
    return {"edge": type_name, "from": source, "to": target, "data": {"id": id_, **values}}


def loaded(place: Path, schema: str, *lines: dict[str, object]) -> Graph:
    graph = omnigraph.init(place / "graph", schema)
    if lines:
        graph.load(lines, mode="append")
    return graph


def rows(graph: Graph, body: str, head: str = "()", params: Mapping[str, object] | None = None) -> list[list[Any]]:
    """The rows of a query, as lists of values."""
    found = graph.query(f"query q{head} {{ {body} }}", params)
    return [list(row.values()) for row in found.to_pylist()]


# Walks

CHAIN = "node P { n: I64? } edge Knows: P -> P"


def chain(place: Path) -> Graph:
    """A ring a → b → c → d → a, a shortcut a → c, a self-loop at b, and a parallel edge a → b."""
    edges = ["ab", "bc", "cd", "da", "ac", "bb", "ab"]
    return loaded(
        place,
        CHAIN,
        *(node("P", name) for name in "abcd"),
        *(edge("Knows", f"e{i}", ends[0], ends[1]) for i, ends in enumerate(edges)),
    )


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ("", "bc"),
        ("{1,1}", "bc"),
        ("{1,2}", "bcd"),
        ("{2,2}", "bd"),  # b by its self-loop; c is nearer, and the way back to a does not count
        ("{3,3}", ""),
        ("{2,}", "bd"),
        ("{1,}", "bcd"),
    ],
)
def test_hop_counts_are_shortest_distances_plus_self_loops(tmp_path: Path, hops: str, expected: str) -> None:
    with chain(tmp_path) as graph:
        found = rows(graph, f'match {{ $a: P {{ id: "a" }}  $a knows{hops} $b }} return {{ $b.id }}')
    assert [row[0] for row in found] == list(expected)


def test_a_start_with_a_self_loop_reaches_itself_in_one_hop_only(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        for hops, expected in (("{1,3}", ["a", "b", "c", "d"]), ("{2,3}", ["a", "d"])):
            found = rows(graph, f'match {{ $b: P {{ id: "b" }}  $b knows{hops} $x }} return {{ $x.id }}')
            assert [row[0] for row in found] == [x for x in expected if x != "b" or hops == "{1,3}"]


def test_parallel_edges_are_rows_only_with_an_edge_variable(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        one = rows(graph, 'match { $a: P { id: "a" }  $a $e:knows $b } return { $b.id, $e.id as e }')
        assert one == [["b", "e0"], ["b", "e6"], ["c", "e4"]]
        both = rows(graph, 'match { $b: P { id: "b" }  $b $e:<knows> $x } return { $x.id, $e.id as e }')
        assert both == [["a", "e0"], ["c", "e1"], ["b", "e5"], ["a", "e6"]]
        plain = rows(graph, 'match { $b: P { id: "b" }  $b <knows> $x } return { $x.id }')
        assert plain == [["a"], ["b"], ["c"]]


TWO_TYPES = """
interface Named { name: String? }
node P implements Named { } node Q implements Named { }
edge Likes: P -> Q
"""


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ("{1,1}", [["a", "x"], ["b", "x"], ["x", "a"], ["x", "b"]]),
        ("{1,3}", [["a", "x"], ["b", "x"], ["x", "a"], ["x", "b"]]),
        ("{1,}", [["a", "x"], ["b", "x"], ["x", "a"], ["x", "b"]]),
        ("{2,3}", []),
    ],
)
def test_an_edge_between_two_types_is_walked_once_from_an_interface(
    tmp_path: Path, hops: str, expected: list[list[str]]
) -> None:
    """A variable of both types may be at either end of the edge, but no walk turns around at the other type."""
    lines = [node("P", "a"), node("P", "b"), node("Q", "x"), edge("Likes", "1", "a", "x"), edge("Likes", "2", "b", "x")]
    with loaded(tmp_path, TWO_TYPES, *lines) as graph:
        for walk in (f"$m: Named  $m likes{hops} $n", f"$n: Named  $m likes{hops} $n"):
            text = f"match {{ {walk} }} return {{ $m.id, $n.id }} order {{ $m.id, $n.id }}"
            assert rows(graph, text) == expected
        text = f"match {{ $m: Named  shortest $s: $m likes{hops} $n }} return {{ max(length($s)) as far }}"
        assert rows(graph, text) == [[1 if expected else None]]
        text = f"match {{ $m: Named  not {{ $m likes{hops} $n }} }} return {{ $m.id }}"
        assert rows(graph, text) == ([] if expected else [["a"], ["b"], ["x"]])


@pytest.mark.parametrize(
    ("words", "hops"), [("likes | knows", "{1,1}"), ("likes | hates", "{1,1}"), ("likes | hates", "{1,}")]
)
def test_each_type_of_an_interface_has_its_own_directions(tmp_path: Path, words: str, hops: str) -> None:
    """With a hop range over alternatives, a variable of two types has the rows of both types."""
    schema = TWO_TYPES + "edge Hates: P -> Q  edge Knows: P -> P"
    lines = [
        *(node("P", "a"), node("P", "b"), node("Q", "x"), node("Q", "y")),
        *(edge("Likes", "1", "a", "x"), edge("Likes", "2", "b", "x"), edge("Hates", "3", "b", "y")),
        *(edge("Knows", "4", "a", "b"), edge("Knows", "5", "b", "b")),
    ]
    other = [["a", "b"], ["b", "b"]] if "knows" in words else [["b", "y"], ["y", "b"]]
    expected = sorted([["a", "x"], ["b", "x"], ["x", "a"], ["x", "b"], *other])
    with loaded(tmp_path, schema, *lines) as graph:
        for walk in (
            f"$m: Named  $m ({words}) $n",
            f"$m: Named  $m ({words}){hops} $n",
            f"$m: Named  $n: Named  $m ({words}){hops} $n",
            f"$m: Named  shortest $s: $m ({words}){hops} $n",
        ):
            text = f"match {{ {walk} }} return {{ $m.id, $n.id }} order {{ $m.id, $n.id }}"
            assert rows(graph, text) == expected, walk
        text = f"match {{ $m: Named  $m ({words}){hops} $n }} return {{ $m.id, count($n) as n }} order {{ $m.id }}"
        starts = [start for start, _ in expected]
        assert rows(graph, text) == [[start, starts.count(start)] for start in sorted(set(starts))]
        separate = [
            row
            for name in "PQ"
            for row in rows(graph, f"match {{ $m: {name}  $n: Named  $m (*){{1,1}} $n }} return {{ $m.id, $n.id }}")
        ]
        text = "match { $m: Named  $m (*){1,1} $n } return { $m.id, $n.id } order { $m.id, $n.id }"
        assert rows(graph, text) == sorted(separate)
        text = f"match {{ $m: Named  $n: P  not {{ $m ({words}){hops} $n }} }} return {{ $m.id, $n.id }}"
        assert sorted(rows(graph, text)) == [[m, n] for m in "abxy" for n in "ab" if [m, n] not in expected]


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ("{1,2}", [["p", "x1", 1], ["p", "y", 2], ["r", "x1", 2], ["r", "x2", 2], ["r", "y", 1]]),
        ("{2,2}", [["p", "y", 2], ["r", "x1", 2], ["r", "x2", 2]]),
    ],
)
def test_an_edge_may_be_followed_in_both_directions_by_the_last_hops_of_walks(
    tmp_path: Path, hops: str, expected: list[list[object]]
) -> None:
    """B is the second hop from P and, in the other direction, from R. No walk of two hops can follow it twice."""
    schema = """
    interface Named { name: String? }
    node P implements Named { } node X { } node Y { } node R implements Named { }
    edge A: P -> X  edge B: X -> Y  edge C: R -> Y
    """
    lines = [
        *(node("P", "p"), node("X", "x1"), node("X", "x2"), node("Y", "y"), node("R", "r")),
        *(edge("A", "1", "p", "x1"), edge("B", "2", "x1", "y"), edge("B", "3", "x2", "y"), edge("C", "4", "r", "y")),
    ]
    with loaded(tmp_path, schema, *lines) as graph:
        text = f"match {{ $m: Named  shortest $s: $m (a | b | c){hops} $n }}"
        result = "return { $m.id, $n.id, length($s) as n } order { $m.id, $n.id }"
        assert rows(graph, f"{text} {result}") == expected
        with pytest.raises(TypeCheckError, match="one walk would follow"):
            rows(graph, f"{text.replace(hops, '{1,3}')} {result}")


def test_equal_shortest_paths_are_ordered_by_node_ids_then_edge_ids(tmp_path: Path) -> None:
    schema = """
    node A { } node B { } node C { } node D { }
    edge Down: A -> B  edge Side: A -> C  edge Left: B -> D  edge Right: C -> D
    """
    lines = [
        *(node("A", "start"), node("D", "end"), node("B", "same"), node("C", "same"), node("B", "zoo")),
        *(edge("Down", "d1", "start", "same"), edge("Side", "a1", "start", "same"), edge("Down", "d0", "start", "zoo")),
        *(edge("Left", "l1", "same", "end"), edge("Right", "r2", "same", "end"), edge("Left", "l0", "zoo", "end")),
    ]
    walk = 'match { $s: A { id: "start" }  $t: D { id: "end" }  shortest $p: $s (down | side | left | right){1,} $t }'
    with loaded(tmp_path, schema, *lines) as graph:
        found = rows(graph, f"{walk} return {{ length($p) as n, nodes($p) as nodes, edges($p) as edges }}")
        # Two nodes have the id `same`: the edges decide, before any type does.
        assert found == [[2, ["start", "same", "end"], ["a1", "r2"]]]


def test_paths_to_anonymous_nodes_are_ordered(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        text = 'match { $a: P { id: "a" }  shortest $p: $a knows{1,} $_ } return { nodes($p) as nodes }'
        assert rows(graph, text) == [[["a", "b"]], [["a", "c"]], [["a", "c", "d"]]]
        assert rows(graph, f"{text} limit 1 offset 1") == [[["a", "c"]]]


# Optional blocks


def test_an_optional_block_may_use_nodes_reached_from_an_earlier_one(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        found = rows(
            graph,
            """match {
                $a: P  $a.id in ["a", "c"]
                optional { $a knows $b  $b.id = "b" }
                $b $e:knows $c
                optional { $e.to = "c"  $c knows $d }
            } return { $a.id, $b.id, $c.id, $d.id as d }""",
        )
        # c has no neighbour b, and null has no neighbours.
        assert found == [["a", "b", "b", None], ["a", "b", "c", "d"]]


def test_an_optional_block_may_use_an_edge_beside_a_node_of_the_block(tmp_path: Path) -> None:
    """The edge $e meets a later traversal from the optional $d, and has to be bound before the block nevertheless."""
    with chain(tmp_path) as graph:
        match = '$b: P { id: "b" }  $c: P { id: "c" }  $a $e:knows $b  optional { $c knows $d  $e.id = "e0" }'
        found = rows(graph, f"match {{ {match}  $d knows $a }} return {{ $e.id, $a.id, $d.id as d }}")
        assert found == [["e0", "a", "d"]]


def test_optional_blocks_can_be_nested(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        found = rows(
            graph,
            """match {
                $a: P
                optional { $a knows $b  $b.id > $a.id  optional { $b knows $c  $c.id < $b.id } }
            } return { $a.id, $b.id, $c.id as c } order { $a.id, $b.id }""",
        )
        assert found == [["a", "b", None], ["a", "c", None], ["b", "c", None], ["c", "d", "a"], ["d", None, None]]


def test_a_path_that_was_not_found_is_null(tmp_path: Path) -> None:
    with chain(tmp_path) as graph:
        graph.mutate('query q() { delete Knows where to = "d" }')
        body = 'match { $a: P  optional { shortest $p: $a knows{1,} $d  $d.id = "d" }  $p is null } return { $a.id }'
        assert rows(graph, body) == [["a"], ["b"], ["c"], ["d"]]
        assert rows(graph, body.replace("is null", "is not null")) == []
        cut = "match { $a: P  shortest $p: $a knows{1,} $c  not { length($p) > 1 } } return { $a.id, $c.id as c }"
        assert rows(graph, cut) == [["a", "b"], ["a", "c"], ["b", "b"], ["b", "c"], ["d", "a"]]


def test_a_block_may_use_more_variables_than_one_packed_key_holds(tmp_path: Path) -> None:
    """Only the first of forty compared variables distinguishes the rows."""
    others = [f"x{i}" for i in range(40)]
    match = "$a: P  " + "  ".join(f'${name}: P {{ id: "c" }}' for name in others)
    inside = "  ".join(f"${name}.n = 3" for name in others)
    with loaded(tmp_path, CHAIN, *(node("P", name, n=n) for n, name in enumerate("abc", 1))) as graph:
        assert rows(graph, f"match {{ {match}  not {{ $a.n = 2  {inside} }} }} return {{ $a.id }}") == [["a"], ["c"]]
        optional = f"match {{ {match}  optional {{ $a.n = 2  {inside}  $a knows $b }} }} return {{ $a.id, $b.id as b }}"
        assert rows(graph, optional) == [["a", None], ["b", None], ["c", None]]


def test_deleted_trailing_nodes_are_not_counted(tmp_path: Path) -> None:
    """One topology is older than the deletion, the other is newer."""
    schema = "node P { } edge Knows: P -> P edge Likes: P -> P"
    lines = [
        *(node("P", name) for name in "abcde"),
        *(edge("Knows", f"k{b}", "a", b) for b in "bc"),
        *(edge("Likes", f"l{b}", "a", b) for b in "bc"),
    ]
    with loaded(tmp_path, schema, *lines) as graph:
        assert rows(graph, "match { $a: P  $a $e:knows $b } return { $a.id, count(*) as n }") == [["a", 2]]
        graph.mutate('query q() { delete node P where id in ["d", "e"] }')
        both = "match { $a: P  $a $e:knows $b  $a $f:likes $c } return { $a.id, count(*) as n }"
        assert rows(graph, both) == [["a", 4]]
        assert rows(graph, "match { $a: P  $b $e:knows $a } return { $a.id, count(*) as n }") == [["b", 1], ["c", 1]]


# Empty results

NOBODY = "interface Rare { n: I64?  name: String } node P { n: I64? } edge Knows: P -> P"


def test_an_interface_that_no_type_implements_has_no_nodes(tmp_path: Path) -> None:
    with loaded(tmp_path, NOBODY, node("P", "a", n=1), node("P", "b")) as graph:
        assert rows(graph, "match { $x: Rare } return { $x, $x.n, $x.name, type($x) as t }") == []
        assert rows(graph, "match { $x: Rare } return { count(*) as n, max($x.n) as m, collect($x.name) as c }") == [
            [0, None, []]
        ]
        assert rows(graph, "match { $p: P  not { $x: Rare  $x.n = $p.n } } return { $p.id }") == [["a"], ["b"]]
        optional = "match { $p: P  optional { $x: Rare  $x.n = $p.n } }"
        found = rows(graph, f"{optional} return {{ $p.id, $x, $x.n + 1 as n, type($x) as t }} order {{ t, n desc }}")
        assert found == [["a", None, None, None], ["b", None, None, None]]
        assert rows(graph, f"{optional} return {{ $x.name, count(distinct $x) as k }}") == [[None, 0]]
        assert rows(graph, f"{optional} return distinct {{ $x, $x.n }}") == [[None, None]]


@pytest.mark.parametrize("window", ["limit 0", "offset 9", "limit 3 offset 9223372036854775807"])
def test_an_offset_beyond_the_last_row_gives_no_rows(tmp_path: Path, window: str) -> None:
    with chain(tmp_path) as graph:
        for body in (
            "match { $p: P } return { $p.id }",
            "match { $p: P } return { count(*) as n }",
            "match { $p: P } return distinct { $p.n }",
            "match { $p: P } return { $p.n, count(*) as n } order { n desc }",
        ):
            assert rows(graph, f"{body} {window}") == []


# Groups

THINGS = "node T { g: String?  small: I32?  big: I64?  huge: U64?  real: F64?  list: [I64]? }"


def things(place: Path, **columns: Sequence[object]) -> Graph:
    count = len(next(iter(columns.values())))
    lines = [node("T", f"t{i}", **{name: values[i] for name, values in columns.items()}) for i in range(count)]
    return loaded(place, THINGS, *lines)


def test_sums_of_whole_numbers_are_exact(tmp_path: Path) -> None:
    with things(tmp_path, small=[-7, -(2**31), 2**31 - 1], big=[2**63 - 1, -(2**63), 5], huge=[2**63, 0, 1]) as graph:
        found = rows(graph, "match { $t: T } return { sum($t.small) as a, sum($t.big) as b, avg($t.big) as c }")
        assert found == [[-8, 4, 4 / 3]]
        with pytest.raises(ExecutionError, match="too large"):
            rows(graph, "match { $t: T } return { sum($t.huge) as a }")
        assert rows(graph, "match { $t: T } return { avg($t.huge) as a }") == [[(2**63 + 1) / 3]]


def test_sums_of_floats_are_finite_or_an_error(tmp_path: Path) -> None:
    most = 1.7976931348623157e308
    with things(tmp_path, g=["x", "x", "x", "y"], real=[most, most, -most, 1.5]) as graph:
        assert rows(graph, "match { $t: T } return { $t.g, sum($t.real) as s }") == [["x", most], ["y", 1.5]]
        with pytest.raises(ExecutionError, match="too large"):
            rows(graph, "match { $t: T  $t.real > 0.0 } return { sum($t.real) as s }")
        assert rows(graph, "match { $t: T  $t.real > 2.0 } return { avg($t.real) as s }") == [[most]]


def wide(place: Path, length: int) -> tuple[Graph, str]:
    """Eight nodes, each connected to all, and a chain of steps: every step multiplies the rows by eight."""
    names = [f"n{i}" for i in range(8)]
    lines = [node("N", name) for name in names] + [edge("To", f"{a}{b}", a, b) for a in names for b in names]
    graph = loaded(place, "node N { } edge To: N -> N", *lines)
    return graph, "  ".join(f"$x{i} to $x{i + 1}" for i in range(length))


@pytest.mark.parametrize("first", ["to", "to{1,1}"])
def test_counts_are_exact_or_an_error(tmp_path: Path, first: str) -> None:
    graph, steps = wide(tmp_path, 18)
    with graph:
        match = f"match {{ $a: N  $a {first} $x0  {steps}"
        assert rows(graph, f"{match} }} return {{ count(*) as n }}") == [[8**20]]
        # Counts by group only have to fit per group.
        more = f"{match}  $x18 to $y"
        found = rows(graph, f"{more} }} return {{ $a.id, count(*) as n }}")
        assert found == [[f"n{i}", 8**20] for i in range(8)]
        for body in (f"{more} }} return {{ count(*) as n }}", f"{more}  $y to $z }} return {{ $a.id, count(*) as n }}"):
            with pytest.raises(ExecutionError, match="too large"):
                rows(graph, body)


def test_computed_dates_outside_of_years_1_to_9999_are_errors(tmp_path: Path) -> None:
    schema = "node T { day: Date?  time: DateTime? }"
    ends = {"first": ("0001-01-01", "0001-01-01T00:00:00Z"), "last": ("9999-12-31", "9999-12-31T23:59:59.999Z")}
    lines = [node("T", name, day=day, time=time) for name, (day, time) in ends.items()]
    with loaded(tmp_path, schema, *lines, node("T", "none")) as graph:
        later = 'match { $t: T  $t.id != "last" } return { date_add("day", 1, $t.day) as d }'
        assert rows(graph, later) == [[dt.date(1, 1, 2)], [None]]
        for unit in ("day", "month", "year"):
            for name, step in (("first", -1), ("last", 1)):
                for place in ("day", "time"):
                    moved = f'date_add("{unit}", {step}, $t.{place})'
                    with pytest.raises(ExecutionError, match="too large"):
                        rows(graph, f'match {{ $t: T {{ id: "{name}" }} }} return {{ {moved} as d }}')


def test_aggregates_work_inside_expressions_and_having(tmp_path: Path) -> None:
    with things(tmp_path, g=["x", "x", "y", None], big=[1, 2, 3, None]) as graph:
        found = rows(
            graph,
            """match { $t: T } return { $t.g as g, count(*) * 10 + count($t.big) as n, coalesce(sum($t.big), 0) as s }
            having { max($t.big) is null or min($t.big) < 3 } order { n desc }""",
        )
        assert found == [["x", 22, 3], [None, 10, 0]]


def test_groups_are_ordered_by_lists_item_by_item(tmp_path: Path) -> None:
    with things(tmp_path, list=[[2], [1, 5], None, [], [1], [2]]) as graph:
        found = rows(graph, "match { $t: T } return { $t.list, count(*) as n }")
        assert found == [[None, 1], [[], 1], [[1], 1], [[1, 5], 1], [[2], 2]]
        assert rows(graph, "match { $t: T } return distinct { $t.list } limit 2 offset 1") == [[[]], [[1]]]


def test_nodes_of_different_types_with_one_id_are_distinct(tmp_path: Path) -> None:
    schema = "interface I { n: I64? } node A implements I { } node B implements I { }"
    lines = [node("B", "x", n=1), node("A", "x", n=2), node("A", "y", n=4)]
    with loaded(tmp_path, schema, *lines) as graph:
        assert rows(graph, "match { $i: I } return { $i, sum($i.n) as s }") == [["x", 2], ["x", 1], ["y", 4]]
        assert rows(graph, "match { $i: I } return distinct { $i }") == [["x"], ["x"], ["y"]]
        assert rows(graph, "match { $i: I } return { count(distinct $i) as n, collect(distinct $i) as all }") == [
            [3, ["x", "x", "y"]]
        ]


def test_an_edge_type_named_like_a_node_type_has_its_own_properties(tmp_path: Path) -> None:
    schema = "node A { key: String @key } edge A: A -> A { key: String? }"
    lines: list[dict[str, object]] = [{"type": "A", "data": {"key": key}} for key in "ab"]
    lines += [edge("A", "e1", "a", "b", key="same"), edge("A", "e2", "b", "a", key="same")]
    with loaded(tmp_path, schema, *lines) as graph:
        assert rows(graph, "match { $x: A  $x $e:a $y } return { $e.key, count(*) as n }") == [["same", 2]]
        assert rows(graph, "match { $x: A  $x $e:a $y } return distinct { $e.key }") == [["same"]]
