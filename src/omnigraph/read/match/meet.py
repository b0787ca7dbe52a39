"""Meet: eliminate a variable between two bound variables. For each row, count the paths that lead through it.

A cycle `$a → $b → $c → $d → $a` that is only counted needs no rows for `$d`. The paths from `$a` to `$c` through `$d`
depend only on `$a`, not on the row. So they are walked once for each node of `$a`, and counted by their two ends. A row
keeps the number of paths between its own two nodes as a weight. So the two halves of the cycle meet at `$a` and `$c`,
and no row is produced for a path that does not close the cycle.
"""

# See docs/decisions/0265-half-cycles-meet-in-the-middle.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.numbers import Integers, Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import Expand, adjacencies, walked_edges
from omnigraph.read.match.membership import Membership
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.match.row_counts import products
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame, can_merge
from omnigraph.read.topology.adjacency import Adjacency

CHUNK_PATHS = 1 << 19
"""Number of paths that are counted at a time, unless a single node has more."""

_MARKS_PER_KEY = 8
"""Minimum number of marks per marked key. About one in this many keys finds a mark of another key."""

MIN_MARK_BITS, MAX_MARK_BITS = 12, 24
"""Smallest and largest number of bits of a hash: 2 to this power is the number of marks."""


@dataclass(frozen=True, slots=True)
class Meet(Operator):
    """Multiply the weight of each row with the number of paths of two edges between two of its nodes.

    Rows without such a path are removed.

    Attributes:
        walk: the traversal from a bound variable to the eliminated variable. It evaluates the conditions on both.
        end: the traversal from the eliminated variable to another bound variable.
    """

    walk: Expand
    end: Expand

    @property
    def name(self) -> OperatorName:
        return OperatorName.MEET

    @property
    def text(self) -> str:
        return f"{self.walk.text}, {self.end.text}"

    @property
    def reason(self) -> str:
        return "paths between two bound variables are counted once for each node, not for each row"

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.walk.far})

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        return (*self.walk.edge_steps, *self.end.edge_steps)

    @property
    def needs(self) -> frozenset[str]:
        return self.walk.needs | {self.end.far}

    def is_local(self, candidates: Candidates) -> bool:
        return self.walk.is_local(candidates)

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return self.walk.pushed(candidates)

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        counts = self._counts(frame, run)
        return self._walk_rows(frame, run) if counts is None else frame.filter(counts > 0)

    def execute_counting(self, frame: Frame, run: BlockRun) -> Frame:
        counts = self._counts(frame, run)
        if counts is None:
            return self._walk_rows(frame, run)
        rows = np.flatnonzero(counts)
        kept, weight = frame.take(rows), counts.take(rows)
        return replace(kept, weight=weight if kept.weight is None else products(kept.weight, weight))

    def _walk_rows(self, frame: Frame, run: BlockRun) -> Frame:
        """Walk the edges of each row. This is for variables with several node types."""
        return Membership(self.end.expand).execute(self.walk.execute(frame, run), run)

    def _counts(self, frame: Frame, run: BlockRun) -> Numbers | None:
        """Number of paths of each row; None if a variable has several node types."""
        near, far = frame.bindings[self.walk.near], frame.bindings[self.end.far]
        middle_tables = run.candidates.tables(self.walk.far)
        (first,), (last,) = self.walk.edge_steps, self.end.edge_steps
        ends = ((near.tables, first.left_type), (middle_tables, first.right_type), (far.tables, last.right_type))
        if any([table.type_name for table in tables] != [name] for tables, name in ends):
            return None
        nodes, place = _distinct(near.numbers)
        start = Frame(len(nodes), {self.walk.near: Binding(near.tables, nodes)}, origin=np.arange(len(nodes)))
        middle = self.walk.execute(replace(start, searching=frame.searching), run)
        assert middle.origin is not None
        order = None if bool((place[1:] >= place[:-1]).all()) else np.argsort(place, kind="stable")
        place, others = (place, far.numbers) if order is None else (place.take(order), far.numbers.take(order))
        counts = np.zeros(frame.count, np.int64)
        slots = far.tables[0].slots
        for begin, end in self._chunks(middle, len(nodes), run):
            checkpoint()
            rows = slice(*np.searchsorted(place, (begin, end)).tolist())
            if rows.start == rows.stop:
                continue
            owner, reached = self._paths(middle, begin, end, run)
            wanted = (place[rows] - begin) * slots + others[rows]
            counts[rows] = occurrences(wanted, owner * slots + reached, (end - begin) * slots)
        if order is None:
            return counts
        back = np.empty_like(counts)
        back[order] = counts
        return back

    def _chunks(self, middle: Frame, nodes: int, run: BlockRun) -> Iterator[tuple[int, int]]:
        """Ranges of start nodes that have about `CHUNK_PATHS` paths each."""
        degrees = walked_edges(run.context, middle.bindings[self.walk.far], self.end.edge_steps)
        if degrees is None or nodes < 2:
            yield 0, nodes
            return
        assert middle.origin is not None
        ends = np.concatenate([[0], np.cumsum(degrees)])[np.searchsorted(middle.origin, np.arange(1, nodes + 1))]
        steps = np.arange(CHUNK_PATHS, int(ends[-1]), CHUNK_PATHS)
        bounds = np.unique([0, *np.searchsorted(ends, steps, "right").tolist(), nodes]).tolist()
        yield from pairwise(bounds)

    def _paths(self, middle: Frame, begin: int, end: int, run: BlockRun) -> tuple[Numbers, Integers]:
        """The paths of a range of start nodes: the position of the start in the range, and the last node."""
        assert middle.origin is not None
        first, last = np.searchsorted(middle.origin, (begin, end)).tolist()
        nodes, owner = middle.bindings[self.walk.far].numbers[first:last], middle.origin[first:last] - begin
        (adjacency,) = adjacencies(run.context, self.end.edge_steps[0])
        column = adjacency.column_for(len(nodes)) if isinstance(adjacency, Adjacency) else None
        if column is not None:
            run.context.budget.spend(len(nodes))
            reached = column.take(nodes)
            there = np.flatnonzero(reached >= 0)
            return owner.take(there), reached.take(there)
        degree, reached = adjacency.neighbours_of(nodes)
        run.context.budget.spend(len(reached))
        again = np.flatnonzero(reached[1:] == reached[:-1])
        owners = np.repeat(owner, degree)
        if len(again):
            # Parallel edges count once, because there is no edge variable.
            step = np.repeat(np.arange(len(degree)), degree)
            again = again[step.take(again) == step.take(again + 1)] + 1
            owners, reached = np.delete(owners, again), np.delete(reached, again)
        return owners, reached


