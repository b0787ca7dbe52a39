"""The steps that make a result of the rows of a match: what they do, and about how many rows there are after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.plan.plan import Operator

_GROUPS = 0.75
"""How many groups so many rows make, as a power of that, where nothing is known about what they are grouped by."""

_HAVING = 1 / 3
"""The share of groups that a condition is taken to keep."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """A step that makes a result.

    Attributes:
        text: what is done, for people.
        estimate: about how many rows there are after it.
    """

    operator: Operator
    text: str
    estimate: float


def shaping(
    read: ir.Read, rows: float, offset: int, limit: int | None, distinct: Callable[[ir.Expr], float | None]
) -> Iterator[Shaping]:
    """The steps that make the result of a read.

    Args:
        read: the read.
        rows: about how many rows the match has.
        offset: how many rows are skipped.
        limit: how many rows are kept.
        distinct: about how many different values an expression has, where that is known.
    """
    keys = read.keys if read.grouped else read.columns
    if read.grouped:
        rows = _groups(rows, keys, distinct) if keys else 1.0
        aggregates = dict.fromkeys(p for p in walk((read.columns, read.having)) if isinstance(p, ir.Aggregate))
        by = f" by {', '.join(ir.expression(column.expr) for column in keys)}" if keys else ""
        yield Shaping(Operator.AGGREGATE, ", ".join(map(ir.expression, aggregates)) + by, rows)
        for condition in read.having:
            rows *= _HAVING
            yield Shaping(Operator.HAVING, ir.expression(condition), rows)
    elif read.distinct:
        rows = _groups(rows, keys, distinct)
        yield Shaping(Operator.DISTINCT, ", ".join(column.name for column in keys), rows)
    rows = max(rows - offset, 0.0) if limit is None else min(max(rows - offset, 0.0), limit)
    yield Shaping(Operator.SORT if limit is None else Operator.TOP, _order(read, offset, limit), rows)
    yield Shaping(Operator.PROJECT, ", ".join(column.name for column in read.columns), rows)


def _groups(rows: float, keys: tuple[ir.OutColumn, ...], distinct: Callable[[ir.Expr], float | None]) -> float:
    groups = 1.0
    for column in keys:
        known = distinct(column.expr)
        groups *= max(rows, 1.0) ** _GROUPS if known is None else known
    return min(rows, groups)


def _order(read: ir.Read, offset: int, limit: int | None) -> str:
    keys = [ir.expression(key.expr) + (" desc" if key.descending else "") for key in read.order]
    by = keys or list(map(ir.expression, read.ties))
    parts = [f"by {', '.join(by)}"] if by else []
    parts += [f"offset {offset}"] if offset else []
    parts += [] if limit is None else [f"limit {limit}"]
    return ", ".join(parts)
