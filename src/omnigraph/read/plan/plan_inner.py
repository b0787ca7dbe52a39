"""Choose inner blocks that depend on one variable, and are evaluated once for each of its candidates.

A negated block removes candidates before the match, and so does a condition on the values of `exists` and `count`
blocks. The number of matches of an optional block is a weight of the candidate, if its variables are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.plan.plan_count import count_leaves, without_leaves
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.expression import variables

_FIRST_NEGATION, _FIRST_OPTIONAL, _FIRST_VALUE, _NUMBERS_PER_BLOCK = 2_000_000, 3_000_000, 4_000_000, 1_000
"""Block numbers of these blocks. They differ from the numbers of all other blocks of the query."""


@dataclass(frozen=True, slots=True)
class InnerBlock:
    """An inner block that refers to one variable of the match.

    Attributes:
        place: index of the block.
        name: the variable.
        block: the inner block, with this variable as one of its own.
    """

    place: int
    name: str
    block: QueryBlock


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """A condition on one variable of the match, and on the values of blocks that refer to this variable.

    Attributes:
        place: index of the condition among the join conditions of the block.
        name: the variable.
        blocks: the `exists` and `count` blocks whose values it uses. No other condition uses these values.
    """

    place: int
    name: str
    blocks: tuple[InnerBlock, ...]


def values_of_one_variable(block: QueryBlock) -> dict[str, InnerBlock]:
    """The `exists` and `count` blocks that refer to one variable of the block, by the name of their value."""
    inner_blocks = _of_one_variable(block, [value.block for value in block.values], _FIRST_VALUE)
    return {block.values[inner.place].name: inner for inner in inner_blocks}


def value_conditions(block: QueryBlock) -> tuple[ValueCondition, ...]:
    """The conditions of a block on `exists` and `count` blocks that refer to one variable."""
    possible = block.derived(values_of_one_variable)
    names = {value.name for value in block.values}
    found: list[ValueCondition] = []
    for place, condition in enumerate(block.join_conditions):
        used = condition.variables & names
        if not used or condition.is_search or not used <= possible.keys():
            continue
        blocks = [possible[name] for name in sorted(used)]
        others = [c for at, c in enumerate(block.join_conditions) if at != place and c.variables & used]
        if not others and {inner.name for inner in blocks} | (condition.variables - used) == {blocks[0].name}:
            found.append(ValueCondition(place, blocks[0].name, tuple(blocks)))
    return tuple(found)


def negations_of_one_variable(block: QueryBlock) -> tuple[InnerBlock, ...]:
    """The negated blocks that refer to one variable of the block, which has one node type."""
    return tuple(_of_one_variable(block, block.negations, _FIRST_NEGATION))


def optionals_of_one_variable(block: QueryBlock) -> tuple[InnerBlock, ...]:
    """The optional blocks that refer to one variable of the block, if no other clause of it uses their variables."""
    return tuple(
        inner
        for inner in _of_one_variable(block, block.optionals, _FIRST_OPTIONAL)
        if not block.optionals[inner.place].introduced & _used(block, inner.place)
    )


def _used(block: QueryBlock, place: int) -> frozenset[str]:
    """Variables that a block uses outside of one of its optional blocks."""
    others = [inner for inner in block.inner_blocks if inner is not block.optionals[place]]
    ends = {name for expand in block.block.expands for name in (expand.left, expand.right)}
    return variables(block.block.filters).union(ends, *(inner.block.outer for inner in others))


def _of_one_variable(block: QueryBlock, blocks: Sequence[QueryBlock], first: int) -> Iterator[InnerBlock]:
    for place, inner in enumerate(blocks):
        outer = inner.block.outer
        node = block.nodes.get(outer[0]) if len(outer) == 1 else None
        if node is not None and len(node.types) == 1 and _fits(inner.block, node):
            own = replace(inner.block, nodes=(node, *inner.block.nodes), outer=())
            yield InnerBlock(place, node.name, QueryBlock.of(own, count(first + inner.number * _NUMBERS_PER_BLOCK)))


def _fits(block: ir.Block, node: ir.NodeVar) -> bool:
    """Whether each traversal of an inner block may walk from or to the node type of a variable of the outer block.

    It may not if a clause after an optional block narrows the types of the variable.
    """
    return all(
        (expand.left != node.name or step.left_type in node.types)
        and (expand.right != node.name or step.right_type in node.types)
        for expand in walk(block)
        if isinstance(expand, ir.Expand)
        for step in expand.steps
    )


def inner_leaves(inner: InnerBlock, candidates: Candidates, context: Context) -> tuple[tuple[Leaf, ...], float] | None:
    """The variables of an inner block to count, and the estimated number of edges to read.

    None if the matches cannot be counted without producing rows.
    """
    leaves = count_leaves(inner.block, inner.block.joined_variables | {inner.name}, candidates, context)
    rest = without_leaves(inner.block, leaves)
    if len(rest.nodes) != 1 or rest.block.expands or rest.join_conditions or rest.inner_blocks:
        return None
    return leaves, sum(_edges(leaf.expand, context) for leaf in leaves if leaf.expand is not None)


def _edges(expand: ir.Expand, context: Context) -> float:
    hops = 1 if expand.hops is None else expand.hops.max or 8
    return float(sum(context.tables.edges(step.edge).count for step in expand.steps) * hops)
