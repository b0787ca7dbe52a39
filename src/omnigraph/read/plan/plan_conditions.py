"""Evaluate conditions while edges are walked, before rows are produced for the reached nodes."""

# See docs/decisions/0261-conditions-are-tested-before-rows-are-made.md

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang.query import ir
from omnigraph.read.match.expand import Expand
from omnigraph.read.match.filter import Filter
from omnigraph.read.match.pipeline import Operator


def with_early_conditions(
    operators: Sequence[Operator], estimates: tuple[float, ...]
) -> tuple[list[Operator], tuple[float, ...]]:
    """Move the conditions that follow an expand into it, if they refer to the variable that it binds.

    Args:
        operators: the operators of a block.
        estimates: estimated number of rows after each operator; may be empty.
    """
    found: list[Operator] = []
    kept: list[float] = []
    at = 0
    walk: Expand | None = None
    for place, operator in enumerate(operators):
        if isinstance(operator, Filter) and walk is not None and _is_early(operator, walk):
            walk = Expand(walk.expand, walk.forward, walk.late, (*walk.early, operator.condition))
            found[at] = walk
            if kept:
                share = estimates[place] / estimates[place - 1] if estimates[place - 1] else 0.0
                kept[at:] = [estimate * share for estimate in kept[at:]]
            continue
        if not isinstance(operator, Filter):
            at, walk = len(found), operator if isinstance(operator, Expand) and _is_plain(operator) else None
        found.append(operator)
        kept += estimates[place : place + 1]
    return found, tuple(kept)


def _is_early(following: Filter, walk: Expand) -> bool:
    return walk.far in following.condition.variables and not following.condition.is_search


def _is_plain(walk: Expand) -> bool:
    """Whether a traversal walks one edge type in one direction, without an edge variable."""
    expand = walk.expand
    return len(expand.steps) == 1 and expand.edge_var is None and expand.steps[0].direction is not ir.Direction.BOTH
