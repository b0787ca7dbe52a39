"""Decide whether to match batches of nodes in sort order (see `Portions`), and how large the first batch is."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from omnigraph.read.plan.block_order import BlockOrder
from omnigraph.read.plan.statistics import Cardinality

MIN_FULL_MATCH_COST_EDGES = 20_000.0
"""If a match of all nodes costs at most as much as walking this number of edges, batches are not used."""

MIN_GAIN = 2.0
"""Batches are used if a match of all nodes costs more than this many times the cost of matching in batches."""

FIRST_PORTION_ROWS = 1_000
"""The first batch is sized for at least this number of result rows, unless `_FIRST_PORTION_RATIO` limits it."""

_FIRST_PORTION_RATIO = 64
"""The first batch is enlarged for `FIRST_PORTION_ROWS` rows, but to at most 1 / `_FIRST_PORTION_RATIO` of the nodes."""

_FIRST_PORTION_MARGIN = 2.0
"""The first batch is sized for this many times the needed rows."""


def first_portion(
    wanted: int,
    whole: BlockOrder,
    nodes: Cardinality,
    order_from: Callable[[float], BlockOrder],
    alternative: float,
    most_rows: float = inf,
) -> int | None:
    """Number of nodes in the first batch; None if a match of all nodes is cheaper.

    Args:
        wanted: number of rows that are needed: offset plus limit.
        whole: the best join order for a match of all nodes.
        nodes: cardinality of the variable whose property is the first sort key.
        order_from: returns the join order that starts with a given number of nodes of that variable.
        alternative: cost of another way to match all nodes.
        most_rows: estimated number of rows of the result without a limit, if it is less than that of the match.
    """
    cost = min(whole.cost, alternative)
    if cost <= MIN_FULL_MATCH_COST_EDGES:
        return None
    along = order_from(nodes.size)
    expected = max(min(along.rows, most_rows), 1.0)
    part = min(1.0, _FIRST_PORTION_MARGIN * wanted / expected)
    if MIN_GAIN * (nodes.total + along.cost * part) >= cost:
        return None
    part = max(part, min(FIRST_PORTION_ROWS / expected, 1 / _FIRST_PORTION_RATIO))
    return max(1, int(nodes.size * part))
