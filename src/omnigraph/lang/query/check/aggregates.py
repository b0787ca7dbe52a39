"""Type rules of aggregates."""

from __future__ import annotations

from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.expression_checker import ExpressionChecker
from omnigraph.lang.query.check.scope import VarKind, entity, fail
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import Scalar, ValueType

TWO_STAGES = "compute the inner aggregate in a stage of its own, which 'with' ends, and use its alias after that"
"""A hint for nested aggregates."""


def aggregate(node: ast.Aggregate, expressions: ExpressionChecker) -> ir.Aggregate:
    """Check an aggregate. Its argument must not contain aggregates or ranks."""
    function = ir.AggregateFunction(node.function)
    if node.arg is None:
        return ir.Aggregate(function, None, False, ir.I64)
    arg = _argument(node.arg, expressions)
    name, value = node.function, arg.type
    match function:
        case ir.AggregateFunction.COUNT:
            if node.distinct and value.is_vector:
                raise fail("T8", "count(distinct …) cannot compare vectors", node.arg.span)
            result = ir.I64
        case ir.AggregateFunction.SUM | ir.AggregateFunction.AVG:
            if not value.scalar.is_numeric or value.list:
                what = "a node" if _is_node(node.arg, arg) else value
                hint = _instead(name, node.arg, arg)
                raise fail("T8", f"{name} takes numbers, but this is {what}", node.arg.span, hint=hint)
            exact = function is ir.AggregateFunction.SUM and value.scalar.is_integer
            result = (ir.I64 if exact else ir.F64).with_nullable(True)
        case ir.AggregateFunction.MIN | ir.AggregateFunction.MAX:
            if not value.is_plain_scalar:
                raise fail("T8", f"{name} takes values that have an order, but this is {value}", node.arg.span)
            result = value.with_nullable(True)
        case ir.AggregateFunction.COLLECT:
            if value.list or value.is_vector:
                raise fail("T8", f"collect cannot make a list of {value}", node.arg.span)
            result = ValueType(value.scalar, False, True, value.enum_values)
    return ir.Aggregate(function, arg, node.distinct, result)


def _is_node(node: ast.Expr, arg: ir.Expr) -> bool:
    """Whether an argument is a bare node variable."""
    return isinstance(node, ast.Var) and isinstance(arg, ir.Entity | ir.Ident)


def _instead(function: str, node: ast.Expr, arg: ir.Expr) -> str:
    """A hint if the argument of `sum` or `avg` is not a number."""
    if isinstance(node, ast.Var) and _is_node(node, arg):
        return f"name one of its properties: {function}(${node.name}.…)"
    return "length(…) is the number of items" if arg.type.list else "count, min and max take other values, too"


def _argument(node: ast.Expr, expressions: ExpressionChecker) -> ir.Expr:
    """Check the argument. A bare node variable means its id, so `count($v)` counts rows."""
    for part in walk(node):
        if isinstance(part, ast.Aggregate):
            raise fail("T30", "an aggregate cannot contain another aggregate", part.span, hint=TWO_STAGES)
    if isinstance(node, ast.Var) and node.name not in expressions.scope.context.params:
        variable = expressions.find(node.name, node)
        if variable.kind is VarKind.NODE:
            return entity(variable)
    if isinstance(node, ast.Access) and node.property != "*":
        value = expressions.access(node, allow_blob=True)
        if value.type.scalar is Scalar.BLOB:
            raise fail("T24", f"{node.property} is a Blob, which cannot be aggregated", node.span)
        return value
    return expressions.inside_aggregate().check(node)
