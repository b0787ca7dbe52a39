"""Pipelines: the physical plan of a block is a sequence of operators, each of which maps rows to rows.

A block is a `match`, `optional` or `not` block of a query. An operator is a frozen dataclass with an `execute` method.
To add an operator, write its module and let the planner choose it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.context.trace import Entry
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.parts import is_one_part, part_bounds, run_parts
from omnigraph.read.match.row_counts import weighed
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Binding, Frame

WeightsOf = Callable[[str, Binding], Numbers]
"""Returns the weight of each node of a variable: the number of matches of other variables that it stands for."""


class Operator(ABC):
    """A physical operator of a block."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> OperatorName: ...

    @property
    @abstractmethod
    def text(self) -> str:
        """The arguments of the operator, as `explain` prints them."""

    @property
    def reason(self) -> str:
        """Why the planner chose the operator; empty if there was no choice."""
        return ""

    @property
    def binds(self) -> frozenset[str]:
        """Variables of this operator that are bound in its output rows."""
        return frozenset()

    @property
    def conditions(self) -> Sequence[Expression]:
        """Conditions that the operator evaluates on its input rows."""
        return ()

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        """Conditions that the operator evaluates on the variable that it binds (predicate pushdown)."""
        return ()

    @property
    def inner(self) -> Pipeline | None:
        """The pipeline of the inner block that the operator joins; None for other operators."""
        return None

    def factor(self, run: BlockRun) -> int | None:
        """Number of output rows per input row, if it is the same for all rows; else None."""
        return None

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        """Edge types that the operator walks, in the direction in which it walks them."""
        return ()

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """Variables that have to be bound in the input rows."""

    def is_local(self, candidates: Candidates) -> bool:
        """Whether the operator may run on parts of the rows.

        Then the output rows of an input row depend on this row alone, they are in the order of the input rows, and
        larger inputs do not save work.
        """
        return False

    def work(self, frame: Frame, run: BlockRun) -> Numbers | None:
        """Expected number of output rows of each input row; None if there is about one output row per input row."""
        return None

    @abstractmethod
    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        """Compute the output rows from the input rows."""

    def execute_for(self, frame: Frame, run: BlockRun, needed: frozenset[str] | None) -> Frame:
        """Like `execute`. The output rows need not have the variables that are not in `needed`, if it is not None."""
        return self.execute(frame, run)

    def execute_counting(self, frame: Frame, run: BlockRun) -> Frame | None:
        """Like `execute`, if no variable that the operator binds is needed: rows get weights instead of duplicates.

        None if the operator has no faster way to do this.
        """
        return None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The physical plan of a block.

    Attributes:
        block: the block.
        operators: the operators, in order.
        bound: variables that are bound in the input rows.
        input_rows: number of input rows that the plan was chosen for.
        rows: estimated number of output rows.
        cost: estimated cost. The unit is the cost of walking one edge.
        estimates: estimated number of output rows of each operator; may be empty if the read has no trace.
        needed: variables that have to be bound in the output rows; None for all variables.
        distinct: whether duplicate output rows may be removed, because the result does not depend on them.
        counting: whether duplicate output rows may be merged into one row with a weight (see `Frame`).
        weighted: variables whose nodes have weights. A row is multiplied by the weight of a node when its variable is
            bound, so that the variable need not be kept for it.
    """

    block: QueryBlock
    operators: tuple[Operator, ...]
    bound: frozenset[str]
    input_rows: float
    rows: float
    cost: float
    estimates: tuple[float, ...] = ()
    needed: frozenset[str] | None = None
    distinct: bool = False
    counting: bool = False
    weighted: frozenset[str] = frozenset()

    def execute(self, frame: Frame, match: MatchRun, weights: WeightsOf | None = None) -> Frame:
        """Match the block for the input rows in `frame`. Returns all output rows.

        `weights` returns the weights of the nodes of a variable in `weighted`. It is only needed if rows are counted.
        """
        run = BlockRun(match.context, match.candidates(self.block), match, weights if self.counting else None)
        trace = match.context.trace
        kept = self._kept_variables()
        if trace is None:
            place = 0
            while place < len(self.operators):
                if frame.count == 0 and (empty := self._without_rows(frame, place, run.candidates)) is not None:
                    return _only(empty, self.needed)
                frame, place = self._advance(frame, place, len(self.operators), kept, run, parallel=True)
            return frame
        trace.adopt(match.planning_entries(self.block))
        for place, (operator, estimate) in enumerate(zip(self.operators, self.estimates, strict=True)):
            with trace.running(trace_entry(operator, estimate, run.candidates)) as entry:
                frame, _ = self._advance(frame, place, place + 1, kept, run, parallel=False)
            entry.rows, entry.size = frame.count, frame.nbytes
        return frame

    def _without_rows(self, frame: Frame, place: int, candidates: Candidates) -> Frame | None:
        """The output of the operators from index `place` on for an input without rows.

        None if one of them binds anything but nodes of one type: then the operators have to run.
        """
        for operator in self.operators[place:]:
            for name in operator.binds - frame.variables:
                if not candidates.knows(name) or len(candidates.tables(name)) != 1:
                    return None
                frame = frame.bind(name, Binding(candidates.tables(name), np.zeros(0, np.int64)))
        return frame

    def _kept_variables(self) -> list[frozenset[str] | None]:
        """For each operator, the variables that its successors or the caller need; None for all variables."""
        if self.needed is None:
            return [None] * len(self.operators)
        found: list[frozenset[str] | None] = []
        needed = self.needed
        for operator in reversed(self.operators):
            found.append(needed)
            needed |= operator.needs
        found.reverse()
        return found

    def _advance(
        self,
        frame: Frame,
        place: int,
        end: int,
        kept: Sequence[frozenset[str] | None],
        run: BlockRun,
        *,
        parallel: bool,
    ) -> tuple[Frame, int]:
        """Run the operator at index `place`; with many rows, run it and its successors up to `end` in parts.

        Returns the output rows, and the index of the next operator.
        """
        budget, operator = run.context.budget, self.operators[place]
        bounds = None
        if frame.count > 1 and not frame.paths and operator.is_local(run.candidates):
            work = operator.work(frame, run)
            if work is not None or not is_one_part(frame.count):
                width = frame.width + len(operator.binds)
                bounds = part_bounds(np.ones(frame.count, np.int64) if work is None else work, width, budget)
        if bounds is None:
            return self._execute_one(frame, place, kept, run), place + 1
        last = place + 1
        while last < end and self.operators[last].is_local(run.candidates):
            last += 1

        if not self.distinct and not self.counting:
            self._check_product(frame, place, last, kept, run)

        def run_part(part: Frame) -> Frame:
            part, at = self._execute_one(part, place, kept, run), place + 1
            while at < last:
                part, at = self._advance(part, at, last, kept, run, parallel=False)
            return part

        found = run_parts(run_part, frame, bounds, budget, parallel=parallel)
        found = found.merged(counting=self.counting) if self.distinct or self.counting else found
        budget.hold(found.nbytes)
        return found, last

    def _check_product(
        self, frame: Frame, place: int, last: int, kept: Sequence[frozenset[str] | None], run: BlockRun
    ) -> None:
        """Check before the first part that a cross product fits the memory budget, because its size is known.

        Raises:
            BudgetExceededError: the rows do not fit.
        """
        rows = frame.count
        for operator in self.operators[place:last]:
            factor = operator.factor(run)
            if factor is None:
                return
            rows *= factor
        names = kept[last - 1]
        width = len(frame.variables.union(*(each.binds for each in self.operators[place:last])))
        run.context.budget.need_arrays(rows, width if names is None else len(names))

    def _execute_one(self, frame: Frame, place: int, kept: Sequence[frozenset[str] | None], run: BlockRun) -> Frame:
        """Run one operator, and drop the variables that are not needed any more."""
        operator, names = self.operators[place], kept[place]
        weighted = frozenset[str]()
        if run.weights is not None and self.weighted:
            weighted = (self.weighted & operator.binds) - frame.variables
        wanted = names if names is None else names | weighted
        found = None
        if self.counting and wanted is not None and not operator.binds & wanted:
            found = operator.execute_counting(frame, run)
        found = operator.execute_for(frame, run, wanted) if found is None else found
        if run.weights is not None:
            for name in sorted(weighted):
                found = weighed(found, run.weights(name, found.bindings[name]))
        run.context.budget.hold(found.nbytes)
        drops = names is not None and not frame.variables | operator.binds <= names
        frame = _only(found, names)
        return frame.merged(counting=self.counting) if drops and (self.distinct or self.counting) else frame


def _only(frame: Frame, names: frozenset[str] | None) -> Frame:
    """The frame without the variables that are not needed any more."""
    return frame if names is None or frame.variables <= names else frame.only(names)


@dataclass(frozen=True, slots=True)
class BlockRun:
    """State of the execution of one pipeline.

    Attributes:
        context: the state of the running read: snapshot, parameters and budget.
        candidates: candidate nodes of the variables of the block.
        match: state of the execution of the whole match.
        weights: returns the weights of the nodes of a variable; None if no variable of the pipeline has weights.
    """

    context: Context
    candidates: Candidates
    match: MatchRun
    weights: WeightsOf | None = None


class PipelinePlanner(Protocol):
    """Plans blocks. `Planner` in package `plan` implements this protocol, since this package must not import `plan`."""

    def pipeline(
        self,
        block: QueryBlock,
        bound: frozenset[str],
        rows: float,
        match: MatchRun,
        needed: frozenset[str] | None = None,
        weighted: frozenset[str] = frozenset(),
    ) -> Pipeline:
        """The best pipeline of a block, for a number of input rows and for the current candidates of `match`.

        `needed` are the variables that the output rows need, if duplicates of them may be merged; else None. The nodes
        of the variables in `weighted` have weights.
        """
        ...

    def estimate(self, candidates: Candidates, name: str) -> float:
        """Estimated number of candidates of a variable."""
        ...


_REFIT = 2
"""A block is planned again if its number of input rows differs from the estimate by more than this factor."""


@dataclass(frozen=True, slots=True)
class MatchRun:
    """State of the execution of a match. It is mutable and belongs to one read.

    Attributes:
        query: the query.
        context: the state of the running read: snapshot, parameters and budget.
        planner: plans blocks again if estimates were wrong.
        input: the rows of the stage before the match; None if there is no stage.
    """

    query: ReadQuery
    context: Context
    planner: PipelinePlanner
    input: Frame | None = None
    _candidates: dict[int, Candidates] = field(default_factory=dict)
    _entries: dict[int, list[Entry]] = field(default_factory=dict)

    def start(self) -> Frame:
        """The input of the first operator: the rows of the stage before, or one row without bound variables."""
        return Frame(1, searching=self.context.search) if self.input is None else self.input

    def candidates(self, block: QueryBlock) -> Candidates:
        """Candidates of the variables of a block. Reduced copies of the block (see `QueryBlock.without`) share them."""
        if block.number not in self._candidates:
            self._candidates[block.number] = Candidates(block, self.context, self.planner.estimate)
        return self._candidates[block.number]

    def replan(self, pipeline: Pipeline, rows: float) -> Pipeline:
        """Plan the block of a pipeline again, for the current candidates and a number of input rows."""
        needed = pipeline.needed if pipeline.distinct or pipeline.counting else None
        found = self.planner.pipeline(pipeline.block, pipeline.bound, rows, self, needed, pipeline.weighted)
        return replace(found, needed=pipeline.needed, distinct=pipeline.distinct, counting=pipeline.counting)

    def refit(self, pipeline: Pipeline, rows: int) -> Pipeline:
        """Plan the block of a pipeline again if `rows`, the number of input rows, is far from the planned number.

        Returns the new pipeline, or the given pipeline if it still fits.
        """
        fits = pipeline.input_rows <= _REFIT * rows and rows <= _REFIT * pipeline.input_rows
        return pipeline if fits or rows == 0 else self.replan(pipeline, rows)

    def with_candidates(self, block: QueryBlock, candidates: Candidates) -> MatchRun:
        """A copy of this state with other candidates for one block."""
        return replace(self, _candidates={**self._candidates, block.number: candidates})

    def with_input(self, rows: Frame) -> MatchRun:
        """A copy of this state with other input rows."""
        return replace(self, input=rows)

    def keep_planning_entries(self, block: QueryBlock, entries: list[Entry]) -> None:
        """Keep the trace entries of conditions that were evaluated while a block was planned."""
        self._entries.setdefault(block.number, []).extend(entries)

    def planning_entries(self, block: QueryBlock) -> list[Entry]:
        """Remove and return the entries that `keep_planning_entries` kept.

        The first execution of the block adds them to the trace.
        """
        return self._entries.pop(block.number, [])


def trace_entry(operator: Operator, estimate: float, candidates: Candidates) -> Entry:
    """A trace entry for an operator that has not run yet."""
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
