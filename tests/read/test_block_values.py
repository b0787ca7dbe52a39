"""`exists { … }` and `count { … }` per row, under three-valued logic, in nested blocks, in chunks and in `explain`."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.read.test_hard_reads import edge, loaded, node, rows
from tests.thresholds import Thresholds

from omnigraph import Budget, Cancellation
from omnigraph.errors import BudgetExceededError, CancelledError
from omnigraph.graph import Graph
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.context.views import Views
from omnigraph.read.match import block_value
from omnigraph.read.plan import plan_candidates

SCHEMA = """
interface Named { name: String? }
node P implements Named { n: I64? }
node Q implements Named { n: I64? }
edge Knows: P -> P
edge Likes: P -> Q
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Edges: a → b twice, a → c, b → c, c → c; a likes x. d is alone. The n of d is null."""
    edges = ["ab", "ab", "ac", "bc", "cc"]
    return loaded(
        tmp_path_factory.mktemp("graph"),
        SCHEMA,
        *(node("P", name, n=None if name == "d" else number) for number, name in enumerate("abcd")),
        node("Q", "x", n=7),
        *(edge("Knows", f"e{i}", ends[0], ends[1]) for i, ends in enumerate(edges)),
        edge("Likes", "l", "a", "x"),
    )


def ids(graph: Graph, condition: str, head: str = "()", params: dict[str, object] | None = None) -> str:
    found = rows(graph, f"match {{ $p: P  {condition} }} return {{ $p.id }}", head, params)
    return "".join(row[0] for row in found)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("exists { $p knows $q }", "abc"),
        ("not exists { $p knows $q }", "d"),
        ("not (exists { $p knows $q } or $p.n = 1)", ""),  # null for d
        ("exists { $p likes $_ } or $p.n is null", "ad"),
        ("$p.n > 1 or exists { $p likes $_ }", "ac"),
        ("$p.n > 5 and exists { $p likes $_ }", ""),
        ("not ($p.n > 5 and exists { $p knows $_ })", "abcd"),  # d: null and false is false
        ("count { $p knows $q } = 2", "a"),  # parallel edges count once
        ("count { $p $e:knows $q } = 3", "a"),  # with an edge variable, each counts
        ("count { $p knows $q } > $p.n", "a"),
        ("count { $q knows $p } >= count { $p knows $q }", "bcd"),
        ("count { $p knows $q } in [0, 1]", "bcd"),
        ("count { $p knows{1,} $q } = 2", "a"),
        ("exists { $p knows $p }", "c"),
        ("exists { $p.n > 1 }", "c"),
        ("exists { $p knows $q  not { $q knows $_ } }", ""),
        ("exists { $p knows $q  not exists { $q knows $r  $r != $q } }", "abc"),
        ("count { $p knows $q  count { $_ knows $q } > 1 } = 1", "abc"),
        ("count { $p knows $q  optional { $q likes $x } } = 2", "a"),
        ("exists { $x: Named  $x.id = $p.id }", "abcd"),
        ("exists { $p knows $q } = exists { $p likes $x }", "ad"),
        ("not { $p knows $q  exists { $q knows $q } }", "d"),
    ],
)
@pytest.mark.parametrize("gain", [0.0, 1.0, 10.0**9], ids=["on candidates", "by cost", "for each row"])
def test_a_block_is_a_value(graph: Graph, thresholds: Thresholds, condition: str, expected: str, gain: float) -> None:
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=gain, MIN_EXCLUDE_COST_EDGES=0.0)
    assert ids(graph, condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("exists { $p knows $q }", True),
        ("count { $p knows $q } > $p.n", True),
        ("count { $q knows $p } >= count { $p knows $q }", True),
        ("exists { $p knows $q  $q.n > $p.n }", True),  # its rows are matched, for each candidate
        ("not { $p knows $q  $q.n > $p.n }", True),
        ("exists { $p knows $q } or $r.n = 1", False),  # it depends on two variables
        ("exists { $p knows $r }", False),
    ],
)
def test_conditions_on_blocks_of_one_variable_choose_candidates(
    graph: Graph, thresholds: Thresholds, condition: str, expected: bool
) -> None:
    text = f"match {{ $p knows $r  {condition} }} return {{ $p.id, $r.id }}"
    found = []
    for gain in (0.0, 10.0**9):
        thresholds(plan_candidates, MIN_EXCLUDE_GAIN=gain, MIN_EXCLUDE_COST_EDGES=0.0)
        found.append(rows(graph, text))
        plan = str(graph.explain(f"query q() {{ {text} }}"))
        on_candidates = any(line.startswith(("include $p", "exclude $p")) for line in plan.splitlines())
        assert on_candidates == (expected and not gain)
    assert found[0] == found[1]


@pytest.mark.parametrize("value", ["exists { $p likes $x }", "count { $p knows $x  $x knows $y }"])
def test_values_of_rows_are_counted_for_each_node(graph: Graph, thresholds: Thresholds, value: str) -> None:
    compared = value if value.startswith("exists") else f"{value} > 1"
    text = f"match {{ $p knows $r  ({compared} or $r.n = 2) }} return {{ $p.id, $r.id, ({value}) as v }}"
    found = []
    for gain in (0.0, 10.0**9):
        thresholds(plan_candidates, MIN_EXCLUDE_GAIN=gain)
        found.append(rows(graph, text))
        assert ("for each $p as value(#1), $" in str(graph.explain(f"query q() {{ {text} }}"))) == (not gain)
    assert found[0] == found[1]


def test_values_in_the_result_are_computed_for_rows(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=0.0)
    text = "match { $p: P  count { $p knows $q } > 0 } return { $p.id, count { $p knows $q } as n }"
    assert rows(graph, text) == [["a", 2], ["b", 1], ["c", 1]]


def test_parameters_inside_a_block(graph: Graph) -> None:
    assert ids(graph, "exists { $p knows $q  $q.n = $n }", "($n: I64)", {"n": 1}) == "a"
    assert ids(graph, "exists { $p knows $q  $q.n = $n }", "($n: I64?)", {"n": None}) == ""


def test_a_null_node_has_no_match(graph: Graph) -> None:
    text = (
        "match { $p: P  optional { $p likes $x }  count { $y likes $x } = 0 or $x.n = 7 }"
        " return { $p.id, count { $y likes $x } as n, (exists { $x: Q }) as e }"
    )
    expected = [["a", 1, True], ["b", 0, False], ["c", 0, False], ["d", 0, False]]
    assert rows(graph, text) == expected


def test_columns_and_aggregates_of_block_values(graph: Graph) -> None:
    text = "match { $p: P } return { count { $p knows $_ } as n, count(*) as times } order { n }"
    assert rows(graph, text) == [[0, 1], [1, 2], [2, 1]]
    assert rows(graph, "match { $p: P } return { sum(count { $p knows $_ }) as n }") == [[4]]
    text = "match { $p: P } return distinct { (exists { $p knows $_ }) as e }"
    assert rows(graph, text) == [[False], [True]]
    text = "match { $p: P } return { $p.id, count { $p knows $_ } as n } order { n desc } limit 1"
    assert rows(graph, text) == [["a", 2]]


def test_no_rows(graph: Graph) -> None:
    text = "match { $p: P  $p.n > 99  exists { $p knows $_ } or $p.n = 3 } return { $p.id, count { $p knows $_ } as n }"
    assert rows(graph, text) == []


def test_paths_as_outer_variables(graph: Graph) -> None:
    text = "match { $p: P  shortest $s: $p knows{1,3} $q  exists { $q: P  length($s) > 0 } } return { count(*) as n }"
    assert rows(graph, text) == [[4]]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A thousand nodes, each with edges to the next ten."""
    lines = [node("P", f"{i:04}", n=i) for i in range(1000)]
    lines += [edge("Knows", f"{i}-{k}", f"{i:04}", f"{(i + k) % 1000:04}") for i in range(1000) for k in range(1, 11)]
    return loaded(tmp_path_factory.mktemp("many"), SCHEMA, *lines)


