"""Subtract: count the matches without a condition, minus the matches that violate it."""

from __future__ import annotations

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import MatchRun
from omnigraph.read.match.row_counts import check_row_count
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.subtraction import Term
from omnigraph.read.rows.frame import Frame, concat_frames


@dataclass(frozen=True, slots=True)
class Subtract:
    """Add and subtract the matches of several terms.

    Attributes:
        block: the block whose matches are counted.
        terms: the terms, each with the operator that counts its matches.
        needed: variables that have to be in the rows.
    """

    block: QueryBlock
    terms: tuple[tuple[Term, Count], ...]
    needed: frozenset[str]

    @property
    def name(self) -> OperatorName:
        return OperatorName.SUBTRACT

    @property
    def text(self) -> str:
        return f"{len(self.terms)} terms"

    @property
    def reason(self) -> str:
        return "matches with and without some conditions are counted without producing rows"

    @property
    def rows(self) -> float:
        """Estimated number of output rows."""
        return self.terms[0][1].rows

    def execute(self, match: MatchRun) -> tuple[Frame, Numbers]:
        """Rows of the needed variables, each combination once, and the number of matches of each row."""
        trace = match.context.trace
        if trace is None:
            return self._execute(match)
        with trace.step(self.name, self.text) as entry:
            frame, weights = self._execute(match)
        entry.reason = self.reason
        entry.rows, entry.size = frame.count, frame.nbytes + weights.nbytes
        return frame, weights

    def _execute(self, match: MatchRun) -> tuple[Frame, Numbers]:
        frames: list[Frame] = []
        weights: list[Numbers] = []
        for term, operator in self.terms:
            frame, weight = operator.count(match)
            frames.append(self._with_merged(frame, term))
            weights.append(weight * term.sign)
        if not self.needed:
            total = sum(sum_exactly(weight) for weight in weights)
            check_row_count(total)
            return Frame(int(total > 0), searching=match.context.search), np.array([total] * (total > 0), np.int64)
        frame, weight = concat_frames(frames), np.concatenate(weights)
        match.context.budget.spend(frame.count, columns=frame.width + 4)
        _, first, back = np.unique(frame.keys(sorted(self.needed)), return_index=True, return_inverse=True)
        check_row_count(float(np.abs(weight).sum(dtype=np.float64)))
        totals = np.zeros(len(first), np.int64)
        np.add.at(totals, back, weight)
        there = totals > 0
        return frame.take(first[there]), totals[there]

    def _with_merged(self, frame: Frame, term: Term) -> Frame:
        """The rows of a term with exactly the needed variables."""
        bindings = {name: frame.bindings[term.name(name)] for name in sorted(self.needed)}
        return Frame(frame.count, bindings, searching=frame.searching)


def sum_exactly(numbers: Numbers) -> int:
    """The sum of 64-bit integers, which may itself be larger than a 64-bit integer."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & (2**32 - 1)).sum())
