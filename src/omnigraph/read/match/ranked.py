"""Ranking first: where only the best rows are asked for, the best nodes are found before their rows are listed.

A rank is about the nodes of one variable, and it is decided among those that are in any row. Which those are, and in
how many rows each is, is counted without listing the rows. Then only the rows of the best nodes are listed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import Counting, counting_for
from omnigraph.read.match.frame import Frame
from omnigraph.read.match.gathered import gathered
from omnigraph.read.match.match import solve
from omnigraph.read.plan.plan import planned
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.search.entities import Entities
from omnigraph.read.search.search import first_rank, ranked_variable, ranks
from omnigraph.read.space.space import Numbers

_CHEAP = 20_000.0
"""What costs no more than this, in edges that are walked, is listed at once."""

_GAIN = 1.5
"""How many times less counting has to cost than listing, and how many times more rows there have to be than wanted."""

_MANY = 1 << 30
"""Who wants so many rows gets them from all: sums of such numbers could become too large."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """How the best rows are found.

    Attributes:
        rank: the rank that comes first in the order.
        var: the variable whose nodes it ranks.
        counting: how the rows of each of its nodes are counted.
        wanted: how many rows are wanted.
        nodes: about how many nodes have so many.
    """

    rank: ir.Rank
    var: str
    counting: Counting
    wanted: int
    nodes: float

    @property
    def text(self) -> str:
        """What is found, for people."""
        return f"${self.var} by {ir.expression(self.rank)}, until there are {self.wanted} rows"

    @property
    def reason(self) -> str:
        """Why they are found so, for people."""
        return f"only the rows of the best ${self.var} are listed"


def ranked_first(read: ir.Read, wanted: int | None, candidates: Candidates, context: Context) -> Ranked | None:
    """How to find the best rows of a result; None when listing all rows is as quick, or they have to be.

    Args:
        read: what is asked for.
        wanted: how many rows, those that are skipped included; None for all.
        candidates: what the variables of the match may hold.
        context: the read.
    """
    rank = _leading(read) if wanted else None
    if rank is None or wanted is None or wanted > _MANY:
        return None
    block, var = read.match, ranked_variable(rank)
    statistics = gathered(block, candidates, context)
    whole = planned(block, candidates.others, frozenset(), 1, statistics)
    if whole.cost <= _CHEAP or _GAIN * wanted >= whole.rows:
        return None
    counting = counting_for(var, block, candidates, context)
    if counting is None:
        return None
    rest = counting.block
    if _GAIN * planned(rest, candidates.others, frozenset(), 1, gathered(rest, candidates, context)).cost >= whole.cost:
        return None
    size = statistics.variables[var].size
    return Ranked(rank, var, counting, wanted, min(max(size * wanted / max(whole.rows, 1.0), 1.0), float(wanted), size))


@remembered
def _leading(read: ir.Read) -> ir.Rank | None:
    """The rank that comes first in the order, where nodes of one type are ranked that every row holds."""
    rank = None if read.grouped or read.distinct else first_rank(read)
    if rank is None:
        return None
    var = ranked_variable(rank)
    if not any(node.name == var and len(node.types) == 1 for node in read.match.nodes):
        return None
    # Which nodes are left is known of one variable.
    others = any(isinstance(part, ir.Fusion) and ranked_variable(part) != var for part in ranks(read))
    return None if others else rank


def best_nodes(read: ir.Read, ranked: Ranked, found: tuple[Frame, Numbers], context: Context) -> Frame:
    """The nodes in whose rows the result is, ascending, with what fusions say about them.

    Args:
        read: what is asked for.
        ranked: how it is found.
        found: rows that hold all nodes that are in any row of the match, and how many rows each stands for at least.
        context: the read.
    """
    rows, weights = found
    entities = Entities.of(rows.bindings[ranked.var])
    if entities.back is not None:
        weights = np.bincount(entities.back, weights, len(entities.binding.numbers)).astype(np.int64)
    everybody = entities.binding.numbers
    nodes = Frame(len(everybody), {ranked.var: entities.binding}, searching=context.search)
    nodes = context.search.fuse(read, nodes, ranked.rank, ranked.wanted)
    best = context.search.best(ranked.rank, nodes, ranked.wanted)
    weights = weights[np.searchsorted(everybody, best.bindings[ranked.var].numbers)]
    if weights.sum() < ranked.wanted:
        # By an alias, rows without a rank come last, when there are too few with one.
        return nodes if read.ranked is None else best
    score = best.search(ranked.rank).to_numpy(zero_copy_only=False)
    key = score if isinstance(ranked.rank, ir.Nearest) else -score
    order = np.argsort(key)
    enough = np.searchsorted(np.cumsum(weights[order]), ranked.wanted)
    # Of what is equal in rank, other keys and ids decide which rows come first.
    return best.filter(key <= key[order[enough]])


def rows_of(read: ir.Read, ranked: Ranked, nodes: Frame, context: Context) -> Frame:
    """The rows of the match that hold some nodes, with what fusions say about these."""
    start = Frame(nodes.count, nodes.bindings, searching=context.search)
    frame = solve(read.match, start, context, ranked.counting.candidates)
    at = np.searchsorted(nodes.bindings[ranked.var].numbers, frame.bindings[ranked.var].numbers)
    return frame.with_fused({fusion: values.take(at) for fusion, values in nodes.fused.items()})
