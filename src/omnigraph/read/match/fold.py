"""Fold: aggregate a property of a counted variable along edges, without producing rows for the variable.

A variable whose matches are counted (see `Count`) may still be the argument of aggregates: `avg($b.age)` for each `$a`
that `$b` is joined with. Then each node of `$a` gets, beside the number of matches, the number of values that are not
null, their sum, and the smallest and largest value. The aggregates of a group are computed from these.
"""

# See docs/decisions/0273-aggregates-fold-along-edges.md

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.read.columns.column_codes import whole_codes
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.rows.folded_column import Folded

ID = ROLE_COLUMNS[ir.Role.ID]
"""The column of the ids."""

SAFE_SUM = float(2**62)
"""Sums up to this bound cannot overflow a 64-bit integer."""


class FoldOverflowError(Exception):
    """A sum may not fit 64 bits. The match is executed without folds then; the error does not leave `Count`."""


_OF_AGGREGATE = {
    ir.AggregateFunction.COUNT: (Folded.COUNT,),
    ir.AggregateFunction.SUM: (Folded.COUNT, Folded.SUM),
    ir.AggregateFunction.AVG: (Folded.COUNT, Folded.SUM),
    ir.AggregateFunction.MIN: (Folded.COUNT, Folded.LEAST),
    ir.AggregateFunction.MAX: (Folded.COUNT, Folded.MOST),
}


def folded_values(function: ir.AggregateFunction) -> tuple[Folded, ...]:
    """The values that an aggregate is computed from."""
    return _OF_AGGREGATE[function]


@dataclass(frozen=True, slots=True)
class Fold:
    """A property of a counted variable that is aggregated.

    Attributes:
        var: the variable.
        prop: the property, or `ID`, whose values are never null.
        values: the values to compute.
    """

    var: str
    prop: str
    values: tuple[Folded, ...]

    @property
    def text(self) -> str:
        return f"${self.var}.{self.prop}"


@dataclass(frozen=True, slots=True)
class FoldValue:
    """One of the values of a fold."""

    fold: Fold
    value: Folded


def can_fold(table: EntityTable, fold: Fold) -> bool:
    """Whether the values of a property are exact as integers, so that they can be folded. Reads the column."""
    if not table.fits(table.slots * 8):
        return False
    if fold.values == (Folded.COUNT,):
        return True
    codes = whole_codes(table, fold.prop)
    return codes is not None and not codes.is_float


def node_values(table: EntityTable, fold: FoldValue, weights: Numbers | Mask | None) -> npt.NDArray[Any]:
    """The folded value of each node of the variable itself, by node number.

    Args:
        table: the nodes of the variable.
        fold: the value.
        weights: number of matches that each node stands for, or a mask of the nodes to include; None for 1 and all.
    """
    prop = fold.fold.prop
    if fold.value is Folded.COUNT:
        if prop == ID:
            return np.ones(table.slots, bool) if weights is None else weights
        there = table.column(prop).is_valid().to_numpy(zero_copy_only=False)
        return there if weights is None else multiplied(there, weights)
    codes = whole_codes(table, prop)
    assert codes is not None
    values, present = codes.values[:-1], codes.present(codes.values[:-1])
    if fold.value is Folded.SUM:
        values = values if present.all() else np.where(present, values, values.dtype.type(0))
        return values if weights is None else multiplied(values, weights)
    allowed = present if weights is None else present & (weights > 0)
    return np.where(allowed, values, empty_value(fold.value, values.dtype))


def has_values(table: EntityTable, fold: FoldValue) -> bool:
    """Whether the folded property is not null for any node, so that its values are as many as the matches."""
    prop = fold.fold.prop
    if prop == ID:
        return True
    there: Mask = table.column(prop).is_valid().to_numpy(zero_copy_only=False)
    return bool((there if table.live is None else there | ~table.live).all())


def empty_value(value: Folded, kind: np.dtype[Any]) -> Any:
    """The result for a node without values: 0, or a number that no other number of this type is beyond."""
    if value.adds:
        return 0
    bounds = np.iinfo(kind)
    return kind.type(bounds.max if value is Folded.LEAST else bounds.min)


def multiplied(values: npt.NDArray[Any], weights: Numbers | Mask) -> npt.NDArray[Any]:
    """Values times weights.

    Raises:
        FoldOverflowError: a product may not fit 64 bits.
    """
    if weights.dtype == np.bool_ or values.dtype == np.bool_:
        narrow, other = (weights, values) if weights.dtype == np.bool_ else (values, weights)
        return other & narrow if other.dtype == np.bool_ else other * narrow
    check_sums(values, _largest(weights))
    return values.astype(np.int64, copy=False) * weights


def check_sums(values: npt.NDArray[Any], count: float) -> None:
    """Raise an error if a sum of so many of the values may not fit 64 bits."""
    if _largest(values) * count >= SAFE_SUM:
        raise FoldOverflowError


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest absolute value."""
    if len(values) == 0:
        return 0.0
    return max(abs(float(values.max())), abs(float(values.min())))
