"""Portions: if only the first rows are needed, match batches of nodes in sort order until there are enough rows.

This is possible if the first sort key is a property of one variable. The nodes of that variable are sorted by the key
and matched in batches. All rows of a later batch come after all rows of earlier batches. A query without sort keys is
sorted by the ids of its variables, so its limit is handled in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import Key, foremost
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.context.trace import Entry
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.rows.frame import Binding, Frame, concat_frames

_FASTER = 4
"""Each batch has this many times as many nodes as the previous batch."""


@dataclass(frozen=True, slots=True)
class Portions:
    """Match batches of nodes, in the order of the first sort key, until there are enough rows.

    Attributes:
        key: the first sort key.
        var: the variable whose property is the sort key.
        wanted: number of rows that are needed: offset plus limit.
        first: number of nodes in the first batch.
        pipeline: matches the nodes of one batch.
        distinct: for a query with `distinct`, keeps one of the rows with equal result columns; else None. Rows of
            different batches are never equal, because their first sort keys differ.
    """

    key: ir.SortKey
    var: str
    wanted: int
    first: int
    pipeline: Pipeline
    distinct: Callable[[Frame], Frame] | None = None

    @property
    def name(self) -> OperatorName:
        return OperatorName.PORTIONS

    @property
    def text(self) -> str:
        down = " desc" if self.key.descending else ""
        return f"by {ir.expression(self.key.expr)}{down}, until there are {self.wanted} rows"

    @property
    def reason(self) -> str:
        return f"the first {self.first} nodes of ${self.var} are expected to have enough rows"

    @property
    def rows(self) -> float:
        """Estimated number of output rows."""
        return float(self.wanted)

    def execute(self, match: MatchRun) -> tuple[Frame, Numbers | None]:
        """Rows of the match, and their weights if the pipeline merges duplicates.

        The rows include the first rows of the result; other rows may be missing.
        """
        trace = match.context.trace
        if trace is None:
            frame = self._execute(match)
        else:
            with trace.running(Entry(self.name, self.text, self.wanted, reason=self.reason)) as entry:
                frame = self._execute(match)
            entry.rows, entry.size = frame.count, frame.nbytes
        return replace(frame, weight=None), frame.weight

    def _execute(self, match: MatchRun) -> Frame:
        start, trace = self._start(match), match.context.trace
        values = _key_values(self.key, start)
        key = Key(lambda _: values, self.key.descending, self.key.nulls_first)
        found: list[Frame] = []
        left, size, rows = np.arange(start.count), self.first, 0
        while not found or (len(left) and rows < self.wanted):
            match.context.budget.check()
            # Nodes with equal keys are in the same batch.
            chosen = foremost(values.take(pa.array(left)), key, size) if size * _FASTER < len(left) else None
            part = start.take(left if chosen is None else left[chosen])
            pipeline = match.refit(self.pipeline, part.count)
            if trace is None:
                frame = pipeline.execute(part, match)
            else:
                with trace.merging():
                    frame = pipeline.execute(part, match)
            found.append(frame if self.distinct is None else self.distinct(frame))
            weight = found[-1].weight
            rows += found[-1].count if weight is None else int(weight.sum())
            left, size = np.delete(left, slice(None) if chosen is None else chosen), size * _FASTER
        return found[0] if len(found) == 1 else concat_frames(found)

    def _start(self, match: MatchRun) -> Frame:
        """All candidates of the variable, one row each."""
        candidates = match.candidates(self.pipeline.block)
        tables, numbers = candidates.tables(self.var), candidates.of(self.var)
        type_index = None
        if len(tables) != 1:
            type_index = np.repeat(np.arange(len(tables)), [len(part) for part in numbers])
        everything = np.concatenate([np.array([], np.int64), *numbers])
        match.context.budget.spend(len(everything), columns=4)
        binding = Binding(tables, everything, type_index)
        return Frame(len(everything), {self.var: binding}, searching=match.context.search)


def _key_values(key: ir.SortKey, frame: Frame) -> pa.Array:
    """For each row, the value of a sort key, or an integer that sorts in the same way."""
    expr = key.expr
    if isinstance(expr, ir.Prop):
        return frame.prop(expr.var, expr.name)
    assert isinstance(expr, ir.Ident)
    places = frame.bindings[expr.var].id_ranks() if expr.role is ir.Role.ID else None
    return frame.ident(expr.var, expr.role) if places is None else places
