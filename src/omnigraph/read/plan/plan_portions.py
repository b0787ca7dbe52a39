"""When to match in sort order, and how large the first portion is."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.read.plan.block_order import BlockOrder
from omnigraph.read.plan.statistics import Cardinality

MIN_LISTING_COST_EDGES = 20_000.0
"""If listing all rows costs at most this number of walked edges, all rows are listed."""

MIN_GAIN = 2.0
"""Listing must cost this many times more than portions."""

FIRST_PORTION_ROWS = 1_000
"""The first portion is sized for at least this number of rows, within `_FIRST_PORTION_RATIO`."""

_FIRST_PORTION_RATIO = 64
"""`FIRST_PORTION_ROWS` enlarges the first portion to at most 1 / this of the nodes."""

_FIRST_PORTION_MARGIN = 2.0
"""The first portion is sized for this many times the wanted rows."""


def first_portion(
    wanted: int, whole: BlockOrder, nodes: Cardinality, order_from: Callable[[float], BlockOrder]
) -> int | None:
    """Number of nodes in the first portion; None if listing all rows is cheaper.

    Args:
        wanted: number of rows that are wanted.
        whole: the join order that lists all rows.
        nodes: cardinality of the variable whose property is the first sort key.
        order_from: returns the join order that starts with a given number of nodes of that variable.
    """
    if whole.cost <= MIN_LISTING_COST_EDGES:
        return None
    along = order_from(nodes.size)
    expected = max(along.rows, 1.0)
    part = min(1.0, _FIRST_PORTION_MARGIN * wanted / expected)
    if MIN_GAIN * (nodes.total + along.cost * part) >= whole.cost:
        return None
    part = max(part, min(FIRST_PORTION_ROWS / expected, 1 / _FIRST_PORTION_RATIO))
    return max(1, int(nodes.size * part))
