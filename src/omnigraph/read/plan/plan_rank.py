"""When to find the best-ranked nodes before their rows are listed."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.read.match.count import Leaf
from omnigraph.read.plan.block_order import BlockOrder

MIN_LISTING_COST_EDGES = 20_000.0
"""If listing all rows costs at most this number of walked edges, all rows are listed."""

MIN_GAIN = 1.5
"""Listing must cost this many times more than counting, and produce this many times more rows than wanted."""

_MAX_RANKED_ROWS = 1 << 30
"""If more rows than this are wanted, all rows are listed, because sums of capped weights could overflow."""


def ranked_nodes(
    wanted: int,
    whole: BlockOrder,
    size: float,
    leaves: Callable[[], tuple[Leaf, ...]],
    counting_cost: Callable[[tuple[Leaf, ...]], float | None],
) -> tuple[float, tuple[Leaf, ...]] | None:
    """Estimated number of nodes whose rows are needed, and the variables to count; None if listing is cheaper.

    Args:
        wanted: number of rows that are wanted.
        whole: the join order that lists all rows.
        size: number of candidates of the ranked variable.
        leaves: variables that can be counted.
        counting_cost: estimated cost of counting; None if all rows have to be listed anyway.
    """
    if wanted > _MAX_RANKED_ROWS or whole.cost <= MIN_LISTING_COST_EDGES or MIN_GAIN * wanted >= whole.rows:
        return None
    counted = leaves()
    cost = counting_cost(counted)
    if cost is None or MIN_GAIN * cost >= whole.cost:
        return None
    return min(max(size * wanted / max(whole.rows, 1.0), 1.0), float(wanted), size), counted
