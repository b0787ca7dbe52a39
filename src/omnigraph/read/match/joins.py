"""Joins with inner blocks: left join for `optional`, anti join for `not`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.columns.sorting import groups_of
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.pipeline import BlockRun, MatchRun, Operator, Pipeline
from omnigraph.read.match.row_counts import added, products
from omnigraph.read.rows.frame import Frame


@dataclass(frozen=True, slots=True)
class LeftJoin(Operator):
    """Join each row with the rows of an optional block. Without a match, the variables of the block are null."""

    pipeline: Pipeline

    @property
    def name(self) -> OperatorName:
        return OperatorName.LEFT

    @property
    def text(self) -> str:
        return _outer_text(self.pipeline)

    @property
    def binds(self) -> frozenset[str]:
        return self.pipeline.block.introduced

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.pipeline.block.block.outer)

    @property
    def inner(self) -> Pipeline:
        return self.pipeline

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        found, back = _run_distinct(self.pipeline, frame, run.match)
        assert found.origin is not None
        groups = int(back.max()) + 1 if len(back) else 0
        order = np.argsort(found.origin, kind="stable")
        first = np.searchsorted(found.origin[order], np.arange(groups + 1))
        degree = np.diff(first)[back] if groups else np.array([], np.int64)
        wide = np.maximum(degree, 1)
        run.context.budget.spend(int(wide.sum()), columns=frame.width + found.width + 4)
        rows = np.repeat(np.arange(frame.count), wide)
        at = np.repeat(first[:-1][back] - (np.cumsum(wide) - wide), wide) + np.arange(len(rows)) if groups else rows
        matched = order[np.minimum(at, len(order) - 1)] if len(order) else 0
        inner = np.where(np.repeat(degree == 0, wide), NOTHING, matched)
        result = frame.take(rows)
        for name, binding in found.bindings.items():
            if name not in frame.bindings:
                result = result.bind(name, binding.take(inner))
        for name, path in found.paths.items():
            if name not in frame.paths:
                result = result.bind_path(name, path.take(inner))
        return result

    def execute_counting(self, frame: Frame, run: BlockRun) -> Frame:
        inner = replace(self.pipeline, needed=frozenset(), counting=True)
        found, back = _run_distinct(inner, frame, run.match)
        assert found.origin is not None
        weights = np.ones(found.count, np.int64) if found.weight is None else found.weight
        counts = added(weights, found.origin, int(back.max()) + 1 if len(back) else 0)
        factors = np.maximum(counts, 1).take(back)
        return replace(frame, weight=factors if frame.weight is None else products(frame.weight, factors))


@dataclass(frozen=True, slots=True)
class AntiJoin(Operator):
    """Keep the rows for which a negated block has no match."""

    pipeline: Pipeline

    @property
    def name(self) -> OperatorName:
        return OperatorName.ANTI

    @property
    def text(self) -> str:
        return _outer_text(self.pipeline)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.pipeline.block.block.outer)

    @property
    def inner(self) -> Pipeline:
        return self.pipeline

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        found, back = _run_distinct(self.pipeline, frame, run.match)
        assert found.origin is not None
        solved = np.zeros(int(back.max()) + 1 if len(back) else 0, bool)
        solved[found.origin] = True
        return frame.filter(~solved[back])


def _outer_text(pipeline: Pipeline) -> str:
    outer = pipeline.block.block.outer
    return f"for each {', '.join(f'${name}' for name in outer)}" if outer else ""


def _run_distinct(pipeline: Pipeline, frame: Frame, match: MatchRun) -> tuple[Frame, Numbers]:
    """Run an inner block once for each distinct combination of the outer variables that it refers to.

    Returns:
        The rows of the inner block, and for each row of the frame, the index of its combination. In the rows of the
        inner block, `origin` is the index of the combination.
    """
    outer = pipeline.block.block.outer
    has_path = any(name in frame.paths for name in outer)
    keys = np.arange(frame.count) if has_path else frame.keys(list(outer))
    first, back = groups_of(keys)
    few = frame.take(first)
    start = replace(few, origin=np.arange(few.count), weight=None)
    return match.refit(pipeline, few.count).execute(start, match), back
