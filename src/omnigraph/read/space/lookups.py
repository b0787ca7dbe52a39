"""Finding entities without looking at all of them: by id or key, or by an index of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.evaluate import prefilter
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import canonical_text
from omnigraph.lang.types import Scalar
from omnigraph.read.context import Context
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.space.numbers import NOTHING, Numbers
from omnigraph.read.space.space import Space


def looked_up(
    name: str, conditions: Sequence[ir.Expr], space: Space, context: Context
) -> tuple[Numbers, Sequence[ir.Expr]]:
    """The entities of a type that may satisfy some conditions, and the conditions that are left to be tried on them.

    Args:
        name: the variable that the conditions are about.
        conditions: all must hold.
        space: the entities.
        context: the read.
    """
    for place, expr in enumerate(conditions):
        ids = _ids(expr, space, context)
        if ids is not None:
            found = space.find(pa.array(ids, pa.utf8()))
            found = found[found != NOTHING]
            return found if len(found) < 2 else np.unique(found), [*conditions[:place], *conditions[place + 1 :]]
    if space.count > _LARGE and space.indexed:
        for expr in conditions:
            found_ = _indexed(expr, name, space, context)
            if found_ is not None:
                return found_, conditions
    return space.everything(), conditions


def are_found_by_id(conditions: Sequence[ir.Expr], space: Space, context: Context) -> bool:
    """Whether one of some conditions says which entities there can be, by id."""
    return any(_listed(expr, space, context) is not None for expr in conditions)


_LARGE = 50_000
"""Up to so many entities, reading whole columns is as quick."""


# By id


def _ids(expr: ir.Expr, space: Space, context: Context) -> list[str] | None:
    """The ids of all entities for which a condition holds; None where it does not say."""
    found = _listed(expr, space, context)
    if found is None:
        return None
    scalar, values = found
    return [canonical_text(scalar, value) for value in values if isinstance(value, str | int)]


def _listed(expr: ir.Expr, space: Space, context: Context) -> tuple[Scalar, tuple[ir.ConstValue, ...]] | None:
    """The keys of all entities for which a condition holds, and their type; None where it does not say."""
    for place, given, is_list in _equated(expr):
        scalar = _identifies(place, space, context)
        if scalar is not None:
            value = _value(given, context)
            if not is_list:
                return _fitting(scalar, (value,))
            if isinstance(value, tuple):
                return _fitting(scalar, value)
    return None


@remembered
def _equated(expr: ir.Expr) -> tuple[tuple[ir.Expr, ir.Const | ir.Param, bool], ...]:
    """What a condition says is equal to which value, or to one of a list."""
    match expr:
        case ir.Compare(ir.CompareOp.EQ, left, right):
            sides = ((left, right), (right, left))
            return tuple((side, value, False) for side, value in sides if isinstance(value, ir.Const | ir.Param))
        case ir.InList(value, items, negated=False) if isinstance(items, ir.Const | ir.Param):
            return ((value, items, True),)
    return ()


def _value(expr: ir.Const | ir.Param, context: Context) -> ir.ConstValue:
    return expr.value if isinstance(expr, ir.Const) else context.request.params[expr.name]


def _identifies(expr: ir.Expr, space: Space, context: Context) -> Scalar | None:
    """The type of an expression that is the id of an entity, or the key that makes the id alone."""
    match expr:
        case ir.Ident(role=ir.Role.ID):
            return Scalar.STRING
        case ir.Prop(name=name):
            declared = context.accepted.catalog.nodes.get(space.type_name)
            if declared is not None and declared.key == (name,):
                return declared.properties[name].type.scalar
    return None


def _fitting(scalar: Scalar, values: tuple[ir.ConstValue, ...]) -> tuple[Scalar, tuple[ir.ConstValue, ...]] | None:
    """Values of a key; None when some are of another type, and may be equal all the same."""
    wanted = str if scalar is Scalar.STRING else bool if scalar is Scalar.BOOL else int
    if scalar.is_float or not all(value is None or type(value) is wanted for value in values):
        return None
    return scalar, values


# By an index


def _indexed(expr: ir.Expr, name: str, space: Space, context: Context) -> Numbers | None:
    """The entities that an index finds for a condition; None when there is none for it, or it is not worth it."""
    columns = _columns(expr)
    if not columns or not columns <= space.indexed or all(space.has(column) for column in columns):
        return None
    condition = prefilter(_about_self(expr), context.request)
    if condition is None:
        return None
    return space.scan(condition, columns)


@remembered
def _columns(expr: ir.Expr) -> frozenset[str]:
    """The properties that a condition looks at."""
    return frozenset(part.name for part in walk(expr) if isinstance(part, ir.Prop))


@remembered
def _about_self(expr: ir.Expr) -> ir.Expr:
    """A condition on a variable as one on the rows of a table."""
    found: ir.Expr = _rewritten(expr)
    return found


def _rewritten(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_rewritten, part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    if isinstance(part, ir.Prop | ir.Ident):
        return replace(part, var=ir.SELF)
    inner = {field.name: getattr(part, field.name) for field in fields(part)}
    return replace(part, **{name: _rewritten(value) for name, value in inner.items()})
