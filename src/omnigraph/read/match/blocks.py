"""Rows of a match in blocks, where all of them at once would take more memory than the read may take.

A block is what comes of some of the nodes that one variable may hold. Each row holds one of those nodes, so every row
is in one block.
"""

# See docs/decisions/0087-a-read-spills-by-dividing.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from omnigraph.errors import BudgetExceededError
from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import Counting, can_be_counted, counted
from omnigraph.read.match.frame import Frame
from omnigraph.read.match.match import solve
from omnigraph.read.space.space import Numbers

_SHARE = 2
"""A block may take one of so many parts of the memory: the rest is for what becomes of its rows."""

_FEWER = 4
"""After a block that takes too much, the next is smaller by this factor; after a small one, it is larger."""

Rows = tuple[Frame, Numbers | None]
"""Rows, and how many each of them stands for, where that is not one."""


def is_short_of_memory(error: BudgetExceededError) -> bool:
    """Whether it is memory that a read would take too much of."""
    return error.resource == "bytes"


def blocks(read: ir.Read, context: Context) -> Iterator[Rows]:
    """The rows of the match of a read, block by block. There is always one.

    Raises:
        BudgetExceededError: what comes of a single node takes more memory than there may be.
    """
    countable = can_be_counted(read, context)
    block = read.match if countable is None else countable.block
    candidates = Candidates.of_block(read.match, context) if countable is None else countable.candidates
    name = max((node.name for node in block.nodes), key=candidates.size, default=None)
    if name is None or candidates.size(name) == 0:
        yield _solved(block, candidates, countable, context)
        return
    chosen, budget = candidates.of(name), context.budget
    first, total = 0, sum(map(len, chosen))
    size = max(total // _FEWER, 1)
    while first < total:
        last = min(first + size, total)
        share = None if budget.most is None else max(budget.most // _SHARE, budget.kept)
        seen, found = budget.rows, None
        try:
            with budget.at_most(budget.most if size == 1 else share):
                found = _solved(block, candidates.only(name, _between(chosen, first, last)), countable, context)
        except BudgetExceededError as error:
            if size == 1 or not is_short_of_memory(error):
                raise
            budget.rows = seen
        budget.hold(0 if found is None else found[0].nbytes)
        if found is None:
            size = max(size // _FEWER, 1)
            continue
        first = last
        if share is None or found[0].nbytes * _FEWER**2 < share:
            size *= _FEWER
        yield found
        budget.hold(0)


def _solved(block: ir.Block, candidates: Candidates, countable: Counting | None, context: Context) -> Rows:
    if countable is None:
        return solve(block, Frame(1, searching=context.search), context, candidates), None
    return counted(replace(countable, candidates=candidates), context)


def _between(parts: Sequence[Numbers], first: int, last: int) -> tuple[Numbers, ...]:
    """From one place to another in several arrays, one behind the other."""
    begins = np.cumsum([0, *map(len, parts)]).tolist()
    return tuple(
        part[max(first - begin, 0) : max(last - begin, 0)] for part, begin in zip(parts, begins[:-1], strict=True)
    )
