"""Evaluate inner blocks that refer to one variable once for each of its candidates, if this is cheaper.

A negated block, or a condition on `exists` and `count` blocks, then removes candidates before the match.
"""

# See docs/decisions/0267-blocks-of-one-variable-choose-candidates.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from omnigraph.lang.query import ir
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.block_value import CountedValueOf
from omnigraph.read.match.candidate_values import satisfying, without_matches
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import Count
from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.plan.block_order import BlockOrder
from omnigraph.read.plan.plan_count import count_leaves
from omnigraph.read.plan.plan_inner import (
    InnerBlock,
    ValueCondition,
    inner_leaves,
    negations_of_one_variable,
    value_conditions,
    values_of_one_variable,
)
from omnigraph.read.plan.statistics import Statistics
from omnigraph.read.query.block import QueryBlock, ValueBlock
from omnigraph.read.query.read_query import ReadQuery

MIN_EXCLUDE_GAIN = 1.0
"""Inner blocks are evaluated on candidates if the whole match costs more than this many times as much."""

MIN_EXCLUDE_COST_EDGES = 20_000.0
"""For a cheaper match, inner blocks are only evaluated on candidates if degrees are enough to count their matches."""


class CountOf(Protocol):
    """Plans a count of the matches of a block for the nodes of some variables."""

    def __call__(
        self, block: QueryBlock, leaves: tuple[Leaf, ...], needed: frozenset[str], /, *, at_most: int | None = None
    ) -> Count: ...


