"""The planner: chooses the physical plan of a read from alternatives, by estimated cost."""

# See docs/decisions/0152-the-physical-plan-is-a-value.md

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TypeGuard

from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.block_value import BlockValueOf
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.close import Close, can_close
from omnigraph.read.match.count import Count, OptionalCount
from omnigraph.read.match.expand import Expand
from omnigraph.read.match.filter import Filter
from omnigraph.read.match.joins import AntiJoin, LeftJoin
from omnigraph.read.match.meet import Meet
from omnigraph.read.match.membership import Membership
from omnigraph.read.match.narrow import narrow
from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.match.pipeline import MatchRun, Operator, Pipeline
from omnigraph.read.match.rank import Rank
from omnigraph.read.match.reach import Reach
from omnigraph.read.match.scan import Scan
from omnigraph.read.match.subtract import Subtract
from omnigraph.read.match.top_rows import Portions
from omnigraph.read.plan.block_order import BlockJoin, BlockOrder, order_block
from omnigraph.read.plan.collect_statistics import estimated_size
from omnigraph.read.plan.join_order import Move
from omnigraph.read.plan.plan import MatchOperator, Plan
from omnigraph.read.plan.plan_block_values import with_block_values
from omnigraph.read.plan.plan_candidates import InnerBlocks
from omnigraph.read.plan.plan_conditions import with_early_conditions
from omnigraph.read.plan.plan_count import count_leaves, ends_of_folds, folded_leaves, inner_folds, without_leaves
from omnigraph.read.plan.plan_inner import (
    optionals_of_one_variable,
)
from omnigraph.read.plan.plan_portions import first_portion
from omnigraph.read.plan.plan_rank import ranked_nodes
from omnigraph.read.plan.plan_shape import distinct_estimate, shape_operators
from omnigraph.read.plan.refined_order import refined_order
from omnigraph.read.plan.statistics import Statistics
from omnigraph.read.query.block import QueryBlock, ValueBlock
from omnigraph.read.query.read_query import FoldableProperties, ReadQuery, ranked_variable
from omnigraph.read.query.subtraction import Term, only_edge, subtraction_terms
from omnigraph.read.rows.frame import Frame
from omnigraph.read.shape.grouping import distinct_frame
from omnigraph.read.shape.window import window

MIN_FOLD_COST_EDGES = 50_000.0
"""If producing rows for the arguments of aggregates costs less than this, they are not folded (see `Fold`)."""

MIN_FOLD_GAIN = 1.0
"""Arguments of aggregates are folded if producing rows for them costs more than this many times as much."""

SUBTRACT_COST_ROWS = 20.0
"""Cost per row of adding up the terms of a subtraction. The unit is the cost of walking one edge."""

MIN_SUBTRACT_GAIN = 1.0
"""Matches are counted by subtraction if evaluating all conditions costs more than this many times as much."""

SUBTRACT_PLAN_COST_EDGES = 20_000.0
"""Cost of planning a subtraction. The unit is the cost of walking one edge."""


