"""Sorted edges, degrees, neighbours and lookups of an adjacency."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph import testing
from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.read.columns import sorting
from omnigraph.read.topology import adjacency as module
from omnigraph.read.topology.adjacency import Adjacency, by_both, by_one, firsts

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=60)


@given(EDGES, st.sampled_from([64, 20, 8, 1]), st.sampled_from([12, 2, 0]))
def test_edges_are_sorted_by_both_ends(edges: list[tuple[int, int]], word: int, bits: int) -> None:
    near, far = (np.array([edge[i] for edge in edges], np.int32) for i in (0, 1))
    # Small word sizes force the code paths for large graphs.
    with testing.thresholds(module, WORD_BITS=word, PARTITION_BITS=bits):
        assert by_both(near, far, 10, 7).tolist() == sorted(range(len(edges)), key=lambda i: (*edges[i], i))
        assert by_one(far, 7).tolist() == sorted(range(len(edges)), key=lambda i: (edges[i][1], i))


def test_sorting_edges_can_be_cancelled(thresholds: Thresholds) -> None:
    """Between any two pieces."""
    thresholds(sorting, SORT_CHUNK_ROWS=100)
    random = np.random.default_rng(3)
    near, far = (random.integers(0, 50, 5_000, np.int32) for _ in range(2))
    for sort in (partial(by_both, near, far, 50, 50), partial(by_one, far, 50)):
        counting = _Counting()
        with Spending(Budget(), counting).running():
            sort()
        assert counting.asked > 50


class _Counting(Cancellation):
    asked = 0

    @property
    def cancelled(self) -> bool:
        self.asked += 1
        return False


def made(edges: list[tuple[int, int]]) -> Adjacency:
    near, far = (np.array([edge[i] for edge in edges], np.int32) for i in (0, 1))
    order = by_both(near, far, 10, 7)
    return Adjacency(firsts(near, 10), far[order], np.arange(len(edges))[order], 7)


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=80)


@given(
    EDGES,
    PAIRS,
    st.sampled_from([1, 3, 1 << 16]),
    st.sampled_from([0, 8, 10**9]),
    st.sampled_from([-1, 1 << 25]),
    st.sampled_from([0, 1, 16]),
    st.sampled_from([3, 5, 25]),
    st.sampled_from([0, 10**9]),
)
def test_joins_finds_the_pairs_with_an_edge(
    edges: list[tuple[int, int]],
    pairs: list[tuple[int, int]],
    chunk: int,
    made_after: int,
    matrix: int,
    bits: int,
    part: int,
    column: int,
) -> None:
    """By search, in a matrix, in a column, and with a filter, also if most hashes collide."""
    near, far = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    choices = {
        "CHUNK_PAIRS": chunk,
        "PAIRS_PER_EDGE_RATIO": made_after,
        "MAX_MATRIX_PAIRS": matrix,
        "FILTER_BITS_PER_EDGE": bits,
        "FILTER_PART_BITS": part,
        "COLUMN_RATIO": column,
    }
    with testing.thresholds(module, **choices):
        assert made(edges).joins(near, far).tolist() == [pair in set(edges) for pair in pairs]


@given(EDGES, st.lists(st.integers(0, 9)), st.lists(st.booleans(), min_size=7, max_size=7), st.sampled_from([0, 8]))
def test_counts_of_neighbours_agree_with_the_edge_list(
    edges: list[tuple[int, int]], nodes: list[int], allowed: list[bool], ratio: int
) -> None:
    found, asked, mask = made(edges), np.array(nodes, np.int64), np.array(allowed)
    with testing.thresholds(module, COLUMN_RATIO=ratio):
        counts = {distinct: found.counts(asked, distinct=distinct).tolist() for distinct in (False, True)}
        some = {distinct: found.counts_where(asked, mask, distinct=distinct).tolist() for distinct in (False, True)}
    of = {distinct: [[b for a, b in ({*edges} if distinct else edges) if a == n] for n in nodes] for distinct in counts}
    assert counts == {distinct: [len(far) for far in lists] for distinct, lists in of.items()}
    assert some == {distinct: [sum(allowed[b] for b in far) for far in lists] for distinct, lists in of.items()}


@given(EDGES)
def test_adjacency_agrees_with_the_edge_list(edges: list[tuple[int, int]]) -> None:
    found = made(edges)
    assert found.degree.tolist() == [sum(a == node for a, _ in edges) for node in range(10)]
    assert found.neighbours.tolist() == [len({b for a, b in edges if a == node}) for node in range(10)]
    nodes = np.array([3, 3, 0, 9])
    degree, places = found.walk(nodes)
    assert degree.tolist() == found.degree[nodes].tolist()
    expected = [b for node in nodes for b in sorted(b for a, b in edges if a == node)]
    assert found.far(places).tolist() == expected
    near = np.repeat(np.arange(10), 7)
    far = np.tile(np.arange(7), 10)
    count, first = found.between(near, far)
    assert count.tolist() == [edges.count(pair) for pair in zip(near.tolist(), far.tolist(), strict=True)]
    there = np.flatnonzero(count)
    assert [edges[i] for i in found.edges(first[there])] == list(zip(near[there], far[there], strict=True))


@given(EDGES, st.lists(st.integers(0, 5), min_size=7, max_size=7), st.integers(1, 8))
def test_sums_over_neighbours_agree_with_the_edge_list(
    edges: list[tuple[int, int]], values: list[int], portion: int
) -> None:
    found = made(edges)
    with testing.thresholds(module, CHUNK_EDGES=portion):
        sums = found.sums(np.array(values), distinct=False)
        distinct = found.sums(np.array(values), distinct=True)
        chosen = found.sums(np.array(values) > 2, distinct=True)
    assert sums.tolist() == [sum(values[b] for a, b in edges if a == node) for node in range(10)]
    assert distinct.tolist() == [sum(values[b] for a, b in {*edges} if a == node) for node in range(10)]
    assert chosen.tolist() == [sum(values[b] > 2 for a, b in {*edges} if a == node) for node in range(10)]


def test_nodes_with_self_loops_are_found() -> None:
    assert np.flatnonzero(made([(1, 1), (2, 3), (3, 2), (5, 5), (5, 5)]).loops).tolist() == [1, 5]


@given(PAIRS)
def test_counts_of_distinct_neighbours_are_the_same_before_and_after_all_edges_are_examined(
    edges: list[tuple[int, int]],
) -> None:
    adjacency = made(edges)
    nodes = np.array([3, 0, 3, 9])
    degrees = [sum(near == node for near, _ in edges) for node in nodes]
    distinct = [len({far for near, far in edges if near == node}) for node in nodes]
    for _ in range(4):
        assert adjacency.counts(nodes, distinct=True).tolist() == distinct
        assert adjacency.counts(nodes, distinct=False).tolist() == degrees
    adjacency.may_repeat(adjacency.size + 1)
    assert adjacency.may_repeat(0) == (len(set(edges)) < len(edges))
    assert adjacency.counts(nodes, distinct=True).tolist() == distinct


def test_edges_are_examined_once_as_many_were_asked_about() -> None:
    adjacency = made([(0, 1), (0, 2), (1, 2)])
    assert adjacency.may_repeat(3)
    assert not adjacency.may_repeat(1)
    assert not adjacency.may_repeat(0)
