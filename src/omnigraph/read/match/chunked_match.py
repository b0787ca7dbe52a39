"""Chunked matching, for matches whose rows together exceed the memory budget.

The candidates of one variable are divided into ranges. A chunk contains all rows in which this variable is bound to a
candidate of one range. So each row is in exactly one chunk. After a stage, its rows are divided instead if there are
more of them.
"""

# See docs/decisions/0087-a-read-spills-by-dividing.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from omnigraph.errors import BudgetExceededError
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import MatchRun
from omnigraph.read.rows.frame import Frame

CHUNK_MEMORY_RATIO = 2
"""A chunk may take 1 / `CHUNK_MEMORY_RATIO` of the memory budget. The rest is for sorting and grouping its rows."""

_RESIZE_FACTOR = 4
"""After a chunk that takes too much memory, chunks get smaller by this factor; after a small chunk, they get larger."""


def is_out_of_memory(error: BudgetExceededError) -> bool:
    """Whether a read exceeded its memory budget, and not another limit."""
    return error.resource == "bytes"


def match_in_chunks(plan: AllRows | Count, match: MatchRun) -> Iterator[tuple[Frame, Numbers | None]]:
    """Rows of a match in chunks, with their weights (see `Count`). There is at least one chunk.

    Raises:
        BudgetExceededError: the rows of a single candidate exceed the memory budget.
    """
    parts, total = _divided(plan, match)
    budget = match.context.budget
    if total == 0:
        yield plan.execute(match)
        return
    first = 0
    size = max(total // _RESIZE_FACTOR, 1)
    while first < total:
        last = min(first + size, total)
        share = None if budget.most is None else max(budget.most // CHUNK_MEMORY_RATIO, budget.kept)
        seen, found = budget.rows, None
        try:
            with budget.at_most(budget.most if size == 1 else share):
                found = _execute(plan, parts(first, last))
        except BudgetExceededError as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            budget.rows = seen
        budget.hold(0 if found is None else found[0].nbytes)
        if found is None:
            size = max(size // _RESIZE_FACTOR, 1)
            continue
        first = last
        if share is None or found[0].nbytes * _RESIZE_FACTOR**2 < share:
            size *= _RESIZE_FACTOR
        yield found
        budget.hold(0)


def _divided(plan: AllRows | Count, match: MatchRun) -> tuple[Callable[[int, int], MatchRun], int]:
    """A function that returns the state for a part of the match, from an index to another, and the largest index.

    The candidates of the largest variable are divided, or the rows of the stage before the match if there are more.
    """
    block = plan.rest.block if isinstance(plan, Count) else plan.pipeline.block
    candidates, before = match.candidates(block), match.input
    name = max((node.name for node in block.block.nodes), key=candidates.size, default=None)
    size = 0 if name is None else candidates.size(name)
    if before is not None and (name is None or before.count > size):
        return lambda first, last: match.with_input(before.part(first, last)), before.count
    if name is None or size == 0:
        return lambda first, last: match, 0
    chosen = candidates.of(name)

    def part(first: int, last: int) -> MatchRun:
        return match.with_candidates(block, candidates.only(name, _between(chosen, first, last)))

    return part, sum(map(len, chosen))


def _execute(plan: AllRows | Count, match: MatchRun) -> tuple[Frame, Numbers | None]:
    if isinstance(plan, AllRows):
        plan = AllRows(match.replan(plan.pipeline, match.start().count))
    return plan.execute(match)


def _between(parts: Sequence[Numbers], first: int, last: int) -> tuple[Numbers, ...]:
    """The elements `first` to `last` (exclusive) of the concatenation of several arrays, as one slice per array."""
    begins = np.cumsum([0, *map(len, parts)]).tolist()
    return tuple(
        part[max(first - begin, 0) : max(last - begin, 0)] for part, begin in zip(parts, begins[:-1], strict=True)
    )
