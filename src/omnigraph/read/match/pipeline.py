"""Pipelines: the physical plan of a block is a sequence of operators, each of which maps rows to rows.

An operator is a frozen dataclass with an `execute` method. To add one, write its module and let the planner choose it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.context.trace import Entry
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame


class Operator(ABC):
    """A physical operator of a block."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> OperatorName: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """Its arguments, for `explain`."""

    @property
    def reason(self) -> str:
        """Why the planner chose it; empty if there was no choice."""
        return ""

    @property
    def binds(self) -> frozenset[str]:
        """Variables that have a value after it."""
        return frozenset()

    @property
    def conditions(self) -> Sequence[Expression]:
        """Conditions that it evaluates on all rows."""
        return ()

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        """Conditions of a variable that are evaluated inside the operator."""
        return ()

    @property
    def inner(self) -> Pipeline | None:
        """The pipeline of the block that it joins."""
        return None

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        """Edges that it walks, in walking direction."""
        return ()

    @abstractmethod
    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        """Map rows to rows."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The physical plan of a block.

    Attributes:
        block: the block.
        operators: the operators, in order.
        bound: variables that have a value before it.
        input_rows: number of rows that it was planned for.
        rows: estimated rows after it.
        cost: estimated cost, in walked edges.
        estimates: estimated rows after each operator; empty unless the read is traced.
    """

    block: QueryBlock
    operators: tuple[Operator, ...]
    bound: frozenset[str]
    input_rows: float
    rows: float
    cost: float
    estimates: tuple[float, ...] = ()

    def execute(self, frame: Frame, match: MatchRun) -> Frame:
        """All rows of the block for the rows of a frame."""
        run = BlockRun(match.context, match.candidates(self.block), match)
        trace, budget = match.context.trace, match.context.budget
        if trace is None:
            for operator in self.operators:
                frame = operator.execute(frame, run)
                budget.hold(frame.nbytes)
            return frame
        trace.adopt(match.planning_entries(self.block))
        for operator, estimate in zip(self.operators, self.estimates, strict=True):
            with trace.running(trace_entry(operator, estimate, run.candidates)) as entry:
                frame = operator.execute(frame, run)
            entry.rows, entry.size = frame.count, frame.nbytes
            budget.hold(frame.nbytes)
        return frame


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The execution of one pipeline.

    Attributes:
        context: the read.
        candidates: candidate nodes of the block's variables.
        match: the execution of the whole match.
    """

    context: Context
    candidates: Candidates
    match: MatchRun


class PipelinePlanner(Protocol):
    """Plans a block; implemented by the planner, which is a layer above."""

    def pipeline(self, block: QueryBlock, bound: frozenset[str], rows: float, match: MatchRun) -> Pipeline:
        """The pipeline of a block for a number of input rows, with the candidates of a match as they are now."""
        ...

    def estimate(self, candidates: Candidates, name: str) -> float:
        """Estimated number of candidates of a variable."""
        ...


_REFIT = 2
"""A block is planned again if its input is this many times larger or smaller than estimated."""


@dataclass(frozen=True, slots=True)
class MatchRun:
    """The execution of a match: mutable state of one read, apart from its plan.

    Attributes:
        query: the query.
        context: the read.
        planner: plans blocks again when estimates turn out wrong.
    """

    query: ReadQuery
    context: Context
    planner: PipelinePlanner
    _candidates: dict[int, Candidates] = field(default_factory=dict)
    _entries: dict[int, list[Entry]] = field(default_factory=dict)

    def start(self) -> Frame:
        """The input of the first operator: one row without variables."""
        return Frame(1, searching=self.context.search)

    def candidates(self, block: QueryBlock) -> Candidates:
        """Candidates of a block's variables. All variants of a block share them."""
        if block.number not in self._candidates:
            self._candidates[block.number] = Candidates(block, self.context, self.planner.estimate)
        return self._candidates[block.number]

    def replan(self, pipeline: Pipeline, rows: float) -> Pipeline:
        """Plan a block again, for the candidates and the number of input rows that are known now."""
        return self.planner.pipeline(pipeline.block, pipeline.bound, rows, self)

    def refit(self, pipeline: Pipeline, rows: int) -> Pipeline:
        """Plan a block again if it gets many more or fewer rows than it was planned for."""
        fits = pipeline.input_rows <= _REFIT * rows and rows <= _REFIT * pipeline.input_rows
        return pipeline if fits or rows == 0 else self.replan(pipeline, rows)

    def with_candidates(self, block: QueryBlock, candidates: Candidates) -> MatchRun:
        """The same match with other candidates for one block."""
        return replace(self, _candidates={**self._candidates, block.number: candidates})

    def keep_planning_entries(self, block: QueryBlock, entries: list[Entry]) -> None:
        """Keep trace entries of conditions that were evaluated while the block was planned."""
        self._entries.setdefault(block.number, []).extend(entries)

    def planning_entries(self, block: QueryBlock) -> list[Entry]:
        """Those entries, once: the first execution of the block records them."""
        return self._entries.pop(block.number, [])


def trace_entry(operator: Operator, estimate: float, candidates: Candidates) -> Entry:
    """The trace entry of an operator, before it runs."""
    pushed = operator.pushed(candidates)
    entry = Entry(operator.name, operator.text, estimate, reason=operator.reason)
    entry.columns = _properties((*pushed, *operator.conditions))
    if pushed:
        entry.pushed = tuple(condition.text for condition in pushed)
        entry.text += f" where {' and '.join(entry.pushed)}"
    return entry


def _properties(conditions: Sequence[Expression]) -> tuple[str, ...]:
    found = (f"${var}.{name}" for c in conditions for var, name in c.columns if name in c.properties)
    return tuple(dict.fromkeys(found))
