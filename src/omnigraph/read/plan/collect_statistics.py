"""Collect row counts, degrees and selectivities for the planner."""

from __future__ import annotations

from omnigraph.lang.query import ir
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.plan.property_statistics import property_statistics
from omnigraph.read.plan.selectivity import selectivity
from omnigraph.read.plan.statistics import Cardinality, PropertyStatistics, Statistics
from omnigraph.read.query.block import QueryBlock, Side
from omnigraph.read.topology.topology import DegreeStatistics


def collect_statistics(block: QueryBlock, candidates: Candidates, context: Context) -> Statistics:
    """Collect row counts, degrees and selectivities of the variables, types and conditions of a block.

    Conditions on single variables are evaluated if this is cheap.
    """
    tables = context.tables
    values: dict[tuple[str, str], PropertyStatistics] = {}
    shares = [_join_selectivity(c.expr, block.block, candidates, context, values) for c in block.join_conditions]
    # With several edges, their degrees decide in which order they are walked.
    with_degrees = block.edge_types if len(block.block.expands) > 1 else block.multi_hop_edge_types
    return Statistics(
        {name: cardinality(candidates, name, context) for name in block.nodes},
        {name: tables.nodes(name).count for name in block.node_types},
        {e: _degrees(e, context, known=e in with_degrees) for e in block.edge_types},
        tuple(shares),
        _skews(block, context),
        values,
        edge_shares=candidates.edge_shares,
    )


def cardinality(candidates: Candidates, name: str, context: Context) -> Cardinality:
    """Number of candidates of a variable. It is exact if counting them is cheap, else estimated."""
    total, size = candidates.total(name), candidates.cheap_size(name)
    if size is not None:
        return Cardinality(total, size)
    return Cardinality(total, estimated_size(candidates, name, context), counted=False)


def estimated_size(candidates: Candidates, name: str, context: Context) -> float:
    """Estimated number of nodes that satisfy the conditions that refer only to this variable."""
    tables = candidates.tables(name)
    size = float(candidates.total(name))
    for condition in candidates.own(name):
        size *= selectivity(
            condition.expr, lambda _, prop: property_statistics(tables, prop, context), context.request.params
        )
    return size


def _skews(block: QueryBlock, context: Context) -> dict[tuple[Side, Side], float]:
    """For each two edge types that meet at a variable, the correlation of their degrees, if it is known."""
    found: dict[tuple[Side, Side], float] = {}
    for pair in block.meeting_sides:
        skew = context.topologies.skew(*pair)
        if skew is not None:
            found[pair] = skew
    return found


def _degrees(edge: str, context: Context, *, known: bool) -> DegreeStatistics:
    """Degree statistics of an edge type.

    If they are not asked for, or if its topology does not exist yet, only the number of edges is known.
    """
    topology = context.topologies.known(edge) if known else None
    return DegreeStatistics(context.tables.edges(edge).count) if topology is None else topology.degrees


def _join_selectivity(
    expr: ir.Expr,
    block: ir.Block,
    candidates: Candidates,
    context: Context,
    seen: dict[tuple[str, str], PropertyStatistics],
) -> float:
    """Estimated selectivity of a condition over several variables."""

    def known(var: str, name: str) -> PropertyStatistics | None:
        if (var, name) not in seen:
            found = property_statistics(tables_of(var), name, context)
            if found is None:
                return None
            seen[var, name] = found
        return seen[var, name]

    def tables_of(var: str) -> tuple[EntityTable, ...]:
        if any(node.name == var for node in block.nodes):
            return candidates.tables(var)
        edge = next((e.edge_var for e in block.expands if e.edge_var is not None and e.edge_var.name == var), None)
        return () if edge is None else tuple(context.tables.edges(name) for name in edge.types)

    return selectivity(expr, known, context.request.params)
