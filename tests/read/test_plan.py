"""Plans depend only on statistics, and no order of the same steps is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import compile_schema
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.pipeline import Operator
from omnigraph.read.plan import join_order
from omnigraph.read.plan.block_order import BlockJoin, BlockOrder, order_block
from omnigraph.read.plan.join_order import Estimates, JoinOrderSearch, Move
from omnigraph.read.plan.planner import operator_for
from omnigraph.read.plan.property_statistics import sample_statistics
from omnigraph.read.plan.selectivity import selectivity
from omnigraph.read.plan.statistics import Cardinality, PropertyStatistics, Statistics
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.topology.topology import DegreeStatistics

CATALOG = compile_schema(
    "node P { n: I64 @key  age: I64? } node C { n: I64 @key }"
    " edge Knows: P -> P { since: I64? } edge Lives: P -> C edge Owns: P -> C"
)
NODES = {"P": 10_000, "C": 200}
EDGES = {"Knows": DegreeStatistics(80_000), "Lives": DegreeStatistics(10_000), "Owns": DegreeStatistics(30_000)}


ONE_HOME = {**EDGES, "Lives": DegreeStatistics(10_000, most_out=1, most_in=400)}
"""Each `P` has at most one `Lives` edge."""


def block(match: str) -> QueryBlock:
    read = compile_query(f"query q() {{ match {{ {match} }} return {{ count(*) as n }} }}", CATALOG, None).body
    assert isinstance(read, ir.Read)
    return QueryBlock.of(read.match)


def statistics(of: QueryBlock, sizes: dict[str, float] | None = None, share_: float = 0.1) -> Statistics:
    known = {}
    for name, node in of.nodes.items():
        total = sum(NODES[type_name] for type_name in node.types)
        known[name] = Cardinality(total, (sizes or {}).get(name, total))
    return Statistics(known, NODES, EDGES, tuple(share_ for _ in of.join_conditions))


def plan(of: QueryBlock, known: Statistics, rows: float = 1, bound: Sequence[str] = ()) -> BlockOrder:
    return order_block(of, frozenset(bound), rows, known)


def operators(found: BlockOrder, of: QueryBlock, bound: Sequence[str] = ()) -> list[Operator | BlockJoin]:
    steps = enumerate(found.steps)
    return [operator_for(s, of, is_first=not n and not bound) if isinstance(s, Move) else s for n, s in steps]


def said(found: BlockOrder, of: QueryBlock) -> list[str]:
    return [f"{step.name} {step.text}" for step in operators(found, of) if isinstance(step, Operator)]


def names(found: BlockOrder, of: QueryBlock, bound: Sequence[str] = ()) -> list[OperatorName]:
    joins = {True: OperatorName.ANTI, False: OperatorName.LEFT}
    steps = operators(found, of, bound)
    return [step.name if isinstance(step, Operator) else joins[step.negated] for step in steps]


# ---- inputs of a plan


CHAIN = "$a: P  $a knows $b  $b knows $c  $c lives $d"


def test_equal_statistics_make_equal_plans() -> None:
    one, two = block(CHAIN), block(CHAIN)
    found = plan(one, statistics(one, {"d": 1}))
    assert found == plan(two, statistics(two, {"d": 1}))
    assert found is plan(one, statistics(one, {"d": 1}))  # cached
    assert found != plan(one, statistics(one, {"a": 1}))


def test_a_plan_does_not_depend_on_earlier_queries() -> None:
    sizes: list[dict[str, float]] = [{"a": 5.0}, {"a": 7.0}, {"a": 8.0}]
    for first in sizes:
        fresh = block(CHAIN)
        plan(fresh, statistics(fresh, first))
        # Sizes are rounded first, so the plan does not depend on which query comes first.
        assert plan(fresh, statistics(fresh, {"a": 8.0})) == plan(block(CHAIN), statistics(fresh, sizes[0]))


def test_a_plan_begins_at_the_smallest_variable() -> None:
    of = block(CHAIN)
    assert said(plan(of, statistics(of, {"d": 1})), of)[0] == "scan $d: C"
    assert said(plan(of, statistics(of, {"a": 1})), of)[0] == "scan $a: P"
    from_a_bound_one = plan(of, statistics(of), 10, ["b"])
    assert names(from_a_bound_one, of, ["b"])[0] is OperatorName.EXPAND


def test_two_selective_ends_are_bound_before_they_are_joined() -> None:
    of = block("$a: P  $a knows $b  $c knows $b")
    dense = replace(statistics(of, {"a": 1, "c": 1}), edges={"Knows": DegreeStatistics(800_000)})
    assert said(plan(of, dense), of) == [
        "scan $a: P",
        "product $c: P",
        "expand $a to $b by P -Knows-> P",
        "membership $c to $b by P -Knows-> P",
    ]


def test_conditions_run_as_soon_as_their_variables_are_bound() -> None:
    of = block("$a: P  $a knows $b  $b knows $c  $a.age = $b.age")
    found = plan(of, statistics(of, {"a": 2}))
    assert names(found, of) == [
        OperatorName.SCAN,
        OperatorName.EXPAND,
        OperatorName.FILTER,
        OperatorName.EXPAND,
    ]


def test_steps_that_use_an_optional_variable_follow_its_block() -> None:
    of = block("$a: P  optional { $a knows $b }  $b lives $c")
    assert names(plan(of, statistics(of)), of) == [OperatorName.SCAN, OperatorName.LEFT, OperatorName.EXPAND]


def test_edges_are_walked_from_all_nodes_in_order() -> None:
    of = block("$a knows $b  $a lives $c  $b lives $c")
    known = replace(statistics(of), edges=ONE_HOME)
    assert said(plan(of, known), of) == [
        "scan $a: P",
        "expand $a to $c by P -Lives-> C",
        "expand $a to $b by P -Knows-> P",
        "membership $b to $c by P -Lives-> C",
    ]
    # With several homes, the rows are no longer the nodes in order. The scan of the fewer places is cheaper then.
    assert said(plan(of, statistics(of)), of)[0] == "scan $c: C"
    few = replace(
        known, variables={**known.variables, "a": Cardinality(10_000, 5_000), "b": Cardinality(10_000, 5_000)}
    )
    assert not any(isinstance(step, Move) and step.in_order for step in plan(of, few).steps[2:])


def _last_move(found: BlockOrder) -> Move:
    move = found.steps[-1]
    assert isinstance(move, Move)
    return move


def test_conditions_run_late_if_few_rows_are_reached() -> None:
    of = block("$a: P  $a knows $b")
    known = statistics(of, {"a": 1})
    tried = replace(known, variables={**known.variables, "b": Cardinality(10_000, 100.0, counted=False)})
    assert _last_move(plan(of, tried)).late
    many = replace(tried, variables={**tried.variables, "a": Cardinality(10_000, 9_000)})
    assert not _last_move(plan(of, many)).late


def test_variable_length_hops_start_at_the_left_end() -> None:
    of = block("$a: P  $a knows{1,3} $b")
    known = statistics(of, {"b": 1})
    found = plan(of, known)
    assert (said(found, of)[0], names(found, of)[1]) == ("scan $a: P", OperatorName.REACH)
    few = replace(
        known, edges={**EDGES, "Knows": DegreeStatistics(80_000, sources=9_000, targets=20, most_out=9, most_in=9)}
    )
    whole, narrow = Estimates(known).joined(of.block.expands[0]), Estimates(few).joined(of.block.expands[0])
    assert narrow == pytest.approx(20 / 10_000)
    assert narrow < whole


def test_similar_selectivities_make_the_same_plan() -> None:
    of = block("$a: P  $b: P  $a.age = $b.age")
    little, more, less = (statistics(of, {"a": 8.0, "b": 8.0}, selectivity) for selectivity in (0.3, 0.41, 0.2))
    assert little.key() == more.key() != less.key()
    assert little.rounded() == more.rounded() != less.rounded()
    assert statistics(of, {"a": 8.0, "b": 8.0}, 0.0).rounded().shares == (0.0,)
    assert less.rounded().shares == (0.25,)


# ---- quality of plans


def random_match(rng: Random) -> str:
    names = [f"x{i}" for i in range(rng.randint(2, 4))]
    parts = [f"${name}: P" for name in names]
    for place, name in enumerate(names[1:], 1):
        if rng.random() < 0.9:
            hops = rng.choice(["", "", "", "{1,2}"])
            parts.append(f"${rng.choice(names[:place])} knows{hops} ${name}")
    for _ in range(rng.randint(0, 2)):
        left, right = rng.choice(names), rng.choice(names)
        parts.append(f"${left} knows ${right}")
    if rng.random() < 0.4:
        parts.append(f"${names[0]}.age = ${names[-1]}.age")
    return "  ".join(parts)


@pytest.mark.parametrize("seed", range(30))
def test_no_order_is_cheaper_than_the_plan(seed: int) -> None:
    rng = Random(seed)
    of = block(random_match(rng))
    sizes = {name: float(2 ** rng.randint(0, 13)) for name in of.nodes if rng.random() < 0.7}
    known = replace(statistics(of, sizes, rng.choice([0.01, 0.5])), edges=rng.choice([EDGES, ONE_HOME]))
    conditions = [(place, condition.variables) for place, condition in enumerate(of.join_conditions)]
    ordering = JoinOrderSearch(
        list(of.nodes), list(of.block.expands), conditions, frozenset(), Estimates(known.rounded())
    )
    every = list(ordering.all_orders(1.0))
    best = ordering.best(1.0)
    assert best.cost == pytest.approx(min(way.cost for way in every))
    # The number of rows does not depend on the order of the steps.
    assert {round(way.rows, 6) for way in every} == {round(best.rows, 6)}
    assert plan(of, known).cost == pytest.approx(best.cost)


def test_the_search_tries_each_variable_that_paths_can_be_walked_from(thresholds: Thresholds) -> None:
    """Paths to an eliminated variable are walked from the variable that is bound first."""
    of = block("$b lives $a  $b knows $c  $c knows $d  $d lives $a")
    known = replace(statistics(of), edges={**ONE_HOME, "Knows": DegreeStatistics(800_000)}).rounded()
    costs = []
    for least in (inf, -inf):
        thresholds(join_order, MIN_COST_PER_STATE_EDGES=least)
        expands = list(of.block.expands)
        ordering = JoinOrderSearch(list("abcd"), expands, [], frozenset(), Estimates(known), frozenset("d"))
        costs.append(ordering.best(1.0).cost)
        cheapest = min(way.cost for way in ordering.all_orders(1.0))
    assert costs[1] == pytest.approx(cheapest)
    assert costs[0] > 2 * cheapest


def test_beam_search_stays_close_to_the_best_order(thresholds: Thresholds) -> None:
    thresholds(join_order, MAX_EXHAUSTIVE_VARIABLES=0, BEAM_WIDTH=4)
    worse = 0.0
    for seed in range(30):
        rng = Random(seed)
        of = block(random_match(rng))
        known = statistics(of, {name: float(2 ** rng.randint(0, 13)) for name in of.nodes})
        conditions = [(place, condition.variables) for place, condition in enumerate(of.join_conditions)]
        ordering = JoinOrderSearch(list(of.nodes), list(of.block.expands), conditions, frozenset(), Estimates(known))
        worse = max(worse, ordering.best(1.0).cost / min(way.cost for way in ordering.all_orders(1.0)))
    assert worse < 2


def test_a_plan_of_many_steps_is_complete() -> None:
    chain = [f"x{i}" for i in range(15)]
    of = block("  ".join(["$x0: P", *(f"${a} knows ${b}" for a, b in pairwise(chain))]))
    found = plan(of, statistics(of, {"x7": 1}))
    assert said(found, of)[0] == "scan $x7: P"
    assert len(found.steps) == 15


# ---- estimates


def test_estimates_use_cardinalities_and_degrees() -> None:
    of = block("$a: P  $a knows $b")
    known = statistics(of, {"a": 10, "b": 100})
    assert list(plan(of, known).estimates(1, known)) == [10, pytest.approx(10 * 8 * 0.01)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$a.age = 7", 0.01),
        ("$a.age != 7", 0.99),
        ("$a.age < 25", 0.25),
        ("25 > $a.age", 0.25),
        ("$a.age >= 75", 0.25),
        ("$a.age > 1000", 0.005),
        ("$a.age in [1, 2, 3]", 0.03),
        ("$a.age not in [1, 2, 3]", 0.97),
        ("$a.age < 50 and $a.age >= 50", 0.25),
        ("$a.age < 50 or $a.age >= 50", 0.75),
        ("not ($a.age < 25)", 0.75),
        ("$a.age is null", 0.0),
    ],
)
def test_selectivity_is_estimated_from_sampled_values(condition: str, expected: float) -> None:
    known = PropertyStatistics(100, 0.0, tuple(range(100)))
    kept = 1.0
    for expr in block(f"$a: P  {condition}").block.filters:
        kept *= selectivity(expr, lambda *_: known, {})
    assert kept == pytest.approx(expected, abs=0.011)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$a.age = 1", 0.5),
        ("$a.age = 7", 0.01),
        ("$a.age != 1", 0.5),
        ("$a.age = $b.age", 0.25),
        ("$a.age != $b.age", 0.75),
    ],
)
def test_common_values_count_as_often_as_they_occur_in_the_sample(condition: str, expected: float) -> None:
    known = PropertyStatistics(100, 0.0, (*[1] * 50, *range(2, 52)))
    (expr,) = block(f"$a: P  $b: P  {condition}").block.filters
    assert selectivity(expr, lambda *_: known, {}) == pytest.approx(expected, abs=0.011)


def test_a_sample_estimates_distinct_values_and_nulls() -> None:
    rng = np.random.default_rng(1)
    few = sample_statistics(pa.array(rng.integers(0, 50, 100_000)), 100_000)
    assert few.distinct == pytest.approx(50, rel=0.1)
    keys = sample_statistics(pa.array([f"k{i}" for i in range(100_000)]), 100_000)
    assert 5_000 < keys.distinct <= 100_000
    gaps = sample_statistics(pa.array([None if i % 4 == 0 else i for i in range(10_000)], pa.int64()), 10_000)
    assert gaps.missing == pytest.approx(0.25, abs=0.1)
    assert sample_statistics(pa.nulls(10, pa.int64()), 10) == PropertyStatistics(1.0, 1.0)
    small = sample_statistics(pa.array([3, 1, 2, 1]), 4)
    assert small == PropertyStatistics(3.0, 0.0, (1, 1, 2, 3))
