"""BlockValueOf: compute the value of an `exists` or `count` block for each row."""

# See docs/decisions/0220-exists-and-count-are-columns.md

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sorting import groups_of
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidate_values import matches_by_node
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import BlockRun, Operator, Pipeline
from omnigraph.read.match.row_counts import added
from omnigraph.read.query.block import ValueBlock
from omnigraph.read.rows.frame import Frame

CHUNK_ROWS = 1 << 20
"""The block is matched for so many rows at a time that it is expected to have about this number of matches."""

MAX_CHUNKS = 64
"""Maximum number of chunks, because each chunk repeats the fixed costs of the operators of the block."""

_OPERATOR_NAMES = {
    ir.BlockFunction.EXISTS: OperatorName.EXISTS,
    ir.BlockFunction.COUNT: OperatorName.COUNT_BLOCK,
}


@dataclass(frozen=True, slots=True)
class BlockValueOf(Operator):
    """Add a value to each row: whether a block has a match, or the number of its matches.

    The block is matched once for each distinct combination of the outer variables that it refers to.
    """

    value: ValueBlock
    pipeline: Pipeline

    @property
    def name(self) -> OperatorName:
        return _OPERATOR_NAMES[self.value.function]

    @property
    def text(self) -> str:
        outer = ", ".join(f"${name}" for name in self.pipeline.block.block.outer)
        return f"for each {outer} as value({self.value.name})"

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.value.name})

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.pipeline.block.block.outer)

    @property
    def inner(self) -> Pipeline:
        return self.pipeline

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        first, back = self._combinations(frame)
        counts = np.zeros(len(first), np.int64)
        budget = run.context.budget
        budget.spend(frame.count, columns=2)
        budget.hold(0)
        with budget.keeping(), nullcontext() if run.context.trace is None else run.context.trace.merging():
            budget.keep(frame.nbytes)
            for begin, end in self._chunks(len(first)):
                budget.check()
                counts[begin:end] = self._counts(frame.take(first[begin:end]), run)
        of_row = counts.take(back)
        exists = self.value.function is ir.BlockFunction.EXISTS
        return frame.with_value(self.value.name, pa.array(of_row > 0 if exists else of_row))

    def _counts(self, few: Frame, run: BlockRun) -> Numbers:
        """Number of matches of the block for each row."""
        start = replace(few, origin=np.arange(few.count), weight=None)
        found = run.match.refit(self.pipeline, few.count).execute(start, run.match)
        assert found.origin is not None
        if found.weight is None:
            return np.bincount(found.origin, minlength=few.count)
        return added(found.weight, found.origin, few.count)

    def _combinations(self, frame: Frame) -> tuple[Numbers, Numbers]:
        """For each distinct combination of the outer variables its first row, and for each row its combination."""
        outer = self.pipeline.block.block.outer
        if any(name in frame.paths for name in outer):
            return np.arange(frame.count), np.arange(frame.count)
        return groups_of(frame.keys(list(outer)))

    def _chunks(self, count: int) -> Iterator[tuple[int, int]]:
        """Ranges of combinations whose matches are found together. There is no range if there are no combinations."""
        each = self.pipeline.rows / max(self.pipeline.input_rows, 1.0)
        size = max(int(CHUNK_ROWS / max(each, 1.0)), -(-count // MAX_CHUNKS), 1)
        for begin in range(0, count, size):
            yield begin, min(begin + size, count)


@dataclass(frozen=True, slots=True)
class CountedValueOf(Operator):
    """Like `BlockValueOf`, for a block that refers to one variable.

    Its matches are counted for all candidates of the variable, from the degrees of nodes.
    """

    value: ValueBlock
    variable: str
    count: Count

    @property
    def name(self) -> OperatorName:
        return _OPERATOR_NAMES[self.value.function]

    @property
    def text(self) -> str:
        return f"for each ${self.variable} as value({self.value.name}), {self.count.text}"

    @property
    def reason(self) -> str:
        return self.count.reason

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.value.name})

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.variable})

    @property
    def inner(self) -> Pipeline:
        return self.count.rest

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        budget = run.context.budget
        budget.spend(frame.count, columns=2)
        budget.hold(0)
        with budget.keeping():
            budget.keep(frame.nbytes)
            matches = matches_by_node(run.candidates, self.variable, self.count, run.match)
        of_row = matches.take(frame.bindings[self.variable].numbers)
        exists = self.value.function is ir.BlockFunction.EXISTS
        return frame.with_value(self.value.name, pa.array(of_row > 0 if exists else of_row))
