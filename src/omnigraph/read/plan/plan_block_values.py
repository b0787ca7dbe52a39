"""Place the operators for `exists` and `count` blocks, and the conditions that use their values, in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.read.match.filter import Filter
from omnigraph.read.match.pipeline import Operator
from omnigraph.read.query.block import QueryBlock, ValueBlock

PlanValue = Callable[[ValueBlock, frozenset[str], float], Operator]
"""Plans the operator for a value, for the variables that are bound in its input rows and the number of these rows."""


def with_block_values(
    block: QueryBlock,
    operators: list[Operator],
    estimates: tuple[float, ...],
    bound: frozenset[str],
    rows: float,
    plan: PlanValue,
    selectivities: Sequence[float],
) -> tuple[list[Operator], tuple[float, ...]]:
    """Add the operators for the values of a block.

    The value of a block is computed where its outer variables are bound and the number of rows is the smallest. The
    condition that uses it follows directly, so that later operators have fewer rows.

    Args:
        block: the block.
        operators: the operators for everything else.
        estimates: estimated number of output rows of each operator.
        bound: variables that are bound in the input rows.
        rows: number of input rows.
        plan: plans the operator for a value.
        selectivities: selectivity of each join condition of the block.
    """
    left = {value.name: value for value in block.values}
    for place, condition in enumerate(block.join_conditions):
        values = [left.pop(name) for name in sorted(condition.variables & left.keys())]
        if not values:
            continue
        needed = condition.variables - {value.name for value in values}
        needed |= {name for value in values for name in value.block.block.outer}
        at = _cheapest_place(needed, operators, estimates, bound, rows)
        known, before = _before(at, operators, estimates, bound, rows)
        added: list[Operator] = [plan(value, known, before) for value in values]
        kept = selectivities[place]
        operators[at:at] = [*added, Filter(condition)]
        after = tuple(estimate * kept for estimate in estimates[at:])
        estimates = (*estimates[:at], *(before for _ in added), before * kept, *after)
    for value in left.values():
        known, before = _before(len(operators), operators, estimates, bound, rows)
        operators.append(plan(value, known, before))
        estimates = (*estimates, before)
    return operators, estimates


def _before(
    at: int, operators: Sequence[Operator], estimates: Sequence[float], bound: frozenset[str], rows: float
) -> tuple[frozenset[str], float]:
    """The variables that are bound before an operator, and the number of its input rows."""
    return bound.union(*(operator.binds for operator in operators[:at])), estimates[at - 1] if at else rows


def _cheapest_place(
    needed: frozenset[str],
    operators: Sequence[Operator],
    estimates: Sequence[float],
    bound: frozenset[str],
    rows: float,
) -> int:
    """The place with the fewest rows among the places at which the needed variables are bound."""
    places = []
    for at in range(len(operators) + 1):
        known, before = _before(at, operators, estimates, bound, rows)
        if needed <= known:
            places.append((before, at))
    return min(places)[1]
