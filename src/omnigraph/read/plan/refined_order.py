"""Join orders of expensive blocks: conditions are evaluated first, and degrees of the candidates are added up.

The estimates of a cheap block come from samples and average degrees. If the best order of a block is expensive, it
costs little in comparison to evaluate the conditions on single variables before the order is chosen. Then the numbers
of candidates are exact, and so are the numbers of their edges: a condition may select the nodes with the most edges,
and the candidates of two variables may have more edges between them than other nodes.
"""

# See docs/decisions/0266-expensive-joins-are-ordered-with-exact-numbers.md

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.plan.block_order import BlockOrder, order_block
from omnigraph.read.plan.collect_statistics import collect_statistics
from omnigraph.read.plan.statistics import Statistics
from omnigraph.read.query.block import QueryBlock, Side, side_at

MIN_REFINED_COST_EDGES = 500_000.0
"""Cheaper orders are not refined. The unit is the cost of walking one edge."""

MIN_COST_PER_NODE_EDGES = 2.0
"""The conditions on a variable are evaluated early if the order costs more than this per node of its types."""

MIN_COST_PER_COUNTED_EDGE = 16.0
"""The edges between the candidates of two variables are counted if the order costs more than this per edge."""

_COUNTED_EDGE_BYTES = 256
"""The edges are only counted if the memory budget is at least this number of bytes per edge."""


def refined_order(
    block: QueryBlock,
    bound: frozenset[str],
    rows: float,
    candidates: Candidates,
    context: Context,
    needed: frozenset[str] | None = None,
    weighted: frozenset[str] = frozenset(),
) -> tuple[BlockOrder, Statistics]:
    """The best join order of a block, and the statistics that it was chosen with. See `order_block`."""
    statistics = collect_statistics(block, candidates, context)
    order = order_block(block, bound, rows, statistics, needed, weighted)
    if order.cost < MIN_REFINED_COST_EDGES or not block.block.expands:
        return order, statistics
    evaluated = _evaluate(block, candidates, order.cost)
    degrees, skews = _candidate_degrees(block, candidates, context)
    if not evaluated and not degrees:
        return order, statistics
    statistics = collect_statistics(block, candidates, context) if evaluated else statistics
    limit, memory = order.cost / MIN_COST_PER_COUNTED_EDGE, context.budget.most
    limit = limit if memory is None else min(limit, memory / _COUNTED_EDGE_BYTES)
    shares = _edge_shares(block, candidates, context, limit)
    statistics = replace(
        statistics, candidate_degrees=degrees, candidate_skews=skews, edge_shares={**statistics.edge_shares, **shares}
    )
    return order_block(block, bound, rows, statistics, needed, weighted), statistics


def _evaluate(block: QueryBlock, candidates: Candidates, cost: float) -> bool:
    """Evaluate the conditions on single variables, if this is cheap in comparison with the order.

    Returns whether any were evaluated. Text searches are not.
    """
    done = False
    for name in block.nodes:
        if candidates.is_chosen(name) or any(condition.is_search for condition in candidates.own(name)):
            continue
        if candidates.total(name) * MIN_COST_PER_NODE_EDGES <= cost:
            candidates.size(name)
            done = True
    return done


Degrees = dict[tuple[str, Side], float]
Skews = dict[tuple[str, Side, Side], float]


def _candidate_degrees(block: QueryBlock, candidates: Candidates, context: Context) -> tuple[Degrees, Skews]:
    """For each variable whose candidates are known, the degrees of the candidates, and how much they correlate."""
    degrees: Degrees = {}
    skews: Skews = {}
    for name, sides in block.sides.items():
        if not _is_known(name, candidates) or not candidates.restricts(name):
            continue
        nodes, found = candidates.of(name)[0], dict[Side, npt.NDArray[np.float64]]()
        for side in dict.fromkeys(sides):
            topology = context.topologies.known(side.edge)
            if topology is None or not len(nodes):
                continue
            adjacency = topology.into if side.inward else topology.out
            average = adjacency.size / max(candidates.total(name), 1)
            if average:
                found[side] = adjacency.degree.take(nodes).astype(np.float64)
                degrees[name, side] = float(found[side].mean()) / average
        for one, other in combinations([side for side in sides if side in found], 2):
            one, other = min(one, other), max(one, other)
            both = float(found[one].mean() * found[other].mean())
            skews[name, one, other] = float((found[one] * found[other]).mean()) / both if both else 1.0
    return degrees, skews


def _is_known(name: str, candidates: Candidates) -> bool:
    """Whether a variable belongs to the block, has one node type, and its candidates are known."""
    return candidates.knows(name) and len(candidates.tables(name)) == 1 and candidates.is_chosen(name)


def _edge_shares(
    block: QueryBlock, candidates: Candidates, context: Context, limit: float
) -> dict[tuple[str, str, Side], float]:
    """For traversals between two variables, the fraction of the pairs of their candidates that an edge joins.

    Only traversals are counted that have at most `limit` edges at the candidates of one of the variables.
    """
    found: dict[tuple[str, str, Side], float] = {}
    for expand in block.block.expands:
        side, ends = side_at(expand, expand.left), (expand.left, expand.right)
        if side is None or expand.left == expand.right or not all(_is_known(name, candidates) for name in ends):
            continue
        topology = context.topologies.known(side.edge)
        if topology is None or not any(map(candidates.restricts, ends)):
            continue
        sides = (topology.into, topology.out) if side.inward else (topology.out, topology.into)
        walks = []
        for name, other, adjacency in zip(ends, reversed(ends), sides, strict=True):
            edges = adjacency.size
            if candidates.restricts(name):
                edges = int(adjacency.degree.take(candidates.of(name)[0]).sum())
            walks.append((edges, name, other, adjacency))
        edges, name, other, adjacency = min(walks, key=lambda walk: walk[0])
        if edges <= limit:
            _, far = adjacency.neighbours_of(candidates.of(name)[0])
            mask = candidates.masks(other)[0]
            joined = len(far) if mask is None else int(np.count_nonzero(mask.take(far)))
            found[*ends, side] = joined / max(candidates.size(name) * candidates.size(other), 1)
    return found
