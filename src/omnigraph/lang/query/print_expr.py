"""Canonical source for expressions, with as few parentheses as keep the tree."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.tokens import quote

_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _UNARY = range(1, 8)


def expression(expr: ast.Expr, level: int = _OR, *, in_where: bool = False) -> str:
    """An expression as it stands where operators of `level` and tighter need no parentheses."""
    text, binding = _print(expr, in_where)
    return f"({text})" if binding < level else text


def filter_clause(expr: ast.Expr, *, guard_end: bool) -> str:
    """A filter that stands among clauses, which have no separators.

    A bare variable at its start would read as a traversal, a minus as the continuation of the filter before it, and
    a name at its end (`guard_end`) could take a parenthesis that follows for its arguments.
    """
    text = expression(expr)
    if text.startswith("-") or _starts_with_bare_var(expr) or (guard_end and ends_in_name(expr)):
        return f"({text})"
    return text


def ends_in_name(expr: ast.Expr) -> bool:
    """Whether the last token printed is a bare name."""
    while True:
        if isinstance(expr, ast.Comparison | ast.Membership | ast.Arithmetic):
            expr = expr.right
        elif isinstance(expr, ast.Not | ast.Negate):
            expr = expr.operand
        elif isinstance(expr, ast.Logical):
            expr = expr.operands[-1]
        else:
            return isinstance(expr, ast.Name)


def _starts_with_bare_var(expr: ast.Expr) -> bool:
    while True:
        if isinstance(expr, ast.Comparison | ast.Membership | ast.Arithmetic):
            expr = expr.left
        elif isinstance(expr, ast.NullTest):
            expr = expr.operand
        elif isinstance(expr, ast.Logical):
            expr = expr.operands[0]
        else:
            return isinstance(expr, ast.Var)


def _print(expr: ast.Expr, in_where: bool) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""

    def sub(child: ast.Expr, level: int) -> str:
        return expression(child, level, in_where=in_where)

    match expr:
        case ast.Literal():
            return _literal(expr), _UNARY
        case ast.ListLiteral():
            return f"[{', '.join(expression(item) for item in expr.items)}]", _UNARY
        case ast.Var():
            return f"${expr.name}", _UNARY
        case ast.Access():
            return f"${expr.var}.{expr.property}", _UNARY
        case ast.Name():
            return expr.name, _UNARY
        case ast.Now():
            return "now()", _UNARY
        case ast.Call():
            args = [sub(arg, _OR) for arg in expr.args]
            args += [f"{name}={sub(value, _OR)}" for name, value in expr.options]
            return f"{expr.function}({', '.join(args)})", _UNARY
        case ast.Aggregate():
            arg = "*" if expr.arg is None else sub(expr.arg, _OR)
            return f"{expr.function}({'distinct ' if expr.distinct else ''}{arg})", _UNARY
        case ast.Negate():
            # A minus before a number would read back as a negative literal.
            inner = sub(expr.operand, _UNARY)
            return (f"-({inner})" if inner[0] in "-0123456789" else f"-{inner}"), _UNARY
        case ast.Arithmetic():
            binding = _ADD if expr.op in "+-" else _MULTIPLY
            return f"{sub(expr.left, binding)} {expr.op} {sub(expr.right, binding + 1)}", binding
        case ast.Comparison():
            return f"{sub(expr.left, _ADD)} {expr.op} {sub(expr.right, _ADD)}", _COMPARE
        case ast.Membership():
            word = "not in" if expr.negated else "in"
            return f"{sub(expr.left, _ADD)} {word} {sub(expr.right, _ADD)}", _COMPARE
        case ast.NullTest():
            return f"{sub(expr.operand, _ADD)} is {'not ' if expr.negated else ''}null", _COMPARE
        case ast.Not():
            return f"not {sub(expr.operand, _NOT)}", _NOT
        case ast.Logical():
            # `and` inside `or` binds by itself, but nobody should have to remember that.
            binding = _OR if expr.op == "or" else _AND
            return f" {expr.op} ".join(sub(o, _NOT) for o in expr.operands), binding


def _literal(literal: ast.Literal) -> str:
    value = literal.value
    match literal.kind:
        case LiteralKind.STRING:
            return quote(str(value))
        case LiteralKind.DATE | LiteralKind.DATETIME:
            return f"{literal.kind.value}({quote(str(value))})"
        case LiteralKind.BOOL:
            return "true" if value else "false"
        case LiteralKind.NULL:
            return "null"
        case LiteralKind.FLOAT:
            return repr(value)
        case LiteralKind.INT:
            return str(value)
