"""Literals: their values, and their conversion to the type of a property or parameter."""

from __future__ import annotations

import struct

from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.query.check.scope import fail
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

_INT64 = INTEGER_RANGES[Scalar.I64]
_UINT64 = INTEGER_RANGES[Scalar.U64]

_KIND_TYPES = {
    LiteralKind.STRING: ir.STRING,
    LiteralKind.FLOAT: ir.F64,
    LiteralKind.BOOL: ir.BOOL,
}

_DATE = ValueType(Scalar.DATE)
_U64 = ValueType(Scalar.U64)


def literal(node: ast.Literal) -> ir.Const:
    """The value of a literal other than null."""
    value = node.value
    match node.kind:
        case LiteralKind.INT:
            assert isinstance(value, int)
            if _INT64[0] <= value <= _INT64[1]:
                return ir.Const(value, ir.I64)
            if value <= _UINT64[1] and value >= 0:
                return ir.Const(value, _U64)
            raise fail("T41", f"{value} does not fit 64 bits", node.span)
        case LiteralKind.DATE | LiteralKind.DATETIME:
            try:
                if node.kind is LiteralKind.DATE:
                    return ir.Const(parse_date(str(value)), _DATE)
                return ir.Const(parse_datetime(str(value)), ir.DATETIME)
            except ValueError as error:
                raise fail("T41", f'{node.kind.value}("{value}"): {error}', node.span) from None
        case LiteralKind.NULL:
            raise fail("T7", "null has no type here", node.span, hint="write 'is null' or 'is not null'")
    return ir.Const(value, _KIND_TYPES[node.kind])


def list_literal(node: ast.ListLiteral) -> ir.Const:
    """Check a list literal. All items must have the same type, or all be numbers. With a float, all become floats."""
    items: list[ir.Const] = []
    for item in node.items:
        if isinstance(item, ast.ListLiteral):
            raise fail("T28", "a list cannot hold a list", item.span)
        if item.kind is LiteralKind.NULL:
            raise fail("T28", "a list literal cannot hold null", item.span, hint="test for null with 'is null'")
        items.append(literal(item))
        if not _same_family(items[0].type, items[-1].type):
            raise fail("T28", f"a list of {items[0].type} cannot hold {items[-1].type}", item.span)
    values = tuple(item.value for item in items)
    scalar = _common_scalar(items, node)
    if scalar is Scalar.F64:
        values = tuple(float(v) for v in values)  # type: ignore[arg-type]
    return ir.Const(values, ValueType(scalar, list=True))


def _common_scalar(items: list[ir.Const], node: ast.ListLiteral) -> Scalar:
    """The common type of the items. An empty list is a list of texts."""
    scalars = {item.type.scalar for item in items} or {Scalar.STRING}
    if len(scalars) == 1:
        return scalars.pop()
    if Scalar.F64 in scalars:
        return Scalar.F64
    # The remaining case: integers, some of them larger than I64.
    if any(item.value < 0 for item in items):  # type: ignore[operator]
        raise fail("T28", "no integer type holds all of these numbers", node.span)
    return Scalar.U64


def is_empty_list(value: ir.Expr) -> bool:
    """Whether this is `[]`, which fits every list type."""
    return isinstance(value, ir.Const) and value.value == ()


def _same_family(left: ValueType, right: ValueType) -> bool:
    return left.scalar == right.scalar or (left.scalar.is_numeric and right.scalar.is_numeric)


def fit(node: ast.Literal | ast.ListLiteral, target: ValueType, what: str) -> ir.Const:
    """Convert a literal to a declared type. The conversion must be lossless.

    Args:
        node: the literal.
        target: the declared type.
        what: the property or parameter, for error messages.

    Raises:
        TypeCheckError: T3 if the literal is not a value of the type.
    """
    if isinstance(node, ast.Literal) and node.kind is LiteralKind.NULL:
        if not target.nullable:
            raise fail("T3", f"{what} is required and cannot be null", node.span)
        return ir.Const(None, target)
    if target.scalar is Scalar.VECTOR:
        return _fit_vector(node, target, what)
    if isinstance(node, ast.ListLiteral):
        if not target.list:
            raise fail("T3", f"{what} is {target}, not a list", node.span)
        items = list_literal(node)  # rejects nested lists, mixed types and nulls
        assert isinstance(items.value, tuple)
        item = target.item
        return ir.Const(tuple(_fit_scalar(n, item, what) for n in node.items), target)  # type: ignore[arg-type]
    if target.list:
        raise fail("T3", f"{what} is {target}: write the value as a list […]", node.span)
    return ir.Const(_fit_scalar(node, target, what), target)


def _fit_vector(node: ast.Literal | ast.ListLiteral, target: ValueType, what: str) -> ir.Const:
    if not isinstance(node, ast.ListLiteral):
        raise fail("T3", f"{what} takes a list of {target.dim} numbers", node.span)
    if len(node.items) != target.dim:
        raise fail("T3", f"{what} has {target.dim} dimensions, this list has {len(node.items)}", node.span)
    items = list_literal(node)
    if not items.type.scalar.is_numeric:
        raise fail("T3", f"{what} takes numbers, not {items.type.item}", node.span)
    assert isinstance(items.value, tuple)
    numbers = tuple(float(v) for v in items.value)  # type: ignore[arg-type]
    for number in numbers:
        _check_f32(number, what, node)
    return ir.Const(numbers, target)


def _fit_scalar(node: ast.Literal, target: ValueType, what: str) -> ir.ConstValue:
    const = literal(node)
    scalar, value = target.scalar, const.value
    if scalar.is_float and const.type.scalar.is_numeric:
        number = float(value)  # type: ignore[arg-type]
        if scalar is Scalar.F32:
            _check_f32(number, what, node)
        return number
    if scalar.is_integer and const.type.scalar.is_integer:
        low, high = INTEGER_RANGES[scalar]
        assert isinstance(value, int)
        if not low <= value <= high:
            raise fail("T3", f"{value} is out of range for {what} ({scalar.value}: {low} to {high})", node.span)
        return value
    if scalar is const.type.scalar:
        if target.enum_values is not None and value not in target.enum_values:
            raise not_in_enum(str(value), target, what, node)
        return value
    if scalar is Scalar.BLOB and const.type.scalar is Scalar.STRING:
        return value
    hint = None
    if node.kind is LiteralKind.STRING and scalar in (Scalar.DATE, Scalar.DATETIME):
        hint = f'write {scalar.value.lower()}("{value}")'
    raise fail("T3", f"{what} is {target}, but this is {const.type}", node.span, hint=hint)


def _check_f32(number: float, what: str, node: ast.Literal | ast.ListLiteral) -> None:
    try:
        struct.pack("<f", number)  # with the format "f", a number that is too large would become infinity
    except OverflowError:
        raise fail("T3", f"{number} is too large for {what} (F32)", node.span) from None


def not_in_enum(value: str, target: ValueType, what: str, node: ast.Literal) -> Exception:
    """The error for a text that is not a value of an enum."""
    assert target.enum_values is not None
    hint = did_you_mean(value, target.enum_values)
    return fail("T3", f'"{value}" is not a value of {what}', node.span, hint=hint or f"its values are {target.item}")