class InnerBlocks:
    """Chooses the inner blocks of a query that are evaluated on candidates.

    Args:
        query: the query.
        match: the execution state of the match, with the candidates.
        order: returns the best join order of a block.
        count_of: plans a count.
        counting_cost: returns the estimated cost of a count.
    """

    def __init__(
        self,
        query: ReadQuery,
        match: MatchRun,
        order: Callable[[QueryBlock], tuple[BlockOrder, Statistics]],
        count_of: CountOf,
        counting_cost: Callable[[Count], float],
    ) -> None:
        self._query = query
        self._match = match
        self._context = match.context
        self._order = order
        self._count_of = count_of
        self._counting_cost = counting_cost

    def evaluate_on_candidates(self) -> QueryBlock:
        """Evaluate blocks of one variable on its candidates, if this costs less than on the rows.

        Returns the match without the negated blocks and the conditions on `exists` and `count` blocks that were
        evaluated.
        """
        block, done = self._query.match, set[int]()
        if not block.negations and not block.values:
            return block
        whole = self._order(block)[0].cost
        for inner in block.derived(negations_of_one_variable):
            count = self._cheap_count(block, inner, whole, at_most=1)
            if count is not None:
                self._exclude(inner, count)
                done.add(inner.place)
        block = block.without_negations(frozenset(done))
        used = self._query.shape_variables | self._query.result_variables
        conditions, values = set[int](), set[int]()
        for each in block.derived(value_conditions):
            counts = self._cheap_counts(block, each, whole, used)
            if counts is not None:
                self._include(block, each, counts)
                conditions.add(each.place)
                values |= {inner.place for inner in each.blocks}
        return block.without_value_conditions(frozenset(conditions), frozenset(values))

    def _cheap_count(self, block: QueryBlock, inner: InnerBlock, whole: float, at_most: int | None) -> Count | None:
        """Counts the matches of an inner block for each candidate, if this costs less than the match (`whole`)."""
        candidates, own = self._match.candidates(block), self._match.candidates(inner.block)
        own.adopt(inner.name, candidates, inner.name)
        chosen = inner_leaves(inner, own, self._context)
        if chosen is not None:
            leaves, edges = chosen
            if MIN_EXCLUDE_GAIN * edges * candidates.fraction(inner.name) > whole:
                return None
            return self._count_of(inner.block, leaves, frozenset({inner.name}), at_most=at_most)
        if whole < MIN_EXCLUDE_COST_EDGES:
            return None
        leaves = count_leaves(inner.block, inner.block.joined_variables | {inner.name}, own, self._context)
        count = self._count_of(inner.block, leaves, frozenset({inner.name}), at_most=at_most)
        return count if MIN_EXCLUDE_GAIN * self._counting_cost(count) <= whole else None

    def _cheap_counts(
        self, block: QueryBlock, each: ValueCondition, whole: float, used: frozenset[str]
    ) -> list[Count] | None:
        """`_cheap_count` of each block of a condition; None if one is expensive, or its value is in the result."""
        found: list[Count] = []
        for inner in each.blocks:
            value = block.values[inner.place]
            exists = value.function is ir.BlockFunction.EXISTS
            count = None if value.name in used else self._cheap_count(block, inner, whole, 1 if exists else None)
            if count is None:
                return None
            found.append(count)
        return found

    def _exclude(self, inner: InnerBlock, count: Count) -> None:
        """Remove the candidates of a variable for which a negated block has a match."""
        candidates = self._match.candidates(self._query.match)
        with self._tracing(OperatorName.EXCLUDE, candidates, inner.name, count.text):
            candidates.choose(inner.name, without_matches(candidates, inner.name, count, self._match))

    def _include(self, block: QueryBlock, each: ValueCondition, counts: Sequence[Count]) -> None:
        """Keep the candidates of a variable for which a condition on values of inner blocks is true."""
        candidates, condition = self._match.candidates(block), block.join_conditions[each.place]
        values = [block.values[inner.place] for inner in each.blocks]
        text = "; ".join((condition.text, *(count.text for count in counts if count.leaves)))
        with self._tracing(OperatorName.INCLUDE, candidates, each.name, text):
            counted = list(zip(values, counts, strict=True))
            candidates.choose(each.name, satisfying(candidates, each.name, condition, counted, self._match))

    @contextmanager
    def _tracing(self, action: OperatorName, candidates: Candidates, name: str, text: str) -> Iterator[None]:
        """Add an entry to the trace, with the number of candidates that remain."""
        trace = self._context.trace
        if trace is None:
            yield
            return
        with trace.step(action, f"${name}, {text}" if text else f"${name}") as entry:
            yield
        entry.rows = candidates.size(name)

    def countable(
        self, block: QueryBlock, inner_blocks: Sequence[InnerBlock]
    ) -> Iterator[tuple[InnerBlock, tuple[Leaf, ...]]]:
        """The inner blocks that are evaluated on candidates, because this costs less than on the rows of the match."""
        if not inner_blocks:
            return
        whole, candidates = self._order(block)[0].cost, self._match.candidates(block)
        for inner in inner_blocks:
            own = self._match.candidates(inner.block)
            own.adopt(inner.name, candidates, inner.name)
            chosen = inner_leaves(inner, own, self._context)
            if chosen is not None and MIN_EXCLUDE_GAIN * chosen[1] * candidates.fraction(inner.name) <= whole:
                yield inner, chosen[0]

    def counted_value(self, block: QueryBlock, value: ValueBlock, inner: Pipeline) -> CountedValueOf | None:
        """Count the matches of a value block from degrees, if this costs less than matching it for each row."""
        own = block.derived(values_of_one_variable).get(value.name)
        if own is None:
            return None
        candidates = self._match.candidates(block)
        chosen = inner_leaves(own, self._match.candidates(own.block), self._context)
        if chosen is None:
            return None
        leaves, edges = chosen
        share = min(1.0, candidates.total(own.name) / max(inner.input_rows, 1.0))
        if MIN_EXCLUDE_GAIN * edges > inner.cost * share:
            return None
        at_most = 1 if value.function is ir.BlockFunction.EXISTS else None
        return CountedValueOf(
            value, own.name, self._count_of(own.block, leaves, frozenset({own.name}), at_most=at_most)
        )
