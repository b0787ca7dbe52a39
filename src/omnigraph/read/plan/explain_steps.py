"""The operators of a plan as trace entries, for an `explain` that does not execute the query."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.context.trace import Entry
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import MatchRun, Operator, Pipeline, trace_entry
from omnigraph.read.match.rank import Rank
from omnigraph.read.match.subtract import Subtract
from omnigraph.read.match.top_rows import Portions
from omnigraph.read.plan.plan import Plan
from omnigraph.read.plan.plan_shape import shape_estimates
from omnigraph.read.query.read_query import ReadQuery


def explain_steps(plan: Plan, match: MatchRun) -> list[Entry]:
    """Trace entries of all operators of a plan, with estimated row counts."""
    shape = zip(plan.shape, shape_rows(plan, match.query, match.context), strict=True)
    return [*_match_entries(plan, match), *(Entry(op.name, op.text, rows) for op, rows in shape)]


def shape_rows(plan: Plan, query: ReadQuery, context: Context) -> Iterator[float]:
    """Estimated number of output rows of each shape operator of a plan."""
    return shape_estimates(query, plan.shape, plan.match.rows, context)


def _match_entries(plan: Plan, match: MatchRun) -> Iterator[Entry]:
    match plan.match:
        case AllRows(pipeline=pipeline):
            yield from _pipeline_entries(pipeline, match)
        case Count() as count:
            yield from _count_entries(count, match)
        case Subtract() as subtract:
            entry = Entry(subtract.name, subtract.text, reason=subtract.reason)
            for _, count in subtract.terms:
                entry.steps.extend(_count_entries(count, match))
            yield entry
        case Rank() as rank:
            entry = Entry(rank.name, rank.text, rank.nodes, reason=rank.reason)
            entry.steps.extend(_count_entries(rank.count, match))
            yield entry
            yield from _pipeline_entries(rank.pipeline, match)
        case Portions() as portions:
            entry = Entry(portions.name, portions.text, portions.wanted, reason=portions.reason)
            entry.steps.extend(_pipeline_entries(portions.pipeline, match))
            yield entry


def _count_entries(count: Count, match: MatchRun) -> Iterator[Entry]:
    rest = list(_pipeline_entries(count.rest, match))
    if not (count.leaves or count.optionals):
        yield from rest
        return
    entry = Entry(count.name, count.text, reason=count.reason)
    for each in count.optionals:
        entry.steps.extend(_count_entries(each.count, match))
    entry.steps.extend(rest)
    yield entry


def _pipeline_entries(pipeline: Pipeline, match: MatchRun) -> Iterator[Entry]:
    candidates, rows = match.candidates(pipeline.block), pipeline.input_rows
    yield from match.planning_entries(pipeline.block)
    for operator, estimate in zip(pipeline.operators, pipeline.estimates, strict=True):
        entry = trace_entry(operator, estimate, candidates)
        if operator.inner is not None:
            entry.steps.extend(_pipeline_entries(operator.inner, match))
        entry.edge_access = _edge_access(operator, rows, match.context)
        yield entry
        rows = estimate


def _edge_access(operator: Operator, rows: float, context: Context) -> list[str]:
    """How an operator would find the edges of its input rows: in a topology (adjacency arrays) or by index lookups."""
    paths = (
        context.topologies.access_path(step.edge, rows, inward=step.direction is ir.Direction.IN)
        for step in operator.edge_steps
    )
    return list(dict.fromkeys(paths))