BUSY = "match { $p: P  $p.n < 500 or count { $p knows $q  $q knows $r  $r.n < 100 } > 20 } return { count(*) as n }"


@pytest.fixture
def for_each_row(thresholds: Thresholds) -> None:
    """Blocks are matched for each row, not counted for each candidate."""
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=10.0**9)


@pytest.mark.usefixtures("for_each_row")
def test_chunks_do_not_change_the_answer(many: Graph) -> None:
    whole = rows(many, BUSY)
    with patch.object(block_value, "CHUNK_ROWS", 100), patch.object(block_value, "MAX_CHUNKS", 1000):
        assert rows(many, BUSY) == whole
    assert many.query(f"query q() {{ {BUSY} }}", budget=Budget(memory=400_000)).to_pylist() == [{"n": whole[0][0]}]


@pytest.mark.usefixtures("for_each_row")
def test_a_block_counts_in_the_budget_and_can_be_cancelled(many: Graph) -> None:
    with pytest.raises(BudgetExceededError):
        many.query(f"query q() {{ {BUSY} }}", budget=Budget(rows=20_000))
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        many.query(f"query q() {{ {BUSY} }}", cancel=cancel)


@pytest.mark.usefixtures("for_each_row")
def test_explain_shows_the_block(many: Graph) -> None:
    for analyze in (False, True):
        text = str(many.explain(f"query q() {{ {BUSY} }}", analyze=analyze))
        assert "count matches for each $p as value(#1)" in text
        assert "  expand" in text


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Forty nodes, each with edges to twenty others."""
    return loaded(
        tmp_path_factory.mktemp("dense"),
        SCHEMA,
        *(node("P", f"p{i}", n=i) for i in range(40)),
        *(edge("Knows", f"e{i}-{j}", f"p{i}", f"p{(i + j) % 40}") for i in range(40) for j in range(20)),
    )


@pytest.mark.parametrize(
    "condition",
    [
        "exists { $p knows $q  $q knows $r  $q.n > $r.n + 17  $p.n != $r.n }",
        "count { $p knows $q  $q knows $r  $q.n < $r.n  $p.n != $r.n } > 230",
        "not { $p knows $q  $q knows $r  $q.n > $r.n + 17  $p.n != $r.n }",
    ],
)
def test_blocks_that_do_not_fit_memory_are_evaluated_on_candidates_in_chunks(
    dense: Graph, thresholds: Thresholds, condition: str
) -> None:
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=0.0, MIN_EXCLUDE_COST_EDGES=0.0)
    text = f"query q() {{ match {{ $p: P  $p knows $a  {condition} }} return {{ $p.n as n  count(*) as c }} }}"
    expected = dense.query(text).to_pylist()
    assert 0 < len(expected) < 40
    assert dense.query(text, budget=Budget(memory=9_000)).to_pylist() == expected


def test_edges_that_meet_at_different_node_types_do_not_correlate(graph: Graph) -> None:
    """No node is a P and a Q. A block with such edges has no match, and is planned without their correlation."""
    topologies = Views(ColumnCache()).of(graph.snapshot(), graph.accepted_schema).topologies
    topologies.make_all()
    assert topologies.skew(("Knows", True), ("Likes", True)) is None
    assert topologies.skew(("Knows", True), ("Likes", False)) is not None
