"""`offset` and `limit` of a read."""

from __future__ import annotations

from omnigraph.errors import InputError
from omnigraph.evaluate import Request
from omnigraph.lang.query import ir


def window(read: ir.Read, request: Request) -> tuple[int, int | None]:
    """Values of `offset` (0 if the query has none) and `limit` (None if the query has none).

    Raises:
        InputError: a parameter is not a whole number, or negative.
    """
    return _value(read.offset, request, "offset") or 0, _value(read.limit, request, "limit")


def _value(expr: ir.Expr | None, request: Request, what: str) -> int | None:
    if expr is None:
        return None
    if isinstance(expr, ir.Const):
        value = expr.value
    else:
        assert isinstance(expr, ir.Param)
        value = request.params[expr.name]
    if not isinstance(value, int) or value < 0:
        raise InputError(f"the {what} of the query is {value}", hint="give a whole number that is not negative")
    return value
