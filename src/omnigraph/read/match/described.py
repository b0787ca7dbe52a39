"""Steps for people: what each does, why it is done so, and what it looks at."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.plan.plan import Step
from omnigraph.read.plan.trace import Entry


def entry_of(step: Step, estimate: float, candidates: Candidates) -> Entry:
    """A step as an entry of a trace.

    Args:
        step: the step.
        estimate: about how many rows are expected after it.
        candidates: what the variables of its block may hold.
    """
    entry = Entry(step.operator, step.text, estimate)
    match step.part:
        case ir.NodeVar(name=name):
            if not candidates.is_chosen(name):
                _push(entry, candidates.own(name))
        case ir.Expand(left=left, right=right):
            if step.late:
                _push(entry, candidates.own(left if step.reversed else right))
                entry.reason = "conditions are tried on what is reached"
            elif step.move is not None and step.move.closing:
                entry.reason = "both ends are known"
            elif step.reversed:
                entry.reason = "fewer rows than from the left"
        case ir.Block():
            pass
        case condition:
            entry.columns = _columns([condition])
    return entry


def _push(entry: Entry, conditions: Iterable[ir.Expr]) -> None:
    """Conditions that are tried in a step."""
    conditions = tuple(conditions)
    entry.pushed = tuple(map(ir.expression, conditions))
    entry.columns = _columns(conditions)
    entry.text += f" where {' and '.join(entry.pushed)}"


def _columns(conditions: Iterable[ir.Expr]) -> tuple[str, ...]:
    """The properties that conditions look at."""
    props = (part for part in walk(tuple(conditions)) if isinstance(part, ir.Prop))
    return tuple(dict.fromkeys(f"${prop.var}.{prop.name}" for prop in props))
