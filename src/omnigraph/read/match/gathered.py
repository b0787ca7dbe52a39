"""Gathering what is known about everything that a block mentions."""

from __future__ import annotations

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.values import values_of
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.plan.shares import share
from omnigraph.read.plan.statistics import Degrees, Statistics, Values
from omnigraph.read.space.space import Space


def gathered(block: ir.Block, candidates: Candidates, context: Context) -> Statistics:
    """What is known about everything that a block mentions.

    Args:
        block: the block.
        candidates: what its variables may hold.
        context: the read.
    """
    spaces, (types, edges, far) = context.spaces, _mentioned(block)
    values: dict[tuple[str, str], Values] = {}
    shares = [_share(expr, block, candidates, context, values) for expr, _ in candidates.others]
    return Statistics(
        {node.name: candidates.held(node.name) for node in block.nodes},
        {name: spaces.nodes(name).count for name in types},
        {name: degrees(name, context) if name in far else Degrees(spaces.edges(name).count) for name in edges},
        tuple(shares),
        values,
    )


def degrees(edge: str, context: Context) -> Degrees:
    """What is known about the edges of a type."""
    topology = context.topologies.known(edge)
    return Degrees(context.spaces.edges(edge).count) if topology is None else topology.degrees


@remembered
def _mentioned(block: ir.Block) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """The types of nodes and edges that a block and those inside of it walk, and those that it walks several hops."""
    steps = [step for part in walk(block) if isinstance(part, ir.Expand) for step in part.steps]
    return (
        tuple(dict.fromkeys(name for step in steps for name in (step.left_type, step.right_type))),
        tuple(dict.fromkeys(step.edge for step in steps)),
        frozenset(step.edge for expand in block.expands if expand.hops is not None for step in expand.steps),
    )


def _share(
    expr: ir.Expr, block: ir.Block, candidates: Candidates, context: Context, seen: dict[tuple[str, str], Values]
) -> float:
    """The share of rows that a condition on several variables keeps."""

    def known(var: str, name: str) -> Values | None:
        if (var, name) not in seen:
            found = values_of(_spaces(var), name, context)
            if found is None:
                return None
            seen[var, name] = found
        return seen[var, name]

    def _spaces(var: str) -> tuple[Space, ...]:
        if any(node.name == var for node in block.nodes):
            return candidates.spaces(var)
        edge = next((e.edge_var for e in block.expands if e.edge_var is not None and e.edge_var.name == var), None)
        return () if edge is None else tuple(context.spaces.edges(name) for name in edge.types)

    return share(expr, known, context.request.params)
