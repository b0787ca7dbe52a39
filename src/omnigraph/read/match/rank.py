"""Rank: if only the best-ranked rows are needed, find the best nodes first, and match only those.

A rank (vector distance, BM25 or fusion) scores the nodes of one variable. `Count` computes how many rows contain
each node, without producing the rows. Then the best nodes that together have enough rows are chosen. Rows are
produced only for these nodes.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.context.trace import Entry
from omnigraph.read.match.count import Count
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.rows.frame import Frame
from omnigraph.read.search.entities import Entities

SAFETY_FACTOR = 2
"""The first attempt is for this many times the nodes that have enough rows if each has the usual number of rows."""

_SAMPLE_NODES = 1_000
"""Approximate number of nodes from which the usual number of rows of a node is computed."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Find the best-ranked nodes of a variable, then produce the rows of these nodes.

    Attributes:
        rank: the rank that is the first sort key.
        var: the variable whose nodes the rank scores.
        count: counts the rows of each node.
        wanted: number of rows that are needed: offset plus limit.
        nodes: estimated number of nodes that together have the needed rows.
        pipeline: produces the rows of the best nodes.
    """

    rank: ir.Rank
    var: str
    count: Count
    wanted: int
    nodes: float
    pipeline: Pipeline

    @property
    def name(self) -> OperatorName:
        return OperatorName.RANK

    @property
    def text(self) -> str:
        return f"${self.var} by {ir.expression(self.rank)}, until there are {self.wanted} rows"

    @property
    def reason(self) -> str:
        return f"rows are produced only for the best nodes of ${self.var}"

    @property
    def rows(self) -> float:
        """Estimated number of output rows."""
        return self.pipeline.rows

    def execute(self, match: MatchRun) -> tuple[Frame, None]:
        """Rows of the match, with fused ranks. They include the best rows; other rows may be missing."""
        trace = match.context.trace
        if trace is None:
            nodes = self._best_nodes(match)
        else:
            with trace.running(Entry(self.name, self.text, self.nodes, reason=self.reason)) as entry:
                nodes = self._best_nodes(match)
            entry.rows, entry.size = nodes.count, nodes.nbytes
        start = Frame(nodes.count, nodes.bindings, searching=match.context.search)
        frame = match.replan(self.pipeline, nodes.count).execute(start, match)
        at = np.searchsorted(nodes.bindings[self.var].numbers, frame.bindings[self.var].numbers)
        return frame.with_fused({fusion: values.take(at) for fusion, values in nodes.fused.items()}), None

    def _best_nodes(self, match: MatchRun) -> Frame:
        """The nodes whose rows include the best rows, one row per node, in ascending order, with fused ranks."""
        search, query = match.context.search, match.query
        rows, weights = self.count.count(match)
        entities = Entities.of(rows.bindings[self.var])
        if entities.back is not None:
            weights = np.bincount(entities.back, weights, len(entities.binding.numbers)).astype(np.int64)
        numbers: Numbers = entities.binding.numbers
        every = Frame(len(numbers), {self.var: entities.binding}, searching=search)
        for count in node_counts(weights, self.wanted):
            nodes = search.fuse(query, every, self.rank, count)
            best = search.best(self.rank, nodes, count)
            rows_of = weights[np.searchsorted(numbers, best.bindings[self.var].numbers)]
            if rows_of.sum() >= self.wanted or best.count < count:
                break
        if rows_of.sum() < self.wanted:
            # If the query sorts by a column that contains the rank, rows without a score come last. They belong to the
            # result if there are too few rows with a score.
            return nodes if query.read.ranked is None else best
        score = best.search(self.rank).to_numpy(zero_copy_only=False)
        key = score if isinstance(self.rank, ir.Nearest) else -score
        order = np.argsort(key)
        enough = np.searchsorted(np.cumsum(rows_of[order]), self.wanted)
        # Keep all nodes with the same score as the last one: later sort keys decide which of their rows are first.
        return best.filter(key <= key[order[enough]])


# See docs/decisions/0245-a-sample-excludes-late-entities.md
def node_counts(weights: Numbers, wanted: int) -> list[int]:
    """How many best nodes to find, in attempts until they have enough rows.

    Finding the best few nodes is faster. So the first attempt is for a number of nodes that certainly or very likely
    have enough rows, and the last one for as many nodes as rows.

    Args:
        weights: number of rows of each node.
        wanted: number of rows that are needed.
    """
    if len(weights) == 0:
        return [wanted]
    usual = float(np.median(weights[:: max(len(weights) // _SAMPLE_NODES, 1)]))
    certain, likely = wanted / max(int(weights.min()), 1), SAFETY_FACTOR * wanted / max(usual, 1)
    first = ceil(min(certain, likely))
    return [first, wanted] if first < wanted else [wanted]
