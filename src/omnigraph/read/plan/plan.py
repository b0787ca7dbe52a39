"""The physical plan of a read: an operator that finds the rows of the match, and operators that shape the result."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.count import Count
from omnigraph.read.match.rank import Rank
from omnigraph.read.match.subtract import Subtract
from omnigraph.read.match.top_rows import Portions
from omnigraph.read.plan.statistics import Statistics
from omnigraph.read.shape.operator import ShapeOperator

MatchOperator = AllRows | Count | Subtract | Rank | Portions
"""The alternative operators that find the rows of the match."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A physical plan. The planner chooses it, the executor runs it, `explain` prints it.

    Attributes:
        match: finds the rows of the match.
        shape: operators that convert these rows to the result (group, sort, project), in order.
        statistics: statistics that the join order of each block was chosen from; empty unless the read is traced.
    """

    match: MatchOperator
    shape: tuple[ShapeOperator, ...]
    statistics: tuple[Statistics, ...] = ()
