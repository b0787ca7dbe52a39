"""Count: count matches from the degrees of nodes, instead of producing one row per match.

A grouped read needs the values of some variables: its keys and the arguments of aggregates. All other variables only
change how many rows there are. Such a variable is eliminated if it is joined with only one other variable: for each
node of the other variable, the number of matches becomes a weight of the node. Rows are produced only for the remaining
variables. Each of these rows has a weight, the number of rows of the match that it stands for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Numbers, distinct_numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import is_of_type
from omnigraph.read.match.fold import Fold, FoldOverflowError
from omnigraph.read.match.narrow import narrow
from omnigraph.read.match.node_weights import Leaf, NodeWeights
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.match.row_counts import products, weighed
from omnigraph.read.rows.frame import Frame

MIN_REPLANNED_COST_EDGES = 20_000.0
"""If the estimated cost of a pipeline is lower than this, it is not planned again before it runs."""


@dataclass(frozen=True, slots=True)
class OptionalCount:
    """Counts the matches of an optional block that refers to one variable.

    Attributes:
        name: the variable that gets the counts as weights.
        count: counts the matches for each node of the variable of the block.
    """

    name: str
    count: Count


@dataclass(frozen=True, slots=True)
class Count:
    """Count the matches of some variables, and produce rows for the others.

    Attributes:
        leaves: variables to count, in the order in which they are eliminated.
        rest: the pipeline that produces the rows of the other variables.
        at_most: larger weights are replaced by this number; None for exact counts.
        optionals: optional blocks whose matches are counted.
        weighted: whether the result depends on the weights. If not, rows are returned without weights.
        input_variables: node variables of the rows of the stage before the match. They can have weights, too.
        folds: properties of counted variables that are aggregated. The output rows have them (see `Frame.folded`).
        unfolded: the same without folds, in case that a sum may not fit 64 bits; None if there are no folds.
    """

    leaves: tuple[Leaf, ...]
    rest: Pipeline
    at_most: int | None = None
    optionals: tuple[OptionalCount, ...] = ()
    weighted: bool = True
    input_variables: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()
    unfolded: Count | None = None

    @property
    def name(self) -> OperatorName:
        return OperatorName.COUNT

    @property
    def text(self) -> str:
        leaves = (
            f"${leaf.name}" if leaf.onto is None else f"${leaf.name} for each ${leaf.onto}" for leaf in self.leaves
        )
        optionals = (f"optional {each.count.text}" for each in self.optionals)
        folds = (f"fold {fold.text}" for fold in self.folds)
        return ", ".join((*leaves, *optionals, *folds))

    @property
    def reason(self) -> str:
        return "matches of these variables are counted without producing rows"

    @property
    def rows(self) -> float:
        """Estimated number of output rows."""
        return self.rest.rows

    def execute(self, match: MatchRun) -> tuple[Frame, Numbers | None]:
        """Rows of the remaining variables, and the weight of each row: how many rows of the match it stands for."""
        frame, weights = self.count(match)
        return frame, weights if self.weighted else None

    def count(self, match: MatchRun) -> tuple[Frame, Numbers]:
        """Like `execute`, always with weights."""
        trace = match.context.trace
        if trace is None or not (self.leaves or self.optionals):
            return self._execute(match)
        with trace.step(self.name, self.text) as entry:
            frame, weights = self._execute(match)
        entry.reason = self.reason
        if self.unfolded is not None and not frame.folded:
            entry.text, entry.reason = self.unfolded.text, "a sum may not fit 64 bits, so its argument has rows"
        entry.rows, entry.size = frame.count, frame.nbytes + weights.nbytes
        return frame, weights

    def _execute(self, match: MatchRun) -> tuple[Frame, Numbers]:
        if self.unfolded is None:
            return self._rows(match)
        try:
            return self._rows(match)
        except FoldOverflowError:
            return self.unfolded._rows(match)

    def _rows(self, match: MatchRun) -> tuple[Frame, Numbers]:
        start = match.start()
        if self.input_variables:
            match = self._with_input_candidates(start, match)
        candidates = match.candidates(self.rest.block)
        weights = NodeWeights(candidates, match.context, self.at_most, self.folds)
        narrow(self.leaves, self.rest.block, candidates, match.context)
        if not self.folds and not self.optionals and self._is_empty(candidates):
            return replace(self.rest.execute(start.part(0, 0), match), weight=None), np.zeros(0, np.int64)
        for each in self.optionals:
            weights.multiply(each.name, *each.count.count(match))
        for leaf in self.leaves:
            weights.eliminate(leaf)
        weights.narrow()
        # Now that candidates have been removed, another join order may be better.
        is_cheap = len(self.rest.operators) < 2 or self.rest.cost < MIN_REPLANNED_COST_EDGES
        rest = self.rest if is_cheap else match.replan(self.rest, self.rest.input_rows)
        frame = rest.execute(self._weighed_input(start, weights), match, weights.at)
        total = np.full(frame.count, weights.factor, np.int64)
        if frame.weight is not None:
            total, frame = products(total, frame.weight), replace(frame, weight=None)
        if self.at_most not in (None, 1):
            # Weights are limited, so rows were not merged.
            for name in weights.of:
                total = np.minimum(products(total, weights.at(name, frame.bindings[name])), self.at_most)
        if not (there := total > 0).all():
            frame, total = frame.filter(there), total[there]
        folded = weights.folded(frame, total)
        return (replace(frame, folded=folded) if folded else frame), total

    def _is_empty(self, candidates: Candidates) -> bool:
        """Whether a variable is known to have no candidates, so that the match has no rows."""
        names = (*(leaf.name for leaf in self.leaves), *self.rest.block.nodes)
        restricted = (name for name in names if candidates.knows(name) and candidates.restricts(name))
        return any(candidates.is_chosen(name) and candidates.size(name) == 0 for name in restricted)

    def _weighed_input(self, start: Frame, weights: NodeWeights) -> Frame:
        """The input rows whose nodes have matches, multiplied by the weights of their nodes."""
        for name in self.input_variables:
            factors = weights.at_input(name, start.bindings[name])
            start = weighed(start, factors) if self.at_most is None else start.filter(factors > 0)
        return start

    def _with_input_candidates(self, start: Frame, match: MatchRun) -> MatchRun:
        """The state of the match, in which only nodes of the input rows are candidates of the input variables."""
        candidates = match.candidates(self.rest.block)
        for name in self.input_variables:
            binding, (table,) = start.bindings[name], candidates.tables(name)
            numbers = binding.numbers[is_of_type(binding, table.type_name)]
            candidates = candidates.only(name, (distinct_numbers(numbers, table.slots),))
        return match.with_candidates(self.rest.block, candidates)
