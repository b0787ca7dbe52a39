"""The order in which a block is executed: variables and edges, then optional blocks, then negated blocks.

Orders are cached with the compiled query. The key contains row counts and selectivities, rounded to powers of two. So a
query that runs again with other parameters usually finds its order in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.plan.join_order import Estimates, JoinOrderSearch, Move
from omnigraph.read.plan.statistics import Statistics, rounded_rows
from omnigraph.read.query.block import QueryBlock, bound_by_expand

_ANTI_JOIN_SELECTIVITY = 1 / 2
"""Estimated fraction of rows that an anti-join keeps."""


@dataclass(frozen=True, slots=True)
class BlockJoin:
    """A step that joins an inner block.

    Attributes:
        block: the inner block.
        negated: whether the step is an anti-join; else a left join.
    """

    block: QueryBlock
    negated: bool


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """The steps that execute a block.

    Attributes:
        steps: the steps, in order.
        rows: estimated number of rows after the last step.
        cost: estimated cost. The unit is the cost of walking one edge.
    """

    steps: tuple[Move | BlockJoin, ...]
    rows: float
    cost: float

    def estimates(self, rows: float, statistics: Statistics) -> tuple[float, ...]:
        """Estimated number of rows after each step, from statistics that are not rounded."""
        estimates, found = Estimates(statistics), []
        for step in self.steps:
            if isinstance(step, Move):
                rows = estimates.after(step, rows)
            elif step.negated:
                rows *= _ANTI_JOIN_SELECTIVITY
            else:
                rows = estimates.left_join(step.block.block, rows)
            found.append(rows)
        return tuple(found)


def order_block(
    block: QueryBlock,
    bound: frozenset[str],
    rows: float,
    statistics: Statistics,
    needed: frozenset[str] | None = None,
    weighted: frozenset[str] = frozenset(),
) -> BlockOrder:
    """The cheapest order of a block. It is taken from the cache of the compiled query, or searched and then cached.

    Args:
        block: the block.
        bound: variables that are bound in the input rows.
        rows: number of input rows.
        statistics: statistics of the block.
        needed: the variables that the output rows need, if duplicates of them may be merged; else None.
        weighted: variables whose nodes have weights (see `Pipeline`).
    """
    key = (bound, rounded_rows(rows), needed, weighted, statistics.key())
    found = block.join_order(key)
    if isinstance(found, BlockOrder):
        return found
    order = _BlockOrdering(block, bound, rounded_rows(rows), statistics.rounded(), needed, weighted).order()
    block.keep_join_order(key, order)
    return order


class _BlockOrdering:
    def __init__(
        self,
        block: QueryBlock,
        bound: frozenset[str],
        rows: float,
        statistics: Statistics,
        needed: frozenset[str] | None,
        weighted: frozenset[str],
    ) -> None:
        self._weighted = weighted
        values, tested = _conditions_on_values(block)
        inner = (*block.optionals, *block.negations, *(v.block for v in block.values if v.name not in tested))
        self._values = values
        self._needed = None if needed is None else needed.union(*(each.block.outer for each in inner))
        self._block = block
        self._expands = list(block.block.expands)
        names = {value.name for value in block.values}
        conditions = enumerate(block.join_conditions)
        self._conditions = [(place, c.variables) for place, c in conditions if not c.variables & names]
        self._searches = frozenset(place for place, c in enumerate(block.join_conditions) if c.is_search)
        self._estimates = Estimates(statistics)
        self._bound = set(bound)
        self._rows = rows
        self._cost = 0.0

    def order(self) -> BlockOrder:
        return BlockOrder(tuple(self._steps()), self._rows, self._cost)

    def _steps(self) -> Iterator[Move | BlockJoin]:
        nodes = self._block.nodes
        yield from self._bind(self._before_optionals())
        for optional in self._block.optionals:
            yield from self._bind(self._nodes_of(frozenset(optional.block.outer)))
            self._cost += self._estimates.block(optional.block, self._rows)[0]
            self._rows = self._estimates.left_join(optional.block, self._rows)
            yield BlockJoin(optional, negated=False)
            self._bound |= optional.introduced
        yield from self._bind(list(nodes))
        for negation in self._block.negations:
            self._cost += self._estimates.block(negation.block, self._rows)[0]
            self._rows *= _ANTI_JOIN_SELECTIVITY
            yield BlockJoin(negation, negated=True)
        self._cost += sum(self._estimates.block(value.block.block, self._rows)[0] for value in self._block.values)

    def _before_optionals(self) -> list[str]:
        """Variables of this block that are not connected with a variable of an optional block by a chain of edges.

        They are bound first.
        """
        ends = {e.left for e in self._expands} | {e.right for e in self._expands}
        waiting = _connected(ends - self._block.nodes.keys() - self._bound, self._expands)
        return [name for name in self._block.nodes if name not in waiting]

    def _nodes_of(self, names: frozenset[str]) -> list[str]:
        """The nodes of this block among some variables, and the ends of the edges and paths among them."""
        ends = {end for e in self._expands if names & {*bound_by_expand(e)} for end in (e.left, e.right)}
        return [name for name in self._block.nodes if name in names or name in ends]

    def _bind(self, names: Sequence[str]) -> Iterator[Move]:
        """The steps that bind the given variables, and walk all edges that can be reached from bound variables."""
        nodes = self._block.nodes
        known = self._bound | nodes.keys()
        possible = [e for e in self._expands if e.left in known and e.right in known]
        reached = _connected(self._bound | set(names), possible)
        expands = [e for e in possible if e.left in reached]
        wanted = [name for name in nodes if name in reached and name not in self._bound]
        needed = self._needed_after(expands)
        search = JoinOrderSearch(
            wanted,
            expands,
            self._conditions,
            frozenset(self._bound),
            self._estimates,
            needed,
            self._weighted,
            self._searches,
            self._values,
        )
        best = search.best(self._rows)
        self._rows, self._cost = best.rows, self._cost + best.cost
        self._expands = [e for e in self._expands if not any(e is walked for walked in expands)]
        yield from best.moves
        self._bound |= {*wanted, *(name for e in expands for name in bound_by_expand(e))}
        evaluated = {place for move in best.moves for place in (move.condition, *move.early)}
        self._conditions = [(place, names_) for place, names_ in self._conditions if place not in evaluated]

    def _needed_after(self, expands: Sequence[ir.Expand]) -> frozenset[str] | None:
        """The needed variables, and those of traversals that are not among the given ones."""
        if self._needed is None:
            return None
        others = (e for e in self._expands if not any(e is walked for walked in expands))
        return self._needed.union(*((e.left, e.right) for e in others))


def _conditions_on_values(block: QueryBlock) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    """The variables that each condition on results of inner blocks needs, and the names of these results."""
    outer = {value.name: frozenset(value.block.block.outer) for value in block.values}
    found, tested = [], set[str]()
    for condition in block.join_conditions:
        names = condition.variables & outer.keys()
        if names:
            found.append((condition.variables - names).union(*(outer[name] for name in names)))
            tested |= names
    return tuple(found), frozenset(tested)


def _connected(names: set[str], expands: Sequence[ir.Expand]) -> set[str]:
    """The given variables, and all variables that are connected with them by chains of edges."""
    found = set(names)
    grown = True
    while grown:
        more = {name for e in expands if {e.left, e.right} & found for name in (e.left, e.right)} - found
        found |= more
        grown = bool(more)
    return found