class Planner:
    """Chooses the plan of one read. During execution, it plans blocks again if estimates turn out to be wrong.

    Args:
        query: the query.
        context: the state of the running read: snapshot, parameters and budget.
        stage: the stage before the query; None if there is none.
        rows: the rows of that stage, or their estimated number if the stage was not run.

    Attributes:
        match: the execution state of the match. It keeps the results of conditions that were evaluated while planning.
    """

    def __init__(
        self, query: ReadQuery, context: Context, stage: ReadQuery | None = None, rows: Frame | float = 1.0
    ) -> None:
        self._query = query
        self._context = context
        self._bound = None if stage is None else stage.passed_on
        self._rows = rows.count if isinstance(rows, Frame) else rows
        self._statistics: list[Statistics] = []
        self._block = query.match
        self.match = MatchRun(query, context, self, rows if isinstance(rows, Frame) else None)
        self._inner_blocks = InnerBlocks(query, self.match, self._order, self._count_of, self._counting_cost)

    def plan(self, *, in_chunks: bool = False) -> Plan:
        """Choose the physical plan.

        Args:
            in_chunks: whether the plan is for execution in chunks. Then it has to produce all rows of the match.
        """
        match: MatchOperator
        offset, limit = window(self._query.read, self._context.request)
        wanted = None if in_chunks or limit is None else offset + limit
        if self._bound is not None:
            match = self._count_after_stage() or self._all_rows()
        else:
            self._block = self._inner_blocks.evaluate_on_candidates()
            count = self._count(in_chunks=in_chunks, wanted=wanted)
            if count is None or self._query.sorts_by_all_columns or self._query.read.distinct:
                # The first rows in sort order may be found without counting all matches.
                match = self._rank(wanted) or self._portions(wanted, count) or count or self._all_rows()
            else:
                match = count
        return Plan(match, shape_operators(self._query, offset, limit), tuple(self._statistics))

    # Alternatives for the match

    def _all_rows(self) -> MatchOperator:
        query = self._query
        merged = query.shape_variables if query.ignores_duplicates and not query.is_stage else None
        pipeline = self.pipeline(self._block, self._bound or frozenset(), self._rows, self.match, merged)
        if self._bound is not None or query.is_stage:
            return AllRows(pipeline)
        return AllRows(replace(pipeline, needed=query.shape_variables, distinct=query.ignores_duplicates))

    def _count(self, *, in_chunks: bool, wanted: int | None) -> Count | Subtract | None:
        """Count the matches of some variables, if these variables need not be in the rows.

        The result is grouped, it ignores duplicates, or it has a limit and all its columns are sort keys.
        """
        query = self._query
        repeats = query.sorts_by_all_columns and wanted is not None
        if not query.counts_matches and not repeats and not (query.ignores_duplicates and not query.read.grouped):
            return None
        block, optionals, _ = self._without_counted_optionals()
        needed = query.result_variables if query.read.grouped else query.shape_variables
        leaves = count_leaves(block, block.joined_variables | needed, self.match.candidates(block), self._context)
        if query.ignores_duplicates:
            count = replace(self._count_of(block, leaves, needed, at_most=1), weighted=False)
            return count if in_chunks else self._folded(count)
        count = self._count_of(block, leaves, needed, optionals)
        if not in_chunks and (subtract := self._subtract(block, count)) is not None:
            return subtract
        if not in_chunks and (folded := self._folded(count)) is not count:
            return folded
        # Without leaves, this helps if rows do not need all variables: duplicate rows are merged while matching.
        return count if leaves or optionals or not needed >= block.nodes.keys() else None

    def _folded(self, count: Count) -> Count:
        """`count`, or a count that produces no rows for arguments of aggregates either, if it costs less."""
        query = self._query
        properties = query.foldable_properties
        if not properties or self._counting_cost(count) < MIN_FOLD_COST_EDGES:
            return count
        block, optionals, inner = self._without_counted_optionals({} if query.ignores_duplicates else properties)
        needed = query.result_variables - inner
        candidates = self.match.candidates(block)
        arriving = frozenset(each.name for each in optionals if each.count.folds)
        while True:
            leaves, folds = folded_leaves(block, needed, properties, candidates, self._context)
            if not folds and not inner:
                return count
            if not folds:
                leaves = count_leaves(block, block.joined_variables | needed, candidates, self._context)
            stops = ends_of_folds(leaves, arriving)
            if not stops:
                break
            needed |= stops
        needed -= {fold.var for fold in folds}
        # The values are looked up in the output rows, for the nodes at which they arrive.
        ends = {leaf.onto for leaf in leaves if leaf.onto is not None} | {each.name for each in optionals}
        needed |= ends - {leaf.name for leaf in leaves}
        found = self._count_of(block, leaves, needed, optionals, count.at_most)
        if MIN_FOLD_GAIN * self._counting_cost(found) >= self._counting_cost(count):
            return count
        return replace(found, weighted=count.weighted, folds=folds, unfolded=count)

    def _count_after_stage(self) -> MatchOperator | None:
        """Like `_count`, for a match whose input are the rows of a stage."""
        query, block = self._query, self._block
        if not query.counts_matches and not (query.ignores_duplicates and not query.read.grouped):
            return None
        assert self._bound is not None
        own = block.with_outer_nodes
        needed = query.result_variables if query.read.grouped else query.shape_variables
        required = own.joined_variables | needed | self._bound
        leaves = count_leaves(own, required, self.match.candidates(own), self._context)
        if not leaves:
            return None
        inputs = tuple(sorted({leaf.onto for leaf in leaves if leaf.onto in self._bound}))
        if query.ignores_duplicates:
            count = replace(self._count_of(block, leaves, needed, at_most=1), weighted=False)
        else:
            count = self._count_of(block, leaves, needed)
        return replace(count, input_variables=inputs)

    def _without_counted_optionals(
        self, properties: FoldableProperties | None = None
    ) -> tuple[QueryBlock, tuple[OptionalCount, ...], frozenset[str]]:
        """The match without the optional blocks whose matches are only counted, and the counts of these blocks.

        The counts fold the given properties. The last result are the variables of optional blocks that are folded.
        """
        block, query, properties = self._block, self._query, properties or {}
        needed = query.result_variables if query.read.grouped else query.shape_variables
        folded = frozenset(properties.keys() - block.nodes.keys())
        needed -= folded
        possible = [
            inner
            for inner in block.derived(optionals_of_one_variable)
            if not block.optionals[inner.place].introduced & needed
        ]
        if self._query.ignores_duplicates:
            # An optional block does not remove rows, and their number does not matter.
            return block.without_optionals(frozenset(inner.place for inner in possible)), (), frozenset()
        counts, done, gone = [], set[int](), set[str]()
        for inner, leaves in self._inner_blocks.countable(block, possible):
            mine = folded & block.optionals[inner.place].introduced
            folds = inner_folds(leaves, {name: properties[name] for name in mine}, self.match.candidates(inner.block))
            if folds is None:
                continue
            count = replace(self._count_of(inner.block, leaves, frozenset({inner.name})), folds=folds)
            counts.append(OptionalCount(inner.name, count))
            done.add(inner.place)
            gone |= mine
        return block.without_optionals(frozenset(done)), tuple(counts), frozenset(gone)

    def _subtract(self, block: QueryBlock, count: Count) -> Subtract | None:
        """Count by subtraction, if this costs less than `count`, which evaluates all conditions on its rows."""
        needed = self._query.result_variables
        bound = {*block.nodes, *(e.edge_var.name for e in block.block.expands if e.edge_var is not None)}
        possible = block.derived(subtraction_terms)
        if not possible or not needed <= bound or block.values:
            return None
        left = self._counting_cost(count) - MIN_SUBTRACT_GAIN * SUBTRACT_PLAN_COST_EDGES
        if left < 0:
            return None
        terms: list[tuple[Term, Count]] = []
        for term in possible:
            candidates = self.match.candidates(term.block)
            for name in block.nodes:
                candidates.adopt(term.name(name), self.match.candidates(block), name)
            needed_here = frozenset(map(term.name, needed))
            required = term.block.joined_variables | needed_here
            leaves = count_leaves(term.block, required, candidates, self._context)
            optionals = tuple(replace(each, name=term.name(each.name)) for each in count.optionals)
            terms.append((term, self._count_of(term.block, leaves, needed_here, optionals)))
            cost = self._counting_cost(terms[-1][1]) + (SUBTRACT_COST_ROWS * terms[-1][1].rows if needed else 0)
            left -= MIN_SUBTRACT_GAIN * cost
            if left < 0:
                return None
        return Subtract(block, tuple(terms), needed)

    def _counting_cost(self, count: Count) -> float:
        """Estimated cost of a count. The unit is the cost of walking one edge."""
        expands = [leaf.expand for leaf in count.leaves if leaf.expand is not None]
        edges = sum(self._context.tables.edges(step.edge).count for expand in expands for step in expand.steps)
        return count.rest.cost + edges

    def _count_of(
        self,
        block: QueryBlock,
        leaves: tuple[Leaf, ...],
        needed: frozenset[str],
        optionals: tuple[OptionalCount, ...] = (),
        at_most: int | None = None,
    ) -> Count:
        onto = {leaf.onto for leaf in leaves if leaf.onto is not None} | {each.name for each in optionals}
        weighted = frozenset(onto) - {leaf.name for leaf in leaves}
        # With another limit of weights, duplicate rows are not merged, so that no variable may be eliminated.
        merged = needed if at_most in (None, 1) else None
        if merged is None:
            # Weights are looked up in the output rows.
            needed |= weighted
        others = without_leaves(block, leaves)
        if self._bound is None and self._has_topologies(block):
            # Few candidates of a leaf may leave few candidates of the other variables. Then any join order is cheap.
            narrow(leaves, others, self.match.candidates(others), self._context)
        rest = self.pipeline(others, self._bound or frozenset(), self._rows, self.match, merged, weighted)
        rest = replace(rest, needed=needed, distinct=at_most == 1, counting=at_most is None)
        return Count(leaves, rest, at_most, optionals)

    def _has_topologies(self, block: QueryBlock) -> bool:
        """Whether the topologies of all edge types of a block exist. Planning does not build them."""
        edges = {step.edge for expand in block.block.expands for step in expand.steps}
        return all(self._context.topologies.known(edge) is not None for edge in edges)

    def _rank(self, wanted: int | None) -> MatchOperator | None:
        """Find the best-ranked nodes first, if a rank is the first sort key and matching all nodes costs more."""
        rank = self._query.leading_rank if wanted else None
        if rank is None or wanted is None:
            return None
        block, var = self._block, ranked_variable(rank)
        candidates = self.match.candidates(block)
        # Optional blocks do not remove nodes from the rows. So they are left out while the best nodes are searched.
        counted = block.without_unused_optionals
        whole, statistics = self._order(block)

        def leaves() -> tuple[Leaf, ...]:
            return count_leaves(counted, counted.joined_variables | {var}, candidates, self._context)

        def counting_cost(found: tuple[Leaf, ...]) -> float | None:
            if not found and counted is block:
                return None
            return self._order(without_leaves(counted, found))[0].cost

        chosen = ranked_nodes(wanted, whole, statistics.variables[var].size, leaves, counting_cost)
        if chosen is None:
            return None
        nodes, leaves_ = chosen
        count = self._count_of(counted, leaves_, frozenset({var}), at_most=wanted)
        pipeline = self.pipeline(block, frozenset({var}), nodes, self.match)
        return Rank(rank, var, count, wanted, nodes, pipeline)

    def _portions(self, wanted: int | None, count: Count | Subtract | None = None) -> MatchOperator | None:
        """Match batches of nodes in sort order, if a few batches are expected to have enough rows for the limit.

        `count` is an alternative that counts all matches.
        """
        key = self._query.leading_key if wanted else None
        if key is None or wanted is None:
            return None
        assert isinstance(key.expr, ir.Prop | ir.Ident)
        block, var = self._block, key.expr.var
        whole, statistics = self._order(block)
        query, context = self._query, self._context
        is_distinct = query.read.distinct
        first = first_portion(
            wanted,
            whole,
            statistics.variables[var],
            lambda size: order_block(block, frozenset({var}), size, statistics),
            self._counting_cost(count) if isinstance(count, Count) else inf,
            distinct_estimate(query, whole.rows, context) if is_distinct else inf,
        )
        if first is None:
            return None
        needed = query.shape_variables if query.sorts_by_all_columns or query.ignores_duplicates else None
        pipeline = self.pipeline(block, frozenset({var}), first, self.match, needed)
        if needed is not None:
            pipeline = replace(pipeline, needed=needed, counting=not is_distinct, distinct=is_distinct)
        distinct = (lambda frame: distinct_frame(query, frame, context)) if is_distinct else None
        return Portions(key, var, wanted, first, pipeline, distinct)

    def _order(self, block: QueryBlock) -> tuple[BlockOrder, Statistics]:
        """The best join order of a block without bound variables, for cost comparisons, and its statistics."""
        return refined_order(block, frozenset(), 1, self.match.candidates(block), self._context)

    # Blocks

    def pipeline(
        self,
        block: QueryBlock,
        bound: frozenset[str],
        rows: float,
        match: MatchRun,
        needed: frozenset[str] | None = None,
        weighted: frozenset[str] = frozenset(),
    ) -> Pipeline:
        """Choose the pipeline of a block.

        Args:
            block: the block.
            bound: variables that are bound in the input rows.
            rows: number of input rows.
            match: the execution state, with the candidates of the variables of the block.
            needed: the variables that the output rows need, if duplicates of them may be merged; else None.
            weighted: variables whose nodes have weights (see `Pipeline`).
        """
        trace = self._context.trace
        candidates = match.candidates(block)
        if trace is None or block.number == 0:
            order, statistics = refined_order(block, bound, rows, candidates, self._context, needed, weighted)
        else:
            # Conditions of inner blocks are evaluated now, but the trace has to show them when the block is executed.
            with trace.collecting() as entries:
                order, statistics = refined_order(block, bound, rows, candidates, self._context, needed, weighted)
            match.keep_planning_entries(block, entries)
        estimates: tuple[float, ...] = ()
        if trace is not None or block.inner_blocks:
            estimates = order.estimates(rows, statistics)
        if trace is not None:
            self._statistics.append(statistics)
        operators: list[Operator] = []
        known, before = bound, rows
        for place, step in enumerate(order.steps):
            edge = only_edge(step.block.block) if isinstance(step, BlockJoin) and step.negated else None
            if edge is not None and {edge.left, edge.right} <= known:
                operators.append(Membership(edge, negated=True))
            elif isinstance(step, BlockJoin):
                inner = self.pipeline(step.block, known, before, match)
                operators.append(
                    AntiJoin(replace(inner, needed=frozenset(), distinct=True)) if step.negated else LeftJoin(inner)
                )
            else:
                operators.append(operator_for(step, block, is_first=not known))
            known |= operators[-1].binds
            before = estimates[place] if estimates else before
        operators, estimates = with_early_conditions(operators, estimates)
        operators, estimates = _with_closing_edges(operators, estimates)
        if block.values:

            def plan_value(value: ValueBlock, known: frozenset[str], rows: float) -> Operator:
                exists = value.function is ir.BlockFunction.EXISTS
                inner = replace(
                    self.pipeline(value.block, known, rows, match),
                    needed=frozenset(),
                    distinct=exists,
                    counting=not exists,
                )
                plain = not bound and self._bound is None and match is self.match
                counted = self._inner_blocks.counted_value(block, value, inner) if plain else None
                return BlockValueOf(value, inner) if counted is None else counted

            operators, estimates = with_block_values(
                block, operators, estimates, bound, rows, plan_value, statistics.shares
            )
        rows_ = estimates[-1] if estimates else order.rows
        return Pipeline(block, tuple(operators), bound, rows, rows_, order.cost, estimates, weighted=weighted)

    def estimate(self, candidates: Candidates, name: str) -> float:
        """Estimated number of candidates of a variable."""
        return estimated_size(candidates, name, self._context)