def can_meet(walk: ir.Expand, end: ir.Expand) -> bool:
    """Whether a variable between two traversals can be eliminated, if it is only counted."""
    return all(
        len(each.steps) == 1
        and each.hops is None
        and each.edge_var is None
        and each.path_var is None
        and each.steps[0].direction is not ir.Direction.BOTH
        and each.left != each.right
        for each in (walk, end)
    )


def _distinct(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The distinct numbers, ascending, and for each number its index among them."""
    if len(numbers) and bool((numbers[1:] >= numbers[:-1]).all()):
        begins = np.concatenate([[True], numbers[1:] != numbers[:-1]])
        return numbers[begins], np.cumsum(begins) - 1
    return np.unique(numbers, return_inverse=True)


def occurrences(wanted: Numbers, keys: Numbers, size: int) -> Numbers:
    """For each wanted key, the number of times that it occurs among the keys. All keys are below `size`.

    >>> occurrences(np.array([5, 3]), np.array([3, 9, 3]), 10).tolist()
    [0, 2]
    """
    if can_merge(size, len(wanted) + len(keys)):
        return np.bincount(keys, minlength=size).take(wanted)
    # A hash filter removes most keys of each side that do not occur on the other side.
    if len(wanted) <= len(keys):
        keys = keys.take(_probable(wanted, keys))
        rows = _probable(keys, wanted)
    else:
        rows = _probable(keys, wanted)
        keys = keys.take(_probable(wanted.take(rows), keys))
    found = np.zeros(len(wanted), np.int64)
    if len(keys) and len(rows):
        keys.sort()
        begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        values, lengths = keys.take(begins), np.diff(begins, append=len(keys))
        asked = wanted.take(rows)
        at = np.searchsorted(values, asked)
        found[rows] = np.where(values.take(at, mode="clip") == asked, lengths.take(at, mode="clip"), 0)
    return found


def _probable(known: Numbers, asked: Numbers) -> Numbers:
    """Positions of the asked keys that may be among the known keys."""
    bits = min(max((_MARKS_PER_KEY * len(known)).bit_length(), MIN_MARK_BITS), MAX_MARK_BITS)
    marks = np.zeros(1 << bits, bool)
    marks[_hashes(known, bits)] = True
    return np.flatnonzero(marks.take(_hashes(asked, bits)))


def _hashes(keys: Numbers, bits: int) -> npt.NDArray[np.int64]:
    """A hash of each key, with the given number of bits."""
    found = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found >>= np.uint64(64 - bits)
    return found.view(np.int64)
