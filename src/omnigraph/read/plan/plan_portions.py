"""When to match in sort order, and how large the first portion is."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.read.plan.block_order import BlockOrder
from omnigraph.read.plan.statistics import Cardinality

_CHEAP = 20_000.0
"""Listing is not worth avoiding if it costs less than this, in walked edges."""

_GAIN = 2.0
"""Listing must cost so many times more than portions."""

_LEAST = 1_000
_LARGE = 64
"""The first portion is sized for at least so many rows, unless that is more than one of so many nodes."""

_MORE = 2.0
"""The first portion is sized for so many times more rows than wanted."""


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
    if whole.cost <= _CHEAP:
        return None
    along = order_from(nodes.size)
    expected = max(along.rows, 1.0)
    part = min(1.0, _MORE * wanted / expected)
    if _GAIN * (nodes.total + along.cost * part) >= whole.cost:
        return None
    part = max(part, min(_LEAST / expected, 1 / _LARGE))
    return max(1, int(nodes.size * part))
