"""Type rules of scalar functions and arithmetic."""

from __future__ import annotations

from omnigraph.errors import Span
from omnigraph.lang.functions import FUNCTIONS
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.compare import comparable, is_text
from omnigraph.lang.query.check.scope import fail
from omnigraph.lang.query.check.values import is_empty_list
from omnigraph.lang.query.foreign_syntax import function_hint
from omnigraph.lang.types import Scalar, ValueType

_TIMES = (Scalar.DATE, Scalar.DATETIME)
_WITHIN_A_DAY = {ir.TimeUnit.MILLISECOND, ir.TimeUnit.SECOND, ir.TimeUnit.MINUTE, ir.TimeUnit.HOUR}

_OWN_CHECKS = frozenset({"round", "date_diff", "date_add"})

SCALAR_FUNCTIONS = _OWN_CHECKS | {name for name, function in FUNCTIONS.items() if function.takes is not None}


def apply(node: ast.Call, args: list[ir.Expr]) -> ir.Expr:
    """Check a call of a scalar function."""
    name = node.function
    if node.options:
        raise fail("T31", f"{name} takes no named arguments", node.span)
    if name == "round":
        return _round(node, args)
    if name == "date_diff":
        return _date_diff(node, args)
    if name == "date_add":
        return _date_add(node, args)
    takes, gives = FUNCTIONS[name].takes, FUNCTIONS[name].gives
    assert takes is not None
    assert gives is not None
    (value,) = _exactly(1, node, args)
    _require(takes.accepts(value.type), node, 0, args, takes.value)
    return ir.Apply(ir.Function(name), (value,), gives.result(value.type))


def coalesce(node: ast.Call, args: list[ir.Expr | None]) -> ir.Expr:
    """Check `coalesce`. An argument is None if it is a literal null; such arguments are dropped."""
    given = [arg for arg in args if arg is not None]
    if len(args) < 2 or not given or node.options:
        raise fail("T31", "coalesce takes two or more values", node.span)
    first = next((arg.type for arg in given if not is_empty_list(arg)), given[0].type)
    for arg, written in zip(args, node.args, strict=True):
        if arg is None or (first.list and is_empty_list(arg)):
            continue
        if not (comparable(first, arg.type) and first.list == arg.type.list and first.dim == arg.type.dim):
            raise fail("T31", f"coalesce cannot mix {first} and {arg.type}", written.span)
    scalars = {arg.type.scalar for arg in given if not is_empty_list(arg)} or {first.scalar}
    nullable = all(arg.type.nullable for arg in given)
    if len(scalars) == 1:
        enums = {arg.type.enum_values for arg in given if not is_empty_list(arg)} or {None}
        result = ValueType(first.scalar, nullable, first.list, enums.pop() if len(enums) == 1 else None, first.dim)
    else:
        result = ValueType(_common_number(given), nullable, first.list)
    return ir.Apply(ir.Function.COALESCE, tuple(given), result)


def _common_number(values: list[ir.Expr]) -> Scalar:
    """The common type of numbers of different types. For integers, it is U64 if none of them can be negative."""
    if any(value.type.scalar.is_float for value in values):
        return Scalar.F64
    return Scalar.U64 if all(map(_never_negative, values)) else Scalar.I64


def _never_negative(value: ir.Expr) -> bool:
    if value.type.scalar in (Scalar.U32, Scalar.U64):
        return True
    if not isinstance(value, ir.Const):
        return False
    numbers = value.value if isinstance(value.value, tuple) else (value.value,)
    return all(isinstance(number, int) and number >= 0 for number in numbers)


