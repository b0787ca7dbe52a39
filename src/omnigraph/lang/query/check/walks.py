"""The directions of the edge types of a traversal with alternatives and a hop range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from omnigraph.dataclass import dataclass
from omnigraph.lang.query.ir import Direction, HopRange, Step
from omnigraph.lang.schema.catalog import EdgeType


@dataclass(frozen=True, slots=True)
class Conflict:
    """An edge type that has to be followed in one direction from one start type, and in the other from another.

    So every choice of steps is wrong for nodes of one of the two types.
    """

    edge: str
    starts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Directions:
    """The steps of a traversal.

    Attributes:
        edges: names of the edge types that the traversal can reach, with any number of hops.
        longest: the hop range has to end here, because longer walks over the steps could turn around; None if it does
            not have to be limited. 0 if no walk in the hop range has the right types at its ends.
        conflict: if it is not None, the traversal has no correct steps.
    """

    steps: Sequence[Step]
    edges: frozenset[str]
    longest: int | None = None
    conflict: Conflict | None = None


def directions(edges: Sequence[EdgeType], left: set[str] | None, right: set[str] | None, hops: HopRange) -> Directions:
    """Each edge type is followed from that one of its endpoint types that a walk reaches first.

    If the start has several possible types, this is decided for each of them, because the answer for a node must not
    depend on the other types. An edge type can then have both directions, if no walk in the hop range turns around.
    """
    # Walks begin at the end with known types, preferably at the left one.
    backwards = left is None and right is not None
    starts = right if backwards else left
    together = _closure(edges, {edge.from_type for edge in edges} if starts is None else starts, backwards=backwards)
    reached = frozenset(step.edge for step in together)
    if starts is None:
        return Directions(together, reached)
    separate = {start: _closure(edges, {start}, backwards=backwards) for start in sorted(starts)}
    if all(step in together for steps in separate.values() for step in steps):
        return Directions(together, reached)
    targets = None if backwards else right
    useful = _useful_by_start(separate, targets, hops.max, backwards=backwards)
    if not any(useful.values()):
        every = _useful_by_start(separate, targets, None, backwards=backwards)
        return Directions(_union(every), reached, 0)
    lengths = [longest_walk(steps) for steps in useful.values()]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    most = hops.max if longest is None else longest if hops.max is None else min(longest, hops.max)
    union = _union(useful)
    for start in separate:
        for step in _useful(union, start, targets, most, backwards=backwards):
            if step not in separate[start]:
                other = next(each for each, own in useful.items() if step in own)
                return Directions(union, reached, longest, Conflict(step.edge, (start, other)))
    return Directions(union, reached, longest)


def longest_walk(steps: Iterable[Step]) -> int | None:
    """The maximum number of hops that the types allow; None if a cycle of types allows any number."""
    pairs = {(step.left_type, step.right_type) for step in steps}
    reached = {left for left, _ in pairs}
    for hops in range(len(pairs) + 1):
        reached = {right for left, right in pairs if left in reached}
        if not reached:
            return hops
    return None


def _closure(edges: Sequence[EdgeType], starts: set[str], *, backwards: bool) -> list[Step]:
    """The steps of walks from the given types. With `backwards`, walks lead from the right to the left end."""
    reached = set(starts)
    steps: dict[str, Step] = {}
    while True:
        # Each round uses the types that were reached before it, so the order of the alternatives does not matter.
        before = frozenset(reached)
        for edge in edges:
            if edge.name in steps:
                continue
            out = Step(edge.name, Direction.OUT, edge.from_type, edge.to_type)
            into = Step(edge.name, Direction.IN, edge.to_type, edge.from_type)
            for step in (out,) if edge.same_type else (out, into):
                begin, end = _ends(step, backwards=backwards)
                if begin in before:
                    steps[edge.name] = step
                    reached.add(end)
                    break
        if reached == before:
            return [steps[edge.name] for edge in edges if edge.name in steps]


def _ends(step: Step, *, backwards: bool) -> tuple[str, str]:
    """The types where a step begins and ends."""
    return (step.right_type, step.left_type) if backwards else (step.left_type, step.right_type)


def _useful_by_start(
    steps: Mapping[str, Sequence[Step]], targets: set[str] | None, most: int | None, *, backwards: bool
) -> dict[str, list[Step]]:
    return {start: _useful(own, start, targets, most, backwards=backwards) for start, own in steps.items()}


def _useful(
    steps: Sequence[Step], start: str, targets: set[str] | None, most: int | None, *, backwards: bool
) -> list[Step]:
    """The steps that a walk of at most `most` hops from a start type to one of the target types may use."""
    pairs = [_ends(step, backwards=backwards) for step in steps]
    before = _distances({start}, pairs)
    every = {end for _, end in pairs}
    after = _distances(every if targets is None else targets, [(end, begin) for begin, end in pairs])
    limit = math.inf if most is None else most
    return [
        step
        for step, (begin, end) in zip(steps, pairs, strict=True)
        if begin in before and end in after and before[begin] + 1 + after[end] <= limit
    ]


def _distances(starts: Iterable[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The smallest number of hops from the given types to each type that can be reached."""
    found = dict.fromkeys(starts, 0)
    frontier = set(found)
    hops = 0
    while frontier:
        hops += 1
        frontier = {end for begin, end in pairs if begin in frontier and end not in found}
        found.update(dict.fromkeys(frontier, hops))
    return found


def _union(steps: Mapping[str, Sequence[Step]]) -> list[Step]:
    """All steps of all start types, each once, those of one edge type together."""
    return sorted({step for own in steps.values() for step in own}, key=lambda step: (step.edge, step.direction))
