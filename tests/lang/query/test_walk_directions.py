"""A walk over several edge types gives each start node the walks that it has if its type is the only one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import pytest

from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.query.check.walks import directions
from omnigraph.lang.query.ir import Direction, HopRange, Step
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog, EdgeType

TYPES = "ABCD"
LONGEST = 5
"""Walks without an upper bound are listed up to this length."""

Walk = tuple[Step, ...]


def some_edges(rng: Random) -> list[EdgeType]:
    edges = [f"edge E{i}: {rng.choice(TYPES)} -> {rng.choice(TYPES)}" for i in range(rng.randint(2, 4))]
    nodes = [f"node {name} {{ k: String @key }}" for name in TYPES]
    return list(compile_schema("\n".join([*nodes, *edges])).edges.values())


def walks(steps: Sequence[Step], start: str, ends: set[str] | None, most: int) -> set[Walk]:
    """The walks of at most `most` hops from nodes of one type to nodes of the given types."""
    found: set[Walk] = set()
    longer: list[Walk] = [()]
    for _ in range(most):
        longer = [
            (*walk, step)
            for walk in longer
            for step in steps
            if step.left_type == (walk[-1].right_type if walk else start)
        ]
        found.update(walk for walk in longer if ends is None or walk[-1].right_type in ends)
    return found


def turned(walk: Walk) -> Walk:
    """The same walk from its other end."""
    opposite = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}
    return tuple(Step(s.edge, opposite[s.direction], s.right_type, s.left_type) for s in reversed(walk))


def ranges() -> Iterator[HopRange]:
    for least, most in ((1, 1), (1, 2), (2, 2), (1, 3), (1, None)):
        yield HopRange(least, most)


@pytest.mark.parametrize("seed", range(60))
def test_each_start_type_has_its_own_walks_or_the_walks_conflict(seed: int) -> None:
    """A conflict is reported exactly if the walks of the types together would be other walks."""
    rng = Random(seed)
    edges = some_edges(rng)
    seen = 0
    for starts in (set(pair) for size in (2, 3) for pair in combinations(TYPES, size)):
        for ends in (None, {rng.choice(TYPES)}, set(rng.sample(TYPES, 2))):
            for hops in ranges():
                most = LONGEST if hops.max is None else hops.max
                alone = {s: walks(directions(edges, {s}, ends, hops).steps, s, ends, most) for s in starts}
                needed = list({step for own in alone.values() for walk in own for step in walk})
                reach = max((len(walk) for own in alone.values() for walk in own), default=0)
                together = {s: walks(needed, s, ends, min(most, reach)) for s in starts}
                found = directions(edges, starts, ends, hops)
                assert (found.conflict is not None) == (together != alone), (starts, ends, hops)
                if found.conflict is None:
                    limit = most if found.longest is None else min(most, found.longest)
                    assert {s: walks(found.steps, s, ends, limit) for s in starts} == alone, (starts, ends, hops)
                    seen += 1
    assert seen


@pytest.mark.parametrize("seed", range(30))
def test_walks_to_known_types_are_decided_for_each_of_them(seed: int) -> None:
    """If only the right end is known, its types decide, and the left end may be of any type."""
    edges = some_edges(Random(seed))
    for ends in (set(pair) for pair in combinations(TYPES, 2)):
        for hops in ranges():
            most = LONGEST if hops.max is None else hops.max
            found = directions(edges, None, ends, hops)
            if found.conflict is not None:
                assert set(found.conflict.starts) <= ends
                continue
            limit = most if found.longest is None else min(most, found.longest)
            for end in ends:
                own = directions(edges, None, {end}, hops).steps
                alone = {w for start in TYPES for w in walks(own, start, {end}, most)}
                together = {w for start in TYPES for w in walks(found.steps, start, {end}, limit)}
                assert together == alone, (ends, hops)


NAMED: Catalog = compile_schema(
    """
    interface Named { name: String? }
    node P implements Named { }  node Q implements Named { }  node R { }
    edge Likes: P -> Q  edge Hates: P -> Q  edge Knows: P -> P  edge Makes: Q -> R  edge Buys: R -> R
    """
)


def expand(match: str) -> ir.Expand:
    compiled = compile_query(f"query q() {{ match {{ {match} }} return {{ count(*) as n }} }}", NAMED)
    assert isinstance(compiled.body, ir.Read)
    return compiled.body.match.expands[-1]


def steps(match: str) -> set[tuple[str, str]]:
    return {(step.edge, step.direction.value) for step in expand(match).steps}


def test_one_hop_follows_both_directions_of_an_edge() -> None:
    expected = {("Knows", "out"), ("Likes", "out"), ("Likes", "in")}
    assert steps("$x: Named  $x (likes | knows){1,1} $y") == expected
    assert steps("$x: Named  $x (likes | knows) $y") == expected
    assert steps("$x: Named  $y (likes | knows){1,1} $x") == expected


def test_edges_between_two_types_allow_one_hop_in_both_directions() -> None:
    for hops, allowed in (("{1,3}", (1, 1)), ("{1,}", (1, 1)), ("{2,2}", (1, 1))):
        found = expand(f"$x: Named  $x (likes | hates){hops} $y")
        assert (found.hops, len(found.steps)) == (ir.HopRange(*allowed), 4)


def test_start_types_without_a_walk_to_the_other_end_do_not_conflict() -> None:
    assert steps("$x: Named  $y: Q  $x (likes | knows){1,3} $y") == {("Knows", "out"), ("Likes", "out")}


def test_unknown_ends_have_the_written_direction() -> None:
    assert steps("$x (likes | makes){1,2} $y") == {("Likes", "out"), ("Makes", "out")}


def test_a_walk_to_its_own_start_has_no_conflict() -> None:
    assert steps("$x: Named  $x (likes | knows){1,3} $x") == {("Knows", "out")}
