"""Counting by subtraction: the matches of a block without a condition, minus the matches that violate the condition.

`$a != $b` and `not { $a knows $b }` refer to two variables, so both variables would have to be in the rows. The number
of matches without such a condition, and the number of matches that violate it, can often be counted without producing
rows. Matches that violate `$a != $b` have one node for both variables; matches that violate `not { $a knows $b }` have
one more edge. With several such conditions, inclusion-exclusion gives one term for each subset of them.
"""

# See docs/decisions/0203-inequalities-are-counted-by-subtraction.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import combinations, count
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.query.block import QueryBlock

_MAX_CONDITIONS = 3
"""Maximum number of conditions that are counted by subtraction. The number of terms is 2 to this power."""

_FIRST_NUMBER, _NUMBERS_PER_TERM = 1_000_000, 1_000
"""Block numbers of the terms. They differ from the numbers of all other blocks of the query."""


@dataclass(frozen=True, slots=True)
class Term:
    """A block whose matches are added or subtracted.

    Attributes:
        block: the block.
        sign: 1 if its matches are added, -1 if they are subtracted.
        merged: pairs of variables of the original block: in this term, the second has the same node as the first, and
            only the first is in the block.
    """

    block: QueryBlock
    sign: int
    merged: tuple[tuple[str, str], ...] = ()

    def name(self, variable: str) -> str:
        """The variable of this block that has the node of a variable of the original block."""
        for kept, removed in self.merged:
            variable = kept if variable == removed else variable
        return variable


def subtraction_terms(block: QueryBlock) -> tuple[Term, ...]:
    """The terms whose signed sum has the matches of a block. Empty if no condition can be counted by subtraction.

    The first term is the block without these conditions.
    """
    found: list[ir.SameEntity | ir.Block] = [*_inequalities(block), *_negated_edges(block)]
    del found[_MAX_CONDITIONS:]
    if not found:
        return ()
    subsets = [subset for size in range(len(found) + 1) for subset in combinations(found, size)]
    return tuple(_term(block, found, subset, number) for number, subset in enumerate(subsets))


def _inequalities(block: QueryBlock) -> Iterator[ir.SameEntity]:
    """Conditions `$a != $b` on two variables of the block with the same node type."""
    for condition in block.join_conditions:
        expr = condition.expr
        if isinstance(expr, ir.SameEntity) and expr.negated and expr.left != expr.right:
            left, right = block.nodes.get(expr.left), block.nodes.get(expr.right)
            if left is not None and right is not None and left.types == right.types and len(left.types) == 1:
                yield expr


def _negated_edges(block: QueryBlock) -> Iterator[ir.Block]:
    """Negated blocks that consist of one edge between two variables of the block."""
    for negation in block.negations:
        edge = only_edge(negation.block)
        if edge is not None and edge.left in block.nodes and edge.right in block.nodes:
            yield negation.block


def only_edge(block: ir.Block) -> ir.Expand | None:
    """The edge of a block that consists of one edge between two variables of enclosing blocks; else None."""
    inner = (*block.optionals, *block.negations, *block.values)
    if block.nodes or block.filters or inner or len(block.expands) != 1:
        return None
    (edge,) = block.expands
    return None if edge.hops is not None or edge.left == edge.right else edge


def _term(
    block: QueryBlock,
    removed: Sequence[ir.SameEntity | ir.Block],
    violated: Sequence[ir.SameEntity | ir.Block],
    number: int,
) -> Term:
    """The block without the removed conditions, restricted to matches that violate some of them."""
    whole = block.block
    edges = (only_edge(each) for each in violated if isinstance(each, ir.Block))
    changed = replace(
        whole,
        filters=tuple(c.expr for c in block.conditions if not any(c.expr is each for each in removed)),
        negations=tuple(inner for inner in whole.negations if not any(inner is each for each in removed)),
        expands=(*whole.expands, *(replace(edge, edge_var=None) for edge in edges if edge is not None)),
    )
    merged: list[tuple[str, str]] = []
    for each in violated:
        if isinstance(each, ir.SameEntity):
            kept, gone = (_renamed(name, merged) for name in (each.left, each.right))
            if kept != gone:
                merged.append((kept, gone))
    for kept, gone in merged:
        changed = _substituted(changed, gone, kept)
    nodes = tuple(node for node in changed.nodes if node.name not in {gone for _, gone in merged})
    numbers = count(_FIRST_NUMBER + number * _NUMBERS_PER_TERM)
    return Term(QueryBlock.of(replace(changed, nodes=nodes), numbers), (-1) ** len(violated), tuple(merged))


def _renamed(name: str, merged: Sequence[tuple[str, str]]) -> str:
    for kept, gone in merged:
        name = kept if name == gone else name
    return name


def _substituted(part: Any, old: str, new: str) -> Any:
    """A copy of a part of the IR in which one variable is replaced by another. Declarations of variables stay."""
    if isinstance(part, tuple):
        return tuple(_substituted(inner, old, new) for inner in part)
    if not is_dataclass(part) or isinstance(part, ir.NodeVar | type):
        return part
    changes: dict[str, Any] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name in ("var", "left", "right") and isinstance(value, str):
            found: Any = new if value == old else value
        elif field.name == "outer" and isinstance(part, ir.Block):
            found = tuple(sorted({new if name == old else name for name in value}))
        else:
            found = _substituted(value, old, new)
        if found is not value and field.init:
            changes[field.name] = found
    return replace(part, **changes) if changes else part