def _with_closing_edges(
    operators: list[Operator], estimates: tuple[float, ...]
) -> tuple[list[Operator], tuple[float, ...]]:
    """Replace each expand and the membership tests that follow it by one operator, where this is possible.

    Conditions between them are evaluated after the tests.
    """
    found: list[Operator] = []
    kept: list[float] = []
    for place, operator in enumerate(operators):
        filters = 0
        while filters < len(found) and isinstance(found[len(found) - 1 - filters], Filter):
            filters += 1
        at = len(found) - 1 - filters
        last = found[at] if at >= 0 else None
        walk = last.walk if isinstance(last, Close) else last
        if _is_closing(operator) and isinstance(walk, Expand) and can_close(walk, operator.expand):
            closing = last.closing if isinstance(last, Close) else ()
            found[at] = Close(walk, (*closing, operator.expand))
            if kept:
                share = estimates[place] / estimates[place - 1] if estimates[place - 1] else 0.0
                kept[at:] = [estimate * share for estimate in kept[at:]]
        else:
            found.append(operator)
            kept += estimates[place : place + 1]
    return found, tuple(kept)


def _is_closing(operator: Operator) -> TypeGuard[Membership]:
    return isinstance(operator, Membership) and not operator.negated


def operator_for(move: Move, block: QueryBlock, *, is_first: bool) -> Operator:
    """The operator that executes a step of a join order."""
    if move.condition is not None:
        return Filter(block.join_conditions[move.condition])
    if move.scan is not None:
        return Scan(block.nodes[move.scan], is_product=not is_first)
    assert move.expand is not None
    if move.expand.hops is not None:
        return Reach(move.expand, closing=move.closing, late=move.late)
    if move.closing:
        return Membership(move.expand)
    early = tuple(block.join_conditions[place] for place in move.early)
    walk = Expand(move.expand, forward=move.forward, late=move.late, early=early)
    return walk if move.end is None else Meet(walk, Expand(move.end, forward=move.end.left == walk.far))
