"""Counted cycles: a variable between two bound variables is eliminated, and the result stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import inf

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.match import meet, parts
from omnigraph.read.plan import join_order
from omnigraph.read.rows import frame

SCHEMA = """
node Person { name: String @key age: I64 }
edge Follows: Person -> Person
"""
COUNT, EDGES = 60, 400
NAMES = "abcde"

Matrix = npt.NDArray[np.int64]


@pytest.fixture(scope="module")
def ends() -> npt.NDArray[np.int64]:
    """Some edges are there twice, and some are self-loops."""
    random = np.random.default_rng(5)
    found = (COUNT * random.power(0.6, (EDGES, 2))).astype(np.int64)
    return np.concatenate([found, found[:40]])


@pytest.fixture(scope="module")
def edges(ends: npt.NDArray[np.int64]) -> Matrix:
    found = np.zeros((COUNT, COUNT), np.int64)
    found[ends[:, 0], ends[:, 1]] = 1
    return found


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, ends: npt.NDArray[np.int64]) -> Iterator[Graph]:
    names = [f"p{i}" for i in range(COUNT)]
    with omnigraph.init(tmp_path_factory.mktemp("meet") / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": names, "age": np.arange(COUNT)}),
                "Follows": follows([(names[a], names[b]) for a, b in ends.tolist()]),
            },
            mode="append",
        )
        yield made


@pytest.fixture(params=["few paths at a time", "sorted keys", "all at once"])
def eager(request: pytest.FixtureRequest, thresholds: Thresholds) -> None:
    """Variables are eliminated wherever this is possible."""
    thresholds(join_order, MEET_COST_EDGES=-1.0)
    if request.param != "sorted keys":
        thresholds(join_order, MIN_COST_PER_STATE_EDGES=-inf)
    if request.param == "few paths at a time":
        thresholds(meet, CHUNK_PATHS=7)
    if request.param != "all at once":
        thresholds(frame, KEYS_PER_ROW=0, MIN_KEYS=0)
        thresholds(meet, MIN_MARK_BITS=3, MAX_MARK_BITS=5)


def cycle(forward: tuple[bool, ...]) -> str:
    """A cycle whose edges are directed as given."""
    found = []
    for place, onward in enumerate(forward):
        one, other = NAMES[place], NAMES[(place + 1) % len(forward)]
        found.append(f"${one} follows ${other}" if onward else f"${other} follows ${one}")
    return "  ".join(found)


def counted(edges: Matrix, forward: tuple[bool, ...], start: npt.NDArray[np.bool_]) -> Matrix:
    """Number of cycles from each person."""
    walked = np.diag(start.astype(np.int64))
    for onward in forward:
        walked = walked @ (edges if onward else edges.T)
    return np.diag(walked)


def ask(graph: Graph, text: str) -> list[tuple[object, ...]]:
    found = graph.query(f"query q() {{ {text} }}").to_arrow()
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("forward", [*product((True, False), repeat=4), (True,) * 5, (True, False, True, True, False)])
@pytest.mark.parametrize("limit", [COUNT, 7])
def test_cycles_are_counted_without_rows(graph: Graph, edges: Matrix, forward: tuple[bool, ...], limit: int) -> None:
    text = f"match {{ {cycle(forward)}  $a.age < {limit} }} return {{ count(*) as n }}"
    assert "meet" in str(graph.explain(f"query q() {{ {text} }}"))
    assert ask(graph, text) == [(counted(edges, forward, np.arange(COUNT) < limit).sum(),)]


@pytest.mark.usefixtures("eager")
def test_cycles_are_counted_for_each_node(graph: Graph, edges: Matrix) -> None:
    forward = (True, True, False, True)
    text = f"match {{ {cycle(forward)} }} return {{ $a.age as age, count(*) as n }} order {{ age }}"
    expected = counted(edges, forward, np.ones(COUNT, bool))
    assert ask(graph, text) == [(age, n) for age, n in enumerate(expected.tolist()) if n]


@pytest.mark.usefixtures("eager")
def test_only_the_existence_of_a_path_matters_for_distinct_rows(graph: Graph, edges: Matrix) -> None:
    text = f"match {{ {cycle((True,) * 4)} }} return distinct {{ $a.age as age }} order {{ age }}"
    expected = counted(edges, (True,) * 4, np.ones(COUNT, bool))
    assert ask(graph, text) == [(age,) for age in np.flatnonzero(expected).tolist()]


@pytest.mark.usefixtures("eager")
def test_conditions_on_the_variable_between_are_evaluated(graph: Graph, edges: Matrix) -> None:
    text = f"match {{ {cycle((True,) * 4)}  $d.age >= 20  $b.age < 30 }} return {{ count(*) as n }}"
    here = np.arange(COUNT)
    first = edges @ np.diag((here < 30).astype(np.int64)) @ edges
    last = edges @ np.diag((here >= 20).astype(np.int64)) @ edges
    assert ask(graph, text) == [(np.trace(first @ last),)]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("forward", [(True,) * 4, (True, False, True, False), (False, True, True, False)])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("$d.age != $a.age", np.not_equal),
        ("$d.age < $a.age", np.less),
        ("$d != $a", np.not_equal),
        ("$d.age + $a.age > 40", lambda d, a: d + a > 40),
    ],
)
def test_conditions_on_the_variable_between_and_a_neighbour_are_evaluated(
    graph: Graph,
    edges: Matrix,
    thresholds: Thresholds,
    monkeypatch: pytest.MonkeyPatch,
    forward: tuple[bool, ...],
    threads: int,
    condition: str,
    holds: Callable[[Matrix, Matrix], npt.NDArray[np.bool_]],
) -> None:
    monkeypatch.setenv("OMNIGRAPH_THREADS", str(threads))
    thresholds(parts, PART_ROWS=50, MIN_PARALLEL_ROWS=0, MIN_PARALLEL_BYTES=0)
    ages = np.arange(COUNT)
    steps = [edges if onward else edges.T for onward in forward]
    allowed = holds(ages[:, None], ages[None, :]).astype(np.int64)
    expected = np.diag(steps[0] @ steps[1] @ steps[2] @ (steps[3] * allowed))
    text = f"match {{ {cycle(forward)}  {condition} }} return {{ $a.age as age, count(*) as n }} order {{ age }}"
    plan = str(graph.explain(f"query q() {{ {text} }}"))
    assert any("meet" in line and "where" in line for line in plan.splitlines())
    assert ask(graph, text) == [(age, n) for age, n in enumerate(expected.tolist()) if n]


@pytest.mark.usefixtures("eager")
def test_a_variable_with_conditions_on_both_neighbours_is_not_eliminated(graph: Graph, edges: Matrix) -> None:
    ages = np.arange(COUNT)
    before, after = (ages[:, None] != ages[None, :]), (ages[:, None] < ages[None, :])
    expected = np.trace(edges @ edges @ (edges * before) @ (edges * after))
    text = f"match {{ {cycle((True,) * 4)}  $c.age != $d.age  $d.age < $a.age }} return {{ count(*) as n }}"
    assert ask(graph, text) == [(expected,)]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("threads", [1, 3])
def test_parts_of_the_rows_have_the_same_result(
    graph: Graph, edges: Matrix, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("OMNIGRAPH_THREADS", str(threads))
    thresholds(parts, PART_ROWS=50, MIN_PARALLEL_ROWS=0, MIN_PARALLEL_BYTES=0)
    text = f"match {{ {cycle((True,) * 5)} }} return {{ count(*) as n }}"
    assert ask(graph, text) == [(counted(edges, (True,) * 5, np.ones(COUNT, bool)).sum(),)]


def test_a_long_list_of_rows_walks_each_node_once(graph: Graph) -> None:
    """The planner chooses by estimated cost: without thresholds, too."""
    text = f"match {{ {cycle((True,) * 4)} }} return {{ count(*) as n }}"
    assert "meet" in str(graph.explain(f"query q() {{ {text} }}"))


def test_variables_of_the_result_are_not_eliminated(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(join_order, MEET_COST_EDGES=-1.0)
    returned = ", ".join(f"${name}.age as {name}" for name in "abcd")
    text = f"match {{ {cycle((True,) * 4)} }} return {{ {returned} }}"
    assert "meet" not in str(graph.explain(f"query q() {{ {text} }}"))


@pytest.mark.parametrize("size", [1, 50, 100_000])
@pytest.mark.parametrize(("wanted", "keys"), [(0, 3), (3, 0), (40, 900), (900, 40), (500, 500)])
def test_keys_are_counted_exactly(thresholds: Thresholds, size: int, wanted: int, keys: int) -> None:
    thresholds(frame, KEYS_PER_ROW=1, MIN_KEYS=10)
    thresholds(meet, MIN_MARK_BITS=2)
    random = np.random.default_rng(size + wanted + keys)
    asked, known = random.integers(0, size, wanted), random.integers(0, size, keys)
    expected = (asked[:, None] == known[None, :]).sum(axis=1)
    assert meet.occurrences(asked, known, size).tolist() == expected.tolist()
