"""Choose negated blocks that are evaluated on the candidates of one variable, before the match (see `Exclusion`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import Leaf
from omnigraph.read.plan.plan_count import count_leaves, without_leaves
from omnigraph.read.query.block import QueryBlock

_FIRST_NUMBER, _NUMBERS_PER_BLOCK = 2_000_000, 1_000
"""Block numbers of exclusions. They differ from the numbers of all other blocks of the query."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A negated block that refers to one variable of the match.

    Attributes:
        place: index of the negated block.
        name: the variable. Nodes for which the block has a match are not candidates.
        block: the negated block, with this variable as one of its own.
    """

    place: int
    name: str
    block: QueryBlock


def exclusions(block: QueryBlock) -> tuple[Exclusion, ...]:
    """The negated blocks of a block that refer to one of its variables, which has one node type."""
    return tuple(_exclusions(block))


def _exclusions(block: QueryBlock) -> Iterator[Exclusion]:
    for place, negation in enumerate(block.negations):
        outer = negation.block.outer
        node = block.nodes.get(outer[0]) if len(outer) == 1 else None
        if node is not None and len(node.types) == 1:
            inner = replace(negation.block, nodes=(node, *negation.block.nodes), outer=())
            numbers = count(_FIRST_NUMBER + place * _NUMBERS_PER_BLOCK)
            yield Exclusion(place, node.name, QueryBlock.of(inner, numbers))


def excluding_leaves(
    exclusion: Exclusion, candidates: Candidates, context: Context
) -> tuple[tuple[Leaf, ...], float] | None:
    """The variables of a negated block to count, and the estimated number of edges to read.

    None if the matches cannot be counted without producing rows.
    """
    leaves = count_leaves(exclusion.block, exclusion.block.joined_variables | {exclusion.name}, candidates, context)
    rest = without_leaves(exclusion.block, leaves)
    if len(rest.nodes) != 1 or rest.block.expands or rest.join_conditions or rest.optionals or rest.negations:
        return None
    return leaves, sum(_edges(leaf.expand, context) for leaf in leaves if leaf.expand is not None)


def _edges(expand: ir.Expand, context: Context) -> float:
    hops = 1 if expand.hops is None else expand.hops.max or 8
    return float(sum(context.tables.edges(step.edge).count for step in expand.steps) * hops)
