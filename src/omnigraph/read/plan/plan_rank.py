"""Decide whether to find the best-ranked nodes first and match only those (see `Rank`)."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.plan.block_order import BlockOrder

MIN_FULL_MATCH_COST_EDGES = 20_000.0
"""If a match of all nodes costs at most as much as walking this number of edges, all nodes are matched."""

MIN_GAIN = 1.5
"""Finding the best nodes first must be better than a match of all nodes by this factor.

A match of all nodes must cost more than `MIN_GAIN` times as much as counting, and must have more than `MIN_GAIN`
times the needed rows.
"""

_MAX_RANKED_ROWS = 1 << 30
"""If more rows than this are needed, all nodes are matched, because sums of weights could overflow."""


def ranked_nodes(
    wanted: int,
    whole: BlockOrder,
    size: float,
    leaves: Callable[[], tuple[Leaf, ...]],
    counting_cost: Callable[[tuple[Leaf, ...]], float | None],
) -> tuple[float, tuple[Leaf, ...]] | None:
    """Estimated number of nodes whose rows are needed, and the variables to count.

    Returns None if matching all nodes is cheaper.

    Args:
        wanted: number of rows that are needed: offset plus limit.
        whole: the best join order for a match of all nodes.
        size: number of candidates of the ranked variable.
        leaves: returns the variables that can be counted.
        counting_cost: returns the estimated cost of counting; None if counting would have to produce all rows.
    """
    if wanted > _MAX_RANKED_ROWS or whole.cost <= MIN_FULL_MATCH_COST_EDGES or MIN_GAIN * wanted >= whole.rows:
        return None
    counted = leaves()
    cost = counting_cost(counted)
    if cost is None or MIN_GAIN * cost >= whole.cost:
        return None
    return min(max(size * wanted / max(whole.rows, 1.0), 1.0), float(wanted), size), counted
