"""The first rows of a match: where no others are asked for, it is solved in the order of the result until it has them.

The first key of the order may be about one variable alone. Then the nodes of that variable are taken in its order, a
portion at a time: all rows of later portions come after all rows of earlier ones. Without an order, rows come by the
ids of their variables, so that a limit alone can be reached in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.frame import Binding, Frame, joined_frames
from omnigraph.read.match.gathered import gathered
from omnigraph.read.match.match import solve
from omnigraph.read.plan.plan import planned
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.shape.order import Key, foremost

_CHEAP = 20_000.0
"""What costs no more than this, in edges that are walked, is done at once."""

_GAIN = 2.0
"""How many times less portions have to cost."""

_LEAST = 1_000
_LARGE = 64
"""How many rows are looked for in the first portion, at least, unless it has more than one of so many nodes then."""

_FASTER = 4
"""How many times larger each portion is than the one before."""

_MORE = 2.0
"""How many times more rows are looked for in the first portion than are wanted."""


@dataclass(frozen=True, slots=True)
class Portions:
    """How the first rows are found.

    Attributes:
        key: the first key of the order.
        var: the variable that it is about.
        candidates: what the variables may hold.
        wanted: how many rows are wanted.
        first: how many nodes the first portion has.
    """

    key: ir.SortKey
    var: str
    candidates: Candidates
    wanted: int
    first: int

    @property
    def reason(self) -> str:
        """Why they are found so, for people."""
        return f"{self.first} of the nodes of ${self.var} are expected to be enough"

    @property
    def text(self) -> str:
        """How they are found, for people."""
        down = " desc" if self.key.descending else ""
        return f"by {ir.expression(self.key.expr)}{down}, until there are {self.wanted} rows"


def in_portions(read: ir.Read, wanted: int | None, candidates: Candidates, context: Context) -> Portions | None:
    """How to find the first rows of a result; None when all rows are found as quickly, or have to be.

    Args:
        read: what is asked for.
        wanted: how many rows, those that are skipped included; None for all.
        candidates: what the variables of the match may hold.
        context: the read.
    """
    key = None if not wanted else _leading(read)
    if key is None or wanted is None:
        return None
    assert isinstance(key.expr, ir.Prop | ir.Ident)
    var, block = key.expr.var, read.match
    statistics = gathered(block, candidates, context)
    whole = planned(block, candidates.others, frozenset(), 1, statistics)
    if whole.cost <= _CHEAP:
        return None
    size = statistics.variables[var].size
    along = planned(block, candidates.others, frozenset({var}), size, statistics)
    expected = max(along.rows, 1.0)
    part = min(1.0, _MORE * wanted / expected)
    if _GAIN * (statistics.variables[var].there + along.cost * part) >= whole.cost:
        return None
    part = max(part, min(_LEAST / expected, 1 / _LARGE))
    return Portions(key, var, candidates, wanted, max(1, int(size * part)))


@remembered
def _leading(read: ir.Read) -> ir.SortKey | None:
    """The first key of the order, where it is a value of one variable that the match has to bind."""
    if read.grouped or read.distinct or read.ranked is not None:
        return None
    if read.order:
        key, columns = read.order[0], {column.name: column.expr for column in read.columns}
        expr = key.expr
        while isinstance(expr, ir.Column):
            expr = columns[expr.name]
        key = ir.SortKey(expr, key.descending, key.nulls_first)
    elif read.ties:
        key = ir.SortKey(read.ties[0])
    else:
        return None
    if not isinstance(key.expr, ir.Prop | ir.Ident):
        return None
    if not any(node.name == key.expr.var for node in read.match.nodes):
        return None
    # Of paths and of fused ranks, a part cannot be put together with another.
    apart = any(isinstance(part, ir.Fusion) or (isinstance(part, ir.Expand) and part.path_var) for part in walk(read))
    return None if apart else key


def first_rows(read: ir.Read, portions: Portions, context: Context) -> Frame:
    """Rows of a match, among which are the first of the result."""
    start = _start(portions, context)
    values, key = _values(portions.key, start), Key(lambda _: values, portions.key.descending, portions.key.nulls_first)
    found: list[Frame] = []
    left, size, rows = np.arange(start.count), portions.first, 0
    while not found or (len(left) and rows < portions.wanted):
        context.budget.check()
        # What is equal in the key stays together.
        chosen = foremost(values.take(pa.array(left)), key, size) if size * _FASTER < len(left) else None
        part = start.take(left if chosen is None else left[chosen])
        if context.trace is None:
            found.append(solve(read.match, part, context, portions.candidates))
        else:
            with context.trace.again():
                found.append(solve(read.match, part, context, portions.candidates))
        rows += found[-1].count
        left, size = np.delete(left, slice(None) if chosen is None else chosen), size * _FASTER
    return found[0] if len(found) == 1 else joined_frames(found)


def _start(portions: Portions, context: Context) -> Frame:
    """The nodes that the variable may hold."""
    spaces, numbers = portions.candidates.spaces(portions.var), portions.candidates.of(portions.var)
    which = None
    if len(spaces) != 1:
        which = np.repeat(np.arange(len(spaces)), [len(part) for part in numbers])
    everything = np.concatenate([np.array([], np.int64), *numbers])
    context.budget.spend(len(everything), columns=4)
    binding = Binding(spaces, everything, which)
    return Frame(len(everything), {portions.var: binding}, searching=context.search)


def _values(key: ir.SortKey, frame: Frame) -> pa.Array:
    """The values of a key, or numbers that sort as they do."""
    expr = key.expr
    if isinstance(expr, ir.Prop):
        return frame.prop(expr.var, expr.name)
    assert isinstance(expr, ir.Ident)
    places = frame.bindings[expr.var].places_by_id() if expr.role is ir.Role.ID else None
    return frame.ident(expr.var, expr.role) if places is None else places
