"""Semi-join reduction: remove the candidates of a variable that have no edge to candidates of its neighbour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.errors import BudgetExceededError
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import distinct_numbers
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import adjacencies, reversed_steps
from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.query.block import QueryBlock

NARROW_RATIO = 8
"""Candidates are narrowed along edges if at most one in `NARROW_RATIO` of them is expected to remain."""


def narrow(leaves: Sequence[Leaf], rest: QueryBlock, candidates: Candidates, context: Context) -> None:
    """If a variable has few candidates, remove the candidates of a neighbouring variable that have no edge to them.

    Args:
        leaves: variables that are counted, with their traversals.
        rest: the block of the other variables.
        candidates: the candidates of all variables.
        context: the state of the running read: snapshot, parameters and budget.
    """
    expands = (*(leaf.expand for leaf in leaves if leaf.expand is not None), *rest.block.expands)
    walked = frozenset(map(id, expands))
    if candidates.narrowed_along == (walked, candidates.changes):
        return
    todo = list(_walks(expands, candidates, context))
    while chosen := _next(todo, candidates):
        todo.remove(chosen)
        (adjacency,) = adjacencies(context, chosen.step)
        (nodes,) = candidates.of(chosen.near)
        try:
            _, places = adjacency.walk(nodes)
        except BudgetExceededError as error:
            if error.resource != "bytes":
                raise
            continue  # the nodes have more edges than expected; the match also works without narrowing
        context.budget.spend(len(places))
        slots = candidates.tables(chosen.far)[0].slots
        candidates.narrow_to(chosen.far, distinct_numbers(adjacency.far(places), slots))
        candidates.note_edges(chosen.expand, len(places))
        candidates.narrowed[chosen.key] = len(nodes)
    candidates.narrowed_along = (walked, candidates.changes)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A traversal of one hop, walked from one end.

    Attributes:
        expand: the traversal.
        step: its edge type and the direction of the walk.
        near: the variable at the first end.
        far: the variable at the other end.
        degree: average number of edges per node at the first end, at least 1.
        total: number of all nodes at the other end.
    """

    expand: ir.Expand
    step: ir.Step
    near: str
    far: str
    degree: float
    total: int

    @property
    def key(self) -> tuple[str, str, ir.Step]:
        return self.near, self.far, self.step


def _walks(expands: Sequence[ir.Expand], candidates: Candidates, context: Context) -> Iterator[_Walk]:
    """Traversals between two variables with one node type each, in both directions."""
    for expand in expands:
        left, right = expand.left, expand.right
        if expand.hops is not None or len(expand.steps) != 1 or expand.steps[0].direction is ir.Direction.BOTH:
            continue
        if left == right or not candidates.knows(left) or not candidates.knows(right):
            continue
        if len(candidates.tables(left)) != 1 or len(candidates.tables(right)) != 1:
            continue
        edges = context.tables.edges(expand.steps[0].edge).count
        for step, near, far in ((expand.steps[0], left, right), (reversed_steps(expand.steps)[0], right, left)):
            degree = max(edges / max(candidates.total(near), 1), 1.0)
            yield _Walk(expand, step, near, far, degree, candidates.total(far))


def _next(todo: Sequence[_Walk], candidates: Candidates) -> _Walk | None:
    """A walk whose first end has few candidates, and that is expected to reach few nodes.

    Variables whose number of candidates is known come first. For others, it is estimated. If a variable has no
    candidates, no other variable keeps candidates either.
    """
    possible = [walk for walk in todo if candidates.restricts(walk.near)]
    sizes = {name: candidates.cheap_size(name) for walk in possible for name in (walk.near, walk.far)}
    if 0 in sizes.values():
        for name in {name for walk in todo for name in (walk.near, walk.far)}:
            candidates.choose(name, np.zeros(0, np.int64))  # the match has no rows
        return None
    for is_known in (True, False):
        for walk in possible:
            near, far = sizes[walk.near], sizes[walk.far]
            if (near is not None) is is_known and (near is None or candidates.narrowed.get(walk.key) != near):
                expected = (candidates.estimated_size(walk.near) if near is None else near) * walk.degree
                if expected * NARROW_RATIO < (walk.total if far is None else far):
                    return walk
    return None
