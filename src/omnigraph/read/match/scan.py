"""Scan: bind a variable to all its candidate nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame, concat_frames

CHUNK_ROWS = 1 << 19
"""Rows of a cross product that are computed at a time."""


@dataclass(frozen=True, slots=True)
class Scan(Operator):
    """Combine every row with every candidate node of a variable.

    Attributes:
        node: the variable.
        is_product: whether the input rows already have bound variables, so that the result is a cross product.
    """

    node: ir.NodeVar
    is_product: bool = False

    @property
    def name(self) -> OperatorName:
        return OperatorName.PRODUCT if self.is_product else OperatorName.SCAN

    @property
    def text(self) -> str:
        return f"${self.node.name}: {' | '.join(self.node.types) or 'nothing'}"

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.node.name})

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def is_local(self, candidates: Candidates) -> bool:
        return self.is_product

    def factor(self, run: BlockRun) -> int | None:
        return sum(map(len, run.candidates.of(self.node.name)))

    def work(self, frame: Frame, run: BlockRun) -> Numbers | None:
        return np.full(frame.count, self.factor(run), np.int64)

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return () if candidates.is_chosen(self.node.name) else candidates.own(self.node.name)

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        name, budget, count = self.node.name, run.context.budget, frame.count
        tables, candidates = run.candidates.tables(name), run.candidates.of(name)
        budget.spend(count * sum(map(len, candidates)), columns=2 * (frame.width + 2))
        if count == 1 and len(tables) == 1 and not frame.variables and frame.origin is None and frame.weight is None:
            binding = Binding(tables, candidates[0])
            return replace(frame, count=len(candidates[0]), bindings={name: binding}, _columns={})
        numbers = np.concatenate([np.array([], np.int64), *candidates])
        type_index = np.repeat(np.arange(len(tables)), [len(part) for part in candidates])
        together = count if frame.paths else max(1, CHUNK_ROWS // max(len(numbers), 1))
        parts = []
        for first in range(0, max(count, 1), max(together, 1)):
            budget.check()
            rows = np.repeat(np.arange(first, min(first + together, count)), len(numbers))
            times = len(rows) // max(len(numbers), 1)
            binding = Binding(tables, np.tile(numbers, times), np.tile(type_index, times) if len(tables) != 1 else None)
            parts.append(frame.take(rows).bind(name, binding))
        return parts[0] if len(parts) == 1 else concat_frames(parts)
