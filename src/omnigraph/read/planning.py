"""What a read would do: its steps, with what is expected of each, before any is taken."""

from __future__ import annotations

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import can_be_counted
from omnigraph.read.match.described import entry_of
from omnigraph.read.match.first import in_portions
from omnigraph.read.match.gathered import gathered
from omnigraph.read.match.ranked import Ranked, ranked_first
from omnigraph.read.match.values import values_of
from omnigraph.read.plan.plan import Operator, Step, binds, planned
from omnigraph.read.plan.shaping import shaping
from omnigraph.read.plan.trace import Entry, Trace
from omnigraph.read.shape.shape import wanted, window


def plan(read: ir.Read, context: Context) -> None:
    """Note in the trace what `run` would do.

    Where it is quick, conditions on single variables are tried: the order of the steps depends on how many nodes
    satisfy them.
    """
    trace = context.trace
    assert trace is not None
    with context.budget.running():
        countable = can_be_counted(read, context)
        if countable is not None:
            trace.note(Entry(Operator.COUNT, countable.text, reason="what is only counted is not listed"))
            rows = _plan_block(countable.block, frozenset(), 1, context, trace, countable.candidates)
        else:
            rows = _plan_listed(read, context, trace)
        expect(read, rows, context, trace)
        for entry in trace.expected.values():
            trace.note(entry)


def expect(read: ir.Read, rows: float, context: Context, trace: Trace) -> None:
    """Tell a trace what is expected of the steps that make a result of about so many rows."""
    nodes = {node.name: node for node in read.match.nodes}

    def distinct(expr: ir.Expr) -> float | None:
        if not isinstance(expr, ir.Prop) or expr.var not in nodes:
            return None
        values = values_of([context.spaces.nodes(name) for name in nodes[expr.var].types], expr.name, context)
        return None if values is None else values.distinct

    for step in shaping(read, rows, *window(read, context), distinct):
        trace.expected[step.operator] = Entry(step.operator, step.text, step.estimate)


def _plan_listed(read: ir.Read, context: Context, trace: Trace) -> float:
    candidates, most = Candidates.of_block(read.match, context), wanted(read, context)
    ranked = ranked_first(read, most, candidates, context)
    if ranked is not None:
        return _plan_ranked(read, ranked, context, trace)
    portions = in_portions(read, most, candidates, context)
    if portions is None:
        return _plan_block(read.match, frozenset(), 1, context, trace, candidates)
    with trace.taking(Entry(Operator.PORTIONS, portions.text, portions.wanted, reason=portions.reason)) as entry:
        bound = frozenset({portions.var})
        _plan_block(read.match, bound, portions.first, context, trace, portions.candidates)
    entry.seconds, entry.calls = None, 0
    return float(portions.wanted)


def _plan_ranked(read: ir.Read, ranked: Ranked, context: Context, trace: Trace) -> float:
    counting = ranked.counting
    with trace.taking(Entry(Operator.RANK, ranked.text, ranked.nodes, reason=ranked.reason)) as entry:
        if counting.leaves:
            trace.note(Entry(Operator.COUNT, counting.text, reason="what is only counted is not listed"))
        _plan_block(counting.block, frozenset(), 1, context, trace, counting.candidates)
    entry.seconds, entry.calls = None, 0
    return _plan_block(read.match, frozenset({ranked.var}), ranked.nodes, context, trace, counting.candidates)


def _plan_block(
    block: ir.Block, bound: frozenset[str], rows: float, context: Context, trace: Trace, candidates: Candidates
) -> float:
    """Note the steps of a block. Returns about how many rows there are after them."""
    statistics = gathered(block, candidates, context)
    trace.know(statistics)
    plan = planned(block, candidates.others, bound, rows, statistics)
    for step, estimate in zip(plan.steps, plan.estimates(rows, statistics), strict=True):
        entry = entry_of(step, estimate, candidates)
        if isinstance(step.part, ir.Block):
            with trace.taking(entry):
                _plan_block(step.part, bound, rows, context, trace, Candidates.of_block(step.part, context))
            entry.seconds, entry.calls = None, 0
        else:
            entry.ways = _ways(step, rows, context)
            trace.note(entry)
        bound, rows = bound | binds(step), estimate
    return rows


def _ways(step: Step, rows: float, context: Context) -> list[str]:
    """How the edges of a step would be found from about so many rows."""
    if not isinstance(step.part, ir.Expand):
        return []
    ways = (
        context.topologies.way(part.edge, rows, inward=(part.direction is ir.Direction.IN) != step.reversed)
        for part in step.part.steps
    )
    return list(dict.fromkeys(ways))
