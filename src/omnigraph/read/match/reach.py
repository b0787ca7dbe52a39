"""Reach: walk along edges for a range of hops.

The walk always starts at the left variable, because distances are counted from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sorting import order_of
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.filter import filter_rows
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.match.shortest_paths import Found, PathSearch
from omnigraph.read.query.block import bound_by_expand
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame, Path

_PATH_COPIES = 6
"""Number of copies of the path arrays in memory while paths are sorted."""

_PATH_BYTES = 24
"""Bytes per node or edge of a path, for its number, its type and its offset."""


@dataclass(frozen=True, slots=True)
class Reach(Operator):
    """Walk a range of hops and bind the reached nodes. If there is a path variable, also find and bind shortest paths.

    Attributes:
        expand: the traversal of the query, with a hop range.
        closing: whether both variables are already bound. Then only rows whose right node is reached are kept.
        late: whether the conditions on the right variable are evaluated only on the nodes that are reached.
    """

    expand: ir.Expand
    closing: bool = False
    late: bool = False

    @property
    def name(self) -> OperatorName:
        return OperatorName.REACH if self.expand.path_var is None else OperatorName.SHORTEST

    @property
    def text(self) -> str:
        return expansion(self.expand).removeprefix("expand ")

    @property
    def reason(self) -> str:
        if self.late:
            return "conditions are evaluated on reached nodes"
        return "both ends are bound" if self.closing else ""

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.expand.left, self.expand.right, *bound_by_expand(self.expand)})

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        return self.expand.steps

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expand.left, self.expand.right} if self.closing else {self.expand.left})

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return candidates.own(self.expand.right) if self.late else ()

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        context, expand = run.context, self.expand
        assert expand.hops is not None
        late = self.late and expand.right not in frame.bindings and not run.candidates.is_chosen(expand.right)
        walk = Walk(context, expand.steps)
        places, nodes, paths, back, count = self._reached(walk, frame, run, late=late)
        first = np.searchsorted(places, np.arange(count + 1))
        degree = np.diff(first)[back]
        total = int(degree.sum())
        context.budget.spend(total, columns=frame.width + 6)
        at = np.repeat(first[:-1][back] - (np.cumsum(degree) - degree), degree) + np.arange(total)
        rows, reached = np.repeat(np.arange(frame.count), degree), nodes[at]
        if expand.right in frame.bindings:
            kept: Mask = walk.numbering.numbers(frame.bindings[expand.right])[rows] == reached
            found = frame.take(rows[kept])
        else:
            masks = [None for _ in run.candidates.tables(expand.right)] if late else run.candidates.masks(expand.right)
            kept, binding = _bind_reached(expand.right, walk, reached, masks, run.candidates)
            found = frame.take(rows[kept]).bind(expand.right, binding)
        if paths is not None:
            assert expand.path_var is not None
            chosen = at[kept]
            length = int(np.diff(paths.node_first)[chosen].sum())
            context.budget.need(paths.nbytes + 2 * length * _PATH_BYTES)
            found = found.bind_path(expand.path_var, paths.take(chosen))
        if late:
            for condition in run.candidates.own(expand.right):
                found = filter_rows(condition, found, context)
        return found

    def _reached(
        self, walk: Walk, frame: Frame, run: BlockRun, *, late: bool
    ) -> tuple[Numbers, Numbers, Path | None, Numbers, int]:
        """Find the reached nodes. The walk runs once per distinct start, or once per distinct pair of start and end.

        Returns:
            For each start or pair, and reached node, in order: the number of the start or pair, the node, and the path
            between both (None if there is no path variable). Then, for each row, the number of its start or pair, and
            how many numbers there are.
        """
        assert self.expand.hops is not None
        starts = walk.numbering.numbers(frame.bindings[self.expand.left])
        distinct, back = np.unique(starts, return_inverse=True)
        if self.expand.right in frame.bindings:
            size = max(walk.numbering.size, 1)
            ends = walk.numbering.numbers(frame.bindings[self.expand.right])
            # A row without a node at one end has the key -1, whose start is `NOTHING`.
            keys = np.where((starts == NOTHING) | (ends == NOTHING), NOTHING, starts * size + ends)
            pairs, pair_of_row = np.unique(keys, return_inverse=True)
            if walk.prefers_both_ways(len(pairs), len(distinct), self.expand.hops):
                found = self._between(walk, pairs // size, pairs % size, run)
                return *found, pair_of_row, len(pairs)
        elif not late and run.candidates.restricts(self.expand.right):
            ends = _numbers(self.expand.right, walk, run.candidates)
            if walk.prefers_both_ways(len(distinct) * len(ends), len(distinct), self.expand.hops):
                run.context.budget.need_arrays(len(distinct) * len(ends), 4)
                both = np.repeat(distinct, len(ends)), np.tile(ends, len(distinct))
                pair, nodes, paths = self._between(walk, *both, run)
                return pair // max(len(ends), 1), nodes, paths, back, len(distinct)
        places, nodes, paths = self._walk(walk, distinct, run)
        return places, nodes, paths, back, len(distinct)

    def _between(
        self, walk: Walk, starts: Numbers, ends: Numbers, run: BlockRun
    ) -> tuple[Numbers, Numbers, Path | None]:
        """Search from both ends of pairs of nodes.

        Returns:
            For each pair that is connected within the hop range, in order: its number, its end, and the path between
            both. The path is None if there is no path variable.
        """
        assert self.expand.hops is not None
        if self.expand.path_var is None:
            pairs = np.flatnonzero(walk.both_ways(self.expand.hops).reached(starts, ends))
            return pairs, ends[pairs], None
        search = PathSearch(run.context, walk, self.expand.hops)
        return self._in_order(search, search.run_pairs(starts, ends), run)

    def _walk(self, walk: Walk, starts: Numbers, run: BlockRun) -> tuple[Numbers, Numbers, Path | None]:
        """Walk from all starts.

        Returns:
            For each pair of start and reached node, the index into `starts`, the node, and the path between both. The
            path is None if there is no path variable.
        """
        assert self.expand.hops is not None
        if self.expand.path_var is None:
            places, nodes = walk.reach(starts, self.expand.hops)
            return places, nodes, None
        search = PathSearch(run.context, walk, self.expand.hops)
        return self._in_order(search, search.run(starts), run)

    def _in_order(self, search: PathSearch, found: Found, run: BlockRun) -> tuple[Numbers, Numbers, Path]:
        """The last nodes and the paths, sorted by start and last node."""
        if len(found.start) < 2:
            return found.start, found.node, search.path(found)
        run.context.budget.need(_PATH_COPIES * (found.nodes.nbytes + found.edges.nbytes))
        order = order_of(found.start, found.node)
        return found.start[order], found.node[order], search.path(found).take(order)


def _numbers(name: str, walk: Walk, candidates: Candidates) -> Numbers:
    """Combined numbers of the candidates of a variable, ascending."""
    parts = [
        numbers + walk.numbering.begin(table.type_name)
        for table, numbers in zip(candidates.tables(name), candidates.of(name), strict=True)
        if table.type_name in walk.numbering.types
    ]
    return np.sort(np.concatenate([np.array([], np.int64), *parts]))


def _bind_reached(
    name: str, walk: Walk, reached: Numbers, masks: Sequence[Mask | None], candidates: Candidates
) -> tuple[Mask, Binding]:
    """Mask of the reached nodes that are candidates of a variable, and a binding with these nodes."""
    tables = candidates.tables(name)
    type_index = np.full(len(reached), NOTHING, np.int64)
    numbers = np.zeros(len(reached), np.int64)
    for number, (table, allowed) in enumerate(zip(tables, masks, strict=True)):
        if table.type_name not in walk.numbering.types:
            continue
        begin = walk.numbering.begin(table.type_name)
        mine = (reached >= begin) & (reached < begin + table.slots)
        if allowed is not None:
            mine[mine] = allowed[reached[mine] - begin]
        type_index[mine], numbers[mine] = number, reached[mine] - begin
    kept: Mask = type_index != NOTHING
    return kept, Binding(tables, numbers[kept], type_index[kept] if len(tables) != 1 else None)