def arithmetic(node: ast.Arithmetic, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Check arithmetic. Integers give I64. `/`, and operations with a float, give F64."""
    nullable = left.type.nullable or right.type.nullable
    if node.op == "+" and is_text(left.type) and is_text(right.type):
        return ir.Arith(ir.ArithOp.CONCAT, left, right, ir.STRING.with_nullable(nullable))
    if node.op == "+" and (is_text(left.type) or is_text(right.type)):
        raise fail("T31", f"'+' takes two numbers or two texts, not {left.type} and {right.type}", node.span)
    for side, operand in ((left, node.left), (right, node.right)):
        if not is_number(side.type):
            hint = "use date_add or date_diff" if _is_time(side.type) else None
            raise fail("T31", f"'{node.op}' takes numbers, but this is {side.type}", operand.span, hint=hint)
    integers = left.type.scalar.is_integer and right.type.scalar.is_integer
    result = ir.I64 if integers and node.op != "/" else ir.F64
    # A division by zero gives null, so the result is nullable.
    return ir.Arith(ir.ArithOp(node.op), left, right, result.with_nullable(nullable or node.op in "/%"))


def negate(node: ast.Negate, value: ir.Expr) -> ir.Expr:
    if not is_number(value.type):
        raise fail("T31", f"'-' takes a number, but this is {value.type}", node.operand.span)
    return ir.Negate(value, arithmetic_type(value.type))


def unknown_function(node: ast.Call) -> Exception:
    span = Span(node.span.start, node.span.start + len(node.function))
    hint = function_hint(node.function) or did_you_mean(node.function, FUNCTIONS)
    return fail("T31", f"there is no function '{node.function}'", span, hint=hint or f"known: {', '.join(FUNCTIONS)}")


def is_number(value: ValueType) -> bool:
    return value.scalar.is_numeric and not value.list


def arithmetic_type(value: ValueType) -> ValueType:
    """The result type of arithmetic on a number."""
    return (ir.I64 if value.scalar.is_integer else ir.F64).with_nullable(value.nullable)


def _is_time(value: ValueType) -> bool:
    return value.scalar in _TIMES and not value.list


def _exactly(count: int, node: ast.Call, args: list[ir.Expr]) -> list[ir.Expr]:
    if len(args) != count:
        raise fail("T31", f"{node.function} takes {count} argument{'s' * (count > 1)}, not {len(args)}", node.span)
    return args


def _require(holds: bool, node: ast.Call, index: int, args: list[ir.Expr], wanted: str) -> None:
    if not holds:
        raise fail("T31", f"{node.function} takes {wanted}, but this is {args[index].type}", node.args[index].span)


def _round(node: ast.Call, args: list[ir.Expr]) -> ir.Expr:
    if not 1 <= len(args) <= 2:
        raise fail("T31", "round takes a number and an optional number of digits", node.span)
    _require(is_number(args[0].type), node, 0, args, "a number")
    if len(args) == 2:
        _require(args[1].type.scalar.is_integer and not args[1].type.list, node, 1, args, "a whole number of digits")
    nullable = any(arg.type.nullable for arg in args)
    return ir.Apply(ir.Function.ROUND, tuple(args), arithmetic_type(args[0].type).with_nullable(nullable))


def _unit(node: ast.Call, args: list[ir.Expr]) -> ir.TimeUnit:
    unit = args[0]
    names = [u.value for u in ir.TimeUnit]
    if not isinstance(unit, ir.Const) or not isinstance(unit.value, str):
        raise fail("T31", f"{node.function} takes its unit as a text: {', '.join(names)}", node.args[0].span)
    if unit.value not in names:
        hint = did_you_mean(unit.value, names)
        raise fail("T31", f'"{unit.value}" is not a unit of time', node.args[0].span, hint=hint)
    return ir.TimeUnit(unit.value)


def _date_diff(node: ast.Call, args: list[ir.Expr]) -> ir.Expr:
    _, start, end = _exactly(3, node, args)
    unit = _unit(node, args)
    for i in (1, 2):
        _require(_is_time(args[i].type), node, i, args, "two dates")
    if start.type.scalar is not end.type.scalar:
        raise fail("T31", "date_diff takes two Dates or two DateTimes, not one of each", node.span)
    _whole_days(node, unit, start.type)
    return ir.DateDiff(unit, start, end, ir.I64.with_nullable(start.type.nullable or end.type.nullable))


def _date_add(node: ast.Call, args: list[ir.Expr]) -> ir.Expr:
    _, amount, when = _exactly(3, node, args)
    unit = _unit(node, args)
    _require(amount.type.scalar.is_integer and not amount.type.list, node, 1, args, "a whole number of units")
    _require(_is_time(when.type), node, 2, args, "a Date or DateTime")
    _whole_days(node, unit, when.type)
    nullable = amount.type.nullable or when.type.nullable
    return ir.DateAdd(unit, amount, when, ValueType(when.type.scalar, nullable))


def _whole_days(node: ast.Call, unit: ir.TimeUnit, value: ValueType) -> None:
    if unit in _WITHIN_A_DAY and value.scalar is Scalar.DATE:
        raise fail("T31", f"a Date has no {unit.value}s", node.args[0].span, hint="use a DateTime, or whole days")
