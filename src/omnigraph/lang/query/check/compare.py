"""Type rules of comparisons, `contains`, `in` and regular expressions."""

from __future__ import annotations

from omnigraph.errors import Span
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import fail
from omnigraph.lang.query.check.values import is_empty_list
from omnigraph.lang.schema.pattern_hints import pattern_hint
from omnigraph.lang.schema.regex import pattern_error
from omnigraph.lang.types import Scalar, ValueType

_TEXT_OPS = {"starts_with", "ends_with", "matches"}


def comparable(left: ValueType, right: ValueType) -> bool:
    """Whether two scalars can be compared: they have the same type, or both are numbers."""
    return left.scalar == right.scalar or (left.scalar.is_numeric and right.scalar.is_numeric)


def comparison(node: ast.Comparison, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Check a comparison."""
    op = node.op
    if op == "contains":
        return _contains(node, left, right)
    if op in _TEXT_OPS:
        for side, operand in ((left, node.left), (right, node.right)):
            if not is_text(side.type):
                raise fail("T7", f"'{op}' compares texts, but this is {side.type}", operand.span)
        if op == "matches":
            check_pattern(right, node.right.span)
        return ir.Compare(ir.CompareOp(op), left, right)
    for side, operand in ((left, node.left), (right, node.right)):
        if not side.type.is_plain_scalar:
            hint = "test a list with 'contains' or 'in'" if side.type.list else None
            raise fail("T7", f"{side.type} cannot be compared with '{op}'", operand.span, hint=hint)
    if not comparable(left.type, right.type):
        raise incompatible(left.type, right.type, node)
    return ir.Compare(ir.CompareOp(op), left, right)


def incompatible(left: ValueType, right: ValueType, node: ast.Comparison | ast.Membership) -> Exception:
    """The error for two types that cannot be compared."""
    hint = None
    times = {Scalar.DATE, Scalar.DATETIME}
    kinds = {left.scalar, right.scalar}
    if times & kinds and not kinds <= times:
        hint = 'a date is written date("2026-03-14"), a time datetime("2026-03-14T09:30:00Z")'
    elif kinds == times:
        hint = "a Date cannot be compared with a DateTime; use the same type on both sides"
    elif Scalar.STRING in kinds and any(kind.is_numeric for kind in kinds):
        hint = 'a text is written "7", a number 7'
    return fail("T7", f"{left} cannot be compared with {right}", node.span, hint=hint)


def _contains(node: ast.Comparison, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if left.type.list:
        if not right.type.is_plain_scalar or not comparable(left.type.item, right.type):
            raise fail("T7", f"a {left.type} cannot contain {right.type}", node.right.span)
        return ir.Compare(ir.CompareOp.HAS_ITEM, left, right)
    if not is_text(left.type):
        raise fail("T7", f"'contains' takes a list or a text on its left, but this is {left.type}", node.left.span)
    if not is_text(right.type):
        raise fail("T7", f"'contains' on a text takes a text on its right, but this is {right.type}", node.right.span)
    return ir.Compare(ir.CompareOp.CONTAINS, left, right)


def membership(node: ast.Membership, value: ir.Expr, items: ir.Expr) -> ir.Expr:
    """Check `in`."""
    if not items.type.list:
        hint = 'a list is written ["a", "b"]'
        raise fail("T7", f"'in' takes a list on its right, but this is {items.type}", node.right.span, hint=hint)
    if not value.type.is_plain_scalar:
        raise fail("T7", f"{value.type} cannot be looked up in a list", node.left.span)
    if not is_empty_list(items) and not comparable(value.type, items.type.item):
        raise incompatible(value.type, items.type.item, node)
    return ir.InList(value, items, node.negated)


def check_pattern(pattern: ir.Expr, span: Span) -> None:
    """Reject an invalid regular expression in a literal. A parameter is checked when it is bound."""
    if isinstance(pattern, ir.Const):
        reason = pattern_error(str(pattern.value))
        if reason is not None:
            raise fail("T42", f"this regular expression is not valid: {reason}", span, hint=pattern_hint(reason))


def is_text(value: ValueType) -> bool:
    return value.scalar is Scalar.STRING and not value.list
