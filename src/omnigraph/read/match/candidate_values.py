"""Evaluate inner blocks once for each candidate of a variable, before the match."""

# See docs/decisions/0267-blocks-of-one-variable-choose-candidates.md

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.errors import BudgetExceededError
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.chunked_match import is_out_of_memory, match_in_chunks
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import MatchRun
from omnigraph.read.match.row_counts import added
from omnigraph.read.query.block import ValueBlock
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.evaluate import is_true
from omnigraph.read.rows.frame import Binding, Frame, true_rows


def without_matches(candidates: Candidates, name: str, count: Count, match: MatchRun) -> Numbers:
    """The candidates of a variable for which an inner block has no match."""
    (numbers,) = candidates.of(name)
    return numbers.compress(matches_by_node(candidates, name, count, match).take(numbers) == 0)


def satisfying(
    candidates: Candidates,
    name: str,
    condition: Expression,
    values: Sequence[tuple[ValueBlock, Count]],
    match: MatchRun,
) -> Numbers:
    """The candidates of a variable for which a condition is true.

    Args:
        candidates: the candidates.
        name: the variable.
        condition: the condition. It refers to the variable, and to values of `exists` and `count` blocks.
        values: these blocks, each with the operator that counts its matches for each candidate.
        match: the execution state.
    """
    (numbers,) = candidates.of(name)
    frame = Frame(len(numbers), {name: Binding(candidates.tables(name), numbers)}, searching=match.context.search)
    match.context.budget.spend(len(numbers), columns=1 + len(values))
    for value, count in values:
        found = matches_by_node(candidates, name, count, match).take(numbers)
        exists = value.function is ir.BlockFunction.EXISTS
        frame = frame.with_value(value.name, pa.array(found > 0 if exists else found))
    return numbers.compress(true_rows(is_true(condition, frame, match.context.request)))


def matches_by_node(candidates: Candidates, name: str, count: Count, match: MatchRun) -> Numbers:
    """The number of matches of an inner block for each node of a variable, by node number."""
    slots = candidates.tables(name)[0].slots
    found: Numbers | None = None
    for frame, weights in _rows(count, match):
        assert weights is not None
        part = added(weights, frame.bindings[name].numbers, slots)
        found = part if found is None else added(np.append(found, part), np.tile(np.arange(slots), 2), slots)
    assert found is not None
    return found


def _rows(count: Count, match: MatchRun) -> Iterable[tuple[Frame, Numbers | None]]:
    """The rows of a count with their weights. They are in several chunks if they do not fit the memory budget at once.

    A read with a trace has no chunks. It fails, and runs again without a trace.
    """
    budget = match.context.budget
    seen = budget.rows
    try:
        return [count.count(match)]
    except BudgetExceededError as error:
        if match.context.trace is not None or not is_out_of_memory(error):
            raise
    budget.rows = seen
    budget.hold(0)
    return match_in_chunks(count, match)
