"""Texts and lists of entities as numbers that sort as they do: made once for each entity, however many rows hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.read.budget import Spending
from omnigraph.read.match.frame import Binding, Frame
from omnigraph.read.match.widths import column_size, is_wide
from omnigraph.read.shape.aggregate import Groups
from omnigraph.read.shape.codes import Codes
from omnigraph.read.shape.order import ranks
from omnigraph.read.space.numbers import narrow
from omnigraph.read.space.space import NOTHING, Integers, Numbers, Space

_FEW = 512
"""Up to so many rows, values are compared as they are."""

_WORTHWHILE = 4
"""With at least one row for so many entities, the values of all entities are ranked, once for all reads."""

_COPIES = 3
"""How often values are in memory while they are ranked."""

_NUMBERS = 5
"""How many numbers there are about a row while its entity is found among the different ones."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The values of a column, for rows.

    Attributes:
        of_row: a number for each row; null where the value is.
        values: the values behind some numbers, null for null.
    """

    of_row: pa.Array
    values: Callable[[pa.Array], pa.Array]


def plain(expr: ir.Expr, frame: Frame) -> tuple[Binding, str] | None:
    """What a variable holds, and the column that an expression is; None for any other expression."""
    if not isinstance(expr, ir.Prop | ir.Ident) or expr.var not in frame.bindings:
        return None
    return frame.bindings[expr.var], expr.name if isinstance(expr, ir.Prop) else ROLE_COLUMNS[expr.role]


def ranked(binding: Binding, name: str, budget: Spending) -> Ranked | None:
    """The values of a column as numbers; None where they are numbers, or about as many as there are rows.

    Raises:
        BudgetExceededError: the different values take more memory than the read may take.
    """
    rows = len(binding.numbers)
    spaces = [space for space in binding.spaces if space.declares(name)]
    if rows <= _FEW or not spaces:
        return None
    if not all(space.holds_plain(name) and is_wide(space.schema.field(name).type) for space in spaces):
        return None
    budget.room(rows, _NUMBERS)
    if binding.which is None and rows * _WORTHWHILE >= binding.spaces[0].count:
        space = binding.spaces[0]
        if budget.most is None or _COPIES * space.column(name).nbytes <= budget.most:
            return _of_all(space, name, binding.numbers)
    groups = Groups.of(Codes(*binding.keys()))
    if groups.count * 2 > rows:
        return None
    few = binding.take(groups.first)
    budget.need(_COPIES * column_size(few, name))
    values = few.values(name)
    found = _from_one(values)
    return Ranked(
        _numbers(found.take(groups.of_row)),
        lambda numbers: values.take(_places(found, numbers)),
    )


def _of_all(space: Space, name: str, numbers: Numbers) -> Ranked:
    kept: Integers = space.derived(f"ranks of {name}", name, _kept)
    of_row = kept.take(numbers, mode="wrap").astype(np.int64)

    def values(wanted: pa.Array) -> pa.Array:
        return space.column(name).take(_places(kept[:-1], wanted))

    return Ranked(_numbers(of_row), values)


def _kept(values: pa.Array) -> Integers:
    # One more than there are entities: the last stands for nothing, which is null.
    found = np.append(_from_one(values), 0)
    return narrow(found, int(found.max()) + 1)


def _from_one(values: pa.Array) -> Numbers:
    """Ranks above zero; zero for null."""
    found = ranks(values) + 1
    found[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _numbers(found: Numbers) -> pa.Array:
    missing = found == 0
    return pa.array(found, mask=missing) if missing.any() else pa.array(found)


def _places(found: Integers, wanted: pa.Array) -> pa.Array:
    """Where some numbers are, null for null: the first place of each."""
    places = np.full(int(found.max(initial=0)) + 1, NOTHING, np.int64)
    places[found[::-1]] = np.arange(len(found))[::-1]
    missing = wanted.is_null().to_numpy(zero_copy_only=False)
    return pa.array(places.take(wanted.fill_null(0).to_numpy(zero_copy_only=False)), mask=missing)
